// Package shutdown is the preStop gate: the kubelet calls it before it sends
// SIGTERM to the application, and waits for the answer.
//
// In this form the gate causes nothing (the trigger is none): it tells whether
// an application runs, and where asked to it waits until every .lock is free.
// A free .lock means that the client is gone, not that it was closed cleanly.
// The gate only asks locks; it writes nothing.
package shutdown

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"streams-sidecar/internal/event"
	"streams-sidecar/internal/probe"
	"streams-sidecar/internal/volume"
)

// Outcome of a preStop call.
type Outcome string

// The outcomes.
const (
	Observed   Outcome = "observed"    // an application runs; not waited for
	Released   Outcome = "released"    // every .lock has become free
	Timeout    Outcome = "timeout"     // the budget is over and a .lock is still held
	NotRunning Outcome = "not-running" // no application runs
)

// Outcomes lists them all.
func Outcomes() []Outcome { return []Outcome{Observed, Released, Timeout, NotRunning} }

// TriggerNone is the only trigger of this form: the gate causes nothing.
const TriggerNone = "none"

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

// poll is how often a .lock is asked while waiting: its release raises no file
// event, and F_GETLK costs about 10 µs.
const poll = 10 * time.Millisecond

// Config of a Gate.
type Config struct {
	Volumes  []*volume.Volume // one for each state directory
	Snapshot func() *probe.Snapshot
	Events   event.Sink
	Budget   time.Duration
}

// Gate answers preStop calls. It is safe for concurrent use; calls that come
// while one waits join it and get its answer.
type Gate struct {
	cfg Config

	mu      sync.Mutex
	drain   *drain        // the running one, nil if none
	last    *Answer       // of the last drain that ended
	lastAt  time.Time     // and when
	waited  time.Duration // of the last call answered
	counts  map[Outcome]uint64
	answers uint64

	endOnce sync.Once
	ended   chan struct{} // closed by End
}

type drain struct {
	begun time.Time
	wait  atomic.Bool // one of its callers waits for the locks in any case
	done  chan struct{}
	ans   *Answer // set before done is closed
}

// again is for how long the answer of a drain is given again to a call for the
// same stop: a kubelet that was restarted during the hook calls it a second time.
const again = time.Minute

// Answer is the body of a preStop answer.
type Answer struct {
	Outcome       Outcome  `json:"outcome"`
	WaitedSeconds float64  `json:"waited_seconds"`
	Trigger       string   `json:"trigger"`
	Applications  int      `json:"applications"`   // that ran when the call came
	Held          []string `json:"held,omitempty"` // application ids that still hold a lock
	HeldMore      int      `json:"held_more,omitempty"`
	// Explanation in words, where there is more to say.
	Explanation string `json:"explanation,omitempty"`
}

// NewGate gives a gate.
func NewGate(cfg Config) *Gate {
	if cfg.Events == nil {
		cfg.Events = event.Discard
	}
	return &Gate{cfg: cfg, counts: map[Outcome]uint64{}, ended: make(chan struct{})}
}

// Prestop handles one call. It returns when the outcome is known, at the latest
// after the budget, or with the context's error once the caller has hung up;
// the drain then goes on. With wait it waits for the locks in any case.
func (g *Gate) Prestop(ctx context.Context, wait bool) (*Answer, error) {
	var d *drain
	for begun := time.Now(); ; {
		d = g.join(wait)
		select {
		case <-d.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		// The drain that was joined may just have decided not to wait.
		if !wait || d.ans.Outcome != Observed || time.Since(begun) > g.cfg.Budget || g.ending() {
			break
		}
	}
	g.mu.Lock()
	g.counts[d.ans.Outcome]++
	g.waited = time.Since(d.begun)
	g.answers++
	g.mu.Unlock()
	return d.ans, nil
}

// join gives the drain that a call belongs to: the running one, or a new one.
func (g *Gate) join(wait bool) *drain {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.drain != nil {
		if wait {
			g.drain.wait.Store(true)
		}
		return g.drain
	}
	d := &drain{begun: time.Now(), done: make(chan struct{})}
	d.wait.Store(wait)
	g.drain = d
	last := g.last
	if time.Since(g.lastAt) > again {
		last = nil
	}
	go func() {
		ans := g.run(d, last)
		g.mu.Lock()
		d.ans = ans
		g.drain = nil
		g.last, g.lastAt = ans, time.Now()
		g.mu.Unlock()
		close(d.done)
	}()
	return d
}

func (g *Gate) run(d *drain, last *Answer) *Answer {
	deadline := d.begun.Add(g.cfg.Budget)
	now := g.first(deadline)
	ans := &Answer{Trigger: TriggerNone, Applications: len(now.held), Explanation: now.unknown}
	switch {
	case now.nothing() && last != nil && last.Outcome == Released:
		*ans = *last
		return g.finish(ans, d.begun, nil)
	case now.nothing():
		ans.Outcome = NotRunning
		return g.finish(ans, d.begun, nil)
	case !d.wait.Load() && !now.closing():
		ans.Outcome = Observed
		return g.finish(ans, d.begun, now.held)
	}
	g.cfg.Events.Emit(event.PrestopBegan{Trigger: TriggerNone, Budget: g.cfg.Budget, Running: ids(now.held)})
	for {
		now = g.next(now)
		ans.Explanation = now.unknown
		if now.nothing() {
			ans.Outcome = Released
			break
		}
		left := time.Until(deadline)
		if left <= 0 || g.ending() {
			ans.Outcome = Timeout
			if left > 0 && ans.Explanation == "" {
				ans.Explanation = explainEnding
			}
			break
		}
		g.sleep(min(poll, left))
	}
	return g.finish(ans, d.begun, now.held)
}

// finish completes the answer. It is cut so that the body stays below 8 KiB,
// whatever the names: the kubelet stops listening at 10.
func (g *Gate) finish(ans *Answer, begun time.Time, held []app) *Answer {
	const maxNames, maxBytes = 20, 4096
	size := 0
	ans.Explanation = clip(ans.Explanation, maxExplanation)
	ans.Held, ans.HeldMore = nil, 0
	for i, x := range held {
		size += jsonSize(x.id)
		if i >= maxNames || size > maxBytes {
			ans.HeldMore = len(held) - i
			break
		}
		ans.Held = append(ans.Held, x.id)
	}
	waited := time.Since(begun)
	ans.WaitedSeconds = waited.Seconds()
	g.cfg.Events.Emit(event.PrestopEnded{Outcome: string(ans.Outcome), Waited: waited, Held: ans.Held})
	return ans
}

// jsonSize is how many bytes a string takes in JSON, with its quotes.
func jsonSize(s string) int {
	b, err := json.Marshal(s)
	if err != nil { // no string has one
		return 6*len(s) + 2
	}
	return len(b)
}

func ids(apps []app) []string {
	out := make([]string, len(apps))
	for i, a := range apps {
		out[i] = a.id
	}
	return out
}

// Stats are the gate's own numbers.
type Stats struct {
	Requests map[Outcome]uint64 // calls answered, by outcome
	// Waited is how long the running call has waited so far, else how long
	// the last one did; Any is false before the first.
	Waited time.Duration
	Any    bool
}

// Stats gives the gate's numbers now.
func (g *Gate) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := Stats{Requests: make(map[Outcome]uint64, len(g.counts)), Waited: g.waited, Any: g.answers > 0}
	for k, v := range g.counts {
		s.Requests[k] = v
	}
	if g.drain != nil {
		s.Waited, s.Any = time.Since(g.drain.begun), true
	}
	return s
}
