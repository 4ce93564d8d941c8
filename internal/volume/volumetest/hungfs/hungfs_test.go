package hungfs_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"streams-sidecar/internal/volume"
	"streams-sidecar/internal/volume/volumetest/hungfs"
)

// patience bounds how long something is waited for that comes at once on an
// idle machine.
const patience = 20 * time.Second

func TestCopyShowsTheDirectoryAsItIs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "CURRENT"), "MANIFEST-000005\n")
	f := hungfs.Mount(t, dir)

	read := func(name string) string {
		data, _, err := volume.ReadFile(volume.OS(), filepath.Join(f.Path, name), 1000)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if got := read("CURRENT"); got != "MANIFEST-000005\n" {
		t.Errorf("content through the mount is %q", got)
	}
	write(t, filepath.Join(dir, "CURRENT"), "MANIFEST-000009\n")
	if got := read("CURRENT"); got != "MANIFEST-000009\n" {
		t.Errorf("content after a change is %q", got)
	}
	u, err := volume.OS().Usage(f.Path)
	if err != nil || u.Type != "fuse" || !u.ReadOnly {
		t.Errorf("usage of the mount is %+v, %v; want a read-only fuse", u, err)
	}
	if err := os.Remove(filepath.Join(f.Path, "CURRENT")); err == nil {
		t.Error("a file could be removed through the mount")
	}
}

func TestStallHoldsEveryKindOfCall(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "f"), "content")
	if err := os.Symlink("f", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	f := hungfs.Mount(t, dir)
	file := filepath.Join(f.Path, "f")
	open, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	var fs unix.Statfs_t
	buf := make([]byte, 100)
	calls := map[string]func() error{
		"stat":     func() error { return unix.Stat(file, &st) },
		"statfs":   func() error { return unix.Statfs(f.Path, &fs) },
		"readlink": func() error { _, err := unix.Readlink(filepath.Join(f.Path, "link"), buf); return err },
		"open": func() error {
			fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err == nil {
				err = unix.Close(fd)
			}
			return err
		},
		"list": func() error { _, err := os.ReadDir(f.Path); return err },
		"read": func() error { _, err := unix.Pread(open, make([]byte, 10), 0); return err },
	}

	f.Stall()
	results := map[string]chan error{}
	for name, call := range calls {
		c := make(chan error, 1)
		results[name] = c
		go func() { c <- call() }()
	}
	time.Sleep(100 * time.Millisecond)
	for name, c := range results {
		select {
		case err := <-c:
			t.Errorf("%s came back with %v from a stalled mount", name, err)
			c <- err
		default:
		}
	}
	f.Release()
	for name, c := range results {
		select {
		case err := <-c:
			if err != nil {
				t.Errorf("%s after the release: %v", name, err)
			}
		case <-time.After(patience):
			t.Errorf("%s did not come back after the release", name)
		}
	}
	if err := unix.Close(open); err != nil {
		t.Error(err)
	}
}

func TestEndOfTheTestUnmountsWhileCallsHang(t *testing.T) {
	t.Parallel()
	came := make(chan error, 1)
	var path string
	ok := t.Run("stalled", func(t *testing.T) {
		f := hungfs.Mount(t, t.TempDir())
		path = f.Path
		f.Stall()
		started := make(chan bool)
		go func() {
			close(started)
			var st unix.Stat_t
			came <- unix.Stat(filepath.Join(f.Path, "x"), &st)
		}()
		<-started
		time.Sleep(20 * time.Millisecond) // let it reach the kernel; if not, it finds no file
	})
	if !ok || path == "" {
		return
	}
	select {
	case err := <-came:
		if err == nil {
			t.Error("a file that does not exist was found")
		}
	case <-time.After(patience):
		t.Error("the call still hangs although the mount is gone")
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("lstat of the former mount point: %v", err)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
