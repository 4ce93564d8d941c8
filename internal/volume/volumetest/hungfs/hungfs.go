// Package hungfs mounts a read-only FUSE copy of a directory that stops
// answering on demand, as a volume does whose server or driver is dead: system
// calls on it hang in the kernel, for real.
//
// The file system is served by a child process (the test binary itself,
// started anew), because a process that serves a hung mount to itself cannot
// even be killed. Only tests may import this package.
package hungfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// FS is a mounted copy.
type FS struct {
	Path string // where it is mounted

	t      testing.TB
	mu     sync.Mutex // of what is written
	toward io.WriteCloser
	from   io.Reader
}

const (
	dirEnv   = "SIDECAR_TEST_HUNGFS_DIR"
	mountEnv = "SIDECAR_TEST_HUNGFS_MOUNT"

	// beat is how often the test tells the child that it lives. A test
	// process that was killed while a call of it hangs does not go away, nor
	// close its end of a pipe, before that call returns; so the child must
	// notice by the silence, and end the mount.
	beat    = time.Second
	silence = 10 * time.Second
)

// What the two processes say to each other, a byte each.
const (
	alive    = '.'
	stall    = 's'
	release  = 'r'
	done     = 'd'
	unusable = 'u' // the machine does not allow it; the reason follows
)

// Mount makes a copy of dir appear at FS.Path until the test ends. It shows
// the directory as it is, changes included, and never caches. The test is
// skipped where FUSE cannot be used: it takes /dev/fuse, and root with
// CAP_SYS_ADMIN or else the program fusermount3.
func Mount(t testing.TB, dir string) *FS {
	t.Helper()
	if err := usable(); err != nil {
		t.Skipf("no FUSE on this machine: %v", err)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f := &FS{Path: filepath.Join(t.TempDir(), "hungfs"), t: t}
	if err := os.Mkdir(f.Path, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), dirEnv+"="+dir, mountEnv+"="+f.Path,
		"GORACE=atexit_sleep_ms=0") // of a -race build: end at once
	cmd.Stderr = os.Stderr
	// Not in the process group of the terminal: an interrupt must leave it
	// the time to unmount.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if f.toward, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if f.from, err = cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	t.Cleanup(func() {
		close(stop)
		f.end(cmd)
	})
	go f.beat(stop)

	answer := make([]byte, 1)
	if _, err := io.ReadFull(f.from, answer); err != nil {
		t.Fatalf("mount %s: the server ended", f.Path)
	}
	if answer[0] == unusable {
		reason, _ := io.ReadAll(f.from)
		t.Skipf("no FUSE on this machine: %s", reason)
	}
	return f
}

// Stall makes every call on the mount hang that begins from now on, also
// those on files that are already open.
func (f *FS) Stall() { f.tell(stall) }

// Release lets the calls that hang go on, and those to come.
func (f *FS) Release() { f.tell(release) }

func (f *FS) tell(what byte) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	answer := make([]byte, 1)
	if _, err := f.toward.Write([]byte{what}); err != nil {
		f.t.Errorf("tell the server of %s: %v", f.Path, err)
	} else if _, err := io.ReadFull(f.from, answer); err != nil {
		f.t.Errorf("answer of the server of %s: %v", f.Path, err)
	}
}

func (f *FS) beat(stop <-chan struct{}) {
	for tick := time.NewTicker(beat); ; {
		select {
		case <-stop:
			tick.Stop()
			return
		case <-tick.C:
			f.mu.Lock()
			_, _ = f.toward.Write([]byte{alive}) // tell notices a dead server
			f.mu.Unlock()
		}
	}
}

// end makes the server unmount and exit. Nothing in here touches the mount.
func (f *FS) end(cmd *exec.Cmd) {
	_ = f.toward.Close()
	kill := time.AfterFunc(silence, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	if !kill.Stop() || err != nil {
		f.t.Errorf("server of %s: %v", f.Path, err)
		_ = detach(f.Path)
	}
}

// usable says what is missing for a mount.
func usable() error {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/fuse: %w", err)
	}
	_ = unix.Close(fd)
	if os.Geteuid() != 0 {
		_, err = exec.LookPath("fusermount3")
	}
	return err
}

// detach unmounts even while calls hang.
func detach(path string) error {
	if os.Geteuid() == 0 {
		return unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
	out, err := exec.Command("fusermount3", "-u", "-z", path).CombinedOutput()
	if err != nil {
		return errors.New(string(out))
	}
	return nil
}
