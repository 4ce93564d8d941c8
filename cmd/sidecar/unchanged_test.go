package main

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"streams-sidecar/test/fixture"
	"streams-sidecar/test/holder"
)

// TestReadingChangesNothing: names, sizes, modes, times, owners and contents
// are the same after every command has run on a directory, and a watcher of
// its own sees no event that a write would raise.
func TestReadingChangesNothing(t *testing.T) {
	t.Parallel()
	for _, n := range fixture.Names() {
		t.Run(n.String(), func(t *testing.T) {
			t.Parallel()
			dir := fixture.Unpack(t, n.Version, n.Case)
			before := photograph(t, dir)
			w := watchWrites(t, dir)
			for range 2 {
				sidecar("status", "--state-dir", dir)
				sidecar("status", "--state-dir", dir, "--output=json")
			}
			for i, f := range before.paths {
				// Each kind of case whole once; a few paths of the others.
				if n.Version == "4.4.0" && !strings.HasPrefix(n.Case, "corrupt-") || i%16 == 0 {
					sidecar("inspect", f)
				}
			}
			w.expectNothing(t)
			if diff := before.differs(photograph(t, dir)); diff != "" {
				t.Errorf("changed: %s", diff)
			}
		})
	}
}

// TestAgentChangesNothing: the agent, a hundred scrapes and the hook.
func TestAgentChangesNothing(t *testing.T) {
	t.Parallel()
	dirs := []string{fixture.Unpack(t, "2.8.2", "killed9-eos-load"), fixture.Unpack(t, "3.9.1", "corrupt-alos-manifest-flip"), fixture.Unpack(t, "4.4.0", "wal-on-killed9")}
	locks := []string{}
	args := []string{"--rescan-interval=1s", "--prestop-timeout=5m"}
	var before []photo
	for _, d := range dirs {
		args = append(args, "--state-dir", d)
		found, err := filepath.Glob(filepath.Join(d, "*", ".lock"))
		if err != nil || len(found) != 1 {
			t.Fatalf("%v %v", found, err)
		}
		locks = append(locks, found...)
		// As after the agent's first start: what is in it is the agent's own.
		if err := os.Mkdir(filepath.Join(d, ownFolder), 0o750); err != nil {
			t.Fatal(err)
		}
		before = append(before, photograph(t, d))
	}
	h := holder.Hold(t, locks...) // opens the locks before the watchers are there
	var ws []*writeWatcher
	for _, d := range dirs {
		ws = append(ws, watchWrites(t, d))
	}
	a := startAgent(t, args...)
	if got := a.get(t, a.hook+"/prestop"); !strings.Contains(got, "observed") {
		t.Errorf("prestop: %s", got)
	}
	done := make(chan string, 1)
	go func() { done <- a.get(t, a.hook+"/prestop?wait=1") }()
	for range 100 {
		a.get(t, a.metrics)
		a.get(t, a.admin+"/api/v1/state")
	}
	time.Sleep(1500 * time.Millisecond) // a rescan
	for _, w := range ws {
		w.expectNothing(t)
	}
	h.Kill() // closes the locks, which it had opened for writing
	if got := <-done; !strings.Contains(got, "closed-unclean") {
		t.Errorf("prestop: %s", got)
	}
	a.stop()
	a.ended <- <-a.ended
	for i, d := range dirs {
		own, err := filepath.Glob(filepath.Join(d, ownFolder, "*"))
		if err != nil || len(own) != 1 || filepath.Base(own[0]) != "last-shutdown.json" {
			t.Errorf("in its own folder it leaves %q (%v)", own, err)
		}
		if diff := before[i].differs(photograph(t, d)); diff != "" {
			t.Errorf("changed: %s", diff)
		}
	}
}

// ownFolder is the one place in a state directory that the agent writes to.
const ownFolder = ".streams-sidecar"

// photo is everything about a tree that a reader could change, but for the
// content of the agent's own folder.
type photo struct {
	paths []string
	about map[string]string
}

func photograph(t *testing.T, dir string) photo {
	t.Helper()
	p := photo{about: map[string]string{}}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Name() == ownFolder {
			return filepath.SkipDir
		}
		var s unix.Stat_t
		if err := unix.Lstat(path, &s); err != nil {
			return err
		}
		about := fmt.Sprintf("mode %o uid %d gid %d size %d mtime %d ctime %d ino %d links %d", s.Mode, s.Uid, s.Gid, s.Size, s.Mtim.Nano(), s.Ctim.Nano(), s.Ino, s.Nlink)
		if d.Type().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			about += fmt.Sprintf(" content %x", sha256.Sum256(data))
		}
		p.paths = append(p.paths, path)
		p.about[path] = about
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p photo) differs(q photo) string {
	if !slices.Equal(p.paths, q.paths) {
		return fmt.Sprintf("%q became %q", p.paths, q.paths)
	}
	for path, about := range p.about {
		if q.about[path] != about {
			return fmt.Sprintf("%s: %s became %s", path, about, q.about[path])
		}
	}
	return ""
}

// writeWatcher is an inotify instance of its own over a whole tree, with every
// event that a change raises.
type writeWatcher struct {
	fd   int
	dirs map[int32]string
}

const writeEvents = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_DELETE |
	unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ATTRIB | unix.IN_CLOSE_WRITE

func watchWrites(t *testing.T, dir string) *writeWatcher {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	w := &writeWatcher{fd, map[int32]string{}}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if d.Name() == ownFolder {
			return filepath.SkipDir
		}
		wd, err := unix.InotifyAddWatch(fd, path, writeEvents)
		w.dirs[int32(wd)] = path
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *writeWatcher) expectNothing(t *testing.T) {
	t.Helper()
	for _, e := range w.events(t) {
		t.Errorf("an event that only a change raises: %s", e)
	}
}

func (w *writeWatcher) events(t *testing.T) (out []string) {
	t.Helper()
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Read(w.fd, buf)
		if err == unix.EAGAIN {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
			e := (*unix.InotifyEvent)(unsafe.Pointer(&b[0]))
			name := strings.TrimRight(string(b[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+e.Len]), "\x00")
			out = append(out, fmt.Sprintf("mask %#x in %s: %q", e.Mask, w.dirs[e.Wd], name))
			b = b[unix.SizeofInotifyEvent+e.Len:]
		}
	}
}

// TestWriteWatcherSees: the watcher of these tests is not blind.
func TestWriteWatcherSees(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	before, w := photograph(t, dir), watchWrites(t, dir)
	path := filepath.Join(dir, "alos391", "1_0", "rocksdb", "kv", "LOCK")
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if len(w.events(t)) == 0 {
		t.Error("no event for a file that was opened for writing")
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if len(w.events(t)) == 0 || before.differs(photograph(t, dir)) == "" {
		t.Error("a changed mode goes unnoticed")
	}
}
