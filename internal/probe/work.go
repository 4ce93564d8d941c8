package probe

import (
	"context"
	"path/filepath"

	"streams-sidecar/internal/statedir"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
)

// work does one look after the other. It is the only goroutine of the package
// that asks the volume.
func (p *Probe) work(ctx context.Context, in <-chan look, out chan<- result) {
	var dirs []*store.StateDir
	for l := range in {
		begun := p.cfg.Now()
		var r result
		switch {
		case l.full || dirs == nil:
			r = result{full: true, dirs: store.ScanAll(p.cfg.Volumes, p.cfg.StateDirs, dirs)}
			r.added = p.syncWatches(&r)
		case len(l.dirty) > 0:
			r.dirs = make([]*store.StateDir, len(dirs))
			for i, d := range dirs {
				r.dirs[i] = d.Refresh(p.cfg.Volumes[i], l.dirty)
			}
		default:
			r.relook = p.locksChanged(dirs)
		}
		r.took = p.cfg.Now().Sub(begun)
		if r.dirs != nil {
			dirs = r.dirs
		}
		select {
		case out <- r:
		case <-ctx.Done():
			return
		}
	}
}

// locksChanged asks every .lock and says whether one differs from the picture.
func (p *Probe) locksChanged(dirs []*store.StateDir) bool {
	for i, d := range dirs {
		if d.Layout.Missing {
			// The cheapest sign that it has come into being.
			if _, err := volume.Do(p.cfg.Volumes[i], d.Layout.Path, func(fs volume.FS) (volume.Info, error) {
				return fs.Stat(d.Layout.Path)
			}); err == nil {
				return true
			}
		}
		for _, a := range d.Applications {
			held, err := Held(p.cfg.Volumes[i], a.Layout)
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

// syncWatches makes the watched directories those of the picture, and says how
// many are new.
func (p *Probe) syncWatches(r *result) (added int) {
	if p.watcher == nil {
		return 0
	}
	want := directories(r.dirs)
	for dir := range p.watched {
		if !want[dir] {
			_ = p.watcher.Remove(dir) // gone with its directory in most cases
			delete(p.watched, dir)
		}
	}
	var failed error
	for dir := range want {
		if p.watched[dir] {
			continue
		}
		if err := p.watcher.Add(dir); err != nil {
			if !volume.IsGone(err) {
				failed = err
			}
			continue
		}
		p.watched[dir] = true
		added++
	}
	// Watches that failed leave the rescan, which sees everything later.
	r.modeSet, r.mode = true, Inotify
	if failed != nil {
		r.mode, r.modeCause = Poll, failed.Error()
	}
	return added
}

// directories are those whose entries matter.
func directories(dirs []*store.StateDir) map[string]bool {
	out := map[string]bool{}
	for _, d := range dirs {
		if d.Layout.Missing || d.Layout.Resolved == "" {
			continue
		}
		out[d.Layout.Resolved] = true
		for _, a := range d.Applications {
			out[a.Layout.Path] = true
			for _, t := range a.Tasks {
				out[t.Layout.Path] = true
				if t.Layout.Topology != "" {
					out[filepath.Dir(t.Layout.Path)] = true
				}
				for _, s := range t.Stores {
					out[s.Layout.Path] = true
					out[filepath.Dir(s.Layout.Path)] = true
					for _, db := range s.Databases {
						out[db.Path] = true
					}
				}
			}
		}
	}
	return out
}
