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
