// Package holder gives tests a separate process that holds locks as Kafka
// Streams and RocksDB do: POSIX write locks on whole files. A process never
// sees its own locks with F_GETLK, so that tests need another one.
//
// A test package that uses it calls [Main] from its TestMain. Only tests may
// import it.
package holder

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

const env = "STREAMS_SIDECAR_TEST_HOLDER"

// Main runs the tests, or, in the process that [Hold] starts, holds locks.
func Main(m *testing.M) {
	if os.Getenv(env) != "" {
		os.Exit(serve(os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

// Holder is a process that holds locks.
type Holder struct {
	t     testing.TB
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Reader
}

// Hold starts a process that holds a lock on each of the files. It ends with
// the test.
func Hold(t testing.TB, paths ...string) *Holder {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h := &Holder{t: t, cmd: exec.Command(exe, "-test.run=^$")}
	h.cmd.Env = append(os.Environ(), env+"=1")
	h.cmd.Stderr = os.Stderr
	if h.stdin, err = h.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.out = bufio.NewReader(out)
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = h.cmd.Process.Kill() // it may have ended by itself
		_ = h.cmd.Wait()
	})
	for _, p := range paths {
		h.Take(p)
	}
	return h
}

// PID of the process.
func (h *Holder) PID() int { return h.cmd.Process.Pid }

// Take takes one more lock. It returns when the lock is held.
func (h *Holder) Take(path string) { h.t.Helper(); h.ask("take " + path) }

// Release lets go of one lock. It returns when the lock is free.
func (h *Holder) Release(path string) { h.t.Helper(); h.ask("release " + path) }

// Kill ends the process with SIGKILL and waits for it; all its locks are free then.
func (h *Holder) Kill() {
	h.t.Helper()
	if err := h.cmd.Process.Kill(); err != nil {
		h.t.Fatal(err)
	}
	_ = h.cmd.Wait() // "signal: killed"
}

func (h *Holder) ask(line string) {
	h.t.Helper()
	if _, err := io.WriteString(h.stdin, line+"\n"); err != nil {
		h.t.Fatal(err)
	}
	answer, err := h.out.ReadString('\n')
	if err != nil || answer != "ok\n" {
		h.t.Fatalf("%s: %q %v", line, answer, err)
	}
}

func serve(in io.Reader, out io.Writer) int {
	held := map[string]*os.File{}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		verb, path, _ := strings.Cut(lines.Text(), " ")
		err := change(held, verb, path)
		answer := "ok"
		if err != nil {
			answer = err.Error()
		}
		if _, err := fmt.Fprintln(out, answer); err != nil {
			return 1
		}
	}
	return 0
}

func change(held map[string]*os.File, verb, path string) error {
	if verb == "release" {
		f, ok := held[path]
		if !ok {
			return fmt.Errorf("%s is not held", path)
		}
		delete(held, path)
		return f.Close()
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	held[path] = f
	return syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart})
}
