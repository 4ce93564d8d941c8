package shutdown

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/probe"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
)

// app is one application whose locks are asked.
type app struct {
	key key
	v   *volume.Volume
	a   *store.Application
	id  string
}

func newApp(v *volume.Volume, dir int, a *store.Application) app {
	id := volume.Text(a.Layout.ID)
	return app{key{dir, id}, v, a, id}
}

func (x app) lockPath() string { return filepath.Join(x.a.Layout.Path, ".lock") }

// moment is what the locks say at one time.
type moment struct {
	held []app // hold .lock, or a LOCK below a .lock that is free
	// unknown says why it cannot be told of something whether it runs; ""
	// if it can be told of everything.
	unknown string
}

// nothing says that no application runs, for sure.
func (m *moment) nothing() bool { return len(m.held) == 0 && m.unknown == "" }

// first asks all locks. The list of applications is from the picture; before
// there is one it waits for it.
func (g *Gate) first(deadline time.Time) moment {
	for {
		if snap := g.cfg.Snapshot(); snap != nil {
			return g.ask(snap)
		}
		if time.Now().After(deadline) || g.ending() {
			return moment{unknown: "the state directory has not been read yet"}
		}
		g.sleep(poll)
	}
}

// next asks again those locks that were held; everything where something was
// unknown: a lock that could not be asked may be held.
func (g *Gate) next(m moment) moment {
	if m.unknown != "" {
		if snap := g.cfg.Snapshot(); snap != nil {
			return g.ask(snap)
		}
		return m
	}
	var now moment
	for _, x := range m.held {
		now.add(x)
	}
	return now
}

// ask asks every lock of a picture now.
func (g *Gate) ask(snap *probe.Snapshot) moment {
	m := moment{unknown: anyUnreadable(snap)}
	for i, d := range snap.StateDirs {
		for _, a := range d.Applications {
			m.add(newApp(g.cfg.Volumes[i], i, a))
		}
	}
	return m
}

// add asks one application. .lock is released last, so that a LOCK below a free
// one means that .lock was removed or replaced.
func (m *moment) add(x app) {
	held, err := x.a.Layout.AskLock(x.v)
	switch {
	case err != nil:
		m.unknown = err.Error()
	case held || x.open():
		m.held = append(m.held, x)
	}
}

// open says that a LOCK is held which the picture, too, shows as held.
func (x app) open() bool {
	for _, l := range x.locked() {
		if are, err := l.ask(x.v); err == nil && slices.Contains(are, lockHeld) {
			return true
		}
	}
	return false
}

// locks are LOCKs of one task, which are asked in one go: a look at the volume
// costs more than the question.
type locks struct {
	task  string // its path
	paths []string
}

// lockState is the answer of one LOCK.
type lockState int

const (
	lockUnknown lockState = iota // it could not be asked, or there is none any more
	lockFree
	lockHeld
)

func (l locks) ask(v *volume.Volume) (are []lockState, err error) {
	return volume.Do(v, l.task, func(fs volume.FS) ([]lockState, error) {
		are := make([]lockState, len(l.paths))
		for i, p := range l.paths {
			switch lock, err := fs.Lock(p); {
			case err != nil:
			case lock.Held:
				are[i] = lockHeld
			default:
				are[i] = lockFree
			}
		}
		return are, nil
	})
}

// locked are the LOCKs that the picture shows as held.
func (x app) locked() (out []locks) {
	for _, t := range x.a.Tasks {
		l := locks{task: t.Layout.Path}
		for _, s := range t.Stores {
			for _, db := range s.Databases {
				if db.InUse != nil && *db.InUse {
					l.paths = append(l.paths, db.LockPath())
				}
			}
		}
		if len(l.paths) > 0 {
			out = append(out, l)
		}
	}
	return out
}

// closingLook is the time between the two looks that tell an application that
// closes its stores from one that runs.
const closingLook = 40 * time.Millisecond

// closing says that an application has begun to close: a LOCK that is held now
// is free a moment later, while .lock is held. The picture alone cannot tell:
// it may be older than the last store that was closed for other reasons.
func (m *moment) closing() bool {
	type open struct {
		v *volume.Volume
		locks
	}
	var before []open
	for _, x := range m.held {
		for _, l := range x.locked() {
			are, err := l.ask(x.v)
			if err != nil {
				continue
			}
			var paths []string
			for i, is := range are {
				if is == lockHeld {
					paths = append(paths, l.paths[i])
				}
			}
			if len(paths) > 0 {
				before = append(before, open{x.v, locks{l.task, paths}})
			}
		}
	}
	if len(before) == 0 {
		return false
	}
	time.Sleep(closingLook)
	for _, o := range before {
		// One that is gone was not let go of: segments expire.
		if are, err := o.ask(o.v); err == nil && slices.Contains(are, lockFree) {
			return true
		}
	}
	return false
}

// anyUnreadable says which state directory could not be read, so that nothing can
// be said of what runs in it. One that does not exist has nothing in it.
func anyUnreadable(snap *probe.Snapshot) string {
	for _, d := range snap.StateDirs {
		if why := unreadable(d); why != "" {
			return why
		}
	}
	return ""
}

func unreadable(d *store.StateDir) string {
	for _, f := range d.Layout.Findings {
		if f.Code == finding.StateDirIsApplication || f.Severity == finding.Unreadable && f.Code != finding.StateDirMissing {
			return fmt.Sprintf("%s: %s (%s)", volume.Text(d.Layout.Path), f.Text, f.Code)
		}
	}
	return ""
}
