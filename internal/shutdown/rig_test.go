package shutdown_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"streams-sidecar/internal/event"
	"streams-sidecar/internal/journal"
	"streams-sidecar/internal/probe"
	"streams-sidecar/internal/shutdown"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
	"streams-sidecar/internal/volume/volumetest"
	"streams-sidecar/test/fixture"
	"streams-sidecar/test/holder"
)

// deafEnv makes a holder that ignores SIGTERM.
const deafEnv = "STREAMS_SIDECAR_TEST_DEAF"

func TestMain(m *testing.M) {
	if os.Getenv(deafEnv) != "" {
		signal.Ignore(syscall.SIGTERM)
	}
	holder.Main(m)
}

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

// rig is a gate over real directories, with a picture that is as old as the
// last look.
type rig struct {
	t       testing.TB
	dir     string // the last one
	dirs    []string
	vs      []*volume.Volume
	fake    *volumetest.FS // of all of them
	picture atomic.Pointer[probe.Snapshot]
	locks   []string // every .lock
	dbs     []string // every LOCK
	heard   heard
	hold    func(paths ...string) locker // in a process of its own if nil
}

func newRig(t testing.TB, cases ...fixture.Name) *rig {
	t.Helper()
	var dirs []string
	for _, c := range cases {
		dirs = append(dirs, fixture.Unpack(t, c.Version, c.Case))
	}
	return rigOver(t, dirs...)
}

func rigOver(t testing.TB, dirs ...string) *rig {
	t.Helper()
	r := &rig{t: t, dirs: dirs, fake: volumetest.New(t, volume.OS())}
	snap := &probe.Snapshot{Seq: 1}
	for _, dir := range dirs {
		r.dir = dir
		age(t, dir)
		v := volume.New(r.fake, volume.Deadline(patience)) // a loaded machine is no volume that hangs
		d := store.Scan(v, dir, nil)
		r.vs, snap.StateDirs = append(r.vs, v), append(snap.StateDirs, d)
		for _, a := range d.Applications {
			r.locks = append(r.locks, filepath.Join(a.Layout.Path, ".lock"))
		}
		d.Stores(func(_ *store.Application, _ *store.Task, s *store.Store) {
			for _, db := range s.Databases {
				r.dbs = append(r.dbs, db.LockPath())
			}
		})
	}
	r.picture.Store(snap)
	return r
}

// age makes all files an hour old: in the archives they have their own times.
func age(t testing.TB, dir string) {
	t.Helper()
	old := time.Now().Add(-time.Hour)
	must(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Chtimes(path, old, old))
	}))
}

// look takes a new picture, as the agent would have one.
func (r *rig) look() {
	was := r.picture.Load()
	now := &probe.Snapshot{Seq: was.Seq + 1}
	for i, d := range was.StateDirs {
		now.StateDirs = append(now.StateDirs, store.Scan(r.vs[i], d.Layout.Path, d))
	}
	r.picture.Store(now)
}

// gate gives one without journals, with the budget and whatever else is set.
func (r *rig) gate(budget time.Duration, set ...func(*shutdown.Config)) *shutdown.Gate {
	cfg := shutdown.Config{Volumes: r.vs, Timeout: budget, Snapshot: r.picture.Load, Events: &r.heard}
	for _, f := range set {
		f(&cfg)
	}
	// A call without the token is remembered only where nobody can trigger.
	if cfg.Trigger == "" && cfg.Token == nil && cfg.HTTP == nil && cfg.Pod == nil {
		cfg.Trigger = shutdown.TriggerNone
	}
	return shutdown.NewGate(cfg)
}

// journals makes a gate remember.
func (r *rig) journals(cfg *shutdown.Config) {
	for _, dir := range r.dirs {
		cfg.Journals = append(cfg.Journals, journal.Open(dir, journal.Deadline(patience)))
	}
}

// impatient makes a gate give up calls to the volume soon.
func (r *rig) impatient(cfg *shutdown.Config) {
	cfg.Volumes, cfg.Journals = nil, nil
	for _, dir := range r.dirs {
		cfg.Volumes = append(cfg.Volumes, volume.New(r.fake, volume.Deadline(400*time.Millisecond)))
		cfg.Journals = append(cfg.Journals, journal.Open(dir, journal.Deadline(400*time.Millisecond)))
	}
}

// heard is what a gate has told.
type heard struct {
	mu  sync.Mutex
	all []event.Event
}

func (h *heard) Emit(e event.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, e)
}

// of gives what was told of one kind.
func of[E event.Event](h *heard) (out []E) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.all {
		if e, ok := e.(E); ok {
			out = append(out, e)
		}
	}
	return out
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// until waits for something.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not come", what)
		}
	}
}

func call(t testing.TB, g *shutdown.Gate, wait bool) *shutdown.Answer {
	t.Helper()
	a, err := g.Prestop(context.Background(), shutdown.Call{Wait: wait})
	must(t, err)
	return a
}

// drain makes a call and gives its answer to come, once the gate has noted what
// is open.
func (r *rig) drain(g *shutdown.Gate, c shutdown.Call) <-chan *shutdown.Answer {
	r.t.Helper()
	before := len(of[event.PrestopBegan](&r.heard))
	out := make(chan *shutdown.Answer, 1)
	go func() {
		a, err := g.Prestop(context.Background(), c)
		if err != nil {
			r.t.Errorf("the call: %v", err)
		}
		out <- a
	}()
	until(r.t, "the drain", func() bool { return len(of[event.PrestopBegan](&r.heard)) > before })
	return out
}

func answer(t testing.TB, c <-chan *shutdown.Answer) *shutdown.Answer {
	t.Helper()
	select {
	case a := <-c:
		return a
	case <-time.After(patience):
		t.Fatal("no answer")
		return nil
	}
}

// client plays Kafka Streams in all directories of a rig: it holds the locks as
// that does, and changes the files as that does.
type client struct {
	*rig
	locker
	flat bool // the file system does not preallocate
}

// locker holds locks: a [holder.Holder], or a part of one.
type locker interface {
	Take(path string)
	Release(path string)
	Kill() // ends it; all its locks are free then
}

// crowd gives the subtests of a test what costs time: archives that are unpacked
// once, and one process that holds the locks of all of them.
type crowd struct {
	t    testing.TB // outlives them
	mu   sync.Mutex
	h    *holder.Holder
	dirs map[fixture.Name]string
}

func newCrowd(t testing.TB) *crowd {
	return &crowd{t: t, h: holder.Hold(t), dirs: map[fixture.Name]string{}}
}

// rig is [newRig] for a subtest.
func (c *crowd) rig(t testing.TB, of fixture.Name) *rig {
	t.Helper()
	c.mu.Lock()
	if c.dirs[of] == "" {
		c.dirs[of] = fixture.Unpack(c.t, of.Version, of.Case)
	}
	from := c.dirs[of]
	c.mu.Unlock()
	dir := t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS(from)))
	r := rigOver(t, dir)
	r.hold = c.hold
	return r
}

// member is a client of a crowd. Killed, it lets go of everything.
type member struct {
	in   *crowd
	held map[string]bool
}

func (c *crowd) hold(paths ...string) locker {
	m := &member{c, map[string]bool{}}
	for _, p := range paths {
		m.Take(p)
	}
	return m
}

func (m *member) Take(path string) {
	m.in.mu.Lock()
	defer m.in.mu.Unlock()
	m.in.h.Take(path)
	m.held[path] = true
}

func (m *member) Release(path string) {
	m.in.mu.Lock()
	defer m.in.mu.Unlock()
	m.in.h.Release(path)
	delete(m.held, path)
}

func (m *member) Kill() {
	for path := range m.held {
		if filepath.Base(path) == "LOCK" {
			m.Release(path)
		}
	}
	for path := range m.held { // .lock last, or the end is seen too early
		m.Release(path)
	}
}

// start takes all locks, and has the MANIFESTs preallocated, as RocksDB does
// when it opens a database. The picture shows it.
func (r *rig) start() *client {
	r.t.Helper()
	return r.startOn(false)
}

func (r *rig) startOn(flat bool) *client {
	r.t.Helper()
	hold := r.hold
	if hold == nil {
		hold = func(paths ...string) locker { return holder.Hold(r.t, paths...) }
	}
	c := &client{r, hold(append(slices.Clone(r.locks), r.dbs...)...), flat}
	if !flat {
		for _, lock := range r.dbs {
			preallocate(r.t, manifestOf(r.t, filepath.Dir(lock)))
		}
	}
	r.look()
	return c
}

func manifestOf(t testing.TB, db string) string {
	t.Helper()
	name, err := os.ReadFile(filepath.Join(db, "CURRENT"))
	must(t, err)
	return filepath.Join(db, strings.TrimSpace(string(name)))
}

// preallocate gives a file blocks beyond its end, and keeps its time.
func preallocate(t testing.TB, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	must(t, err)
	defer func() { _ = f.Close() }()
	fi, err := f.Stat()
	must(t, err)
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, 9<<17); errors.Is(err, syscall.EOPNOTSUPP) {
		t.Skip("the file system cannot preallocate")
	} else {
		must(t, err)
	}
	touch(t, path, fi.ModTime())
}

func touch(t testing.TB, path string, at time.Time) {
	t.Helper()
	must(t, os.Chtimes(path, at, at))
}

func modified(t testing.TB, path string) time.Time {
	t.Helper()
	fi, err := os.Stat(path)
	must(t, err)
	return fi.ModTime()
}

// path of something below the only application.
func (c *client) path(elem ...string) string {
	return filepath.Join(append([]string{filepath.Dir(c.locks[0])}, elem...)...)
}

// tables of a database.
func (c *client) tables(db string) []string {
	c.t.Helper()
	out, err := filepath.Glob(filepath.Join(db, "*.sst"))
	must(c.t, err)
	return out
}

// reopen is what Streams from 4.3 on does some seconds after its start: it opens
// again what it has been assigned, with another MANIFEST. The picture shows it.
func (c *client) reopen() {
	c.t.Helper()
	for _, lock := range c.dbs {
		db := filepath.Dir(lock)
		old := manifestOf(c.t, db)
		var n int
		if _, err := fmt.Sscanf(filepath.Base(old), "MANIFEST-%d", &n); err != nil {
			c.t.Fatal(err)
		}
		now := fmt.Sprintf("MANIFEST-%06d", n+1)
		must(c.t, os.Rename(old, filepath.Join(db, now)))
		must(c.t, os.WriteFile(filepath.Join(db, "CURRENT"), []byte(now+"\n"), 0o644))
	}
	c.look()
}

// commit writes the .checkpoint of tasks anew, of all that have one if none is
// named, as Streams does before it closes the first store.
func (c *client) commit(tasks ...string) {
	c.t.Helper()
	if len(tasks) == 0 {
		for _, lock := range c.locks {
			found, err := filepath.Glob(filepath.Join(filepath.Dir(lock), "*", ".checkpoint"))
			must(c.t, err)
			for _, p := range found {
				if filepath.Base(filepath.Dir(p)) != "global" { // 3.9 never writes that one
					replace(c.t, p, nil)
				}
			}
		}
	}
	for _, task := range tasks {
		replace(c.t, c.path(task, ".checkpoint"), nil)
	}
}

// replace writes a file anew as Streams does, by a rename; with its old content
// if there is no other.
func replace(t testing.TB, path string, content []byte) {
	t.Helper()
	if content == nil {
		var err error
		content, err = os.ReadFile(path)
		must(t, err)
	}
	must(t, os.WriteFile(path+".tmp", content, 0o644))
	must(t, os.Rename(path+".tmp", path))
}

// shut closes databases, all that are held if none is named, as RocksDB does: it
// trims the MANIFEST, which sets its time, and lets the LOCK go.
func (c *client) shut(dbs ...string) {
	c.t.Helper()
	if len(dbs) == 0 {
		for _, lock := range c.dbs {
			dbs = append(dbs, filepath.Dir(lock))
		}
	}
	for _, db := range dbs {
		c.trim(db)
		c.Release(filepath.Join(db, "LOCK"))
	}
}

func (c *client) trim(db string) {
	c.t.Helper()
	path := manifestOf(c.t, db)
	fi, err := os.Stat(path)
	must(c.t, err)
	must(c.t, os.Truncate(path, fi.Size()))
	touch(c.t, path, time.Now())
}

// unlock lets every .lock go.
func (c *client) unlock() {
	c.t.Helper()
	for _, lock := range c.locks {
		c.Release(lock)
	}
}

// close is a clean close, up to 4.2 as well as later.
func (c *client) close() {
	c.t.Helper()
	c.commit()
	c.shut()
	c.unlock()
}

// patchOffsets changes the only block of the only table of offsets of a
// database, and makes its checksum right again (RocksDB table/format.cc: XXH3,
// with the place and the file mixed in, which stay as they are).
func patchOffsets(t testing.TB, db string, change func(block []byte)) {
	t.Helper()
	const trailer = 5
	for _, path := range glob(t, filepath.Join(db, "*.sst")) {
		data, err := os.ReadFile(path)
		must(t, err)
		at := bytes.Index(data, []byte("-changelog-"))
		if at < 0 || !bytes.Contains(data[:min(len(data), 400)], []byte("status")) {
			continue
		}
		footer := data[len(data)-53:]
		base := binary.LittleEndian.Uint32(footer[9:])
		for size := at; size+trailer < len(data); size++ {
			kind := data[size]
			sum := uint32(xxh3.Hash(data[:size])) ^ uint32(kind)*0x6b9083d9
			if sum+base != binary.LittleEndian.Uint32(data[size+1:]) {
				continue
			}
			change(data[:size])
			sum = uint32(xxh3.Hash(data[:size])) ^ uint32(kind)*0x6b9083d9
			binary.LittleEndian.PutUint32(data[size+1:], sum+base)
			must(t, os.WriteFile(path, data, 0o644))
			return
		}
		t.Fatalf("%s: its first block was not found", path)
	}
	t.Fatalf("%s has no table of offsets", db)
}

func glob(t testing.TB, pattern string) []string {
	t.Helper()
	out, err := filepath.Glob(pattern)
	must(t, err)
	return out
}
