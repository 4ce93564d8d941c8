// Package volume is the seam to the file system that holds the state: the
// only way in which the sidecar looks at a state directory.
//
// Every look has a deadline. A volume can hang (a dead NFS server, a stuck
// FUSE daemon, a detached disk) and a system call that hangs cannot be
// cancelled, so [Do] runs a piece of work in a goroutine of its own, watches
// each system call that it makes, and gives up on it when one takes too long.
// The place that hung is remembered as stuck and not asked again until the
// call that hung returns by itself; see [Volume].
//
// The package only reads. It never takes a lock, never creates, and keeps no
// file open between two looks. It knows nothing of Kafka or RocksDB, imports
// no other package of this module, and every other package may import it.
package volume

import (
	"io"
	"io/fs"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Kind says what a directory entry is.
type Kind uint8

// The kinds that matter here; Other is a FIFO, a socket or a device.
const (
	Regular Kind = iota
	Directory
	Symlink
	Other
)

func (k Kind) String() string {
	switch k {
	case Regular:
		return "file"
	case Directory:
		return "directory"
	case Symlink:
		return "symbolic link"
	default:
		return "special file"
	}
}

// Info is what stat(2) says of one file.
type Info struct {
	Name      string      // base name, as bytes on disk; see [Text]
	Kind      Kind        // of the file itself, not of a link's target, unless from FS.Stat
	Mode      fs.FileMode // permission bits only
	UID, GID  uint32
	Size      int64  // st_size, bytes
	Allocated int64  // st_blocks × 512, bytes; larger than Size where the writer preallocated
	ModNanos  int64  // st_mtim, nanoseconds since the epoch
	Dev, Ino  uint64 // together the identity of a file, whatever its name
}

// ModTime is ModNanos as a time.
func (i Info) ModTime() time.Time { return time.Unix(0, i.ModNanos) }

// ID is the identity of the file: two paths with the same ID are one file.
func (i Info) ID() ID { return ID{i.Dev, i.Ino} }

// ID identifies a file or directory independently of its name, so that
// symbolic links, bind mounts and hard links are recognised.
type ID struct{ Dev, Ino uint64 }

// Usage is what statfs(2) says of the file system that holds a path.
type Usage struct {
	Type       string // "ext4", "xfs", "nfs", …; "0x…" where the magic is unknown
	Size       int64  // bytes
	Free       int64  // bytes that an unprivileged process may still write
	FreeInodes uint64 // 0 on file systems that do not count them; see InodesKnown
	// InodesKnown is false on file systems without a fixed number of inodes (btrfs).
	InodesKnown bool
	ReadOnly    bool
}

// Lock says whether some other process holds a POSIX record lock, or anybody
// an open file description lock, on any part of a file.
type Lock struct {
	Held bool
	// PID of the holder, or 0 if it lives in a pid namespace that we cannot
	// see (the usual case between containers of a pod) or holds an open file
	// description lock.
	PID int
}

// FS is what a look at the volume may do. Each method may block for as long
// as the volume does; use it inside [Do].
//
// Every error is an *[Error], except io.EOF from File.ReadAt and File.ReadPast,
// and what visit returns.
type FS interface {
	// List calls visit for every entry of the directory, except "." and
	// "..", with the result of lstat(2). An entry that vanishes between the
	// listing and its lstat is left out: on a live store that is normal. One
	// whose lstat fails otherwise is left out too, and the first such error
	// is returned when all others have been visited. The order is the file
	// system's. An error from visit ends the listing and is returned as it is.
	List(dir string, visit func(Info) error) error
	// Lstat does not follow a symbolic link, Stat does.
	Lstat(path string) (Info, error)
	Stat(path string) (Info, error)
	// Open opens a regular file for reading. It follows symbolic links,
	// never blocks on a FIFO, and refuses everything that is not a regular
	// file with class WrongKind.
	Open(path string) (File, error)
	// Lock asks with F_GETLK who holds a lock on a regular file (WrongKind
	// for anything else); it takes none. What this process itself holds by
	// F_SETLK is not seen, and is even released: POSIX drops the locks of a
	// process when it closes any descriptor of the file. An open file
	// description lock (F_OFD_SETLK) of this process survives, and is seen
	// like a stranger's.
	Lock(path string) (Lock, error)
	// Usage is statfs(2).
	Usage(path string) (Usage, error)
	// Resolve gives the absolute path with every symbolic link followed.
	Resolve(path string) (string, error)
	// Watch calls add with the path, which asks the kernel for events of a
	// directory: that looks the path up and so may hang like any other call.
	Watch(path string, add func(path string) error) error
}

// File is a regular file opened for reading. It must be closed before the
// look ends: a file that RocksDB deletes meanwhile keeps its space until then.
// Closing it twice is harmless.
type File interface {
	io.ReaderAt
	io.Closer
	// Info is from fstat at the time of the opening.
	Info() Info
	// ReadPast is ReadAt for one who reads much that nobody else wants: it
	// leaves the page cache as it was. What was cached is taken from there and
	// stays; what was not is read and dropped again, in whole pages, so reads
	// that begin and end at multiples of the page size read nothing twice.
	//
	// In doubt it drops nothing. The kernel says what is cached to the owner of
	// a file and to who may write to it; for anybody else, for bytes that were
	// added since the opening, and where the file system refuses to be asked,
	// it is ReadAt. A page that somebody else brings in during the very call
	// may be dropped. From the first call on, ReadAt of the same File reads
	// nothing ahead.
	ReadPast(p []byte, off int64) (int, error)
	// Deleted says that the file has lost its last name: closing it gives its
	// space back, unless others have it open too. A file that its application
	// deletes on NFS keeps a name (".nfs…") until it is closed, and counts as
	// there.
	Deleted() (bool, error)
}

// ReadFile reads a whole file of at most limit bytes. A larger file is an
// error of class TooLarge; nothing is read of it. Of a file that grows
// meanwhile it gives as much as there was at the opening, of one that shrinks
// what is left; info is from the opening.
func ReadFile(fsys FS, path string, limit int64) (data []byte, info Info, err error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, Info{}, err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	info = f.Info()
	if info.Size > limit {
		return nil, info, &Error{Op: "read", Path: path, Class: TooLarge,
			Err: errTooLarge{info.Size, limit}}
	}
	data = make([]byte, info.Size)
	n, err := f.ReadAt(data, 0)
	if err == io.EOF { // it shrank since the fstat
		err = nil
	}
	return data[:n], info, err
}

// Text makes a name or path from the volume fit for JSON, labels and
// terminals, without loss: bytes that are not valid UTF-8, characters that
// cannot be printed ([strconv.IsPrint]) and the backslash are written as Go
// escapes (\xff, \n, \u202e, \\). The double quote is left as it is, so the
// way back is strconv.Unquote of the text in double quotes with each double
// quote in it made \" again. Names are bytes on Linux, and everything that
// shows one must survive every name.
func Text(name string) string {
	ok := utf8.ValidString(name)
	if ok {
		for i := 0; i < len(name); i++ {
			if c := name[i]; c < 0x20 || c == 0x7f || c == '\\' {
				ok = false
				break
			}
		}
		if ok && !strings.ContainsFunc(name, unprintable) {
			return name
		}
	}
	q := strconv.Quote(name)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}

func unprintable(r rune) bool { return r >= 0x80 && !strconv.IsPrint(r) }
