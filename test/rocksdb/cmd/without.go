//go:build !rocksdb || !cgo

package main

import (
	"errors"

	"streams-sidecar/test/rocksdb"
)

func look(string, []string, bool) (*rocksdb.Answer, error) {
	return nil, errors.New("built without the tag rocksdb; run scripts/build-engine test")
}
