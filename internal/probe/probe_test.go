package probe_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"streams-sidecar/internal/event"
	"streams-sidecar/internal/probe"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
	"streams-sidecar/internal/volume/volumetest"
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
	for len(cfg.Volumes) < len(cfg.StateDirs) {
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
		r := s.StateDirs[0].Applications[0].Running
		return r != nil && *r && *st.InUse && st.Closed == ""
	})
	if *find(a.Snapshot(), "1_1", "kv").InUse {
		t.Error("a store whose LOCK is free counts as in use")
	}
	h.Kill()
	a.until(t, "its end", func(s *probe.Snapshot) bool {
		return !*s.StateDirs[0].Applications[0].Running && !*find(s, "1_0", "kv").InUse
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

// TestCaseE04: no inotify instance to be had (EMFILE) means polling, not
// failing, and watching again as soon as there is one.
func TestCaseE04(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	var denied atomic.Bool
	denied.Store(true)
	a := start(t, probe.Config{
		StateDirs: []string{dir}, Rescan: time.Hour, Poll: 50 * time.Millisecond,
		NewWatcher: func() (*fsnotify.Watcher, error) {
			if denied.Load() {
				return nil, syscall.EMFILE
			}
			return fsnotify.NewWatcher()
		},
	})
	if m := a.Snapshot().Mode; m != probe.Poll {
		t.Errorf("mode %q, want poll", m)
	}
	wal := filepath.Join(dir, "alos391", "1_0", "rocksdb", "kv", "000004.log")
	append1k(t, wal)
	a.until(t, "a change", func(s *probe.Snapshot) bool { return find(s, "1_0", "kv").Sizes.WAL == 1024 })
	if !a.saw(func(e event.Event) bool {
		m, ok := e.(event.WatchingMode)
		return ok && m.Mode == "poll" && m.Reason == syscall.EMFILE.Error()
	}) {
		t.Error("no event says why it polls")
	}
	denied.Store(false)
	a.until(t, "inotify", func(s *probe.Snapshot) bool { return s.Mode == probe.Inotify })
	append1k(t, wal)
	a.until(t, "a change by an event", func(s *probe.Snapshot) bool { return find(s, "1_0", "kv").Sizes.WAL == 2048 })
}

// TestWatchesRefused: a directory whose watch is refused (ENOSPC: the node's
// limit of watches) is polled until the watch is there.
func TestWatchesRefused(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	kv := filepath.Join(dir, "alos391", "1_0", "rocksdb", "kv")
	fake := volumetest.New(t, volume.OS())
	fake.Fail(volumetest.Watch, kv, syscall.ENOSPC).Times(5)
	a := start(t, probe.Config{
		StateDirs: []string{dir}, Volumes: []*volume.Volume{volume.New(fake)}, Rescan: time.Hour, Poll: 30 * time.Millisecond,
	})
	if m := a.Snapshot().Mode; m != probe.Poll {
		t.Errorf("mode %q, want poll", m)
	}
	append1k(t, filepath.Join(kv, "000004.log"))
	a.until(t, "a change", func(s *probe.Snapshot) bool { return find(s, "1_0", "kv").Sizes.WAL == 1024 })
	a.until(t, "inotify", func(s *probe.Snapshot) bool { return s.Mode == probe.Inotify })
}

// TestRewatches: a directory that is made anew under its path between two looks
// is watched again, and what happens in it is seen by events.
func TestRewatches(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "4.4.0", "closed-clean")
	src := fixture.Unpack(t, "4.4.0", "closed-clean")
	a := start(t, probe.Config{StateDirs: []string{dir}, Debounce: 150 * time.Millisecond})
	app := filepath.Join(dir, "alos440")
	for round, place := range []string{"1_0/rocksdb/kv", "1_0", "1_0/rocksdb", "."} {
		path := filepath.Join(app, place)
		// All within one debounce, so that no look sees it gone.
		if err := os.Rename(path, filepath.Join(t.TempDir(), "away")); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(path, os.DirFS(filepath.Join(src, "alos440", place))); err != nil {
			t.Fatal(err)
		}
		seq := a.Snapshot().Seq
		a.until(t, "the look after the change", func(s *probe.Snapshot) bool { return s.Seq >= seq+2 })
		time.Sleep(400 * time.Millisecond) // the looks that follow new watches
		wal := filepath.Join(app, "1_0", "rocksdb", "kv", "000004.log")
		append1k(t, wal)
		want := int64(1024)
		a.until(t, fmt.Sprintf("an event in the new directory (%d, %s)", round, place), func(s *probe.Snapshot) bool {
			st := find(s, "1_0", "kv")
			return st != nil && st.Sizes.WAL == want
		})
		if err := os.Truncate(wal, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRepointedLink: a state directory that is a link is followed when it leads
// elsewhere.
func TestRepointedLink(t *testing.T) {
	t.Parallel()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(fixture.Unpack(t, "3.9.1", "closed-clean"), link); err != nil {
		t.Fatal(err)
	}
	a := start(t, probe.Config{StateDirs: []string{link}})
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(fixture.Unpack(t, "4.4.0", "closed-clean"), link); err != nil {
		t.Fatal(err)
	}
	a.until(t, "the other directory", func(s *probe.Snapshot) bool {
		apps := s.StateDirs[0].Applications
		return len(apps) == 1 && apps[0].Layout.ID == "alos440"
	})
}

// nfs makes a volume call itself one on which events cannot be relied on.
type nfs struct{ volume.FS }

func (n nfs) Usage(path string) (volume.Usage, error) {
	u, err := n.FS.Usage(path)
	u.Type = "nfs"
	return u, err
}

// TestCaseE01: on a network volume no events come for changes made elsewhere;
// it polls, says why, and sees them.
func TestCaseE01(t *testing.T) {
	t.Parallel()
	dir, local := fixture.Unpack(t, "3.9.1", "closed-clean"), fixture.Unpack(t, "4.4.0", "closed-clean")
	fake := volumetest.New(t, volume.OS())
	a := start(t, probe.Config{
		StateDirs: []string{dir, local}, Volumes: []*volume.Volume{volume.New(nfs{fake})},
		Rescan: time.Hour, Poll: 30 * time.Millisecond,
	})
	if m := a.Snapshot().Mode; m != probe.Poll {
		t.Errorf("mode %q, want poll", m)
	}
	append1k(t, filepath.Join(dir, "alos391", "1_0", "rocksdb", "kv", "000004.log"))
	a.until(t, "a change", func(s *probe.Snapshot) bool {
		return find(&probe.Snapshot{StateDirs: s.StateDirs[:1]}, "1_0", "kv").Sizes.WAL == 1024
	})
	if n := fake.Count(volumetest.Watch, "..."); n != 0 {
		t.Errorf("%d watches on a volume that raises no events", n)
	}
	if !a.saw(func(e event.Event) bool {
		m, ok := e.(event.WatchingMode)
		return ok && m.Mode == "poll" && strings.Contains(m.Reason, "nfs")
	}) {
		t.Error("no event says why it polls")
	}
}

// TestMutes: a WAL that is appended to without pause costs its directory the
// watch for a while; meanwhile it is polled, nothing is missed, and afterwards
// it is watched again.
func TestMutes(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	a := start(t, probe.Config{StateDirs: []string{dir}, MuteFor: 3 * time.Second})
	wal := filepath.Join(dir, "alos391", "1_0", "rocksdb", "kv", "000004.log")
	f, err := os.OpenFile(wal, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	written := int64(0)
	stop := time.After(patience)
	for a.Snapshot().Muted == 0 {
		select {
		case <-stop:
			t.Fatal("never muted")
		default:
		}
		if _, err := f.Write([]byte("0123456789")); err != nil {
			t.Fatal(err)
		}
		written += 10
	}
	if _, err := f.Write([]byte("last")); err != nil {
		t.Fatal(err)
	}
	written += 4
	begun := time.Now()
	a.until(t, "the last bytes", func(s *probe.Snapshot) bool { return find(s, "1_0", "kv").Sizes.WAL == written })
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("the last bytes were seen after %v, want about a second", took)
	}
	a.until(t, "the end of the muting", func(s *probe.Snapshot) bool { return s.Muted == 0 })
	append1k(t, wal)
	a.until(t, "a change by an event", func(s *probe.Snapshot) bool { return find(s, "1_0", "kv").Sizes.WAL == written+1024 })
}

// TestEqualsAFreshScan: after violent changes, with events lost or not, the
// picture is what a fresh scan gives, within one rescan.
func TestEqualsAFreshScan(t *testing.T) {
	t.Parallel()
	src := fixture.Unpack(t, "4.4.0", "closed-clean")
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	a := start(t, probe.Config{StateDirs: []string{dir}, Rescan: 300 * time.Millisecond})
	app := filepath.Join(dir, "alos391")
	r := rand.New(rand.NewPCG(7, 7))
	for i := range 150 {
		task := filepath.Join(app, fmt.Sprintf("%d_%d", r.IntN(3), r.IntN(4)))
		switch r.IntN(5) {
		case 0, 1:
			_ = os.CopyFS(task, os.DirFS(filepath.Join(src, "alos440", "1_0"))) // it may be there already
		case 2:
			if err := os.RemoveAll(task); err != nil {
				t.Fatal(err)
			}
		case 3:
			_ = os.Rename(task, filepath.Join(app, fmt.Sprintf("0_%d", i))) // it may not be there
		case 4:
			other := filepath.Join(dir, fmt.Sprintf("app%d", r.IntN(3)))
			if err := os.RemoveAll(other); err != nil {
				t.Fatal(err)
			}
			if err := os.CopyFS(other, os.DirFS(filepath.Join(src, "alos440"))); err != nil {
				t.Fatal(err)
			}
		}
	}
	shape := func(s *store.StateDir) string {
		out := ""
		s.Stores(func(a *store.Application, tk *store.Task, st *store.Store) {
			out += fmt.Sprintf("%s/%s/%s %v %v %v %v %v %v\n", a.Layout.ID, tk.Layout.ID, st.Name, st.Sizes, st.Families, st.Offsets, st.Closed, st.Empty, st.Findings)
		})
		return regexp.MustCompile("0x[0-9a-f]+").ReplaceAllString(out, "ptr") // of Entries
	}
	want := shape(store.Scan(volume.New(volume.OS()), dir, nil))
	a.until(t, "the picture of a fresh scan", func(s *probe.Snapshot) bool { return shape(s.StateDirs[0]) == want })
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
