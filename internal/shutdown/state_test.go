package shutdown_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"streams-sidecar/internal/event"
	"streams-sidecar/internal/rocksfile/rockstest"
	"streams-sidecar/internal/shutdown"
	"streams-sidecar/internal/store"
)

// TestPhases: from not-running to running, draining, ended and back.
func TestPhases(t *testing.T) {
	t.Parallel()
	r := newRig(t, base("3.9.1"))
	g := r.gate(0, func(cfg *shutdown.Config) { cfg.Grace = time.Minute })
	is := func(want shutdown.Phase, known int) {
		t.Helper()
		s := g.State()
		if s.Phase != want || len(s.Known) != known || (s.Progress != nil) != (want == shutdown.PhaseDraining) {
			t.Errorf("%+v, want %s", s, want)
		}
	}
	is(shutdown.PhaseIdle, 0)
	g.Follow()
	is(shutdown.PhaseIdle, 0)
	if s := g.State(); s.Any || s.Trigger != shutdown.TriggerNone || s.Budget != 55*time.Second {
		t.Errorf("before any call %+v", s)
	}
	c := r.start()
	g.Follow()
	is(shutdown.PhaseRunning, 1)
	d := r.drain(g, shutdown.Call{Wait: true})
	until(t, "the first look", func() bool { return g.State().Progress != nil })
	is(shutdown.PhaseDraining, 1)
	if s := g.State(); !s.Any || s.Waited <= 0 || s.Trigger != shutdown.TriggerNone {
		t.Errorf("while a call waits %+v", s)
	}
	c.close()
	a := answer(t, d)
	is(shutdown.PhaseEnded, 1)
	if s := g.State(); s.Waited.Seconds() < a.WaitedSeconds || s.Requests[shutdown.ClosedClean] != 1 {
		t.Errorf("after it %+v", s)
	}
	r.start()
	g.Follow()
	is(shutdown.PhaseRunning, 1)
}

// TestLastShutdownIsKnown: what is not known yet is absent, and what the call
// before was answered is no verdict.
func TestLastShutdownIsKnown(t *testing.T) {
	t.Parallel()
	r := newRig(t, base("3.9.1"))
	c, g := r.opened(func(r *rig) *shutdown.Gate { return r.gate(50 * time.Millisecond) })
	if n := len(g.State().Last); n != 0 {
		t.Errorf("%d ends before the first", n)
	}
	answer(t, r.drain(g, shutdown.Call{Wait: true}))
	s := g.State().Last[0]
	if _, known := s.Clean(); known || s.Outcome != shutdown.Timeout || s.Ended != nil || s.CloseSeconds != nil || s.Stores != 2 || len(s.Missing()) != 2 {
		t.Errorf("while it closes %+v, want that nothing is known", s.Shutdown)
	}
	c.Kill()
	g.Follow()
	s = g.State().Last[0]
	if clean, known := s.Clean(); clean || !known || s.Ended == nil || s.CloseSeconds == nil || time.Since(*s.Ended) > patience {
		t.Errorf("after a kill %+v", s.Shutdown)
	}
	if _, known := (*shutdown.Shutdown)(nil).Clean(); known {
		t.Error("nothing is known to be something")
	}
}

// TestProgress: counts of stores, bytes of tables and an estimate of the rest,
// of the state, the log and the answer.
func TestProgress(t *testing.T) {
	t.Parallel()
	r := newRig(t, full("4.4.0"))
	c, g := r.opened(func(r *rig) *shutdown.Gate { return r.gate(time.Minute) })
	d := r.drain(g, shutdown.Call{Wait: true})
	look := func(what string, ok func(*shutdown.Progress) bool) {
		t.Helper()
		until(t, what, func() bool { p := g.State().Progress; return p != nil && ok(p) })
	}
	look("the first look", func(p *shutdown.Progress) bool {
		return p.Stores == 9 && p.Flushed == 0 && p.Closed == 0 && p.SSTBytesWritten == 0 && p.Remaining == 0 && !p.Restoring
	})
	// One store flushes, and one is closed.
	kv := c.path("1_0", "rocksdb", "kv")
	var size uint64
	c.edit(kv, func(db *store.Database) rockstest.Edit {
		family, _, n, seq := data(db)
		size = c.copyTable(kv, n, 90)
		return rockstest.Edit{}.Family(family).LogNumber(4).PrevLog(0).NextFile(91).LastSequence(seq + 1).
			Add(rockstest.File{Number: 90, Size: size, SmallestSeq: seq + 1, LargestSeq: seq + 1})
	})
	c.shut(c.path("1_1", "rocksdb", "kv"))
	c.look()
	g.Follow()
	look("a flush and a close", func(p *shutdown.Progress) bool {
		return p.Stores == 9 && p.Flushed == 2 && p.Closed == 1 && p.SSTBytesWritten == int64(size) && p.Remaining > 0
	})
	// The segments of a store count once, when all of them are closed.
	for _, db := range glob(t, c.path("1_1", "win", "win.*")) {
		c.shut(db)
	}
	look("a segmented store", func(p *shutdown.Progress) bool { return p.Closed == 2 && p.Flushed == 3 })
	c.Kill()
	a := answer(t, d)
	if a.Stores != 9 || a.SSTBytesWritten != int64(size) {
		t.Errorf("the answer has %+v, want 9 stores and %d bytes", a, size)
	}
	for _, e := range of[event.PrestopProgress](&r.heard) {
		if e.Stores != 9 {
			t.Errorf("told %+v", e)
		}
	}
}

// TestTriggeredCloseOfATransactionalStore: what it has not committed leaves no
// trace, so that only a close which the gate has caused can be proven.
func TestTriggeredCloseOfATransactionalStore(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"taken", "closing by itself"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			e := newEndpoint(t, nil)
			if how != "taken" {
				e.Close()
			}
			r := newRig(t, base("4.4.0"))
			everyDB(eraseStatus)(&client{rig: r})
			age(t, r.dir)
			r.look()
			c, g := r.opened(func(r *rig) *shutdown.Gate { return r.gate(time.Minute, token(t), asks(t, e.URL)) })
			d := r.drain(g, authorised)
			if how == "taken" {
				e.wait(t)
				time.Sleep(100 * time.Millisecond) // for its answer
				c.close()
			} else {
				until(t, "an attempt that failed", func() bool { return len(of[event.TriggerTrouble](&r.heard)) > 0 })
				c.shut(c.kv())
				time.Sleep(1500 * time.Millisecond) // until that is seen, and the trigger given up
				c.shut(c.x00())
				c.unlock()
			}
			a := answer(t, d)
			want := shutdown.ClosedClean
			if how != "taken" {
				want = shutdown.ClosedUnclean
			}
			if a.Outcome != want || a.Triggered != (how == "taken") {
				t.Errorf("got %+v, want %s", a, want)
			}
		})
	}
}

// TestCaseA14: a store that was made anew since the end before, and is smaller,
// seems to be restored; the call ends by its budget and never claims success.
func TestCaseA14(t *testing.T) {
	t.Parallel()
	r := newRig(t, base("4.2.2"))
	c, g := r.opened(func(r *rig) *shutdown.Gate { return r.gate(600 * time.Millisecond) })
	c.close()
	g.Follow()
	// Streams has wiped the task, and begins to restore it into new databases.
	for _, db := range []string{c.kv(), c.x00()} {
		for _, p := range c.tables(db) {
			must(t, os.Remove(p))
		}
		must(t, os.Remove(manifestOf(t, db)))
		must(t, os.WriteFile(filepath.Join(db, "MANIFEST-000001"), rockstest.Manifest(
			rockstest.Edit{}.Comparator("leveldb.BytewiseComparator").LogNumber(0).NextFile(2).LastSequence(0)), 0o644))
		must(t, os.WriteFile(filepath.Join(db, "CURRENT"), []byte("MANIFEST-000001\n"), 0o644))
	}
	must(t, os.Remove(c.path("0_0", ".checkpoint")))
	r.look()
	c = r.start()
	g.Follow()
	d := r.drain(g, shutdown.Call{Wait: true})
	look := func() (restoring bool) {
		p := g.State().Progress
		return p != nil && p.Restoring
	}
	until(t, "the suspicion", look)
	a := answer(t, d)
	if a.Outcome != shutdown.Timeout || !a.Restoring || a.WaitedSeconds > 5 {
		t.Errorf("got %+v, want a timeout while restoring", a)
	}
	c.Kill()
	g.Follow()
	if s := g.State().Last[0]; s.Outcome != shutdown.ClosedUnclean {
		t.Errorf("judged %+v", s.Shutdown)
	}
}

// TestExplanations: how an end came about, in words.
func TestExplanations(t *testing.T) {
	t.Parallel()
	all := newCrowd(t)
	for _, c := range []struct {
		name, says string
		end        func(t *testing.T, c *client, g *shutdown.Gate)
	}{
		{"the signal does not reach the JVM", "no close activity after the signal", func(t *testing.T, c *client, g *shutdown.Gate) {
			if a := call(t, g, false); a.Outcome != shutdown.Observed {
				t.Errorf("the call got %+v", a)
			}
			c.Kill()
			g.Follow()
		}},
		{"nobody called", "no preStop call came", func(_ *testing.T, c *client, g *shutdown.Gate) { c.Kill(); g.Follow() }},
		{"an exception", "closed its stores without a commit", func(_ *testing.T, c *client, g *shutdown.Gate) { dirty(c); g.Follow() }},
		{"an exception under exactly-once", "has removed task directories", func(t *testing.T, c *client, g *shutdown.Gate) {
			c.shut()
			must(t, os.RemoveAll(c.path("0_0")))
			c.unlock()
			g.Follow()
		}},
		{"killed in the middle of the close", "when 1 of 2 stores were closed", func(t *testing.T, c *client, g *shutdown.Gate) {
			d := c.drain(g, shutdown.Call{Wait: true})
			c.shut(c.kv())
			c.Kill()
			answer(t, d)
		}},
		{"killed while a call waited", "no store was closed before the application ended", func(t *testing.T, c *client, g *shutdown.Gate) {
			d := c.drain(g, shutdown.Call{Wait: true})
			c.Kill()
			answer(t, d)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := all.rig(t, base("3.9.1"))
			cl, g := r.opened(func(r *rig) *shutdown.Gate { return r.gate(time.Minute, causes(shutdown.TriggerNone)) })
			c.end(t, cl, g)
			s := g.State().Last[0]
			if s.Outcome != shutdown.ClosedUnclean || !strings.Contains(s.Explanation, c.says) {
				t.Errorf("%+v, want an explanation with %q", s.Shutdown, c.says)
			}
			judged := of[event.ShutdownJudged](&r.heard)
			if len(judged) != 1 || judged[0].Outcome != string(s.Outcome) || judged[0].Explanation != s.Explanation || judged[0].Missing != 2 {
				t.Errorf("told %+v", judged)
			}
		})
	}
}

// TestObservedStop: where the signal reaches the JVM there is nothing to explain.
func TestObservedStop(t *testing.T) {
	t.Parallel()
	r := newRig(t, base("3.9.1"))
	c, g := r.opened(func(r *rig) *shutdown.Gate { return r.gate(time.Minute, causes(shutdown.TriggerNone)) })
	call(t, g, false)
	c.close()
	g.Follow()
	s := g.State().Last[0]
	if s.Outcome != shutdown.ClosedClean || s.Hook != shutdown.Called || s.HookOutcome != shutdown.Observed || s.Explanation != "" || s.CloseSeconds == nil {
		t.Errorf("%+v, want closed-clean after an observed call", s.Shutdown)
	}
	// A call an age ago has nothing to do with an end.
	c = r.start()
	g.Follow()
	call(t, g, false)
	g.Elapse(10 * time.Minute)
	c.close()
	g.Follow()
	if s := g.State().Last[0]; s.Hook != shutdown.NotCalled || s.CloseSeconds != nil {
		t.Errorf("%+v, want one without a call", s.Shutdown)
	}
}
