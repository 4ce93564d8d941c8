//go:build streams

package gate

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"streams-sidecar/test/streams"
)

// mount gives an empty directory on a file system of its own, or skips the
// test where this process may not mount any.
func mount(t *testing.T, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("mount", append(args, dir)...).CombinedOutput(); err != nil {
		t.Skipf("mount %q: %v: %s (it takes root and, for an image, loop devices)", args, err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	state := filepath.Join(dir, "state") // without lost+found
	if err := os.Mkdir(state, 0o755); err != nil {
		t.Fatal(err)
	}
	return state
}

// ext2 is a file system that never preallocates.
func ext2(t *testing.T) string {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	err := os.WriteFile(image, nil, 0o600)
	if err == nil {
		err = os.Truncate(image, 512<<20)
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext2", "-q", image).CombinedOutput(); err != nil {
		t.Skipf("mkfs.ext2: %v: %s", err, out)
	}
	return mount(t, "-o", "loop", image)
}

// TestNoPreallocation: on a file system where a MANIFEST looks the same
// whether its database was closed or not.
func TestNoPreallocation(t *testing.T) {
	each(t, func(t *testing.T, version string, g guarantee) {
		if !inPart(version, g, old2a, new4e) {
			t.Skip("only in a full run")
		}
		r := newRig(t, version, g, streams.Options{Stores: streams.Small(4), Commit: time.Second}, ext2(t))
		r.app.Produce(1000)
		r.quiet(1)
		r.perSec = 200
		r.run("KilledInClose", r.killedInClose)
		r.run("Exception", func() { r.trial(stop{dirty: true, act: func(*stop) { r.app.Poison() }}) })
	})
}

// TestDiskFull: the volume becomes full before or while the stores are flushed.
func TestDiskFull(t *testing.T) {
	each(t, func(t *testing.T, version string, g guarantee) {
		if !inPart(version, g, old3a, new4e) {
			t.Skip("only in a full run")
		}
		// A MANIFEST takes 4 MiB while it is open.
		state := mount(t, "-t", "tmpfs", "-o", "size=64m", "tmpfs")
		o := streams.Options{Stores: streams.Small(3), Partitions: 1, Keys: 2000, ValueBytes: 200}
		if g == atLeastOnce {
			o.Commit = 10 * time.Minute
		}
		r := newRig(t, version, g, o, state)
		r.app.Produce(2000)
		r.perSec = 50
		r.beside(r.http()...)
		r.run("Clean", func() { r.trial(stop{hook: true, clean: true}) })
		for i := range times(1, 2) {
			r.run(fmt.Sprintf("Full%d", i), func() {
				r.up()
				at := r.app.Status().Processed
				r.app.Produce(2000)
				r.app.WaitProcessed(at + 2000)
				// Each of the stores needs some 400 kB to be flushed.
				left := int64(float64(i) * r.random() * (1 << 20))
				filler := fill(r, filepath.Dir(state), left)
				r.Logf("%d bytes left", left)
				r.trial(stop{
					hook: true, unwritten: true, dirty: left == 0, losing: left == 0,
					before: func() { r.errorIf("make room again", os.Remove(filler)) },
				})
			})
		}
	})
}

// fill writes a file that leaves so many bytes free.
func fill(r *rig, dir string, left int64) (path string) {
	r.Helper()
	path = filepath.Join(dir, "filler")
	f, err := os.Create(path)
	if err != nil {
		r.Fatalf("%v", err)
	}
	n, err := io.Copy(f, zeros{})
	if !errors.Is(err, syscall.ENOSPC) {
		r.Fatalf("not full after %d bytes: %v", n, err)
	}
	err = f.Truncate(max(n-left, 0))
	if err = errors.Join(err, f.Close()); err != nil {
		r.Fatalf("%v", err)
	}
	return path
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
