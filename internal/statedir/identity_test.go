package statedir

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/volume"
	"streams-sidecar/internal/volume/volumetest"
)

func TestStateDirOfTwoNames(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	grow(t, root, `
		real/app/0_0/rocksdb/kv/x
		first -> second
		second -> real
		other/app/0_0/rocksdb/kv/x
	`)
	real, link, other := scan(filepath.Join(root, "real")), scan(filepath.Join(root, "first")), scan(filepath.Join(root, "other"))
	if real.ID != link.ID || real.Resolved != link.Resolved || real.ID == other.ID {
		t.Errorf("real %v %s, link %v %s, other %v", real.ID, real.Resolved, link.ID, link.Resolved, other.ID)
	}
	if want := filepath.Join(root, "first"); link.Path != want {
		t.Errorf("path %q, want %q", link.Path, want)
	}
	const want = `
		application app
		  task 0_0
		    store kv`
	expect(t, real, want)
	expect(t, link, want)
	if got, want := link.Applications[0].Path, filepath.Join(root, "real/app"); got != want {
		t.Errorf("below a linked state directory the application is at %q, want %q", got, want)
	}
}

func TestLinks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, tree, want string }{
		{
			name: "an application of two names",
			tree: `
				a -> b
				b/0_0/rocksdb/kv/x
				c -> b`,
			want: `
				application b
				  task 0_0
				    store kv
				! same-directory /a found the same directory as /b
				! same-directory /c found the same directory as /b`,
		},
		{
			name: "a task of two names, in two applications",
			tree: `
				a/0_0 -> ../b/0_5
				b/0_5/rocksdb/kv/x
				b/0_1 -> 0_5`,
			want: `
				application a
				  ! same-directory /a/0_0 found the same directory as /b/0_5
				application b
				  task 0_5
				    store kv
				  ! same-directory /b/0_1 found the same directory as /b/0_5`,
		},
		{
			name: "stores of two names",
			tree: `
				app/0_0/rocksdb/kv/x
				app/0_0/rocksdb/again -> kv
				app/0_0/win/win.5/x
				app/0_0/win/win.6 -> win.5
				app/0_1/rocksdb/kv -> ../../0_0/rocksdb/kv
				app/0_1/win -> ../0_0/win
				app/0_2/rocksdb -> ../0_0/rocksdb`,
			want: `
				application app
				  task 0_0
				    store kv
				    store win segmented
				      segment win.5 from 5
				      ! same-directory /app/0_0/win/win.6 found the same directory as /app/0_0/win/win.5
				    ! same-directory /app/0_0/rocksdb/again found the same directory as /app/0_0/rocksdb/kv
				  task 0_1
				    ! same-directory /app/0_1/rocksdb/kv found the same directory as /app/0_0/rocksdb/kv
				    ! same-directory /app/0_1/win found the same directory as /app/0_0/win
				  task 0_2
				    ! same-directory /app/0_2/rocksdb found the same directory as /app/0_0/rocksdb`,
		},
		{
			name: "of two links the lexically first",
			tree: `
				.real/kv/x
				app/0_0/rocksdb/b -> ../../../.real/kv
				app/0_0/rocksdb/a -> ../../../.real/kv`,
			want: `
				application app
				  task 0_0
				    store a
				    ! same-directory /app/0_0/rocksdb/b found the same directory as /app/0_0/rocksdb/a`,
		},
		{
			name: "a link to what lies deeper",
			tree: `
				app/0_0/rocksdb/kv/x/y
				app/0_0/win/win.5/x
				app/0_1 -> 0_0/rocksdb/kv
				app/0_2 -> 0_0/win/win.5`,
			want: `
				application app
				  task 0_0
				    store win segmented
				      ! same-directory /app/0_0/win/win.5 found the same directory as /app/0_2
				    ! same-directory /app/0_0/rocksdb/kv found the same directory as /app/0_1
				  task 0_1
				    ! foreign-directory /app/0_1/x found 0 bytes
				  task 0_2`,
		},
		{
			name: "links that dangle",
			tree: `
				lost -> nothing
				app/0_0 -> nothing
				app/0_1/rocksdb -> nothing
				app/0_1/win -> nothing
				app/0_1/.checkpoint -> nothing
				app/0_1/kv.position -> nothing
				app/0_2/rocksdb/kv -> nothing
				app/0_2/win/win.5 -> nothing
				app/global -> nothing
				app/kafka-streams-process-metadata -> nothing`,
			want: `
				application app
				  task 0_1
				    ! symlink-broken /app/0_1/.checkpoint
				    ! symlink-broken /app/0_1/kv.position
				    ! symlink-broken /app/0_1/rocksdb
				    ! symlink-broken /app/0_1/win
				  task 0_2
				    store win segmented
				      ! symlink-broken /app/0_2/win/win.5
				    ! symlink-broken /app/0_2/rocksdb/kv
				  ! symlink-broken /app/0_0
				  ! symlink-broken /app/global
				  ! symlink-broken /app/kafka-streams-process-metadata
				! symlink-broken /lost`,
		},
		{
			name: "links to files",
			tree: `
				file
				text = 0\n1\nt 0 5\n
				notes -> file
				app/.lock
				app/0_0 -> ../file
				app/notes -> ../file
				app/0_1/rocksdb -> ../../file
				app/0_1/win -> ../../file
				app/0_1/.checkpoint -> ../../text
				app/0_2/rocksdb/kv -> ../../../file
				app/0_2/win/win.5 -> ../../../file`,
			want: `
				application app
				  task 0_1
				    checkpoint [{t 0 5}]
				    ! wrong-kind /app/0_1/rocksdb expected a directory found a file
				  task 0_2
				    store win segmented
				      ! wrong-kind /app/0_2/win/win.5 expected a directory found a file
				    ! wrong-kind /app/0_2/rocksdb/kv expected a directory found a file
				  ! wrong-kind /app/0_0 expected a directory found a file`,
		},
		{
			name: "loops",
			tree: `
				here -> .
				up -> ..
				spin -> spin
				app/.lock
				app/0_0 -> .
				app/0_1 -> ..
				app/0_2/rocksdb -> .
				app/0_2/win -> ..
				app/0_3/rocksdb/kv -> ..
				app/0_3/win/win.5 -> ..
				app/0_4 -> 0_4
				app/__t__ -> .
				app/loop -> .`,
			want: `
				application app
				  task 0_2
				    ! foreign-directory /app/0_2/win found a symbolic link to a directory
				    ! same-directory /app/0_2/rocksdb found the same directory as /app/0_2
				  task 0_3
				    store win segmented
				      ! same-directory /app/0_3/win/win.5 found the same directory as /app/0_3
				    ! same-directory /app/0_3/rocksdb/kv found the same directory as /app/0_3
				  ! wrong-kind /app/0_4 found stat /app/0_4: too many levels of symbolic links
				  ! foreign-directory /app/loop found a symbolic link to a directory
				  ! same-directory /app/0_0 found the same directory as /app
				  ! same-directory /app/0_1 found the same directory as ROOT
				  ! same-directory /app/__t__ found the same directory as /app
				! wrong-kind /spin found stat /spin: too many levels of symbolic links`,
		},
		{
			name: "foreign directories that are links are not looked into",
			tree: `
				.real/x = 12345
				app/.lock
				app/0_0.quarantine -> ../.real`,
			want: `
				application app
				  ! foreign-directory /app/0_0.quarantine found a symbolic link to a directory`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			root := filepath.Join(tempDir(t), "state")
			put(t, root+"/", "")
			grow(t, root, c.tree)
			expect(t, scan(root), c.want)
		})
	}
}

// A link that is itself deleted before it is followed does not dangle.
func TestLinkThatGoesMeanwhile(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	grow(t, root, "app/.lock\napp/0_0 -> ../app/0_1\napp/0_1/")
	fs := volumetest.New(t, volume.OS())
	link := filepath.Join(root, "app/0_0")
	fs.Before(volumetest.Stat, link, func() { must(t, os.RemoveAll(link)) }).Times(1)
	expect(t, Scan(volume.New(fs), root, nil), `
		application app
		  task 0_1`)
}

func TestLinksThatLeaveTheStateDirectory(t *testing.T) {
	t.Parallel()
	top := tempDir(t)
	root := filepath.Join(top, "state")
	grow(t, top, `
		disk/app/0_0/rocksdb/inner/x
		disk/task/rocksdb/kv/x
		disk/kv/x
		disk/rocksdb/a/x
		disk/win/win.5/x
		disk/segment/x
		disk/topology/0_0/x
		disk/no-application/x
		state-2/kv/x
		state/app -> ../disk/app
		state/no -> ../disk/no-application
		state/own/0_0 -> ../../disk/task
		state/own/0_1/rocksdb/kv -> ../../../../disk/kv
		state/own/0_1/rocksdb/near -> ../../../../state-2/kv
		state/own/0_1/win -> ../../../disk/win
		state/own/0_1/sess/sess.7 -> ../../../../disk/segment
		state/own/0_2/rocksdb -> ../../../disk/rocksdb
		state/own/__t__ -> ../../disk/topology
	`)
	d := scan(root)
	for i := range d.Applications {
		for _, k := range d.Applications[i].Tasks {
			if k.ID == "0_0" && d.Applications[i].ID == "own" && k.DirID != mustStat(t, filepath.Join(top, "disk/task")).ID() {
				t.Errorf("the task's identity is not that of its target: %v", k.DirID)
			}
		}
	}
	got := strings.ReplaceAll(describe(d), top+"/disk", "/disk")
	want := `application app
  task 0_0
    store inner
  ! symlink-outside /app found leads to /disk/app
application own
  task 0_0
    store kv
    ! symlink-outside /own/0_0 found leads to /disk/task
  task 0_1
    store kv
      ! symlink-outside /own/0_1/rocksdb/kv found leads to /disk/kv
    store near
      ! symlink-outside /own/0_1/rocksdb/near found leads to ROOT-2/kv
    store sess segmented
      segment sess.7 from 7
      ! symlink-outside /own/0_1/sess/sess.7 found leads to /disk/segment
    store win segmented
      segment win.5 from 5
      ! symlink-outside /own/0_1/win found leads to /disk/win
  task 0_2
    store a
    ! symlink-outside /own/0_2/rocksdb found leads to /disk/rocksdb
  task __t__/0_0
  ! symlink-outside /own/__t__ found leads to /disk/topology
`
	if diff := diffText(want, got); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	for _, f := range d.Applications[0].Findings {
		if f.Severity != finding.Info {
			t.Errorf("%s is a %s", f.Code, f.Severity)
		}
	}
}

func mustStat(t *testing.T, path string) volume.Info {
	t.Helper()
	i, err := volume.OS().Stat(path)
	must(t, err)
	return i
}

// inMountNamespace makes the rest of a test run in a process with a mount
// namespace of its own; it returns true there.
func inMountNamespace(t *testing.T) bool {
	t.Helper()
	const variable = "STATEDIR_TEST_MOUNTS"
	if os.Getenv(variable) != "" {
		must(t, syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""))
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
	case err != nil && bytes.Contains(out, []byte(syscall.EPERM.Error())):
		t.Skipf("mounts are not allowed: %s", out)
	case err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())):
		t.Errorf("in its mount namespace: %v\n%s", err, out)
	}
	return false
}

func TestBindMounts(t *testing.T) {
	if !inMountNamespace(t) {
		return
	}
	top := tempDir(t)
	root := filepath.Join(top, "state")
	grow(t, root, `
		a/0_0/rocksdb/kv/x
		a/0_0/rocksdb/twin/
		a/0_0/win/win.5/x
		a/0_0/win/win.6/
		a/0_1/
		a/0_2/rocksdb/kv/
		b/
		link -> b
	`)
	put(t, filepath.Join(top, "again")+"/", "")
	bind := func(from, to string) {
		t.Helper()
		must(t, syscall.Mount(from, to, "", syscall.MS_BIND, ""))
		t.Cleanup(func() { _ = syscall.Unmount(to, syscall.MNT_DETACH) })
	}
	below := func(p string) string { return filepath.Join(root, p) }
	bind(below("a/0_0/rocksdb/kv"), below("a/0_0/rocksdb/twin"))
	bind(below("a/0_0/rocksdb/kv"), below("a/0_2/rocksdb/kv"))
	bind(below("a/0_0/win/win.5"), below("a/0_0/win/win.6"))
	bind(below("a/0_0"), below("a/0_1"))
	bind(below("a"), below("b"))
	bind(root, filepath.Join(top, "again"))

	d, again := scan(root), scan(filepath.Join(top, "again"))
	if d.ID != again.ID || d.Resolved == again.Resolved {
		t.Errorf("a state directory and its bind mount: %v %s, %v %s", d.ID, d.Resolved, again.ID, again.Resolved)
	}
	expect(t, d, `
		application a
		  task 0_0
		    store kv
		    store win segmented
		      segment win.5 from 5
		      ! same-directory /a/0_0/win/win.6 found the same directory as /a/0_0/win/win.5
		    ! same-directory /a/0_0/rocksdb/twin found the same directory as /a/0_0/rocksdb/kv
		  task 0_2
		    ! same-directory /a/0_2/rocksdb/kv found the same directory as /a/0_0/rocksdb/kv
		  ! same-directory /a/0_1 found the same directory as /a/0_0
		! same-directory /b found the same directory as /a
		! same-directory /link found the same directory as /a`)
}
