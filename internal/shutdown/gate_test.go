package shutdown_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"streams-sidecar/internal/probe"
	"streams-sidecar/internal/shutdown"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
	"streams-sidecar/internal/volume/volumetest"
	"streams-sidecar/test/fixture"
	"streams-sidecar/test/holder"
)

var closed391 = fixture.Name{Version: "3.9.1", Case: "closed-clean"}
var closed440 = fixture.Name{Version: "4.4.0", Case: "closed-clean"}

// waiting returns when a call has begun; a moment later it has asked the locks.
func waiting(g *shutdown.Gate) {
	for !g.State().Any {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond)
}

func TestNothingRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t, closed391)
	for _, wait := range []bool{false, true} {
		if a := call(t, r.gate(time.Minute), wait); a.Outcome != shutdown.NotRunning || a.WaitedSeconds > 5 {
			t.Errorf("wait %v: %+v, want not-running at once", wait, a)
		}
	}
}

func TestObserves(t *testing.T) {
	t.Parallel()
	r := newRig(t, closed391)
	holder.Hold(t, r.locks...)
	a := call(t, r.gate(time.Minute), false)
	if a.Outcome != shutdown.Observed || a.Applications != 1 || len(a.Held) != 1 || a.Held[0] != "alos391" {
		t.Errorf("got %+v, want observed with alos391 held", a)
	}
}

// TestWaitsForAllApplications: the answer comes only when the last .lock of
// both applications is free, and soon after it.
func TestWaitsForAllApplications(t *testing.T) {
	t.Parallel()
	r := newRig(t, closed391, closed440)
	h := holder.Hold(t, r.locks...)
	g := r.gate(time.Minute)
	done := make(chan *shutdown.Answer, 1)
	go func() { done <- call(t, g, true) }()
	waiting(g)
	h.Release(r.locks[0])
	select {
	case a := <-done:
		t.Fatalf("answered %+v while %s is held", a, r.locks[1])
	case <-time.After(200 * time.Millisecond):
	}
	h.Release(r.locks[1])
	select {
	case a := <-done:
		if a.Outcome != shutdown.ClosedUnclean || a.Applications != 2 || len(a.Held) != 0 {
			t.Errorf("got %+v, want closed-unclean", a)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("no answer after the last release")
	}
}

// TestCaseF01: the hook ends within its budget, whatever the locks do.
func TestCaseF01(t *testing.T) {
	t.Parallel()
	r := newRig(t, closed391, closed440)
	h := holder.Hold(t, r.locks...)
	h.Release(r.locks[0])
	least := patience.Seconds()
	for range 3 { // a loaded machine may be late by itself
		a := call(t, r.gate(300*time.Millisecond), true)
		if a.Outcome != shutdown.Timeout || len(a.Held) != 1 || a.Held[0] != "alos440" || a.WaitedSeconds < 0.3 {
			t.Fatalf("got %+v, want a timeout after 0.3 s with alos440 held", a)
		}
		if least = min(least, a.WaitedSeconds); least < 0.8 {
			return
		}
	}
	t.Errorf("it took %v s of a budget of 0.3", least)
}

// TestWaitsOnceClosing: a hook that only observes waits when the application is
// seen to close its stores already.
func TestWaitsOnceClosing(t *testing.T) {
	t.Parallel()
	r := newRig(t, closed391)
	h := holder.Hold(t, append(r.locks, r.dbs...)...)
	r.look()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // as a close does, one store after the other
		defer close(stopped)
		for _, db := range r.dbs {
			h.Release(db)
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
		<-stop
	}()
	done := make(chan *shutdown.Answer, 1)
	go func() { done <- call(t, r.gate(time.Minute), false) }()
	select {
	case a := <-done:
		t.Fatalf("answered %+v while the application closes", a)
	case <-time.After(300 * time.Millisecond):
	}
	close(stop)
	<-stopped
	h.Kill()
	if a := <-done; a.Outcome != shutdown.ClosedUnclean {
		t.Errorf("got %+v, want closed-unclean", a)
	}
}

// TestJoins: callers that come while one waits get the same answer, and one
// that hangs up ends nothing.
func TestJoins(t *testing.T) {
	t.Parallel()
	r := newRig(t, closed391)
	h := holder.Hold(t, r.locks...)
	g := r.gate(time.Minute)
	ctx, hangUp := context.WithCancel(context.Background())
	gone := make(chan error, 1)
	go func() { _, err := g.Prestop(ctx, shutdown.Call{Wait: true}); gone <- err }()
	waiting(g)
	var wg sync.WaitGroup
	answers := make([]*shutdown.Answer, 50)
	for i := range answers {
		wg.Go(func() { answers[i] = call(t, g, i%2 == 0) })
	}
	hangUp()
	if err := <-gone; err == nil {
		t.Error("a caller that hung up got an answer")
	}
	h.Kill()
	wg.Wait()
	for _, a := range answers {
		if a.Outcome != shutdown.ClosedUnclean {
			t.Fatalf("a joined call got %+v, want closed-unclean", a)
		}
	}
	if n := g.State().Requests[shutdown.ClosedUnclean]; n != 50 {
		t.Errorf("counted %d answers, want 50", n)
	}
}

// TestCaseF08: a kubelet that was restarted during the hook calls it again
// after the end, and a new run of the application begins anew.
func TestCaseF08(t *testing.T) {
	t.Parallel()
	r := newRig(t, closed391)
	h := holder.Hold(t, r.locks...)
	g := r.gate(time.Minute)
	killed := make(chan struct{})
	go func() { defer close(killed); waiting(g); h.Kill() }()
	first := call(t, g, true)
	<-killed
	if again := call(t, g, true); again.Outcome != shutdown.ClosedUnclean || first.Outcome != shutdown.ClosedUnclean {
		t.Errorf("first %+v, then %+v, want closed-unclean twice", first, again)
	}
	holder.Hold(t, r.locks...)
	if a := call(t, g, false); a.Outcome != shutdown.Observed {
		t.Errorf("after a new start %+v, want observed", a)
	}
}

func TestBudget(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ timeout, grace, want time.Duration }{
		{0, 0, 15 * time.Second},
		{0, time.Minute, 55 * time.Second},
		{7 * time.Second, time.Minute, 7 * time.Second},
		{0, 3 * time.Second, time.Second},
	} {
		if got := shutdown.Budget(c.timeout, c.grace); got != c.want {
			t.Errorf("Budget(%v, %v) = %v, want %v", c.timeout, c.grace, got, c.want)
		}
	}
}

// TestEnd: calls that wait are answered, and so is every later one.
func TestEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, closed391)
	holder.Hold(t, r.locks...)
	g := r.gate(time.Hour)
	done := make(chan *shutdown.Answer, 1)
	go func() { done <- call(t, g, true) }()
	waiting(g)
	g.End()
	g.End()
	for _, a := range []*shutdown.Answer{<-done, call(t, g, true)} {
		if a.Outcome != shutdown.Timeout || !strings.Contains(a.Explanation, "told to stop") || len(a.Held) != 1 {
			t.Errorf("got %+v, want a timeout that says why", a)
		}
	}
	if a := call(t, g, false); a.Outcome != shutdown.Observed {
		t.Errorf("one that only asks: %+v, want observed", a)
	}
	// Nor does it wait for a first picture any more.
	g = shutdown.NewGate(shutdown.Config{Timeout: time.Hour, Snapshot: func() *probe.Snapshot { return nil }})
	time.AfterFunc(50*time.Millisecond, g.End)
	if a := call(t, g, true); a.Outcome != shutdown.Timeout || !strings.Contains(a.Explanation, "not been read") {
		t.Errorf("before the first picture: %+v, want a timeout", a)
	}
}

// TestSettle: it waits for the last lock, and tells what is held at its end.
func TestSettle(t *testing.T) {
	t.Parallel()
	r := newRig(t, closed391, closed440)
	h := holder.Hold(t, r.locks...)
	g := r.gate(time.Hour)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if held, known := g.Settle(ended); !known || len(held) != 2 {
		t.Errorf("at once: %v %v, want both applications", held, known)
	}
	done := make(chan bool)
	go func() {
		defer close(done)
		if held, known := g.Settle(context.Background()); !known || len(held) != 0 {
			t.Errorf("got %v %v, want none", held, known)
		}
	}()
	h.Release(r.locks[1])
	if held, _ := g.Settle(ended); len(held) != 1 || held[0] != "alos391" {
		t.Errorf("after one release: %v, want alos391", held)
	}
	select {
	case <-done:
		t.Fatal("it did not wait for the last lock")
	case <-time.After(100 * time.Millisecond):
	}
	h.Release(r.locks[0])
	<-done
	g = shutdown.NewGate(shutdown.Config{Snapshot: func() *probe.Snapshot { return nil }})
	if held, known := g.Settle(ended); known || held != nil {
		t.Errorf("before the first picture: %v %v", held, known)
	}
}

// TestWaitingCallNeverObserves: a call that waits is not fobbed off with the
// answer of one that only asks, whichever came first.
func TestWaitingCallNeverObserves(t *testing.T) {
	t.Parallel()
	r := newRig(t, closed391)
	h := holder.Hold(t, r.locks...)
	picture := make(chan *probe.Snapshot)
	first := true
	g := shutdown.NewGate(shutdown.Config{Volumes: r.vs, Timeout: time.Minute, Snapshot: func() *probe.Snapshot {
		if first { // only the one drain asks
			first = false
			return <-picture
		}
		return r.picture.Load()
	}})
	asks, waits := make(chan *shutdown.Answer, 1), make(chan *shutdown.Answer, 1)
	go func() { asks <- call(t, g, false) }()
	waiting(g)
	go func() { waits <- call(t, g, true) }()
	time.Sleep(100 * time.Millisecond)
	picture <- r.picture.Load()
	select {
	case a := <-waits:
		t.Fatalf("the waiting call got %+v while the lock is held", a)
	case <-time.After(300 * time.Millisecond):
	}
	h.Kill()
	if a := <-waits; a.Outcome != shutdown.ClosedUnclean {
		t.Errorf("the waiting call got %+v, want closed-unclean", a)
	}
	<-asks
}

// TestUnreadableIsNotNotRunning: where the state directory could not be read,
// nobody can say that nothing runs.
func TestUnreadableIsNotNotRunning(t *testing.T) {
	t.Parallel()
	src := fixture.Unpack(t, closed391.Version, closed391.Case)
	for name, dir := range map[string]string{
		"application as state directory": filepath.Join(src, "alos391"),
		"file as state directory":        filepath.Join(src, "alos391", "1_0", ".checkpoint"),
	} {
		v := volume.New(volume.OS())
		snap := &probe.Snapshot{StateDirs: []*store.StateDir{store.Scan(v, dir, nil)}}
		g := shutdown.NewGate(shutdown.Config{Volumes: []*volume.Volume{v}, Timeout: 200 * time.Millisecond,
			Snapshot: func() *probe.Snapshot { return snap }})
		if a := call(t, g, false); a.Outcome != shutdown.Observed || a.Explanation == "" {
			t.Errorf("%s: %+v, want observed with an explanation", name, a)
		}
		if a := call(t, g, true); a.Outcome != shutdown.Timeout || a.Explanation == "" {
			t.Errorf("%s, waiting: %+v, want timeout with an explanation", name, a)
		}
	}
}

// TestHeldStoreBelowFreeLock: .lock was removed while the application ran.
func TestHeldStoreBelowFreeLock(t *testing.T) {
	t.Parallel()
	r := newRig(t, closed391)
	h := holder.Hold(t, append(r.locks, r.dbs...)...)
	if err := os.Remove(r.locks[0]); err != nil {
		t.Fatal(err)
	}
	r.look()
	g := r.gate(time.Minute)
	if a := call(t, g, false); a.Outcome != shutdown.Observed {
		t.Errorf("got %+v, want observed", a)
	}
	killed := make(chan struct{})
	go func() { defer close(killed); time.Sleep(200 * time.Millisecond); h.Kill() }()
	if a := call(t, g, true); a.Outcome != shutdown.ClosedUnclean || a.WaitedSeconds < 0.15 {
		t.Errorf("got %+v, want closed-unclean after the stores are free", a)
	}
	<-killed
}

// TestFreeStoreIsNotClosing: one store whose LOCK the picture still shows as held
// does not make a call wait.
func TestFreeStoreIsNotClosing(t *testing.T) {
	t.Parallel()
	r := newRig(t, closed391)
	h := holder.Hold(t, append(r.locks, r.dbs...)...)
	r.look()
	h.Release(r.dbs[0])
	if a := call(t, r.gate(10*time.Second), false); a.Outcome != shutdown.Observed || a.WaitedSeconds > 5 {
		t.Errorf("got %+v, want observed at once", a)
	}
}

// TestLockThatCannotBeAskedForAWhile: a lock whose question fails while a call
// waits is not taken for one that is free.
func TestLockThatCannotBeAskedForAWhile(t *testing.T) {
	t.Parallel()
	r := newRig(t, closed391)
	holder.Hold(t, r.locks...)
	fake := volumetest.New(t, volume.OS())
	g := shutdown.NewGate(shutdown.Config{Volumes: []*volume.Volume{volume.New(fake)}, Timeout: 400 * time.Millisecond,
		Snapshot: func() *probe.Snapshot { return r.picture.Load() }})
	done := make(chan *shutdown.Answer, 1)
	go func() { done <- call(t, g, true) }()
	waiting(g)
	fake.Fail(volumetest.Lock, "...", syscall.EIO).Times(2)
	if a := <-done; a.Outcome != shutdown.Timeout || len(a.Held) != 1 {
		t.Errorf("got %+v, want a timeout with the lock held", a)
	}
}
