package event

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// said is an event of a test.
type said struct {
	level   slog.Level
	message string
	attrs   []slog.Attr
}

func (e said) Level() slog.Level  { return e.level }
func (e said) Message() string    { return e.message }
func (e said) Attrs() []slog.Attr { return e.attrs }

func about(message string, attrs ...string) said {
	e := said{level: slog.LevelWarn, message: message}
	for i := 0; i < len(attrs); i += 2 {
		e.attrs = append(e.attrs, slog.String(attrs[i], attrs[i+1]))
	}
	return e
}

func TestStreamHandsEachEventToAllInOrder(t *testing.T) {
	t.Parallel()
	var s Stream
	s.Emit(about("before anybody listens"))
	var got []string
	for _, name := range []string{"first", "second"} {
		s.Listen(func(e Event) { got = append(got, name+" "+e.Message()) })
	}
	s.Emit(about("one"))
	s.Listen(func(e Event) { got = append(got, "third "+e.Message()) })
	s.Emit(about("two"))
	want := []string{"first one", "second one", "first two", "second two", "third two"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("heard (-want +got):\n%s", diff)
	}
	var sink Sink = &s
	sink.Emit(about("three"))
	if n := len(got); n != 8 {
		t.Errorf("%d were heard, want 8", n)
	}
	Discard.Emit(about("nobody hears it"))
}

func TestStreamIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	const emitters, each = 8, 200
	var s Stream
	var mu sync.Mutex
	heard := map[string]int{}
	last := map[string]int{}
	s.Listen(func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		heard[e.Message()]++
		var n int
		_, _ = fmt.Sscan(e.Attrs()[0].Value.String(), &n)
		if n != last[e.Message()]+1 {
			t.Errorf("%s %d comes after %d", e.Message(), n, last[e.Message()])
		}
		last[e.Message()] = n
	})
	var wg sync.WaitGroup
	for i := range emitters {
		wg.Go(func() {
			for n := range each {
				s.Emit(about(fmt.Sprint("emitter ", i), "n", fmt.Sprint(n+1)))
				if n == each/2 {
					s.Listen(func(Event) {})
				}
			}
		})
	}
	wg.Wait()
	for i := range emitters {
		if n := heard[fmt.Sprint("emitter ", i)]; n != each {
			t.Errorf("%d of %d events of an emitter were heard", n, each)
		}
	}
}

// lines is a slog.Handler that keeps "message held_back" of each line.
type lines struct {
	slog.Handler
	mu  sync.Mutex
	all []string
}

func newLines() *lines { return &lines{Handler: slog.DiscardHandler} }

func (l *lines) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (l *lines) Handle(ctx context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool {
		line += " " + a.Value.String()
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, line)
	return ctx.Err()
}

func TestLogHoldsRepeatedLinesBack(t *testing.T) {
	t.Parallel()
	const interval = time.Minute
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	out := newLines()
	log := Log(slog.New(out), interval, func() time.Time { return now })
	step := func(after time.Duration, e Event, want ...string) {
		t.Helper()
		now = now.Add(after)
		before := len(out.all)
		log(e)
		if diff := cmp.Diff(want, append([]string(nil), out.all[before:]...)); diff != "" {
			t.Errorf("lines (-want +got):\n%s", diff)
		}
	}
	stuck := about("stuck", "path", "/a", "call", "list")
	step(0, stuck, "stuck /a list")
	step(0, stuck)
	step(interval-1, stuck)
	step(0, about("stuck", "path", "/b", "call", "list"), "stuck /b list")
	step(0, about("stuck", "path", "/a", "call", "open"), "stuck /a open")
	step(0, about("answered", "path", "/a", "call", "list"), "answered /a list")
	step(0, about("stuck"), "stuck")
	step(0, about("stuck", "path", "/a"), "stuck /a")
	step(1, stuck, "stuck /a list 2")
	step(interval-1, stuck)
	step(interval, stuck, "stuck /a list 1")
	step(interval, stuck, "stuck /a list") // nothing was held back
	// Further attributes make no difference, and are those of the line.
	step(0, about("stuck", "path", "/a", "call", "list", "since", "x"))
	step(interval, about("stuck", "path", "/a", "call", "list", "since", "y"), "stuck /a list y 1")
}

func TestLogWithoutAnIntervalWritesEverything(t *testing.T) {
	t.Parallel()
	out := newLines()
	log := Log(slog.New(out), 0, func() time.Time { return time.Time{} })
	for range 3 {
		log(about("again"))
	}
	if diff := cmp.Diff([]string{"again", "again", "again"}, out.all); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestLogRemembersABoundedNumberOfSubjects(t *testing.T) {
	t.Parallel()
	out := newLines()
	log := Log(slog.New(out), time.Hour, func() time.Time { return time.Time{} })
	first := about("m", "subject", "0")
	for i := range maxHeld {
		log(about("m", "subject", fmt.Sprint(i)))
	}
	log(first)
	if n := len(out.all); n != maxHeld {
		t.Fatalf("%d lines, want %d: all subjects should still be known", n, maxHeld)
	}
	log(about("m", "subject", "one too many"))
	log(first)
	if n := len(out.all); n != maxHeld+2 || out.all[n-1] != "m 0" {
		t.Errorf("%d lines, the last is %q; want the first subject forgotten with its count", n, out.all[n-1])
	}
}

func TestLogCountsNothingBelowItsLevel(t *testing.T) {
	t.Parallel()
	out := newLines()
	log := Log(slog.New(out), time.Hour, func() time.Time {
		t.Error("an event that is not logged was looked at")
		return time.Time{}
	})
	log(said{level: slog.LevelDebug, message: "m"})
	if len(out.all) > 0 {
		t.Errorf("lines: %q", out.all)
	}
}

func TestLogLeavesTheAttributesOfTheEventAlone(t *testing.T) {
	t.Parallel()
	attrs := make([]slog.Attr, 1, 2)
	attrs[0] = slog.String("path", "/a")
	whole := attrs[:2]
	now := time.Unix(0, 0)
	log := Log(slog.New(newLines()), 1, func() time.Time { return now })
	for range 2 {
		log(said{level: slog.LevelInfo, message: "m", attrs: attrs})
	}
	now = now.Add(time.Hour)
	log(said{level: slog.LevelInfo, message: "m", attrs: attrs})
	if whole[1].Key != "" {
		t.Errorf("the array of the event got %v", whole[1])
	}
}

func TestLogIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	const emitters, each = 8, 500
	out := newLines()
	var mu sync.Mutex
	var now time.Time
	log := Log(slog.New(out), 50, func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(1)
		return now
	})
	var wg sync.WaitGroup
	for range emitters {
		wg.Go(func() {
			for range each {
				log(about("m", "subject", "same"))
			}
		})
	}
	wg.Wait()
	now = now.Add(time.Hour)
	log(about("m", "subject", "same"))
	written, held := len(out.all), 0
	for _, line := range out.all {
		n := 0
		_, _ = fmt.Sscanf(line, "m same %d", &n)
		held += n
	}
	if written+held != emitters*each+1 {
		t.Errorf("%d lines tell of %d more, together not %d", written, held, emitters*each+1)
	}
	if written > emitters*each/50+emitters {
		t.Errorf("%d lines were written", written)
	}
}

func TestLogLinesAsJSONAndText(t *testing.T) {
	t.Parallel()
	e := said{slog.LevelError, "volume does not answer", []slog.Attr{
		slog.String("path", `/v/a\xff "b"`), slog.Duration("hung", 90*time.Second), slog.Any("held", []string{"a", "b"}),
	}}
	times := []time.Time{time.Unix(0, 0), time.Unix(1, 0), time.Unix(60, 0)}
	emit := func(h slog.Handler) {
		next := 0
		log := Log(slog.New(h), time.Minute, func() time.Time { next++; return times[next-1] })
		for range times {
			log(e)
		}
	}
	noTime := &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}

	var text bytes.Buffer
	emit(slog.NewTextHandler(&text, noTime))
	line := `level=ERROR msg="volume does not answer" path="/v/a\\xff \"b\"" hung=1m30s held="[a b]"`
	if diff := cmp.Diff(line+"\n"+line+" held_back=1\n", text.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}

	var js bytes.Buffer
	emit(slog.NewJSONHandler(&js, noTime))
	first := map[string]any{
		"level": "ERROR", "msg": "volume does not answer", "path": `/v/a\xff "b"`, "hung": 9e10, "held": []any{"a", "b"},
	}
	for i, line := range strings.Split(strings.TrimSpace(js.String()), "\n") {
		var got map[string]any
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			first["held_back"] = 1.0
		}
		if diff := cmp.Diff(first, got); diff != "" {
			t.Errorf("JSON line %d (-want +got):\n%s", i, diff)
		}
	}
}
