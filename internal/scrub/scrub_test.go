package scrub_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/scrub"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/verify"
	"streams-sidecar/internal/volume"
	"streams-sidecar/test/fixture"
)

// rig runs a Scrubber over one state directory until the test ends.
type rig struct {
	*scrub.Scrubber
	t       *testing.T
	dir     string
	v       *volume.Volume
	mu      sync.Mutex
	dirs    []*store.StateDir
	now     atomic.Int64 // ahead of the clock
	paused  atomic.Bool
	changed atomic.Int64
}

func start(t *testing.T, dir string, cfg scrub.Config) *rig {
	r := &rig{t: t, dir: dir, v: volume.New(volume.OS())}
	r.look()
	r.paused.Store(cfg.Paused != nil)
	cfg.Picture, cfg.Volumes, cfg.Paused = r.picture, []*volume.Volume{r.v}, r.paused.Load
	cfg.Now = func() time.Time { return time.Now().Add(time.Duration(r.now.Load())) }
	cfg.Changed = func() { r.changed.Add(1) }
	r.Scrubber = scrub.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *rig) look() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dirs = []*store.StateDir{store.Scan(r.v, r.dir, nil)}
}

func (r *rig) picture() []*store.StateDir {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dirs
}

func (r *rig) databases() []*store.Database { return r.picture()[0].Databases() }

func (r *rig) database(path string) *store.Database {
	return r.picture()[0].Database(filepath.Join(r.dir, path))
}

func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("not within 30s: %s", what)
		}
	}
}

// verified says that every database has a result of a depth, and gives how many
// tables they are.
func (r *rig) verified(d verify.Depth) (tables int, all bool) {
	for _, db := range r.databases() {
		i := slices.IndexFunc(r.Results(db), func(x *verify.Result) bool { return x.Depth == d })
		if i < 0 {
			return 0, false
		}
		tables += r.Results(db)[i].Tables
	}
	return tables, true
}

func flip(t *testing.T, path string, at int64) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	data[at] ^= 1
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	// As a volume that rots: no stat tells.
	if err := os.Chtimes(path, before.ModTime(), before.ModTime()); err != nil {
		t.Fatal(err)
	}
}

const kv = "alos391/1_0/rocksdb/kv"

// TestQuickAllTheTime: every database is verified quickly at once, and again when
// its time has come; what no stat tells is found then, and is gone once it heals.
func TestQuickAllTheTime(t *testing.T) {
	t.Parallel()
	r := start(t, fixture.Unpack(t, "3.9.1", "closed-clean"), scrub.Config{Quick: time.Hour})
	r.until("every database verified", func() bool { _, all := r.verified(verify.Quick); return all })
	tables, _ := r.verified(verify.Quick)
	if n := r.Totals(); tables < 9 || n.Quick != uint64(len(r.databases())) || n.Deep != 0 || n.Bytes == 0 || r.changed.Load() != 0 {
		t.Errorf("%d tables, %+v, changed %d times", tables, n, r.changed.Load())
	}
	if _, all := r.verified(verify.Deep); all {
		t.Error("verified deep, unasked")
	}
	table := filepath.Join(r.dir, kv, "000010.sst")
	info, err := os.Stat(table)
	if err != nil {
		t.Fatal(err)
	}
	flip(t, table, info.Size()-3) // of the magic number
	time.Sleep(50 * time.Millisecond)
	if fs := r.Findings(r.database(kv)); len(fs) != 0 {
		t.Errorf("found before its time: %+v", fs)
	}
	r.now.Add(int64(2 * time.Hour))
	r.until("the finding", func() bool { return len(r.Findings(r.database(kv))) > 0 })
	if fs := r.Findings(r.database(kv)); len(fs) != 1 || fs[0].Code != finding.SSTFooterMalformed || fs[0].Severity != finding.Damage {
		t.Errorf("%+v", fs)
	}
	r.until("word of it", func() bool { return r.changed.Load() > 0 })
	flip(t, table, info.Size()-3)
	r.now.Add(int64(2 * time.Hour))
	r.until("it to heal", func() bool { return len(r.Findings(r.database(kv))) == 0 })
}

// TestDeepAsOften: what only a deep verification sees is found when its interval
// is over, and counts only as long as the table belongs to the store.
func TestDeepAsOften(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	flip(t, filepath.Join(dir, kv, "000010.sst"), 300)
	r := start(t, dir, scrub.Config{Quick: time.Hour, Deep: 30 * time.Minute, Pace: volume.NewPace(1 << 30)})
	r.until("every database verified", func() bool { _, all := r.verified(verify.Quick); return all })
	if fs := r.Findings(r.database(kv)); len(fs) != 0 {
		t.Errorf("quick: %+v", fs)
	}
	r.now.Add(int64(31 * time.Minute))
	r.until("every database verified deep", func() bool { _, all := r.verified(verify.Deep); return all })
	fs := r.Findings(r.database(kv))
	if len(fs) != 1 || fs[0].Code != finding.SSTBlockChecksum || fs[0].Offset == nil {
		t.Fatalf("deep: %+v", fs)
	}
	if n := r.Totals(); n.Deep != uint64(len(r.databases())) || n.Retries == 0 {
		t.Errorf("%+v", n)
	}
	// Another database in its place knows nothing of it.
	path := filepath.Join(dir, kv)
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(path, os.DirFS(filepath.Join(dir, "alos391/1_1/rocksdb/kv"))); err != nil {
		t.Fatal(err)
	}
	r.look()
	if fs := r.Findings(r.database(kv)); len(fs) != 0 {
		t.Errorf("of another database: %+v", fs)
	}
}

// TestPaused: while a preStop call waits, nothing is read.
func TestPaused(t *testing.T) {
	t.Parallel()
	r := start(t, fixture.Unpack(t, "3.9.1", "closed-clean"), scrub.Config{Paused: func() bool { return true }})
	time.Sleep(100 * time.Millisecond)
	if n := r.Totals(); n != (scrub.Totals{}) {
		t.Errorf("%+v", n)
	}
	r.paused.Store(false)
	r.until("every database verified", func() bool { _, all := r.verified(verify.Quick); return all })
}
