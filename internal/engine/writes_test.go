package engine_test

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// writeWatcher is an inotify instance over a whole tree, with every event that a
// change raises.
type writeWatcher int

const writeEvents = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_DELETE |
	unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ATTRIB | unix.IN_CLOSE_WRITE

func watchWrites(t *testing.T, dir string) writeWatcher {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_, err = unix.InotifyAddWatch(fd, path, writeEvents)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return writeWatcher(fd)
}

func (w writeWatcher) events(t *testing.T) (out []string) {
	t.Helper()
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Read(int(w), buf)
		if err == unix.EAGAIN {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
			e := (*unix.InotifyEvent)(unsafe.Pointer(&b[0]))
			name := strings.TrimRight(string(b[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+e.Len]), "\x00")
			out = append(out, fmt.Sprintf("mask %#x: %q", e.Mask, name))
			b = b[unix.SizeofInotifyEvent+e.Len:]
		}
	}
}
