// Package rocksdb asks RocksDB what it makes of a database that may be damaged:
// whether it opens it for reading and writing, as Kafka Streams does, what it
// then reads, and whether it vouches for every block. Its test holds the
// sidecar's own judgement against that, on the same bytes.
//
// RocksDB does it in a process of its own, test/rocksdb/cmd, under bounds of
// time and memory, once for each database. It changes the database, so that
// only a copy is ever shown to it. Only tests may import this package.
package rocksdb

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"streams-sidecar/test/rockswriter"
)

// The bounds of the process. A sound database of a hundred kilobytes takes it a
// twentieth of a second and 200 MiB of address space.
const (
	// CPUSeconds is processor time, so that a machine with much to do makes no
	// endless loop out of a slow open.
	CPUSeconds = 2
	// MemoryBytes of address space.
	MemoryBytes = 2 << 30
	// patience is for what waits instead of turning.
	patience = time.Minute
)

// Answer is what RocksDB made of a database. Texts of errors are its own.
type Answer struct {
	// End of the process that did not answer; "" if it did, and then the rest counts.
	End  End    `json:"-"`
	Last string `json:"-"` // words before that end

	OpenError string            `json:"open_error,omitempty"` // then nothing else was looked at
	Families  map[string]Family `json:"families,omitempty"`
	// VerifyError is that of DB::VerifyChecksum, which reads every block of every
	// live table.
	VerifyError string `json:"verify_error,omitempty"`
	// VerifyCPU is the processor time that it took, seconds.
	VerifyCPU float64 `json:"verify_cpu_seconds"`
}

// VerifyOnly is the first argument that has the process verify a database, but
// not read it.
const VerifyOnly = "--verify-only"

// Family is what can be read of a column family.
type Family struct {
	Entries int    `json:"entries"`
	Digest  string `json:"digest"`          // of all keys and values, in their order
	Lost    int    `json:"lost,omitempty"`  // keys that the iterator has and Get does not, or with another value
	Error   string `json:"error,omitempty"` // of the iterator, or else the first of Get
}

// End is how the process ended without an answer.
type End string

// The ends. Out of memory is a death: the allocation fails.
const (
	Hangs End = "hangs"
	Dies  End = "dies"
)

// Program is what opens databases. The test is skipped where RocksDB could not
// be had.
func Program(t testing.TB) string {
	t.Helper()
	program := filepath.Join(filepath.Dir(rockswriter.Program(t)), "rocksopener")
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("%v; run scripts/build-engine test", err)
	}
	return program
}

// Ask has RocksDB open the database in dir for reading and writing, with these
// column families beside default, each of which it makes if there is none, as
// Kafka Streams has it do.
func Ask(t testing.TB, dir string, families []string) Answer {
	t.Helper()
	return ask(t, append([]string{dir}, families...)...)
}

// Verify has RocksDB do nothing but DB::VerifyChecksum, of the family default
// alone.
func Verify(t testing.TB, dir string) Answer {
	t.Helper()
	return ask(t, VerifyOnly, dir)
}

func ask(t testing.TB, args ...string) Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, Program(t), args...)
	// An arena for each thread would take the address space for nothing.
	cmd.Env = append(os.Environ(), "MALLOC_ARENA_MAX=1", "GOMAXPROCS=1")
	var out, words bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &words
	err := cmd.Run()
	var a Answer
	switch exit, ok := errors.AsType[*exec.ExitError](err); {
	case err == nil:
		if err := json.Unmarshal(out.Bytes(), &a); err != nil {
			t.Fatalf("answer %q: %v", out.Bytes(), err)
		}
		return a
	case !ok || exit.ExitCode() == 1:
		t.Fatalf("ask about %s: %v\n%s", args, err, words.Bytes())
	case signal(exit.ProcessState) == syscall.SIGKILL: // at the end of its time
		a.End = Hangs
	default:
		a.End = Dies
	}
	// What the library or Go's runtime says of it first.
	a.Last, _, _ = strings.Cut(strings.TrimSpace(words.String()), "\n")
	if s := signal(cmd.ProcessState); s != 0 {
		a.Last = strings.TrimSpace(s.String() + " " + a.Last)
	}
	return a
}

// signal that ended the process, 0 if none did.
func signal(state *os.ProcessState) syscall.Signal {
	if s, ok := state.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return s.Signal()
	}
	return 0
}
