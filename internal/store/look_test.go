package store_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/rocksfile/rockstest"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
	"streams-sidecar/internal/volume/volumetest"
	"streams-sidecar/test/fixture"
	"streams-sidecar/test/holder"
)

func TestMain(m *testing.M) { holder.Main(m) }

func storeOf(t *testing.T, s *store.StateDir, task, name string) *store.Store {
	t.Helper()
	var out *store.Store
	s.Stores(func(_ *store.Application, tk *store.Task, st *store.Store) {
		if tk.Layout.ID == task && st.Name == name {
			out = st
		}
	})
	if out == nil {
		t.Fatalf("no store %s %s", task, name)
	}
	return out
}

func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

func codes(fs []finding.Finding) (out []finding.Code) {
	for _, f := range fs {
		out = append(out, f.Code)
	}
	return out
}

// TestReplacedStore: a store that is replaced under its path by another one
// with files of the same names is read anew, and its counters go on.
func TestReplacedStore(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "4.4.0", "closed-clean")
	v := volume.New(volume.OS())
	first := store.Scan(v, dir, nil)
	kv := filepath.Join(dir, "alos440", "1_0", "rocksdb", "kv")
	if err := os.RemoveAll(kv); err != nil {
		t.Fatal(err)
	}
	copyDir(t, filepath.Join(dir, "alos440", "1_1", "rocksdb", "kv"), kv)
	s := storeOf(t, store.Scan(v, dir, first), "1_0", "kv")
	if len(s.Offsets) != 1 || s.Offsets[0].Offset != 1063 || s.Offsets[0].Partition != 1 {
		t.Errorf("offsets %+v, want those of the new store (1063)", s.Offsets)
	}
	fresh := storeOf(t, store.Scan(v, dir, nil), "1_0", "kv")
	if s.Closed != fresh.Closed || *s.LastSequence != *fresh.LastSequence || *s.Families[1].Entries != *fresh.Families[1].Entries {
		t.Errorf("%+v, a fresh scan gives %+v", s, fresh)
	}
	before := storeOf(t, first, "1_0", "kv").Counts.Flushes
	if s.Counts.Flushes != before+fresh.Counts.Flushes {
		t.Errorf("%d flushes, want the %d of the old store and the %d of the new one", s.Counts.Flushes, before, fresh.Counts.Flushes)
	}
}

// TestReplacedManifest: a MANIFEST with the number, the inode and the size of
// the one before, and other content, is not taken for it.
func TestReplacedManifest(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "4.4.0", "closed-clean")
	v := volume.New(volume.OS())
	first := store.Scan(v, dir, nil)
	other, err := os.ReadFile(filepath.Join(dir, "alos440", "1_1", "rocksdb", "kv", "MANIFEST-000005"))
	if err != nil {
		t.Fatal(err)
	}
	// Written in place: the inode stays.
	if err := os.WriteFile(filepath.Join(dir, "alos440", "1_0", "rocksdb", "kv", "MANIFEST-000005"), other, 0o644); err != nil {
		t.Fatal(err)
	}
	got, want := storeOf(t, store.Scan(v, dir, first), "1_0", "kv"), storeOf(t, store.Scan(v, dir, nil), "1_0", "kv")
	if *got.LastSequence != *want.LastSequence {
		t.Errorf("last sequence %d, a fresh scan gives %d", *got.LastSequence, *want.LastSequence)
	}
}

// TestFollowsGrowth: what a running RocksDB appends is counted, and the bytes
// before it are not read again.
func TestFollowsGrowth(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	fake := volumetest.New(t, volume.OS())
	v := volume.New(fake)
	first := store.Scan(v, dir, nil)
	kv := filepath.Join(dir, "alos391", "1_0", "rocksdb", "kv")
	table, err := os.ReadFile(filepath.Join(kv, "000010.sst"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(kv, "000020.sst"), table, 0o644); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(kv, "MANIFEST-000005")
	log, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	flush := rockstest.Edit{}.Family(1).LogNumber(4).PrevLog(0).NextFile(21).LastSequence(9000).
		Add(rockstest.File{Number: 20, Size: uint64(len(table)), SmallestSeq: 8000, LargestSeq: 9000})
	if err := os.WriteFile(path, rockstest.AppendRecord(log, flush), 0o644); err != nil {
		t.Fatal(err)
	}
	other := fake.Count(volumetest.Open, filepath.Join(dir, "alos391", "1_1", "..."))
	s := storeOf(t, store.Scan(v, dir, first), "1_0", "kv")
	before := storeOf(t, first, "1_0", "kv")
	if s.Counts.Flushes != before.Counts.Flushes+1 || s.Counts.FlushedBytes != before.Counts.FlushedBytes+uint64(len(table)) {
		t.Errorf("counts %+v, before %+v", s.Counts, before.Counts)
	}
	if *s.LastSequence != 9000 || s.Families[1].Files != 2 || *s.Families[1].Entries != 2*259 {
		t.Errorf("%+v", s)
	}
	if n := fake.Count(volumetest.Open, filepath.Join(dir, "alos391", "1_1", "...")); n != other {
		t.Error("files of a task in which nothing has changed were opened")
	}
}

// TestIdleOpensNothing: a rescan of a directory at rest reads directory
// entries, stats and locks, and opens no file.
func TestIdleOpensNothing(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2.8.2", "3.9.1", "4.4.0"} {
		fake := volumetest.New(t, volume.OS())
		v := volume.New(fake)
		dir := fixture.Unpack(t, version, "closed-clean")
		first := store.Scan(v, dir, nil)
		opened := fake.Count(volumetest.Open, "...")
		second := store.Scan(v, dir, first)
		if n := fake.Count(volumetest.Open, "...") - opened; n != 0 {
			t.Errorf("%s: an idle rescan opened %d files", version, n)
		}
		second.Stores(func(_ *store.Application, task *store.Task, s *store.Store) {
			if storeOf(t, first, task.Layout.ID, s.Name) != s {
				t.Errorf("%s: %s %s was made anew", version, task.Layout.ID, s.Name)
			}
		})
	}
}

// TestLockWithoutAppLock: a store that is open below a .lock that was removed
// or replaced is not "not running".
func TestLockWithoutAppLock(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "4.4.0", "closed-clean")
	app := filepath.Join(dir, "alos440")
	holder.Hold(t, filepath.Join(app, ".lock"), filepath.Join(app, "1_0", "rocksdb", "kv", "LOCK"))
	v := volume.New(volume.OS())
	if a := store.Scan(v, dir, nil).Applications[0]; a.Running == nil || !*a.Running || len(a.Findings) > 0 {
		t.Errorf("running %v, findings %v", a.Running, a.Findings)
	}
	if err := os.Remove(filepath.Join(app, ".lock")); err != nil {
		t.Fatal(err)
	}
	a := store.Scan(v, dir, nil).Applications[0]
	if a.Running != nil || !slices.Contains(codes(a.Findings), finding.LockWithoutAppLock) {
		t.Errorf("running %v, findings %v", a.Running, codes(a.Findings))
	}
	for _, task := range a.Tasks {
		for _, s := range task.Stores {
			if s.Closed != "" {
				t.Errorf("%s is said to be closed %s", s.Name, s.Closed)
			}
		}
	}
}

// TestLegacyCheckpoint: a .checkpoint beside a store of 4.3 that says otherwise.
func TestLegacyCheckpoint(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "4.4.0", "closed-clean")
	path := filepath.Join(dir, "alos440", "1_0", ".checkpoint")
	for text, want := range map[string]bool{
		"0\n1\nalos440-kv-changelog 0 5\n":    true,
		"0\n1\nalos440-kv-changelog 0 1135\n": false, // as a close with upgrade.from leaves it
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		s := storeOf(t, scan(t, dir), "1_0", "kv")
		if got := slices.Contains(codes(s.Findings), finding.LegacyCheckpoint); got != want || s.Offsets[0].Offset != 1135 {
			t.Errorf("%q: finding %v, want %v; offsets %+v", text, got, want, s.Offsets)
		}
	}
}

// TestCustomStoreCheckpoint: .checkpoint_<store> belongs to its store, whatever
// the topic in it.
func TestCustomStoreCheckpoint(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "4.4.0", "closed-clean")
	task := filepath.Join(dir, "alos440", "1_0")
	copyDir(t, filepath.Join(fixture.Unpack(t, "3.9.1", "closed-clean"), "alos391", "1_0", "rocksdb", "ver"), filepath.Join(task, "rocksdb", "cust"))
	if err := os.WriteFile(filepath.Join(task, ".checkpoint_cust"), []byte("0\n1\nsome-source 0 77\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := storeOf(t, scan(t, dir), "1_0", "cust")
	if want := (store.Offset{Topic: "some-source", Partition: 0, Offset: 77, Meaning: store.LastApplied}); len(s.Offsets) != 1 || s.Offsets[0] != want {
		t.Errorf("offsets %+v, want %+v", s.Offsets, want)
	}
	if s := storeOf(t, scan(t, dir), "1_0", "kv"); len(s.Offsets) != 1 {
		t.Errorf("offsets of another store: %+v", s.Offsets)
	}
}

// TestRaces: what a running RocksDB does between two of our calls is no finding.
func TestRaces(t *testing.T) {
	t.Parallel()
	newRig := func(t *testing.T) (dir, kv string, fake *volumetest.FS) {
		dir = fixture.Unpack(t, "3.9.1", "closed-clean")
		return dir, filepath.Join(dir, "alos391", "1_0", "rocksdb", "kv"), volumetest.New(t, volume.OS())
	}
	check := func(t *testing.T, dir string, fake *volumetest.FS) {
		t.Helper()
		s := storeOf(t, store.Scan(volume.New(fake), dir, nil), "1_0", "kv")
		if len(s.Findings) > 0 || !s.Up || s.Families[1].Entries == nil || *s.Families[1].Entries != 259 {
			t.Errorf("findings %v, up %v, %+v", s.Findings, s.Up, s.Families)
		}
	}
	t.Run("MANIFEST rolls after CURRENT was read", func(t *testing.T) {
		t.Parallel()
		dir, kv, fake := newRig(t)
		fake.Before(volumetest.Open, filepath.Join(kv, "MANIFEST-000005"), func() {
			rename(t, filepath.Join(kv, "MANIFEST-000005"), filepath.Join(kv, "MANIFEST-000099"))
			if err := os.WriteFile(filepath.Join(kv, "CURRENT"), []byte("MANIFEST-000099\n"), 0o644); err != nil {
				t.Error(err)
			}
		}).Times(1)
		check(t, dir, fake)
	})
	t.Run("compaction replaces a table after the listing", func(t *testing.T) {
		t.Parallel()
		dir, kv, fake := newRig(t)
		fake.Before(volumetest.Open, filepath.Join(kv, "CURRENT"), func() {
			table, err := os.ReadFile(filepath.Join(kv, "000010.sst"))
			if err != nil {
				t.Error(err)
			}
			if err := os.WriteFile(filepath.Join(kv, "000020.sst"), table, 0o644); err != nil {
				t.Error(err)
			}
			path := filepath.Join(kv, "MANIFEST-000005")
			log, err := os.ReadFile(path)
			if err != nil {
				t.Error(err)
			}
			edit := rockstest.Edit{}.Family(1).NextFile(21).LastSequence(9000).Delete(0, 10).
				Add(rockstest.File{Number: 20, Size: uint64(len(table)), SmallestSeq: 1, LargestSeq: 9000})
			if err := os.WriteFile(path, rockstest.AppendRecord(log, edit), 0o644); err != nil {
				t.Error(err)
			}
			if err := os.Remove(filepath.Join(kv, "000010.sst")); err != nil {
				t.Error(err)
			}
		}).Times(1)
		check(t, dir, fake)
	})
	t.Run("a record of the MANIFEST is only half written", func(t *testing.T) {
		t.Parallel()
		dir, kv, fake := newRig(t)
		path := filepath.Join(kv, "MANIFEST-000005")
		log, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		whole := rockstest.AppendRecord(log, rockstest.Edit{}.Family(1).LogNumber(4).NextFile(30).LastSequence(9000))
		if err := os.WriteFile(path, whole[:len(whole)-5], 0o644); err != nil {
			t.Fatal(err)
		}
		fake.After(volumetest.Close, path, func() {
			if err := os.WriteFile(path, whole, 0o644); err != nil {
				t.Error(err)
			}
		}).Times(1)
		check(t, dir, fake)
	})
}

// TestSSTMissing: a table that the MANIFEST still names is missing after the
// second look.
func TestSSTMissing(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "corrupt-alos-sst-deleted")
	s := storeOf(t, scan(t, dir), "0_0", "kv")
	if !slices.Contains(codes(s.Findings), finding.SSTMissing) || s.Up || s.Families[1].Entries != nil {
		t.Errorf("findings %v, up %v, entries %v", codes(s.Findings), s.Up, s.Families[1].Entries)
	}
}

// TestWALEnabled: 1 by bytes, 0 by a flush beside an empty WAL, and nothing
// before either.
func TestWALEnabled(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		version, name string
		want          string
	}{
		{"3.9.1", "closed-clean", "false"}, {"4.4.0", "closed-clean", "false"}, {"2.8.2", "closed-clean", "false"},
		{"3.9.1", "live-quiet", "unknown"}, {"4.4.0", "wal-on-killed9", "true"}, {"3.9.1", "wal-on-live-load", "true"},
	} {
		scan(t, fixture.Unpack(t, c.version, c.name)).Stores(func(_ *store.Application, task *store.Task, s *store.Store) {
			got := "unknown"
			if s.WALEnabled != nil {
				got = map[bool]string{true: "true", false: "false"}[*s.WALEnabled]
			}
			if got != c.want && s.Name != "gtab" {
				t.Errorf("%s/%s %s %s: %s, want %s", c.version, c.name, task.Layout.ID, s.Name, got, c.want)
			}
		})
	}
}

// TestSameStoreName: the kind of a store was changed, the old directory stayed.
func TestSameStoreName(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	task := filepath.Join(dir, "alos391", "1_0")
	copyDir(t, filepath.Join(task, "win", "win.1796062800000"), filepath.Join(task, "kv", "kv.1796062800000"))
	found := false
	for _, tk := range scan(t, dir).Applications[0].Tasks {
		found = found || slices.Contains(codes(tk.Findings), finding.SameStoreName)
	}
	if !found {
		t.Error("no finding for two stores of one name")
	}
}

// TestVanishedSegment: a segment that expires between the look at the layout and
// the look at it is no finding, and what it has counted stays counted.
func TestVanishedSegment(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	v := volume.New(volume.OS())
	first := store.Scan(v, dir, nil)
	before := storeOf(t, first, "1_0", "win")
	segment := filepath.Join(dir, "alos391", "1_0", "win", "win.1796062500000")
	if err := os.RemoveAll(segment); err != nil {
		t.Fatal(err)
	}
	// As an event in the segment calls for it, before the layout is read anew.
	second := first.Refresh(v, map[string]bool{segment: true})
	s := storeOf(t, second, "1_0", "win")
	if len(s.Findings) > 0 || !s.Up || s.Segments != 1 {
		t.Errorf("findings %v, up %v, %d segments", s.Findings, s.Up, s.Segments)
	}
	third := storeOf(t, store.Scan(v, dir, second), "1_0", "win")
	if before.Counts.Flushes != 2 || s.Counts.Flushes != 2 || third.Counts.Flushes != 2 {
		t.Errorf("flushes %d, %d, %d, want 2 each time", before.Counts.Flushes, s.Counts.Flushes, third.Counts.Flushes)
	}
}

// TestDoubtPasses: once the doubt about a lock is over, the picture is that of a
// fresh scan again.
func TestDoubtPasses(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "4.4.0", "closed-clean")
	v := volume.New(volume.OS())
	s := store.Scan(v, dir, nil)
	h := holder.Hold(t, filepath.Join(dir, "alos440", "1_0", "rocksdb", "kv", "LOCK"))
	if s = store.Scan(v, dir, s); s.Applications[0].Running != nil {
		t.Fatal("no doubt")
	}
	h.Kill()
	s = store.Scan(v, dir, s)
	n := 0
	s.Stores(func(_ *store.Application, task *store.Task, st *store.Store) {
		if n++; st.Closed != store.Clean {
			t.Errorf("%s %s: closed %q, want clean", task.Layout.ID, st.Name, st.Closed)
		}
	})
	if n != 9 || s.Applications[0].Running == nil {
		t.Errorf("%d stores, running %v", n, s.Applications[0].Running)
	}
}

// TestBeingMade: a store that RocksDB is just making has no CURRENT and no
// OPTIONS yet, which is no finding; without anybody at it, it is one.
func TestBeingMade(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	kv := filepath.Join(dir, "alos391", "1_0", "rocksdb", "kv")
	for _, name := range []string{"CURRENT", "OPTIONS-000007", "OPTIONS-000009"} {
		if err := os.Remove(filepath.Join(kv, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(kv, "MANIFEST-000005"), nil, 0o644); err != nil { // of now
		t.Fatal(err)
	}
	h := holder.Hold(t, filepath.Join(dir, "alos391", ".lock"), filepath.Join(kv, "LOCK"))
	if s := storeOf(t, scan(t, dir), "1_0", "kv"); len(s.Findings) > 0 {
		t.Errorf("findings on a store that is being made: %v", codes(s.Findings))
	}
	h.Kill()
	if s := storeOf(t, scan(t, dir), "1_0", "kv"); !slices.Contains(codes(s.Findings), finding.CurrentMissing) {
		t.Errorf("findings on one that nobody makes: %v", codes(s.Findings))
	}
}

// TestEndedWhileMade: what RocksDB leaves when it is killed between the first
// MANIFEST and CURRENT is no store yet, and no damage: RocksDB makes a new one
// there. With a log, OPTIONS or a later MANIFEST beside it, it once was one.
func TestEndedWhileMade(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		files []string
		empty bool
	}{
		{"first MANIFEST", []string{"MANIFEST-000001"}, true},
		{"CURRENT not renamed yet", []string{"MANIFEST-000001", "000001.dbtmp"}, true},
		{"later MANIFEST", []string{"MANIFEST-000005"}, false},
		{"two MANIFESTs", []string{"MANIFEST-000001", "MANIFEST-000005"}, false},
		{"log", []string{"MANIFEST-000001", "000004.log"}, false},
		{"OPTIONS", []string{"MANIFEST-000001", "OPTIONS-000007"}, false},
		{"table", []string{"MANIFEST-000001", "000008.sst"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			kv := filepath.Join(dir, "app", "0_0", "rocksdb", "kv")
			if err := os.MkdirAll(kv, 0o755); err != nil {
				t.Fatal(err)
			}
			for _, name := range append(tc.files, "IDENTITY", "LOCK", "LOG", "../../../.lock") {
				if err := os.WriteFile(filepath.Join(kv, name), nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			s := storeOf(t, scan(t, dir), "0_0", "kv")
			if missing := slices.Contains(codes(s.Findings), finding.CurrentMissing); s.Empty != tc.empty || missing == tc.empty {
				t.Errorf("empty %v, findings %v", s.Empty, codes(s.Findings))
			}
		})
	}
}

// TestDeletedSlowly: a segment that the application has closed and deletes, file by
// file and with pauses, is no finding. Left half deleted, it is damaged, and so is
// one of an application that does not run.
func TestDeletedSlowly(t *testing.T) {
	t.Parallel()
	newRig := func(t *testing.T) (dir, segment string, fake *volumetest.FS) {
		dir = fixture.Unpack(t, "3.9.1", "closed-clean")
		return dir, filepath.Join(dir, "alos391", "1_0", "win", "win.1796062500000"), volumetest.New(t, volume.OS())
	}
	// forget begins with CURRENT and then deletes a file of the segment at each third
	// look, until so many are left.
	forget := func(t *testing.T, segment string, fake *volumetest.FS, left int) {
		if err := os.Remove(filepath.Join(segment, "CURRENT")); err != nil {
			t.Fatal(err)
		}
		looks := 0
		fake.Before(volumetest.List, segment, func() {
			if looks++; looks%3 != 0 {
				return
			}
			entries, err := os.ReadDir(segment)
			if err != nil || len(entries) <= left {
				return
			}
			if err := os.Remove(filepath.Join(segment, entries[0].Name())); err != nil {
				t.Error(err)
			}
		})
	}
	half := func(t *testing.T, segment string) (left int) {
		t.Helper()
		entries, err := os.ReadDir(segment)
		if err != nil || len(entries) < 6 {
			t.Fatalf("%d files (%v)", len(entries), err)
		}
		return len(entries) / 2
	}
	t.Run("to its end", func(t *testing.T) {
		t.Parallel()
		dir, segment, fake := newRig(t)
		holder.Hold(t, filepath.Join(dir, "alos391", ".lock"))
		forget(t, segment, fake, 0)
		s := storeOf(t, store.Scan(volume.New(fake), dir, nil), "1_0", "win")
		if len(s.Findings) > 0 || !s.Up {
			t.Errorf("findings %v, up %v, %d segments", codes(s.Findings), s.Up, s.Segments)
		}
	})
	t.Run("half", func(t *testing.T) {
		t.Parallel()
		dir, segment, fake := newRig(t)
		holder.Hold(t, filepath.Join(dir, "alos391", ".lock"))
		forget(t, segment, fake, half(t, segment))
		s := storeOf(t, store.Scan(volume.New(fake), dir, nil), "1_0", "win")
		if !slices.Contains(codes(s.Findings), finding.CurrentMissing) {
			t.Errorf("findings %v", codes(s.Findings))
		}
	})
	t.Run("at rest", func(t *testing.T) {
		t.Parallel()
		dir, segment, fake := newRig(t)
		forget(t, segment, fake, half(t, segment))
		s := storeOf(t, store.Scan(volume.New(fake), dir, nil), "1_0", "win")
		if !slices.Contains(codes(s.Findings), finding.CurrentMissing) {
			t.Errorf("findings %v", codes(s.Findings))
		}
	})
}
