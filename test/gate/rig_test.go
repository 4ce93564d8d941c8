//go:build streams

package gate

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"streams-sidecar/test/streams"
)

// patience is how long anything here may take.
const patience = 2 * time.Minute

// guarantee of processing.
type guarantee bool

const (
	atLeastOnce guarantee = false
	exactlyOnce guarantee = true
)

func (g guarantee) String() string {
	if g == exactlyOnce {
		return "ExactlyOnce"
	}
	return "AtLeastOnce"
}

// current is the testing.TB of an application that outlives a subtest: what
// fails, fails the test that runs.
type current struct {
	outer, t *testing.T
}

func (c *current) Helper()                   { c.t.Helper() }
func (c *current) Fatalf(f string, a ...any) { c.t.Helper(); c.t.Fatalf(f, a...) }
func (c *current) Logf(f string, a ...any)   { c.t.Helper(); c.t.Logf(f, a...) }
func (c *current) Cleanup(f func())          { c.outer.Cleanup(f) }
func (c *current) Failed() bool              { return c.outer.Failed() }
func (c *current) TempDir() string           { return c.outer.TempDir() }
func (c *current) Errorf(f string, a ...any) { c.t.Helper(); c.t.Errorf(f, a...) }
func (c *current) errorIf(what string, e error) {
	c.t.Helper()
	if e != nil {
		c.t.Errorf("%s: %v", what, e)
	}
}

// rig is an application with a sidecar beside it, stopped again and again.
type rig struct {
	*current
	version string
	g       guarantee
	app     *streams.App
	agent   *agent
	flags   []string // of the agent
	load    *streams.Load
	perSec  int // of the load; 0 for none, and then what no topic has is compared too

	// front is the address of the application's own shutdown endpoint, which
	// stays the same whatever JVM it runs in; onStop is what it does.
	front   *httptest.Server
	onStop  atomic.Pointer[func(http.ResponseWriter, *http.Request)]
	arrived atomic.Pointer[time.Time] // the last call of it

	close time.Duration // how long the last clean close took
}

// newRig makes an application in a state directory of the test, or below dir.
func newRig(t *testing.T, version string, g guarantee, o streams.Options, dir string) *rig {
	t.Helper()
	r := &rig{current: &current{t, t}, version: version, g: g, close: 300 * time.Millisecond}
	o.ExactlyOnce = bool(g)
	r.app = streams.Start(t).App(r.current, version, o)
	if dir != "" {
		r.app.Dir = dir
	}
	r.front = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		now := time.Now()
		r.arrived.Store(&now)
		(*r.onStop.Load())(w, req)
	}))
	t.Cleanup(r.front.Close)
	r.forward()
	t.Cleanup(func() {
		if r.agent != nil {
			r.agent.kill()
		}
	})
	return r
}

// forward makes the endpoint that of the application.
func (r *rig) forward() {
	f := func(w http.ResponseWriter, req *http.Request) {
		resp, err := http.Post(r.app.StopURL(), "application/x-www-form-urlencoded", nil)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		_ = resp.Body.Close()
		w.WriteHeader(resp.StatusCode)
	}
	r.onStop.Store(&f)
}

// The flags of each trigger.
func (r *rig) http() []string {
	return []string{"--prestop-trigger=http", "--prestop-http-url=" + r.front.URL + "/stop"}
}

func signal() []string { return []string{"--prestop-trigger=signal"} }

func none() []string { return []string{"--prestop-trigger=none"} }

// run is a subtest on the same application.
func (r *rig) run(name string, f func()) {
	outer := r.t
	outer.Run(name, func(t *testing.T) {
		r.t = t
		defer func() {
			if t.Failed() && r.agent != nil {
				t.Logf("the end of the sidecar's log:\n%s", r.agent.tail())
			}
			r.t = outer
		}()
		f()
	})
}

// beside makes the sidecar one with these flags. It is the same as long as they are.
func (r *rig) beside(flags ...string) {
	r.Helper()
	if r.agent != nil && r.agent.dir == r.app.Dir && slices.Equal(r.flags, flags) {
		return
	}
	if r.agent != nil {
		r.agent.stop()
	}
	r.flags = flags
	r.agent = startAgent(r.current, r.app.Dir, flags...)
}

// up opens the application, unless it is, and puts it under load.
func (r *rig) up() {
	r.Helper()
	if !heldAt(r.lock()) {
		r.open()
	}
	r.ready()
}

// open the application. A client that has failed lets go of its locks a moment
// before it says that it is closed.
func (r *rig) open() {
	r.Helper()
	var err error
	r.until("the end of the last client", func() bool {
		err = r.app.TryOpen()
		return err == nil || !strings.Contains(err.Error(), "still open")
	})
	r.errorIf("open", err)
}

// ready waits until both see that the application runs.
func (r *rig) ready() {
	r.Helper()
	r.app.WaitRunning()
	if r.perSec > 0 {
		if r.load == nil {
			r.load = r.app.Load(r.perSec)
		}
		r.app.WaitProcessed(int64(r.perSec) / 4) // so that there is something to lose
	}
	r.until("the gate is armed again", func() bool { return r.agent.phase() == "running" })
}

func (r *rig) endLoad() {
	r.Helper()
	if r.load != nil {
		r.load.Stop()
		r.load = nil
	}
}

func (r *rig) root() string { return filepath.Join(r.app.Dir, r.app.ID) }

func (r *rig) lock() string { return filepath.Join(r.root(), ".lock") }

func (r *rig) until(what string, is func() bool) {
	r.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// stop is one way to stop an application that runs.
type stop struct {
	// hook: the preStop hook is called, with this query, and act runs once the
	// call is on its way. Without it act alone is what happens.
	hook  bool
	query string
	act   func(s *stop)
	// dirty: the application ends without a whole and clean close. Only then
	// may a stop be unclean of which nothing has to be restored.
	dirty bool
	exits bool // the JVM ends
	// losing: the next start should have something to restore, see results.loss.
	losing bool
	// clean: the next start must not restore anything, or there would be none.
	clean bool
	// answers is what the hook may say before the end is known.
	answers []string
	// before the application is opened again, if anything is to be changed for that.
	before func()
	// asIs: the application is in no state to wait for.
	asIs bool
	// whole: every task counts, and not only those that are open at the stop.
	whole bool
	// truth tells whether the next start, which it makes, finds everything;
	// r.restart if nil.
	truth func(open map[string]bool, content map[string]streams.Content) (restored int64, wrong string)
	// unwritten: it may be that last-shutdown.json cannot be written.
	unwritten bool

	called time.Time
	watch  *watch
	answer func() *answer // waits for it; gives nil without a hook
}

// released waits for the moment in which .lock was free.
func (r *rig) released(s *stop) time.Time {
	r.Helper()
	select {
	case <-s.watch.done:
	case <-time.After(patience):
		r.Fatalf("%s is held after %v", r.lock(), patience)
	}
	return s.watch.at
}

// trial makes a stop, judges what the sidecar says of it, and leaves the
// application running.
func (r *rig) trial(s stop) {
	r.Helper()
	if !s.asIs {
		r.up()
	}
	name := strings.TrimPrefix(r.t.Name(), "Test")
	content := r.contents()
	open := openTasks(r.root())
	if s.whole {
		open = nil
	}
	before := inventory(r.app.Dir)
	w, err := watchLock(r.lock())
	if err != nil {
		r.Fatalf("%v", err)
	}
	s.watch, s.called = w, time.Now()
	s.answer = func() *answer { return nil }
	if s.hook {
		answers := make(chan *answer, 1)
		go func(a *agent) { answers <- a.prestop(true, s.query) }(r.agent)
		s.answer = sync.OnceValue(func() *answer { return <-answers })
	}
	if s.act != nil {
		s.act(&s)
	}
	released := r.released(&s)
	ans := s.answer()
	if s.exits {
		r.app.WaitExit()
	}
	rec := r.record(&s, ans)
	ev := &evidence{name: name, before: before, answer: ans, record: rec}
	ev.keep(r)
	ev.checkWords(r, &s)
	if s.before != nil {
		s.before()
	}
	if s.truth == nil {
		s.truth = r.restart
	}
	restored, wrong := s.truth(open, content)
	ev.judge(r, &s, restored, wrong)
	if ans != nil && ans.err == nil && strings.HasPrefix(ans.Outcome, "closed-") {
		tally.late(ans.at.Sub(released))
		if ans.Outcome == "closed-clean" {
			r.close = released.Sub(s.called)
		}
		if at := r.arrived.Load(); at != nil && at.After(s.called) {
			tally.collect(&tally.detour, at.Sub(s.called)+ans.at.Sub(released))
		}
		r.Logf("answered %v after the last release, %v after the call", ms(ans.at.Sub(released)), ms(ans.at.Sub(s.called)))
	}
}

func ms(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

// record waits for what the sidecar writes down of a stop; nil if it could not.
func (r *rig) record(s *stop, ans *answer) *shutdown {
	r.Helper()
	var rec *shutdown
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if rec = r.agent.last(r.app.ID); rec != nil && rec.Ended.After(s.called) && strings.HasPrefix(rec.Outcome, "closed-") {
			return rec
		}
		if s.unwritten && ans != nil && ans.JournalError != "" {
			return nil
		}
		if time.Now().After(deadline) {
			r.Fatalf("nothing about this stop in last-shutdown.json: %+v\n%s", rec, r.agent.tail())
		}
	}
}

// contents of the stores, where no load changes them.
func (r *rig) contents() map[string]streams.Content {
	r.Helper()
	all := map[string]streams.Content{}
	if r.perSec == 0 {
		for name := range r.app.Options.Stores {
			all[name] = r.app.Content(name)
		}
	}
	return all
}

// restart opens the application again and says how many records Streams
// restores in the tasks that were open, or in all if that is nil, and which
// store does not hold what it must. A global store is read again at each start
// by most versions, and is judged by its content alone.
func (r *rig) restart(open map[string]bool, content map[string]streams.Content) (restored int64, wrong string) {
	r.Helper()
	r.open()
	r.app.WaitRunning()
	restored = r.restored(open)
	r.endLoad()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		wrong = r.wrong(content)
		if wrong == "" || r.perSec == 0 || time.Now().After(deadline) {
			break
		}
	}
	r.ready()
	return restored, wrong
}

func (r *rig) restored(open map[string]bool) (sum int64) {
	r.Helper()
	for _, x := range r.app.Status().Restores {
		if r.app.Options.Stores[x.Store] == streams.Global {
			continue
		}
		if open == nil || isOpen(open, x.Partition) {
			sum += x.Records
		}
	}
	return sum
}

// isOpen says that a task of a partition is among the open ones.
func isOpen(open map[string]bool, partition int32) bool {
	for task := range open {
		if strings.HasSuffix(task, fmt.Sprintf("_%d", partition)) {
			return true
		}
	}
	return false
}

// wrong names a store that does not hold what it must: what it held before,
// or with a load what the input topic holds, as soon as that is processed.
func (r *rig) wrong(content map[string]streams.Content) string {
	r.Helper()
	truth := streams.Content{}
	if r.perSec > 0 {
		truth = r.app.Truth()
	}
	for _, name := range slices.Sorted(maps.Keys(r.app.Options.Stores)) {
		want := truth
		if r.perSec == 0 {
			want = content[name]
		}
		got, err := r.app.TryContent(name)
		if err != nil {
			return err.Error()
		}
		if got != want {
			return fmt.Sprintf("%s holds %+v, want %+v", name, got, want)
		}
	}
	return ""
}

// killed is SIGKILL of the application after a while.
func (r *rig) killed(after time.Duration) func(*stop) {
	return func(s *stop) {
		time.Sleep(after)
		s.dirty = s.watch.held.Load()
		r.app.Signal(syscall.SIGKILL)
	}
}
