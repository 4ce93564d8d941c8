package volume

import (
	"errors"
	"time"
)

const MaxStuck = maxStuck

// StuckSince is when the call began that a Stuck error tells of.
func StuckSince(err error) (time.Time, bool) {
	e, ok := errors.AsType[errStuck](err)
	return e.since, ok
}

// OSWithoutCount is [OS] on a kernel that does not say how many pages of a file
// are cached.
func OSWithoutCount() FS { return withoutCount{OS()} }

type withoutCount struct{ FS }

func (w withoutCount) Open(path string) (File, error) {
	f, err := w.FS.Open(path)
	if err == nil {
		f.(*osFile).cannotCount.Store(true)
	}
	return f, err
}

// CountsCached says whether the kernel says how many pages of a file are cached.
func CountsCached(f File) bool {
	_, ok := f.(*osFile).count(0, f.Info().Size)
	return ok
}
