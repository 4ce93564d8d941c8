//go:build streams

package gate

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"streams-sidecar/test/streams"
)

// feed gives a quiet application records, and waits until they are committed.
func (r *rig) feed(records int) {
	r.Helper()
	r.up()
	r.app.Produce(records)
	r.app.WaitCommitted()
}

// inPart says that a pair of version and guarantee is run now.
func inPart(version string, g guarantee, pairs ...string) bool {
	return full() || slices.Contains(pairs, version+"/"+g.String())
}

// quiet are the stops of an application without load: after records, idle,
// killed, and by a signal.
func (r *rig) quiet(n int) {
	r.Helper()
	for i := range n {
		r.beside(r.http()...)
		r.run(fmt.Sprintf("Fed%d", i), func() { r.feed(300); r.trial(stop{hook: true, clean: true}) })
		r.run(fmt.Sprintf("Idle%d", i), func() { r.trial(stop{hook: true, clean: true}) })
		r.run(fmt.Sprintf("KilledAlone%d", i), func() {
			r.feed(300)
			r.trial(stop{act: r.killed(0), exits: true, losing: true})
		})
		if full() {
			r.beside(signal()...)
			r.run(fmt.Sprintf("Signal%d", i), func() { r.feed(300); r.trial(stop{hook: true, clean: true, exits: true}) })
		}
	}
}

// TestKindsOfStore: one of each kind that Streams makes, among them unlogged
// and global ones.
func TestKindsOfStore(t *testing.T) {
	each(t, func(t *testing.T, version string, g guarantee) {
		if !inPart(version, g, old3a, mid4e) {
			t.Skip("only in a full run")
		}
		r := newRig(t, version, g, streams.Options{Stores: streams.Full(version), Spread: streams.Retention / 2}, "")
		r.app.ProduceGlobal(100)
		r.app.Produce(1000)
		r.quiet(1)
	})
}

// TestUnloggedAlone: stores that Streams never restores, in tasks that have
// nothing else. What a kill costs shows in their content, on a first life as
// well, in which nothing was flushed before.
func TestUnloggedAlone(t *testing.T) {
	each(t, func(t *testing.T, version string, g guarantee) {
		if !inPart(version, g, old2a, new4a) {
			t.Skip("only in a full run")
		}
		o := streams.Options{Stores: streams.Stores{"u1": streams.Unlogged, "u2": streams.Unlogged}}
		r := newRig(t, version, g, o, "")
		r.app.Produce(500)
		r.beside(r.http()...)
		r.run("KilledInFirstLife", func() {
			r.feed(500)
			r.trial(stop{act: r.killed(0), exits: true, losing: true})
		})
		r.quiet(1)
	})
}

// TestTransactional: stores that keep what is not committed to themselves
// (KIP-892), which write no status.
func TestTransactional(t *testing.T) {
	for _, g := range []guarantee{atLeastOnce, exactlyOnce} {
		t.Run(g.String(), func(t *testing.T) {
			// A long time between commits, so that there is something to drop.
			o := streams.Options{Stores: streams.Small(4), Transactional: true, Commit: 2 * time.Second}
			r := newRig(t, "4.4.0", g, o, "")
			r.app.Produce(1000)
			if full() || g == exactlyOnce {
				r.quiet(times(1, 2))
			}
			r.perSec = 200
			for i := range times(1, 2) {
				if !full() && g == exactlyOnce {
					break
				}
				r.beside(signal()...)
				r.run(fmt.Sprintf("Loaded%d", i), func() { r.trial(stop{hook: true, clean: true, exits: true}) })
				r.run(fmt.Sprintf("KilledInClose%d", i), r.killedInClose)
				r.run(fmt.Sprintf("Exception%d", i), func() {
					r.trial(stop{dirty: true, act: func(*stop) { r.app.Poison() }})
				})
				// With at-least-once, an exception right after the trigger was taken
				// leaves the very files of a clean close: docs/shutdown.md, "What it
				// cannot tell". It is said to be clean, and restores.
				if g == exactlyOnce {
					r.run(fmt.Sprintf("ExceptionInDrain%d", i), r.exceptionInDrain)
				}
			}
		})
	}
}

// TestTakenOver: after a second instance has taken a task over, its directory
// stays with the first one, which has nothing to do with it.
func TestTakenOver(t *testing.T) {
	each(t, func(t *testing.T, version string, g guarantee) {
		if !inPart(version, g, old3e, new4a) {
			t.Skip("only in a full run")
		}
		r, second := pair(t, version, g, streams.Options{Stores: streams.Small(4)})
		r.until("one task is taken over", func() bool { return len(openTasks(r.root())) == 1 })
		second.WaitRunning()
		r.run("HTTP", func() { r.trial(stop{hook: true, clean: true}) })
		r.run("Killed", func() {
			r.app.Produce(400)
			r.app.WaitCommitted()
			r.trial(stop{act: r.killed(0), exits: true, losing: true})
		})
	})
}

// TestStandbys: each instance is active in one task and standby for the other.
// What the standby has lost shows when it becomes the only one.
func TestStandbys(t *testing.T) {
	each(t, func(t *testing.T, version string, g guarantee) {
		if !inPart(version, g, old4a, mid4e) {
			t.Skip("only in a full run")
		}
		r, second := pair(t, version, g, streams.Options{Stores: streams.Small(4), Standbys: 1})
		alone := func(open map[string]bool, _ map[string]streams.Content) (int64, string) {
			second.CloseClean()
			r.app.Open()
			truth, wrong := r.app.Truth(), ""
			// Its static member stays until the session ends.
			for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
				if got, err := r.app.TryContent("kv"); err == nil && got == truth && r.app.Status().State == "RUNNING" {
					break
				}
			}
			restored := r.restored(open)
			for name := range r.app.Options.Stores {
				if got := r.app.Content(name); got != truth {
					wrong = fmt.Sprintf("%s holds %+v, want %+v", name, got, truth)
				}
			}
			second.Open()
			second.WaitRunning()
			r.ready()
			return restored, wrong
		}
		bothFull := func() {
			r.up()
			for _, app := range []*streams.App{r.app, second} {
				r.until("both instances hold everything", func() bool {
					for name := range app.Options.Stores {
						if got, err := app.TryContentHere(name); err != nil || got != app.Truth() {
							return false
						}
					}
					return len(openTasks(r.root())) == 2
				})
			}
		}
		r.run("Fed", func() {
			r.feed(300)
			bothFull()
			r.trial(stop{hook: true, clean: true, truth: alone})
		})
		if !full() {
			return
		}
		r.run("Idle", func() {
			bothFull()
			r.trial(stop{hook: true, clean: true, truth: alone})
		})
		r.run("Killed", func() {
			r.feed(300)
			bothFull()
			r.trial(stop{act: r.killed(0), exits: true, losing: true, truth: alone})
		})
	})
}

// pair is an application of two instances, the first of which is watched.
func pair(t *testing.T, version string, g guarantee, o streams.Options) (*rig, *streams.App) {
	t.Helper()
	o.Config = map[string]string{"probing.rebalance.interval.ms": "60000"}
	r := newRig(t, version, g, o, "")
	r.beside(r.http()...) // it is there first, as a native sidecar is
	r.app.Produce(1000)
	r.app.Open()
	r.app.WaitRunning()
	r.app.WaitCommitted()
	o = r.app.Options
	o.Application, o.Instance = r.app.ID, "2"
	second := streams.Start(t).App(r.current, version, o)
	second.Open()
	second.WaitRunning()
	r.app.WaitRunning()
	return r, second
}
