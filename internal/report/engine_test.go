package report_test

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"streams-sidecar/internal/engine"
	"streams-sidecar/internal/report"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
	"streams-sidecar/test/fixture"
	"streams-sidecar/test/judge"
)

// answer is one that says what our readers say.
func answer(db *store.Database) *engine.Answer {
	state, _, _ := db.Manifest()
	a := &engine.Answer{LastSequence: state.LastSequence}
	for i, f := range db.Families() {
		zero := uint64(0)
		family := engine.Family{Name: []byte(f.Name), Entries: f.Entries, Deletions: &zero,
			Properties: map[string]uint64{"estimate-num-keys": *f.Entries, "estimate-live-data-size": uint64(f.Bytes)}}
		for _, t := range state.Families[i].Files {
			family.Files = append(family.Files, engine.Table{Number: t.Number, Level: t.Level, Size: t.Size,
				SmallestSeq: t.SmallestSeq, LargestSeq: t.LargestSeq})
		}
		a.Families = append(a.Families, family)
	}
	for _, o := range db.OffsetEntries() {
		a.Offsets = append(a.Offsets, engine.KeyValue{Key: []byte(o.Key()), Value: binary.BigEndian.AppendUint64(nil, uint64(o.Offset))})
	}
	a.Offsets = append(a.Offsets, engine.KeyValue{Key: []byte("position"), Value: []byte("something")})
	return a
}

func withOpinions(t *testing.T, version, name string, err error, opinion func(*store.Database) (engine.Opinion, bool)) report.Document {
	t.Helper()
	dirs := []*store.StateDir{store.Scan(volume.New(volume.OS()), fixture.Unpack(t, version, name), nil)}
	opinions := map[string]engine.Opinion{}
	dirs[0].Stores(func(_ *store.Application, _ *store.Task, s *store.Store) {
		for _, db := range s.Databases {
			if o, ok := opinion(db); ok {
				opinions[db.Path] = o
			}
		}
	})
	doc := report.New(dirs, judge.Picture(dirs))
	doc.AddOpinions(dirs, "10.10.1", err, func(db *store.Database) (engine.Opinion, bool) {
		o, ok := opinions[db.Path]
		return o, ok
	})
	validate(t, version+"/"+name, schema(t, "state.schema.json"), doc)
	return doc
}

func text(t *testing.T, doc *report.Document) string {
	t.Helper()
	var b strings.Builder
	if err := doc.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func expect(t *testing.T, doc *report.Document, code int, parts ...string) {
	t.Helper()
	out := text(t, doc)
	for _, p := range parts {
		if !strings.Contains(out, p) {
			t.Errorf("no %q in\n%s", p, out)
		}
	}
	if got := doc.ExitCode(); got != code {
		t.Errorf("exit code %d, want %d", got, code)
	}
}

// TestOpinionAgrees: what RocksDB says is summed as what our readers say.
func TestOpinionAgrees(t *testing.T) {
	t.Parallel()
	doc := withOpinions(t, "4.4.0", "closed-clean", nil, func(db *store.Database) (engine.Opinion, bool) {
		return engine.Opinion{Answer: answer(db)}, true
	})
	expect(t, &doc, report.ExitNothing, "agrees", "ROCKSDB 10.10.1", "0 differences, 0 databases not asked", "L0:2")
	n := 0
	for _, task := range doc.StateDirs[0].Applications[0].Tasks {
		for _, s := range task.Stores {
			n++
			o := s.RocksDB
			if o == nil || o.LastSequence == nil || o.Asked == 0 || len(o.Families) != len(s.Families) || len(o.Offsets) != len(s.Offsets) {
				t.Fatalf("%s %s: %+v", task.ID, s.Name, o)
			}
			for i, f := range o.Families {
				own := s.Families[i]
				if f.Name != own.Name || f.Files != own.Files || f.SizeBytes != own.SizeBytes || *f.Entries != *own.Entries ||
					len(f.Levels) != len(own.Levels) || *f.EstimatedKeys != *own.Entries || *f.EstimatedLiveBytes != uint64(own.SizeBytes) {
					t.Errorf("%s %s: %+v, own %+v", task.ID, s.Name, f, own)
				}
			}
			for i, x := range o.Offsets {
				if own := s.Offsets[i]; x.Topic != own.Topic || x.Partition != own.Partition || x.Offset != own.Offset {
					t.Errorf("%s %s: %+v, own %+v", task.ID, s.Name, x, own)
				}
			}
		}
	}
	if n != 9 {
		t.Errorf("%d stores", n)
	}
}

// TestOpinionDiffers: differences are shown, and are not what status fails for;
// what could not be asked is.
func TestOpinionDiffers(t *testing.T) {
	t.Parallel()
	differs := func(db *store.Database) bool {
		return strings.HasSuffix(db.Path, filepath.Join("1_0", "rocksdb", "kv"))
	}
	doc := withOpinions(t, "3.9.1", "closed-clean", nil, func(db *store.Database) (engine.Opinion, bool) {
		if !differs(db) {
			return engine.Opinion{Answer: answer(db)}, true
		}
		return engine.Opinion{Answer: &engine.Answer{Error: "Corruption: \x00"},
			Differences: []engine.Difference{{Subject: engine.Entries, Family: "default", Ours: "259", RocksDB: "258"}}}, true
	})
	expect(t, &doc, report.ExitFinding, "differs", "1 difference,", "entries of family default", "the files: 259", "RocksDB:   258",
		"rocksdb-differs", "found:    258 (differences in all: 1)")
	// What RocksDB refuses, and what it fails on each time.
	for _, c := range []struct {
		opinion engine.Opinion
		says    string
	}{
		{engine.Opinion{Answer: &engine.Answer{Error: "Corruption: bad"},
			Differences: []engine.Difference{{Subject: engine.Open, Ours: "readable", RocksDB: "Corruption: bad"}}}, "rocksdb-refuses"},
		{engine.Opinion{Err: &engine.Error{Kind: engine.SetAside, Times: 2, Detail: "hung: after 5s"}}, "hung: after 5s, 2 times in a row"},
	} {
		doc = withOpinions(t, "3.9.1", "closed-clean", nil, func(db *store.Database) (engine.Opinion, bool) {
			if !differs(db) {
				return engine.Opinion{Answer: answer(db)}, true
			}
			return c.opinion, true
		})
		expect(t, &doc, report.ExitUnreadable, c.says)
	}

	for _, c := range []struct {
		kind engine.Kind
		code int
	}{{engine.Hung, report.ExitUnreadable}, {engine.Moving, report.ExitUnreadable}, {engine.NotFit, report.ExitNothing}} {
		doc = withOpinions(t, "3.9.1", "closed-clean", nil, func(db *store.Database) (engine.Opinion, bool) {
			if !differs(db) {
				return engine.Opinion{Answer: answer(db)}, true
			}
			return engine.Opinion{Err: &engine.Error{Kind: c.kind, Path: db.Path, Detail: "because-of-it"}}, true
		})
		expect(t, &doc, c.code, "not asked ("+string(c.kind)+")", "because-of-it", "1 database not asked")
	}
	// A segmented store of which one segment could not be asked has no sums.
	first := true
	doc = withOpinions(t, "3.9.1", "closed-clean", nil, func(db *store.Database) (engine.Opinion, bool) {
		if strings.Contains(db.Path, filepath.Join("1_0", "win")) && first {
			first = false
			return engine.Opinion{Err: errors.New("the caller has gone")}, true
		}
		return engine.Opinion{Answer: answer(db)}, true
	})
	expect(t, &doc, report.ExitUnreadable, "not all asked", "interrupted")
}

// TestNoEngine: the table is as without, and says why.
func TestNoEngine(t *testing.T) {
	t.Parallel()
	doc := withOpinions(t, "3.9.1", "closed-clean", &engine.Error{Kind: engine.Missing, Path: "/opt/sidecar-engine"},
		func(*store.Database) (engine.Opinion, bool) { return engine.Opinion{}, false })
	expect(t, &doc, report.ExitUnreadable, "ROCKSDB could not be asked (engine-missing)", "/opt/sidecar-engine", "timestamped",
		"warning  engine-missing")
	// Of the agent some opinions may be there all the same.
	doc = withOpinions(t, "3.9.1", "closed-clean", &engine.Error{Kind: engine.Stuck, Path: "/opt/sidecar-engine", Detail: "process 4711"},
		func(db *store.Database) (engine.Opinion, bool) { return engine.Opinion{Answer: answer(db)}, true })
	expect(t, &doc, report.ExitUnreadable, "engine-stuck", "process 4711", "agrees")
	// Not yet asked about one segment of a store: no sums.
	doc = withOpinions(t, "3.9.1", "closed-clean", nil, func(db *store.Database) (engine.Opinion, bool) {
		return engine.Opinion{Answer: answer(db)}, !strings.HasSuffix(filepath.Dir(db.Path), filepath.Join("1_0", "win")) || db.Path == last(t, db)
	})
	for _, task := range doc.StateDirs[0].Applications[0].Tasks {
		for _, s := range task.Stores {
			half := task.ID == "1_0" && s.Name == "win"
			if (s.RocksDB.LastSequence == nil) != half || half != (len(s.RocksDB.NotAsked) > 0 && s.RocksDB.NotAsked[0].Reason == "not-yet") {
				t.Errorf("%s %s: %+v", task.ID, s.Name, s.RocksDB)
			}
		}
	}
}

// last gives the path of the last segment beside a database.
func last(t *testing.T, db *store.Database) string {
	t.Helper()
	segments, err := os.ReadDir(filepath.Dir(db.Path))
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(filepath.Dir(db.Path), segments[len(segments)-1].Name())
}
