package volume_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"streams-sidecar/internal/volume"
)

// patience bounds how long something is waited for that comes at once on an
// idle machine.
const patience = 20 * time.Second

// oddNames are names that Linux allows and that somebody will have.
var oddNames = []string{
	"plain", "two words", " ", "new\nline", `quo"te's`, `back\slash`, "\xff\xfe", "tab\there", "ünïcode",
	"\u202eevil", "...", "-rf", strings.Repeat("n", 255),
}

func TestListGivesWhatLstatSays(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i, name := range oddNames {
		write(t, filepath.Join(dir, name), strings.Repeat("x", i*100))
	}
	chtime := time.Unix(1_700_000_000, 123_456_789)
	must(t, os.Chtimes(filepath.Join(dir, "plain"), chtime, chtime))
	must(t, os.Chmod(filepath.Join(dir, "plain"), 0o640|os.ModeSetuid))
	must(t, os.Mkdir(filepath.Join(dir, "directory"), 0o750))
	must(t, os.Symlink("nowhere", filepath.Join(dir, "dangling")))
	must(t, os.Symlink("plain", filepath.Join(dir, "link")))
	must(t, os.Symlink("loop", filepath.Join(dir, "loop")))
	must(t, os.Link(filepath.Join(dir, "plain"), filepath.Join(dir, "hard link")))
	must(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	must(t, unix.Mknod(filepath.Join(dir, "socket"), unix.S_IFSOCK|0o600, 0))

	want := map[string]volume.Info{}
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		want[e.Name()] = lstat(t, filepath.Join(dir, e.Name()))
	}
	got := list(t, dir)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("listing differs from lstat (-want +got):\n%s", diff)
	}
	for name, kind := range map[string]volume.Kind{
		"plain": volume.Regular, "directory": volume.Directory, "dangling": volume.Symlink, "link": volume.Symlink,
		"loop": volume.Symlink, "fifo": volume.Other, "socket": volume.Other,
	} {
		if got[name].Kind != kind {
			t.Errorf("%s is a %v, want a %v", name, got[name].Kind, kind)
		}
	}
	if !got["plain"].ModTime().Equal(chtime) {
		t.Errorf("mtime is %v, want %v", got["plain"].ModTime(), chtime)
	}
	if got["plain"].ID() != got["hard link"].ID() || got["plain"].ID() == got["link"].ID() {
		t.Error("a hard link is not recognised as the same file, or a symbolic one is")
	}
}

// lstat is what the standard library says of a file, for comparison.
func lstat(t *testing.T, path string) volume.Info {
	t.Helper()
	fi, err := os.Lstat(path)
	must(t, err)
	st := fi.Sys().(*syscall.Stat_t)
	kind := volume.Other
	switch {
	case fi.Mode().IsRegular():
		kind = volume.Regular
	case fi.IsDir():
		kind = volume.Directory
	case fi.Mode()&os.ModeSymlink != 0:
		kind = volume.Symlink
	}
	return volume.Info{
		Name: fi.Name(), Kind: kind, Mode: os.FileMode(st.Mode & 0o7777), UID: st.Uid, GID: st.Gid, Size: fi.Size(),
		Allocated: st.Blocks * 512, ModNanos: fi.ModTime().UnixNano(), Dev: uint64(st.Dev), //nolint:unconvert // narrower on some architectures
		Ino: st.Ino,
	}
}

func list(t *testing.T, dir string) map[string]volume.Info {
	t.Helper()
	got := map[string]volume.Info{}
	err := volume.OS().List(dir, func(i volume.Info) error {
		if _, ok := got[i.Name]; ok {
			t.Errorf("%q is listed twice", i.Name)
		}
		got[i.Name] = i
		return nil
	})
	must(t, err)
	return got
}

func TestListSeesPreallocatedSpace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "MANIFEST-000005")
	write(t, path, "a few bytes")
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer func() { _ = f.Close() }()
	err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, 4<<20)
	if errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip("this file system does not preallocate")
	}
	must(t, err)
	i := list(t, dir)["MANIFEST-000005"]
	if i.Size != 11 || i.Allocated < 4<<20 {
		t.Errorf("size %d, allocated %d; want 11 and at least 4 MiB", i.Size, i.Allocated)
	}
	must(t, f.Truncate(11)) // as RocksDB does when it closes the file
	if i := list(t, dir)["MANIFEST-000005"]; i.Allocated >= 4<<20 {
		t.Errorf("allocated %d after the truncation", i.Allocated)
	}
}

func TestListOfManyEntries(t *testing.T) {
	t.Parallel()
	const many = 10_500
	dir := t.TempDir()
	write(t, filepath.Join(dir, "000000.sst"), "")
	for i := 1; i < many; i++ { // hard links, as they are made in no time
		must(t, unix.Link(dir+"/000000.sst", fmt.Sprintf("%s/%06d.sst", dir, i)))
	}
	got := list(t, dir)
	if len(got) != many {
		t.Fatalf("%d entries, want %d", len(got), many)
	}
	for i := range many {
		if name := fmt.Sprintf("%06d.sst", i); got[name].Name != name {
			t.Fatalf("%s is missing", name)
		}
	}
}

func TestListLeavesOutWhatVanishesMeanwhile(t *testing.T) {
	t.Parallel()
	const all = 300 // so few that one getdents(2) gives all
	dir := t.TempDir()
	for i := range all {
		write(t, fmt.Sprintf("%s/%06d.sst", dir, i), "")
	}
	seen := 0
	err := volume.OS().List(dir, func(i volume.Info) error {
		if seen++; seen > 1 {
			return nil
		}
		entries, err := os.ReadDir(dir)
		must(t, err)
		for _, e := range entries {
			if e.Name() != i.Name {
				must(t, os.Remove(filepath.Join(dir, e.Name())))
			}
		}
		return nil
	})
	if err != nil {
		t.Errorf("listing ended with %v", err)
	}
	if seen != 1 {
		t.Errorf("%d entries were seen although all but one were deleted at once", seen)
	}
}

func TestListOfADirectoryThatIsRemovedMeanwhile(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "task")
	must(t, os.Mkdir(dir, 0o700))
	write(t, filepath.Join(dir, "a"), "")
	err := volume.OS().List(dir, func(volume.Info) error { return os.RemoveAll(dir) })
	if err != nil && !volume.IsGone(err) {
		t.Errorf("error is %v", err)
	}
}

func TestListEndsWithTheErrorOfVisit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a"), "")
	write(t, filepath.Join(dir, "b"), "")
	enough := errors.New("enough")
	visits := 0
	err := volume.OS().List(dir, func(volume.Info) error { visits++; return enough })
	if !errors.Is(err, enough) || err.Error() != enough.Error() || visits != 1 {
		t.Errorf("%d visits and error %v, want one visit and its error", visits, err)
	}
}

func TestListGoesOnBehindWhatCannotBeSeen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a"), "")
	write(t, filepath.Join(dir, "b"), "")
	must(t, os.Chmod(dir, 0o400)) // names can be read, entries cannot be reached
	defer func() { _ = os.Chmod(dir, 0o700) }()
	unprivileged(t, func() {
		visits := 0
		err := volume.OS().List(dir, func(volume.Info) error { visits++; return nil })
		var e *volume.Error
		if !errors.As(err, &e) || e.Class != volume.Denied || e.Op != "stat" || filepath.Dir(e.Path) != dir || visits != 0 {
			t.Errorf("%d visits, error %v; want none and a refused stat of an entry", visits, err)
		}
	})
}

func TestErrorsOfTheFileSystem(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write(t, at("file"), "x")
	must(t, os.Mkdir(at("directory"), 0o700))
	must(t, os.Symlink("nowhere", at("dangling")))
	must(t, os.Symlink("loop", at("loop")))
	must(t, unix.Mkfifo(at("fifo"), 0o600))
	must(t, unix.Mknod(at("socket"), unix.S_IFSOCK|0o600, 0))
	must(t, os.Mkdir(at("closed"), 0o000))
	write(t, at("secret"), "x")
	must(t, os.Chmod(at("secret"), 0))
	defer func() { _ = os.Chmod(at("closed"), 0o700) }()

	o := volume.OS()
	ops := map[string]func(string) error{
		"list":    func(p string) error { return o.List(p, func(volume.Info) error { return nil }) },
		"lstat":   func(p string) error { _, err := o.Lstat(p); return err },
		"stat":    func(p string) error { _, err := o.Stat(p); return err },
		"lock":    func(p string) error { _, err := o.Lock(p); return err },
		"usage":   func(p string) error { _, err := o.Usage(p); return err },
		"resolve": func(p string) error { _, err := o.Resolve(p); return err },
		"open": func(p string) error {
			f, err := o.Open(p)
			if err == nil {
				err = f.Close()
			}
			return err
		},
	}
	const ok = volume.Class(255)
	for _, c := range []struct {
		ops  string
		path string
		want volume.Class
	}{
		{"list lstat stat open lock usage resolve", at("missing"), volume.Gone},
		{"list stat open lock usage resolve", at("dangling"), volume.Gone},
		{"lstat", at("dangling"), ok},
		{"list stat open lock usage resolve", at("loop"), volume.WrongKind},
		{"lstat", at("loop"), ok},
		{"list lstat stat open lock usage resolve", at("file/below"), volume.WrongKind},
		{"list", at("file"), volume.WrongKind},
		{"list", at("fifo"), volume.WrongKind},
		{"open lock", at("directory"), volume.WrongKind},
		{"open lock", at("fifo"), volume.WrongKind},
		{"open lock", at("socket"), volume.WrongKind},
		{"open lock", "/dev/null", volume.WrongKind},
		{"lstat stat usage resolve", at("fifo"), ok},
		{"list lstat stat usage resolve", at("directory"), ok},
		{"lstat stat open lock usage resolve", at("file"), ok},
		{"list", at("closed"), volume.Denied},
		{"list lstat stat open lock usage resolve", at("closed/x"), volume.Denied},
		{"open lock", at("secret"), volume.Denied},
		{"list lstat stat open lock usage", at("nul\x00byte"), volume.Unclassified},
		{"list lstat stat open lock usage", at(strings.Repeat("n", 256)), volume.Unclassified},
	} {
		for _, op := range strings.Fields(c.ops) {
			unprivileged(t, func() {
				err := ops[op](c.path)
				if c.want == ok {
					if err != nil {
						t.Errorf("%s %q: %v", op, c.path, err)
					}
					return
				}
				var e *volume.Error
				if !errors.As(err, &e) || e.Class != c.want || e.Path != c.path {
					t.Errorf("%s %q gives %v (%v), want class %v", op, c.path, err, volume.ClassOf(err), c.want)
				}
			})
		}
	}
}

func TestOpenLeavesTheWriterOfAFIFOAlone(t *testing.T) {
	t.Parallel()
	fifo := filepath.Join(t.TempDir(), "CURRENT")
	must(t, unix.Mkfifo(fifo, 0o600))
	woken := make(chan error, 1)
	go func() {
		fd, err := unix.Open(fifo, unix.O_WRONLY|unix.O_CLOEXEC, 0) // blocks until somebody reads
		if err == nil {
			err = unix.Close(fd)
		}
		woken <- err
	}()
	for range 20 { // the writer may need a moment to come that far
		if _, err := volume.OS().Open(fifo); volume.ClassOf(err) != volume.WrongKind {
			t.Fatalf("open of a FIFO gives %v", err)
		}
		if _, err := volume.OS().Lock(fifo); volume.ClassOf(err) != volume.WrongKind {
			t.Fatalf("lock of a FIFO gives %v", err)
		}
		select {
		case err := <-woken:
			t.Fatalf("the writer was woken (%v)", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
	fd, err := unix.Open(fifo, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	must(t, err)
	defer func() { _ = unix.Close(fd) }()
	select {
	case err := <-woken:
		must(t, err)
	case <-time.After(patience):
		t.Error("the writer still waits")
	}
}

func TestLstatAndStatOfALink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	write(t, target, "0123456789")
	must(t, os.Symlink("target", link))
	l, err := volume.OS().Lstat(link)
	must(t, err)
	s, err := volume.OS().Stat(link)
	must(t, err)
	want := lstat(t, target)
	want.Name = "link"
	if diff := cmp.Diff(want, s); diff != "" {
		t.Errorf("stat of a link (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(lstat(t, link), l); diff != "" {
		t.Errorf("lstat of a link (-want +got):\n%s", diff)
	}
	f, err := volume.OS().Open(link)
	must(t, err)
	defer func() { _ = f.Close() }()
	if diff := cmp.Diff(want, f.Info()); diff != "" {
		t.Errorf("info of an open link (-want +got):\n%s", diff)
	}
}

func TestReadAt(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "0123456789")
	f, err := volume.OS().Open(path)
	must(t, err)
	defer func() { _ = f.Close() }()
	for _, c := range []struct {
		off  int64
		n    int
		want string
		err  error
	}{
		{0, 10, "0123456789", nil},
		{3, 4, "3456", nil},
		{0, 0, "", nil},
		{8, 5, "89", io.EOF},
		{10, 1, "", io.EOF},
		{1 << 40, 1, "", io.EOF},
	} {
		for _, r := range []io.ReaderAt{f, volume.Past(f)} {
			buf := make([]byte, c.n)
			n, err := r.ReadAt(buf, c.off)
			if string(buf[:n]) != c.want || !errors.Is(err, c.err) {
				t.Errorf("%T: %d bytes at %d are %q, %v; want %q, %v", r, c.n, c.off, buf[:n], err, c.want, c.err)
			}
		}
	}
	for _, r := range []io.ReaderAt{f, volume.Past(f)} {
		for _, off := range []int64{-1, math.MinInt64, math.MaxInt64} {
			n, err := r.ReadAt(make([]byte, 1), off)
			if volume.ClassOf(err) != volume.Unclassified || err == nil || n != 0 {
				t.Errorf("%T: read at %d gives %d bytes, %v", r, off, n, err)
			}
		}
	}
}

func TestASecondCloseHitsNobodyElse(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	write(t, a, "a")
	write(t, b, "b")
	first, err := volume.OSWithoutCount().Open(a)
	must(t, err)
	buf := make([]byte, 1)
	_, err = first.ReadPast(buf, 0)
	must(t, err)
	must(t, first.Close())
	second, err := volume.OSWithoutCount().Open(b) // gets the descriptor's number
	must(t, err)
	defer func() { _ = second.Close() }()
	_, err = second.ReadPast(buf, 0) // gets the mapping's address
	must(t, err)
	if err := first.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	if n, err := first.ReadAt(buf, 0); err == nil || n != 0 {
		t.Errorf("a closed file gives %q, %v", buf[:n], err)
	}
	if n, err := second.ReadAt(buf, 0); n != 1 || err != nil || buf[0] != 'b' {
		t.Errorf("the other file gives %q, %v", buf[:n], err)
	}
	if !mapped(t, b) {
		t.Error("the mapping of the other file is gone")
	}
}

func TestUsageIsWhatStatfsSays(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for range 100 { // others write meanwhile
		var before, after unix.Statfs_t
		must(t, unix.Statfs(dir, &before))
		got, err := volume.OS().Usage(dir)
		must(t, err)
		must(t, unix.Statfs(dir, &after))
		if before.Bavail != after.Bavail || before.Ffree != after.Ffree {
			continue
		}
		want := volume.Usage{
			Type: got.Type, Size: int64(after.Blocks) * after.Frsize, Free: int64(after.Bavail) * after.Frsize,
			FreeInodes: after.Ffree, InodesKnown: after.Files > 0, ReadOnly: after.Flags&unix.ST_RDONLY != 0,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("usage (-want +got):\n%s", diff)
		}
		return
	}
	t.Skip("somebody writes to this file system all the time")
}

func TestUsageOfAFileSystemWithoutInodes(t *testing.T) {
	t.Parallel()
	u, err := volume.OS().Usage("/proc")
	must(t, err)
	if u.InodesKnown || u.Type != "0x00009fa0" {
		t.Errorf("usage of /proc is %+v", u)
	}
}

func TestResolve(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	must(t, os.MkdirAll(filepath.Join(dir, "real/state"), 0o700))
	must(t, os.Symlink("real", filepath.Join(dir, "one")))
	must(t, os.Symlink("one/state", filepath.Join(dir, "two")))
	must(t, os.Symlink("loop", filepath.Join(dir, "new\nloop")))
	must(t, os.Symlink("new\nloop", filepath.Join(dir, "loop")))
	t.Chdir(dir)
	for path, want := range map[string]string{
		filepath.Join(dir, "two"): filepath.Join(dir, "real/state"),
		"two/../..":               dir, // as the kernel has it, not as the words are
		".":                       dir,
		"":                        dir,
		"two/.":                   filepath.Join(dir, "real/state"),
	} {
		if got, err := volume.OS().Resolve(path); err != nil || got != want {
			t.Errorf("%s is %q, %v; want %q", path, got, err, want)
		}
	}
	for _, path := range []string{"new\nloop", "new\nmissing"} {
		_, err := volume.OS().Resolve(path)
		if err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("error of a name with a line break is %q", err)
		}
	}
}

func TestReadFileOfTheRealFileSystem(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	content := bytes.Repeat([]byte("0123456789abcdef"), 200_000)
	must(t, os.WriteFile(path, content, 0o600))
	data, info, err := volume.ReadFile(volume.OS(), path, int64(len(content)))
	must(t, err)
	if !bytes.Equal(data, content) || info.Size != int64(len(content)) || info.Name != "f" {
		t.Errorf("read %d bytes with info %+v", len(data), info)
	}
}

// unprivileged runs f without the right of root to pass over permissions.
func unprivileged(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlock: the thread ends with its lack of rights
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var caps [2]unix.CapUserData
		if err := unix.Capget(&header, &caps[0]); err != nil {
			done <- err
			return
		}
		caps[0].Effective &^= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
		if err := unix.Capset(&header, &caps[0]); err != nil {
			done <- err
			return
		}
		f()
	}()
	must(t, <-done)
}

func write(t *testing.T, path, content string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(content), 0o600))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
