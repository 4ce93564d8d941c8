// Command rockswriter writes a database for tests: it reads a recipe, as JSON,
// from its standard input and follows it in the directory that it is given, or,
// after -restless, writes an application there until it is told to stop. See
// package rockswriter. Without the tag rocksdb it builds everywhere and says so.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"streams-sidecar/test/rockswriter"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "rockswriter: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 2 && args[0] == rockswriter.RestlessFlag {
		var r rockswriter.Restless
		if err := decode(&r); err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		return writeRestless(ctx, args[1], &r)
	}
	if len(args) != 1 {
		return fmt.Errorf("%d arguments instead of one, the directory of the database", len(args))
	}
	var r rockswriter.Recipe
	if err := decode(&r); err != nil {
		return err
	}
	return write(args[0], &r)
}

func decode(recipe any) error {
	in := json.NewDecoder(os.Stdin)
	in.DisallowUnknownFields()
	if err := in.Decode(recipe); err != nil {
		return fmt.Errorf("read recipe: %w", err)
	}
	return nil
}
