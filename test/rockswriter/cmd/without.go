//go:build !rocksdb || !cgo

package main

import (
	"errors"

	"streams-sidecar/test/rockswriter"
)

func write(string, *rockswriter.Recipe) error {
	return errors.New("built without the tag rocksdb; run scripts/build-engine test")
}
