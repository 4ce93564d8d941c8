//go:build !rocksdb || !cgo

package main

import "streams-sidecar/internal/engine/wire"

const reason = "sidecar-engine was built without the tag rocksdb"

func engine() (func(*wire.Request) wire.Answer, wire.Hello) {
	return func(*wire.Request) wire.Answer { return wire.Answer{Error: reason} }, wire.Hello{Without: reason}
}
