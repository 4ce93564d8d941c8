package statedir

import (
	"cmp"
	"slices"
	"strings"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/volume"
)

// folder is a directory in a task that holds databases: rocksdb, or a
// segmented store.
type folder struct {
	*place
	task    *taskNode
	entries []volume.Info
	store   *Store // nil for rocksdb
}

// findings is where those about the folder and what is no database in it go.
func (f *folder) findings() *[]finding.Finding {
	if f.store != nil {
		return &f.store.Findings
	}
	return &f.task.task.Findings
}

// folders looks at the directories in all tasks.
func (s *scanner) folders(tasks []*taskNode) []*folder {
	folders := make([]*folder, 0, len(tasks))
	level := make([]*place, 0, len(tasks))
	for _, t := range tasks {
		for i := range t.entries {
			if f := s.folder(t, &t.entries[i]); f != nil {
				folders, level = append(folders, f), append(level, f.place)
			}
		}
	}
	s.claim(level)
	return slices.DeleteFunc(folders, func(f *folder) bool {
		f.tellOutside(f.findings())
		if !s.counted(f.place, &f.task.task.Findings) {
			return true
		}
		if f.store != nil {
			f.task.task.Stores = append(f.task.task.Stores, f.store)
		}
		return false
	})
}

// folder gives nil for what holds no databases of Streams.
func (s *scanner) folder(t *taskNode, e *volume.Info) *folder {
	fs := &t.task.Findings
	rocksdb := e.Name == rocksdbName
	if !rocksdb && !mayBeDirectory(e.Kind) {
		return nil
	}
	p, ok := s.enter(t.place, e, fs)
	if !ok {
		return nil
	}
	if !p.isDirectory() {
		if rocksdb {
			*fs = append(*fs, wrongKind(p))
		}
		return nil
	}
	if known, ok := s.before.foreign[p.path]; ok && known.stamp == stampOf(p.info) {
		s.foreign(p, fs)
		return nil
	}
	l, err := volume.Do(s.v, p.path, func(fs volume.FS) (listing, error) {
		return list(fs, p.path, func(string, volume.Kind) bool { return true }), nil
	})
	err = cmp.Or(err, l.err)
	switch {
	case volume.IsGone(err):
		return nil
	case rocksdb:
		add(fs, err, p.path)
		return &folder{place: p, task: t, entries: l.entries}
	case err == nil && !p.isSegmented(l.entries):
		s.foreign(p, fs)
		return nil
	}
	store := &Store{
		Name: p.name, Path: p.path, DirID: p.info.ID(), Segmented: true,
		SetAside: looksSetAside(p.name), Empty: err == nil && len(l.entries) == 0,
	}
	add(&store.Findings, err, p.path)
	return &folder{place: p, task: t, entries: l.entries, store: store}
}

// isSegmented tells a window or session store from other directories: it has a
// segment of its own name, or nothing yet (Streams makes the directory when it
// opens the store, and the first segment with the first record).
func (p *place) isSegmented(entries []volume.Info) bool {
	if len(entries) == 0 {
		return !looksSetAside(p.name)
	}
	return slices.ContainsFunc(entries, func(e volume.Info) bool {
		_, _, ok := segmentStart(p.name, e.Name)
		return ok
	})
}

// foreign adds the finding of a directory that Streams ignores. Its size is
// taken from memory as long as its time is the same.
func (s *scanner) foreign(p *place, to *[]finding.Finding) {
	f, keep := s.before.foreign[p.path]
	if now := stampOf(p.info); !keep || f.stamp != now {
		f, keep = foreignDir{stamp: now}, true
		if !p.link {
			var err error
			if keep, err = s.measure(&f, p.path); err != nil {
				if !volume.IsGone(err) {
					*to = append(*to, finding.New(finding.ForeignDirectory, p.path, finding.Found("%v", err)))
				}
				return
			}
		}
	}
	if keep {
		s.dir.memory.foreign[p.path] = f
	}
	found := finding.Found("%d bytes", f.bytes)
	switch {
	case p.link: // what it leads to is not space used here
		found = finding.Found("a symbolic link to a directory")
	case !f.exact:
		found = finding.Found("at least %d bytes", f.bytes)
	}
	*to = append(*to, finding.New(finding.ForeignDirectory, p.path, found))
}

// measure fills in the size of a directory; final is false if a later scan,
// with more of its budget left, may find out more.
func (s *scanner) measure(f *foreignDir, path string) (final bool, err error) {
	type look struct {
		bytes   int64
		entries int
		exact   bool
	}
	limit := s.budget
	l, err := volume.Do(s.v, path, func(fs volume.FS) (l look, err error) {
		l.bytes, l.entries, l.exact, err = size(fs, path, limit)
		return l, err
	})
	f.bytes, f.exact = l.bytes, l.exact
	s.budget -= l.entries
	return l.exact || l.entries < limit || limit == foreignBudget, err
}

// database is a single database or a segment on its way into the result.
type database struct {
	*place
	in         *folder
	start      int64
	startKnown bool
}

// databases finds the databases in the folders of all tasks.
func (s *scanner) databases(folders []*folder) {
	var all []database
	for _, f := range folders {
		for i := range f.entries {
			if d, ok := s.database(f, &f.entries[i]); ok {
				all = append(all, d)
			}
		}
	}
	level := make([]*place, len(all))
	for i := range all {
		level[i] = all[i].place
	}
	s.claim(level)
	for i := range all {
		d := &all[i]
		if !s.counted(d.place, d.in.findings()) {
			continue
		}
		if store := d.in.store; store != nil {
			d.tellOutside(&store.Findings)
			store.Segments = append(store.Segments, Segment{
				Name: d.name, Path: d.path, DirID: d.info.ID(), StartMillis: d.start, StartKnown: d.startKnown,
			})
			continue
		}
		s.single(d)
	}
	for _, f := range folders {
		if f.store != nil {
			slices.SortFunc(f.store.Segments, compareSegments)
		}
	}
}

// database gives the place of a database; ok is false for everything else.
func (s *scanner) database(f *folder, e *volume.Info) (d database, ok bool) {
	d.in = f
	fs := f.findings()
	if f.store != nil {
		if d.start, d.startKnown, ok = segmentStart(f.name, e.Name); !ok {
			*fs = append(*fs, finding.New(finding.ForeignInSegments, join(f.path, e.Name),
				finding.Expected("segments of %s", volume.Text(f.name)), finding.Found("a %s", e.Kind)))
			return d, false
		}
	}
	if d.place, ok = s.enter(f.place, e, fs); !ok {
		return d, false
	}
	if d.isDirectory() {
		return d, true
	}
	// Streams does not list rocksdb/: a file there matters only where a store
	// has its name, and none has one like those that tools leave.
	if f.store != nil || !strings.HasPrefix(e.Name, ".") {
		*fs = append(*fs, wrongKind(d.place))
	}
	return d, false
}

// single adds the store of a single database to its task.
func (s *scanner) single(d *database) {
	store := &Store{Name: d.name, Path: d.path, DirID: d.info.ID(), SetAside: looksSetAside(d.name)}
	d.tellOutside(&store.Findings)
	// What was not empty stays so until its time changes. Listing it is most
	// of what an idle scan would cost, and its reader lists it anyway.
	path, now := d.path, stampOf(d.info)
	was, known := s.before.filled[path]
	if known = known && was == now; !known {
		empty, err := volume.Do(s.v, path, func(fs volume.FS) (bool, error) { return isEmpty(fs, path) })
		if volume.IsGone(err) {
			return
		}
		add(&store.Findings, err, path)
		store.Empty = empty
		known = err == nil && !empty
	}
	if known {
		s.dir.memory.filled[path] = now
	}
	t := d.in.task.task
	t.Stores = append(t.Stores, store)
}
