package inspect

import (
	"path/filepath"
	"strings"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/statedir"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
)

// Target is what a path names, found in the state directory that it belongs to.
type Target struct {
	volume *volume.Volume
	base   string // the state directory
	alone  string // a database on its own, "" for one that lies in a state directory
	// Within is the application's, task's or store's path that is meant, "" for
	// all of the state directory.
	Within string
}

// Find tells what a path is: a state directory, an application, task, store or
// segment in one, or a database on its own, such as a copy. It never fails: what
// is not there or cannot be read is taken for a state directory, which then says so.
func Find(v *volume.Volume, path string) Target {
	t := Target{volume: v, base: path}
	resolved, err := volume.Do(v, path, func(fs volume.FS) (string, error) { return fs.Resolve(path) })
	if err != nil {
		return t
	}
	base, inTask := stateDirOf(resolved)
	if inTask {
		// A database in a task that is none of its stores, as one that was set aside, is
		// one on its own.
		known, inside := holds(store.Scan(v, base, nil), resolved)
		if known || inside && !isDatabase(v, resolved) {
			t.base, t.Within = base, resolved
			return t
		}
	}
	layout := statedir.Scan(v, path, nil)
	for _, f := range layout.Findings {
		if f.Code == finding.StateDirIsApplication {
			app := resolved
			if b := filepath.Base(app); strings.HasPrefix(b, "__") && strings.HasSuffix(b, "__") { // a named topology in one
				app = filepath.Dir(app)
			}
			t.base, t.Within = filepath.Dir(app), resolved
			return t
		}
	}
	if len(layout.Applications) == 0 && isDatabase(v, resolved) {
		t.base, t.alone = filepath.Dir(resolved), resolved
	}
	return t
}

// holds says that a picture has a task or store at a path or below it, and whether
// it lies inside of a task.
func holds(d *store.StateDir, path string) (known, inside bool) {
	for _, a := range d.Applications {
		for _, t := range a.Tasks {
			known = known || within(t.Layout.Path, path)
			inside = inside || within(path, t.Layout.Path)
			for _, s := range t.Stores {
				known = known || within(s.Layout.Path, path) || within(path, s.Layout.Path)
			}
		}
	}
	return known, inside
}

// within says that path is dir or lies below it.
func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

func isDatabase(v *volume.Volume, dir string) bool {
	found, err := volume.Do(v, dir, func(fs volume.FS) (found bool, err error) {
		err = fs.List(dir, func(i volume.Info) error {
			found = found || i.Kind == volume.Regular &&
				(i.Name == "CURRENT" || strings.HasPrefix(i.Name, "MANIFEST-") || strings.HasSuffix(i.Name, ".sst"))
			return nil
		})
		return found, err
	})
	return err == nil && found
}

// Look takes a picture of the state directory; before is the one before, or nil.
// A database on its own is shown in an application and a task that have no name.
func (t *Target) Look(before *store.StateDir) *store.StateDir {
	if t.alone == "" {
		return store.Scan(t.volume, t.base, before)
	}
	s := store.Alone(t.volume, t.alone)
	task := &store.Task{Layout: &statedir.Task{ID: nameless, Path: t.base}, Era: s.Era, Empty: s.Empty, Stores: []*store.Store{s}}
	app := &store.Application{Layout: &statedir.Application{ID: nameless, Path: t.base}, Tasks: []*store.Task{task}}
	d := &store.StateDir{Layout: &statedir.Dir{Path: t.base}, Applications: []*store.Application{app}}
	u, err := volume.Do(t.volume, t.alone, func(fs volume.FS) (volume.Usage, error) { return fs.Usage(t.alone) })
	if err == nil {
		d.Layout.Usage = &u
	}
	return d
}

// LookAll takes a picture of each target. A state directory that is given twice
// under two names is there once.
func LookAll(targets []Target, before []*store.StateDir) []*store.StateDir {
	out := make([]*store.StateDir, len(targets))
	var whole []*store.StateDir
	for i, t := range targets {
		out[i] = t.Look(before[i])
		if t.Within == "" {
			whole = append(whole, out[i])
		}
	}
	whole = store.Once(whole)
	for i, t := range targets {
		if t.Within == "" {
			out[i], whole = whole[0], whole[1:]
		}
	}
	return out
}

// nameless is the id of what is not known of a database on its own.
const nameless = "-"

// Covers says that an application, task or store at a path is meant: itself, what
// is in it, or what it is in.
func (t *Target) Covers(path string) bool {
	return t.Within == "" || within(path, t.Within) || within(t.Within, path)
}
