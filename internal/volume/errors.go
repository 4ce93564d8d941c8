package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"
)

// Class sorts errors by what they mean for the judgement of a store.
type Class uint8

// The classes of an [Error].
const (
	Unclassified Class = iota
	Gone               // no such file: deleted or never there
	Denied             // permission
	IO                 // the device failed (EIO and its kin)
	Full               // no space or quota left
	Stuck              // no answer within the deadline, now or since an earlier look
	WrongKind          // a directory, FIFO or link loop where a file is expected, or the reverse
	NoLocks            // the file system refuses lock calls (ENOLCK, unsupported)
	TooMany            // out of descriptors, or of inotify watches or instances
	TooLarge           // larger than the reader's bound
)

func (c Class) String() string {
	switch c {
	case Gone:
		return "gone"
	case Denied:
		return "denied"
	case IO:
		return "io"
	case Full:
		return "full"
	case Stuck:
		return "stuck"
	case WrongKind:
		return "wrong-kind"
	case NoLocks:
		return "no-locks"
	case TooMany:
		return "too-many-open-files"
	case TooLarge:
		return "too-large"
	default:
		return "unclassified"
	}
}

// Hint is what a person can do about an error of this class; empty where
// there is nothing general to say.
func (c Class) Hint() string {
	switch c {
	case Denied:
		return "run the sidecar with the application's runAsUser, or give both the same fsGroup"
	case IO:
		return "the device or its driver failed: look at the node's kernel log"
	case Full:
		return "free or add space on the volume"
	case Stuck:
		return "the volume does not answer: look at its driver, server or device; nothing more is asked of it until it does"
	case NoLocks:
		return "the file system refuses lock calls: mount it with locks (NFS: without nolock)"
	case TooMany:
		return "raise the sidecar's limit of open files, or the node's fs.inotify limits"
	default:
		return ""
	}
}

// Error is every error of this package: what was tried, where, and its class.
type Error struct {
	Op    string // "list", "stat", "open", "read", "close", "lock", "statfs", "resolve", "watch", "look"
	Path  string
	Class Class
	Err   error
}

func (e *Error) Error() string { return fmt.Sprintf("%s %s: %v", e.Op, Text(e.Path), e.Err) }

func (e *Error) Unwrap() error { return e.Err }

// ClassOf gives the class of any error, Unclassified if it is none of ours.
func ClassOf(err error) Class {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	return classify(err)
}

// IsGone says that the error means "not there".
func IsGone(err error) bool { return err != nil && ClassOf(err) == Gone }

func classify(err error) Class {
	errno, ok := errors.AsType[syscall.Errno](err)
	if !ok {
		if errors.Is(err, fs.ErrNotExist) {
			return Gone
		}
		if _, ok := errors.AsType[errKind](err); ok {
			return WrongKind
		}
		return Unclassified
	}
	switch errno {
	case syscall.ENOENT:
		return Gone
	case syscall.EACCES, syscall.EPERM:
		return Denied
	// ESTALE: the kernel has looked the name up anew in vain; on a root it means
	// that the export itself is gone, which must not look like an empty volume.
	case syscall.EIO, syscall.ESTALE, syscall.ENXIO, syscall.ENODEV, syscall.ENOTCONN, syscall.ESHUTDOWN,
		syscall.EREMOTEIO, syscall.EBADMSG, syscall.EUCLEAN, syscall.ETIMEDOUT, syscall.EHOSTDOWN,
		// The server behind a network or FUSE mount is gone.
		syscall.ECONNABORTED, syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EHOSTUNREACH,
		syscall.ENETUNREACH:
		return IO
	case syscall.ENOSPC, syscall.EDQUOT:
		return Full
	case syscall.ENOTDIR, syscall.EISDIR, syscall.ELOOP:
		return WrongKind
	case syscall.ENOLCK, syscall.EOPNOTSUPP, syscall.ENOSYS:
		return NoLocks
	case syscall.EMFILE, syscall.ENFILE:
		return TooMany
	default:
		return Unclassified
	}
}

func wrap(op, path string, err error) error {
	if err == nil {
		return nil
	}
	c := classify(err)
	switch {
	case c == NoLocks && op != "lock":
		c = Unclassified
	case c == Full && op == "watch": // inotify's own limit, not the disk's
		c = TooMany
	}
	return &Error{Op: op, Path: path, Class: c, Err: err}
}

type errTooLarge struct{ size, limit int64 }

func (e errTooLarge) Error() string {
	return fmt.Sprintf("%d bytes are more than the bound of %d", e.size, e.limit)
}

type errStuck struct{ since time.Time }

func (e errStuck) Error() string {
	return "no answer from the volume since " + e.since.UTC().Format(time.RFC3339)
}

type errKind struct{ kind Kind }

func (e errKind) Error() string { return "is a " + e.kind.String() + ", not a file" }

var (
	// errAbandoned ends a look whose caller has already given up on it.
	errAbandoned = errors.New("the look was given up")
	// The others are mistakes of the code that looks.
	errFinished   = errors.New("called after the look had ended")
	errConcurrent = errors.New("called while another call of the same look was under way")
	errExited     = errors.New("the look ended its goroutine")
)
