// Package inspect shows one store, task or file in every detail that the
// readers give, for a person or as JSON. It tells what a path is from its name
// and place, reads it, and names the kinds of file that it does not read.
//
// What it says of a store is verify's; it judges nothing itself.
package inspect

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/report"
	"streams-sidecar/internal/rocksfile/manifest"
	"streams-sidecar/internal/rocksfile/options"
	"streams-sidecar/internal/statedir"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/verify"
	"streams-sidecar/internal/volume"
)

// Kind is what a path is.
type Kind string

// The kinds that are read in detail.
const (
	KindStore      Kind = "store"
	KindTask       Kind = "task"
	KindCurrent    Kind = "current"
	KindManifest   Kind = "manifest"
	KindTable      Kind = "table"
	KindOptions    Kind = "options"
	KindCheckpoint Kind = "checkpoint"
	KindPosition   Kind = "position"
	KindProcess    Kind = "process-metadata"
	// KindOther is a file or directory that is only named.
	KindOther Kind = "other"
)

// Result is what inspect shows. Of the parts below Findings one is set.
type Result struct {
	Path     string            `json:"path"`
	Kind     Kind              `json:"kind"`
	Note     string            `json:"note,omitempty"`
	Bytes    *int64            `json:"size_bytes,omitempty"`
	Findings []finding.Finding `json:"findings"`

	Task       *report.Task             `json:"task,omitempty"`
	Store      *report.Store            `json:"store,omitempty"`
	Databases  []report.Database        `json:"databases,omitempty"`
	Manifest   *report.Manifest         `json:"manifest,omitempty"`
	Table      *Table                   `json:"table,omitempty"`
	Options    *Options                 `json:"options,omitempty"`
	Checkpoint []report.CheckpointEntry `json:"entries,omitempty"`
	Points     string                   `json:"points_to,omitempty"` // CURRENT
	ProcessID  string                   `json:"process_id,omitempty"`
}

// Look reads a path. The error is one of the volume: not there, not allowed.
func Look(v *volume.Volume, path string) (*Result, error) {
	type found struct {
		resolved string
		info     volume.Info
	}
	f, err := volume.Do(v, path, func(fs volume.FS) (found, error) {
		resolved, err := fs.Resolve(path)
		if err != nil {
			return found{}, err
		}
		info, err := fs.Stat(resolved)
		return found{resolved, info}, err
	})
	if err != nil {
		return nil, err
	}
	r := &Result{Path: volume.Text(path), Findings: []finding.Finding{}}
	if f.info.Kind == volume.Directory {
		err = r.directory(v, f.resolved)
	} else {
		r.Bytes = &f.info.Size
		err = r.file(v, f.resolved, f.info)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// ExitCode is that of `sidecar inspect`, the same as that of status.
func (r *Result) ExitCode() int { return report.ExitOf(r.Findings) }

func (r *Result) directory(v *volume.Volume, path string) error {
	if base, ok := stateDirOf(path); ok {
		s := verify.Run(context.Background(), []*volume.Volume{v}, []string{base}, verify.Question{}, verify.Plan{Depth: verify.Quick}, nil)
		if r.inStateDir(s.Dirs[0], s.Judgement, path) {
			return nil
		}
	}
	names, err := volume.Do(v, path, func(fs volume.FS) ([]string, error) {
		var names []string
		err := fs.List(path, func(i volume.Info) error {
			if len(names) < 64 {
				names = append(names, i.Name)
			}
			return nil
		})
		return names, err
	})
	if err != nil {
		return err
	}
	if slices.ContainsFunc(names, func(n string) bool { return n == "CURRENT" || strings.HasPrefix(n, "MANIFEST-") }) {
		t := Target{volume: v, base: filepath.Dir(path), alone: path}
		s := verify.Picture(context.Background(), []*store.StateDir{t.Look(nil)}, []*volume.Volume{v}, verify.Question{}, verify.Plan{Depth: verify.Quick}, nil,
			func([]*store.StateDir) []*store.StateDir { return []*store.StateDir{t.Look(nil)} })
		st := s.Dirs[0].Applications[0].Tasks[0].Stores[0]
		r.store(st, s.Judgement.Store(st))
		r.Note = "read on its own: without its task nothing is known of checkpoints or of the application"
		return nil
	}
	r.Kind = KindOther
	r.Note = "a directory that is neither a store nor a task; `sidecar status --state-dir` shows a whole state directory"
	return nil
}

// stateDirOf gives the state directory that a task's or store's path must lie
// in, by the last component that is a task's name.
func stateDirOf(path string) (string, bool) {
	for dir, depth := path, 0; depth < 4 && dir != filepath.Dir(dir); dir, depth = filepath.Dir(dir), depth+1 {
		if b := filepath.Base(dir); !statedir.IsTaskName(b) && b != statedir.GlobalName {
			continue
		}
		app := filepath.Dir(dir)
		if b := filepath.Base(app); len(b) > 4 && strings.HasPrefix(b, "__") && strings.HasSuffix(b, "__") {
			app = filepath.Dir(app)
		}
		return filepath.Dir(app), true
	}
	return "", false
}

func (r *Result) inStateDir(s *store.StateDir, j *verify.Judgement, path string) bool {
	for _, a := range s.Applications {
		for _, t := range a.Tasks {
			if t.Layout.Path == path {
				r.Kind = KindTask
				task := report.NewTask(t, j)
				r.Task = &task
				r.Findings = append(r.Findings, task.Findings...)
				for i := range task.Stores {
					r.Findings = append(r.Findings, task.Stores[i].Findings...)
				}
				return true
			}
			for _, st := range t.Stores {
				if st.Layout.Path == path {
					r.store(st, j.Store(st))
					return true
				}
			}
		}
	}
	return false
}

func (r *Result) store(st *store.Store, judged verify.Judged) {
	r.Kind = KindStore
	s := report.NewStore(st, judged)
	r.Store = &s
	r.Findings = append(r.Findings, s.Findings...)
	r.Databases = report.NewDatabases(st)
}

// limits of what is read of one file.
const (
	smallFile = 64 << 10
	textFile  = 16 << 20
)

func (r *Result) file(v *volume.Volume, path string, info volume.Info) error {
	name := filepath.Base(path)
	switch {
	case info.Kind != volume.Regular:
		r.Kind, r.Note = KindOther, "a "+info.Kind.String()+": nothing that Kafka Streams or RocksDB makes"
	case name == "CURRENT":
		return r.small(v, path, KindCurrent, r.current)
	case strings.HasPrefix(name, "MANIFEST-"):
		return r.manifest(v, path)
	case strings.HasSuffix(name, ".sst"):
		return r.table(v, path)
	case strings.HasPrefix(name, "OPTIONS-"):
		return r.small(v, path, KindOptions, r.options)
	case name == ".checkpoint" || strings.HasPrefix(name, ".checkpoint_"):
		return r.small(v, path, KindCheckpoint, r.offsets(finding.CheckpointMalformed))
	case strings.HasSuffix(name, ".position"):
		return r.small(v, path, KindPosition, r.offsets(finding.PositionMalformed))
	case name == "kafka-streams-process-metadata":
		return r.small(v, path, KindProcess, r.process)
	default:
		r.Kind, r.Note = KindOther, named(name)
	}
	return nil
}

// named says what a file is that is not read.
func named(name string) string {
	switch {
	case name == "LOCK":
		return "RocksDB's LOCK: always empty; that it exists says nothing, only a lock on it does"
	case name == ".lock":
		return "Kafka Streams' lock: always empty; that it exists says nothing, only a lock on it does"
	case name == "IDENTITY":
		return "RocksDB's IDENTITY: the id of the database as text"
	case name == "LOG" || strings.HasPrefix(name, "LOG.old."):
		return "RocksDB's info log; this version does not read it"
	case strings.HasSuffix(name, ".log"):
		return "a RocksDB write-ahead log; this version does not read it (stock Kafka Streams writes none)"
	case strings.HasSuffix(name, ".dbtmp") || strings.HasSuffix(name, ".trash") || strings.HasSuffix(name, ".tmp"):
		return "a temporary file"
	case strings.HasSuffix(name, ".blob"):
		return "a RocksDB blob file; this version does not read it"
	default:
		return "a file of no kind that this version knows"
	}
}

func (r *Result) small(v *volume.Volume, path string, kind Kind, show func(path string, data []byte)) error {
	limit := int64(textFile)
	if kind == KindCurrent || kind == KindProcess {
		limit = smallFile
	}
	data, err := volume.Do(v, path, func(fs volume.FS) ([]byte, error) {
		data, _, err := volume.ReadFile(fs, path, limit)
		return data, err
	})
	if err != nil {
		return err
	}
	r.Kind = kind
	show(path, data)
	return nil
}

func (r *Result) add(f finding.Finding) { r.Findings = append(r.Findings, f) }

func (r *Result) current(path string, data []byte) {
	name, _, err := manifest.ParseCurrent(data)
	if err != nil {
		r.add(store.CurrentFinding(data, err, path))
		return
	}
	r.Points = name
}

func (r *Result) offsets(code finding.Code) func(string, []byte) {
	return func(path string, data []byte) {
		entries, err := statedir.ParseCheckpoint(data)
		if pe, ok := errors.AsType[*statedir.ParseError](err); ok {
			if code == finding.CheckpointMalformed {
				code = pe.CheckpointCode(int64(len(data)))
			}
			r.add(finding.New(code, path, finding.At(pe.Offset),
				finding.Expected("line %d: %s", pe.Line, pe.Expected), finding.Found("%s", pe.Found)))
			return
		}
		r.Checkpoint = []report.CheckpointEntry{}
		for _, e := range entries {
			r.Checkpoint = append(r.Checkpoint, report.CheckpointEntry{Topic: volume.Text(e.Topic), Partition: e.Partition, Offset: e.Offset})
		}
	}
}

func (r *Result) process(path string, data []byte) {
	id, err := statedir.ParseProcess(data)
	if err != nil {
		r.add(finding.New(finding.ProcessIDMalformed, path, finding.Found("%v", err)))
		return
	}
	r.ProcessID = id
}

func (r *Result) options(path string, data []byte) {
	r.Options = newOptions(options.Parse(data))
	if line, ok := options.FirstStrange(data); ok {
		r.add(store.OptionsFinding(line, path))
	}
}
