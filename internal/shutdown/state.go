package shutdown

import (
	"slices"
	"strings"
	"time"
)

// Phase of the gate.
type Phase string

// The phases. After Ended it is PhaseRunning again when an application opens in
// the same pod.
const (
	PhaseIdle     Phase = "not-running" // no application has run while this process looked
	PhaseRunning  Phase = "running"
	PhaseDraining Phase = "draining" // a call waits for a close
	PhaseEnded    Phase = "ended"    // an application has run, and none does
)

// State is everything that the gate tells of itself.
type State struct {
	Phase    Phase
	Trigger  string // as configured; while draining, the one that was chosen
	Budget   time.Duration
	Progress *Progress // nil unless draining
	// Last is how each application ended last, by state directory and
	// application.
	Last []LastShutdown
	// Dead are the applications for which /appz fails or is about to.
	Dead []AppRef
	// Known are all applications of this process that run or have run.
	Known []AppRef

	JournalError string // of the newest attempt to write something down
	Requests     map[Outcome]uint64
	// Waited is how long the running call has waited so far, else how long
	// the last one did; Any is false before the first.
	Waited time.Duration
	Any    bool
}

// AppRef names an application: the index of its state directory, and its id.
type AppRef struct {
	Dir         int
	Application string
}

// LastShutdown is an end with the index of its state directory.
type LastShutdown struct {
	Dir int
	Shutdown
}

// Draining says that a call waits for a close. Unlike State it costs nothing.
func (g *Gate) Draining() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.drain != nil && g.drain.progress.Load() != nil
}

// State gives the gate's state now. It asks nothing of the volume.
func (g *Gate) State() State {
	dead := g.dead(time.Now())
	g.mu.Lock()
	defer g.mu.Unlock()
	s := State{Phase: PhaseIdle, Trigger: g.cfg.Trigger, Budget: g.budget(), JournalError: g.journalError(),
		Requests: make(map[Outcome]uint64, len(g.counts)), Waited: g.waited, Any: g.answers > 0}
	for k, v := range g.counts {
		s.Requests[k] = v
	}
	switch {
	case len(g.runs) > 0:
		s.Phase = PhaseRunning
	case len(g.concluded) > 0:
		s.Phase = PhaseEnded
	}
	if d := g.drain; d != nil {
		s.Waited, s.Any, s.Budget = time.Since(d.begun), true, d.budget
		if p := d.progress.Load(); p != nil {
			s.Phase, s.Progress = PhaseDraining, p
		}
		if t := d.trigger.Load(); t != nil {
			s.Trigger = *t
		}
	}
	for k, end := range g.last {
		s.Last = append(s.Last, LastShutdown{k.dir, *end})
	}
	for k, r := range g.runs {
		s.Known = append(s.Known, AppRef{k.dir, r.app.id})
	}
	for k, c := range g.concluded {
		s.Known = append(s.Known, AppRef{k.dir, c.end.Application})
		if dead[k] != nil {
			s.Dead = append(s.Dead, AppRef{k.dir, c.end.Application})
		}
	}
	slices.SortFunc(s.Last, func(a, b LastShutdown) int {
		if a.Dir != b.Dir {
			return a.Dir - b.Dir
		}
		return strings.Compare(a.Application, b.Application)
	})
	return s
}
