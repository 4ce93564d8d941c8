// Package judge judges the pictures of tests as the agent does: with a second
// look behind them.
package judge

import (
	"time"

	"streams-sidecar/internal/store"
	"streams-sidecar/internal/verify"
)

// Picture judges a picture that has been the same for long enough.
func Picture(dirs []*store.StateDir) *verify.Judgement {
	j := verify.Judge(dirs, verify.Question{}, nil, nil, true)
	for after, open := j.Unconfirmed(); open; after, open = j.Unconfirmed() {
		time.Sleep(after)
		j = verify.Judge(dirs, verify.Question{}, nil, j, true)
	}
	return j
}
