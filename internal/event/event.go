// Package event is what happened, as typed values. Log lines, metrics and
// tests are listeners of the same events, so that none of them can tell a
// story of its own.
//
// The package knows how to hand events on and nothing about where they come
// from. It imports no other package of this module, and every other one may
// import it.
package event

import (
	"log/slog"
	"sync"
	"time"
)

// Event is one thing that happened.
type Event interface {
	// Level at which it deserves a log line.
	Level() slog.Level
	// Message is a short sentence without variables; it is also the key by
	// which repeated log lines are held back.
	Message() string
	// Attrs are its variables.
	Attrs() []slog.Attr
}

// Sink takes events. Emit must not block for long and is safe for concurrent use.
type Sink interface{ Emit(Event) }

// Discard is a Sink that drops everything.
var Discard Sink = discard{}

type discard struct{}

func (discard) Emit(Event) {}

// Stream hands each event to all listeners, in the order of their
// registration, in the goroutine of the emitter. The zero value is ready.
type Stream struct {
	mu        sync.RWMutex
	listeners []func(Event)
}

// Listen adds a listener. It must not block, nor emit events itself.
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

// Log gives a listener that writes a line for each event. The same message
// about the same subject (its first attribute) is written at most once per
// interval; the next line then says how many were held back.
func Log(l *slog.Logger, interval time.Duration, now func() time.Time) func(Event) {
	type key struct{ message, subject string }
	type held struct {
		last  time.Time
		count int
	}
	// Bounded: a hostile number of subjects must not grow the agent.
	const maxKeys = 4096
	var mu sync.Mutex
	seen := map[key]*held{}
	return func(e Event) {
		attrs := e.Attrs()
		k := key{message: e.Message()}
		if len(attrs) > 0 {
			k.subject = attrs[0].Value.String()
		}
		t := now()
		mu.Lock()
		h, ok := seen[k]
		if !ok {
			if len(seen) >= maxKeys {
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
			attrs = append(attrs, slog.Int("held_back", suppressed))
		}
		l.LogAttrs(nil, e.Level(), e.Message(), attrs...) //nolint:staticcheck // no context to pass on
	}
}
