package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"streams-sidecar/internal/volume"
)

// Rights of what is made here, less the umask.
const (
	folderMode = 0o750
	fileMode   = 0o640
)

// Steps of a call: what its errors say, and what tests get in the way of.
const (
	openState   = "open the state directory"
	openFolder  = "open " + folderName
	makeFolder  = "make " + folderName
	listFolder  = "list " + folderName
	createTemp  = "create a temporary file"
	writeTemp   = "write"
	syncTemp    = "fsync"
	closeTemp   = "close"
	statOld     = "stat"
	exchange    = "exchange"
	removeOld   = "remove the old document"
	rename      = "rename"
	removeTemp  = "remove a temporary file"
	syncFolder  = "fsync " + folderName
	syncState   = "fsync the state directory"
	openFile    = "open"
	statFile    = "stat"
	readFile    = "read"
	syncFile    = "fsync"
	removeFile  = "remove"
	closeFile   = "close"
	closeFolder = "close " + folderName
	closeState  = "close the state directory"
)

// errGivenUp ends a call that nobody waits for any more.
var errGivenUp = errors.New("the call was given up")

// do runs one system call, unless nobody waits for it any more.
func (c *call) do(step string, sys func() error) error {
	if !c.begin(step) {
		return errGivenUp
	}
	return c.ask(step, sys)
}

// clean runs a system call that cleans up, in any case.
func (c *call) clean(step string, sys func() error) error {
	c.begin(step)
	return c.ask(step, sys)
}

func (c *call) begin(step string) bool {
	c.folder.mu.Lock()
	defer c.folder.mu.Unlock()
	if c.givenUp {
		return false // and what hung first stays what is told
	}
	c.step, c.since = step, time.Now()
	return true
}

func (c *call) ask(step string, sys func() error) error {
	for {
		if err := c.once(step, sys); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func (c *call) once(step string, sys func() error) (err error) {
	if around := c.folder.around; around != nil {
		err = around(step, sys)
	} else {
		err = sys()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	return nil
}

func (c *call) close(step string, fd int) error {
	return c.clean(step, func() error {
		// The descriptor is gone even then, and asking again could close
		// somebody else's.
		if err := unix.Close(fd); !errors.Is(err, unix.EINTR) {
			return err
		}
		return nil
	})
}

// in runs work with the folder and the state directory open.
func (c *call) in(create bool, work func(state, folder int) error) error {
	// The way to the state directory is the user's, links included.
	state, err := c.open(openState, unix.AT_FDCWD, c.folder.dir, unix.O_DIRECTORY)
	if err != nil {
		if class := volume.ClassOf(err); class == volume.Gone || class == volume.WrongKind {
			return fmt.Errorf("%w: %w", ErrNoStateDir, err)
		}
		return err
	}
	defer func() { _ = c.close(closeState, state) }() // only read and synced
	folder, err := c.open(openFolder, state, folderName, unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if create && errors.Is(err, fs.ErrNotExist) {
		err = c.do(makeFolder, func() error { return unix.Mkdirat(state, folderName, folderMode) })
		if err == nil || errors.Is(err, fs.ErrExist) {
			folder, err = c.open(openFolder, state, folderName, unix.O_DIRECTORY|unix.O_NOFOLLOW)
		}
	}
	if err != nil {
		return err
	}
	defer func() { _ = c.close(closeFolder, folder) }()
	return work(state, folder)
}

// open opens for reading; with O_NONBLOCK, should a FIFO be there.
func (c *call) open(step string, dir int, name string, flags int) (fd int, err error) {
	err = c.do(step, func() (err error) {
		fd, err = unix.Openat(dir, name, flags|unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
		return err
	})
	if !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ENXIO) {
		return fd, err
	}
	// The kernel says "not a directory" of a link that was not followed.
	look, want := 0, volume.Regular
	if flags&unix.O_NOFOLLOW != 0 {
		look = unix.AT_SYMLINK_NOFOLLOW
	}
	if flags&unix.O_DIRECTORY != 0 {
		want = volume.Directory
	}
	kind, _, statErr := c.stat(step, dir, name, look)
	if statErr != nil || kind == want {
		return -1, err
	}
	return -1, wrongKind(step, kind, want)
}

func (c *call) stat(step string, dir int, name string, flags int) (kind volume.Kind, size int64, err error) {
	var s unix.Stat_t
	err = c.do(step, func() error { return unix.Fstatat(dir, name, &s, flags) })
	switch s.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		kind = volume.Regular
	case unix.S_IFDIR:
		kind = volume.Directory
	case unix.S_IFLNK:
		kind = volume.Symlink
	default:
		kind = volume.Other
	}
	return kind, s.Size, err
}

// write replaces a document by a temporary file.
func (c *call) write(name string, data []byte, durable bool) error {
	// Another process that starts here may take our temporary file for one
	// that was left behind, somebody may remove the folder meanwhile, and a
	// name may be taken.
	const attempts = 3
	var err error
	for range attempts {
		err = c.in(true, func(state, folder int) error {
			if !c.folder.swept {
				c.folder.swept = true
				c.sweep(folder)
			}
			if err := c.replace(folder, name, data, durable); err != nil || !durable {
				return err
			}
			return c.syncDirs(state, folder)
		})
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return err
}

func (c *call) replace(folder int, name string, data []byte, durable bool) error {
	temp := temporary(name)
	var fd int
	err := c.do(createTemp, func() (err error) {
		fd, err = unix.Openat(folder, temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, fileMode)
		return err
	})
	if err != nil {
		return err
	}
	for rest := data; err == nil && len(rest) > 0; {
		err = c.do(writeTemp, func() error {
			n, err := unix.Write(fd, rest)
			if err == nil && n <= 0 {
				err = io.ErrShortWrite
			}
			rest = rest[max(n, 0):]
			return err
		})
	}
	if err == nil && durable {
		err = c.do(syncTemp, func() error { return unix.Fsync(fd) })
	}
	// On a network file system, what write could not store shows here.
	if closeErr := c.close(closeTemp, fd); err == nil {
		err = closeErr
	}
	exchanged := false
	if err == nil && !durable {
		exchanged, err = c.exchange(folder, temp, name)
	}
	if err == nil && !exchanged {
		err = c.do(rename, func() error { return unix.Renameat(folder, temp, folder, name) })
	}
	switch {
	case err != nil:
		_ = c.clean(removeTemp, func() error { return unix.Unlinkat(folder, temp, 0) })
	case exchanged: // or else the next process does it
		_ = c.clean(removeOld, func() error { return unix.Unlinkat(folder, temp, 0) })
	}
	return err
}

// exchange makes a temporary file the document, and the document the temporary
// file. Where that cannot be done it does nothing, and there is an error only if
// it is not known which is which.
//
// To rename over a file that exists makes ext4 (auto_da_alloc) start to write
// the new one's data, and on a busy disk to wait for that, for half a second:
// the very thing that Put is not to wait for. An exchange does not.
func (c *call) exchange(folder int, temp, name string) (bool, error) {
	kind, _, err := c.stat(statOld, folder, name, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil || kind != volume.Regular { // a directory would be exchanged, too
		return false, nil
	}
	if !c.begin(exchange) {
		return false, errGivenUp
	}
	// Not repeated when interrupted, or it could be undone.
	err = c.once(exchange, func() error { return unix.Renameat2(folder, temp, folder, name, unix.RENAME_EXCHANGE) })
	if errors.Is(err, unix.EINTR) {
		return false, err
	}
	return err == nil, nil
}

// syncDirs makes the names durable: of the document in the folder, and of the
// folder, which another process may have made and not lived to sync.
func (c *call) syncDirs(state, folder int) error {
	if err := c.syncDir(syncFolder, folder); err != nil {
		return err
	}
	return c.syncDir(syncState, state)
}

func (c *call) syncDir(step string, fd int) error {
	err := c.do(step, func() error { return unix.Fsync(fd) })
	// FUSE and network file systems may not have it; nothing more can be done there.
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	return err
}

func (c *call) sync(name string) error {
	return c.document(name, func(state, folder, fd int, _ int64) error {
		if err := c.do(syncFile, func() error { return unix.Fsync(fd) }); err != nil {
			return err
		}
		return c.syncDirs(state, folder)
	})
}

func (c *call) read(name string) (data []byte, err error) {
	err = c.document(name, func(_, _, fd int, size int64) error {
		if size > int64(c.folder.limit) {
			return tooLarge(size, c.folder.limit)
		}
		data = make([]byte, size)
		n := 0
		for n < len(data) {
			m := 0
			err := c.do(readFile, func() (err error) {
				m, err = unix.Read(fd, data[n:])
				return err
			})
			if err != nil {
				return err
			}
			if m <= 0 { // somebody cuts it
				break
			}
			n += m
		}
		data = data[:n]
		return nil
	})
	return data, err
}

// document runs work with a document open for reading.
func (c *call) document(name string, work func(state, folder, fd int, size int64) error) error {
	return c.in(false, func(state, folder int) error {
		fd, err := c.open(openFile, folder, name, unix.O_NOFOLLOW)
		if err != nil {
			return err
		}
		defer func() { _ = c.close(closeFile, fd) }() // only read
		kind, size, err := c.stat(statFile, fd, "", unix.AT_EMPTY_PATH)
		if err != nil {
			return err
		}
		if kind != volume.Regular {
			return wrongKind(openFile, kind, volume.Regular)
		}
		return work(state, folder, fd, size)
	})
}

func (c *call) remove(name string) error {
	return c.in(false, func(_, folder int) error {
		return c.do(removeFile, func() error { return unix.Unlinkat(folder, name, 0) })
	})
}

// sweepBytes bounds the list of a folder in which somebody keeps much else.
const sweepBytes = 256 << 10

// sweep removes the temporary files of processes that were killed. It is done
// once, so that two writers that live cannot hinder each other for ever, and
// the document does not depend on it.
func (c *call) sweep(folder int) {
	buf := make([]byte, 8<<10)
	var names []string
	for seen := 0; seen < sweepBytes; {
		n := 0
		err := c.do(listFolder, func() (err error) {
			n, err = unix.Getdents(folder, buf)
			return err
		})
		if err != nil || n <= 0 {
			break
		}
		seen += n
		_, _, names = unix.ParseDirent(buf[:n], -1, names)
	}
	for _, name := range names {
		if isTemporary(name) {
			_ = c.do(removeTemp, func() error { return unix.Unlinkat(folder, name, 0) })
		}
	}
}

// temporary is a name for a document that is being written, its own each time:
// with one name, a second writer would rename what the first has half written.
func temporary(name string) string { return fmt.Sprintf(".%s.%016x.tmp", name, rand.Uint64()) }

func isTemporary(s string) bool {
	const tail = len(".0123456789abcdef.tmp")
	if len(s) < 2+tail || s[0] != '.' || !strings.HasSuffix(s, ".tmp") {
		return false
	}
	name, unique := s[1:len(s)-tail], s[len(s)-tail:len(s)-len(".tmp")]
	return isName(name) && unique[0] == '.' &&
		!strings.ContainsFunc(unique[1:], func(r rune) bool { return !strings.ContainsRune("0123456789abcdef", r) })
}
