// Package store joins the two readers below it: statedir, which knows where
// Kafka Streams keeps a store, and rocksfile, which knows what RocksDB wrote
// there. The result is one store, whole: its kind and era, column families,
// sizes, the changelog offsets that are durable, whether it is in use, and
// whether its last close was clean where the files can tell.
//
// What is wrong with a file it finds while it reads; what follows from several
// files, and the verdicts, are verify's. It forecasts nothing. It reads only
// through volume, keeps no file open, and everything it returns is immutable:
// a later look takes the earlier one as its memory and returns a new value, or
// the same one when nothing has changed.
package store

import (
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/rocksfile/manifest"
	"streams-sidecar/internal/statedir"
	"streams-sidecar/internal/volume"
)

// Kind of a store: what its files prove, never what its name suggests. The
// empty Kind means that they prove nothing.
type Kind string

// The kinds.
const (
	KeyValue    Kind = "key-value"   // one database with the family default; versioned stores look the same
	Timestamped Kind = "timestamped" // keyValueWithTimestamp beside default
	Headers     Kind = "headers"     // keyValueWithTimestampAndHeaders (≥ 4.3)
	Segmented   Kind = "segmented"   // a folder of segment databases: window or session, not told apart
	Window      Kind = "window"      // segmented, with windowKeyValueWithHeaders
	Session     Kind = "session"     // segmented, with sessionKeyValueWithHeaders
)

// Era is the layout that a store was last written in. The empty Era means that
// the files do not tell.
type Era string

// The eras, named for where the bookkeeping lies.
const (
	TaskLock   Era = "task-lock"  // ≤ 2.8: .lock in each task, offsets in .checkpoint
	Checkpoint Era = "checkpoint" // 3.0–4.2: offsets in .checkpoint
	OffsetsCF  Era = "offsets-cf" // ≥ 4.3: offsets in the column family offsets (KIP-1035)
)

// Status is the store's own mark in the column family offsets (≥ 4.3, not with
// transactional stores).
type Status string

// The two values that Streams writes.
const (
	StatusOpen   Status = "open"
	StatusClosed Status = "closed"
)

// Closed tells how a store at rest was last closed; empty where that cannot be
// told from files at rest (before 4.3, in use, transactional).
type Closed string

// The two answers.
const (
	Clean   Closed = "clean"
	Unclean Closed = "unclean"
)

// Meaning of a changelog offset.
type Meaning string

// Task stores keep the offset of the last record applied, global stores the
// offset of the next record to read (measured on 2.8.2–4.4.0).
const (
	LastApplied Meaning = "last-applied"
	Next        Meaning = "next"
)

// Offset is a durable changelog position of a store.
type Offset struct {
	Topic     string
	Partition int32
	Offset    int64
	Meaning   Meaning
}

// Sizes are bytes on disk by kind of file, as st_size. Other is everything
// that is none of the first four (OPTIONS, IDENTITY, CURRENT, temporary files).
type Sizes struct {
	SST, WAL, Log, Manifest, Other int64
}

// Total of all kinds.
func (s Sizes) Total() int64 { return s.SST + s.WAL + s.Log + s.Manifest + s.Other }

func (s *Sizes) add(o Sizes) {
	s.SST += o.SST
	s.WAL += o.WAL
	s.Log += o.Log
	s.Manifest += o.Manifest
	s.Other += o.Other
}

// Level is the live tables of one level of a column family.
type Level struct {
	Level int
	Files int
	Bytes int64
}

// Family is one column family, summed over the segments of a segmented store.
type Family struct {
	Name  string
	Files int   // live tables
	Bytes int64 // of them, as the MANIFEST says
	// Entries with a value in the live tables; tombstones do not count, and
	// a key that was overwritten counts once in each table that has it. Nil
	// if a table could not be read.
	Entries *uint64
	Levels  []Level // those that have files, ascending
}

// Store is one state store at one moment.
type Store struct {
	owner
	Layout *statedir.Store
	Name   string

	Kind   Kind
	Era    Era
	InUse  *bool // a LOCK is held; nil if it could not be asked
	Status Status
	Closed Closed
	// Empty means that there is nothing in it, Sound that every part of it that
	// was needed could be read and parsed.
	Empty, Sound bool

	Sizes    Sizes
	Segments int // databases of a segmented store; 0 for others
	Families []Family
	Offsets  []Offset
	WALFiles int
	// WALWritten is when a WAL with bytes was last written, nanoseconds since
	// the epoch; 0 if no WAL has bytes.
	WALWritten int64
	// WALEnabled is true once bytes were seen in a WAL, false after a flush
	// during which the WAL stayed empty, nil until one of the two was seen.
	WALEnabled *bool
	// LastSequence of the flushed state, summed over segments; nil if unknown.
	LastSequence *uint64
	// Counts of flushes and compactions since the agent first saw the store,
	// including what its MANIFEST then told of the time before.
	Counts manifest.Counts
	// Whole says that every MANIFEST was parsed to its end, so that what it
	// tells is the state and not a part of it.
	Whole bool
	// Up says that the last look read everything that it needed, Listed that
	// it could at least list the directories, so that sizes are known.
	Up, Listed bool

	Findings []finding.Finding

	Databases []*Database // one, or one per segment

	retired manifest.Counts // of databases that are gone
	doubted bool            // Closed was taken back; the next look judges anew
}

// Task is one task with its stores.
type Task struct {
	Layout   *statedir.Task
	Era      Era  // if all stores agree
	Empty    bool // there is nothing in it: no store with anything, and no .checkpoint
	Stores   []*Store
	Findings []finding.Finding
}

// Application is everything of one application id.
type Application struct {
	Layout *statedir.Application
	// Running says that its .lock is held. It is nil if that could not be
	// asked, and where the answer cannot be true: a store is open although
	// nobody holds .lock.
	Running  *bool
	Tasks    []*Task
	Findings []finding.Finding
}

// StateDir is one state directory at one moment.
type StateDir struct {
	Layout       *statedir.Dir
	Applications []*Application
}

// Stores calls f for every store.
func (s *StateDir) Stores(f func(*Application, *Task, *Store)) {
	for _, a := range s.Applications {
		for _, t := range a.Tasks {
			for _, st := range t.Stores {
				f(a, t, st)
			}
		}
	}
}

// Databases are those that there are, of every store: no empty directories.
func (s *StateDir) Databases() (out []*Database) {
	s.Stores(func(_ *Application, _ *Task, st *Store) {
		for _, db := range st.Databases {
			if !db.IsEmpty() {
				out = append(out, db)
			}
		}
	})
	return out
}

// Database is the one at a path, nil if there is none.
func (s *StateDir) Database(path string) *Database {
	for _, db := range s.Databases() {
		if db.Path == path {
			return db
		}
	}
	return nil
}

// Scan reads a state directory. What could not be read is a finding where it
// belongs; the rest is unaffected. With the result of an earlier scan, only
// what has changed since is read: an idle store costs its directory entries,
// their stats, and one look at its LOCK.
func Scan(v *volume.Volume, path string, prev *StateDir) *StateDir {
	var prevLayout *statedir.Dir
	if prev != nil {
		prevLayout = prev.Layout
	}
	layout := statedir.Scan(v, path, prevLayout)
	return assemble(v, layout, newMemory(prev), nil)
}

// Refresh looks again at the databases whose directory is in dirty, and at
// nothing else: what events call for between two scans.
func (s *StateDir) Refresh(v *volume.Volume, dirty map[string]bool) *StateDir {
	return assemble(v, s.Layout, newMemory(s), dirty)
}

// memory finds the earlier look at a store by the path of its directory.
type memory map[string]*Store

func newMemory(prev *StateDir) memory {
	if prev == nil {
		return nil
	}
	m := memory{}
	prev.Stores(func(_ *Application, _ *Task, s *Store) { m[s.Layout.Path] = s })
	return m
}

func assemble(v *volume.Volume, layout *statedir.Dir, mem memory, dirty map[string]bool) *StateDir {
	out := &StateDir{Layout: layout, Applications: make([]*Application, 0, len(layout.Applications))}
	stores := lookAtAll(v, layout, mem, dirty)
	for _, al := range layout.Applications {
		app := &Application{Layout: al, Running: al.Running, Findings: al.Findings, Tasks: make([]*Task, 0, len(al.Tasks))}
		for _, tl := range al.Tasks {
			app.Tasks = append(app.Tasks, assembleTask(al, tl, stores[:len(tl.Stores)]))
			stores = stores[len(tl.Stores):]
		}
		app.doubt(v)
		out.Applications = append(out.Applications, app)
	}
	return out
}

// lookers is how many stores are looked at at a time: enough for the processors
// of most pods, and few for a volume.
const lookers = 4

// lookAtAll looks at every store, in the order of the layout.
func lookAtAll(v *volume.Volume, layout *statedir.Dir, mem memory, dirty map[string]bool) []*Store {
	var looks []func() *Store
	for _, al := range layout.Applications {
		for _, tl := range al.Tasks {
			for _, sl := range tl.Stores {
				looks = append(looks, func() *Store { return look(v, owner{al, tl}, sl, mem[sl.Path], dirty) })
			}
		}
	}
	out := make([]*Store, len(looks))
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(len(looks), runtime.GOMAXPROCS(0), lookers) {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(looks)); i = next.Add(1) - 1 {
				out[i] = looks[i]()
			}
		})
	}
	all.Wait()
	return out
}

// doubt asks .lock again where a store is open and .lock was free: it may have
// been taken meanwhile. If it is still free, something is wrong.
func (a *Application) doubt(v *volume.Volume) {
	if a.Running == nil || *a.Running {
		return
	}
	open := a.openStore()
	if open == "" {
		return
	}
	held, err := a.Layout.AskLock(v)
	switch {
	case err != nil || !held:
		a.Running = nil
		a.Findings = append(slices.Clip(a.Findings), finding.New(finding.LockWithoutAppLock, filepath.Join(a.Layout.Path, ".lock"),
			finding.Expected("held, as long as a store is open"), finding.Found("free, while %s is held", volume.Text(open))))
	default:
		a.Running = &held
	}
	for _, t := range a.Tasks {
		for i, s := range t.Stores {
			if s.Closed != "" {
				c := *s
				c.Closed, c.doubted = "", true // not at rest
				t.Stores[i] = &c
			}
		}
	}
}

// openStore gives a LOCK of the application that is held, "" if none is.
func (a *Application) openStore() string {
	for _, t := range a.Tasks {
		for _, s := range t.Stores {
			for _, db := range s.Databases {
				if db.InUse != nil && *db.InUse {
					return db.LockPath()
				}
			}
		}
	}
	return ""
}

func assembleTask(al *statedir.Application, tl *statedir.Task, stores []*Store) *Task {
	t := &Task{Layout: tl, Stores: make([]*Store, 0, len(tl.Stores))}
	t.Findings = append(t.Findings, tl.Findings...)
	for i, sl := range tl.Stores {
		s := stores[i]
		if sl.SetAside && !s.namedByOffsets(al, tl) {
			t.Findings = append(t.Findings, finding.New(finding.ForeignDirectory, sl.Path,
				finding.Found("%d bytes", s.Sizes.Total())))
			continue
		}
		if slices.ContainsFunc(t.Stores, func(o *Store) bool { return o.Name == s.Name }) {
			t.Findings = append(t.Findings, finding.New(finding.SameStoreName, sl.Path))
		}
		t.Stores = append(t.Stores, s)
	}
	t.Empty = isEmpty(t)
	t.Era = agreed(t.Stores)
	return t
}

func isEmpty(t *Task) bool {
	return sound(t.Layout.Findings) && t.Layout.Checkpoint == nil &&
		!slices.ContainsFunc(t.Stores, func(s *Store) bool { return !s.Empty })
}

func agreed(stores []*Store) Era {
	var era Era
	for _, s := range stores {
		switch {
		case s.Era == "":
		case era == "":
			era = s.Era
		case era != s.Era:
			return ""
		}
	}
	return era
}

func sound(fs []finding.Finding) bool {
	return !slices.ContainsFunc(fs, func(f finding.Finding) bool { return !f.Severity.Judgeable() })
}

// namedByOffsets says that a durable offset names this directory as a store of
// its task. A directory that only looks set aside is then a store after all.
func (s *Store) namedByOffsets(al *statedir.Application, tl *statedir.Task) bool {
	topic := tl.ChangelogTopic(al.ID, s.Name)
	if tl.Checkpoint != nil {
		for _, e := range tl.Checkpoint.Entries {
			if e.Topic == topic {
				return true
			}
		}
	}
	for _, db := range s.Databases {
		for i := range db.offsets.entries {
			if db.offsets.entries[i].Topic == topic {
				return true
			}
		}
	}
	return false
}

// ScanAll reads several state directories, each through its own volume. A
// directory that is given twice under two names is read once; the second entry
// only says so. prev is the result of the call before, or nil.
func ScanAll(vs []*volume.Volume, paths []string, prev []*StateDir) []*StateDir {
	out := make([]*StateDir, len(paths))
	for i, path := range paths {
		var before *StateDir
		if prev != nil {
			before = prev[i]
		}
		out[i] = Scan(vs[i], path, before)
	}
	return Once(out)
}

// Once leaves nothing in a state directory that is another name of an earlier one,
// but a finding that says so.
func Once(dirs []*StateDir) []*StateDir {
	first := map[volume.ID]string{}
	for i, d := range dirs {
		if d.Layout.ID == (volume.ID{}) {
			continue
		}
		name, twice := first[d.Layout.ID]
		if !twice {
			first[d.Layout.ID] = d.Layout.Path
			continue
		}
		l := *d.Layout
		l.Applications = nil
		l.Findings = []finding.Finding{finding.New(finding.SameDirectory, l.Path, finding.Found("the same as %s", volume.Text(name)))}
		dirs[i] = &StateDir{Layout: &l}
	}
	return dirs
}

// Alone reads one database directory that is not looked for in a state
// directory: a copy somewhere, or a single segment. Without its place nothing
// is known of checkpoints, nor whether the application runs.
func Alone(v *volume.Volume, path string) *Store {
	sl := &statedir.Store{Name: filepath.Base(path), Path: path}
	return look(v, owner{&statedir.Application{}, &statedir.Task{}}, sl, nil, nil)
}
