package probe

import (
	"context"
	"path/filepath"
	"time"

	"streams-sidecar/internal/statedir"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
)

// worker does one look after the other. It is the only goroutine of the package
// that asks the volume.
type worker struct {
	cfg     *Config
	watches *watches
	dirs    []*store.StateDir
	told    bool // the loop knows the source of events
}

func newWorker(p *Probe) *worker {
	return &worker{cfg: &p.cfg, watches: newWatches(p.cfg.NewWatcher)}
}

func (w *worker) run(ctx context.Context, in <-chan look, out chan<- result) {
	for l := range in {
		r := w.look(&l)
		select {
		case out <- r:
		case <-ctx.Done():
			return
		}
	}
}

func (w *worker) look(l *look) (r result) {
	begun := w.cfg.Now()
	for _, dir := range l.mute {
		w.watches.remove(dir)
		w.watches.muted[dir] = true
	}
	for _, dir := range l.unmute {
		delete(w.watches.muted, dir)
	}
	switch {
	case l.full || w.dirs == nil:
		r = w.full()
	case !l.empty():
		r.dirs = make([]*store.StateDir, len(w.dirs))
		for i, d := range w.dirs {
			r.dirs[i] = d.Refresh(w.cfg.Volumes[i], l.dirty)
		}
		if len(l.unmute) > 0 {
			r.added, _ = w.watches.sync(w.cfg.Volumes, r.dirs)
		}
	default:
		r.relook = w.locksChanged()
	}
	r.took = w.cfg.Now().Sub(begun)
	if r.dirs != nil {
		w.dirs = r.dirs
	}
	return r
}

func (w *worker) full() (r result) {
	r.full = true
	begun := time.Now()
	r.dirs = store.ScanAll(w.cfg.Volumes, w.cfg.StateDirs, w.dirs)
	r.took = time.Since(begun)
	if w.watches.reopen(w.cfg.NewWatcher) || !w.told {
		w.told, r.events = true, w.watches
	}
	added, polls := w.watches.sync(w.cfg.Volumes, r.dirs)
	r.added, r.mode = added, Inotify
	if polls != nil {
		r.mode, r.reason = Poll, polls.Error()
	}
	return r
}

// locksChanged asks every .lock and says whether one differs from the picture.
func (w *worker) locksChanged() bool {
	for i, d := range w.dirs {
		if d.Layout.Missing {
			// The cheapest sign that it has come into being.
			if _, err := volume.Do(w.cfg.Volumes[i], d.Layout.Path, func(fs volume.FS) (volume.Info, error) {
				return fs.Stat(d.Layout.Path)
			}); err == nil {
				return true
			}
		}
		for _, a := range d.Applications {
			held, err := Held(w.cfg.Volumes[i], a.Layout)
			if err != nil {
				continue // the rescan reports it
			}
			if a.Layout.Running == nil || *a.Layout.Running != held {
				return true
			}
		}
	}
	return false
}

// Held asks whether an application's .lock is held now.
func Held(v *volume.Volume, a *statedir.Application) (bool, error) {
	path := filepath.Join(a.Path, ".lock")
	l, err := volume.Do(v, a.Path, func(fs volume.FS) (volume.Lock, error) { return fs.Lock(path) })
	if volume.IsGone(err) {
		return false, nil
	}
	return l.Held, err
}
