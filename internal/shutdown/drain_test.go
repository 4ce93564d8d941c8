package shutdown_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"streams-sidecar/internal/event"
	"streams-sidecar/internal/journal"
	"streams-sidecar/internal/probe"
	"streams-sidecar/internal/rocksfile/rockstest"
	"streams-sidecar/internal/shutdown"
	"streams-sidecar/internal/statedir"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
	"streams-sidecar/internal/volume/volumetest"
	"streams-sidecar/internal/volume/volumetest/hungfs"
	"streams-sidecar/test/holder"
)

func stall(d time.Duration) func(*shutdown.Config) {
	return func(cfg *shutdown.Config) { cfg.Stall = d }
}

// TestStalled: a call is answered when nothing has moved for a while, and the
// application is followed further.
func TestStalled(t *testing.T) {
	t.Parallel()
	r := newRig(t, base("3.9.1"))
	c, g := r.opened(func(r *rig) *shutdown.Gate { return r.gate(time.Minute, stall(200*time.Millisecond), r.journals) })
	a := answer(t, r.drain(g, shutdown.Call{Wait: true}))
	if a.Outcome != shutdown.Stalled || a.WaitedSeconds < 0.2 || a.WaitedSeconds > 5 || len(a.Held) != 1 || len(a.Missing) != 2 || !strings.Contains(a.Explanation, "200ms") {
		t.Errorf("got %+v, want stalled after 0.2 s with everything held", a)
	}
	if s := g.State(); s.Phase != shutdown.PhaseRunning || s.Last[0].Outcome != shutdown.Stalled || r.remembered().Outcome != shutdown.Stalled {
		t.Errorf("phase %s, last %+v", s.Phase, s.Last)
	}
	c.close()
	g.Follow()
	if s := g.State().Last[0]; s.Outcome != shutdown.ClosedClean || s.HookOutcome != shutdown.Stalled || s.CloseSeconds == nil || s.Stores != 2 {
		t.Errorf("in the end %+v, want closed-clean after a stalled call", s.Shutdown)
	}
}

// TestNotStalled: as long as LOCKs are let go of and tables are written, the
// close is under way.
func TestNotStalled(t *testing.T) {
	t.Parallel()
	const limit = 2500 * time.Millisecond // of which it looks once a second
	r := newRig(t, full("4.4.0"))
	c, g := r.opened(func(r *rig) *shutdown.Gate { return r.gate(time.Minute, stall(limit)) })
	d := r.drain(g, shutdown.Call{Wait: true})
	kv, size := c.path("1_0", "rocksdb", "kv"), 0
	moved := func(what string, move func()) {
		t.Helper()
		for begun := time.Now(); time.Since(begun) < limit+limit/4; {
			move()
			select {
			case a := <-d:
				t.Fatalf("%s: answered %+v while the close makes progress", what, a)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	moved("by a table", func() {
		size++
		must(t, os.WriteFile(filepath.Join(kv, "000099.sst"), make([]byte, size), 0o644))
		c.look()
		g.Follow()
	})
	locks, turns := r.dbs, 0
	moved("by locks", func() {
		if turns++; turns%5 == 0 && len(locks) > 1 {
			c.Release(locks[0])
			locks = locks[1:]
		}
	})
	c.Kill()
	if a := answer(t, d); a.Outcome == shutdown.Stalled {
		t.Errorf("got %+v", a)
	}
}

// remembered is what last-shutdown.json says of the application of the last
// directory; nil if there is none.
func (r *rig) remembered() *shutdown.Shutdown {
	r.t.Helper()
	data, err := os.ReadFile(filepath.Join(r.dir, ".streams-sidecar", "last-shutdown.json"))
	if os.IsNotExist(err) {
		return nil
	}
	must(r.t, err)
	var doc struct {
		Version      int
		Applications []shutdown.Shutdown
	}
	must(r.t, json.Unmarshal(data, &doc))
	if doc.Version != 1 || len(doc.Applications) > 1 {
		r.t.Fatalf("%s", data)
	}
	if len(doc.Applications) == 0 {
		return nil
	}
	return &doc.Applications[0]
}

// onEnd calls a function when a call is about to be answered.
type onEnd struct {
	*heard
	do func(outcome string)
}

func (o onEnd) Emit(e event.Event) {
	if e, ok := e.(event.PrestopEnded); ok {
		o.do(e.Outcome)
	}
	o.heard.Emit(e)
}

// TestWrittenDownBeforeTheAnswer: once the kubelet has its answer, SIGKILL may
// come.
func TestWrittenDownBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	r := newRig(t, base("4.2.2"))
	var mu sync.Mutex
	var found []string
	events := onEnd{&r.heard, func(outcome string) {
		mu.Lock()
		defer mu.Unlock()
		s := r.remembered()
		if s == nil {
			found = append(found, outcome+": nothing")
			return
		}
		found = append(found, fmt.Sprintf("%s: %s, %s, %d", outcome, s.Outcome, s.HookOutcome, len(s.Evidence)))
	}}
	var budget time.Duration
	make := func(r *rig) *shutdown.Gate {
		return r.gate(budget, r.journals, stall(100*time.Millisecond), func(cfg *shutdown.Config) { cfg.Events = events })
	}
	budget = 50 * time.Millisecond
	c, g := r.opened(make)
	answer(t, r.drain(g, shutdown.Call{Wait: true}))
	budget = time.Minute
	g = make(r)
	g.Follow()
	answer(t, r.drain(g, shutdown.Call{Wait: true}))
	g = r.gate(time.Minute, r.journals, func(cfg *shutdown.Config) { cfg.Events = events })
	g.Follow()
	d := r.drain(g, shutdown.Call{Wait: true})
	c.close()
	answer(t, d)
	want := []string{"timeout: timeout, timeout, 2", "stalled: stalled, stalled, 2", "closed-clean: closed-clean, closed-clean, 2"}
	mu.Lock()
	defer mu.Unlock()
	if strings.Join(found, "\n") != strings.Join(want, "\n") {
		t.Errorf("on the disk at the time of the answer:\n%s\nwant\n%s", strings.Join(found, "\n"), strings.Join(want, "\n"))
	}
}

// TestLockThatReturns: an application that has begun anew before its files were
// read cannot be judged, and nothing false is said of it.
func TestLockThatReturns(t *testing.T) {
	t.Parallel()
	r := newRig(t, base("4.4.0"))
	c, g := r.opened(func(r *rig) *shutdown.Gate { return r.gate(time.Minute, r.journals) })
	d := r.drain(g, shutdown.Call{Wait: true})
	again := holder.Hold(t)
	r.fake.Before(volumetest.List, r.dir, func() { again.Take(r.locks[0]) }).Times(1)
	c.close()
	a := answer(t, d)
	if a.Outcome != shutdown.ClosedUnclean || len(a.Missing) != 1 || a.Missing[0].Reason != notProvableHere || !strings.Contains(a.Missing[0].Text, "begun again") {
		t.Errorf("got %+v, want closed-unclean because it has begun again", a)
	}
	if len(of[event.EndMissed](&r.heard)) != 1 || len(g.State().Last) != 0 || r.remembered() != nil {
		t.Errorf("last is %+v, want that the end was missed", g.State().Last)
	}
	g.Follow()
	if p := g.State().Phase; p != shutdown.PhaseRunning {
		t.Errorf("phase %s", p)
	}
	// A second stop works.
	d = r.drain(g, shutdown.Call{Wait: true})
	again.Release(r.locks[0])
	if a := answer(t, d); a.Outcome == shutdown.Timeout {
		t.Errorf("the second stop got %+v", a)
	}
}

// TestSecondStop: an application that comes back in the same pod is followed
// anew.
func TestSecondStop(t *testing.T) {
	t.Parallel()
	r := newRig(t, base("3.9.1"))
	e := newEndpoint(t, nil)
	c, g := r.opened(func(r *rig) *shutdown.Gate { return r.gate(time.Minute, r.journals, token(t), asks(t, e.URL)) })
	d := r.drain(g, authorised)
	e.wait(t)
	c.close()
	if a := answer(t, d); a.Outcome != shutdown.ClosedClean || !a.Triggered {
		t.Fatalf("the first stop got %+v", a)
	}
	if p := g.State().Phase; p != shutdown.PhaseEnded {
		t.Errorf("after it: phase %s", p)
	}
	c = r.start()
	g.Follow()
	if s := g.State(); s.Phase != shutdown.PhaseRunning || s.Last[0].Outcome != shutdown.ClosedClean {
		t.Errorf("with the next one: %+v", s)
	}
	d = r.drain(g, authorised)
	e.wait(t)
	c.Kill()
	if a := answer(t, d); a.Outcome != shutdown.ClosedUnclean || !a.Triggered || a.Stores != 2 {
		t.Errorf("the second stop got %+v, want closed-unclean", a)
	}
	if s := r.remembered(); s.Outcome != shutdown.ClosedUnclean || s.Hook != shutdown.Called {
		t.Errorf("remembered %+v", s)
	}
	// And a third one, of which nobody was told.
	c = r.start()
	g.Follow()
	c.close()
	g.Follow()
	if s := r.remembered(); s.Outcome != shutdown.ClosedClean || s.Hook != shutdown.NotCalled || s.Began != nil || s.Triggered {
		t.Errorf("remembered %+v", s)
	}
}

// TestJournalTrouble: where nothing can be written down the answer comes all the
// same, and says so; what failed is written as soon as that is possible.
func TestJournalTrouble(t *testing.T) {
	t.Parallel()
	for name, block := range map[string]func(t *testing.T, folder string){
		"a symbolic link": func(t *testing.T, folder string) { must(t, os.Symlink(t.TempDir(), folder)) },
		"a file":          func(t *testing.T, folder string) { must(t, os.WriteFile(folder, nil, 0o644)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, base("4.4.0"))
			folder := filepath.Join(r.dir, ".streams-sidecar")
			block(t, folder)
			c, g := r.opened(func(r *rig) *shutdown.Gate { return r.gate(time.Minute, r.journals) })
			d := r.drain(g, shutdown.Call{Wait: true})
			c.close()
			a := answer(t, d)
			if a.Outcome != shutdown.ClosedClean || !strings.Contains(a.JournalError, "last-shutdown.json") || a.WaitedSeconds > 5 {
				t.Errorf("got %+v, want closed-clean with a journal error", a)
			}
			for range 3 { // later successes elsewhere hide nothing
				g.Follow()
			}
			if s := g.State(); !strings.Contains(s.JournalError, "last-shutdown.json") || len(of[event.JournalTrouble](&r.heard)) == 0 {
				t.Errorf("the state has %q", s.JournalError)
			}
			must(t, os.Remove(folder))
			g.Follow()
			if r.remembered() != nil {
				t.Error("it is tried again all the time")
			}
			until(t, "the second attempt", func() bool { g.Elapse(time.Minute); g.Follow(); return r.remembered() != nil })
			if s := r.remembered(); s.Outcome != shutdown.ClosedClean {
				t.Errorf("remembered %+v", s)
			}
			until(t, "the end of the trouble", func() bool { g.Elapse(time.Minute); g.Follow(); return g.State().JournalError == "" })
		})
	}
	t.Run("a volume that is read-only, then hangs", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, base("4.4.0"))
		dir := r.dir
		hung := hungfs.Mount(t, dir)
		c, g := r.opened(func(r *rig) *shutdown.Gate {
			return r.gate(time.Minute, func(cfg *shutdown.Config) {
				cfg.Journals = []*journal.Folder{journal.Open(hung.Path, journal.Deadline(400*time.Millisecond))}
			})
		})
		d := r.drain(g, shutdown.Call{Wait: true})
		c.close()
		if a := answer(t, d); a.Outcome != shutdown.ClosedClean || !strings.Contains(a.JournalError, "read-only") {
			t.Errorf("got %+v, want closed-clean with a journal error", a)
		}
		c = r.start()
		g.Follow()
		hung.Stall()
		d = r.drain(g, shutdown.Call{Wait: true})
		c.close()
		if a := answer(t, d); a.JournalError == "" || a.WaitedSeconds > 5 {
			t.Errorf("got %+v, want a journal error soon", a)
		}
		hung.Release()
	})
}

// TestHungVolume: while the volume hangs nothing is known, and the call ends by
// its budget; when it answers again the end is judged.
func TestHungVolume(t *testing.T) {
	t.Parallel()
	for _, op := range []volumetest.Op{volumetest.Lock, volumetest.Any} {
		t.Run(string(op), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, base("4.4.0"))
			c, g := r.opened(func(r *rig) *shutdown.Gate { return r.gate(600*time.Millisecond, r.impatient) })
			d := r.drain(g, shutdown.Call{Wait: true})
			rule := r.fake.Stall(op, "...")
			a := answer(t, d)
			if a.Outcome != shutdown.Timeout || a.WaitedSeconds > 3 || !strings.Contains(a.Explanation, "no answer") {
				t.Errorf("got %+v, want a timeout that tells of the volume", a)
			}
			c.close()
			g.Follow()
			if s := g.State().Last; len(s) != 1 || s[0].Outcome != shutdown.Timeout {
				t.Errorf("judged %+v while the volume hangs", s)
			}
			rule.Release()
			until(t, "the verdict", func() bool { g.Follow(); return g.State().Last[0].Outcome == shutdown.ClosedClean })
			if s := r.remembered(); s.HookOutcome != shutdown.Timeout || s.Outcome != shutdown.ClosedClean {
				t.Errorf("remembered %+v", s)
			}
		})
	}
	t.Run("only when the files are read", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, base("4.4.0"))
		c, g := r.opened(func(r *rig) *shutdown.Gate { return r.gate(300*time.Millisecond, r.impatient) })
		d := r.drain(g, shutdown.Call{Wait: true})
		r.fake.Stall(volumetest.List, "...")
		c.close()
		if a := answer(t, d); a.Outcome == shutdown.ClosedClean || a.WaitedSeconds > 4 {
			t.Errorf("got %+v, want no verdict of clean", a)
		}
	})
}

// TestLongestAnswers: at most 8 KiB, whatever the number of the stores and their
// names, and what is left out is counted; the verdict is written down.
func TestLongestAnswers(t *testing.T) {
	t.Parallel()
	stores := 10_000
	if rockstest.Race {
		stores = 500 // it makes names cost ten times as much
	}
	dir := t.TempDir()
	held := true
	app := &store.Application{Layout: &statedir.Application{ID: strings.Repeat("<\x01\"", 85), Path: filepath.Join(dir, "a")}}
	must(t, os.Mkdir(app.Layout.Path, 0o755))
	lock := filepath.Join(app.Layout.Path, ".lock")
	must(t, os.WriteFile(lock, nil, 0o644))
	for i := range stores {
		if i%100 == 0 {
			id := fmt.Sprint("0_", i/100)
			app.Tasks = append(app.Tasks, &store.Task{Layout: &statedir.Task{ID: id, Path: filepath.Join(app.Layout.Path, id)}})
		}
		name := fmt.Sprintf("%05d%s", i, strings.Repeat("&\n\xff\u2028", 41))
		task := app.Tasks[len(app.Tasks)-1]
		task.Stores = append(task.Stores, &store.Store{Layout: &statedir.Store{}, Name: name, InUse: &held})
	}
	v := volume.New(volume.OS())
	d := store.Scan(v, dir, nil)
	d.Applications = []*store.Application{app}
	snap := &probe.Snapshot{StateDirs: []*store.StateDir{d}, Seq: 1}
	r := &rig{t: t, dir: dir, dirs: []string{dir}, vs: []*volume.Volume{v}}
	r.picture.Store(snap)
	size := func(a *shutdown.Answer) int {
		b, err := json.Marshal(a)
		must(t, err)
		return len(b) + 1 // a newline
	}
	h := holder.Hold(t, lock)
	g := r.gate(100*time.Millisecond, r.journals)
	g.Follow()
	a := answer(t, r.drain(g, shutdown.Call{Wait: true}))
	if a.Outcome != shutdown.Timeout || a.Stores != stores || size(a) > 8<<10 {
		t.Errorf("%d bytes: %+v", size(a), a)
	}
	g = r.gate(time.Minute, r.journals)
	g.Follow()
	w := r.drain(g, shutdown.Call{Wait: true})
	h.Release(lock)
	a = answer(t, w)
	if a.Outcome != shutdown.ClosedUnclean || len(a.Missing)+a.MissingMore != stores || len(a.Missing) == 0 || size(a) > 8<<10 {
		t.Errorf("%d bytes: %d named and %d more of %d: %+v", size(a), len(a.Missing), a.MissingMore, stores, a)
	}
	if s := r.remembered(); s == nil || s.Outcome != shutdown.ClosedUnclean || s.Stores != stores || a.JournalError != "" {
		t.Errorf("what is remembered is %t: %s", s != nil, a.JournalError)
	}
}

// TestManyCalls: a thousand that wait are one drain, and each of those that hang
// up ends alone.
func TestManyCalls(t *testing.T) {
	t.Parallel()
	r := newRig(t, base("3.9.1"))
	c, g := r.opened(func(r *rig) *shutdown.Gate { return r.gate(time.Minute) })
	first := r.drain(g, shutdown.Call{Wait: true})
	ctx, hangUp := context.WithCancel(context.Background())
	var calls sync.WaitGroup
	var got, gone sync.Map
	for i := range 1000 {
		calls.Go(func() {
			if i%2 == 0 {
				if _, err := g.Prestop(ctx, shutdown.Call{Wait: i%4 == 0}); err != nil {
					gone.Store(i, true)
				}
				return
			}
			a, err := g.Prestop(context.Background(), shutdown.Call{Wait: i%4 == 1})
			if err != nil {
				t.Error(err)
			}
			got.Store(a, true)
		})
	}
	hangUp()
	time.Sleep(20 * time.Millisecond)
	c.close()
	a := answer(t, first)
	calls.Wait()
	got.Range(func(k, _ any) bool {
		if k != a {
			t.Errorf("a joined call got %+v, the first one %+v", k, a)
		}
		return true
	})
	n := 0
	gone.Range(func(_, _ any) bool { n++; return true })
	if n != 500 || g.State().Requests[a.Outcome] != 501 || len(of[event.PrestopBegan](&r.heard)) != 1 {
		t.Errorf("%d hung up, %d were answered in %d drains", n, g.State().Requests[a.Outcome], len(of[event.PrestopBegan](&r.heard)))
	}
}

// TestWaitingCallAfterTheDecision: a call that waits, and comes when one that
// only asks is about to be answered, waits.
func TestWaitingCallAfterTheDecision(t *testing.T) {
	t.Parallel()
	r := newRig(t, base("3.9.1"))
	c, g := r.opened(func(r *rig) *shutdown.Gate {
		return r.gate(time.Minute, func(cfg *shutdown.Config) { cfg.Trigger = shutdown.TriggerNone })
	})
	// It looks twice at the LOCKs, and in between the other call comes.
	rule := r.fake.Stall(volumetest.Lock, filepath.Join(c.kv(), "LOCK"))
	asks := make(chan *shutdown.Answer, 1)
	go func() { asks <- call(t, g, false) }()
	rule.WaitBlocked(1)
	waits := make(chan *shutdown.Answer, 1)
	go func() { waits <- call(t, g, true) }()
	time.Sleep(20 * time.Millisecond)
	rule.Release()
	select {
	case a := <-waits:
		t.Fatalf("the waiting call got %+v while everything is held", a)
	case <-time.After(200 * time.Millisecond):
	}
	c.close()
	if a := answer(t, waits); a.Outcome != shutdown.ClosedClean {
		t.Errorf("the waiting call got %+v", a)
	}
	answer(t, asks)
}

// TestCallAgainInTheClose: a second call, after the first one's budget and in the
// middle of the close, does not forget what the first one has noted.
func TestCallAgainInTheClose(t *testing.T) {
	t.Parallel()
	for _, flat := range []bool{false, true} {
		r := newRig(t, base("3.9.1"))
		g := r.gate(100 * time.Millisecond)
		g.Follow()
		c := r.startOn(flat)
		g.Follow()
		if a := answer(t, r.drain(g, shutdown.Call{Wait: true})); a.Outcome != shutdown.Timeout {
			t.Fatalf("the first call got %+v", a)
		}
		began := g.State().Last[0].Began
		c.commit()
		c.look()
		g.Follow()
		if a := answer(t, r.drain(g, shutdown.Call{Wait: true})); a.Outcome != shutdown.Timeout {
			t.Fatalf("the second call got %+v", a)
		}
		c.shut()
		c.unlock()
		g.Follow()
		s := g.State().Last[0]
		if s.Outcome != shutdown.ClosedClean || s.Began == nil || !s.Began.Equal(*began) {
			t.Errorf("flat %v: judged %+v, want closed-clean since %v", flat, s.Shutdown, began)
		}
	}
}
