package engine

import (
	"context"
	"os"
	"os/exec"
	"time"
)

// AskAnyway is Ask of a database that our reader does not vouch for.
func AskAnyway(ctx context.Context, c *Client, path string, fingerprint uint64, w What) (*Answer, error) {
	return c.ask(ctx, subject{path: path, fingerprint: fingerprint}, w)
}

// Fake makes the child a program with this environment instead of an engine.
func (o *Options) Fake(env ...string) { o.env = env }

// Clock sets what the client takes for the time.
func (o *Options) Clock(now func() time.Time) { o.now = now }

// NoPause lets a child follow another at once.
func (o *Options) NoPause() { o.pause = func(int) time.Duration { return 0 } }

// Haunt leaves a killed process that does not end until release is called.
func Haunt(c *Client) (release func()) {
	p := &process{cmd: &exec.Cmd{Process: &os.Process{Pid: 4711}}, ended: make(chan struct{})}
	c.zombie = p
	return func() { close(p.ended) }
}

// Pid of the child, 0 if there is none.
func Pid(c *Client) int {
	if c.child == nil {
		return 0
	}
	return c.child.cmd.Process.Pid
}

// Ended says that the child has ended by itself.
func Ended(c *Client) bool {
	select {
	case <-c.child.ended:
		return true
	default:
		return false
	}
}

// The pauses between failures.
var PauseAfter = pauseAfter

// Pause sets the pauses between failures.
func (o *Options) Pause(f func(int) time.Duration) { o.pause = f }
