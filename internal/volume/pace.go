package volume

import (
	"cmp"
	"context"
	"io"
	"math"

	"golang.org/x/time/rate"
)

// Pace bounds how many bytes per second its readers read together. It is safe
// for concurrent use.
type Pace struct {
	limit *rate.Limiter // nil: none
}

// NewPace gives a Pace of that many bytes per second; 0 and less mean
// unlimited. After a pause, a tenth of a second's worth may be read at once.
func NewPace(bytesPerSecond int64) *Pace {
	if bytesPerSecond <= 0 {
		return &Pace{}
	}
	burst := min(max(bytesPerSecond/10, 1), math.MaxInt32)
	return &Pace{rate.NewLimiter(rate.Limit(bytesPerSecond), int(burst))}
}

// Reader gives r at this pace, and r itself if there is no limit. Each read
// first waits for as many bytes as it asks for, however many those are, and
// then reads them at once. The wait ends with the error of ctx when that is
// done, or at once if its deadline comes first.
//
// In a look ([Do]) it belongs around the File: no deadline of the volume
// counts while it waits.
func (p *Pace) Reader(ctx context.Context, r io.ReaderAt) io.ReaderAt {
	if p.limit == nil {
		return r
	}
	return &paced{ctx, p.limit, r}
}

type paced struct {
	ctx   context.Context
	limit *rate.Limiter
	r     io.ReaderAt
}

func (p *paced) ReadAt(b []byte, off int64) (int, error) {
	for left := len(b); left > 0; {
		n := min(left, p.limit.Burst())
		if p.limit.WaitN(p.ctx, n) != nil {
			// Of a deadline that is too near, WaitN makes an error of its own.
			return 0, cmp.Or(p.ctx.Err(), context.DeadlineExceeded)
		}
		left -= n
	}
	return p.r.ReadAt(b, off)
}
