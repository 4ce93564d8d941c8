// Package report gives what was read its two outward forms: the JSON that is
// one shape for status and the API (docs/json.md, a contract), and the table
// that a person wants.
//
// It reads nothing and judges nothing. What is not known is absent.
package report

import (
	"time"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/statedir"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/verify"
	"streams-sidecar/internal/volume"
)

// Document is the whole answer of `status --output=json`, of `verify
// --output=json` and of /api/v1/state.
type Document struct {
	StateDirs []StateDir `json:"state_dirs"`
	// Verification only where a command has verified: not in the agent, which
	// does it all the time.
	Verification *Verification `json:"verification,omitempty"`
	// Engine only where RocksDB itself is asked: by the agent, and by status
	// --with-engine.
	Engine *Engine `json:"engine,omitempty"`
}

// StateDir is one state directory. SizeBytes and FreeBytes are of the volume
// that it is on.
type StateDir struct {
	Path         string            `json:"path"`
	FileSystem   string            `json:"file_system,omitempty"`
	FreeBytes    *int64            `json:"free_bytes,omitempty"`
	SizeBytes    *int64            `json:"size_bytes,omitempty"`
	Findings     []finding.Finding `json:"findings"`
	Applications []Application     `json:"applications"`
}

// Application is one application id. Running: its .lock is held.
type Application struct {
	ID        string            `json:"id"`
	Running   *bool             `json:"running,omitempty"`
	ProcessID string            `json:"process_id,omitempty"`
	Verdict   string            `json:"verdict"`
	Findings  []finding.Finding `json:"findings"`
	Tasks     []Task            `json:"tasks"`
}

// Task is one task directory, or global.
type Task struct {
	ID         string            `json:"id"`
	Era        string            `json:"era,omitempty"`
	Verdict    string            `json:"verdict"`
	Findings   []finding.Finding `json:"findings"`
	Checkpoint Checkpoint        `json:"checkpoint"`
	Stores     []Store           `json:"stores"`
}

// Checkpoint is the task's .checkpoint file, with every line of it, also those
// of no store on disk. Present is absent where it could not be asked, and true
// without entries for a file that cannot be parsed.
type Checkpoint struct {
	Present *bool             `json:"present,omitempty"`
	MTime   *time.Time        `json:"mtime,omitempty"`
	Entries []CheckpointEntry `json:"entries,omitempty"`
}

// CheckpointEntry is one line; offset -4 is Streams' own mark for "not known".
type CheckpointEntry struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
}

// Store is one store. InUse: a LOCK of it is held.
type Store struct {
	Name      string            `json:"name"`
	Kind      string            `json:"kind,omitempty"`
	Verdict   string            `json:"verdict"`
	InUse     *bool             `json:"in_use,omitempty"`
	SizeBytes *int64            `json:"size_bytes,omitempty"`
	Segments  *int              `json:"segments,omitempty"`
	Era       string            `json:"era,omitempty"`
	Status    string            `json:"status,omitempty"`
	Families  []Family          `json:"column_families"`
	Offsets   []Offset          `json:"offsets"`
	Closed    string            `json:"closed,omitempty"`
	WAL       WAL               `json:"wal"`
	Checks    []StoreCheck      `json:"checks"`
	RocksDB   *Opinion          `json:"rocksdb,omitempty"` // only where RocksDB itself was asked
	Findings  []finding.Finding `json:"findings"`
}

// Family is one column family.
type Family struct {
	Name      string  `json:"name"`
	Files     int     `json:"files"`
	SizeBytes int64   `json:"size_bytes"`
	Entries   *uint64 `json:"entries,omitempty"`
	Levels    []Level `json:"levels"`
}

// Level is one level of a column family that has files.
type Level struct {
	Level     int   `json:"level"`
	Files     int   `json:"files"`
	SizeBytes int64 `json:"size_bytes"`
}

// Offset is a durable changelog offset of a store.
type Offset struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Meaning   string `json:"meaning"`
}

// WAL is the store's write-ahead log files.
type WAL struct {
	Files     *int   `json:"files,omitempty"`
	SizeBytes *int64 `json:"size_bytes,omitempty"`
}

// New gives the document of some state directories and the judgement of them.
func New(dirs []*store.StateDir, j *verify.Judgement) Document {
	d := Document{StateDirs: make([]StateDir, 0, len(dirs))}
	for _, s := range dirs {
		d.StateDirs = append(d.StateDirs, stateDir(s, j))
	}
	return d
}

func stateDir(s *store.StateDir, j *verify.Judgement) StateDir {
	out := StateDir{
		Path:         volume.Text(s.Layout.Path),
		Findings:     findings(s.Layout.Findings),
		Applications: make([]Application, 0, len(s.Applications)),
	}
	if u := s.Layout.Usage; u != nil {
		out.FileSystem, out.FreeBytes, out.SizeBytes = u.Type, &u.Free, &u.Size
	}
	for _, a := range s.Applications {
		judged := j.Application(a)
		app := Application{
			ID:        volume.Text(a.Layout.ID),
			Running:   a.Running,
			ProcessID: volume.Text(a.Layout.ProcessID),
			Verdict:   string(judged.Verdict),
			Findings:  findings(judged.Findings),
			Tasks:     make([]Task, 0, len(a.Tasks)),
		}
		for _, t := range a.Tasks {
			app.Tasks = append(app.Tasks, NewTask(t, j))
		}
		out.Applications = append(out.Applications, app)
	}
	return out
}

// NewTask gives the form of one task.
func NewTask(t *store.Task, j *verify.Judgement) Task {
	judged := j.Task(t)
	out := Task{
		ID:         volume.Text(t.Layout.ID),
		Era:        string(t.Era),
		Verdict:    string(judged.Verdict),
		Findings:   findings(judged.Findings),
		Checkpoint: checkpoint(t.Layout),
		Stores:     make([]Store, 0, len(t.Stores)),
	}
	for _, s := range t.Stores {
		out.Stores = append(out.Stores, NewStore(s, j.Store(s)))
	}
	return out
}

func checkpoint(t *statedir.Task) Checkpoint {
	out := Checkpoint{Present: t.CheckpointPresent}
	if c := t.Checkpoint; c != nil {
		mtime := time.Unix(0, c.ModNanos).UTC()
		out.MTime = &mtime
		for _, e := range c.Entries {
			out.Entries = append(out.Entries, CheckpointEntry{volume.Text(e.Topic), e.Partition, e.Offset})
		}
	}
	return out
}

// NewStore gives the form of one store.
func NewStore(s *store.Store, judged verify.Judged) Store {
	out := Store{
		Name:     volume.Text(s.Name),
		Kind:     string(s.Kind),
		Era:      string(s.Era),
		Verdict:  string(judged.Verdict),
		InUse:    s.InUse,
		Status:   string(s.Status),
		Closed:   string(s.Closed),
		Families: make([]Family, 0, len(s.Families)),
		Offsets:  make([]Offset, 0, len(s.Offsets)),
		Checks:   []StoreCheck{},
		Findings: findings(judged.Findings),
	}
	if s.Listed {
		total := s.Sizes.Total()
		out.SizeBytes = &total
		out.WAL = WAL{Files: &s.WALFiles, SizeBytes: &s.Sizes.WAL}
	}
	if s.Layout.Segmented {
		out.Segments = &s.Segments
	}
	for i := range s.Families {
		out.Families = append(out.Families, family(&s.Families[i]))
	}
	for _, o := range s.Offsets {
		out.Offsets = append(out.Offsets, Offset{volume.Text(o.Topic), o.Partition, o.Offset, string(o.Meaning)})
	}
	return out
}

func family(f *store.Family) Family {
	out := Family{Name: volume.Text(f.Name), Files: f.Files, SizeBytes: f.Bytes, Entries: f.Entries,
		Levels: make([]Level, 0, len(f.Levels))}
	for _, l := range f.Levels {
		out.Levels = append(out.Levels, Level{l.Level, l.Files, l.Bytes})
	}
	return out
}

// findings is never null in JSON: an empty list says that there is nothing.
func findings(fs []finding.Finding) []finding.Finding {
	if fs == nil {
		return []finding.Finding{}
	}
	return fs
}

// Exit codes of verify, status and inspect. Where several apply, damage goes
// first, then what could not be judged.
const (
	ExitNothing    = 0 // nothing found
	ExitFinding    = 1 // warnings only
	ExitDamage     = 2 // damage
	ExitUnreadable = 3 // something that was asked for could not be judged
)

// ExitCode is that of verify and status for this document.
func (d *Document) ExitCode() int {
	worst := finding.Info
	if d.unasked() || d.Verification != nil && !d.Verification.Complete {
		worst = finding.Unreadable
	}
	d.each(func(_ string, f *finding.Finding) { worst = worseOf(worst, f.Severity) })
	return exitOf(worst)
}

// ExitOf is the exit code for a list of findings.
func ExitOf(fs []finding.Finding) int {
	worst := finding.Info
	for i := range fs {
		worst = worseOf(worst, fs[i].Severity)
	}
	return exitOf(worst)
}

func worseOf(a, b finding.Severity) finding.Severity {
	if a.Rank() < b.Rank() {
		return b
	}
	return a
}

func exitOf(s finding.Severity) int {
	switch s {
	case finding.Damage:
		return ExitDamage
	case finding.Unreadable:
		return ExitUnreadable
	case finding.Warning:
		return ExitFinding
	default:
		return ExitNothing
	}
}

// each calls f for every finding with where it belongs: "app", "app 0_0" or
// "app 0_0 store".
func (d *Document) each(f func(where string, fd *finding.Finding)) {
	all := func(where string, fs []finding.Finding) {
		for i := range fs {
			f(where, &fs[i])
		}
	}
	if d.Engine != nil {
		all("RocksDB", d.Engine.Findings)
	}
	for i := range d.StateDirs {
		sd := &d.StateDirs[i]
		all(sd.Path, sd.Findings)
		for j := range sd.Applications {
			a := &sd.Applications[j]
			all(a.ID, a.Findings)
			for k := range a.Tasks {
				t := &a.Tasks[k]
				all(a.ID+" "+t.ID, t.Findings)
				for l := range t.Stores {
					all(a.ID+" "+t.ID+" "+t.Stores[l].Name, t.Stores[l].Findings)
				}
			}
		}
	}
}
