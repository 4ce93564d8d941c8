// Package child is the engine's side of the conversation: it puts its process
// under bounds and answers one request after the other until nobody asks any
// more.
//
// It knows no RocksDB: whoever calls it brings the function that answers. It
// must never outlive its parent, and never answer without having been asked.
// Only cmd/sidecar-engine and tests may import it.
package child

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"streams-sidecar/internal/engine/wire"
)

// The environment between the sidecar, the engine, and the engine in its bounds.
const (
	// MemoryEnv is the bound of the engine's own memory in bytes, as decimal.
	MemoryEnv = "SIDECAR_ENGINE_MEMORY"
	boundEnv  = "SIDECAR_ENGINE_BOUND"
)

const (
	niceness = 10
	stack    = 1 << 20 // of each thread; RocksDB's own default is glibc's 8 MiB
	maxFiles = 256
)

// Confine puts the process under its bounds and starts its program anew in
// them: only so do they hold for the threads that exist before main. It
// returns nil in the second life, and must be called by the main thread, first
// of all.
//
// The process ends when its parent does. It cannot write to any file (a size of
// 0 bytes is all that a file of it may have), cannot gain privileges, has
// neither core dumps nor many descriptors, is nice, and the first to be killed
// where memory ends. Its heap and stacks end at
// the number of bytes in MemoryEnv, if that is set: an allocation beyond
// fails, and with it the process.
func Confine() error {
	if os.Getenv(boundEnv) != "" {
		return nil
	}
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("ask for the parent's death: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new privileges: %w", err)
	}
	// Some containers forbid it, and nothing but courtesy depends on it.
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, niceness)
	bounds := []struct {
		what  int
		bytes uint64
	}{{unix.RLIMIT_FSIZE, 0}, {unix.RLIMIT_CORE, 0}, {unix.RLIMIT_STACK, stack}, {unix.RLIMIT_NOFILE, maxFiles}}
	if text := os.Getenv(MemoryEnv); text != "" {
		n, err := strconv.ParseUint(text, 10, 63)
		if err != nil {
			return fmt.Errorf("%s: %w", MemoryEnv, err)
		}
		bounds = append(bounds, struct {
			what  int
			bytes uint64
		}{unix.RLIMIT_DATA, n})
	}
	for _, b := range bounds {
		var now unix.Rlimit
		if err := unix.Getrlimit(b.what, &now); err != nil {
			return fmt.Errorf("ask for limit %d: %w", b.what, err)
		}
		n := min(b.bytes, now.Max)
		if err := unix.Setrlimit(b.what, &unix.Rlimit{Cur: n, Max: n}); err != nil {
			return fmt.Errorf("set limit %d to %d: %w", b.what, n, err)
		}
	}
	// What whoever started the sidecar left open in it is none of the child's
	// business. Kernels before 5.11 cannot; there a container has nothing open.
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	// Where memory ends before the bound does, the child is the one to go.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0) //nolint:forbidigo // no volume: a word to the kernel
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the own program: %w", err)
	}
	env := append(os.Environ(), boundEnv+"=1",
		// glibc would give each thread an arena of its own, and each keeps what
		// it was freed.
		"MALLOC_ARENA_MAX=1", "MALLOC_TRIM_THRESHOLD_=1048576",
		"GOMEMLIMIT=16MiB", "GOMAXPROCS=2")
	return fmt.Errorf("start the engine within its bounds: %w", unix.Exec(self, os.Args, env))
}

// Serve says hello and answers requests until in ends, one at a time. It
// returns nil when in ends, also in the middle of an answer: its caller must
// then end the process, because an answer of RocksDB cannot be called off.
func Serve(in io.Reader, out io.Writer, hello wire.Hello, answer func(*wire.Request) wire.Answer) error {
	hello.Protocol = wire.Protocol
	if err := wire.Write(out, &hello, wire.MaxReply); err != nil {
		return fmt.Errorf("say hello: %w", err)
	}
	failed := make(chan error, 2)
	requests := make(chan *wire.Request, 1)
	go func() {
		for r := range requests {
			if err := reply(out, r, answer); err != nil {
				failed <- err
				return
			}
		}
	}()
	go func() {
		defer close(requests)
		for {
			r := new(wire.Request)
			if err := wire.Read(in, r, wire.MaxRequest); err != nil {
				failed <- err
				return
			}
			select {
			case requests <- r:
			default:
				failed <- errors.New("asked twice while still answering")
				return
			}
		}
	}()
	if err := <-failed; !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

func reply(out io.Writer, r *wire.Request, answer func(*wire.Request) wire.Answer) error {
	err := wire.Write(out, &wire.Reply{ID: r.ID, Answer: answer(r)}, wire.MaxReply)
	if errors.Is(err, wire.ErrTooLarge) {
		return wire.Write(out, &wire.Reply{ID: r.ID, TooLarge: true}, wire.MaxReply)
	}
	return err
}
