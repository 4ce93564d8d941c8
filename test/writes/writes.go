// Package writes sees whether anything changes in a directory. Only tests may
// import it.
package writes

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

const ownFolder = ".streams-sidecar"

// Watcher is an inotify instance of its own over a whole tree, with every event
// that a change raises.
type Watcher struct {
	fd   int
	dirs map[int32]string
}

const writeEvents = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_DELETE |
	unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ATTRIB | unix.IN_CLOSE_WRITE

// Watch watches a tree until the end of the test, but for the sidecar's own folders.
func Watch(t *testing.T, dir string) *Watcher {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	w := &Watcher{fd, map[int32]string{}}
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

// ExpectNothing fails the test for each event so far.
func (w *Watcher) ExpectNothing(t *testing.T) {
	t.Helper()
	for _, e := range w.Events(t) {
		t.Errorf("an event that only a change raises: %s", e)
	}
}

// Events gives those since the last call.
func (w *Watcher) Events(t *testing.T) (out []string) {
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
