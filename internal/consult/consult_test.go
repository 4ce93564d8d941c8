package consult_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"streams-sidecar/internal/consult"
	"streams-sidecar/internal/engine"
	"streams-sidecar/internal/event"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
	"streams-sidecar/test/fixture"
)

// rocks is an engine that answers as it is told, and takes a while for it.
type rocks struct {
	mu    sync.Mutex
	err   error // of the engine as a whole
	takes time.Duration
	stats bool             // whether the statistics are to be asked for
	fails map[string]error // by path
	asked map[string][]time.Time
	begun time.Time
	order []string

	versions int
}

func newRocks() *rocks {
	return &rocks{takes: 2 * time.Millisecond, fails: map[string]error{}, asked: map[string][]time.Time{}, begun: time.Now()}
}

func (r *rocks) set(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

func (r *rocks) fail(path string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fails[path] = err
}

func (r *rocks) Version(context.Context) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.versions++
	return "10.10.1", r.err
}

func (r *rocks) Restarts() uint64 { return 7 }

func (r *rocks) Consult(_ context.Context, db *store.Database, w engine.What, again func() *store.Database) engine.Opinion {
	time.Sleep(r.takes)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !w.Offsets || w.Stats != r.stats {
		return engine.Opinion{Err: fmt.Errorf("asked for %+v", w)}
	}
	if r.err != nil {
		return engine.Opinion{Err: r.err}
	}
	r.asked[db.Path] = append(r.asked[db.Path], time.Now())
	r.order = append(r.order, db.Path)
	if err := r.fails[db.Path]; err != nil {
		return engine.Opinion{Err: err}
	}
	if now := again(); now == nil || now.Path != db.Path {
		return engine.Opinion{Err: errors.New("again gives another database")}
	}
	n, m := uint64(100), uint64(10)
	return engine.Opinion{At: time.Now(), Answer: &engine.Answer{LastSequence: 5, Families: []engine.Family{
		{Name: []byte("default"), Entries: &n, Deletions: &m, Properties: map[string]uint64{"estimate-num-keys": 90, "num-blob-files": 0}},
		{Name: []byte("offsets"), Entries: &m, Deletions: &m, Properties: map[string]uint64{"estimate-num-keys": 3}},
	}}}
}

// times that a database was asked about, in seconds since the beginning.
func (r *rocks) times(path string) (out []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.asked[path] {
		out = append(out, int(t.Sub(r.begun).Round(time.Second)/time.Second))
	}
	return out
}

func (r *rocks) total() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.order)
}

// rig is a consultant over a directory. look brings its picture up to date.
type rig struct {
	*consult.Consultant
	rocks  *rocks
	events *eventLog
	look   func()
	all    func() map[string]*store.Database
	// Picture is what look has seen last.
	Picture func() []*store.StateDir
	quiet   func(bool)
}

type eventLog struct {
	mu  sync.Mutex
	all []string
}

func (l *eventLog) Emit(e event.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch e := e.(type) {
	case event.FindingAppeared:
		l.all = append(l.all, "+"+e.Code+" "+filepath.Base(e.File))
	case event.FindingGone:
		l.all = append(l.all, "-"+e.Code+" "+filepath.Base(e.File))
	case event.EngineReady:
		l.all = append(l.all, "ready "+e.RocksDB)
	default:
		l.all = append(l.all, fmt.Sprintf("%T", e))
	}
}

func (l *eventLog) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := strings.Join(l.all, ", ")
	l.all = nil
	return out
}

// start must be called within a bubble of synctest.
func start(t *testing.T, dir string) *rig {
	t.Helper()
	v := volume.New(volume.OS())
	var mu sync.Mutex
	var picture []*store.StateDir
	quiet := false
	r := &rig{rocks: newRocks(), events: &eventLog{}}
	r.look = func() {
		mu.Lock()
		defer mu.Unlock()
		var before *store.StateDir
		if picture != nil {
			before = picture[0]
		}
		picture = []*store.StateDir{store.Scan(v, dir, before)}
	}
	r.all = func() map[string]*store.Database {
		mu.Lock()
		defer mu.Unlock()
		out := map[string]*store.Database{}
		picture[0].Stores(func(_ *store.Application, _ *store.Task, s *store.Store) {
			for _, db := range s.Databases {
				out[db.Path] = db
			}
		})
		return out
	}
	r.quiet = func(q bool) {
		mu.Lock()
		defer mu.Unlock()
		quiet = q
	}
	r.Picture = func() []*store.StateDir {
		mu.Lock()
		defer mu.Unlock()
		return picture
	}
	r.Consultant = consult.New(consult.Config{
		Engine: r.rocks, Volumes: []*volume.Volume{v}, Events: r.events, Picture: r.Picture,
		Quiet: func() bool {
			mu.Lock()
			defer mu.Unlock()
			return quiet
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return r
}

func pathOf(t *testing.T, r *rig, suffix string) string {
	t.Helper()
	for path := range r.all() {
		if strings.HasSuffix(path, suffix) {
			return path
		}
	}
	t.Fatalf("no %s", suffix)
	return ""
}

// touch changes a database as a stat can see.
func touch(t *testing.T, path string) {
	t.Helper()
	f := filepath.Join(path, "000999.log")
	old, err := os.ReadFile(f)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if err := os.WriteFile(f, append(old, 'x'), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestSchedule: every database is asked about soon; one that changes once per
// interval, and one that does not ever more seldom, up to sixteen times of it.
func TestSchedule(t *testing.T) {
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	synctest.Test(t, func(t *testing.T) {
		r := start(t, dir)
		time.Sleep(5 * time.Second)
		if n := r.rocks.total(); n != 0 || r.State().Asked {
			t.Fatalf("asked %d times before there is a picture", n)
		}
		r.look()
		time.Sleep(6 * time.Second)
		all := slices.Sorted(maps.Keys(r.all()))
		if n := r.rocks.total(); n != len(all) || n < 9 {
			t.Fatalf("%d of %d databases asked", n, len(all))
		}
		busy, idle := pathOf(t, r, "1_0/rocksdb/kv"), pathOf(t, r, "1_1/rocksdb/kv")
		for range 80 {
			touch(t, busy)
			r.look()
			time.Sleep(time.Minute)
		}
		gaps := func(path string) (out []int) {
			times := r.rocks.times(path)
			for i := 1; i < len(times); i++ {
				out = append(out, times[i]-times[i-1])
			}
			return out
		}
		close := func(got, want int) bool { return got >= want && got <= want+2 }
		for _, g := range gaps(busy) {
			if !close(g, 60) {
				t.Fatalf("a busy one was asked about at intervals of %v", gaps(busy))
			}
		}
		if len(gaps(busy)) < 75 {
			t.Errorf("a busy one only %d times in 80 minutes", len(gaps(busy)))
		}
		want := []int{120, 240, 480, 960, 960, 960}
		if got := gaps(idle); len(got) < len(want) || !slices.EqualFunc(got[:len(want)], want, close) {
			t.Errorf("an idle one at intervals of %v, want %v", got, want)
		}
		// A change of the idle one is seen within the interval.
		before := len(r.rocks.times(idle))
		touch(t, idle)
		r.look()
		time.Sleep(2 * time.Minute)
		if n := len(r.rocks.times(idle)); n != before+1 {
			t.Errorf("asked %d times after a change", n-before)
		}
	})
}

// TestShare: whatever there is to ask, RocksDB takes a twentieth of the time,
// and in bursts no longer than one request.
func TestShare(t *testing.T) {
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	for _, takes := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 80 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			r := start(t, dir)
			r.rocks.takes = takes
			r.look()
			before := time.Now()
			for r.rocks.total() < len(r.all()) {
				time.Sleep(time.Millisecond)
			}
			n := len(r.all())
			took := time.Since(before)
			if least := time.Duration(n-1) * takes * 20; took < least {
				t.Errorf("%d requests of %v within %v, want at least %v", n, takes, took, least)
			}
			if most := time.Duration(n)*max(takes*20, 50*time.Millisecond)*13/10 + 3*time.Second; took > most {
				t.Errorf("%d requests of %v only within %v, want %v", n, takes, took, most)
			}
		})
	}
}

// TestFair: with more to ask than there is time for, each gets its turn.
func TestFair(t *testing.T) {
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	synctest.Test(t, func(t *testing.T) {
		r := start(t, dir)
		r.rocks.takes = 20 * time.Second
		r.look()
		for range 40 {
			for path := range r.all() {
				touch(t, path)
			}
			r.look()
			time.Sleep(time.Minute)
		}
		least, most := 1000, 0
		for path := range r.all() {
			n := len(r.rocks.times(path))
			least, most = min(least, n), max(most, n)
			if _, ok := r.Opinion(r.all()[path]); !ok {
				t.Errorf("%s has no opinion any more", path)
			}
		}
		if most-least > 1 || least < 6 || most > 12 {
			t.Errorf("asked between %d and %d times", least, most)
		}
	})
}

// TestQuiet: nothing is asked while a preStop call waits.
func TestQuiet(t *testing.T) {
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	synctest.Test(t, func(t *testing.T) {
		r := start(t, dir)
		r.quiet(true)
		r.look()
		time.Sleep(time.Minute)
		if n := r.rocks.total(); n != 0 {
			t.Errorf("asked %d times", n)
		}
		r.quiet(false)
		time.Sleep(time.Minute)
		if r.rocks.total() == 0 {
			t.Error("never asked again")
		}
	})
}

// TestOpinions: an answer is there for its database as long as it tells of it.
func TestOpinions(t *testing.T) {
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	synctest.Test(t, func(t *testing.T) {
		r := start(t, dir)
		r.look()
		path := pathOf(t, r, "1_0/rocksdb/kv")
		if _, ok := r.Opinion(r.all()[path]); ok {
			t.Error("an opinion before it was asked")
		}
		time.Sleep(10 * time.Second)
		if o, ok := r.Opinion(r.all()[path]); !ok || o.Answer == nil || o.Answer.LastSequence != 5 {
			t.Errorf("opinion %+v, %v", o, ok)
		}
		s := r.State()
		if !s.Asked || s.Err != nil || s.Version != "10.10.1" || s.Restarts != 7 || s.Requests["answered"] != uint64(len(r.all())) {
			t.Errorf("state %+v", s)
		}
		for _, outcome := range []string{"refused", "differed", "not-fit", "hung", "died", "garbage", "set-aside", "moving"} {
			if n, ok := s.Requests[outcome]; !ok || n != 0 {
				t.Errorf("outcome %s: %d, %v", outcome, n, ok)
			}
		}
		// It cannot be asked any more: the answer stays as long as nothing
		// changes, then three intervals.
		r.rocks.set(&engine.Error{Kind: engine.Stuck, Path: "/opt/engine"})
		time.Sleep(time.Hour)
		if _, ok := r.Opinion(r.all()[path]); !ok {
			t.Error("no opinion of a database that has not changed")
		}
		touch(t, path)
		r.look()
		time.Sleep(170 * time.Second)
		if _, ok := r.Opinion(r.all()[path]); !ok {
			t.Error("no opinion of a database that has changed within three intervals")
		}
		time.Sleep(20 * time.Second)
		if _, ok := r.Opinion(r.all()[path]); ok {
			t.Error("an opinion of a database that has changed more than three intervals ago")
		}
		// The directory is another one.
		r.rocks.set(nil)
		time.Sleep(time.Minute)
		if _, ok := r.Opinion(r.all()[path]); !ok {
			t.Error("not asked again")
		}
		aside := filepath.Join(t.TempDir(), "kv")
		must(t, os.Rename(path, aside))
		must(t, os.CopyFS(path, os.DirFS(aside)))
		r.look()
		if _, ok := r.Opinion(r.all()[path]); ok {
			t.Error("an opinion of a database that was replaced")
		}
		time.Sleep(5 * time.Second)
		if _, ok := r.Opinion(r.all()[path]); !ok {
			t.Error("a database that was replaced is not asked about soon")
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestStatistics: they are of this moment, are asked for with everything else,
// and change nothing of what is known.
func TestStatistics(t *testing.T) {
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	synctest.Test(t, func(t *testing.T) {
		r := start(t, dir)
		r.look()
		time.Sleep(10 * time.Second)
		db := r.all()[pathOf(t, r, "1_0/rocksdb/kv")]
		before, asked := r.rocks.total(), r.State().Requests["answered"]
		r.rocks.stats = true
		o := r.Statistics(t.Context(), db)
		if o.Err != nil || o.Answer.LastSequence != 5 || time.Since(o.At) > time.Second || r.rocks.total() != before+1 {
			t.Errorf("%+v", o)
		}
		if now := r.State().Requests["answered"]; now != asked {
			t.Errorf("%d requests, %d before", now, asked)
		}
		must(t, os.RemoveAll(db.Path))
		r.look()
		if e, ok := errors.AsType[*engine.Error](r.Statistics(t.Context(), db).Err); !ok || e.Kind != engine.NotFit {
			t.Errorf("of a database that is gone: %v", e)
		}
	})
}

// TestFailuresComeLast: a database on which RocksDB has failed waits for all
// others, and nothing is asked where there is nothing.
func TestFailuresComeLast(t *testing.T) {
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	synctest.Test(t, func(t *testing.T) {
		r := start(t, dir)
		r.look()
		bad := pathOf(t, r, "1_0/rocksdb/kv")
		r.rocks.fail(bad, &engine.Error{Kind: engine.Hung, Times: 1})
		for range 4 {
			for path := range r.all() {
				touch(t, path)
			}
			r.look()
			time.Sleep(90 * time.Second)
		}
		n := len(r.all())
		if total := r.rocks.total(); total < 2*n {
			t.Fatalf("only %d requests", total)
		}
		for round := 1; (round+1)*n <= r.rocks.total(); round++ { // in the first nothing is known of it yet
			if last := r.rocks.order[(round+1)*n-1]; last != bad {
				t.Errorf("round %d ends with %s", round, last)
			}
		}
	})
	empty := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, empty)
		r.look()
		time.Sleep(time.Hour)
		if s := r.State(); !s.Asked || s.Version != "10.10.1" || r.rocks.versions != 1 {
			t.Errorf("%+v, asked for its version %d times", s, r.rocks.versions)
		}
	})
}

// TestTotal: the sums of a store are there only if every segment has answered.
func TestTotal(t *testing.T) {
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	synctest.Test(t, func(t *testing.T) {
		r := start(t, dir)
		r.look()
		win := func() *store.Store {
			var found *store.Store
			for _, d := range r.Picture() {
				d.Stores(func(_ *store.Application, task *store.Task, s *store.Store) {
					if s.Name == "win" && task.Layout.ID == "1_0" {
						found = s
					}
				})
			}
			return found
		}
		time.Sleep(10 * time.Second)
		s := win()
		n := uint64(len(s.Databases))
		total := r.Total(s)
		if n < 2 || total == nil || *total.EstimateNumKeys != 93*n || *total.Entries != 110*n || *total.Deletions != 20*n {
			t.Fatalf("%d segments: %+v", n, total)
		}
		// The family offsets does not have these.
		if total.BlobFiles != nil || total.EstimateLiveDataSize != nil {
			t.Errorf("sums of what not every family has: %+v", total)
		}
		if total.At.Before(r.rocks.begun) || total.At.After(time.Now()) {
			t.Errorf("as of %v", total.At)
		}
		r.rocks.fail(s.Databases[1].Path, &engine.Error{Kind: engine.Moving})
		time.Sleep(3 * time.Minute)
		if total := r.Total(win()); total != nil {
			t.Errorf("with a segment that did not answer: %+v", total)
		}
	})
}

// TestFindings: they come with the second failure, go with the answer or with
// the database, and are told once.
func TestFindings(t *testing.T) {
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	synctest.Test(t, func(t *testing.T) {
		r := start(t, dir)
		r.look()
		path := pathOf(t, r, "1_0/rocksdb/kv")
		time.Sleep(10 * time.Second)
		if got := r.events.take(); got != "ready 10.10.1" {
			t.Errorf("events %q", got)
		}
		step := func(err error, want string) {
			t.Helper()
			r.rocks.fail(path, err)
			touch(t, path)
			r.look()
			time.Sleep(2 * time.Minute)
			if got := r.events.take(); got != want {
				t.Errorf("%v: events %q, want %q", err, got, want)
			}
		}
		step(&engine.Error{Kind: engine.Hung, Path: path, Times: 1}, "")
		step(&engine.Error{Kind: engine.Hung, Path: path, Times: 2, Detail: "after 5s"}, "+rocksdb-fails kv")
		step(&engine.Error{Kind: engine.SetAside, Path: path, Times: 2, Detail: "hung: after 5s"}, "")
		if o, ok := r.Opinion(r.all()[path]); !ok || len(o.Findings(path)) != 1 {
			t.Errorf("opinion %+v", o)
		}
		step(nil, "-rocksdb-fails kv")
		step(&engine.Error{Kind: engine.Died, Path: path, Times: 3}, "+rocksdb-fails kv")
		must(t, os.RemoveAll(path))
		r.look()
		time.Sleep(time.Minute)
		if got := r.events.take(); got != "-rocksdb-fails kv" {
			t.Errorf("events %q", got)
		}
	})
}

// TestEngineTrouble: an engine that cannot be used at all is told once, tried
// again, and asked about nothing meanwhile.
func TestEngineTrouble(t *testing.T) {
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	synctest.Test(t, func(t *testing.T) {
		r := start(t, dir)
		r.rocks.set(&engine.Error{Kind: engine.Missing, Path: "/opt/sidecar-engine"})
		r.look()
		time.Sleep(time.Hour)
		if got := r.events.take(); got != "+engine-missing sidecar-engine" {
			t.Errorf("events %q", got)
		}
		if s := r.State(); !s.Asked || s.Err == nil || r.rocks.total() != 0 {
			t.Errorf("state %+v, asked %d times", s, r.rocks.total())
		}
		r.rocks.set(nil)
		time.Sleep(time.Minute)
		if got := r.events.take(); got != "ready 10.10.1, -engine-missing sidecar-engine" {
			t.Errorf("events %q", got)
		}
		if n := r.rocks.total(); n != len(r.all()) {
			t.Errorf("%d databases asked about", n)
		}
		// It fails in the middle of a round.
		r.rocks.set(&engine.Error{Kind: engine.Broken, Path: "/opt/sidecar-engine", Detail: "no librocksdb.so"})
		time.Sleep(time.Hour)
		if got := r.events.take(); got != "+engine-broken sidecar-engine" {
			t.Errorf("events %q", got)
		}
	})
}
