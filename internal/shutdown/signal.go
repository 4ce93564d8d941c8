package shutdown

import (
	"context"
	"errors"
	"sync"
	"time"

	"streams-sidecar/internal/shutdown/trigger"
)

// signalPause is the time before a signal that could not be sent is tried again.
const signalPause = time.Second

// signalling is the sending of SIGTERM to the holders of some locks. One that
// was sent is not sent again: a close that takes long is no reason.
type signalling struct {
	mu     sync.Mutex
	report trigger.Report
}

func (s *signalling) Report() trigger.Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.report
}

func startSignal(ctx context.Context, to []app) *signalling {
	s := &signalling{}
	go s.run(ctx, to)
	return s
}

func (s *signalling) run(ctx context.Context, to []app) {
	sent := map[int]bool{} // one process may hold several locks
	for {
		var failed error
		var rest []app
		for _, x := range to {
			if pid, held, err := trigger.Holder(x.v, x.lockPath()); err == nil && (!held || sent[pid]) {
				continue
			}
			pid, err := trigger.Terminate(x.v, x.lockPath())
			switch {
			case err == nil:
				sent[pid] = true
			case errors.Is(err, trigger.ErrNotHeld):
			default:
				failed, rest = err, append(rest, x)
			}
		}
		to = rest
		s.mu.Lock()
		s.report.Attempts++
		s.report.Taken = failed == nil && len(sent) > 0
		s.report.Closing = failed == nil && len(sent) == 0 // they have let go by themselves
		s.report.Err = ""
		if failed != nil {
			s.report.Err = failed.Error()
		}
		s.mu.Unlock()
		if failed == nil {
			return
		}
		select {
		case <-time.After(signalPause):
		case <-ctx.Done():
			return
		}
	}
}
