package volume_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"streams-sidecar/internal/volume"
)

// holdEnv makes the test binary hold a lock instead of running tests.
const holdEnv = "SIDECAR_TEST_HOLD_LOCK"

type hold struct {
	Path       string
	OFD, Read  bool // an open file description lock; a shared one
	Flock      bool // flock(2) instead of fcntl(2)
	Start, Len int64
}

func TestMain(m *testing.M) {
	if spec := os.Getenv(holdEnv); spec != "" {
		if err := holdLock(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// holdLock takes a lock, says so with a line, and keeps it until its standard
// input ends.
func holdLock(spec string) error {
	var h hold
	if err := json.Unmarshal([]byte(spec), &h); err != nil {
		return err
	}
	f, err := os.OpenFile(h.Path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	l := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: h.Start, Len: h.Len}
	if h.Read {
		l.Type = unix.F_RDLCK
	}
	switch {
	case h.Flock:
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	case h.OFD:
		err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &l)
	default:
		err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &l)
	}
	if err != nil {
		return err
	}
	fmt.Println("held")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func startHolder(t *testing.T, h hold) *exec.Cmd {
	t.Helper()
	spec, err := json.Marshal(h)
	must(t, err)
	program, err := os.Executable()
	must(t, err)
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), holdEnv+"="+string(spec))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "held\n" {
		t.Fatalf("the holder of the lock says %q, %v", line, err)
	}
	return cmd
}

func TestLockOfAnotherProcess(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		hold       hold
		held, told bool // told: with its pid
	}{
		{"write lock, as Kafka Streams and RocksDB take it", hold{}, true, true},
		{"read lock", hold{Read: true}, true, true},
		{"a few bytes", hold{Start: 1 << 30, Len: 10}, true, true},
		{"open file description lock", hold{OFD: true}, true, false},
		{"flock", hold{Flock: true}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path, link := filepath.Join(dir, ".lock"), filepath.Join(dir, "link")
			write(t, path, "")
			must(t, os.Symlink(".lock", link))
			c.hold.Path = path
			holder := startHolder(t, c.hold)
			want := volume.Lock{Held: c.held}
			if c.told {
				want.PID = holder.Process.Pid
			}
			for _, p := range []string{path, link, path} { // asking leaves the lock alone
				if got, err := volume.OS().Lock(p); err != nil || got != want {
					t.Errorf("lock of %s is %+v, %v; want %+v", p, got, err, want)
				}
			}
			must(t, holder.Process.Signal(syscall.SIGKILL))
			_ = holder.Wait()
			if got, err := volume.OS().Lock(path); err != nil || got != (volume.Lock{}) {
				t.Errorf("after kill -9 the lock is %+v, %v", got, err)
			}
		})
	}
}

// The way that the doc comment of FS.Lock warns of.
func TestLockOfThisProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "LOCK")
	write(t, path, "")
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer func() { _ = f.Close() }()
	other, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer func() { _ = other.Close() }()
	// An OFD lock conflicts with every other lock, even of the same process.
	locked := func() bool {
		l := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
		must(t, unix.FcntlFlock(other.Fd(), unix.F_OFD_GETLK, &l))
		return l.Type != unix.F_UNLCK
	}
	whole := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}

	must(t, unix.FcntlFlock(f.Fd(), unix.F_SETLK, &whole))
	if !locked() {
		t.Fatal("the lock was not taken")
	}
	if got, err := volume.OS().Lock(path); err != nil || got != (volume.Lock{}) {
		t.Errorf("own lock is %+v, %v; want none", got, err)
	}
	if locked() {
		t.Error("POSIX should have dropped the lock with the close of a descriptor")
	}

	whole = unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	must(t, unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &whole))
	for range 2 {
		if got, err := volume.OS().Lock(path); err != nil || got != (volume.Lock{Held: true}) {
			t.Errorf("own open file description lock is %+v, %v; want held by nobody known", got, err)
		}
	}
	if !locked() {
		t.Error("asking released the open file description lock")
	}
}

func TestLockLeavesNoTrace(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "LOCK")
	write(t, path, "")
	before := lstat(t, path)
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	must(t, err)
	defer func() { _ = unix.Close(fd) }()
	_, err = unix.InotifyAddWatch(fd, path, unix.IN_CLOSE_WRITE|unix.IN_MODIFY|unix.IN_ATTRIB)
	must(t, err)
	_, err = volume.OS().Lock(path)
	must(t, err)
	if after := lstat(t, path); after != before {
		t.Errorf("file was %+v and is %+v", before, after)
	}
	if n, err := unix.Read(fd, make([]byte, 4096)); err != unix.EAGAIN {
		t.Errorf("a watcher saw %d bytes of events, %v", n, err)
	}
}
