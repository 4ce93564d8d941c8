package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"streams-sidecar/internal/engine/child"
	"streams-sidecar/internal/engine/wire"
	"streams-sidecar/internal/volume"
)

const (
	// reapFor is how long a killed child is waited for, and stuckAfter before it
	// is called stuck: on a busy machine a nice process takes seconds to die, and
	// one that is within a system call on a hung volume ends when that does.
	reapFor    = 2 * time.Second
	stuckAfter = 15 * time.Second
	// lastWords is how much of what a child writes to stderr is kept.
	lastWords  = 1 << 10
	maxVersion = 64 // bytes of the version of a library
	maxPause   = time.Minute
	// longestRun of deaths that lengthens the pause after them: to two seconds.
	longestRun = 5
)

// pauseAfter n failures in a row. The first one costs nothing: the next
// database may be well.
func pauseAfter(n int) time.Duration {
	if n <= 1 {
		return 0
	}
	return min(maxPause, 250*time.Millisecond<<min(n-2, 16))
}

// ensure makes sure that there is a child that has said hello.
func (c *Client) ensure(ctx context.Context) error {
	if c.child != nil {
		select {
		case <-c.child.ended: // between two requests
			why := c.child.epitaph()
			c.bury()
			if c.idle++; c.idle > 1 { // once may be a mishap
				c.starts++
				c.failed = &Error{Kind: Broken, Path: c.o.Program, Detail: "it ends by itself: " + why}
				c.notBefore = c.o.now().Add(c.o.pause(c.starts + 2))
			}
		default:
			return nil
		}
	}
	if z := c.zombie; z != nil {
		if err := c.wait(ctx, stuckAfter-time.Since(z.killed), z.ended); err != nil {
			return err
		}
		select {
		case <-z.ended:
			c.zombie = nil
		default:
			return &Error{Kind: Stuck, Path: c.o.Program, Detail: "process " + strconv.Itoa(z.cmd.Process.Pid)}
		}
	}
	if wait := c.notBefore.Sub(c.o.now()); wait > 0 {
		if c.failed != nil { // it will not be better for the next database
			return c.failed
		}
		if err := c.wait(ctx, wait, nil); err != nil {
			return err
		}
	}
	err := c.start(ctx)
	if err == nil {
		if c.failed = nil; c.idle == 0 {
			c.starts = 0
		}
		return nil
	}
	c.bury()
	if ctx.Err() != nil {
		return fmt.Errorf("start the engine: %w", ctx.Err())
	}
	c.starts++
	c.failed = err
	c.notBefore = c.o.now().Add(c.o.pause(c.starts + 2)) // from half a second on
	return err
}

// wait returns nil when the time is over or until is closed, whichever is first.
func (c *Client) wait(ctx context.Context, d time.Duration, until <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-until:
	case <-timer.C:
	case <-ctx.Done():
		return fmt.Errorf("wait for the engine: %w", ctx.Err())
	case <-c.closing:
		return &Error{Kind: Closed}
	}
	return nil
}

func (c *Client) start(ctx context.Context) *Error {
	if c.o.Memory < LeastMemory {
		return &Error{Kind: NoMemory, Path: c.o.Program, Detail: fmt.Sprintf("it may have %d MiB and needs %d", c.o.Memory>>20, LeastMemory>>20)}
	}
	if _, err := os.Stat(c.o.Program); errors.Is(err, fs.ErrNotExist) {
		return &Error{Kind: Missing, Path: c.o.Program}
	}
	p, err := launch(&c.o)
	if err != nil {
		return &Error{Kind: Broken, Path: c.o.Program, Err: err}
	}
	c.child = p
	if c.everStarted {
		c.restarts.Add(1)
	}
	c.everStarted = true
	var hello wire.Hello
	if e := p.receive(ctx, &hello, startDeadline); e != nil {
		if e.Kind == Garbage {
			e.Detail = "what it says first is nothing that sidecar-engine says"
		}
		return &Error{Kind: Broken, Path: c.o.Program, Detail: e.Detail, Err: e.Err}
	}
	if why := unfit(&hello); why != "" {
		return &Error{Kind: Incompatible, Path: c.o.Program, Detail: why}
	}
	c.version = hello.RocksDB
	return nil
}

// unfit says why a child is not the one for us. RocksDB 10.4 to 10.10 is what
// reads every table format from 0 to 7; below 10.9 functions are missing that
// the binding is linked to.
func unfit(h *wire.Hello) string {
	if h.Protocol != wire.Protocol {
		return fmt.Sprintf("it speaks protocol %d, not %d", h.Protocol, wire.Protocol)
	}
	if h.Without != "" {
		return h.Without
	}
	if len(h.RocksDB) > maxVersion {
		return fmt.Sprintf("the version of its library has %d bytes", len(h.RocksDB))
	}
	major, rest, _ := strings.Cut(h.RocksDB, ".")
	minor, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(minor)
	if h.RocksDB != "" && (major != "10" || err != nil || n < 9) {
		return fmt.Sprintf("its library is RocksDB %s, not 10.9 or a later 10", volume.Text(h.RocksDB))
	}
	return ""
}

// bury ends the child, and waits a moment for its end.
func (c *Client) bury() {
	p := c.child
	if p == nil {
		return
	}
	c.child = nil
	p.killed = time.Now()
	_ = p.cmd.Process.Kill() // it may have ended
	_ = p.in.Close()
	_ = p.out.Close()
	timer := time.NewTimer(reapFor)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
		c.zombie = p
	}
}

// process is one child.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    io.ReadCloser
	stderr words
	killed time.Time
	ended  chan struct{} // closed once it was waited for
	status string        // how it ended; set before ended is closed
}

// launch starts the program. Its environment is empty but for the bounds: what
// the sidecar was given (tokens among it) is none of its business.
func launch(o *Options) (*process, error) {
	program, err := filepath.Abs(o.Program)
	if err != nil {
		return nil, fmt.Errorf("path of the engine: %w", err)
	}
	cmd := exec.Command(program)
	cmd.Env = append([]string{child.MemoryEnv + "=" + strconv.FormatUint(o.Memory, 10)}, o.env...)
	cmd.Dir = string(filepath.Separator) // keeps no directory of the volume busy
	// A group of its own: a Ctrl-C in the terminal is the sidecar's.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = time.Second
	p := &process{cmd: cmd, ended: make(chan struct{})}
	cmd.Stderr = &p.stderr
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("pipe to the engine: %w", err)
	}
	out, theirs, err := os.Pipe()
	if err != nil {
		_ = p.in.Close()
		return nil, fmt.Errorf("pipe from the engine: %w", err)
	}
	p.out = out
	cmd.Stdout = theirs
	started := make(chan error)
	go func() {
		// The parent, to Linux, is the thread that has started the child: that
		// one must stay as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		_ = theirs.Close() // the child has its own
		started <- err
		if err != nil {
			_ = out.Close()
			return
		}
		err = cmd.Wait()
		p.status = "it ended by itself"
		if err != nil {
			p.status = err.Error()
		}
		close(p.ended)
	}()
	if err := <-started; err != nil {
		_ = p.in.Close()
		return nil, err
	}
	return p, nil
}

// ask sends one request and takes its answer. After an error other than TooLarge
// the child must be killed.
func (p *process) ask(ctx context.Context, r *wire.Request, deadline time.Duration) (*Answer, *Error) {
	sent := make(chan error, 1)
	go func() { sent <- wire.Write(p.in, r, wire.MaxRequest) }() // a child that reads nothing
	var reply wire.Reply
	if err := p.receive(ctx, &reply, deadline); err != nil {
		return nil, err
	}
	if err := <-sent; err != nil || reply.ID != r.ID {
		return nil, &Error{Kind: Garbage, Detail: fmt.Sprintf("answer %d to request %d", reply.ID, r.ID), Err: err}
	}
	if reply.TooLarge {
		return nil, &Error{Kind: TooLarge, Detail: fmt.Sprintf("more than %d MiB", wire.MaxReply>>20)}
	}
	return &reply.Answer, nil
}

// receive takes one message of the child.
func (p *process) receive(ctx context.Context, v any, deadline time.Duration) *Error {
	got := make(chan error, 1)
	go func() { got <- wire.Read(p.out, v, wire.MaxReply) }()
	timer := time.NewTimer(deadline)
	defer timer.Stop()
	var err error
	select {
	case err = <-got:
	case <-timer.C:
		err = context.DeadlineExceeded
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err == nil {
		return nil
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
		// v stays with the reader, which ends when the pipe is closed.
		return &Error{Kind: Hung, Detail: fmt.Sprintf("after %v", deadline)}
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return &Error{Kind: Died, Detail: p.epitaph()}
	}
	return &Error{Kind: Garbage, Err: err}
}

// epitaph says how a child ended whose pipe has ended, and what it said last.
func (p *process) epitaph() string {
	timer := time.NewTimer(reapFor)
	defer timer.Stop()
	status := "it does not end"
	select {
	case <-p.ended:
		status = p.status
	case <-timer.C:
	}
	if said := p.stderr.String(); said != "" {
		status += ": " + said
	}
	return status
}

// words keeps the first bytes that are written to it, and takes all of them: the
// first line says why, what follows is a trace.
type words struct {
	mu   sync.Mutex
	kept []byte
}

// Write implements io.Writer.
func (w *words) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kept = append(w.kept, b[:min(len(b), lastWords-len(w.kept))]...)
	return len(b), nil
}

// String is the first line.
func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	line, _, _ := strings.Cut(strings.TrimSpace(string(w.kept)), "\n")
	return volume.Text(line)
}
