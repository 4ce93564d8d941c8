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

	"golang.org/x/sys/unix"

	"streams-sidecar/test/fixture"
	"streams-sidecar/test/holder"
	"streams-sidecar/test/writes"
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
			w := writes.Watch(t, dir)
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
			w.ExpectNothing(t)
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
	var ws []*writes.Watcher
	for _, d := range dirs {
		ws = append(ws, writes.Watch(t, d))
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
		w.ExpectNothing(t)
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

// TestWriteWatcherSees: the watcher of these tests is not blind.
func TestWriteWatcherSees(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	before, w := photograph(t, dir), writes.Watch(t, dir)
	path := filepath.Join(dir, "alos391", "1_0", "rocksdb", "kv", "LOCK")
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if len(w.Events(t)) == 0 {
		t.Error("no event for a file that was opened for writing")
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if len(w.Events(t)) == 0 || before.differs(photograph(t, dir)) == "" {
		t.Error("a changed mode goes unnoticed")
	}
}
