package shutdown_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"streams-sidecar/internal/event"
	"streams-sidecar/internal/shutdown"
	"streams-sidecar/internal/shutdown/trigger"
	"streams-sidecar/test/holder"
)

// endpoint is an application's own shutdown endpoint.
type endpoint struct {
	*httptest.Server
	asked  atomic.Int32
	hurry  chan struct{} // gets a value for each request
	answer func(n int32, w http.ResponseWriter, r *http.Request)
}

// newEndpoint gives one that takes every request, unless answer says otherwise.
func newEndpoint(t *testing.T, answer func(n int32, w http.ResponseWriter, r *http.Request)) *endpoint {
	e := &endpoint{hurry: make(chan struct{}, 5000), answer: answer}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := e.asked.Add(1)
		e.hurry <- struct{}{}
		if e.answer != nil {
			e.answer(n, w, r)
		}
	}))
	t.Cleanup(e.Close)
	return e
}

func (e *endpoint) wait(t *testing.T) {
	t.Helper()
	select {
	case <-e.hurry:
	case <-time.After(patience):
		t.Fatal("the endpoint was not asked")
	}
}

func asks(t *testing.T, url string) func(*shutdown.Config) {
	t.Helper()
	h, err := trigger.NewHTTP(trigger.HTTPConfig{URL: url})
	must(t, err)
	return func(cfg *shutdown.Config) { cfg.HTTP = h }
}

const secret = "the-right-token"

// token makes a gate demand one.
func token(t *testing.T) func(*shutdown.Config) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(path, []byte(secret+"\n"), 0o600))
	tok, err := trigger.NewToken(path)
	must(t, err)
	return func(cfg *shutdown.Config) { cfg.Token = tok }
}

func causes(name string) func(*shutdown.Config) {
	return func(cfg *shutdown.Config) { cfg.Trigger = name }
}

var authorised = shutdown.Call{Token: secret}

// opened is a rig with an application that runs, seen from its start on, and a
// gate over it.
func (r *rig) opened(g func(*rig) *shutdown.Gate) (*client, *shutdown.Gate) {
	r.t.Helper()
	gate := g(r)
	gate.Follow()
	c := r.start()
	gate.Follow()
	c.reopen()
	gate.Follow()
	return c, gate
}

func TestTriggerHTTP(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, nil)
	r := newRig(t, base("3.9.1"))
	c, g := r.opened(func(r *rig) *shutdown.Gate { return r.gate(time.Minute, asks(t, e.URL+"/actuator/shutdown"), token(t)) })
	d := r.drain(g, authorised)
	e.wait(t)
	if s := g.State(); s.Trigger != shutdown.TriggerHTTP {
		t.Errorf("while it waits: trigger %q", s.Trigger)
	}
	c.close()
	if a := answer(t, d); a.Outcome != shutdown.ClosedClean || a.Trigger != shutdown.TriggerHTTP || !a.Triggered || a.Attempts != 1 || a.TriggerError != "" || a.StoresClosed != 2 {
		t.Errorf("got %+v, want closed-clean by http at the first attempt", a)
	}
	if n := e.asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

// TestTriggerIsTriedAgain: an endpoint that is not ready yet is asked again, also
// where stores were let go of shortly before the call, as by a rebalance.
func TestTriggerIsTriedAgain(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, func(n int32, w http.ResponseWriter, _ *http.Request) {
		if n == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	r := newRig(t, base("4.4.0"))
	c, g := r.opened(func(r *rig) *shutdown.Gate { return r.gate(time.Minute, asks(t, e.URL), token(t)) })
	c.shut(c.x00())
	c.look()
	g.Follow()
	d := r.drain(g, authorised)
	e.wait(t)
	e.wait(t)
	c.shut(c.kv())
	c.unlock()
	if a := answer(t, d); a.Outcome != shutdown.ClosedClean || !a.Triggered || a.Attempts != 2 || a.TriggerError != "" {
		t.Errorf("got %+v, want closed-clean at the second attempt", a)
	}
	if said := of[event.TriggerTrouble](&r.heard); len(said) != 1 || !strings.Contains(said[0].Text, "503") {
		t.Errorf("told of %+v, want of the 503", said)
	}
}

// TestTriggerSignal: SIGTERM to the holder of .lock, whom the kernel shows.
func TestTriggerSignal(t *testing.T) {
	t.Parallel()
	for _, name := range []string{shutdown.TriggerSignal, shutdown.TriggerAuto} {
		r := newRig(t, base("4.4.0"))
		_, g := r.opened(func(r *rig) *shutdown.Gate { return r.gate(time.Minute, causes(name), token(t)) })
		a := answer(t, r.drain(g, authorised))
		if a.Outcome != shutdown.ClosedClean || a.Trigger != shutdown.TriggerSignal || !a.Triggered || a.Attempts != 1 {
			t.Errorf("%s: %+v, want closed-clean by a signal", name, a)
		}
	}
}

// TestTriggerAutoNeedsAHolder: one that cannot be seen cannot be signalled, so
// that the gate observes.
func TestTriggerAutoNeedsAHolder(t *testing.T) {
	t.Parallel()
	r := newRig(t, base("4.4.0"))
	f, err := os.OpenFile(r.locks[0], os.O_RDWR, 0)
	must(t, err)
	defer func() { _ = f.Close() }()
	// Such a lock shows no process, like one of another pid namespace.
	must(t, unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}))
	g := r.gate(time.Minute, token(t))
	a, err := g.Prestop(context.Background(), authorised)
	if err != nil || a.Outcome != shutdown.Observed || a.Trigger != shutdown.TriggerNone || a.Triggered {
		t.Errorf("got %+v %v, want observed", a, err)
	}
	// Where the signal is asked for, the answer says why it cannot be sent.
	g = r.gate(200*time.Millisecond, token(t), causes(shutdown.TriggerSignal))
	a, err = g.Prestop(context.Background(), authorised)
	if err != nil || a.Outcome != shutdown.Timeout || a.Triggered || !strings.Contains(a.TriggerError, "shareProcessNamespace") {
		t.Errorf("got %+v %v, want a timeout that says why", a, err)
	}
}

// TestTriggerNone: nothing is caused, whoever calls.
func TestTriggerNone(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, nil)
	r := newRig(t, base("4.4.0"))
	c, g := r.opened(func(r *rig) *shutdown.Gate {
		return r.gate(time.Minute, asks(t, e.URL), token(t), causes(shutdown.TriggerNone))
	})
	a, err := g.Prestop(context.Background(), authorised)
	if err != nil || a.Outcome != shutdown.Observed || a.Explanation != "" || a.Stores != 2 {
		t.Errorf("got %+v %v, want observed", a, err)
	}
	d := r.drain(g, shutdown.Call{Wait: true, Token: secret})
	c.close()
	if a := answer(t, d); a.Outcome != shutdown.ClosedClean || a.Trigger != shutdown.TriggerNone || a.Triggered || e.asked.Load() != 0 {
		t.Errorf("got %+v after %d requests, want closed-clean without a trigger", a, e.asked.Load())
	}
}

// TestWhoMayTrigger: only the right token, or a pod that is being deleted.
func TestWhoMayTrigger(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, nil)
	r := newRig(t, base("4.4.0"))
	r.start()
	withToken, withURL := token(t), asks(t, e.URL)
	for _, c := range []struct {
		name string
		call shutdown.Call
		set  []func(*shutdown.Config)
	}{
		{"no token", shutdown.Call{}, []func(*shutdown.Config){withToken}},
		{"a wrong token", shutdown.Call{Token: "the-wrong-token"}, []func(*shutdown.Config){withToken}},
		{"a part of it", shutdown.Call{Token: secret[:len(secret)-1]}, []func(*shutdown.Config){withToken}},
		{"more than it", shutdown.Call{Token: secret + "\n"}, []func(*shutdown.Config){withToken}},
		{"none is configured", shutdown.Call{Token: secret}, nil},
		{"none is configured nor given", shutdown.Call{}, nil},
		{"the pod is not being deleted", shutdown.Call{Token: "x"}, []func(*shutdown.Config){withToken, func(cfg *shutdown.Config) { cfg.Pod = pod{} }}},
	} {
		g := r.gate(time.Minute, append(c.set, withURL)...)
		a, err := g.Prestop(context.Background(), c.call)
		if err != nil || a.Outcome != shutdown.Observed || a.Triggered || !strings.Contains(a.Explanation, "token") {
			t.Errorf("%s: %+v %v, want observed", c.name, a, err)
		}
		// Nor when it waits.
		g = r.gate(100*time.Millisecond, append(c.set, withURL)...)
		c.call.Wait = true
		a, err = g.Prestop(context.Background(), c.call)
		if err != nil || a.Outcome != shutdown.Timeout || a.Triggered || a.Attempts != 0 || !strings.Contains(a.Explanation, "token") {
			t.Errorf("%s, waiting: %+v %v, want a timeout", c.name, a, err)
		}
	}
	if n := e.asked.Load(); n != 0 {
		t.Errorf("the application was asked %d times", n)
	}
}

// pod is what the API server says.
type pod struct {
	grace    time.Duration
	stopping bool
}

func (p pod) Stopping(context.Context) (time.Duration, bool) { return p.grace, p.stopping }

// TestPodThatIsDeleted: it may trigger without a token, and its grace period
// makes the budget.
func TestPodThatIsDeleted(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, nil)
	r := newRig(t, base("4.4.0"))
	c, g := r.opened(func(r *rig) *shutdown.Gate {
		return r.gate(0, asks(t, e.URL), func(cfg *shutdown.Config) { cfg.Pod, cfg.Grace = pod{time.Hour, true}, time.Minute })
	})
	d := r.drain(g, shutdown.Call{})
	e.wait(t)
	if b := g.State().Budget; b != time.Hour-5*time.Second {
		t.Errorf("budget %v, want the pod's", b)
	}
	c.close()
	if a := answer(t, d); a.Outcome != shutdown.ClosedClean || !a.Triggered {
		t.Errorf("got %+v", a)
	}
	if b := g.State().Budget; b != 55*time.Second {
		t.Errorf("budget without a call: %v, want that of the flags", b)
	}
	// One whose grace period is not known has that of the flags, and one that is
	// short is kept to.
	r.start()
	for _, x := range []struct{ says, want time.Duration }{{0, 55 * time.Second}, {2 * time.Second, time.Second}} {
		g = r.gate(0, asks(t, e.URL), func(cfg *shutdown.Config) { cfg.Pod, cfg.Grace = pod{x.says, true}, time.Minute })
		d = r.drain(g, shutdown.Call{})
		if b := g.State().Budget; b != x.want {
			t.Errorf("grace period %v: budget %v, want %v", x.says, b, x.want)
		}
		if x.want > time.Second {
			g.End()
		}
		if a := answer(t, d); a.Outcome != shutdown.Timeout || a.WaitedSeconds > x.want.Seconds()+2 {
			t.Errorf("grace period %v: %+v", x.says, a)
		}
	}
}

// TestUpgrade: a call that may trigger makes the drain trigger that it joins,
// once.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, nil)
	r := newRig(t, base("4.4.0"))
	c, g := r.opened(func(r *rig) *shutdown.Gate { return r.gate(time.Minute, asks(t, e.URL), token(t)) })
	first := r.drain(g, shutdown.Call{Wait: true})
	time.Sleep(50 * time.Millisecond)
	if e.asked.Load() != 0 {
		t.Fatal("asked without a token")
	}
	answers := make(chan *shutdown.Answer, 1000)
	var calls sync.WaitGroup
	for range cap(answers) {
		calls.Go(func() {
			a, err := g.Prestop(context.Background(), authorised)
			if err != nil {
				t.Error(err)
			}
			answers <- a
		})
	}
	e.wait(t)
	time.Sleep(100 * time.Millisecond)
	c.close()
	a := answer(t, first)
	calls.Wait()
	close(answers)
	for b := range answers {
		if b != a {
			t.Fatalf("a joined call got %+v, the first one %+v", b, a)
		}
	}
	if a.Outcome != shutdown.ClosedClean || !a.Triggered || a.Attempts != 1 || e.asked.Load() != 1 || a.Explanation != "" {
		t.Errorf("%+v after %d requests, want one", a, e.asked.Load())
	}
	if n := g.State().Requests[shutdown.ClosedClean]; n != 1001 {
		t.Errorf("%d answers were counted", n)
	}
	if n := len(of[event.PrestopBegan](&r.heard)); n != 1 {
		t.Errorf("%d drains", n)
	}
}

// TestStrayGetBesideTheHook: calls without the token, before, beside and after
// the real one, change neither what it does nor what is remembered of it.
func TestStrayGetBesideTheHook(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, nil)
	r := newRig(t, base("3.9.1"))
	c, g := r.opened(func(r *rig) *shutdown.Gate { return r.gate(500*time.Millisecond, asks(t, e.URL), token(t)) })
	stray := func() *shutdown.Answer { return call(t, g, false) }
	for range 3 {
		if a := stray(); a.Outcome != shutdown.Observed {
			t.Fatalf("a stray call got %+v", a)
		}
	}
	// One that is still looking when the hook's comes.
	looking := make(chan *shutdown.Answer, 1)
	go func() {
		a, err := g.Prestop(context.Background(), shutdown.Call{})
		if err != nil {
			t.Error(err)
		}
		looking <- a
	}()
	time.Sleep(10 * time.Millisecond)
	hook := r.drain(g, authorised)
	e.wait(t)
	if a := answer(t, hook); a.Outcome != shutdown.Timeout || !a.Triggered {
		t.Fatalf("the hook got %+v, want a timeout", a)
	}
	answer(t, looking)
	began := g.State().Last[0].Began
	c.commit()
	if a := stray(); a.Outcome != shutdown.Observed {
		t.Fatalf("after it, a stray call got %+v", a)
	}
	c.shut()
	c.unlock()
	g.Follow()
	last := g.State().Last[0]
	if last.Outcome != shutdown.ClosedClean || last.HookOutcome != shutdown.Timeout || !last.Triggered || last.Began == nil || !last.Began.Equal(*began) {
		t.Errorf("remembered %+v, want the hook's call of %v", last.Shutdown, began)
	}
}

// TestStrayGetIsNoHook: where the hook would have a token, a call without it is
// not the kubelet's.
func TestStrayGetIsNoHook(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, nil)
	r := newRig(t, base("4.4.0"))
	c, g := r.opened(func(r *rig) *shutdown.Gate { return r.gate(time.Minute, asks(t, e.URL), token(t)) })
	call(t, g, false)
	c.close()
	g.Follow()
	if s := g.State().Last[0]; s.Hook != shutdown.NotCalled || s.Began != nil {
		t.Errorf("got %+v, want one without a call", s.Shutdown)
	}
}

// TestTriggerTrouble: whatever the endpoint does, the call is answered within
// its budget and says what happened.
func TestTriggerTrouble(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	refused, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, refused.Close())
	status := func(code int) string {
		return newEndpoint(t, func(_ int32, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "https://login.example/")
			w.WriteHeader(code)
		}).URL
	}
	slow := newEndpoint(t, func(_ int32, w http.ResponseWriter, r *http.Request) { // it closes and then answers
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	r := newRig(t, base("4.4.0"))
	r.start()
	withToken := token(t)
	for _, c := range []struct {
		name, url, says string
		attempts        int // at least
	}{
		{"hangs before the answer", slow.URL, "no answer", 1},
		{"hangs and is never accepted", "http://" + silent.Addr().String(), "no answer", 1},
		{"refuses", "http://" + refused.Addr().String(), "refused", 2},
		{"redirects", status(http.StatusFound), "302 Found, a redirect to another host", 2},
		{"fails", status(http.StatusInternalServerError), "500", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := r.gate(600*time.Millisecond, withToken, asks(t, c.url))
			a, err := g.Prestop(context.Background(), authorised)
			if err != nil || a.Outcome != shutdown.Timeout || a.Triggered || a.Attempts < c.attempts || !strings.Contains(a.TriggerError, c.says) {
				t.Errorf("got %+v %v, want a timeout with %q", a, err, c.says)
			}
			if a.WaitedSeconds < 0.6 || a.WaitedSeconds > 2.6 {
				t.Errorf("it took %v s of a budget of 0.6", a.WaitedSeconds)
			}
			if s := g.State().Last[0]; s.Outcome != shutdown.Timeout || s.TriggerError != a.TriggerError {
				t.Errorf("remembered: %+v", s.Shutdown)
			}
		})
	}
}

// TestHolderThatIgnoresSIGTERM: it is told once, however long it takes, and the
// call ends by its budget. Not parallel, since the environment of the holder is the test's.
func TestHolderThatIgnoresSIGTERM(t *testing.T) {
	t.Setenv(deafEnv, "1")
	r := newRig(t, base("3.9.1"))
	c, g := r.opened(func(r *rig) *shutdown.Gate {
		return r.gate(1200*time.Millisecond, causes(shutdown.TriggerSignal), token(t))
	})
	a, err := g.Prestop(context.Background(), authorised)
	if err != nil || a.Outcome != shutdown.Timeout || !a.Triggered || a.Attempts != 1 || len(a.Held) != 1 || len(a.Missing) != 2 || a.Missing[0].Reason != lockHeld {
		t.Errorf("got %+v %v, want a timeout with everything held", a, err)
	}
	c.Kill()
	g.Follow()
	s := g.State().Last[0]
	if s.Outcome != shutdown.ClosedUnclean || s.HookOutcome != shutdown.Timeout || !s.Triggered || !strings.Contains(s.Explanation, "taken the trigger") {
		t.Errorf("remembered %+v", s.Shutdown)
	}
}

// TestTwoApplicationsOfOneProcess: it gets one signal.
func TestTwoApplicationsOfOneProcess(t *testing.T) {
	t.Parallel()
	r := newRig(t, base("4.4.0"), base("4.3.1"))
	holder.Hold(t, r.locks...)
	g := r.gate(time.Minute, causes(shutdown.TriggerSignal), token(t))
	a := answer(t, r.drain(g, authorised))
	if !a.Triggered || a.Attempts != 1 || a.Applications != 2 || a.TriggerError != "" {
		t.Errorf("got %+v, want both ended by one signal", a)
	}
}
