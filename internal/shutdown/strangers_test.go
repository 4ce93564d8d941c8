package shutdown_test

import (
	"context"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"streams-sidecar/internal/event"
	"streams-sidecar/internal/shutdown"
	"streams-sidecar/internal/volume/volumetest"
	"streams-sidecar/test/fixture"
)

// TestStrangerTakesNoTime: a call without the token that waits already takes
// nothing from the budget and the patience of the kubelet's.
func TestStrangerTakesNoTime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ budget, stall time.Duration }{
		"budget": {600 * time.Millisecond, time.Minute},
		"stall":  {time.Minute, 600 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEndpoint(t, nil)
			r := newRig(t, base("4.4.0"))
			app, g := r.opened(func(r *rig) *shutdown.Gate {
				return r.gate(c.budget, asks(t, e.URL), token(t), func(cfg *shutdown.Config) { cfg.Stall = c.stall })
			})
			stranger := r.drain(g, shutdown.Call{Wait: true})
			time.Sleep(400 * time.Millisecond)
			hook := make(chan *shutdown.Answer, 1)
			go func() {
				a, err := g.Prestop(context.Background(), authorised)
				if err != nil {
					t.Error(err)
				}
				hook <- a
			}()
			e.wait(t)
			time.Sleep(350 * time.Millisecond) // beyond what was left of the stranger's
			app.close()
			if a := answer(t, hook); a.Outcome != shutdown.ClosedClean || !a.Triggered {
				t.Errorf("the kubelet's call got %+v, want closed-clean", a)
			}
			answer(t, stranger)
		})
	}
}

// TestStrangerIsNotRemembered: a waiting call without the token leaves the end
// before as it is, and is no preStop call of the end that follows.
func TestStrangerIsNotRemembered(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, nil)
	r := newRig(t, base("4.4.0"))
	c, g := r.opened(func(r *rig) *shutdown.Gate { return r.gate(200*time.Millisecond, asks(t, e.URL), token(t), r.journals) })
	c.close()
	g.Follow()
	before := g.State().Last[0]
	if before.Outcome != shutdown.ClosedClean {
		t.Fatalf("the first end: %+v", before.Shutdown)
	}
	c = r.start()
	g.Follow()
	if a := answer(t, r.drain(g, shutdown.Call{Wait: true})); a.Outcome != shutdown.Timeout {
		t.Fatalf("the stranger got %+v", a)
	}
	if s := g.State().Last[0]; s.Outcome != before.Outcome || !s.Ended.Equal(*before.Ended) {
		t.Errorf("after the stranger's call the last end is %+v", s.Shutdown)
	}
	c.Kill()
	g.Follow()
	if s := g.State().Last[0]; s.Hook != shutdown.NotCalled || s.Ended.Equal(*before.Ended) {
		t.Errorf("the end: %+v, want that nobody called", s.Shutdown)
	}
	if e.asked.Load() != 0 {
		t.Error("the stranger has had the application asked to close")
	}
}

// TestLockThatCannotBeAskedAtTheCall: whoever turns out to run after all is
// asked to close, and waited for; and nothing is said to be clean that was not
// judged.
func TestLockThatCannotBeAskedAtTheCall(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, nil)
	r := newRig(t, base("4.4.0"))
	c, g := r.opened(func(r *rig) *shutdown.Gate { return r.gate(time.Minute, asks(t, e.URL), token(t)) })
	rule := r.fake.Fail(volumetest.Lock, filepath.Join(c.path(), ".lock"), syscall.EACCES)
	hook := r.drain(g, authorised)
	time.Sleep(300 * time.Millisecond)
	if e.asked.Load() != 0 {
		t.Error("somebody was asked although nobody is known to run")
	}
	rule.Times(0)
	e.wait(t)
	c.close()
	if a := answer(t, hook); a.Outcome != shutdown.ClosedClean || !a.Triggered || a.Applications != 1 || a.Stores == 0 {
		t.Errorf("got %+v, want a close that was caused and judged", a)
	}
}

// TestManyEndAtOnce: when several applications end at the same time, each end is
// judged, once.
func TestManyEndAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, fixture.Name{Version: "3.9.1", Case: "closed-clean"}, fixture.Name{Version: "4.4.0", Case: "closed-clean"})
	c, g := r.opened(func(r *rig) *shutdown.Gate { return r.gate(time.Minute) })
	d := r.drain(g, shutdown.Call{Wait: true})
	c.Kill()
	answer(t, d)
	if n := len(of[event.ShutdownJudged](&r.heard)); n != 2 {
		t.Errorf("%d ends were judged, want 2", n)
	}
}
