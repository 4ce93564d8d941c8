package probe

import (
	"context"
	"time"

	"streams-sidecar/internal/store"
	"streams-sidecar/internal/verify"
	"streams-sidecar/internal/volume"
)

// worker does one look after the other. It is the only goroutine of the package
// that asks the volume.
type worker struct {
	cfg     *Config
	watches *watches
	dirs    []*store.StateDir
	judged  *verify.Judgement // of them
	told    bool              // the loop knows the source of events
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
	for _, dir := range l.renew {
		w.watches.remove(dir)
	}
	if l.renewAll {
		w.watches.forget()
	}
	switch {
	case l.full || w.dirs == nil:
		r = w.full()
	case !l.empty():
		r.dirs = make([]*store.StateDir, len(w.dirs))
		for i, d := range w.dirs {
			r.dirs[i] = d.Refresh(w.cfg.Volumes[i], l.dirty)
		}
		if len(l.unmute)+len(l.renew) > 0 {
			r.added, _ = w.watches.sync(w.cfg.Volumes, r.dirs)
		}
	default:
		r.relook = w.locksChanged()
	}
	if r.dirs != nil {
		w.dirs = r.dirs
		w.judged = verify.Judge(w.dirs, w.cfg.Question, w.cfg.More, w.judged, r.full)
		r.judgement = w.judged
	}
	r.took = w.cfg.Now().Sub(begun)
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

// locksChanged asks every .lock, and the state directories themselves, and says
// whether one differs from the picture.
func (w *worker) locksChanged() bool {
	for i, d := range w.dirs {
		// It may have come into being, or be a link that leads elsewhere now.
		info, err := volume.Do(w.cfg.Volumes[i], d.Layout.Path, func(fs volume.FS) (volume.Info, error) {
			return fs.Stat(d.Layout.Path)
		})
		if err == nil && info.ID() != d.Layout.ID || volume.IsGone(err) && !d.Layout.Missing {
			return true
		}
		for _, a := range d.Applications {
			held, err := a.Layout.AskLock(w.cfg.Volumes[i])
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
