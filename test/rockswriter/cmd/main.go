// Command rockswriter writes a database for tests: it reads a recipe, as JSON,
// from its standard input and follows it in the directory that it is given. See
// package rockswriter. Without the tag rocksdb it builds everywhere and says so.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"streams-sidecar/test/rockswriter"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "rockswriter: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%d arguments instead of one, the directory of the database", len(args))
	}
	var r rockswriter.Recipe
	in := json.NewDecoder(os.Stdin)
	in.DisallowUnknownFields()
	if err := in.Decode(&r); err != nil {
		return fmt.Errorf("read recipe: %w", err)
	}
	return write(args[0], &r)
}
