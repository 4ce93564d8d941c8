package shutdown

import (
	"math"
	"time"

	"streams-sidecar/internal/event"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
)

// Progress is how far a close has come, over all applications that a drain
// waits for.
type Progress struct {
	Begun time.Time
	// Stores were open when the drain began or have been opened since; of
	// them Flushed have written a table since, or are closed, and Closed hold
	// no LOCK any more. Up to 4.2 stores are closed together at the end.
	Stores, Flushed, Closed int
	SSTBytesWritten         int64 // by flushes since the drain began
	// Remaining is estimated from this drain's own rate; 0 if unknown.
	Remaining time.Duration
	// Restoring: a store was made anew since the end before and is smaller.
	Restoring bool

	held   []Missing // stores whose LOCK is held
	before int       // stores that were closed at the first look, as by a rebalance
}

func (p *Progress) event() event.PrestopProgress {
	return event.PrestopProgress{Stores: p.Stores, Flushed: p.Flushed, Closed: p.Closed, SSTBytesWritten: p.SSTBytesWritten, Remaining: p.Remaining}
}

// footprint is everything whose change means that a close is under way.
type footprint struct {
	locks               int
	tables, manifests   int64
	flushed, compaction uint64
}

// look counts the LOCKs and compares the newest picture with the one before.
func (w *wait) look() {
	p := Progress{Begun: w.d.begun}
	var f footprint
	for _, r := range w.runs {
		w.mu.Lock()
		v, a, m, before := r.app.v, r.app.a, r.mark.clone(), w.last[r.key]
		w.mu.Unlock()
		p.Restoring = p.Restoring || before.madeAnew(a)
		locks := heldLocks(v, a, &m)
		f.locks += locks.databases
		p.Stores += m.stores()
		p.Closed += m.stores() - len(locks.stores)
		m.each(a, func(task string, s *store.Store, was openStore) {
			f.tables += s.Sizes.SST
			f.manifests += s.Sizes.Manifest
			f.flushed += s.Counts.FlushedBytes
			f.compaction += s.Counts.CompactionWrittenBytes
			name := volume.Text(s.Name)
			if _, held := locks.stores[storeName{task, name}]; !held || s.Counts.Flushes > was.Flushes {
				p.Flushed++
			}
		})
		p.SSTBytesWritten += m.written(a)
		for s := range locks.stores {
			p.held = append(p.held, Missing{r.key.id, s.task, s.name, LockHeld, ""})
		}
	}
	sortMissing(p.held)
	now := time.Now()
	p.Remaining = remaining(now.Sub(p.Begun), max(p.Flushed, p.Closed), p.Stores)
	if f != w.moved {
		w.moved, w.movedAt = f, now
	}
	p.before = w.progress.before
	if w.looks == 0 {
		p.before = p.Closed
	}
	w.looks++
	w.progress = p
	w.d.progress.Store(&p)
}

// remaining is the time for the rest of the stores at the rate of those that
// are done; 0 if there is none yet, or no rest.
func remaining(elapsed time.Duration, done, all int) time.Duration {
	if done <= 0 || done >= all {
		return 0
	}
	rest := elapsed.Seconds() * float64(all-done) / float64(done)
	return time.Duration(math.Ceil(rest)) * time.Second
}

// storeName names a store of an application, as [volume.Text] has its names.
type storeName struct{ task, name string }

func nameOf(t *store.Task, s *store.Store) storeName {
	return storeName{volume.Text(t.Layout.ID), volume.Text(s.Name)}
}

// byStore gives the evidence of each store.
func (s *Shutdown) byStore() map[storeName]*Evidence {
	out := make(map[storeName]*Evidence, len(s.Evidence))
	for i := range s.Evidence {
		e := &s.Evidence[i]
		out[storeName{e.Task, e.Store}] = e
	}
	return out
}

// openLocks are the LOCKs that are held.
type openLocks struct {
	databases int
	stores    map[storeName]bool
}

// heldLocks asks the LOCK of every database that was open. One that cannot be
// asked counts as held.
func heldLocks(v *volume.Volume, a *store.Application, m *mark) openLocks {
	out := openLocks{stores: map[storeName]bool{}}
	for _, t := range a.Tasks {
		task := volume.Text(t.Layout.ID)
		open := m.Open[task]
		var of []storeName
		var paths []string
		for _, s := range t.Stores {
			name := volume.Text(s.Name)
			if _, ok := open[name]; !ok {
				continue
			}
			for _, db := range s.Databases {
				of, paths = append(of, storeName{task, name}), append(paths, db.LockPath())
			}
		}
		if len(paths) == 0 {
			continue
		}
		held, err := volume.Do(v, t.Layout.Path, func(fs volume.FS) ([]bool, error) {
			held := make([]bool, len(paths))
			for i, p := range paths {
				l, err := fs.Lock(p)
				held[i] = l.Held || err != nil && !volume.IsGone(err)
			}
			return held, nil
		})
		for i, s := range of {
			if err != nil || held[i] {
				out.databases++
				out.stores[s] = true
			}
		}
	}
	return out
}

// changedSince says that a store which was judged at an end has another MANIFEST
// now: another run has followed.
func (s *Shutdown) changedSince(d *store.StateDir) bool {
	was := s.byStore()
	for _, a := range d.Applications {
		if volume.Text(a.Layout.ID) != s.Application || a.Running == nil || *a.Running {
			continue
		}
		for _, t := range a.Tasks {
			for _, st := range t.Stores {
				e := was[nameOf(t, st)]
				if e == nil || st.Layout.Segmented {
					continue
				}
				if n := newestManifest(st); n > 0 && e.Manifest > 0 && n != e.Manifest {
					return true
				}
			}
		}
	}
	return false
}

// madeAnew says that a store has been made anew since an end and is smaller
// than it was then: it seems to be restored from its changelog.
func (s *Shutdown) madeAnew(a *store.Application) bool {
	if s == nil {
		return false
	}
	was := s.byStore()
	for _, t := range a.Tasks {
		for _, st := range t.Stores {
			e := was[nameOf(t, st)]
			// Segments come and go.
			if e == nil || st.Layout.Segmented {
				continue
			}
			if n := newestManifest(st); n > 0 && n < e.Manifest && st.Sizes.SST < e.SSTBytes {
				return true
			}
		}
	}
	return false
}
