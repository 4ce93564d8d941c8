package volumetest_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"streams-sidecar/internal/volume"
	"streams-sidecar/internal/volume/volumetest"
)

// setup gives a directory with the files a and sub/b.
func setup(t *testing.T) (fs *volumetest.FS, dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "a"), "0123456789")
	write(t, filepath.Join(dir, "sub/b"), "b")
	return volumetest.New(t, volume.OS()), dir
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// everyCall makes every call once on dir or its file a, and gives the errors.
func everyCall(fs volume.FS, dir string) map[volumetest.Op]error {
	file := filepath.Join(dir, "a")
	out := map[volumetest.Op]error{}
	out[volumetest.List] = fs.List(dir, func(volume.Info) error { return nil })
	_, err := fs.Lstat(file)
	_, err2 := fs.Stat(file)
	out[volumetest.Stat] = errors.Join(err, err2)
	_, out[volumetest.Lock] = fs.Lock(file)
	_, out[volumetest.Usage] = fs.Usage(dir)
	_, out[volumetest.Resolve] = fs.Resolve(file)
	f, err := fs.Open(file)
	if out[volumetest.Open] = err; err == nil {
		_, err = f.ReadAt(make([]byte, 4), 0)
		_, err2 = f.ReadPast(make([]byte, 4), 0)
		out[volumetest.Read] = errors.Join(err, err2)
		_, err = f.Deleted()
		out[volumetest.Stat] = errors.Join(out[volumetest.Stat], err)
		out[volumetest.Close] = f.Close()
	}
	return out
}

func TestWithoutRulesItIsTheFileSystemBelow(t *testing.T) {
	t.Parallel()
	fs, dir := setup(t)
	for op, err := range everyCall(fs, dir) {
		if err != nil {
			t.Errorf("%s: %v", op, err)
		}
	}
	for op, want := range map[volumetest.Op]int{
		volumetest.List: 1, volumetest.Entry: 2, volumetest.Stat: 3, volumetest.Open: 1, volumetest.Read: 2,
		volumetest.Close: 1, volumetest.Lock: 1, volumetest.Usage: 1, volumetest.Resolve: 1, volumetest.Any: 11,
	} {
		if got := fs.Count(op, "..."); got != want {
			t.Errorf("%d calls of %s counted, want %d", got, op, want)
		}
	}
	if _, err := fs.Stat(filepath.Join(dir, "missing")); !volume.IsGone(err) {
		t.Errorf("a missing file gives %v", err)
	}
	if _, err := fs.Open(dir); volume.ClassOf(err) != volume.WrongKind {
		t.Errorf("open of a directory gives %v", err)
	}
	u, err := fs.Usage(filepath.Join(dir, "missing"))
	if !volume.IsGone(err) || u != (volume.Usage{}) {
		t.Errorf("usage of a missing file is %+v, %v", u, err)
	}
}

func TestPathsOfRules(t *testing.T) {
	t.Parallel()
	fs, dir := setup(t)
	for _, p := range []string{dir, dir + "/sub", dir + "/sub/b", dir + "/subway"} {
		_, _ = fs.Lstat(p)
	}
	for path, want := range map[string]int{
		dir: 1, dir + "/sub": 1, dir + "/sub/...": 2, dir + "/...": 4, "...": 4, dir + "/nothing/...": 0,
	} {
		if got := fs.Count(volumetest.Stat, path); got != want {
			t.Errorf("%d calls match %s, want %d", got, path, want)
		}
	}
}

func TestFail(t *testing.T) {
	t.Parallel()
	for _, op := range []volumetest.Op{
		volumetest.List, volumetest.Stat, volumetest.Open, volumetest.Read, volumetest.Close, volumetest.Lock,
		volumetest.Usage, volumetest.Resolve,
	} {
		fs, dir := setup(t)
		fs.Fail(op, dir+"/...", syscall.ENOLCK)
		for got, err := range everyCall(fs, dir) {
			var e *volume.Error
			switch {
			case got != op && err != nil:
				t.Errorf("with a failing %s, %s gives %v", op, got, err)
			case got == op && (!errors.As(err, &e) || !errors.Is(err, syscall.ENOLCK) || e.Op != string(op)):
				t.Errorf("a failing %s gives %v", op, err)
			case got == op && (e.Class == volume.NoLocks) != (op == volumetest.Lock):
				t.Errorf("a failing %s gives class %v", op, e.Class)
			}
		}
	}
	fs, dir := setup(t)
	r := fs.Fail(volumetest.Any, dir+"/a", syscall.EIO)
	if err := fs.List(dir, func(volume.Info) error { return nil }); err != nil {
		t.Errorf("Any also means Entry: %v", err)
	}
	if _, err := fs.Stat(dir + "/a"); volume.ClassOf(err) != volume.IO {
		t.Errorf("EIO gives %v", err)
	}
	r.Release()
	r.Release()
	if _, err := fs.Stat(dir + "/a"); err != nil {
		t.Errorf("after the release: %v", err)
	}
}

func TestFailOfAnEntryIsAListThatCannotSeeIt(t *testing.T) {
	t.Parallel()
	for errno, class := range map[syscall.Errno]volume.Class{syscall.EIO: volume.IO, syscall.ENOENT: volume.Unclassified} {
		fs, dir := setup(t)
		fs.Fail(volumetest.Entry, dir+"/a", errno)
		var seen []string
		err := fs.List(dir, func(i volume.Info) error { seen = append(seen, i.Name); return nil })
		if diff := cmp.Diff([]string{"sub"}, seen); diff != "" {
			t.Errorf("seen (-want +got):\n%s", diff)
		}
		if volume.ClassOf(err) != class || (err == nil) != (errno == syscall.ENOENT) {
			t.Errorf("an entry that gives %v makes List give %v", errno, err)
		}
	}
}

func TestTimes(t *testing.T) {
	t.Parallel()
	fs, dir := setup(t)
	fs.Fail(volumetest.Stat, dir, syscall.EIO).Times(2)
	for i := range 4 {
		if _, err := fs.Stat(dir); (err != nil) != (i < 2) {
			t.Errorf("call %d gives %v", i, err)
		}
	}
}

func TestReadsThatEndEarly(t *testing.T) {
	t.Parallel()
	fs, dir := setup(t)
	path := filepath.Join(dir, "a")
	f, err := fs.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	check := func(off int64, n int, want string, wantErr error) {
		t.Helper()
		for _, r := range []io.ReaderAt{f, volume.Past(f)} {
			buf := make([]byte, n)
			got, err := r.ReadAt(buf, off)
			if string(buf[:got]) != want || !errors.Is(err, wantErr) {
				t.Errorf("%T: %d bytes at %d are %q, %v; want %q, %v", r, n, off, buf[:got], err, want, wantErr)
			}
		}
	}
	failing := fs.FailAfter(path, 6, syscall.EIO)
	check(0, 6, "012345", nil)
	check(4, 3, "45", syscall.EIO)
	check(8, 2, "", syscall.EIO)
	cut := fs.Cut(path, 3)
	check(0, 10, "012", io.EOF) // the nearer one
	check(0, 3, "012", nil)
	cut.Release()
	check(4, 3, "45", syscall.EIO)
	failing.Release()
	check(4, 3, "456", nil)
	if f.Info().Size != 10 {
		t.Errorf("info of the file is %+v", f.Info())
	}
}

func TestStall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fs, dir := setup(t)
		r := fs.Stall(volumetest.Stat, dir+"/...").Times(3)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if _, err := fs.Stat(dir); err != nil {
					t.Error(err)
				}
			})
		}
		r.WaitBlocked(3)
		if _, err := fs.Stat(dir); err != nil { // the fourth
			t.Error(err)
		}
		if r.Blocked() != 3 {
			t.Errorf("%d calls are blocked, want 3", r.Blocked())
		}
		r.Release()
		r.Release()
		wg.Wait()
		if r.Blocked() != 0 {
			t.Errorf("%d calls are blocked after the release", r.Blocked())
		}
	})
}

func TestTheEndOfATestReleasesWhatIsStalled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // would find a goroutine that stays
		fs, dir := setup(t)
		r := fs.Stall(volumetest.Any, "...")
		go func() { _, _ = fs.Stat(dir) }()
		r.WaitBlocked(1)
	})
}

func TestBeforeAndAfter(t *testing.T) {
	t.Parallel()
	fs, dir := setup(t)
	fs.After(volumetest.List, dir, func() { _ = os.Remove(filepath.Join(dir, "a")) })
	seen := 0
	if err := fs.List(dir, func(volume.Info) error { seen++; return nil }); err != nil || seen != 2 {
		t.Errorf("%d entries, %v", seen, err)
	}
	if _, err := fs.Open(filepath.Join(dir, "a")); !volume.IsGone(err) {
		t.Errorf("a file that was deleted after the listing gives %v", err)
	}
	path := filepath.Join(dir, "sub/b")
	fs.Before(volumetest.Open, path, func() { write(t, path, "one") }).Times(1)
	fs.After(volumetest.Open, path, func() { write(t, path, "six") }).Times(2)
	for i, want := range []string{"six", "six", "ten"} {
		if i == 2 {
			write(t, path, "ten")
		}
		data, info, err := volume.ReadFile(fs, path, 100)
		if err != nil || string(data) != want || info.Size != 3 {
			t.Errorf("reading %d gives %q of %d bytes, %v; want %q", i, data, info.Size, err, want)
		}
	}
	entries := map[string]bool{}
	fs.Before(volumetest.Entry, path, func() { entries["before"] = true })
	fs.After(volumetest.Entry, path, func() { entries["after"] = entries["visit"] })
	err := fs.List(filepath.Dir(path), func(volume.Info) error { entries["visit"] = entries["before"]; return nil })
	if err != nil || !entries["after"] {
		t.Errorf("around the entry: %v, %v", entries, err)
	}
}

func TestFullAndReadOnly(t *testing.T) {
	t.Parallel()
	fs, dir := setup(t)
	real, err := volume.OS().Usage(dir)
	if err != nil {
		t.Fatal(err)
	}
	if real.Free == 0 {
		t.Skip("the file system is full")
	}
	fs.Full(dir)
	fs.ReadOnly(dir + "/sub")
	full, err := fs.Usage(dir)
	if err != nil || full.Free != 0 || full.FreeInodes != 0 || full.Size != real.Size || full.ReadOnly != real.ReadOnly {
		t.Errorf("usage of a full volume is %+v, %v; really it is %+v", full, err, real)
	}
	ro, err := fs.Usage(dir + "/sub")
	if err != nil || ro.Free == 0 || !ro.ReadOnly {
		t.Errorf("usage of a read-only volume is %+v, %v", ro, err)
	}
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	fs, dir := setup(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 20 {
				r := fs.Fail(volumetest.Lock, fmt.Sprint(dir, "/", i), syscall.EIO).Times(1)
				everyCall(fs, dir)
				_ = fs.Count(volumetest.Any, "...")
				r.Release()
			}
		})
	}
	wg.Wait()
	if n := fs.Count(volumetest.Any, "..."); n != 8*20*11 {
		t.Errorf("%d calls counted, want %d", n, 8*20*11)
	}
}
