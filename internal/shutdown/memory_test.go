package shutdown_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"streams-sidecar/internal/event"
	"streams-sidecar/internal/shutdown"
	"streams-sidecar/test/holder"
)

func (r *rig) document(name string) string { return filepath.Join(r.dir, ".streams-sidecar", name) }

// runs is what runs.json says; nil if it is not there.
func (r *rig) runs() []map[string]any {
	r.t.Helper()
	data, err := os.ReadFile(r.document("runs.json"))
	if os.IsNotExist(err) {
		return nil
	}
	must(r.t, err)
	var doc struct{ Runs []map[string]any }
	must(r.t, json.Unmarshal(data, &doc))
	return doc.Runs
}

// killed gives the gate of the next process, after the one before was killed:
// what that one does from now on leaves nothing behind.
func (r *rig) killed(g *shutdown.Gate, make func(*rig) *shutdown.Gate) *shutdown.Gate {
	r.t.Helper()
	kept := map[string][]byte{}
	for _, name := range []string{"runs.json", "last-shutdown.json"} {
		data, err := os.ReadFile(r.document(name))
		if os.IsNotExist(err) {
			continue
		}
		must(r.t, err)
		kept[name] = data
	}
	g.End()
	until(r.t, "the end of its drain", func() bool { return g.State().Phase != shutdown.PhaseDraining })
	time.Sleep(50 * time.Millisecond) // what it still writes
	for _, name := range []string{"runs.json", "last-shutdown.json"} {
		if data, ok := kept[name]; ok {
			must(r.t, os.WriteFile(r.document(name), data, 0o644))
		} else if err := os.Remove(r.document(name)); !os.IsNotExist(err) {
			must(r.t, err)
		}
	}
	return make(r)
}

func remembering(set ...func(*shutdown.Config)) func(*rig) *shutdown.Gate {
	return func(r *rig) *shutdown.Gate { return r.gate(time.Minute, append(set, r.journals)...) }
}

// inTheMiddle is a rig whose sidecar was killed in the middle of a drain that
// had triggered, and the gate of the next one.
func inTheMiddle(t *testing.T, all *crowd, flat bool) (r *rig, c *client, next *shutdown.Gate) {
	t.Helper()
	e := newEndpoint(t, nil)
	r = all.rig(t, base("3.9.1"))
	make := remembering(token(t), asks(t, e.URL))
	g := make(r)
	g.Follow()
	c = r.startOn(flat)
	g.Follow()
	r.drain(g, authorised)
	e.wait(t)
	until(t, "the call in runs.json", func() bool {
		runs := r.runs()
		call, _ := runs0(runs)["call"].(map[string]any)
		return call["triggered"] == true
	})
	return r, c, r.killed(g, make)
}

func runs0(runs []map[string]any) map[string]any {
	if len(runs) == 0 {
		return nil
	}
	return runs[0]
}

// TestKilledInTheMiddle: what the drain had noted, and the call, survive.
func TestKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	all := newCrowd(t)
	for name, flat := range map[string]bool{"": false, " without preallocation": true} {
		t.Run("the end is seen"+name, func(t *testing.T) {
			t.Parallel()
			r, c, g := inTheMiddle(t, all, flat)
			g.Follow()
			if s := g.State(); s.Phase != shutdown.PhaseRunning || len(s.Last) != 0 || len(of[event.EndMissed](&r.heard)) != 0 {
				t.Errorf("the next process begins with %+v", s)
			}
			c.close()
			g.Follow()
			s := g.State().Last[0]
			if s.Outcome != shutdown.ClosedClean || s.Hook != shutdown.Called || s.HookOutcome != "" || !s.Triggered || s.Trigger != shutdown.TriggerHTTP ||
				s.Began == nil || s.CloseSeconds == nil || s.NotWatched || s.Stores != 2 {
				t.Errorf("judged %+v, want closed-clean after a call that was not answered", s.Shutdown)
			}
		})
		t.Run("the end came while no sidecar ran"+name, func(t *testing.T) {
			t.Parallel()
			r, c, g := inTheMiddle(t, all, flat)
			c.close()
			g.Follow()
			s := r.remembered()
			if s.Outcome != shutdown.ClosedClean || s.Hook != shutdown.Called || !s.Triggered || !s.NotWatched || s.CloseSeconds != nil || s.Began == nil || s.Ended == nil {
				t.Errorf("judged %+v, want closed-clean at an unknown time", s)
			}
			until(t, "the end of runs.json", func() bool { return r.runs() == nil })
		})
	}
	t.Run("and so was the application", func(t *testing.T) {
		t.Parallel()
		r, c, g := inTheMiddle(t, all, false)
		c.Kill()
		g.Follow()
		if s := r.remembered(); s.Outcome != shutdown.ClosedUnclean || !s.NotWatched || s.Evidence[0].Reason != notClosed {
			t.Errorf("judged %+v, want closed-unclean", s)
		}
	})
	t.Run("the application has begun anew", func(t *testing.T) {
		t.Parallel()
		r, c, g := inTheMiddle(t, all, false)
		must(t, os.WriteFile(r.document("last-shutdown.json"),
			[]byte(`{"version":1,"applications":[{"application":"calos391","outcome":"closed-clean","hook":"called","stores":2}]}`), 0o644))
		c.Kill()
		c = r.start()
		c.reopen()
		g.Follow()
		if len(of[event.EndMissed](&r.heard)) != 1 || len(g.State().Last) != 0 || r.remembered() != nil {
			t.Errorf("last is %+v, want that the end was missed", g.State().Last)
		}
		if p := g.State().Phase; p != shutdown.PhaseRunning {
			t.Errorf("phase %s", p)
		}
		c.close()
		g.Follow()
		if s := r.remembered(); s.Outcome != shutdown.ClosedClean || s.Hook != shutdown.NotCalled || s.Triggered {
			t.Errorf("the end of the new run: %+v", s)
		}
	})
	t.Run("a call joins what goes on", func(t *testing.T) {
		t.Parallel()
		r, c, g := inTheMiddle(t, all, false)
		g.Follow()
		d := r.drain(g, shutdown.Call{Wait: true})
		c.close()
		if a := answer(t, d); a.Outcome != shutdown.ClosedClean || a.Stores != 2 {
			t.Errorf("got %+v", a)
		}
	})
}

// TestSidecarRestarts: an application that runs on is followed on by the next
// process, with what the first one knew.
func TestSidecarRestarts(t *testing.T) {
	t.Parallel()
	r := newRig(t, base("4.2.2"))
	make := remembering()
	c, g := r.opened(make)
	c.close()
	g.Follow()
	c = r.start()
	g.Follow()
	until(t, "runs.json", func() bool { g.Elapse(time.Minute); g.Follow(); return len(r.runs()) == 1 })
	g = r.killed(g, make)
	g.Follow()
	if s := g.State(); s.Phase != shutdown.PhaseRunning || len(s.Last) != 1 || s.Last[0].Outcome != shutdown.ClosedClean || len(of[event.EndMissed](&r.heard)) != 0 {
		t.Errorf("the next process begins with %+v", s)
	}
	if s := g.State().Last[0]; s.Ended == nil || s.Stores != 2 {
		t.Errorf("the end before: %+v", s.Shutdown)
	}
	// That a MANIFEST is preallocated here was seen by the first one.
	for _, db := range []string{c.kv(), c.x00()} {
		c.trim(db)
	}
	c.Kill()
	g.Follow()
	if s := g.State().Last[0]; s.Outcome != shutdown.ClosedClean {
		t.Errorf("judged %+v: it does not know that this file system preallocates", s.Shutdown)
	}
	until(t, "the end of runs.json", func() bool { return r.runs() == nil })
}

// TestSidecarRestartsAtRest: what ended before is told by the next process, and
// it is not judged again, although runs.json was not written any more.
func TestSidecarRestartsAtRest(t *testing.T) {
	t.Parallel()
	r := newRig(t, base("4.4.0"))
	make := remembering()
	c, g := r.opened(make)
	until(t, "runs.json", func() bool { g.Elapse(time.Minute); g.Follow(); return len(r.runs()) == 1 })
	runs, err := os.ReadFile(r.document("runs.json"))
	must(t, err)
	d := r.drain(g, shutdown.Call{Wait: true})
	c.close()
	answer(t, d)
	until(t, "the end of runs.json", func() bool { return r.runs() == nil })
	want := r.remembered()
	must(t, os.WriteFile(r.document("runs.json"), runs, 0o644))
	g = make(r)
	if s := g.State(); len(s.Last) != 0 || s.Phase != shutdown.PhaseIdle {
		t.Errorf("before its first look it knows %+v", s)
	}
	g.Follow()
	s := g.State()
	if s.Phase != shutdown.PhaseIdle || len(s.Last) != 1 || s.Last[0].NotWatched || s.Last[0].CloseSeconds == nil || *s.Last[0].CloseSeconds != *want.CloseSeconds ||
		!s.Last[0].Ended.Equal(*want.Ended) || len(s.Last[0].Evidence) != 2 {
		t.Errorf("the next process has %+v, want %+v", s.Last, want)
	}
	if a := call(t, g, true); a.Outcome != shutdown.NotRunning {
		t.Errorf("a call then got %+v", a)
	}
}

// TestDamagedDocuments: one that cannot be used counts as none, and the other one
// counts all the same.
func TestDamagedDocuments(t *testing.T) {
	t.Parallel()
	all := newCrowd(t)
	for _, name := range []string{"runs.json", "last-shutdown.json"} {
		for what, content := range map[string]string{"empty": "", "something else": `[1]`} {
			t.Run(name+" "+what, func(t *testing.T) {
				t.Parallel()
				r := all.rig(t, base("3.9.1"))
				make := remembering()
				c, g := r.opened(make)
				c.close()
				g.Follow()
				c = r.start()
				g.Follow()
				until(t, "runs.json", func() bool { g.Elapse(time.Minute); g.Follow(); return len(r.runs()) == 1 })
				must(t, os.WriteFile(r.document(name), []byte(content), 0o644))
				g = r.killed(g, make)
				g.Follow()
				told := of[event.JournalTrouble](&r.heard)
				if len(told) != 1 || !strings.Contains(told[0].Text, name) || len(of[event.EndMissed](&r.heard)) != 0 {
					t.Errorf("told of %+v, want of %s", told, name)
				}
				if n := len(g.State().Last); (n == 1) != (name == "runs.json") {
					t.Errorf("%d ends are known", n)
				}
				c.close()
				g.Follow()
				if s := r.remembered(); s.Outcome != shutdown.ClosedClean {
					t.Errorf("in the end %+v", s)
				}
			})
		}
	}
}

// TestTwoStateDirectories: each has its own documents, and the same id in both is
// two applications.
func TestTwoStateDirectories(t *testing.T) {
	t.Parallel()
	r := newRig(t, base("4.4.0"), base("4.4.0"))
	g := r.gate(time.Minute, r.journals)
	g.Follow()
	h := holder.Hold(t, append([]string{}, append(r.locks, r.dbs...)...)...)
	r.look()
	g.Follow()
	if s := g.State(); len(s.Known) != 2 || s.Known[0].Dir == s.Known[1].Dir {
		t.Errorf("known are %+v", s.Known)
	}
	for _, db := range r.dbs {
		if strings.HasPrefix(db, r.dirs[0]) {
			h.Release(db)
		}
	}
	h.Release(r.locks[0])
	g.Follow()
	last := g.State().Last
	if len(last) != 1 || last[0].Dir != 0 {
		t.Fatalf("after the first one's end: %+v", last)
	}
	if r.remembered() != nil { // of the second directory
		t.Error("the end is written down in the other directory")
	}
	h.Kill()
	g.Follow()
	if last := g.State().Last; len(last) != 2 || last[1].Dir != 1 || r.remembered() == nil {
		t.Errorf("in the end %+v", last)
	}
}

// TestNothingWasOpened: an application that ended before it opened a store has
// left everything as it was.
func TestNothingWasOpened(t *testing.T) {
	t.Parallel()
	all := newCrowd(t)
	for _, c := range []struct {
		name   string
		before func(*client) // the run before; nil if nothing is known of it
		change func(*client)
		clean  bool
	}{
		{name: "after a clean end", before: (*client).close, clean: true},
		{name: "after an end that was not clean", before: func(c *client) { c.Kill() }},
		{name: "of the end before nothing is known"},
		{name: "after a clean end, but it was opened unseen", before: (*client).close, change: func(c *client) {
			c.reopen()
			for _, db := range []string{c.kv(), c.x00()} {
				preallocate(c.t, manifestOf(c.t, db))
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := all.rig(t, base("3.9.1"))
			g := r.gate(time.Minute)
			g.Follow()
			if c.before != nil {
				run := r.start()
				g.Follow()
				c.before(run)
				g.Follow()
				r.look()
			}
			h := holder.Hold(t, r.locks...)
			g.Follow()
			if c.change != nil {
				c.change(&client{rig: r})
			}
			h.Kill()
			g.Follow()
			s := g.State().Last[0]
			if clean, known := s.Clean(); clean != c.clean || !known {
				t.Errorf("judged %+v, want clean %v", s.Shutdown, c.clean)
			}
		})
	}
	// From 4.3 on the stores themselves tell, without any memory.
	r := newRig(t, full("4.4.0"))
	g := r.gate(time.Minute)
	h := holder.Hold(t, r.locks...)
	g.Follow()
	h.Kill()
	g.Follow()
	if s := g.State().Last[0]; s.Outcome != shutdown.ClosedClean || len(s.Evidence) != 9 || s.Stores != 0 {
		t.Errorf("4.4 without a memory: %+v", s.Shutdown)
	}
}

// TestLetGoLongBefore: a store whose task has moved away, or that the cleaner has
// removed since, is no part of a later close; one that was closed a moment
// before it is.
func TestLetGoLongBefore(t *testing.T) {
	t.Parallel()
	all := newCrowd(t)
	for _, c := range []struct {
		name    string
		elapsed time.Duration
		noCall  bool
		stores  int
		clean   bool
	}{
		{"two minutes before a call", 2 * time.Minute, false, 4, true},
		{"a moment before a call", 0, false, 8, false},
		{"twenty minutes before an end", 20 * time.Minute, true, 4, true},
		{"a moment before an end", 0, true, 8, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := all.rig(t, full("3.9.1"))
			r.dbs = without(r.dbs, "/global/")
			cl, g := r.opened(func(r *rig) *shutdown.Gate { return r.gate(time.Minute) })
			moved := those(r.dbs, "/1_1/")
			for _, lock := range moved {
				cl.shut(filepath.Dir(lock))
			}
			r.look()
			g.Follow()
			g.Elapse(c.elapsed)
			must(t, os.RemoveAll(cl.path("1_1")))
			r.look()
			g.Follow()
			close := func() {
				cl.commit("1_0")
				for _, lock := range those(r.dbs, "/1_0/") {
					cl.shut(filepath.Dir(lock))
				}
				cl.unlock()
			}
			if c.noCall {
				close()
				g.Follow()
			} else {
				d := r.drain(g, shutdown.Call{Wait: true})
				close()
				if a := answer(t, d); a.Stores != c.stores {
					t.Errorf("got %+v, want %d stores", a, c.stores)
				}
			}
			s := g.State().Last[0]
			if clean, _ := s.Clean(); clean != c.clean || s.Stores != c.stores {
				t.Errorf("judged %+v, want clean %v of %d stores", s.Shutdown, c.clean, c.stores)
			}
		})
	}
}

func those(paths []string, part string) (out []string) {
	for _, p := range paths {
		if strings.Contains(p, part) {
			out = append(out, p)
		}
	}
	return out
}

func without(paths []string, part string) (out []string) {
	for _, p := range paths {
		if !strings.Contains(p, part) {
			out = append(out, p)
		}
	}
	return out
}

// TestYoungApplication: the stores of an application that was not there before
// were made by it, so that there is nothing else that they could show.
func TestYoungApplication(t *testing.T) {
	t.Parallel()
	r := newRig(t, base("4.4.0"))
	hidden := filepath.Join(t.TempDir(), "app")
	must(t, os.Rename(filepath.Dir(r.locks[0]), hidden))
	r.look()
	g := r.gate(time.Minute)
	g.Follow()
	must(t, os.Rename(hidden, filepath.Dir(r.locks[0])))
	c := r.start()
	g.Follow()
	c.close()
	g.Follow()
	if s := g.State().Last[0]; s.Outcome != shutdown.ClosedClean {
		t.Errorf("judged %+v, want closed-clean", s.Shutdown)
	}
}

// TestSettles: from 4.3 on a store that was only opened and closed at the start
// proves nothing of this run, unless the end before was clean.
func TestSettles(t *testing.T) {
	t.Parallel()
	all := newCrowd(t)
	for _, c := range []struct {
		name    string
		cleanly bool // the end before
		elapsed time.Duration
		clean   bool
	}{
		{"after a kill", false, 0, false},
		{"after a kill, open for longer", false, time.Minute, true},
		{"after a clean end", true, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := all.rig(t, base("4.3.1"))
			g := r.gate(time.Minute)
			g.Follow()
			run := r.start()
			g.Follow()
			run.reopen()
			g.Follow()
			if c.cleanly {
				run.close()
			} else {
				// As if they were closed by the next start, which the files do not tell.
				for _, lock := range r.dbs {
					preallocate(t, manifestOf(t, filepath.Dir(lock)))
					must(t, os.Rename(those(run.tables(filepath.Dir(lock)), "000010.sst")[0], filepath.Join(filepath.Dir(lock), "hidden")))
				}
				run.Kill()
			}
			g.Follow()
			if clean, _ := g.State().Last[0].Clean(); clean != c.cleanly {
				t.Fatalf("the end before: %+v", g.State().Last)
			}
			for _, lock := range r.dbs {
				if !c.cleanly {
					must(t, os.Rename(filepath.Join(filepath.Dir(lock), "hidden"), filepath.Join(filepath.Dir(lock), "000010.sst")))
				}
			}
			r.look()
			run = r.start()
			run.forget(run.kv(), flushed) // a start writes nothing else
			run.forget(run.x00(), flushed)
			g.Follow()
			g.Elapse(c.elapsed)
			r.look()
			g.Follow()
			run.close()
			g.Follow()
			s := g.State().Last[0]
			if clean, _ := s.Clean(); clean != c.clean || !c.clean && s.Evidence[0].Reason != notProvableHere {
				t.Errorf("judged %+v, want clean %v", s.Shutdown, c.clean)
			}
		})
	}
}
