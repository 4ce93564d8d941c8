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
	"slices"
	"sync"
	"time"

	"streams-sidecar/internal/event"
	"streams-sidecar/internal/probe"
	"streams-sidecar/internal/store"
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
	StateDirs []string
	Volumes   []*volume.Volume // one for each state directory
	Snapshot  func() *probe.Snapshot
	Events    event.Sink
	Budget    time.Duration
}

// Gate answers preStop calls. It is safe for concurrent use; calls that come
// while one waits join it and get its answer.
type Gate struct {
	cfg Config

	mu      sync.Mutex
	drain   *drain        // the running one, nil if none
	last    *Answer       // of the last drain that ended
	waited  time.Duration // of the last call answered
	counts  map[Outcome]uint64
	answers uint64
}

type drain struct {
	begun time.Time
	done  chan struct{}
	ans   *Answer // set before done is closed
}

// Answer is the body of a preStop answer.
type Answer struct {
	Outcome       Outcome  `json:"outcome"`
	WaitedSeconds float64  `json:"waited_seconds"`
	Trigger       string   `json:"trigger"`
	Applications  int      `json:"applications"`   // that ran when the call came
	Held          []string `json:"held,omitempty"` // application ids whose .lock is still held
	HeldMore      int      `json:"held_more,omitempty"`
	// Explanation in words, where there is more to say.
	Explanation string `json:"explanation,omitempty"`
}

// NewGate gives a gate.
func NewGate(cfg Config) *Gate {
	if cfg.Events == nil {
		cfg.Events = event.Discard
	}
	return &Gate{cfg: cfg, counts: map[Outcome]uint64{}}
}

// Prestop handles one call. It returns when the outcome is known, at the latest
// after the budget, or with the context's error once the caller has hung up;
// the drain then goes on. With wait it waits for the locks in any case.
func (g *Gate) Prestop(ctx context.Context, wait bool) (*Answer, error) {
	d := g.join(wait)
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

// join gives the drain that a call belongs to: the running one, or a new one.
func (g *Gate) join(wait bool) *drain {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.drain != nil {
		return g.drain
	}
	d := &drain{begun: time.Now(), done: make(chan struct{})}
	g.drain = d
	last := g.last
	go func() {
		ans := g.run(d.begun, wait, last)
		g.mu.Lock()
		d.ans = ans
		g.drain = nil
		g.last = ans
		g.mu.Unlock()
		close(d.done)
	}()
	return d
}

// app is one application whose .lock is watched.
type app struct {
	v  *volume.Volume
	a  *store.Application
	id string
}

func (g *Gate) run(begun time.Time, wait bool, last *Answer) *Answer {
	deadline := begun.Add(g.cfg.Budget)
	running, unknown := g.running(deadline)
	ans := &Answer{Trigger: TriggerNone, Applications: len(running)}
	if len(running) == 0 {
		switch {
		case unknown != "":
			ans.Outcome, ans.Explanation = Timeout, unknown
		case last != nil && last.Outcome == Released:
			// The same stop, asked again: a kubelet that was restarted
			// during the hook calls it a second time.
			*ans = *last
		default:
			ans.Outcome = NotRunning
		}
		return g.finish(ans, begun, nil)
	}
	if !wait && !closing(running) {
		ans.Outcome = Observed
		return g.finish(ans, begun, running)
	}
	g.cfg.Events.Emit(event.PrestopBegan{Trigger: TriggerNone, Budget: g.cfg.Budget, Running: ids(running)})
	held := running
	for {
		held = slices.DeleteFunc(slices.Clone(held), func(x app) bool { return !x.held() })
		if len(held) == 0 {
			ans.Outcome = Released
			break
		}
		left := time.Until(deadline)
		if left <= 0 {
			ans.Outcome = Timeout
			break
		}
		time.Sleep(min(poll, left))
	}
	return g.finish(ans, begun, held)
}

// finish completes the answer. The list of applications is cut so that the body
// stays below the 10 KiB at which the kubelet stops listening.
func (g *Gate) finish(ans *Answer, begun time.Time, held []app) *Answer {
	const maxNames, maxBytes = 20, 4096
	size := 0
	ans.Held, ans.HeldMore = nil, 0
	for i, x := range held {
		size += len(x.id)
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

func ids(apps []app) []string {
	out := make([]string, len(apps))
	for i, a := range apps {
		out[i] = a.id
	}
	return out
}

// running asks every application's .lock now. The list of applications is from
// the picture, which may be a moment old; before the first picture it waits for
// it. unknown says why it could not be told.
func (g *Gate) running(deadline time.Time) (out []app, unknown string) {
	snap := g.cfg.Snapshot()
	for snap == nil {
		if time.Now().After(deadline) {
			return nil, "the state directory has not been read yet"
		}
		time.Sleep(poll)
		snap = g.cfg.Snapshot()
	}
	for i, d := range snap.StateDirs {
		for _, a := range d.Applications {
			x := app{g.cfg.Volumes[i], a, volume.Text(a.Layout.ID)}
			held, err := probe.Held(x.v, a.Layout)
			switch {
			case err != nil:
				unknown = err.Error()
				// A lock that cannot be asked may be held.
				out = append(out, x)
			case held:
				out = append(out, x)
			}
		}
	}
	return out, unknown
}

// held asks the .lock; one that cannot be asked counts as held.
func (x app) held() bool {
	held, err := probe.Held(x.v, x.a.Layout)
	return held || err != nil
}

// closing says that an application has begun to close: a LOCK that the picture
// shows as held is free now, while the .lock is held.
func closing(apps []app) bool {
	for _, x := range apps {
		for _, t := range x.a.Tasks {
			for _, s := range t.Stores {
				for _, db := range s.Databases {
					if db.InUse != nil && *db.InUse && free(x.v, db) {
						return true
					}
				}
			}
		}
	}
	return false
}

func free(v *volume.Volume, db *store.Database) bool {
	l, err := volume.Do(v, db.Path, func(fs volume.FS) (volume.Lock, error) { return fs.Lock(db.LockPath()) })
	return err == nil && !l.Held
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
