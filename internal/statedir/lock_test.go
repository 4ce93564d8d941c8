package statedir

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/volume"
	"streams-sidecar/internal/volume/volumetest"
)

func TestLockOfAnotherProcess(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	grow(t, root, `
		app/.lock
		app/0_0/.lock
		app/0_1/.lock
		other/.lock
	`)
	v := volume.New(volume.OS())
	before := Scan(v, root, nil)
	appPID, releaseApp := hold(t, filepath.Join(root, "app/.lock"))
	_, releaseTask := hold(t, filepath.Join(root, "app/0_1/.lock"))
	during := Scan(v, root, before)
	releaseApp()
	releaseTask()
	after := Scan(v, root, during)

	for _, c := range []struct {
		when          string
		d             *Dir
		running, task bool
		pid           int
	}{{"before", before, false, false, 0}, {"during", during, true, true, appPID}, {"after", after, false, false, 0}} {
		a := c.d.Applications[0]
		if a.Running == nil || *a.Running != c.running || a.HolderPID != c.pid || !a.LockFile {
			t.Errorf("%s: application %+v", c.when, a)
		}
		if k := a.Tasks[0]; k.Locked == nil || *k.Locked {
			t.Errorf("%s: the other task %+v", c.when, k)
		}
		if k := a.Tasks[1]; k.Locked == nil || *k.Locked != c.task || !k.LockFile {
			t.Errorf("%s: task %+v", c.when, k)
		}
		if other := c.d.Applications[1]; other.Running == nil || *other.Running {
			t.Errorf("%s: the other application %+v", c.when, other)
		}
	}
	if before.Applications[1] != after.Applications[1] || before.Applications[0] == during.Applications[0] {
		t.Error("the application whose lock was taken must be a new value, the other one the same")
	}
}

func TestLockThroughALink(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	grow(t, root, `
		real
		app/.lock -> ../real
		app/0_0/
		gone/.lock -> nothing
		gone/0_0/
	`)
	pid, _ := hold(t, filepath.Join(root, "real"))
	d := scan(root)
	if a := d.Applications[0]; a.Running == nil || !*a.Running || a.HolderPID != pid {
		t.Errorf("linked lock: %+v", a)
	}
	// Streams would make the link's target, so nobody holds it.
	a := d.Applications[1]
	if a.Running == nil || *a.Running || a.LockFile || len(a.Findings) != 1 || a.Findings[0].Code != finding.SymlinkBroken {
		t.Errorf("dangling lock: %+v", a)
	}
}

func TestNoLockFileMeansNotRunning(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	grow(t, root, "app/0_0/")
	a := scan(root).Applications[0]
	if a.LockFile || a.Running == nil || *a.Running {
		t.Errorf("application: %+v", a)
	}
}

func TestLockThatCannotBeAsked(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	grow(t, root, `
		app/.lock
		app/0_0/.lock
		app/0_0/rocksdb/kv/x
	`)
	fs := volumetest.New(t, volume.OS())
	for _, p := range []string{"app/.lock", "app/0_0/.lock"} {
		fs.Fail(volumetest.Lock, filepath.Join(root, p), syscall.ENOLCK)
	}
	d := Scan(volume.New(fs), root, nil)
	a := d.Applications[0]
	if a.Running != nil || !a.LockFile || a.Tasks[0].Locked != nil || !a.Tasks[0].LockFile {
		t.Errorf("application %+v, task %+v", a, a.Tasks[0])
	}
	expect(t, d, `
		application app
		  task 0_0
		    store kv
		    ! lock-unsupported /app/0_0/.lock found lock /app/0_0/.lock: no locks available
		  ! lock-unsupported /app/.lock found lock /app/.lock: no locks available`)
}

// Between the listing and the question the file is deleted.
func TestLockThatGoesMeanwhile(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	grow(t, root, "app/.lock\napp/0_0/.lock")
	fs := volumetest.New(t, volume.OS())
	fs.Fail(volumetest.Lock, "...", syscall.ENOENT)
	a := Scan(volume.New(fs), root, nil).Applications[0]
	if a.LockFile || a.Running == nil || *a.Running || a.Tasks[0].LockFile || a.Tasks[0].Locked != nil || len(a.Findings) != 0 {
		t.Errorf("application %+v, task %+v", a, a.Tasks[0])
	}
}

// TestEmptyProcessFileAtAStart: Streams takes .lock, then makes the file, then
// writes it. Empty, it is no finding as long as that may be going on.
func TestEmptyProcessFileAtAStart(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	grow(t, root, `
		app/.lock
		app/0_0/
	`)
	path := filepath.Join(root, "app", processName)
	put(t, path, "")
	v := volume.New(volume.OS())
	malformed := func(d *Dir) bool {
		return slices.ContainsFunc(d.Applications[0].Findings, func(f finding.Finding) bool { return f.Code == finding.ProcessIDMalformed })
	}
	if !malformed(Scan(v, root, nil)) {
		t.Error("no finding although nobody starts")
	}
	_, release := hold(t, filepath.Join(root, "app/.lock"))
	during := Scan(v, root, nil)
	if malformed(during) {
		t.Error("a finding on an application that starts")
	}
	long := time.Now().Add(-time.Minute)
	must(t, os.Chtimes(path, long, long))
	if !malformed(Scan(v, root, during)) {
		t.Error("no finding although the file has been empty for long")
	}
	release()
}
