package volume_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"streams-sidecar/internal/volume"
	"streams-sidecar/internal/volume/volumetest"
	"streams-sidecar/internal/volume/volumetest/hungfs"
)

// onDisk gives a directory where a file can be cached and not cached, which
// the temporary one often cannot: it may be in memory.
func onDisk(t testing.TB) string {
	t.Helper()
	cache, _ := os.UserCacheDir()
	for _, parent := range []string{os.TempDir(), cache, "."} {
		dir, err := os.MkdirTemp(parent, "_streams-sidecar-test-")
		if err != nil {
			continue
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		probe := filepath.Join(dir, "probe")
		page := bytes.Repeat([]byte("x"), os.Getpagesize())
		fd, err := unix.Open(probe, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
		if err != nil {
			continue
		}
		_, err = unix.Pwrite(fd, page, 0)
		err = errors.Join(err, unix.Fsync(fd), unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED))
		dropped := cached(t, probe)
		_, err2 := unix.Pread(fd, page, 0)
		err = errors.Join(err, err2, unix.Close(fd))
		if err == nil && dropped == "." && cached(t, probe) == "#" {
			return dir
		}
	}
	t.Skip("no directory on a disk: its pages cannot be dropped, or cannot be seen")
	return ""
}

// cached is the page cache's part in a file: a # for each page that is in it,
// a dot for each that is not.
func cached(t testing.TB, path string) string {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	must(t, err)
	defer func() { _ = unix.Close(fd) }()
	var s unix.Stat_t
	must(t, unix.Fstat(fd, &s))
	size := os.Getpagesize()
	pages := make([]byte, (int(s.Size)+size-1)/size)
	m, err := unix.Mmap(fd, 0, int(s.Size), unix.PROT_READ, unix.MAP_SHARED)
	must(t, err)
	defer func() { _ = unix.Munmap(m) }()
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), uintptr(unsafe.Pointer(&pages[0])))
	if errno != 0 {
		t.Fatal(errno)
	}
	for i, p := range pages {
		pages[i] = ".#"[p&1]
	}
	return string(pages)
}

// cache makes exactly those pages of a file cached that are a # in pages.
func cache(t testing.TB, path, pages string) {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	must(t, err)
	defer func() { _ = unix.Close(fd) }()
	must(t, unix.Fsync(fd))
	must(t, unix.Fadvise(fd, 0, 0, unix.FADV_RANDOM))
	for end := time.Now().Add(patience); ; {
		must(t, unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED))
		buf := make([]byte, os.Getpagesize())
		for i, p := range pages {
			if p == '#' {
				_, err := unix.Pread(fd, buf, int64(i*len(buf)))
				must(t, err)
			}
		}
		got := cached(t, path)
		if got == pages {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("cached is\n%s, want\n%s", got, pages)
		}
	}
}

// keepsCache reads a file whose pages are cached as a # says in before, and
// then expects them so. The kernel may take away a page, or hold on to one, at
// any time for reasons of its own, so it takes several times to be a failure.
func keepsCache(t *testing.T, what, path, before string, read func()) {
	t.Helper()
	var after string
	for range 5 {
		cache(t, path, before)
		read()
		if after = cached(t, path); after == before {
			return
		}
	}
	t.Errorf("%s: each time, the cache is changed; now\n%s, before\n%s", what, after, before)
}

func random(n int) []byte {
	out := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(out)
	return out
}

func open(t testing.TB, path string) volume.File {
	t.Helper()
	f, err := volume.OS().Open(path)
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// readIn reads a whole file in reads of step bytes.
func readIn(r io.ReaderAt, step int) ([]byte, error) {
	var out []byte
	buf := make([]byte, step)
	for {
		n, err := r.ReadAt(buf, int64(len(out)))
		out = append(out, buf[:n]...)
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return out, err
		}
	}
}

func TestReadPastLeavesTheCacheAsItWas(t *testing.T) {
	t.Parallel()
	page := os.Getpagesize()
	const pages = 601
	content := random((pages-1)*page + 1234)
	path := filepath.Join(onDisk(t), "000012.sst")
	must(t, os.WriteFile(path, content, 0o600))
	volumes := map[string]*volume.Volume{
		"counted":     volume.New(volumetest.New(t, volume.OS()), volume.Deadline(time.Minute)),
		"not counted": volume.New(volumetest.New(t, volume.OSWithoutCount()), volume.Deadline(time.Minute)),
	}
	half := pages / 2
	some := []byte(strings.Repeat(".", pages))
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		some[r.IntN(pages)] = '#'
	}
	for _, before := range []struct{ name, pages string }{
		{"cold", strings.Repeat(".", pages)},
		{"hot", strings.Repeat("#", pages)},
		{"its first half is hot", strings.Repeat("#", half) + strings.Repeat(".", pages-half)},
		{"its second half is hot", strings.Repeat(".", half) + strings.Repeat("#", pages-half)},
		{"every second page is hot", strings.Repeat("#.", half) + "#"},
		{"the others are hot", strings.Repeat(".#", half) + "."},
		{"some pages are hot", string(some)},
	} {
		for _, step := range []int{page, 3*page + 77, 256 << 10, len(content) + 1} {
			for with, v := range volumes {
				what := fmt.Sprintf("%s, in reads of %d, %s", before.name, step, with)
				keepsCache(t, what, path, before.pages, func() {
					got, err := volume.Do(v, path, func(fs volume.FS) ([]byte, error) {
						f, err := fs.Open(path)
						if err != nil {
							return nil, err
						}
						defer func() { _ = f.Close() }()
						return readIn(volume.Past(f), step)
					})
					if err != nil || !bytes.Equal(got, content) {
						t.Errorf("%s: %d bytes, %v; not what was written", what, len(got), err)
					}
				})
			}
		}
	}
}

// TestReadPastMapsOnlyWhatIsPartlyCached: what is cached as a whole, or not at
// all, is told by a count.
func TestReadPastMapsOnlyWhatIsPartlyCached(t *testing.T) {
	t.Parallel()
	page := os.Getpagesize()
	path := filepath.Join(onDisk(t), "000012.sst")
	must(t, os.WriteFile(path, random(64*page), 0o600))
	if !volume.CountsCached(open(t, path)) {
		t.Skip("cachestat(2) is not known here, or not allowed")
	}
	for _, c := range []struct {
		pages string
		want  bool
	}{
		{strings.Repeat("#", 64), false},
		{strings.Repeat(".", 64), false},
		{strings.Repeat("#", 16) + strings.Repeat(".", 16) + strings.Repeat("#", 32), false}, // each read by itself
		{strings.Repeat("#", 40) + strings.Repeat(".", 24), true},
	} {
		got := !c.want
		for range 5 { // the kernel may take a page away meanwhile
			cache(t, path, c.pages)
			f := open(t, path)
			_, err := readIn(volume.Past(f), 16*page)
			must(t, err)
			got = mapped(t, path)
			must(t, f.Close())
			if got == c.want {
				break
			}
		}
		if got != c.want {
			t.Errorf("%s: mapped %v, want %v", c.pages, got, c.want)
		}
	}
}

func TestReadPastByManyAtOnce(t *testing.T) {
	t.Parallel()
	page := os.Getpagesize()
	const parts, each = 4, 400 // pages; each part is more than is read at once
	content := random(parts * each * page)
	path := filepath.Join(onDisk(t), "000012.sst")
	must(t, os.WriteFile(path, content, 0o600))
	before := strings.Repeat(strings.Repeat("#.", each/4)+strings.Repeat(".", each/2), parts)
	keepsCache(t, "many at once", path, before, func() {
		f := open(t, path)
		var wg sync.WaitGroup
		for i := range parts {
			wg.Go(func() {
				buf, off := make([]byte, each*page), i*each*page
				if n, err := f.ReadPast(buf, int64(off)); err != nil || !bytes.Equal(buf, content[off:off+len(buf)]) {
					t.Errorf("part %d: %d bytes, %v", i, n, err)
				}
			})
		}
		wg.Wait()
	})
}

func TestReadPastOfWhatIsNotYetOnDisk(t *testing.T) {
	t.Parallel()
	page := os.Getpagesize()
	content := random(64 * page)
	path := filepath.Join(onDisk(t), "000012.log")
	must(t, os.WriteFile(path, content, 0o600))
	cache(t, path, strings.Repeat(".", 64))
	w, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer func() { _ = w.Close() }()
	for i := 0; i < 64; i += 3 {
		copy(content[i*page:], "changed")
		_, err := w.WriteAt(content[i*page:(i+1)*page], int64(i*page))
		must(t, err)
	}
	for _, what := range []string{"not yet on disk", "on disk"} {
		got, err := readIn(volume.Past(open(t, path)), 16*page)
		if err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s: %d bytes, %v; not what was written", what, len(got), err)
		}
		cache(t, path, strings.Repeat(".", 64)) // what was not written is lost
	}
}

func TestReadPastOfBytesThatWereAddedLater(t *testing.T) {
	t.Parallel()
	page := os.Getpagesize()
	content := random(20 * page)
	path := filepath.Join(onDisk(t), "000012.log")
	must(t, os.WriteFile(path, content[:9*page+100], 0o600))
	f := open(t, path)
	must(t, os.WriteFile(path, content, 0o600))
	// The kernel is not asked about those: hot ones stay hot.
	keepsCache(t, "grown", path, strings.Repeat(".", 10)+strings.Repeat("#", 10), func() {
		if got, err := readIn(volume.Past(f), 3*page); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%d bytes, %v; not what was written", len(got), err)
		}
	})
	must(t, os.Truncate(path, int64(5*page)))
	if got, err := readIn(volume.Past(f), 3*page); err != nil || !bytes.Equal(got, content[:5*page]) {
		t.Errorf("cut: %d bytes, %v", len(got), err)
	}
}

func TestReadPastOfSomebodyElsesFile(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can become somebody else")
	}
	page := os.Getpagesize()
	content := random(64 * page)
	path := filepath.Join(onDisk(t), "000012.sst")
	must(t, os.WriteFile(path, content, 0o644))
	f := open(t, path)
	keepsCache(t, "hot", path, strings.Repeat("#", 64), func() {
		done := make(chan error, 1)
		go func() {
			runtime.LockOSThread() // and never unlock: the thread ends as nobody
			err := unix.Setfsuid(65534)
			var got []byte
			if err == nil {
				got, err = readIn(volume.Past(f), 16*page)
			}
			if err == nil && !bytes.Equal(got, content) {
				err = fmt.Errorf("%d bytes, not what was written", len(got))
			}
			done <- err
		}()
		must(t, <-done)
	})
}

func TestReadPastWhereTheCacheCannotBeAsked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	content := random(3<<20 + 5)
	must(t, os.WriteFile(filepath.Join(dir, "000012.sst"), content, 0o600))
	f := open(t, filepath.Join(hungfs.Mount(t, dir).Path, "000012.sst")) // cannot be mapped
	if got, err := readIn(volume.Past(f), 256<<10); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes, %v; not what was written", len(got), err)
	}
	must(t, f.Close())
}

// mapped says whether this process maps a file.
func mapped(t *testing.T, path string) bool {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	must(t, err)
	return bytes.Contains(maps, []byte(path+"\n"))
}

func TestCloseLeavesNoMapping(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "000012.sst")
	write(t, path, "0123456789")
	f, err := volume.OSWithoutCount().Open(path) // nothing else makes a mapping certain
	must(t, err)
	_, err = f.ReadPast(make([]byte, 4), 0)
	must(t, err)
	if !mapped(t, path) {
		t.Fatal("the file was not mapped, or a mapping cannot be seen")
	}
	must(t, f.Close())
	must(t, f.Close())
	if mapped(t, path) {
		t.Error("the file is still mapped")
	}
	if n, err := f.ReadPast(make([]byte, 4), 0); !errors.Is(err, unix.EBADF) || n != 0 {
		t.Errorf("a closed file gives %d bytes, %v", n, err)
	}
}

func TestDeleted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	write(t, a, "0123456789")
	must(t, os.Link(a, b))
	v := volume.New(volume.OS())
	_, err := volume.Do(v, dir, func(fs volume.FS) (int, error) {
		f, err := fs.Open(a)
		if err != nil {
			return 0, err
		}
		for _, step := range []struct {
			do   func() error
			want bool
		}{
			{func() error { return nil }, false},
			{func() error { return os.Remove(a) }, false}, // it has another name
			{func() error { return os.WriteFile(a, nil, 0o600) }, false},
			{func() error { return os.Remove(b) }, true},
			{func() error { return os.WriteFile(b, nil, 0o600) }, true}, // another file
		} {
			if err := step.do(); err != nil {
				return 0, err
			}
			if got, err := f.Deleted(); err != nil || got != step.want {
				t.Errorf("deleted: %v, %v; want %v", got, err, step.want)
			}
		}
		buf := make([]byte, 10)
		if n, err := f.ReadPast(buf, 0); err != nil || string(buf[:n]) != "0123456789" {
			t.Errorf("the deleted file gives %q, %v", buf[:n], err)
		}
		if err := f.Close(); err != nil {
			return 0, err
		}
		_, err = f.Deleted()
		var e *volume.Error
		if !errors.As(err, &e) || e.Op != "stat" || e.Path != a || !errors.Is(err, unix.EBADF) {
			t.Errorf("once closed: %v", err)
		}
		return 0, nil
	})
	must(t, err)
}

// What a read costs when everything is cached: ReadPast asks for that first.
func BenchmarkReadOfWhatIsCached(b *testing.B) {
	const size, step = 64 << 20, 256 << 10
	path := filepath.Join(onDisk(b), "000012.sst")
	must(b, os.WriteFile(path, random(size), 0o600))
	for _, c := range []struct {
		name string
		of   func(volume.File) io.ReaderAt
	}{
		{"at", func(f volume.File) io.ReaderAt { return f }},
		{"past", volume.Past},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := c.of(open(b, path))
			buf := make([]byte, step)
			b.SetBytes(step)
			b.ReportAllocs()
			for off := int64(0); b.Loop(); off = (off + step) % size {
				if _, err := r.ReadAt(buf, off); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
