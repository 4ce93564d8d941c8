//go:build streams

package gate

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// isHeld asks a lock; this process itself has none.
func isHeld(f *os.File) bool {
	l := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &l)
	return err == nil && l.Type != unix.F_UNLCK
}

func heldAt(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	return isHeld(f)
}

// watch looks at a lock every half millisecond until it is free.
type watch struct {
	held atomic.Bool
	at   time.Time     // of the release
	done chan struct{} // closed after it
}

func watchLock(path string) (*watch, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if !isHeld(f) {
		_ = f.Close()
		return nil, fmt.Errorf("%s is not held", path)
	}
	w := &watch{done: make(chan struct{})}
	w.held.Store(true)
	go func() {
		defer func() { _ = f.Close() }()
		for isHeld(f) {
			time.Sleep(500 * time.Microsecond)
		}
		w.at = time.Now()
		w.held.Store(false)
		close(w.done)
	}()
	return w, nil
}

// openTasks are the tasks below an application's directory of which a LOCK is
// held: "0_1" and so on, and "global".
func openTasks(root string) map[string]bool {
	open := map[string]bool{}
	// What vanishes meanwhile is not open.
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "LOCK" {
			return nil
		}
		if rel, err := filepath.Rel(root, path); err == nil && heldAt(path) {
			task, _, _ := strings.Cut(rel, string(filepath.Separator))
			open[task] = true
		}
		return nil
	})
	return open
}

// inventory is a line for each file of a directory: what stat says of it, and
// whether its lock is held.
func inventory(root string) string {
	var b strings.Builder
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // it vanished
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		st := info.Sys().(*syscall.Stat_t)
		rel, _ := filepath.Rel(root, path) // below it
		fmt.Fprintf(&b, "%s inode %d size %d allocated %d mtime %s", rel, st.Ino, st.Size, st.Blocks*512, info.ModTime().Format("15:04:05.000000000"))
		if name := d.Name(); name == "LOCK" || name == ".lock" {
			fmt.Fprintf(&b, " held %v", heldAt(path))
		}
		b.WriteByte('\n')
		return nil
	})
	return b.String()
}

// copyTree copies a directory as it is, times too. A table never changes, so a
// second name for it is enough, where both are on one file system.
func copyTree(from, to string) error {
	var dirs []string
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if d.IsDir() {
			dirs = append(dirs, rel)
			return os.MkdirAll(target, 0o755)
		}
		if strings.HasSuffix(path, ".sst") && os.Link(path, target) == nil {
			return nil
		}
		if err := copyFile(path, target); err != nil {
			return err
		}
		return copyTimes(path, target)
	})
	for _, rel := range dirs {
		err = errors.Join(err, copyTimes(filepath.Join(from, rel), filepath.Join(to, rel)))
	}
	return err
}

func copyTimes(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	return os.Chtimes(to, time.Time{}, info.ModTime())
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
