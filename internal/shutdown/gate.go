// Package shutdown is the preStop gate: the kubelet calls it before it sends
// SIGTERM to the application, and waits for the answer.
//
// Kafka Streams flushes only when it closes, so waiting alone waits for
// nothing. The gate causes the close (where the caller may ask for that), waits
// until the last lock is free, proves from the files that the close was clean,
// writes that down, and then answers. Beside that it follows every application
// all the time, so that an end without any call is recognised and judged too.
//
// It asks locks and reads files. What it writes goes through journal to the
// sidecar's own folder.
package shutdown

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"streams-sidecar/internal/event"
	"streams-sidecar/internal/journal"
	"streams-sidecar/internal/probe"
	"streams-sidecar/internal/shutdown/trigger"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
)

// Outcome of a preStop call, and of an end.
type Outcome string

// The outcomes. A call may be answered with each of them; an end is clean or
// unclean.
const (
	ClosedClean   Outcome = "closed-clean"   // proven: nothing that was applied has to be restored again
	ClosedUnclean Outcome = "closed-unclean" // over, and something of the proof is missing
	Timeout       Outcome = "timeout"        // the budget is over and a lock is still held
	Stalled       Outcome = "stalled"        // nothing has moved for a while, a lock is still held
	Observed      Outcome = "observed"       // an application runs; nothing was caused nor waited for
	NotRunning    Outcome = "not-running"    // no application runs
)

// Outcomes lists them all.
func Outcomes() []Outcome {
	return []Outcome{ClosedClean, ClosedUnclean, Timeout, Stalled, Observed, NotRunning}
}

// The triggers: what makes the application close.
const (
	TriggerAuto   = "auto"   // http if there is a URL, else signal if the holder is visible, else none
	TriggerHTTP   = "http"   // its own shutdown endpoint
	TriggerSignal = "signal" // SIGTERM to the holder of its .lock
	TriggerNone   = "none"   // nothing: the gate observes
)

// The parts of a pod's grace period.
const (
	DefaultGrace = 20 * time.Second // where nothing says how long it is
	Reserve      = 5 * time.Second  // left for the application after the hook
)

// Budget is how long a call may wait: the timeout if it is set, else the grace
// period (or DefaultGrace) less Reserve. The hook's time is taken out of the
// grace period, so a hook that uses all of it leaves SIGKILL for the rest.
func Budget(timeout, grace time.Duration) time.Duration {
	if timeout > 0 {
		return timeout
	}
	if grace <= 0 {
		grace = DefaultGrace
	}
	return max(grace-Reserve, time.Second)
}

// DefaultStall is how long nothing may move while a call waits.
const DefaultStall = 30 * time.Second

// poll is how often a .lock is asked while waiting: its release raises no file
// event, and F_GETLK costs about 10 µs.
const poll = 10 * time.Millisecond

// PodState is what the API server says of this pod.
type PodState interface {
	// Stopping says that the pod is being deleted, and within which grace
	// period, 0 if that is not known. It must return soon, whatever the state
	// of the API server.
	Stopping(ctx context.Context) (grace time.Duration, stopping bool)
}

// Config of a Gate.
type Config struct {
	Volumes  []*volume.Volume // one for each state directory
	Snapshot func() *probe.Snapshot
	Events   event.Sink
	// Journals are the sidecar's folders, one for each state directory; none
	// if nothing is to be remembered.
	Journals []*journal.Folder

	// Timeout and Grace make the budget of a call; see [Budget].
	Timeout, Grace time.Duration
	Stall          time.Duration // DefaultStall if 0

	Trigger string        // TriggerAuto if ""
	HTTP    *trigger.HTTP // nil if there is no URL
	// Token is what a call must carry to cause a close; nil if none can.
	Token *trigger.Token
	Pod   PodState // nil if the API server is not asked
}

// diskPatience is how long the disk may take to make something durable: under
// the writes of a close an fsync was seen to take more than two seconds.
const diskPatience = 30 * time.Second

// Gate answers preStop calls. It is safe for concurrent use; calls that come
// while one waits join it and get its answer.
type Gate struct {
	cfg Config

	following, saving, syncing sync.Mutex      // held during the work of one goroutine
	scanning                   sync.Mutex      // guards scans
	scans                      map[int]scanned // by state directory
	// durable are Folders of their own for what waits for the disk: nothing
	// else may wait behind it.
	durable []*journal.Folder
	loading sync.Mutex
	savedAt time.Time // guarded by saving

	mu           sync.Mutex
	drain        *drain       // the running one, nil if none
	loaded       map[int]bool // state directories of which is known what earlier processes wrote
	runs         map[key]*run
	saved        map[key]savedRun           // of earlier processes, not met again yet
	last         map[key]*Shutdown          // how each application ended last
	concluded    map[key]concluded          // those that have ended in this process and not begun again
	rest         map[key]*store.Application // those that this process has seen at rest, as they were then
	listed       map[int]bool               // state directories that this process has read: what is new in them was not there before
	preallocates map[int]bool               // by state directory
	changed      bool                       // runs have something new to write down
	unsynced     map[document]bool          // written, and not durable yet
	unwritten    map[int]time.Time          // those that could not be written, and when
	troubles     map[document]string
	waited       time.Duration // of the last call answered
	counts       map[Outcome]uint64
	answers      uint64
	appz         appz

	endOnce sync.Once
	ended   chan struct{} // closed by End
}

// concluded is an end that this process has seen.
type concluded struct {
	end *Shutdown
	at  time.Time
}

func (g *Gate) isLoaded(dir int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.loaded[dir]
}

// Call is what a preStop call asks for.
type Call struct {
	Wait  bool   // wait for the locks in any case
	Token string // what it presents, "" if nothing
}

// drain is one close that calls wait for.
type drain struct {
	begun  time.Time
	budget time.Duration
	wait   atomic.Bool // one of its callers waits for the locks in any case
	may    atomic.Bool // one of its callers may cause the close
	done   chan struct{}
	ans    *Answer // set before done is closed

	progress atomic.Pointer[Progress] // nil as long as nothing is waited for
	trigger  atomic.Pointer[string]
}

// NewGate gives a gate.
func NewGate(cfg Config) *Gate {
	if cfg.Events == nil {
		cfg.Events = event.Discard
	}
	if cfg.Trigger == "" {
		cfg.Trigger = TriggerAuto
	}
	if cfg.Stall <= 0 {
		cfg.Stall = DefaultStall
	}
	var durable []*journal.Folder
	for _, j := range cfg.Journals {
		durable = append(durable, j.Again(journal.Deadline(diskPatience)))
	}
	return &Gate{cfg: cfg, durable: durable, counts: map[Outcome]uint64{}, ended: make(chan struct{}),
		runs: map[key]*run{}, saved: map[key]savedRun{}, last: map[key]*Shutdown{},
		concluded: map[key]concluded{}, rest: map[key]*store.Application{}, listed: map[int]bool{}, preallocates: map[int]bool{}, loaded: map[int]bool{}, scans: map[int]scanned{}, unsynced: map[document]bool{},
		unwritten: map[int]time.Time{}, troubles: map[document]string{}}
}

// Prestop handles one call. It returns when the outcome is known, at the latest
// after the budget, or with the context's error once the caller has hung up;
// the drain then goes on.
func (g *Gate) Prestop(ctx context.Context, c Call) (*Answer, error) {
	budget, may := g.allow(ctx, c)
	d := g.join(c.Wait, may, budget)
	select {
	case <-d.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	g.mu.Lock()
	g.counts[d.ans.Outcome]++
	g.waited = time.Since(d.begun)
	g.answers++
	g.mu.Unlock()
	return d.ans, nil
}

// allow says how long a call may wait and whether it may cause a close: it
// carries the token, or the pod is being deleted. Anybody can reach the port.
func (g *Gate) allow(ctx context.Context, c Call) (budget time.Duration, may bool) {
	grace := g.cfg.Grace
	if g.cfg.Pod != nil {
		if of, stopping := g.cfg.Pod.Stopping(ctx); stopping {
			may = true
			if of > 0 {
				grace = of
			}
		}
	}
	// A token that does not match costs a look at the file, none costs nothing.
	if g.cfg.Token != nil && c.Token != "" && g.cfg.Token.Matches(c.Token) {
		may = true
	}
	return Budget(g.cfg.Timeout, grace), may
}

// join gives the drain that a call belongs to: the running one, or a new one.
func (g *Gate) join(wait, may bool, budget time.Duration) *drain {
	g.mu.Lock()
	defer g.mu.Unlock()
	if d := g.drain; d != nil {
		if wait {
			d.wait.Store(true)
		}
		if may {
			d.may.Store(true)
		}
		return d
	}
	d := &drain{begun: time.Now(), budget: budget, done: make(chan struct{})}
	d.wait.Store(wait)
	d.may.Store(may)
	g.drain = d
	go func() {
		ans := g.run(d)
		g.mu.Lock()
		d.ans = ans
		if g.drain == d {
			g.drain = nil
		}
		g.mu.Unlock()
		close(d.done)
	}()
	return d
}

// run decides what a drain is, and does it.
func (g *Gate) run(d *drain) *Answer {
	now := g.first(d.begun.Add(d.budget))
	if now.nothing() {
		return g.nothingRuns(d)
	}
	name := g.choose(&now)
	d.trigger.Store(&name)
	if g.onlyObserves(d, name, &now) {
		ans := &Answer{Outcome: Observed, Trigger: name, Applications: len(now.held), Explanation: now.unknown}
		if name != TriggerNone && !d.may.Load() {
			ans.Explanation = join(ans.Explanation, explainObserved)
		}
		ans.Stores = g.observe(now.held, d, name)
		return g.finish(d, ans, now.held)
	}
	w := &wait{Gate: g, d: d, trigger: name, now: now}
	return w.run()
}

// onlyObserves says that no caller of a drain wants it to wait. Whoever comes
// afterwards begins another one.
func (g *Gate) onlyObserves(d *drain, name string, now *moment) bool {
	waits := func() bool { return d.wait.Load() || name != TriggerNone && d.may.Load() }
	if waits() || now.closing() {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if waits() {
		return false
	}
	g.drain = nil
	return true
}

// observe notes a call that only observes, and gives how many stores are open.
// One that could have caused a close with the token was not the kubelet's.
func (g *Gate) observe(held []app, d *drain, name string) (stores int) {
	runs := g.runsOf(held)
	g.mu.Lock()
	for _, r := range runs {
		stores += r.mark.stores()
	}
	g.mu.Unlock()
	if name == TriggerNone || d.may.Load() {
		g.begin(runs, call{Began: d.begun, Trigger: name, Outcome: Observed})
	}
	return stores
}

// nothingRuns answers a call when no application runs: with the end that the
// calls before have led to, or with not-running.
func (g *Gate) nothingRuns(d *drain) *Answer {
	// An end of a moment ago may not have been noticed yet. A look that is under
	// way, and does not end, is not waited for.
	followed := make(chan struct{})
	go func() { g.Follow(); close(followed) }()
	select {
	case <-followed:
	case <-time.After(min(d.budget, judgeSlack)):
	}
	if d.may.Load() || g.cfg.Token == nil {
		// The kubelet stops the container: what /appz says is about the next one.
		g.mu.Lock()
		g.appz.since = time.Now()
		g.mu.Unlock()
	}
	ans := &Answer{Outcome: NotRunning, Trigger: g.cfg.Trigger}
	g.mu.Lock()
	var ends []*Shutdown
	for _, c := range g.concluded {
		if c.end.Hook == Called && c.end.HookOutcome != Observed {
			ends = append(ends, c.end)
		} else if clean, _ := c.end.Clean(); !clean {
			ans.Explanation = c.end.Application + ": " + c.end.Explanation
		}
	}
	g.mu.Unlock()
	if len(ends) > 0 {
		ans.Explanation = ""
		ans.add(ends)
	}
	return g.finish(d, ans, nil)
}

// choose gives the trigger for what runs now.
func (g *Gate) choose(m *moment) string {
	if g.cfg.Trigger != TriggerAuto {
		return g.cfg.Trigger
	}
	if g.cfg.HTTP != nil {
		return TriggerHTTP
	}
	for _, x := range m.held {
		if pid, held, err := trigger.Holder(x.v, x.lockPath()); err == nil && held && pid > 0 {
			return TriggerSignal
		}
	}
	if m.unknown != "" {
		return TriggerSignal // who holds what cannot be asked now may be visible later
	}
	return TriggerNone
}

const explainObserved = "the call does not carry the token, so it causes nothing"
