package statedir

import (
	"cmp"
	"slices"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/volume"
)

// appNode is an application on its way into the result.
type appNode struct {
	*place
	app     *Application
	entries []volume.Info // directories, and whatever has the name of one
}

// applications looks at the candidates and leaves those that are applications.
func (s *scanner) applications(candidates []*place) []*appNode {
	nodes := make([]*appNode, 0, len(candidates))
	level := make([]*place, 0, len(candidates))
	for _, p := range candidates {
		if a := s.application(p); a != nil {
			nodes, level = append(nodes, a), append(level, p)
		}
	}
	s.claim(level)
	return slices.DeleteFunc(nodes, func(a *appNode) bool {
		a.tellOutside(&a.app.Findings)
		return !s.counted(a.place, &s.dir.Findings)
	})
}

// application gives nil if the directory is none.
func (s *scanner) application(p *place) *appNode {
	type look struct {
		listing
		lock    lockAnswer
		process processFile
	}
	path, before := p.path, s.before
	l, err := volume.Do(s.v, path, func(fs volume.FS) (look, error) {
		l := look{listing: list(fs, path, func(name string, kind volume.Kind) bool {
			return mayBeDirectory(kind) || name == lockName || name == processName ||
				name == GlobalName || IsTaskName(name)
		})}
		for i := range l.entries {
			switch e := &l.entries[i]; e.Name {
			case lockName:
				l.lock = askLock(fs, path, e)
			case processName:
				l.process = readProcess(fs, path, e, before)
			}
		}
		return l, nil
	})
	err = cmp.Or(err, l.err)
	if volume.IsGone(err) || err != nil && p.name == lostFoundName {
		return nil
	}
	// One that can no longer be read is still an application.
	known := err != nil && slices.ContainsFunc(s.known, func(a *Application) bool { return a.Path == path })
	if !known && !s.isApplication(p, l.entries) {
		add(&s.dir.Findings, err, path)
		return nil
	}
	app := &Application{
		ID: p.name, Path: path, DirID: p.info.ID(), UID: p.info.UID, GID: p.info.GID,
		LockFile: l.lock.exists, HolderPID: l.lock.lock.PID, ProcessID: l.process.id,
	}
	if err == nil || l.lock.exists {
		app.Running = l.lock.held()
	}
	add(&app.Findings, err, path)
	add(&app.Findings, l.lock.err, join(path, lockName))
	starting := app.Running != nil && *app.Running && l.process.beingMade()
	if f, ok := l.process.problem(join(path, processName)); ok && !starting {
		app.Findings = append(app.Findings, f)
	}
	if l.process.stamp != (stamp{}) { // or else there is none, or it could not be read
		s.dir.memory.processes[path] = l.process
	}
	return &appNode{place: p, app: app, entries: l.entries}
}

// isApplication tells an application from other directories in the state
// directory: it has a .lock, a process id, a task, or a global store.
func (s *scanner) isApplication(p *place, entries []volume.Info) bool {
	for i := range entries {
		switch e := &entries[i]; e.Name {
		case lockName, processName:
			if e.Kind != volume.Directory {
				return true
			}
		default:
			if IsTaskName(e.Name) && e.Kind == volume.Directory {
				return true
			}
		}
	}
	var ignored []finding.Finding
	for i := range entries {
		e := &entries[i]
		_, topology := topologyOf(e.Name)
		if !topology && e.Name != GlobalName && !IsTaskName(e.Name) {
			continue
		}
		in, ok := s.enter(p, e, &ignored)
		switch {
		case !ok || !in.isDirectory():
		case topology:
			if slices.ContainsFunc(s.look(in).entries, func(e volume.Info) bool {
				return IsTaskName(e.Name) && mayBeDirectory(e.Kind)
			}) {
				return true
			}
		case e.Name == GlobalName:
			if s.holdsStore(in) {
				return true
			}
		default:
			return true
		}
	}
	return false
}

// look lists the directories in a directory, and whatever has the name of a
// task. Its error is never nil if it is not complete.
func (s *scanner) look(p *place) listing {
	l, err := volume.Do(s.v, p.path, func(fs volume.FS) (listing, error) {
		return list(fs, p.path, func(name string, kind volume.Kind) bool {
			return mayBeDirectory(kind) || IsTaskName(name)
		}), nil
	})
	l.err = cmp.Or(err, l.err)
	return l
}

func (s *scanner) holdsStore(global *place) bool {
	var ignored []finding.Finding
	for _, e := range s.look(global).entries {
		p, ok := s.enter(global, &e, &ignored)
		if !ok || !p.isDirectory() {
			continue
		}
		for _, in := range s.look(p).entries {
			if _, _, segment := segmentStart(e.Name, in.Name); segment || e.Name == rocksdbName {
				return true
			}
		}
	}
	return false
}
