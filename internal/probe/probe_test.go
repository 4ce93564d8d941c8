package probe_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"streams-sidecar/internal/event"
	"streams-sidecar/internal/probe"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
	"streams-sidecar/test/fixture"
	"streams-sidecar/test/holder"
)

func TestMain(m *testing.M) { holder.Main(m) }

// patience is how long a test waits for what must come; it comes much sooner.
const patience = 20 * time.Second

// agent is a running probe.
type agent struct {
	*probe.Probe
	mu     sync.Mutex
	events []event.Event
}

// start runs a probe until the end of the test. With a rescan of an hour only
// events and lock polls can tell it anything.
func start(t *testing.T, cfg probe.Config) *agent {
	t.Helper()
	a := &agent{}
	var stream event.Stream
	stream.Listen(func(e event.Event) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.events = append(a.events, e)
	})
	cfg.Events = &stream
	for range cfg.StateDirs {
		cfg.Volumes = append(cfg.Volumes, volume.New(volume.OS()))
	}
	if cfg.Rescan == 0 {
		cfg.Rescan = time.Hour
	}
	if cfg.LockPoll == 0 {
		cfg.LockPoll = 20 * time.Millisecond
	}
	if cfg.Debounce == 0 {
		cfg.Debounce = 10 * time.Millisecond
	}
	a.Probe = probe.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	a.until(t, "the first picture", func(s *probe.Snapshot) bool { return s != nil })
	return a
}

func (a *agent) until(t *testing.T, what string, ok func(*probe.Snapshot) bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok(a.Snapshot()) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come within %v", what, patience)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func (a *agent) saw(match func(event.Event) bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.events {
		if match(e) {
			return true
		}
	}
	return false
}

// find gives a store of the picture, nil if it is not there.
func find(s *probe.Snapshot, task, name string) *store.Store {
	var out *store.Store
	for _, d := range s.StateDirs {
		d.Stores(func(_ *store.Application, t *store.Task, st *store.Store) {
			if t.Layout.ID == task && st.Name == name {
				out = st
			}
		})
	}
	return out
}

func append1k(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(make([]byte, 1024)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestSeesChanges: without any rescan, what changes while the agent runs is
// seen by events.
func TestSeesChanges(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	a := start(t, probe.Config{StateDirs: []string{dir}})
	kv := filepath.Join(dir, "alos391", "1_0", "rocksdb", "kv")

	before := find(a.Snapshot(), "1_0", "kv")
	other := find(a.Snapshot(), "1_1", "kv")
	append1k(t, filepath.Join(kv, "000004.log"))
	a.until(t, "the growth of a WAL", func(s *probe.Snapshot) bool {
		st := find(s, "1_0", "kv")
		return st.Sizes.WAL == 1024 && st.WALEnabled != nil && *st.WALEnabled
	})
	if before.Sizes.WAL != 0 {
		t.Error("a picture that was handed out has changed")
	}
	if find(a.Snapshot(), "1_1", "kv") != other {
		t.Error("a store without events was read again")
	}

	if err := os.RemoveAll(kv); err != nil {
		t.Fatal(err)
	}
	a.until(t, "the end of a store", func(s *probe.Snapshot) bool { return find(s, "1_0", "kv") == nil })

	// A whole new task at once: the watch comes after the files.
	if err := os.CopyFS(filepath.Join(dir, "alos391", "7_3"), os.DirFS(filepath.Join(dir, "alos391", "1_1"))); err != nil {
		t.Fatal(err)
	}
	a.until(t, "a new task", func(s *probe.Snapshot) bool {
		st := find(s, "7_3", "kv")
		return st != nil && len(st.Families) == 2 && *st.Families[1].Entries == 241
	})
	append1k(t, filepath.Join(dir, "alos391", "7_3", "rocksdb", "kv", "000004.log"))
	a.until(t, "a change in a new task", func(s *probe.Snapshot) bool { return find(s, "7_3", "kv").Sizes.WAL == 1024 })

	if err := os.Remove(filepath.Join(dir, "alos391", "7_3", ".checkpoint")); err != nil {
		t.Fatal(err)
	}
	a.until(t, "the end of a checkpoint", func(s *probe.Snapshot) bool { return len(find(s, "7_3", "kv").Offsets) == 0 })
	if !a.saw(func(e event.Event) bool {
		v, ok := e.(event.StoreVanished)
		return ok && v.Store == "kv" && v.Task == "1_0"
	}) {
		t.Error("no event for the store that vanished")
	}
}

// TestSeesLocks: locks raise no events. The .lock of the application is asked
// again and again, and when it changes, so is every LOCK.
func TestSeesLocks(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "4.4.0", "closed-clean")
	a := start(t, probe.Config{StateDirs: []string{dir}})
	if find(a.Snapshot(), "1_0", "kv").Closed != store.Clean {
		t.Error("the store at rest is not closed clean")
	}
	app := filepath.Join(dir, "alos440")
	h := holder.Hold(t, filepath.Join(app, "1_0", "rocksdb", "kv", "LOCK"), filepath.Join(app, ".lock"))
	a.until(t, "the start of the application", func(s *probe.Snapshot) bool {
		st := find(s, "1_0", "kv")
		r := s.StateDirs[0].Applications[0].Layout.Running
		return r != nil && *r && *st.InUse && st.Closed == ""
	})
	if *find(a.Snapshot(), "1_1", "kv").InUse {
		t.Error("a store whose LOCK is free counts as in use")
	}
	h.Kill()
	a.until(t, "its end", func(s *probe.Snapshot) bool {
		return !*s.StateDirs[0].Applications[0].Layout.Running && !*find(s, "1_0", "kv").InUse
	})
	if !a.saw(func(e event.Event) bool { _, ok := e.(event.ApplicationStopped); return ok }) {
		t.Error("no event for the end of the application")
	}
}

// TestWaitsForStateDir: the directory may come later, also as a whole.
func TestWaitsForStateDir(t *testing.T) {
	t.Parallel()
	src := fixture.Unpack(t, "4.4.0", "closed-clean")
	dir := filepath.Join(t.TempDir(), "not", "yet")
	a := start(t, probe.Config{StateDirs: []string{dir}})
	if s := a.Snapshot(); !s.StateDirs[0].Layout.Missing {
		t.Fatal("a directory that is not there is not missing")
	}
	if !a.saw(func(e event.Event) bool { _, ok := e.(event.Waiting); return ok }) {
		t.Error("no event says that it waits")
	}
	if err := os.CopyFS(dir, os.DirFS(src)); err != nil {
		t.Fatal(err)
	}
	a.until(t, "the state directory", func(s *probe.Snapshot) bool { return find(s, "1_1", "kv") != nil })
}

// TestWithoutInotify: no instance to be had (EMFILE) means polling, not failing.
func TestWithoutInotify(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	a := start(t, probe.Config{
		StateDirs: []string{dir}, Rescan: 50 * time.Millisecond,
		NewWatcher: func() (*fsnotify.Watcher, error) { return nil, syscall.EMFILE },
	})
	if m := a.Snapshot().Mode; m != probe.Poll {
		t.Errorf("mode %q, want poll", m)
	}
	append1k(t, filepath.Join(dir, "alos391", "1_0", "rocksdb", "kv", "000004.log"))
	a.until(t, "a change", func(s *probe.Snapshot) bool { return find(s, "1_0", "kv").Sizes.WAL == 1024 })
	if !a.saw(func(e event.Event) bool {
		m, ok := e.(event.WatchingMode)
		return ok && m.Mode == "poll" && m.Reason == syscall.EMFILE.Error()
	}) {
		t.Error("no event says why it polls")
	}
}

// TestOverflow: after lost events everything is looked at again.
func TestOverflow(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	var w *fsnotify.Watcher
	a := start(t, probe.Config{
		StateDirs: []string{dir},
		NewWatcher: func() (*fsnotify.Watcher, error) {
			var err error
			w, err = fsnotify.NewWatcher()
			return w, err
		},
	})
	seq := a.Snapshot().Seq
	w.Errors <- fsnotify.ErrEventOverflow
	a.until(t, "another look", func(s *probe.Snapshot) bool { return s.Seq > seq })
	if !a.saw(func(e event.Event) bool { _, ok := e.(event.EventsLost); return ok }) {
		t.Error("no event says that events were lost")
	}
	w.Errors <- errors.New("something else")
	seq = a.Snapshot().Seq
	a.until(t, "another look", func(s *probe.Snapshot) bool { return s.Seq > seq })
}

// TestHoldsNothing: nothing below the state directory stays open between looks.
func TestHoldsNothing(t *testing.T) {
	dir := fixture.Unpack(t, "4.4.0", "closed-clean")
	a := start(t, probe.Config{StateDirs: []string{dir}, Rescan: 20 * time.Millisecond})
	seq := a.Snapshot().Seq
	a.until(t, "ten looks", func(s *probe.Snapshot) bool { return s.Seq > seq+10 })
	held := 0
	for range 200 {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		open := 0
		for _, fd := range fds {
			if target, err := os.Readlink(filepath.Join("/proc/self/fd", fd.Name())); err == nil && len(target) > len(dir) && target[:len(dir)] == dir {
				open++
			}
		}
		if open > 1 { // a look opens one directory and in it one file
			held = max(held, open)
		}
		time.Sleep(time.Millisecond)
	}
	if held > 2 {
		t.Errorf("%d files of the state directory were open at once", held)
	}
}

// TestAliveWhenHung: a volume that hangs does not stop the loop.
func TestAliveWhenHung(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	hung := hangingFS{FS: volume.OS(), release: release}
	p := probe.New(probe.Config{
		StateDirs: []string{t.TempDir()},
		Volumes:   []*volume.Volume{volume.New(hung, volume.Deadline(time.Hour))},
		LockPoll:  10 * time.Millisecond,
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	time.Sleep(1500 * time.Millisecond) // more than one turn of the loop
	if !p.Alive(1400 * time.Millisecond) {
		t.Error("the loop stands still")
	}
	if p.Snapshot() != nil {
		t.Error("a picture of a volume that hangs")
	}
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("Run does not end while the volume hangs")
	}
	close(release)
}

type hangingFS struct {
	volume.FS
	release chan struct{}
}

func (h hangingFS) Resolve(string) (string, error) {
	<-h.release
	return "", syscall.EIO
}

func (h hangingFS) Lstat(string) (volume.Info, error) {
	<-h.release
	return volume.Info{}, syscall.EIO
}

func (h hangingFS) Stat(string) (volume.Info, error) {
	<-h.release
	return volume.Info{}, syscall.EIO
}
