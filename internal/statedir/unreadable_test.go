package statedir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/volume"
	"streams-sidecar/internal/volume/volumetest"
)

// nobody is the real file system with the rights of a user who owns nothing:
// each call runs on a thread with another fsuid, which takes root's override
// of permissions from it. A test that is not root has no such rights itself.
type nobody struct{ volume.FS }

func asNobody[T any](call func() (T, error)) (T, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const uid = 65534
	_, _ = unix.SetfsgidRetGid(uid)
	_, _ = unix.SetfsuidRetUid(uid)
	defer func() {
		_, _ = unix.SetfsuidRetUid(os.Geteuid())
		_, _ = unix.SetfsgidRetGid(os.Getegid())
	}()
	return call()
}

func (n nobody) List(dir string, visit func(volume.Info) error) error {
	_, err := asNobody(func() (struct{}, error) { return struct{}{}, n.FS.List(dir, visit) })
	return err
}

func (n nobody) Stat(path string) (volume.Info, error) {
	return asNobody(func() (volume.Info, error) { return n.FS.Stat(path) })
}

func (n nobody) Lstat(path string) (volume.Info, error) {
	return asNobody(func() (volume.Info, error) { return n.FS.Lstat(path) })
}

func (n nobody) Open(path string) (volume.File, error) {
	return asNobody(func() (volume.File, error) { return n.FS.Open(path) })
}

func (n nobody) Lock(path string) (volume.Lock, error) {
	return asNobody(func() (volume.Lock, error) { return n.FS.Lock(path) })
}

func (n nobody) Resolve(path string) (string, error) {
	return asNobody(func() (string, error) { return n.FS.Resolve(path) })
}

// restrict takes rights from files below root and gives a volume that does not
// get around that.
func restrict(t *testing.T, root string, mode fs.FileMode, paths ...string) *volume.Volume {
	t.Helper()
	must(t, os.Chmod(filepath.Dir(root), 0o755)) // MkdirTemp made it for its user alone
	for _, p := range paths {
		p = filepath.Join(root, p)
		must(t, os.Chmod(p, mode))
		t.Cleanup(func() { _ = os.Chmod(p, 0o755) }) // or TempDir cannot be removed
	}
	fsys := volume.OS()
	if os.Geteuid() == 0 {
		fsys = nobody{fsys}
	}
	if _, err := fsys.Stat(root); err != nil {
		t.Skipf("the temporary directory is not open to others: %v", err)
	}
	return volume.New(fsys)
}

func TestNoPermission(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	grow(t, root, `
		lost+found/x
		closed/0_0/
		app/.lock
		app/kafka-streams-process-metadata = {"processId":"ff72cccf-4ecc-42fb-a3b7-3bf72ac220ff"}
		app/0_0/rocksdb/kv/x
		app/0_0/rocksdb/open/x
		app/0_0/closedwin/closedwin.5/x
		app/0_0/win/win.5/x
		app/0_1/x
		app/0_2/rocksdb/kv/x
		app/0_2/win/win.5/x
		app/0_3/.lock
		app/0_3/.checkpoint = 0\n0\n
		app/0_3/kv.position = 0\n0\n
		app/0_3/rocksdb/kv/x
		app/0_4.quarantine/x
		open/0_0/
	`)
	v := restrict(t, root, 0, "lost+found", "closed", "app/.lock", "app/kafka-streams-process-metadata",
		"app/0_0/rocksdb/kv", "app/0_0/closedwin", "app/0_1", "app/0_2/rocksdb", "app/0_3/.lock", "app/0_3/.checkpoint",
		"app/0_3/kv.position", "app/0_4.quarantine")
	d := Scan(v, root, nil)
	expect(t, d, `
		application app
		  task 0_0
		    store closedwin segmented
		      ! permission-denied /app/0_0/closedwin found list /app/0_0/closedwin: permission denied
		    store kv
		      ! permission-denied /app/0_0/rocksdb/kv found list /app/0_0/rocksdb/kv: permission denied
		    store open
		    store win segmented
		      segment win.5 from 5
		  task 0_1
		    ! permission-denied /app/0_1 found list /app/0_1: permission denied
		  task 0_2
		    store win segmented
		      segment win.5 from 5
		    ! permission-denied /app/0_2/rocksdb found list /app/0_2/rocksdb: permission denied
		  task 0_3
		    store kv
		      ! permission-denied /app/0_3/kv.position found open /app/0_3/kv.position: permission denied
		    ! permission-denied /app/0_3/.checkpoint found open /app/0_3/.checkpoint: permission denied
		    ! permission-denied /app/0_3/.lock found open /app/0_3/.lock: permission denied
		  ! permission-denied /app/.lock found open /app/.lock: permission denied
		  ! permission-denied /app/kafka-streams-process-metadata found open /app/kafka-streams-process-metadata: permission denied
		  ! foreign-directory /app/0_4.quarantine found list /app/0_4.quarantine: permission denied
		application open
		  task 0_0
		! permission-denied /closed found list /closed: permission denied`)
	if a := d.Applications[0]; a.Running != nil || !a.LockFile {
		t.Errorf("a lock that cannot be asked: %+v", a)
	}
	if k := d.Applications[0].Tasks[3]; k.Locked != nil || !k.LockFile {
		t.Errorf("a task lock that cannot be asked: %+v", k)
	}
}

func TestNoPermissionForTheStateDirectory(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	grow(t, root, "state/app/0_0/")
	v := restrict(t, root, 0, "state")
	d := Scan(v, filepath.Join(root, "state"), nil)
	if d.Missing || d.Usage == nil || len(d.Applications) != 0 {
		t.Errorf("missing %v, usage %v, %d applications", d.Missing, d.Usage, len(d.Applications))
	}
	expect(t, d, `! permission-denied ROOT found list ROOT: permission denied`)
}

// A directory that may be listed, but of whose entries nothing can be told.
func TestNoPermissionToSearch(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	grow(t, root, "app/0_0/\napp/0_1/rocksdb/kv/x\napp/.lock")
	v := volume.New(volume.OS())
	before := Scan(v, root, nil)
	v = restrict(t, root, 0o644, "app")
	d := Scan(v, root, before)
	if len(d.Applications) != 1 {
		t.Fatalf("an application that can no longer be read is gone: %s", describe(d))
	}
	a := d.Applications[0]
	if a.Running != nil || len(a.Findings) != 1 || a.Findings[0].Code != finding.PermissionDenied {
		t.Errorf("application %+v", a)
	}
	if d := Scan(v, root, nil); len(d.Applications) != 0 || len(d.Findings) != 1 || d.Findings[0].Code != finding.PermissionDenied {
		t.Errorf("a directory of which nothing is known: %s", describe(d))
	}
}

func TestBrokenDevice(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		op    volumetest.Op
		path  string
		wants string
	}{
		{"state directory", volumetest.List, "", `
			! io-error ROOT found list ROOT: input/output error`},
		{"space", volumetest.Usage, "", whole + `
			! io-error ROOT found statfs ROOT: input/output error`},
		{"name", volumetest.Resolve, "", whole + `
			! io-error ROOT found resolve ROOT: input/output error`},
		{"application", volumetest.List, "/app", `
			! io-error /app found list /app: input/output error`},
		{"entry of the application", volumetest.Entry, "/app/0_0", `
			application app
			  task 0_1
			    store win segmented
			      segment win.5 from 5
			      segment win.6 from 6
			  ! io-error /app/0_0 found stat /app/0_0: input/output error`},
		{"task", volumetest.List, "/app/0_0", `
			application app
			  task 0_0
			    ! io-error /app/0_0 found list /app/0_0: input/output error
			  task 0_1
			    store win segmented
			      segment win.5 from 5
			      segment win.6 from 6`},
		{"checkpoint", volumetest.Read, "/app/0_0/.checkpoint", `
			application app
			  task 0_0
			    store a
			    store b
			    ! io-error /app/0_0/.checkpoint found read /app/0_0/.checkpoint: input/output error
			  task 0_1
			    store win segmented
			      segment win.5 from 5
			      segment win.6 from 6`},
		{"rocksdb", volumetest.List, "/app/0_0/rocksdb", `
			application app
			  task 0_0
			    checkpoint [{t 0 5}]
			    ! io-error /app/0_0/rocksdb found list /app/0_0/rocksdb: input/output error
			  task 0_1
			    store win segmented
			      segment win.5 from 5
			      segment win.6 from 6`},
		{"entry of rocksdb", volumetest.Entry, "/app/0_0/rocksdb/a", `
			application app
			  task 0_0
			    checkpoint [{t 0 5}]
			    store b
			    ! io-error /app/0_0/rocksdb/a found stat /app/0_0/rocksdb/a: input/output error
			  task 0_1
			    store win segmented
			      segment win.5 from 5
			      segment win.6 from 6`},
		{"store", volumetest.List, "/app/0_0/rocksdb/a", `
			application app
			  task 0_0
			    checkpoint [{t 0 5}]
			    store a
			      ! io-error /app/0_0/rocksdb/a found list /app/0_0/rocksdb/a: input/output error
			    store b
			  task 0_1
			    store win segmented
			      segment win.5 from 5
			      segment win.6 from 6`},
		{"segmented store", volumetest.List, "/app/0_1/win", `
			application app
			  task 0_0
			    checkpoint [{t 0 5}]
			    store a
			    store b
			  task 0_1
			    store win segmented
			      ! io-error /app/0_1/win found list /app/0_1/win: input/output error`},
		{"segment", volumetest.Entry, "/app/0_1/win/win.5", `
			application app
			  task 0_0
			    checkpoint [{t 0 5}]
			    store a
			    store b
			  task 0_1
			    store win segmented
			      segment win.6 from 6
			      ! io-error /app/0_1/win/win.5 found stat /app/0_1/win/win.5: input/output error`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			root := tempDir(t)
			grow(t, root, small)
			fs := volumetest.New(t, volume.OS())
			fs.Fail(c.op, root+c.path, syscall.EIO)
			expect(t, Scan(volume.New(fs), root, nil), c.wants)
		})
	}
}

// Of a segmented store only what is no segment can be seen: that does not make
// it a foreign directory.
func TestBrokenSegmentBesideAStrayFile(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	grow(t, root, "app/0_0/win/win.5/x\napp/0_0/win/stray")
	fs := volumetest.New(t, volume.OS())
	fs.Fail(volumetest.Entry, filepath.Join(root, "app/0_0/win/win.5"), syscall.EIO)
	expect(t, Scan(volume.New(fs), root, nil), `
		application app
		  task 0_0
		    store win segmented
		      ! io-error /app/0_0/win/win.5 found stat /app/0_0/win/win.5: input/output error
		      ! foreign-in-segments /app/0_0/win/stray expected segments of win found a file`)
}

const small = `
	app/0_0/.checkpoint = 0\n1\nt 0 5\n
	app/0_0/rocksdb/a/x
	app/0_0/rocksdb/b/x
	app/0_1/win/win.5/x
	app/0_1/win/win.6/x`

const whole = `
			application app
			  task 0_0
			    checkpoint [{t 0 5}]
			    store a
			    store b
			  task 0_1
			    store win segmented
			      segment win.5 from 5
			      segment win.6 from 6`

// What is deleted between the listing of a directory and the look into it is
// no finding: the cleaner, a compaction of segments and a commit do that.
func TestDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path  string
		op    volumetest.Op
		wants string
	}{
		{"app", volumetest.List, ""},
		{"app/0_0", volumetest.List, `
			application app
			  task 0_1
			    store win segmented
			      segment win.5 from 5
			      segment win.6 from 6`},
		{"app/0_0/.checkpoint", volumetest.Open, `
			application app
			  task 0_0
			    store a
			    store b
			  task 0_1
			    store win segmented
			      segment win.5 from 5
			      segment win.6 from 6`},
		{"app/0_0/rocksdb/a", volumetest.List, `
			application app
			  task 0_0
			    checkpoint [{t 0 5}]
			    store b
			  task 0_1
			    store win segmented
			      segment win.5 from 5
			      segment win.6 from 6`},
		{"app/0_1/win", volumetest.List, `
			application app
			  task 0_0
			    checkpoint [{t 0 5}]
			    store a
			    store b
			  task 0_1`},
	} {
		t.Run(c.path, func(t *testing.T) {
			t.Parallel()
			root := tempDir(t)
			grow(t, root, small)
			fs := volumetest.New(t, volume.OS())
			path := filepath.Join(root, c.path)
			fs.Before(c.op, path, func() { must(t, os.RemoveAll(path)) }).Times(1)
			expect(t, Scan(volume.New(fs), root, nil), c.wants)
		})
	}
}

func TestHangingDirectoryHidesNoOther(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	grow(t, root, small+`
		linked/.lock
		linked/0_0 -> ../app
		other/0_0/rocksdb/kv/x`)
	fs := volumetest.New(t, volume.OS())
	rules := []*volumetest.Rule{
		fs.Stall(volumetest.List, filepath.Join(root, "app/0_0/rocksdb/a")),
		fs.Stall(volumetest.List, filepath.Join(root, "app/0_1")),
		fs.Stall(volumetest.Stat, filepath.Join(root, "linked/0_0")),
	}
	v := volume.New(fs, volume.Deadline(300*time.Millisecond))
	d := Scan(v, root, nil)
	codes := map[string]finding.Code{}
	each(d, func(f finding.Finding) { codes[f.File[len(root):]] = f.Code })
	for _, path := range []string{"/app/0_0/rocksdb/a", "/app/0_1", "/linked/0_0"} {
		if codes[path] != finding.VolumeStuck {
			t.Errorf("%s: finding %q, want %s", path, codes[path], finding.VolumeStuck)
		}
	}
	if len(codes) != len(rules) {
		t.Errorf("findings %v", codes)
	}
	if n := len(d.Applications[0].Tasks[0].Stores); n != 2 {
		t.Errorf("%d stores beside and with the one that hangs", n)
	}
	if k := d.Applications[len(d.Applications)-1].Tasks[0]; k.ID != "0_0" || len(k.Stores) != 1 {
		t.Errorf("the application beside it: %+v", k)
	}

	for _, r := range rules {
		r.Release()
	}
	deadline := time.Now().Add(10 * time.Second)
	for v.StuckUnits() > 0 && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	d = Scan(v, root, d)
	each(d, func(f finding.Finding) {
		if f.Code != finding.SameDirectory {
			t.Errorf("after it answered: %v", f)
		}
	})
	if n := len(d.Applications[0].Tasks[1].Stores); n != 1 {
		t.Errorf("after it answered the task has %d stores", n)
	}
}

func each(d *Dir, visit func(finding.Finding)) {
	all := func(fs []finding.Finding) {
		for _, f := range fs {
			visit(f)
		}
	}
	all(d.Findings)
	for _, a := range d.Applications {
		all(a.Findings)
		for _, k := range a.Tasks {
			all(k.Findings)
			for _, s := range k.Stores {
				all(s.Findings)
			}
		}
	}
}

func TestFilesThatAreTooLarge(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	grow(t, root, "app/0_0/rocksdb/kv/x")
	for path, size := range map[string]int64{
		"app/0_0/.checkpoint": maxOffsetsFile + 1, "app/0_0/kv.position": maxOffsetsFile + 1,
		"app/kafka-streams-process-metadata": maxProcessFile + 1,
	} {
		put(t, filepath.Join(root, path), "")
		must(t, os.Truncate(filepath.Join(root, path), size))
	}
	fs := volumetest.New(t, volume.OS())
	expect(t, Scan(volume.New(fs), root, nil), `
		application app
		  task 0_0
		    store kv
		      ! file-too-large /app/0_0/kv.position found read /app/0_0/kv.position: 16777217 bytes are more than the bound of 16777216
		    ! file-too-large /app/0_0/.checkpoint found read /app/0_0/.checkpoint: 16777217 bytes are more than the bound of 16777216
		  ! file-too-large /app/kafka-streams-process-metadata found read /app/kafka-streams-process-metadata: 65537 bytes are more than the bound of 65536`)
	if n := fs.Count(volumetest.Open, "..."); n != 0 {
		t.Errorf("%d files were opened", n)
	}
}

func TestProblem(t *testing.T) {
	t.Parallel()
	if _, ok := problem(nil, "/x"); ok {
		t.Error("no error is a finding")
	}
	if f, ok := problem(errors.New("odd"), "/x"); !ok || f.Code != finding.Unread || f.File != "/x" {
		t.Errorf("an error without a path: %v, %v", f, ok)
	}
}
