package journal_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"streams-sidecar/internal/journal"
	"streams-sidecar/internal/volume"
	"streams-sidecar/internal/volume/volumetest/hungfs"
)

// inMountNamespace makes the rest of a test run in a process with a mount
// namespace of its own, in which it may mount; it returns true there.
func inMountNamespace(t *testing.T) bool {
	t.Helper()
	const variable = "SIDECAR_TEST_JOURNAL_MOUNTS"
	if os.Getenv(variable) != "" {
		err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")
		if err == nil {
			dir := t.TempDir()
			if err = syscall.Mount("none", dir, "tmpfs", 0, ""); err == nil {
				err = syscall.Unmount(dir, 0)
			}
		}
		if err != nil {
			t.Skipf("mounts are not allowed: %v", err)
		}
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), variable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	switch exit := (*exec.ExitError)(nil); {
	case err != nil && !errors.As(err, &exit):
		t.Skipf("no mount namespace: %v", err)
	case bytes.Contains(out, []byte("\n--- SKIP: "+t.Name())):
		t.Skipf("%s", out)
	case err != nil || !bytes.Contains(out, []byte("\n--- PASS: "+t.Name())):
		t.Errorf("in its mount namespace: %v\n%s", err, out)
	}
	return false
}

// small is a file system in memory.
func small(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, syscall.Mount("none", dir, "tmpfs", 0, "size=256k,nr_inodes=40,mode=755"))
	t.Cleanup(func() { must(t, syscall.Unmount(dir, 0)) }) // which shows that nothing was left open
	return dir
}

func TestAVolumeThatIsFull(t *testing.T) {
	t.Parallel()
	if !inMountNamespace(t) {
		return
	}
	for what, fill := range map[string]func(dir string) error{
		"of data": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "fill"), make([]byte, 1<<20), 0o644)
		},
		"of data, but for a page": func(dir string) error {
			err := os.WriteFile(filepath.Join(dir, "fill"), make([]byte, 1<<20), 0o644)
			must(t, os.Truncate(filepath.Join(dir, "fill"), 200<<10))
			must(t, os.WriteFile(filepath.Join(dir, "rest"), make([]byte, 1<<20), 0o644), "no space")
			must(t, os.Truncate(filepath.Join(dir, "rest"), 8<<10))
			return err
		},
		"of files": func(dir string) error {
			for {
				if err := os.WriteFile(filepath.Join(dir, journal.Temporary("fill")), nil, 0o644); err != nil {
					return err
				}
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir := small(t)
			f := open(dir)
			must(t, f.Write(name, record{Number: old}))
			if err := fill(dir); !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("the volume is not full: %v", err)
			}
			before := paths(t, dir)
			large := record{Number: young, Outcome: strings.Repeat("x", 100<<10)}
			for how, write := range writers {
				err := write(f, name, large)
				if volume.ClassOf(err) != volume.Full || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "space on the volume") {
					t.Errorf("%s gives %v", how, err)
				}
			}
			if diff := cmp.Diff(before, paths(t, dir)); diff != "" {
				t.Errorf("it left (-before +after):\n%s", diff)
			}
			if n := number(t, dir); n != old {
				t.Errorf("the document is %d", n)
			}
			must(t, f.Sync(name))
			must(t, f.Remove(name)) // which is how one gets space
			for _, p := range before {
				if !strings.HasPrefix(p, folderName) {
					must(t, os.Remove(filepath.Join(dir, p)))
				}
			}
			must(t, f.Write(name, large))
			if n := number(t, dir); n != young {
				t.Errorf("with space again the document is %d", n)
			}
		})
	}
	t.Run("before the folder is there", func(t *testing.T) {
		dir := small(t)
		for i := 0; ; i++ {
			if err := os.WriteFile(filepath.Join(dir, journal.Temporary("fill")), nil, 0o644); err != nil {
				break
			}
		}
		if err := open(dir).Put(name, record{}); volume.ClassOf(err) != volume.Full || !strings.Contains(err.Error(), "make "+folderName) {
			t.Errorf("put gives %v", err)
		}
	})
}

func TestAVolumeThatIsReadOnly(t *testing.T) {
	t.Parallel()
	if !inMountNamespace(t) {
		return
	}
	for _, fresh := range []bool{true, false} {
		dir := small(t)
		f := open(dir)
		if !fresh {
			must(t, f.Write(name, record{Number: old}))
		}
		must(t, syscall.Mount("none", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
		before := tree(t, dir)
		for how, write := range writers {
			err := write(f, name, record{Number: young})
			if !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), "readOnly") {
				t.Errorf("%s gives %v", how, err)
			}
		}
		if err := f.Remove(name); err != nil && (fresh || !errors.Is(err, syscall.EROFS)) {
			t.Errorf("remove gives %v", err)
		}
		if !fresh {
			must(t, f.Sync(name))
			if n := number(t, dir); n != old {
				t.Errorf("the document is %d", n)
			}
		}
		if diff := cmp.Diff(before, tree(t, dir)); diff != "" {
			t.Errorf("the read-only volume changed:\n%s", diff)
		}
	}
}

// asNobody runs a system call on a thread with another fsuid, which takes
// root's override of permissions from it.
func asNobody(_ string, sys func() error) error {
	if os.Geteuid() != 0 {
		return sys()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const uid = 65534
	_, _ = unix.SetfsgidRetGid(uid)
	_, _ = unix.SetfsuidRetUid(uid)
	defer func() {
		_, _ = unix.SetfsuidRetUid(os.Geteuid())
		_, _ = unix.SetfsgidRetGid(os.Getegid())
	}()
	return sys()
}

func TestPermissions(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		at   string // what is not ours to use
		mode os.FileMode
		fail string // operations
	}{
		"a state directory that cannot be written": {".", 0o555, "write"},
		"a state directory that is closed":         {".", 0o000, "write read sync remove"},
		"a folder that cannot be written":          {folderName, 0o555, "write remove"},
		"a folder that is closed":                  {folderName, 0o000, "write read sync remove"},
		"a document that cannot be read":           {folderName + "/" + name, 0o000, "read sync"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			must(t, os.Chmod(filepath.Dir(dir), 0o755)) // it was made for its user alone
			must(t, os.Chmod(dir, 0o777))
			if err := asNobody("", func() error { _, err := os.Lstat(filepath.Join(dir, ".")); return err }); err != nil {
				t.Skipf("the temporary directory is not open to others: %v", err)
			}
			if c.at != "." {
				must(t, os.Mkdir(filepath.Join(dir, folderName), 0o777))
				must(t, os.Chmod(filepath.Join(dir, folderName), 0o777))
				must(t, os.WriteFile(filepath.Join(dir, folderName, name), []byte("{}"), 0o644))
			}
			at := filepath.Join(dir, c.at)
			must(t, os.Chmod(at, c.mode))
			t.Cleanup(func() { _ = os.Chmod(at, 0o755) }) // or it cannot be removed

			f := open(dir, journal.Around(asNobody))
			for _, op := range []string{"read", "sync", "write", "remove"} {
				var err error
				switch op {
				case "write":
					err = write(f)
				case "read":
					err = read(f)
				case "sync":
					err = f.Sync(name)
				case "remove":
					err = f.Remove(name)
				}
				if !strings.Contains(c.fail, op) {
					must(t, err, "no such file")
					continue
				}
				if volume.ClassOf(err) != volume.Denied || !strings.Contains(err.Error(), "runAsUser") {
					t.Errorf("%s gives %v", op, err)
				}
			}
		})
	}
}

// The real thing: a call that hangs in the kernel.
func TestAVolumeThatReallyHangs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, open(dir).Put(name, record{Number: old}))
	hung := hungfs.Mount(t, dir)
	f := journal.Open(hung.Path, journal.Deadline(200*time.Millisecond))
	if err := put(f); !errors.Is(err, syscall.EROFS) {
		t.Errorf("put to the copy, which is read-only, gives %v", err)
	}
	must(t, read(f))
	hung.Stall()
	defer hung.Release() // or a failure here makes the end wait
	for i := range 3 {
		err := make(chan error, 1)
		go func() { err <- read(f) }()
		select {
		case err := <-err:
			if volume.ClassOf(err) != volume.Stuck {
				t.Errorf("read %d of a hung volume gives %v", i, err)
			}
		case <-time.After(patience):
			t.Fatal("the call was not given up")
		}
	}
	hung.Release()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		err := read(f)
		if err == nil {
			break
		}
		if volume.ClassOf(err) != volume.Stuck || time.Now().After(end) {
			t.Fatalf("after the volume came back: %v", err)
		}
	}
}
