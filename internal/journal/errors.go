package journal

import (
	"errors"
	"fmt"
	"syscall"

	"streams-sidecar/internal/volume"
)

// Error is every error of this package: what was tried with which document,
// why that did not work, and what a person can do about it, in one line.
//
// [volume.ClassOf] tells the occasions apart: Full (space or quota), Denied,
// Stuck, IO, Gone, WrongKind (a symbolic link or anything else where our folder
// or a document should be), TooLarge, TooMany. A file system that is mounted
// read-only is [syscall.EROFS], a name that is none is [io/fs.ErrInvalid], and
// see [ErrNoStateDir] and [Damaged].
type Error struct {
	Op   string // "read", "write", "put", "sync", "remove"
	Path string // of the document; of the folder, if the name is none
	Err  error
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s %s: %v", e.Op, volume.Text(e.Path), e.Err)
	if hint := e.Hint(); hint != "" {
		s += "; " + hint
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// Hint is what a person can do about it; empty where there is nothing general
// to say.
func (e *Error) Hint() string {
	if errors.Is(e.Err, ErrNoStateDir) {
		return "check its path and that the volume is mounted; the sidecar never makes it"
	}
	if errors.Is(e.Err, syscall.EROFS) {
		return "mount the volume into the sidecar's container without readOnly, and look whether the node has remounted it"
	}
	const replace = "it can be removed, and the next one replaces it"
	if _, ok := errors.AsType[*Damaged](e.Err); ok {
		return replace
	}
	switch c := volume.ClassOf(e.Err); c {
	case volume.TooLarge:
		if e.Op == "read" {
			return replace
		}
		return ""
	case volume.WrongKind:
		return "remove what is there; the sidecar follows no link, and makes its folder and its files itself"
	case volume.NoLocks: // what an unsupported call counts as, and nothing here asks for locks
		return ""
	default:
		return c.Hint()
	}
}

// ErrNoStateDir says that the state directory is missing, or is none.
var ErrNoStateDir = errors.New("there is no state directory")

// Damaged is the cause in the [Error] of a file that does not hold what was
// asked for: it is empty or torn, as after a crash of the node, or was written
// by somebody else.
type Damaged struct {
	Size int // bytes of the file
	Err  error
}

func (d *Damaged) Error() string {
	if d.Size == 0 {
		return "the file is empty"
	}
	return fmt.Sprintf("its %d bytes are no document of the sidecar: %v", d.Size, d.Err)
}

func (d *Damaged) Unwrap() error { return d.Err }

// classed is an error that volume.ClassOf knows.
type classed struct {
	class volume.Class
	text  string
}

func (e *classed) Error() string { return e.text }

func (e *classed) Unwrap() error { return &volume.Error{Class: e.class, Err: errors.New(e.text)} }

func tooLarge(size int64, limit int) error {
	return &classed{volume.TooLarge, fmt.Sprintf("%d bytes are more than the bound of %d", size, limit)}
}

func wrongKind(step string, is, want volume.Kind) error {
	return &classed{volume.WrongKind, fmt.Sprintf("%s: is a %v, not a %v", step, is, want)}
}
