package shutdown

import "time"

// Elapse makes everything that is measured between calls so much older: what
// /appz looks at, and when something was written or seen last.
func (g *Gate) Elapse(d time.Duration) {
	g.saving.Lock()
	g.savedAt = g.savedAt.Add(-d)
	g.saving.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.appz.newest, g.appz.since = g.appz.newest.Add(-d), g.appz.since.Add(-d)
	for k, c := range g.concluded {
		c.at = c.at.Add(-d)
		g.concluded[k] = c
	}
	for dir, at := range g.unwritten {
		g.unwritten[dir] = at.Add(-d)
	}
	for _, r := range g.runs {
		if c := r.call; c != nil {
			older := *c
			older.Began = c.Began.Add(-d)
			r.call = &older
		}
		for _, stores := range r.mark.Open {
			for name, o := range stores {
				o.since = o.since.Add(-d)
				if o.FreeSince != nil {
					free := o.FreeSince.Add(-d)
					o.FreeSince = &free
				}
				stores[name] = o
			}
		}
	}
}

// StepClock sets the wall clock by so much, as the running applications see it.
func (g *Gate) StepClock(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.runs {
		r.clock.wall = r.clock.wall.Add(-d)
	}
}

// AllReasons are those that a store can lack the proof for.
func AllReasons() []Reason {
	out := make([]Reason, 0, len(reasonTexts))
	for r := range reasonTexts {
		out = append(out, r)
	}
	return out
}
