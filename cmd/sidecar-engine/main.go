// Command sidecar-engine is RocksDB's own opinion of a database, in a process
// that may hang, crash or run out of memory without harm: the sidecar starts
// it, asks it over its standard input, and ends it. It is of no use to a person.
//
// It is the only program that links RocksDB, and only if it was built with the
// tag rocksdb (scripts/build); without, it builds everywhere and says so. It opens databases
// read-only: never for writing, never as a secondary, never to repair.
package main

import (
	"fmt"
	"os"
	"runtime"

	"streams-sidecar/internal/engine/child"
)

// The main thread, because bounds and the parent's death belong to a thread.
func init() { runtime.LockOSThread() }

func main() {
	if err := run(); err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "sidecar-engine: %v\n", err)
		os.Exit(1)
	}
	// Not by returning from main: an answer that never comes must not hold it up,
	// nor RocksDB's destructors.
	os.Exit(0)
}

func run() error {
	if err := child.Confine(); err != nil {
		return err
	}
	answer, hello := engine()
	return child.Serve(os.Stdin, os.Stdout, hello, answer)
}
