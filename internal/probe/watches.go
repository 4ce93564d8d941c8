package probe

import (
	"path/filepath"
	"slices"

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
	source *fsnotify.Watcher    // nil if there is none
	cause  error                // why there is none
	dirs   map[string]volume.ID // watched now; a watch is on an inode, not on a path
	muted  map[string]bool      // not to be watched for a while
}

func newWatches(make func() (*fsnotify.Watcher, error)) *watches {
	w := &watches{dirs: map[string]volume.ID{}, muted: map[string]bool{}}
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

// forget drops every watch, so that the next sync asks for all of them anew:
// after lost events nobody knows which are still on the directory of the path.
func (w *watches) forget() {
	for dir := range w.dirs {
		w.remove(dir)
	}
}

func (w *watches) remove(dir string) {
	if _, ok := w.dirs[dir]; ok {
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
	want := map[string]place{}
	for i, d := range dirs {
		if d.Layout.Missing || d.Layout.Resolved == "" {
			continue
		}
		if u := d.Layout.Usage; u != nil && silent[u.Type] {
			polls = errSilent(u.Type)
			continue
		}
		directories(d, func(dir string, id volume.ID) {
			if _, ok := want[dir]; !ok || id != (volume.ID{}) {
				want[dir] = place{vs[i], id}
			}
		})
	}
	for dir, id := range w.dirs {
		if p, ok := want[dir]; !ok || p.id != (volume.ID{}) && p.id != id {
			w.remove(dir)
		}
	}
	for dir := range w.muted {
		if _, ok := want[dir]; !ok {
			delete(w.muted, dir)
		}
	}
	todo := map[*volume.Volume][]string{}
	for dir, p := range want {
		if _, ok := w.dirs[dir]; !ok && !w.muted[dir] {
			todo[p.v] = append(todo[p.v], dir)
		}
	}
	for v, dirs := range todo {
		for some := range slices.Chunk(dirs, watchesAtOnce) {
			n, err := w.add(v, some, func(dir string) volume.ID { return want[dir].id })
			added += n
			if err != nil {
				polls = err
			}
		}
	}
	return added, polls
}

// watchesAtOnce are asked for in one look, because a look of its own costs more
// than a watch. If one hangs, the others of it are asked for again later.
const watchesAtOnce = 64

// place is a directory to be watched.
type place struct {
	v  *volume.Volume
	id volume.ID // zero if the layout does not say
}

// add asks for events of some directories of a volume. It says how many it got,
// and the last error that means that one has to be polled. If another directory
// has got a path since the look, the next one will tell, because the identities
// differ.
func (w *watches) add(v *volume.Volume, dirs []string, known func(dir string) volume.ID) (added int, polls error) {
	type answer struct {
		id  volume.ID
		err error
	}
	add := w.source.Add
	answers, err := volume.Do(v, dirs[0], func(fs volume.FS) ([]answer, error) {
		out := make([]answer, 0, len(dirs))
		for _, dir := range dirs {
			a := answer{id: known(dir)}
			if a.err = fs.Watch(dir, add); a.err == nil && a.id == (volume.ID{}) {
				var info volume.Info
				info, a.err = fs.Stat(dir)
				a.id = info.ID()
			}
			out = append(out, a)
		}
		return out, nil
	})
	if err != nil {
		return 0, err
	}
	for i, a := range answers {
		switch volume.ClassOf(a.err) {
		case volume.Gone, volume.Denied: // nothing to be seen there by polling either
		default:
			if a.err != nil {
				polls = a.err
				continue
			}
			w.dirs[dirs[i]] = a.id
			added++
		}
	}
	return added, polls
}

type errSilent string

func (e errSilent) Error() string {
	return "a " + string(e) + " volume raises no events for changes made elsewhere"
}

// directories calls f for every directory whose entries matter, with its
// identity where that is known.
func directories(d *store.StateDir, f func(dir string, id volume.ID)) {
	f(d.Layout.Resolved, d.Layout.ID)
	for _, a := range d.Applications {
		f(a.Layout.Path, a.Layout.DirID)
		for _, t := range a.Tasks {
			f(t.Layout.Path, t.Layout.DirID)
			if t.Layout.Topology != "" {
				f(filepath.Dir(t.Layout.Path), volume.ID{})
			}
			for _, s := range t.Stores {
				f(s.Layout.Path, s.Layout.DirID)
				f(filepath.Dir(s.Layout.Path), volume.ID{})
				for _, db := range s.Databases {
					f(db.Path, db.DirID)
				}
			}
		}
	}
}
