//go:build streams

package gate

import (
	"fmt"
	"testing"
	"time"

	"streams-sidecar/test/streams"
)

// each runs a test for each version and guarantee.
func each(t *testing.T, test func(t *testing.T, version string, g guarantee)) {
	t.Helper()
	for _, version := range streams.Versions {
		t.Run(version, func(t *testing.T) {
			for _, g := range []guarantee{atLeastOnce, exactlyOnce} {
				t.Run(g.String(), func(t *testing.T) { test(t, version, g) })
			}
		})
	}
}

// times of a trial: the first number, or the second one in a full run.
func times(part, all int) int {
	if full() {
		return all
	}
	return part
}

// TestStops: ten small stores under load, closed through the application's own
// endpoint and by a signal, and all that can go wrong with that.
func TestStops(t *testing.T) {
	each(t, func(t *testing.T, version string, g guarantee) {
		// A second between commits, so that an exception nearly always costs something.
		r := newRig(t, version, g, streams.Options{Stores: streams.Small(9), Commit: time.Second}, "")
		r.app.Produce(1000)
		r.perSec = 200
		r.beside(r.http()...)
		for i := range times(1, 9) {
			r.run(fmt.Sprintf("HTTP%d", i), func() { r.trial(stop{hook: true, clean: true}) })
		}
		part := 0
		if g == exactlyOnce {
			part = 1
		}
		for i := range times(part, 8) {
			r.beside(signal()...)
			r.run(fmt.Sprintf("Signal%d", i), func() { r.trial(stop{hook: true, clean: true, exits: true}) })
		}
		for _, k := range kinds {
			for i := range k.times(version, g) {
				r.run(fmt.Sprintf("%s%d", k.name, i), func() { k.try(r) })
			}
		}
	})
}

// large are 30 stores of some 5 MB, none of which is flushed before the close.
func large(t *testing.T, version string, g guarantee) *rig {
	t.Helper()
	o := streams.Options{Stores: streams.Small(29), Partitions: 1, Keys: 4500, ValueBytes: 1000}
	if g == atLeastOnce {
		// With each commit Streams flushes stores that have taken 10,000
		// records together since the last flush; exactly-once never does.
		o.Commit = 10 * time.Minute
	}
	r := newRig(t, version, g, o, "")
	r.perSec = 50
	return r
}

// fill gives each store some 5 MB more.
func (r *rig) fill() {
	r.Helper()
	r.up()
	const records = 5000
	at := r.app.Status().Processed
	r.app.Produce(records)
	r.app.WaitProcessed(at + records)
	var bytes float64
	for name := range r.app.Options.Stores {
		bytes += r.app.RocksDB(name, "size-all-mem-tables")
	}
	if least := 30 * 4e6; bytes < least {
		r.Fatalf("%.0f bytes in memtables, want at least %.0f", bytes, least)
	}
}

// TestLargeStops are clean stops of large stores, and a kill in the middle of
// their longer close.
func TestLargeStops(t *testing.T) {
	each(t, func(t *testing.T, version string, g guarantee) {
		if !inPart(version, g, old3a, new4e) {
			t.Skip("only in a full run")
		}
		r := large(t, version, g)
		r.beside(r.http()...)
		r.run("HTTP", func() { r.fill(); r.trial(stop{hook: true, clean: true}) })
		r.beside(signal()...)
		for i := range times(0, 2) {
			r.run(fmt.Sprintf("Signal%d", i), func() { r.fill(); r.trial(stop{hook: true, clean: true, exits: true}) })
		}
		if full() {
			r.run("Killed", func() { r.fill(); r.killedInClose() })
		}
	})
}

// TestAddedTime holds a stop through the gate against a SIGTERM alone, on the
// same application under the same load.
func TestAddedTime(t *testing.T) {
	if !full() {
		t.Skip("only in a full run")
	}
	for _, version := range []string{"3.9.1", "4.4.0"} {
		t.Run(version, func(t *testing.T) {
			r := newRig(t, version, atLeastOnce, streams.Options{Stores: streams.Small(9)}, "")
			r.app.Produce(1000)
			r.perSec = 200
			r.beside(signal()...)
			for i := range 10 {
				var alone time.Duration
				r.run(fmt.Sprintf("Alone%d", i), func() {
					r.trial(stop{clean: true, exits: true, act: func(s *stop) {
						begun := time.Now()
						r.terminate()
						alone = r.released(s).Sub(begun)
					}})
				})
				r.run(fmt.Sprintf("Gate%d", i), func() {
					r.trial(stop{hook: true, clean: true, exits: true, act: func(s *stop) {
						ans := s.answer()
						d := ans.at.Sub(s.called) - alone
						tally.collect(&tally.added, d)
						r.Logf("%v through the gate, %v alone: %v more", ms(ans.at.Sub(s.called)), ms(alone), ms(d))
					}})
				})
			}
		})
	}
}

// TestStrayCalls: a call without the token only observes, within 100 ms, and
// the application goes on.
func TestStrayCalls(t *testing.T) {
	r := newRig(t, "4.4.0", atLeastOnce, streams.Options{}, "")
	r.app.Produce(100)
	r.beside(signal()...)
	r.up()
	var took []time.Duration
	for range 20 {
		begun := time.Now()
		ans := r.agent.prestop(false, "")
		if ans.err != nil || ans.Outcome != "observed" || ans.Triggered {
			t.Errorf("without the token: %s", ans)
		}
		took = append(took, ans.at.Sub(begun))
	}
	if d := percentile(took, 80); d > 100*time.Millisecond { // the others may have waited for the CPU
		t.Errorf("observed after %v (p80), want at most 100ms", d)
	}
	if s := r.app.Status(); s.State != "RUNNING" || !heldAt(r.lock()) {
		t.Errorf("the application is %s after stray calls", s.State)
	}
}
