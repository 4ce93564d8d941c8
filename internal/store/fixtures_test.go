package store_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
	"streams-sidecar/test/fixture"
)

// A database is compared where the archive's owner could open it. What the
// damage of these cases does to kv is not for reading alone to say.
func binding(c fixture.Store) bool { return c.OpenFails == "" }

// ignored are directories that Streams ignores, although the inventory opened
// the databases in them.
func ignored(path string) bool {
	return strings.Contains(path, "/0_0.quarantine/") || strings.HasSuffix(path, "/kv.corrupt")
}

func scan(t testing.TB, dir string) *store.StateDir {
	t.Helper()
	return store.Scan(volume.New(volume.OS()), dir, nil)
}

// TestFixtures holds everything that is said of every store of every real
// directory against what is known of it from elsewhere: what RocksDB itself
// found in it, the bytes of .checkpoint, the version that wrote it, and the way
// in which it was made.
func TestFixtures(t *testing.T) {
	t.Parallel()
	var seen tally
	seen.databases = map[string]int{}
	seen.closed = map[store.Closed]int{}
	for _, n := range fixture.Names() {
		want := fixture.Inventory(t, n.Version)[n.Case]
		dir := fixture.Unpack(t, n.Version, n.Case)
		root := fixture.Root(t, n.Version, n.Case)
		s := scan(t, dir)
		seen.compareDatabases(t, n, want, databases(t, dir, root, s))
		seen.compareCheckpoints(t, n, root, want, s)
		s.Stores(func(_ *store.Application, task *store.Task, st *store.Store) {
			seen.stores++
			compareEra(t, n, task, st)
			compareKind(t, n, st)
			seen.compareClosed(t, n, st)
		})
	}
	// Every database line of the inventories, without those that Streams
	// ignores and those that RocksDB could not open; counted with grep -c.
	if want := map[string]int{"2.8.2": 93, "3.9.1": 168, "4.2.2": 85, "4.3.1": 70, "4.4.0": 143}; !maps.Equal(seen.databases, want) {
		t.Errorf("compared %v databases, want %v", seen.databases, want)
	}
	if seen.tasks < 80 || seen.offsets < 150 || seen.stores < 500 {
		t.Errorf("compared %d checkpoints, %d offsets and %d stores: too few", seen.tasks, seen.offsets, seen.stores)
	}
	if seen.closed[store.Clean] < 50 || seen.closed[store.Unclean] < 50 {
		t.Errorf("saw %v: too few of one", seen.closed)
	}
}

// tally counts what was compared.
type tally struct {
	databases              map[string]int // by version
	tasks, offsets, stores int
	closed                 map[store.Closed]int
}

func (c *tally) compareDatabases(t *testing.T, n fixture.Name, want fixture.Content, got map[string]located) {
	t.Helper()
	paths := slices.DeleteFunc(slices.Collect(maps.Keys(want.Stores)), ignored)
	if g, w := slices.Sorted(maps.Keys(got)), slices.Sorted(slices.Values(paths)); !slices.Equal(g, w) {
		t.Errorf("%s: databases\n got %q\nwant %q", n, g, w)
		return
	}
	for path, truth := range want.Stores {
		if ignored(path) || !binding(truth) {
			continue
		}
		compareDatabase(t, n.String()+" "+path, got[path], truth)
		c.databases[n.Version]++
	}
}

// databases gives each database of a scan under its path in the inventory.
func databases(t *testing.T, dir, root string, s *store.StateDir) map[string]located {
	t.Helper()
	resolved, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]located{}
	s.Stores(func(_ *store.Application, task *store.Task, st *store.Store) {
		for _, db := range st.Databases {
			rel, err := filepath.Rel(resolved, db.Path)
			if err != nil {
				t.Fatal(err)
			}
			out[filepath.ToSlash(filepath.Join(root, rel))] = located{st, db, task}
		}
	})
	return out
}

type located struct {
	st   *store.Store
	db   *store.Database
	task *store.Task
}

func compareDatabase(t *testing.T, name string, got located, want fixture.Store) {
	t.Helper()
	families := got.db.Families()
	names := make([]string, 0, len(families))
	unflushed := len(want.WAL) > 0
	for _, f := range families {
		names = append(names, f.Name)
		w, ok := want.Families[f.Name]
		if !ok {
			continue
		}
		switch {
		case f.Entries == nil:
			t.Errorf("%s: entries of %s unknown, want %d", name, f.Name, w)
		case unflushed && f.Files == 0:
			if *f.Entries != 0 {
				t.Errorf("%s: %s has %d entries and no table", name, f.Name, *f.Entries)
			}
		case unflushed:
			// The inventory has replayed the WAL as well.
		case f.Files == 1 && int64(*f.Entries) != w, f.Files != 1 && int64(*f.Entries) < w:
			t.Errorf("%s: %s has %d entries in %d tables, want %d", name, f.Name, *f.Entries, f.Files, w)
		}
	}
	slices.Sort(names)
	if w := slices.Sorted(maps.Keys(want.Families)); !slices.Equal(names, w) {
		t.Errorf("%s: families %q, want %q", name, names, w)
	}
	if unflushed {
		var sum int64
		for _, n := range want.WAL {
			sum += n
		}
		if got.db.Sizes.WAL != sum {
			t.Errorf("%s: WAL of %d bytes, want %d", name, got.db.Sizes.WAL, sum)
		}
		return
	}
	offsets := map[string]int64{}
	for _, o := range got.db.OffsetEntries() {
		offsets[o.Key()] = o.Offset
	}
	if !maps.Equal(offsets, want.Offsets) {
		t.Errorf("%s: offsets %v, want %v", name, offsets, want.Offsets)
	}
	status := map[int64]store.Status{0: store.StatusClosed, 1: store.StatusOpen}
	switch {
	case want.Status == nil && got.db.Status() != "":
		t.Errorf("%s: status %q, want none", name, got.db.Status())
	case want.Status != nil && got.db.Status() != status[*want.Status]:
		t.Errorf("%s: status %q, want %d", name, got.db.Status(), *want.Status)
	}
}

func (c *tally) compareCheckpoints(t *testing.T, n fixture.Name, root string, want fixture.Content, s *store.StateDir) {
	t.Helper()
	for _, a := range s.Applications {
		for _, task := range a.Tasks {
			path := filepath.ToSlash(filepath.Join(root, a.Layout.ID, task.Layout.ID, ".checkpoint"))
			raw, present := want.Checkpoints[path]
			if p := task.Layout.CheckpointPresent; p == nil || *p != present {
				t.Errorf("%s: .checkpoint of %s present: %v, want %v", n, path, p, present)
			}
			lines, valid := checkpointLines(string(raw))
			switch {
			case !present:
				continue
			case !valid:
				code := finding.CheckpointMalformed
				if len(raw) == 0 {
					code = finding.CheckpointEmpty
				}
				assertFinding(t, n.String(), task.Findings, code)
				continue
			}
			c.tasks++
			for _, st := range task.Stores {
				topic := a.Layout.ID + "-" + st.Name + "-changelog"
				w, listed := lines[topic]
				known := listed && w >= 0
				if got := st.Offsets; (len(got) == 1) != known || known && (got[0].Topic != topic || got[0].Offset != w || got[0].Meaning != store.LastApplied) {
					t.Errorf("%s %s: offsets %+v, want %d of %s", n, st.Name, got, w, topic)
				}
				c.offsets++
			}
		}
	}
}

// checkpointLines is a reader of its own: topic to offset.
func checkpointLines(raw string) (map[string]int64, bool) {
	lines := strings.Split(strings.TrimSuffix(raw, "\n"), "\n")
	if len(lines) < 2 || lines[0] != "0" {
		return nil, false
	}
	out := map[string]int64{}
	for _, l := range lines[2:] {
		f := strings.Fields(l)
		if len(f) != 3 {
			return nil, false
		}
		out[f[0]] = atoi(f[2])
	}
	return out, true
}

func atoi(s string) (n int64) {
	neg := strings.HasPrefix(s, "-")
	for _, c := range strings.TrimPrefix(s, "-") {
		n = n*10 + int64(c-'0')
	}
	if neg {
		return -n
	}
	return n
}

func assertFinding(t *testing.T, name string, fs []finding.Finding, code finding.Code) {
	t.Helper()
	if !slices.ContainsFunc(fs, func(f finding.Finding) bool { return f.Code == code }) {
		t.Errorf("%s: no finding %s in %v", name, code, fs)
	}
}

var eras = map[string]store.Era{"2.8.2": store.TaskLock, "3.9.1": store.Checkpoint, "4.2.2": store.Checkpoint,
	"4.3.1": store.OffsetsCF, "4.4.0": store.OffsetsCF}

func compareEra(t *testing.T, n fixture.Name, task *store.Task, s *store.Store) {
	t.Helper()
	if s.Era != eras[n.Version] || task.Era != eras[n.Version] {
		t.Errorf("%s %s/%s: era %q, of the task %q, want %q", n, task.Layout.ID, s.Name, s.Era, task.Era, eras[n.Version])
	}
}

// kinds of the lab's topology; its versioned store looks like a plain one.
var kinds = map[string]store.Kind{"kv": store.Timestamped, "gtab": store.Timestamped, "ver": store.KeyValue,
	"win": store.Segmented, "sess": store.Segmented, "x00": store.Timestamped, "x01": store.Timestamped}

func compareKind(t *testing.T, n fixture.Name, s *store.Store) {
	t.Helper()
	want := kinds[s.Name]
	if strings.HasPrefix(n.Case, "wal-on-") || n == (fixture.Name{Version: "2.8.2", Case: "closed-article-statedir"}) && s.Name == "x00" {
		want = store.KeyValue // the lab's WAL store is a plain one; x00 failed before its family was made
	}
	if s.Kind != want {
		t.Errorf("%s %s: kind %q, want %q", n, s.Name, s.Kind, want)
	}
}

// TestKindsIgnoreNames: with every store renamed to the name of another kind,
// the kinds stay what the files prove.
func TestKindsIgnoreNames(t *testing.T) {
	t.Parallel()
	renamed := map[string]string{"kv": "window-store", "ver": "session", "win": "kv", "sess": "timestamped", "gtab": "ver"}
	for _, version := range []string{"2.8.2", "3.9.1", "4.4.0"} {
		dir := fixture.Unpack(t, version, "closed-clean")
		count := 0
		scan(t, dir).Stores(func(_ *store.Application, _ *store.Task, s *store.Store) {
			to := renamed[s.Name]
			for _, seg := range s.Layout.Segments {
				rename(t, seg.Path, filepath.Join(s.Layout.Path, to+strings.TrimPrefix(seg.Name, s.Name)))
			}
			rename(t, s.Layout.Path, filepath.Join(filepath.Dir(s.Layout.Path), to))
		})
		scan(t, dir).Stores(func(_ *store.Application, _ *store.Task, s *store.Store) {
			for old, now := range renamed {
				if s.Name != now {
					continue
				}
				count++
				if s.Kind != kinds[old] {
					t.Errorf("%s: %s renamed to %s has kind %q, want %q", version, old, now, s.Kind, kinds[old])
				}
			}
		})
		if want := 9; version != "2.8.2" && count != want || version == "2.8.2" && count != 7 {
			t.Errorf("%s: compared %d stores, want %d", version, count, want)
		}
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func (c *tally) compareClosed(t *testing.T, n fixture.Name, s *store.Store) {
	t.Helper()
	want, binds := store.Closed(""), true // files at rest cannot tell before 4.3
	if eras[n.Version] == store.OffsetsCF {
		want, binds = closedTruth(n, s)
	}
	if !binds {
		return
	}
	c.closed[s.Closed]++
	if s.Closed != want {
		t.Errorf("%s %s: closed %q, want %q", n, s.Name, s.Closed, want)
	}
}

// closedTruth: the damage to kv was done after a clean close. Where it hit the
// MANIFEST or CURRENT or the tables of the offsets, the rule has nothing to say.
func closedTruth(n fixture.Name, s *store.Store) (store.Closed, bool) {
	switch {
	case strings.HasPrefix(n.Case, "corrupt-sst-flip-then-loaded"):
		return "", false // ended by an exception, of which the inventory does not say how far it got
	case strings.HasPrefix(n.Case, "closed-"), n.Case == "wal-on-closed":
		return store.Clean, true
	case strings.HasPrefix(n.Case, "corrupt-"):
		return store.Clean, s.Name != "kv"
	case strings.HasPrefix(n.Case, "live-"), strings.HasPrefix(n.Case, "killed9-"), n.Case == "sigterm-no-hook",
		strings.HasPrefix(n.Case, "wal-on-"):
		return store.Unclean, true
	}
	return "", false
}
