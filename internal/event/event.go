// Package event is what happened, as typed values. Log lines, metrics and
// tests are listeners of the same events, so that none of them can tell a
// story of its own.
//
// The package knows how to hand events on and nothing about where they come
// from. It imports no other package of this module, and every other one may
// import it.
package event

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Event is one thing that happened.
type Event interface {
	// Level at which it deserves a log line.
	Level() slog.Level
	// Message is a short sentence without variables.
	Message() string
	// Attrs are its variables. The first two say what it is about (a path
	// and a code, say): what repeats the message and both is the same again,
	// see [Log].
	Attrs() []slog.Attr
}

// Turn marks events that come in turns, each of which ends what the one before
// said: an application starts and stops. Such a line is never held back, or the
// last one in the log might say what is no longer so.
type Turn interface{ turn() }

// Sink takes events. Emit must not block for long and is safe for concurrent use.
type Sink interface{ Emit(Event) }

// Discard is a Sink that drops everything.
var Discard Sink = discard{}

type discard struct{}

func (discard) Emit(Event) {}

// Stream hands each event to all listeners, in the order of their
// registration, in the goroutine of the emitter; several goroutines may emit
// at once. The zero value is ready.
type Stream struct {
	mu        sync.RWMutex
	listeners []func(Event)
}

// Listen adds a listener for the events from now on. It must be safe for
// concurrent use, and must not block, nor emit events itself.
func (s *Stream) Listen(f func(Event)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = append(s.listeners, f)
}

// Emit implements Sink.
func (s *Stream) Emit(e Event) {
	s.mu.RLock()
	ls := s.listeners
	s.mu.RUnlock()
	for _, l := range ls {
		l(e)
	}
}

// maxHeld bounds how many subjects [Log] remembers: a hostile number of them
// must not grow the agent. Beyond it, all are forgotten.
const maxHeld = 4096

// Log gives a listener that writes a line for each event. The same message
// about the same subject (its first two attributes) is written at most once
// per interval; the next line then says in held_back how many were not.
func Log(l *slog.Logger, interval time.Duration, now func() time.Time) func(Event) {
	type key struct{ message, subject, detail string }
	type held struct {
		last  time.Time
		count int
	}
	var mu sync.Mutex
	seen := map[key]*held{}
	return func(e Event) {
		// No request, no trace: there is no context to pass on.
		ctx := context.Background()
		if !l.Enabled(ctx, e.Level()) {
			return
		}
		attrs := e.Attrs()
		k := key{message: e.Message()}
		if len(attrs) > 0 {
			k.subject = attrs[0].Value.String()
		}
		if len(attrs) > 1 {
			k.detail = attrs[1].Value.String()
		}
		if _, ok := e.(Turn); ok {
			l.LogAttrs(ctx, e.Level(), e.Message(), attrs...)
			return
		}
		t := now()
		mu.Lock()
		h, ok := seen[k]
		if !ok {
			if len(seen) >= maxHeld {
				clear(seen)
			}
			h = &held{}
			seen[k] = h
		} else if t.Sub(h.last) < interval {
			h.count++
			mu.Unlock()
			return
		}
		h.last = t
		suppressed := h.count
		h.count = 0
		mu.Unlock()
		if suppressed > 0 {
			// Clipped: other listeners may hold the same array.
			attrs = append(slices.Clip(attrs), slog.Int("held_back", suppressed))
		}
		l.LogAttrs(ctx, e.Level(), e.Message(), attrs...)
	}
}
