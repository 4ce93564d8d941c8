package shutdown

import (
	"context"
	"time"
)

// Settle waits until no application holds a lock and how each of them ended is
// written down, at most until the context ends. It gives the ids of those that still do then; known is false if it
// could not be told of all of them.
func (g *Gate) Settle(ctx context.Context) (held []string, known bool) {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		if snap := g.cfg.Snapshot(); snap != nil {
			m := g.ask(snap)
			if m.nothing() {
				g.Follow() // judges the end
				return nil, true
			}
			held, known = ids(m.held), m.unknown == ""
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return held, known
		}
	}
}

// End answers every waiting call now, and every later one at once: the agent
// stops. It does not wait for the answers to be sent.
func (g *Gate) End() { g.endOnce.Do(func() { close(g.ended) }) }

// ending says that End was called.
func (g *Gate) ending() bool {
	select {
	case <-g.ended:
		return true
	default:
		return false
	}
}

// sleep is one turn of waiting; it ends early with End.
func (g *Gate) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-g.ended:
	}
}

const explainEnding = "the sidecar was told to stop, and its own limit is over"

// clip shortens a text so that it takes at most n bytes as a JSON string.
func clip(text string, n int) string {
	if jsonSize(text) <= n {
		return text
	}
	const mark = "…"
	size := len(mark) + 2
	for i, r := range text {
		size += jsonSize(string(r)) - 2
		if size > n {
			return text[:i] + mark
		}
	}
	return text
}
