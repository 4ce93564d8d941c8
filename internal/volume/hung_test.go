package volume_test

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"streams-sidecar/internal/volume"
	"streams-sidecar/internal/volume/volumetest"
	"streams-sidecar/internal/volume/volumetest/hungfs"
)

// The real thing: calls that hang in the kernel, on a FUSE mount whose server
// is silent.
func TestAVolumeThatReallyHangs(t *testing.T) {
	t.Parallel()
	dir, beside := t.TempDir(), t.TempDir()
	for _, d := range []string{dir, beside} {
		write(t, filepath.Join(d, "CURRENT"), "MANIFEST-000005\n")
	}
	hung := hungfs.Mount(t, dir)
	file := filepath.Join(hung.Path, "CURRENT")
	counted := volumetest.New(t, volume.OS())
	v := volume.New(counted, volume.Deadline(150*time.Millisecond))

	// Each in a unit of its own. Those on an open file open it, wait for the
	// stall, and go on.
	opened, stalled := make(chan bool), make(chan bool)
	onOpen := func(do func(volume.File) error) func(volume.FS) error {
		return func(fs volume.FS) error {
			f, err := fs.Open(file)
			if err != nil {
				return err
			}
			defer func() { _ = f.Close() }()
			opened <- true
			<-stalled
			return do(f)
		}
	}
	looks := []struct {
		op, path string
		look     func(volume.FS) error
	}{
		{"read", file, onOpen(func(f volume.File) error { _, err := f.ReadAt(make([]byte, 8), 0); return err })},
		{"close", file, onOpen(func(f volume.File) error { return f.Close() })},
		{"list", hung.Path, func(fs volume.FS) error { return fs.List(hung.Path, func(volume.Info) error { return nil }) }},
		{"open", file, func(fs volume.FS) error { _, _, err := volume.ReadFile(fs, file, 100); return err }},
	}
	if len(looks) != volume.MaxStuck {
		t.Fatalf("%d looks, want as many as make the volume refuse", len(looks))
	}
	do := func(unit string, look func(volume.FS) error) error {
		_, err := volume.Do(v, unit, func(fs volume.FS) (int, error) { return 0, look(fs) })
		return err
	}
	neighbour := func() error {
		return do("beside", func(fs volume.FS) error {
			if err := fs.List(beside, func(volume.Info) error { return nil }); err != nil {
				return err
			}
			_, _, err := volume.ReadFile(fs, filepath.Join(beside, "CURRENT"), 100)
			return err
		})
	}

	results := make([]chan error, len(looks))
	for i, l := range looks {
		results[i] = make(chan error, 1)
		if i < 2 {
			go func() { results[i] <- do(l.op, l.look) }()
			<-opened
		}
	}
	hung.Stall()
	defer hung.Release() // or a failure here makes the end wait
	close(stalled)
	for i, l := range looks {
		if i >= 2 {
			if err := neighbour(); err != nil {
				t.Errorf("the neighbour while %d places hang: %v", i, err)
			}
			go func() { results[i] <- do(l.op, l.look) }()
		}
		select {
		case err := <-results[i]:
			var e *volume.Error
			if !errors.As(err, &e) || e.Class != volume.Stuck || e.Op != l.op || e.Path != l.path {
				t.Errorf("%s of a hung volume gives %v, want a stuck %s of %s", l.op, err, l.op, l.path)
			}
		case <-time.After(patience):
			t.Fatalf("%s was not given up", l.op)
		}
	}
	asked := counted.Count(volumetest.Any, "...")
	if err := neighbour(); volume.ClassOf(err) != volume.Stuck || counted.Count(volumetest.Any, "...") != asked {
		t.Errorf("with %d places hanging the neighbour gives %v after %d calls", v.StuckUnits(), err,
			counted.Count(volumetest.Any, "...")-asked)
	}

	hung.Release()
	for end := time.Now().Add(patience); v.StuckUnits() > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d places are still stuck after the volume came back", v.StuckUnits())
		}
	}
	stalled = make(chan bool)
	close(stalled)
	go func() {
		for range opened {
		}
	}()
	for _, l := range looks {
		if err := do(l.op, l.look); err != nil {
			t.Errorf("%s of the volume that came back: %v", l.op, err)
		}
	}
	close(opened)
	if err := neighbour(); err != nil {
		t.Errorf("the neighbour: %v", err)
	}
}
