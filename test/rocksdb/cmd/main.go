// Command rocksopener opens a copy of a database for reading and writing, reads
// and verifies all of it, and prints what RocksDB said, as JSON. Its arguments
// are the directory and the column families beside default. See package
// rocksdb. With the argument --verify-only before them it reads nothing, and
// measures the verification. Without the tag rocksdb it builds everywhere and says so.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"streams-sidecar/test/rocksdb"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "rocksopener: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("no argument instead of the directory of the database and its families")
	}
	for what, bound := range map[int]uint64{
		unix.RLIMIT_CPU:  rocksdb.CPUSeconds,
		unix.RLIMIT_AS:   rocksdb.MemoryBytes,
		unix.RLIMIT_CORE: 0,
	} {
		// The hard limit of the processor's time is the one that kills: Go
		// takes no notice of the signal at the soft one.
		if err := unix.Setrlimit(what, &unix.Rlimit{Cur: bound, Max: bound}); err != nil {
			return fmt.Errorf("set limit %d: %w", what, err)
		}
	}
	verifyOnly := args[0] == rocksdb.VerifyOnly
	if verifyOnly {
		args = args[1:]
	}
	if len(args) == 0 {
		return errors.New("no directory of a database")
	}
	answer, err := look(args[0], args[1:], verifyOnly)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(answer)
}
