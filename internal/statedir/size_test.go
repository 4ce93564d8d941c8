package statedir

import (
	"path/filepath"
	"syscall"
	"testing"

	"streams-sidecar/internal/volume"
	"streams-sidecar/internal/volume/volumetest"
)

func TestSize(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	grow(t, root, `
		five = 12345
		a/b/c/three = 123
		a/empty/
		a/link -> ../five
		a/loop -> ..
		a/two = 12
	`)
	special(t, filepath.Join(root, "a/fifo"), syscall.S_IFIFO)
	const entries = 10
	for _, c := range []struct {
		limit int
		bytes int64 // of the whole tree, or -1 where the order of the entries matters
		exact bool
	}{
		{1000, 10, true}, {entries, 10, true}, {entries - 1, -1, false}, {1, -1, false}, {0, 0, false},
	} {
		fs := volumetest.New(t, volume.OS())
		bytes, exact, err := Size(fs, root, c.limit)
		if err != nil || exact != c.exact || c.bytes >= 0 && bytes != c.bytes || bytes > 10 {
			t.Errorf("limit %d: %d bytes, exact %v, %v", c.limit, bytes, exact, err)
		}
		if n := fs.Count(volumetest.Entry, "..."); n > c.limit+1 {
			t.Errorf("limit %d: looked at %d entries", c.limit, n)
		}
	}
}

func TestSizeOfWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	grow(t, root, `
		five = 12345
		gone/x = 1
		broken/x = 1
	`)
	fs := volumetest.New(t, volume.OS())
	fs.Fail(volumetest.List, filepath.Join(root, "gone"), syscall.ENOENT)
	if bytes, exact, err := Size(fs, root, 100); bytes != 6 || !exact || err != nil {
		t.Errorf("a directory that was deleted meanwhile: %d bytes, exact %v, %v", bytes, exact, err)
	}
	fs.Fail(volumetest.List, filepath.Join(root, "broken"), syscall.EIO)
	if bytes, exact, err := Size(fs, root, 100); bytes != 5 || exact || err != nil {
		t.Errorf("a broken directory inside: %d bytes, exact %v, %v", bytes, exact, err)
	}
	fs.Fail(volumetest.List, root, syscall.EIO)
	if _, exact, err := Size(fs, root, 100); exact || volume.ClassOf(err) != volume.IO {
		t.Errorf("a broken directory: exact %v, %v", exact, err)
	}
	if _, _, err := Size(volume.OS(), filepath.Join(root, "none"), 100); !volume.IsGone(err) {
		t.Errorf("no directory: %v", err)
	}
}
