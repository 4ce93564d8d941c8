package volume

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/bits"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// OS is the real file system.
func OS() FS { return osFS{} }

type osFS struct{}

// listBuffer is how many bytes of directory entries are asked for at once;
// it bounds the memory of a listing however many files there are.
const listBuffer = 16 << 10

func (osFS) List(dir string, visit func(Info) error) error {
	fd, err := openRetry(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC)
	if err != nil {
		return wrap("list", dir, err)
	}
	defer func() { _ = unix.Close(fd) }()
	buf := make([]byte, listBuffer)
	var unseen error
	for {
		n, err := unix.Getdents(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return wrap("list", dir, err)
		}
		if n <= 0 {
			return unseen
		}
		for b := buf[:n]; len(b) > 0; {
			// linux_dirent64: ino 8, off 8, reclen 2, type 1, name; the
			// kernel aligns and terminates it.
			reclen := binary.NativeEndian.Uint16(b[16:])
			name := cstring(b[19:reclen])
			b = b[reclen:]
			if name == "." || name == ".." {
				continue
			}
			info, err := fstatat(fd, name, unix.AT_SYMLINK_NOFOLLOW)
			if err != nil {
				// A dead mount or a broken inode must not hide its
				// neighbours.
				if unseen == nil && classify(err) != Gone {
					unseen = wrap("stat", filepath.Join(dir, name), err)
				}
				continue
			}
			if err := visit(info); err != nil {
				return err
			}
		}
	}
}

func cstring(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

func (osFS) Lstat(path string) (Info, error) {
	i, err := fstatat(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW)
	i.Name = filepath.Base(path)
	return i, wrap("stat", path, err)
}

func (osFS) Stat(path string) (Info, error) {
	i, err := fstatat(unix.AT_FDCWD, path, 0)
	i.Name = filepath.Base(path)
	return i, wrap("stat", path, err)
}

func (osFS) Open(path string) (File, error) {
	fd, info, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	return &osFile{fd: fd, path: path, info: info}, nil
}

// openRegular opens a regular file read-only and refuses everything else.
func openRegular(path string) (fd int, info Info, err error) {
	// Looked at before it is opened: opening a FIFO wakes its writer, opening
	// a device can do anything, and a socket gives ENXIO like a dead device.
	info, err = fstatat(unix.AT_FDCWD, path, 0)
	if err != nil {
		return -1, Info{}, wrap("open", path, err)
	}
	if info.Kind != Regular {
		return -1, Info{}, wrap("open", path, errKind{info.Kind})
	}
	// O_NONBLOCK: should a FIFO have taken the place of the file by now, it
	// must not hold us.
	fd, err = openRetry(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return -1, Info{}, wrap("open", path, err)
	}
	info, err = fstatat(fd, "", unix.AT_EMPTY_PATH)
	if err == nil && info.Kind != Regular {
		err = errKind{info.Kind}
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, Info{}, wrap("open", path, err)
	}
	info.Name = filepath.Base(path)
	return fd, info, nil
}

func (osFS) Lock(path string) (Lock, error) {
	// Read-only is enough for F_GETLK, and closing the descriptor then raises
	// no CLOSE_WRITE event in anybody's inotify watch.
	fd, _, err := openRegular(path)
	if err != nil {
		return Lock{}, err
	}
	defer func() { _ = unix.Close(fd) }()
	l := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	for {
		err = unix.FcntlFlock(uintptr(fd), unix.F_GETLK, &l)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return Lock{}, wrap("lock", path, err)
	}
	if l.Type == unix.F_UNLCK {
		return Lock{}, nil
	}
	pid := int(l.Pid)
	if pid < 0 { // an open-file-description lock has no owner process
		pid = 0
	}
	return Lock{Held: true, PID: pid}, nil
}

func (osFS) Usage(path string) (Usage, error) {
	var s unix.Statfs_t
	for {
		err := unix.Statfs(path, &s)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return Usage{}, wrap("statfs", path, err)
		}
		break
	}
	unit := uint64(s.Frsize)
	if unit == 0 {
		unit = uint64(s.Bsize)
	}
	return Usage{
		Type:        fsType(int64(s.Type)), //nolint:unconvert // int32 on some architectures
		Size:        saturate(s.Blocks, unit),
		Free:        saturate(s.Bavail, unit),
		FreeInodes:  s.Ffree,
		InodesKnown: s.Files > 0,
		ReadOnly:    s.Flags&unix.ST_RDONLY != 0,
	}, nil
}

// saturate multiplies; some network file systems claim more bytes than an
// int64 can count.
func saturate(blocks, unit uint64) int64 {
	hi, lo := bits.Mul64(blocks, unit)
	if hi > 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
}

func (osFS) Watch(path string, add func(string) error) error { return wrap("watch", path, add(path)) }

func (osFS) Resolve(path string) (string, error) {
	abs := path
	if !filepath.IsAbs(path) {
		wd, err := os.Getwd()
		if err != nil {
			return "", wrap("resolve", path, err)
		}
		abs = wd + "/" + path // not cleaned: ".." behind a link is the target's parent
	}
	r, err := filepath.EvalSymlinks(abs)
	if err == nil {
		return r, nil
	}
	// Of a loop, EvalSymlinks gives no errno; and what it gives repeats
	// the path as it stands on disk.
	if _, kernel := fstatat(unix.AT_FDCWD, abs, 0); kernel != nil {
		err = kernel
	} else if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err
	}
	return "", wrap("resolve", path, err)
}

type osFile struct {
	fd   int // -1 once closed
	path string
	info Info

	// For ReadPast.
	adviseOnce, mapOnce sync.Once
	mapped              []byte      // the file, inaccessible; nil where that cannot be had
	cannotCount         atomic.Bool // the kernel does not say how many pages are cached
}

func (f *osFile) Info() Info { return f.info }

func (f *osFile) ReadAt(p []byte, off int64) (int, error) {
	var n int
	for n < len(p) {
		m, err := unix.Pread(f.fd, p[n:], off+int64(n))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return n, wrap("read", f.path, err)
		}
		if m == 0 {
			return n, io.EOF
		}
		n += m
	}
	return n, nil
}

func (f *osFile) Deleted() (bool, error) {
	var s unix.Stat_t
	for {
		err := unix.Fstat(f.fd, &s)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return err == nil && s.Nlink == 0, wrap("stat", f.path, err)
	}
}

func (f *osFile) Close() error {
	// A second close must not close what has got the same number since.
	if f.fd >= 0 {
		// The file was only read: an error of close has nothing to say.
		_ = unix.Close(f.fd)
		f.fd = -1
	}
	if f.mapped != nil {
		_ = unix.Munmap(f.mapped)
		f.mapped = nil
	}
	return nil
}

func openRetry(path string, flags int) (int, error) {
	for {
		fd, err := unix.Open(path, flags, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

func fstatat(dirfd int, name string, flags int) (Info, error) {
	var s unix.Stat_t
	for {
		err := unix.Fstatat(dirfd, name, &s, flags)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return Info{}, err
		}
		break
	}
	return Info{
		Name: name, Kind: kindOf(s.Mode), Mode: fs.FileMode(s.Mode & 0o7777),
		UID: s.Uid, GID: s.Gid, Size: s.Size, Allocated: s.Blocks * 512,
		ModNanos: s.Mtim.Nano(),
		Dev:      uint64(s.Dev), //nolint:unconvert // narrower on some architectures
		Ino:      s.Ino,
	}, nil
}

func kindOf(mode uint32) Kind {
	switch mode & syscall.S_IFMT {
	case syscall.S_IFREG:
		return Regular
	case syscall.S_IFDIR:
		return Directory
	case syscall.S_IFLNK:
		return Symlink
	default:
		return Other
	}
}

// fsType names the file systems that state directories live on; magics are
// from linux/magic.h and statfs(2).
func fsType(magic int64) string {
	switch uint32(magic) {
	case 0xef53:
		return "ext4" // ext2 and ext3 share the magic
	case 0x58465342:
		return "xfs"
	case 0x9123683e:
		return "btrfs"
	case 0x01021994:
		return "tmpfs"
	case 0x794c7630:
		return "overlay"
	case 0x6969:
		return "nfs"
	case 0xff534d42:
		return "cifs"
	case 0xfe534d42:
		return "smb2"
	case 0x65735546:
		return "fuse"
	case 0x01021997:
		return "9p"
	case 0x2fc12fc1:
		return "zfs"
	case 0x00c36400:
		return "ceph"
	case 0xf2f52010:
		return "f2fs"
	case 0x0bd00bd0:
		return "lustre"
	case 0x47504653:
		return "gpfs"
	default:
		return fmt.Sprintf("0x%08x", uint32(magic))
	}
}
