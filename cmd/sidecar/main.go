// Command sidecar watches the RocksDB state of a Kafka Streams application
// from outside: see README.md and docs/architecture.md.
package main

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// version is set by the linker.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	forgetEmpty()
	code := execute(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// forgetEmpty makes a setting that is empty, as a template often leaves it, one
// that is not given.
func forgetEmpty() {
	for _, setting := range os.Environ() {
		if name, value, _ := strings.Cut(setting, "="); value == "" && strings.HasPrefix(name, "SIDECAR_") {
			_ = os.Unsetenv(name) // its name is a right one
		}
	}
}
