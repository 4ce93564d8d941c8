package trigger_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"streams-sidecar/internal/shutdown/trigger"
	"streams-sidecar/internal/volume"
	"streams-sidecar/internal/volume/volumetest"
	"streams-sidecar/test/holder"
)

func lockPath(t *testing.T) string { return filepath.Join(t.TempDir(), ".lock") }

func disk() *volume.Volume { return volume.New(volume.OS()) }

// needsPidfd skips a test on a machine whose kernel cannot do what it tests.
func needsPidfd(t *testing.T) {
	t.Helper()
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		t.Skipf("pidfd_open: %v", err)
	}
	_ = unix.Close(fd)
}

// saysHolder makes the lock of every file held by a process of a given number.
type saysHolder struct {
	volume.FS
	pid int
}

func (s saysHolder) Lock(string) (volume.Lock, error) {
	return volume.Lock{Held: true, PID: s.pid}, nil
}

func TestHolder(t *testing.T) {
	t.Parallel()
	path := lockPath(t)
	if pid, held, err := trigger.Holder(disk(), path); pid != 0 || held || err != nil {
		t.Errorf("without the file: %d, %v, %v", pid, held, err)
	}
	h := holder.Hold(t, path)
	if pid, held, err := trigger.Holder(disk(), path); pid != h.PID() || !held || err != nil {
		t.Errorf("held by %d: %d, %v, %v", h.PID(), pid, held, err)
	}
	h.Release(path)
	if pid, held, err := trigger.Holder(disk(), path); pid != 0 || held || err != nil {
		t.Errorf("released: %d, %v, %v", pid, held, err)
	}
	if _, held, err := trigger.Holder(disk(), filepath.Dir(path)); held || volume.ClassOf(err) != volume.WrongKind {
		t.Errorf("of a directory: %v, %v", held, err)
	}
}

func TestTerminateEndsTheHolder(t *testing.T) {
	t.Parallel()
	needsPidfd(t)
	path := lockPath(t)
	h := holder.Hold(t, path)
	if pid, err := trigger.Terminate(disk(), path); pid != h.PID() || err != nil {
		t.Fatalf("Terminate: %d, %v, want %d", pid, err, h.PID())
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		_, held, err := trigger.Holder(disk(), path)
		must(t, err)
		if !held {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the lock is still held")
		}
	}
	if pid, err := trigger.Terminate(disk(), path); pid != 0 || !errors.Is(err, trigger.ErrNotHeld) || !strings.Contains(err.Error(), path) {
		t.Errorf("afterwards: %d, %v", pid, err)
	}
}

func TestTerminateOfAHolderThatIgnoresIt(t *testing.T) {
	t.Parallel()
	needsPidfd(t)
	path := lockPath(t)
	p := survivor(t, path)
	for range 2 {
		if pid, err := trigger.Terminate(disk(), path); pid != p.cmd.Process.Pid || err != nil {
			t.Fatalf("Terminate: %d, %v, want %d", pid, err, p.cmd.Process.Pid)
		}
		p.says("terminated") // SIGTERM, and no other
	}
	if _, held, err := trigger.Holder(disk(), path); !held || err != nil {
		t.Errorf("the lock afterwards: %v, %v", held, err)
	}
}

// TestTerminateNeverHitsAFormerHolder: between the two looks the lock goes to
// another process, while the first lives on or after it has ended.
func TestTerminateNeverHitsAFormerHolder(t *testing.T) {
	t.Parallel()
	needsPidfd(t)
	for _, ends := range []bool{false, true} {
		path := lockPath(t)
		first, next := holder.Hold(t, path), holder.Hold(t)
		fake := volumetest.New(t, volume.OS())
		fake.After(volumetest.Lock, path, func() {
			if ends {
				first.Kill()
			} else {
				first.Release(path)
			}
			next.Take(path)
		}).Times(1)
		if pid, err := trigger.Terminate(volume.New(fake), path); pid != next.PID() || err != nil {
			t.Errorf("the first ends %v: %d, %v, want %d", ends, pid, err, next.PID())
		}
		if n := fake.Count(volumetest.Lock, path); n < 3 {
			t.Errorf("the first ends %v: asked %d times", ends, n)
		}
		if !ends {
			first.Take(lockPath(t)) // fails unless it lives
		}
	}
}

func TestTerminateOfALockThatIsReleasedMeanwhile(t *testing.T) {
	t.Parallel()
	needsPidfd(t)
	path := lockPath(t)
	h := holder.Hold(t, path)
	fake := volumetest.New(t, volume.OS())
	fake.After(volumetest.Lock, path, func() { h.Release(path) }).Times(1)
	if pid, err := trigger.Terminate(volume.New(fake), path); pid != 0 || !errors.Is(err, trigger.ErrNotHeld) {
		t.Errorf("Terminate: %d, %v", pid, err)
	}
	h.Take(path) // fails unless it lives
}

// TestTerminateGivesUpOnALockThatKeepsChanging: two processes take turns, each
// between the two looks.
func TestTerminateGivesUpOnALockThatKeepsChanging(t *testing.T) {
	t.Parallel()
	needsPidfd(t)
	path := lockPath(t)
	one, two := holder.Hold(t, path), holder.Hold(t)
	fake := volumetest.New(t, volume.OS())
	fake.After(volumetest.Lock, path, func() {
		one.Release(path)
		two.Take(path)
		one, two = two, one
	})
	if _, err := trigger.Terminate(volume.New(fake), path); !errors.Is(err, trigger.ErrChanging) {
		t.Errorf("Terminate: %v", err)
	}
	one.Take(lockPath(t))
	two.Take(lockPath(t))
}

func TestTerminateSendsNothing(t *testing.T) {
	t.Parallel()
	path := lockPath(t)
	must(t, os.WriteFile(path, nil, 0o644))
	for _, c := range []struct {
		name string
		pid  int
		want error
	}{
		{"to a process of another pid namespace", 0, trigger.ErrNotVisible},
		{"to every process", -1, trigger.ErrNotVisible},
		{"to itself", os.Getpid(), trigger.ErrNotVisible},
	} {
		got, err := trigger.TerminateWith(volume.New(saysHolder{volume.OS(), c.pid}), path,
			func(pid, _ int) (int, error) { t.Errorf("%s: opens %d", c.name, pid); return -1, unix.ENOSYS },
			func(int, unix.Signal, *unix.Siginfo, int) error { t.Errorf("%s: sends", c.name); return nil })
		if got != 0 || !errors.Is(err, c.want) {
			t.Errorf("%s: %d, %v, want %v", c.name, got, err, c.want)
		}
	}
	fake := volumetest.New(t, volume.OS())
	fake.Fail(volumetest.Lock, path, syscall.ENOLCK)
	if _, err := trigger.Terminate(volume.New(fake), path); volume.ClassOf(err) != volume.NoLocks {
		t.Errorf("where locks cannot be asked: %v", err)
	}
}

// TestTerminateOfAnOpenFileDescriptionLock: it belongs to no process.
func TestTerminateOfAnOpenFileDescriptionLock(t *testing.T) {
	t.Parallel()
	path := lockPath(t)
	f, err := os.Create(path)
	must(t, err)
	defer func() { _ = f.Close() }()
	must(t, unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}))
	if _, err := trigger.Terminate(disk(), path); !errors.Is(err, trigger.ErrNotVisible) {
		t.Errorf("Terminate: %v", err)
	}
}

func TestTerminateSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	needsPidfd(t)
	path := lockPath(t)
	h := holder.Hold(t, path)
	openFails := func(err error) func(int, int) (int, error) {
		return func(int, int) (int, error) { return -1, err }
	}
	sendFails := func(err error) func(int, unix.Signal, *unix.Siginfo, int) error {
		return func(int, unix.Signal, *unix.Siginfo, int) error { return err }
	}
	for _, c := range []struct {
		name string
		open func(int, int) (int, error)
		send func(int, unix.Signal, *unix.Siginfo, int) error
		want error
		says string
	}{
		{"Linux before 5.3", openFails(unix.ENOSYS), nil, trigger.ErrUnsupported, "5.3"},
		{"a seccomp profile", openFails(unix.EPERM), nil, trigger.ErrUnsupported, "seccomp"},
		{"a seccomp profile that forbids the sending", unix.PidfdOpen, sendFails(unix.ENOSYS), trigger.ErrUnsupported, "pidfd_send_signal"},
		{"another user", unix.PidfdOpen, sendFails(unix.EPERM), trigger.ErrNotPermitted, "runAsUser"},
		{"no descriptors", openFails(unix.EMFILE), nil, unix.EMFILE, "pidfd_open"},
		{"a number that is always free again", openFails(unix.ESRCH), nil, trigger.ErrChanging, "another"},
		{"a process that has always ended", unix.PidfdOpen, sendFails(unix.ESRCH), trigger.ErrChanging, "another"},
	} {
		pid, err := trigger.TerminateWith(disk(), path, c.open, c.send)
		if pid != h.PID() || !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) || !strings.HasPrefix(err.Error(), path+": ") {
			t.Errorf("%s: %d, %v, want %d and %q", c.name, pid, err, h.PID(), c.says)
		}
	}
	h.Release(path) // fails unless it lives
}

// TestTerminateFromAnotherPIDNamespace is the case of a pod without a shared
// one, with the kernel's own answer.
func TestTerminateFromAnotherPIDNamespace(t *testing.T) {
	t.Parallel()
	path := lockPath(t)
	h := holder.Hold(t, path)
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if os.Getuid() != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
	}
	p, err := start(t, attr, "terminate", "", path)
	if err != nil {
		t.Skipf("no pid namespace can be made here: %v", err)
	}
	p.says("not visible")
	h.Release(path) // fails unless it lives
}

// TestTerminateAsAnotherUser needs root, to become another user.
func TestTerminateAsAnotherUser(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	needsPidfd(t)
	dir, err := os.MkdirTemp("", "trigger")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755)) // t.TempDir is closed to others
	path := filepath.Join(dir, ".lock")
	h := holder.Hold(t, path)
	p, err := start(t, nil, "terminate", "65534", path)
	must(t, err)
	p.says("not permitted")
	h.Release(path) // fails unless it lives
}
