package statedir

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/volume"
)

// foreignBudget is how many entries one scan may look at to tell the sizes of
// directories that Streams ignores.
const foreignBudget = 50_000

// maxFindings is how many findings one application, task or store may have;
// one more then says how many there are.
const maxFindings = 100

// Scan reads a state directory. It never fails as a whole: what could not be
// read is a finding where it belongs, and the rest is unaffected.
//
// prev is an earlier result for the same path, or nil. Files that have not
// changed since (by device, inode, size and modification time) are not read
// again, so that a scan of an idle directory costs listings, stats and
// questions for locks. An Application, Task or Store that equals that of prev
// is prev's own pointer.
func Scan(v *volume.Volume, path string, prev *Dir) *Dir {
	s := &scanner{
		v: v, dir: &Dir{Path: path}, before: &memory{},
		claims: map[volume.ID]*place{}, budget: foreignBudget,
	}
	if prev != nil {
		s.known = prev.Applications
		if prev.memory != nil {
			s.before = prev.memory
		}
	}
	s.dir.memory = newMemory(s.before)
	if !s.scan() {
		// Not reached in this moment, which says nothing about its files.
		s.dir.memory = s.before
	}
	return s.dir
}

// scanner is one scan. It goes down level by level and not application by
// application: which of two names of a directory is counted can be told only
// when all of their level are known.
type scanner struct {
	v      *volume.Volume
	dir    *Dir
	known  []*Application // of prev
	before *memory        // of prev
	claims map[volume.ID]*place
	level  int
	budget int // entries left of foreignBudget
}

func (s *scanner) scan() bool {
	root, ok := s.resolve()
	if !ok {
		return false
	}
	candidates, ok := s.candidates(root)
	if !ok {
		return false
	}
	apps := s.applications(candidates)
	tasks := s.tasks(apps)
	s.databases(s.folders(tasks))
	for _, t := range tasks {
		t.settle(t.app.app.ID)
		t.app.app.Tasks = append(t.app.app.Tasks, t.task)
	}
	for _, a := range apps {
		slices.SortFunc(a.app.Tasks, compareTasks)
		settleFindings(&a.app.Findings, a.path)
		s.dir.Applications = append(s.dir.Applications, a.app)
	}
	slices.SortFunc(s.dir.Applications, compareApplications)
	settleFindings(&s.dir.Findings, root.path)
	reuse(s.dir.Applications, s.known, compareApplications, sameApplication)
	return true
}

// resolve finds the state directory itself.
func (s *scanner) resolve() (*place, bool) {
	d := s.dir
	type look struct {
		info     volume.Info
		resolved string
		err      error // of Resolve
	}
	l, err := volume.Do(s.v, d.Path, func(fs volume.FS) (l look, err error) {
		if l.info, err = follow(fs, d.Path); err == nil {
			l.resolved, l.err = fs.Resolve(d.Path)
		}
		return l, err
	})
	if volume.IsGone(err) {
		d.miss(err)
		return nil, false
	}
	add(&d.Findings, err, d.Path)
	add(&d.Findings, l.err, d.Path)
	if err != nil {
		return nil, false
	}
	root := &place{name: l.info.Name, path: d.Path, info: l.info}
	if l.resolved != "" {
		d.Resolved, root.path = l.resolved, l.resolved
	}
	if !root.isDirectory() {
		d.Findings = append(d.Findings, wrongKind(root))
		return nil, false
	}
	d.ID = l.info.ID()
	s.claim([]*place{root}) // a link may lead back to it
	return root, true
}

func (d *Dir) miss(err error) {
	d.Missing = true
	d.Findings = append(d.Findings, finding.New(finding.StateDirMissing, d.Path, finding.Found("%v", err)))
}

// candidates lists the directories that may be applications. ok is false if
// the state directory cannot be listed or is itself an application.
func (s *scanner) candidates(root *place) (out []*place, ok bool) {
	d := s.dir
	type look struct {
		listing
		usage    volume.Usage
		usageErr error
	}
	l, err := volume.Do(s.v, root.path, func(fs volume.FS) (l look, err error) {
		l.listing = list(fs, root.path, func(name string, kind volume.Kind) bool {
			return mayBeDirectory(kind) || name == processName
		})
		l.usage, l.usageErr = fs.Usage(root.path)
		return l, nil
	})
	if err == nil && l.usageErr == nil {
		usage := l.usage
		d.Usage = &usage
	}
	err = cmp.Or(err, l.err)
	if volume.IsGone(err) {
		d.miss(err)
		return nil, false
	}
	add(&d.Findings, err, root.path)
	add(&d.Findings, l.usageErr, root.path)
	isApplication := false
	for i := range l.entries {
		e := &l.entries[i]
		if e.Name == processName && e.Kind != volume.Directory {
			isApplication = true
			continue
		}
		if e.Name == sidecarName {
			continue
		}
		p, ok := s.enter(root, e, &d.Findings)
		if !ok || !p.isDirectory() {
			continue
		}
		isApplication = isApplication || IsTaskName(e.Name)
		out = append(out, p)
	}
	if isApplication {
		d.Findings = append(d.Findings, finding.New(finding.StateDirIsApplication, root.path,
			finding.Expected("the state directory, which may be %s", volume.Text(filepath.Dir(root.path)))))
		return nil, false
	}
	return out, len(l.entries) > 0 || err == nil
}

// listing is what could be listed of a directory, and the error if that is not all.
type listing struct {
	entries []volume.Info // by name
	err     error
}

func list(fs volume.FS, dir string, keep func(name string, kind volume.Kind) bool) listing {
	l := listing{entries: make([]volume.Info, 0, 8)} // what a task has
	l.err = fs.List(dir, func(e volume.Info) error {
		if keep(e.Name, e.Kind) {
			l.entries = append(l.entries, e)
		}
		return nil
	})
	slices.SortFunc(l.entries, func(a, b volume.Info) int { return strings.Compare(a.Name, b.Name) })
	return l
}

func mayBeDirectory(k volume.Kind) bool { return k == volume.Directory || k == volume.Symlink }

// lockAnswer is what a look found out about a .lock.
type lockAnswer struct {
	exists bool
	lock   volume.Lock
	err    error
}

func askLock(fs volume.FS, dir string, e *volume.Info) lockAnswer {
	a := lockAnswer{exists: true}
	if _, a.err = regular(fs, dir, e); a.err == nil {
		a.lock, a.err = fs.Lock(join(dir, e.Name))
	}
	// Streams makes the file where there is none or where a link leads to none.
	if volume.IsGone(a.err) {
		a.exists = false
	}
	return a
}

// held is nil if the lock could not be asked.
func (a *lockAnswer) held() *bool {
	if a.exists && a.err != nil {
		return nil
	}
	held := a.lock.Held
	return &held
}

// settleFindings puts the worst first, and bounds how many there are.
func settleFindings(fs *[]finding.Finding, path string) {
	slices.SortStableFunc(*fs, func(a, b finding.Finding) int {
		return cmp.Or(cmp.Compare(b.Severity.Rank(), a.Severity.Rank()),
			strings.Compare(a.File, b.File), strings.Compare(string(a.Code), string(b.Code)))
	})
	if more := len(*fs) - maxFindings; more > 0 {
		code := (*fs)[maxFindings].Code
		*fs = append(slices.Clone((*fs)[:maxFindings]),
			finding.New(code, path, finding.Found("%d more findings of this and other kinds", more)))
	}
}
