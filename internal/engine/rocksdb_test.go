package engine_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"streams-sidecar/internal/engine"
	"streams-sidecar/internal/rocksfile/rockstest"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
	"streams-sidecar/test/fixture"
	"streams-sidecar/test/writes"
)

// everything is all that can be asked.
var everything = engine.What{Offsets: true, Stats: true}

// realEngine gives a client of the real engine, with RocksDB in it.
func realEngine(t testing.TB, o engine.Options) *engine.Client {
	t.Helper()
	o.Program = os.Getenv("SIDECAR_TEST_ENGINE")
	if o.Program == "" {
		t.Skip("SIDECAR_TEST_ENGINE is not set: scripts/test sets it, where RocksDB can be had")
	}
	for _, name := range []string{o.Program, filepath.Join(filepath.Dir(o.Program), "librocksdb.so")} {
		if _, err := os.Stat(name); err != nil { // and so that a new build makes the test run again
			t.Fatal(err)
		}
	}
	if o.Deadline == 0 {
		o.Deadline = time.Minute // the machine may be busy
	}
	c := engine.New(o)
	t.Cleanup(c.Close)
	return c
}

func databases(t testing.TB, dir string) []*store.Database {
	t.Helper()
	var out []*store.Database
	store.Scan(volume.New(volume.OS()), dir, nil).Stores(func(_ *store.Application, _ *store.Task, s *store.Store) {
		out = append(out, s.Databases...)
	})
	return out
}

// damage is what RocksDB says of damaged stores that our own reader refuses to
// put to it; docs/engine.md has the same table in words. "" means that RocksDB
// opens them and says nothing.
var damage = []struct{ name, says string }{
	{"manifest-truncated", ""}, // it takes what is before the cut for the state
	{"manifest-tail-cut", ""},  // the same
	{"manifest-flip", "checksum mismatch"},
	{"manifest-deleted", "No such file or directory"},
	{"current-empty", "CURRENT file does not end with newline"},
	{"current-no-newline", "CURRENT file does not end with newline"},
	{"sst-footer-flip", "Bad table magic number"},
	{"sst-deleted", "No such file or directory"},
	{"sst-truncated", "Sst file size mismatch"},
	{"sst-zero", "Sst file size mismatch"},
}

// TestFixtures: of every database of every real directory RocksDB says what our
// readers say: families, live tables with level, size and sequence numbers,
// entries, the last sequence number and the offsets. Nothing is written, and no
// file stays open.
func TestFixtures(t *testing.T) {
	// Not beside other tests: a process that they start holds for a moment the
	// files that are just unpacked, and closing those is an event.
	c := realEngine(t, engine.Options{})
	if _, err := c.Version(ctx); err != nil {
		t.Fatal(err)
	}
	t.Run("all", func(t *testing.T) { fixtures(t, c) })
	if n := c.Restarts(); n != 0 {
		t.Errorf("%d restarts", n)
	}
	small(t, c)
}

func fixtures(t *testing.T, c *engine.Client) {
	for _, n := range fixture.Names() {
		t.Run(n.String(), func(t *testing.T) {
			t.Parallel()
			dir := fixture.Unpack(t, n.Version, n.Case)
			w := writes.Watch(t, dir)
			for _, db := range databases(t, dir) {
				if db.IsEmpty() {
					continue
				}
				if why := engine.Fit(db); why != "" {
					expectDamage(t, c, n.Case, db)
					continue
				}
				a, err := c.Ask(ctx, db, everything)
				if err != nil {
					t.Fatal(err)
				}
				if diff := engine.Compare(db, a, everything); len(diff) > 0 {
					t.Errorf("%s: %+v", db.Path, diff)
				}
				expectProperties(t, db, a)
			}
			w.ExpectNothing(t)
			noFileOpen(t, c, dir)
		})
	}
}

func expectDamage(t *testing.T, c *engine.Client, name string, db *store.Database) {
	t.Helper()
	a, err := engine.AskAnyway(ctx, c, db.Path, 0, everything)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range damage {
		if strings.HasSuffix(name, d.name) {
			if d.says == "" && a.Error != "" || !strings.Contains(a.Error, d.says) {
				t.Errorf("%s: RocksDB says %q, want %q", db.Path, a.Error, d.says)
			}
			return
		}
	}
	t.Errorf("%s: not put to RocksDB (%s), which says %q", db.Path, engine.Fit(db), a.Error)
}

func expectProperties(t *testing.T, db *store.Database, a *engine.Answer) {
	t.Helper()
	for _, f := range a.Families {
		var bytes uint64
		for _, x := range f.Files {
			bytes += x.Size
		}
		if got := f.Properties["live-sst-files-size"]; got != bytes {
			t.Errorf("%s family %s: live-sst-files-size is %d, the tables have %d", db.Path, f.Name, got, bytes)
		}
		if f.Entries == nil || f.Deletions == nil {
			t.Errorf("%s family %s: no entries", db.Path, f.Name)
		}
		if _, ok := f.Properties["estimate-num-keys"]; !ok {
			t.Errorf("%s family %s: no estimate of keys", db.Path, f.Name)
		}
		if !strings.Contains(f.Stats, "** Compaction Stats [") || !strings.Contains(f.Stats, "Uptime(secs)") {
			t.Errorf("%s family %s: stats %q", db.Path, f.Name, f.Stats)
		}
	}
}

// noFileOpen: the child has closed everything below dir.
func noFileOpen(t *testing.T, c *engine.Client, dir string) {
	t.Helper()
	fds := fmt.Sprintf("/proc/%d/fd/", engine.Pid(c))
	entries, err := os.ReadDir(fds)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if to, err := os.Readlink(fds + e.Name()); err == nil && strings.HasPrefix(to, dir) {
			t.Errorf("%s is still open", to)
		}
	}
}

// status gives a number of /proc/<pid>/status of the child.
func status(t testing.TB, c *engine.Client, name string) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", engine.Pid(c)))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^` + name + `:\s+(\d+)`).FindSubmatch(text)
	if m == nil {
		t.Fatalf("no %s in\n%s", name, text)
	}
	n, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// resident is the most KiB that the child has had in memory.
func resident(t testing.TB, c *engine.Client) int {
	t.Helper()
	return status(t, c, "VmHWM")
}

// small: the child has stayed so.
func small(t *testing.T, c *engine.Client) {
	t.Helper()
	n, threads := resident(t, c), status(t, c, "Threads")
	t.Logf("at most %d KiB resident, %d KiB data, %d threads", n, status(t, c, "VmData"), threads)
	if n > 96<<10 || threads > 16 {
		t.Errorf("%d KiB resident, %d threads", n, threads)
	}
}

// flip changes the type byte of the first record of a log from a full record to
// a recyclable one, which makes RocksDB from 9.4 on read it again for ever
// (db/log_reader.cc).
func flip(t *testing.T, path string, at int) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if data[at+6] != 1 {
		t.Fatalf("%s: type %d at %d", path, data[at+6], at)
	}
	data[at+6] = 5
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// second gives where the second record of a log starts.
func second(t *testing.T, path string) int {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil || len(data) < 7 {
		t.Fatal(err, len(data))
	}
	return 7 + int(binary.LittleEndian.Uint16(data[4:]))
}

func byName(t *testing.T, dbs []*store.Database, name string) *store.Database {
	t.Helper()
	i := slices.IndexFunc(dbs, func(db *store.Database) bool { return strings.HasSuffix(db.Path, name) })
	if i < 0 {
		t.Fatalf("no %s", name)
	}
	return dbs[i]
}

// wal gives the log of a database that has bytes.
func wal(t *testing.T, db *store.Database) string {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(db.Path, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range logs {
		if i, err := os.Stat(l); err == nil && i.Size() > 0 {
			return l
		}
	}
	t.Fatalf("no WAL with bytes in %s", db.Path)
	return ""
}

// TestFlippedBitMakesRocksDBSpin: in a WAL, of which our reader knows nothing,
// and in a MANIFEST, where it would not have let RocksDB near it. The child is
// killed, and the other stores are answered.
func TestFlippedBitMakesRocksDBSpin(t *testing.T) {
	t.Parallel()
	c := realEngine(t, engine.Options{Deadline: 8 * time.Second})
	dir := fixture.Unpack(t, "4.4.0", "wal-on-killed9")
	before := databases(t, dir)
	kv, x00 := byName(t, before, "0_0/rocksdb/kv"), byName(t, before, "0_0/rocksdb/x00")
	log := wal(t, kv)
	flip(t, log, second(t, log))
	manifests, err := filepath.Glob(filepath.Join(x00.Path, "MANIFEST-*"))
	if err != nil || len(manifests) != 1 {
		t.Fatal(manifests, err)
	}
	flip(t, manifests[0], second(t, manifests[0]))
	after := databases(t, dir)

	if _, err := c.Ask(ctx, byName(t, after, "0_1/rocksdb/kv"), everything); err != nil {
		t.Fatal(err)
	}
	_, err = c.Ask(ctx, byName(t, after, "0_0/rocksdb/kv"), everything)
	if e, ok := errors.AsType[*engine.Error](err); !ok || e.Kind != engine.Hung {
		t.Errorf("WAL: %v", err)
	}
	_, err = c.Ask(ctx, byName(t, after, "0_0/rocksdb/x00"), everything)
	if e, ok := errors.AsType[*engine.Error](err); !ok || e.Kind != engine.NotFit {
		t.Errorf("MANIFEST: %v", err)
	}
	_, err = engine.AskAnyway(ctx, c, x00.Path, 0, everything)
	if e, ok := errors.AsType[*engine.Error](err); !ok || e.Kind != engine.Hung {
		t.Errorf("MANIFEST anyway: %v", err)
	}
	if _, err := c.Ask(ctx, byName(t, after, "0_1/rocksdb/x00"), everything); err != nil {
		t.Errorf("after it: %v", err)
	}
	if n := c.Restarts(); n != 2 {
		t.Errorf("%d restarts, want 2", n)
	}
}

// batch is a WriteBatch of one put (RocksDB db/write_batch.cc).
func batch(sequence uint64, key, value string) []byte {
	b := binary.LittleEndian.AppendUint64(nil, sequence)
	b = binary.LittleEndian.AppendUint32(b, 1)
	b = append(b, 1)
	b = append(binary.AppendUvarint(b, uint64(len(key))), key...)
	return append(binary.AppendUvarint(b, uint64(len(value))), value...)
}

// TestMemoryEnds: the largest WAL that RocksDB is asked to replay fits into the
// least memory; one that does not ends the child, and the other stores are
// answered.
func TestMemoryEnds(t *testing.T) {
	t.Parallel()
	c := realEngine(t, engine.Options{Memory: engine.LeastMemory})
	dir := fixture.Unpack(t, "4.4.0", "wal-on-killed9")
	kv, x00 := byName(t, databases(t, dir), "0_0/rocksdb/kv"), byName(t, databases(t, dir), "0_0/rocksdb/x00")
	grow := func(db *store.Database, until int) {
		t.Helper()
		path := wal(t, db)
		log, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		value := strings.Repeat("v", 40) // small entries take the most memory
		for n := uint64(0); len(log) < until; n++ {
			log = rockstest.AppendRecord(log, batch(2000+n, fmt.Sprintf("key%d", n), value))
		}
		if err := os.WriteFile(path, log, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	grow(kv, engine.MaxWAL-1000)
	grow(x00, 4*engine.MaxWAL)
	dbs := databases(t, dir)
	a, err := c.Ask(ctx, byName(t, dbs, "0_0/rocksdb/kv"), everything)
	if err != nil || a.Error != "" || a.LastSequence < 100_000 {
		t.Errorf("WAL of %d bytes: %+v, %v", engine.MaxWAL, a, err)
	}
	_, err = c.Ask(ctx, byName(t, dbs, "0_0/rocksdb/x00"), everything)
	if e, ok := errors.AsType[*engine.Error](err); !ok || e.Kind != engine.NotFit {
		t.Errorf("larger WAL: %v", err)
	}
	_, err = engine.AskAnyway(ctx, c, x00.Path, 0, everything)
	if e, ok := errors.AsType[*engine.Error](err); !ok || e.Kind != engine.Died || !strings.Contains(err.Error(), "alloc") {
		t.Errorf("larger WAL anyway: %v", err)
	}
	if a, err := c.Ask(ctx, byName(t, dbs, "0_1/rocksdb/kv"), everything); err != nil || a.Error != "" {
		t.Errorf("after it: %+v, %v", a, err)
	}
}

// TestConsultAgain: RocksDB sees a later state than our reader has; the
// difference is only the time between the two looks, and goes with a new look.
func TestConsultAgain(t *testing.T) {
	t.Parallel()
	c := realEngine(t, engine.Options{})
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	kv := byName(t, databases(t, dir), "1_0/rocksdb/kv")
	// A compaction that moves the table to the last level.
	path := filepath.Join(kv.Path, "MANIFEST-000005")
	log, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	state, _, _ := kv.Manifest()
	file := state.Families[1].Files[0]
	edit := rockstest.Edit{}.Family(1).NextFile(40).Delete(file.Level, file.Number).
		AddOld(100, rockstest.File{Number: file.Number, Level: 6, Size: file.Size, SmallestSeq: file.SmallestSeq, LargestSeq: file.LargestSeq})
	if err := os.WriteFile(path, rockstest.AppendRecord(log, edit), 0o600); err != nil {
		t.Fatal(err)
	}
	again := 0
	o := c.Consult(ctx, kv, everything, func() *store.Database {
		again++
		return byName(t, databases(t, dir), "1_0/rocksdb/kv")
	})
	if o.Err != nil || len(o.Differences) > 0 || again != 1 {
		t.Errorf("%+v, %d new looks", o, again)
	}
	// If nothing has changed meanwhile, the difference stands.
	o = c.Consult(ctx, kv, everything, func() *store.Database { return kv })
	want := []engine.Difference{{Subject: engine.Tables, Family: "keyValueWithTimestamp",
		Ours:    fmt.Sprintf("%06d.sst level 0, %d bytes, sequence %d to %d", file.Number, file.Size, file.SmallestSeq, file.LargestSeq),
		RocksDB: fmt.Sprintf("%06d.sst level 6, %d bytes, sequence %d to %d", file.Number, file.Size, file.SmallestSeq, file.LargestSeq)}}
	if diff := cmp.Diff(want, o.Differences); diff != "" || o.Err != nil {
		t.Errorf("%v (-want +got):\n%s", o.Err, diff)
	}
	// One that is gone, and one that never stands still.
	missing := c.Consult(ctx, kv, everything, func() *store.Database { return nil })
	if e, ok := errors.AsType[*engine.Error](missing.Err); !ok || e.Kind != engine.NotFit {
		t.Errorf("gone: %+v", missing)
	}
	other := byName(t, databases(t, dir), "1_1/rocksdb/kv")
	flips := 0
	moving := c.Consult(ctx, kv, everything, func() *store.Database {
		// A look at another database each time, as if it had been replaced.
		flips++
		stale := *other
		if flips%2 == 0 {
			stale = *kv
		}
		stale.Path = kv.Path
		return &stale
	})
	if e, ok := errors.AsType[*engine.Error](moving.Err); !ok || e.Kind != engine.Moving {
		t.Errorf("moving: %+v", moving)
	}
}

// TestRealBounds: RocksDB's process cannot write a byte to a file, and is nice.
func TestRealBounds(t *testing.T) {
	t.Parallel()
	c := realEngine(t, engine.Options{Memory: engine.LeastMemory})
	for _, db := range databases(t, fixture.Unpack(t, "4.4.0", "closed-clean")) {
		if _, err := c.Ask(ctx, db, everything); err != nil {
			t.Errorf("with the least memory: %v", err)
		}
	}
	if v, err := c.Version(ctx); err != nil || !strings.HasPrefix(v, "10.") {
		t.Fatalf("version %q, %v", v, err)
	}
	nice, err := unix.Getpriority(unix.PRIO_PROCESS, engine.Pid(c))
	if err != nil || 20-nice < 10 { // the system call gives 20 minus it
		t.Errorf("nice %d, %v", 20-nice, err)
	}
	// Without its library it does not start, and says so.
	alone := filepath.Join(t.TempDir(), "sidecar-engine")
	program, err := os.ReadFile(os.Getenv("SIDECAR_TEST_ENGINE"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(alone, program, 0o700); err != nil {
		t.Fatal(err)
	}
	without := engine.New(engine.Options{Program: alone})
	t.Cleanup(without.Close)
	_, err = without.Version(ctx)
	if e, ok := errors.AsType[*engine.Error](err); !ok || e.Kind != engine.Broken || !strings.Contains(err.Error(), "librocksdb.so") {
		t.Errorf("without its library: %v", err)
	}
}
