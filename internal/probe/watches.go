package probe

import (
	"path/filepath"

	"github.com/fsnotify/fsnotify"

	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
)

// silent are the file systems whose changes raise no events here when they are
// made elsewhere (or, for FUSE and 9p, ever, where a virtual machine shares a
// folder): inotify sees only what goes through this kernel. virtiofs answers
// as fuse.
var silent = map[string]bool{"nfs": true, "cifs": true, "smb2": true, "fuse": true, "9p": true, "ceph": true, "lustre": true, "gpfs": true}

// watches are the directories that the kernel is asked to report on. It belongs
// to the worker.
type watches struct {
	source *fsnotify.Watcher // nil if there is none
	cause  error             // why there is none
	dirs   map[string]bool   // watched now
	muted  map[string]bool   // not to be watched for a while
}

func newWatches(make func() (*fsnotify.Watcher, error)) *watches {
	w := &watches{dirs: map[string]bool{}, muted: map[string]bool{}}
	w.source, w.cause = make()
	return w
}

func (w *watches) channels() (<-chan fsnotify.Event, <-chan error) {
	if w.source == nil {
		return nil, nil
	}
	return w.source.Events, w.source.Errors
}

func (w *watches) close() {
	if w.source != nil {
		_ = w.source.Close() // nothing to do about it at the end
	}
}

// reopen tries again to get a source of events, and says whether there is a new
// one.
func (w *watches) reopen(make func() (*fsnotify.Watcher, error)) bool {
	if w.source != nil {
		return false
	}
	w.source, w.cause = make()
	return w.source != nil
}

func (w *watches) remove(dir string) {
	if w.dirs[dir] {
		_ = w.source.Remove(dir) // gone with its directory in most cases
		delete(w.dirs, dir)
	}
}

// sync makes the watched directories those of the picture. It says how many are
// new, and why others are not watched (nil: all are).
func (w *watches) sync(vs []*volume.Volume, dirs []*store.StateDir) (added int, polls error) {
	if w.source == nil {
		return 0, w.cause
	}
	want := map[string]*volume.Volume{}
	for i, d := range dirs {
		if d.Layout.Missing || d.Layout.Resolved == "" {
			continue
		}
		if u := d.Layout.Usage; u != nil && silent[u.Type] {
			polls = errSilent(u.Type)
			continue
		}
		directories(d, func(dir string) { want[dir] = vs[i] })
	}
	for dir := range w.dirs {
		if want[dir] == nil {
			w.remove(dir)
		}
	}
	for dir := range w.muted {
		if want[dir] == nil {
			delete(w.muted, dir)
		}
	}
	for dir, v := range want {
		if w.dirs[dir] || w.muted[dir] {
			continue
		}
		_, err := volume.Do(v, dir, func(fs volume.FS) (struct{}, error) {
			return struct{}{}, fs.Watch(dir, w.source.Add)
		})
		switch {
		case err == nil:
			w.dirs[dir] = true
			added++
		case !volume.IsGone(err):
			polls = err
		}
	}
	return added, polls
}

type errSilent string

func (e errSilent) Error() string {
	return "a " + string(e) + " volume raises no events for changes made elsewhere"
}

// directories calls f for every directory whose entries matter.
func directories(d *store.StateDir, f func(dir string)) {
	f(d.Layout.Resolved)
	for _, a := range d.Applications {
		f(a.Layout.Path)
		for _, t := range a.Tasks {
			f(t.Layout.Path)
			if t.Layout.Topology != "" {
				f(filepath.Dir(t.Layout.Path))
			}
			for _, s := range t.Stores {
				f(s.Layout.Path)
				f(filepath.Dir(s.Layout.Path))
				for _, db := range s.Databases {
					f(db.Path)
				}
			}
		}
	}
}
