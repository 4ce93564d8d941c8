package volume

import (
	"io"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Past gives f to what takes an io.ReaderAt, so that each ReadAt is a
// [File.ReadPast].
func Past(f File) io.ReaderAt { return past{f} }

type past struct{ f File }

func (p past) ReadAt(b []byte, off int64) (int, error) { return p.f.ReadPast(b, off) }

// smallestPage bounds how many pages a piece can touch.
const smallestPage = 4096

// ReadPast asks beforehand which pages are cached, and afterwards drops the
// others. cachestat(2) says how many are, which is enough where it is all of
// them or none; otherwise mincore(2) says which, on a mapping that nothing can
// touch.
//
// Measured on Linux 6.18 with ext4, what looks simpler does not keep the
// cache: preadv2 with RWF_NOWAIT itself begins to read what is missing, and
// on a fast disk returns it as if it had been cached; RWF_DONTCACHE leaves
// more than half of what it reads. O_DIRECT would ask the disk for what is in
// memory. For 256 KiB mincore costs 9 µs, a fifth of copying them, and cachestat
// 1 to 2 µs.
func (f *osFile) ReadPast(p []byte, off int64) (int, error) {
	f.adviseOnce.Do(f.advise)
	var buf [readPiece/smallestPage + 1]byte
	n := 0
	for {
		piece, at := p[n:min(n+readPiece, len(p))], off+int64(n)
		pages, first := f.cached(buf[:], at, len(piece))
		m, err := f.ReadAt(piece, at)
		n += m
		// Also after an error: the kernel may have read more than it gave.
		f.drop(pages, first)
		if err != nil || n == len(p) {
			return n, err
		}
	}
}

func (f *osFile) advise() {
	if f.fd >= 0 {
		// Only what is asked for is read: of what the kernel reads ahead, it is
		// not known whether the application wanted it.
		_ = unix.Fadvise(f.fd, 0, 0, unix.FADV_RANDOM)
	}
}

func (f *osFile) mapFile() {
	if size := int(f.info.Size); f.fd >= 0 && size > 0 {
		f.mapped, _ = unix.Mmap(f.fd, 0, size, unix.PROT_NONE, unix.MAP_SHARED)
	}
}

// cached says of each page that holds some of the n bytes at off whether it is
// in the page cache, in bit 0 of a byte of buf, and where the first one
// begins. It says nothing where all are, nor of pages that it cannot judge:
// those behind what the file had when it was opened.
func (f *osFile) cached(buf []byte, off int64, n int) (pages []byte, first int64) {
	size := int64(os.Getpagesize())
	first = off - off%size
	end := min(off+int64(n), f.info.Size)
	if n == 0 || off < 0 || first >= end {
		return nil, 0
	}
	pages = buf[:(end-first+size-1)/size]
	if !f.cannotCount.Load() {
		switch count, ok := f.count(first, end); {
		case !ok:
			f.cannotCount.Store(true)
		case count == uint64(len(pages)):
			return nil, 0
		case count == 0:
			clear(pages)
			return pages, first
		}
	}
	f.mapOnce.Do(f.mapFile)
	if int64(len(f.mapped)) < end {
		return nil, 0
	}
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&f.mapped[first])), uintptr(end-first),
		uintptr(unsafe.Pointer(&pages[0])))
	if errno != 0 {
		return nil, 0
	}
	return pages, first
}

// count gives how many pages of a part of the file are cached. It is not ok
// before Linux 6.5, on somebody else's file, and in a sandbox that does not know
// the call.
func (f *osFile) count(first, end int64) (cached uint64, ok bool) {
	r := unix.CachestatRange{Off: uint64(first), Len: uint64(end - first)}
	var s unix.Cachestat_t
	if f.fd < 0 || unix.Cachestat(uint(f.fd), &r, &s, 0) != nil {
		return 0, false
	}
	return s.Cache, true
}

// drop takes the pages out of the cache that were not in it. The kernel keeps
// those that are dirty, being written or mapped.
func (f *osFile) drop(pages []byte, first int64) {
	size := int64(os.Getpagesize())
	for i := 0; i < len(pages); i++ {
		begin := i
		for i < len(pages) && pages[i]&1 == 0 {
			i++
		}
		if i > begin {
			// It is advice: that it is not taken harms nothing.
			_ = unix.Fadvise(f.fd, first+int64(begin)*size, int64(i-begin)*size, unix.FADV_DONTNEED)
		}
	}
}
