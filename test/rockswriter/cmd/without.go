//go:build !rocksdb || !cgo

package main

import (
	"context"
	"errors"

	"streams-sidecar/test/rockswriter"
)

var errWithout = errors.New("built without the tag rocksdb; run scripts/build-engine test")

func write(string, *rockswriter.Recipe) error { return errWithout }

func writeRestless(context.Context, string, *rockswriter.Restless) error { return errWithout }
