package shutdown

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"streams-sidecar/internal/event"
)

// Answer is the body of a preStop answer.
type Answer struct {
	Outcome       Outcome `json:"outcome"`
	WaitedSeconds float64 `json:"waited_seconds"`
	Trigger       string  `json:"trigger"`
	Triggered     bool    `json:"triggered"` // the application has taken it
	Attempts      int     `json:"attempts,omitempty"`
	TriggerError  string  `json:"trigger_error,omitempty"`

	Applications    int   `json:"applications"` // that ran when the call came
	Stores          int   `json:"stores"`       // that were open
	StoresClosed    int   `json:"stores_closed"`
	SSTBytesWritten int64 `json:"sst_bytes_written"`
	// Restoring says that a store is smaller than at the end before and was
	// made anew since: it seems to be restored. False is left out, because it
	// cannot be told.
	Restoring bool `json:"restoring,omitempty"`

	Held        []string  `json:"held,omitempty"` // application ids that still hold a lock
	HeldMore    int       `json:"held_more,omitempty"`
	Missing     []Missing `json:"missing,omitempty"` // stores without the proof
	MissingMore int       `json:"missing_more,omitempty"`
	// Explanation in words, where there is more to say.
	Explanation string `json:"explanation,omitempty"`
	// JournalError says why the outcome could not be written down.
	JournalError string `json:"journal_error,omitempty"`

	missing []Missing // all of them, before the answer is cut
}

// Missing is a store without the proof that it was closed cleanly.
type Missing struct {
	Application string `json:"application"`
	Task        string `json:"task,omitempty"`
	Store       string `json:"store,omitempty"`
	Reason      Reason `json:"reason"`
	Text        string `json:"text,omitempty"`
}

// add takes over how applications have ended; the worst of them is the outcome.
func (a *Answer) add(ends []*Shutdown) {
	if len(ends) == 0 {
		a.Outcome = NotRunning
		return
	}
	a.Outcome = ClosedClean
	a.Applications = len(ends)
	for _, s := range ends {
		if s.Outcome != ClosedClean {
			a.Outcome = ClosedUnclean
			a.Explanation = join(a.Explanation, s.Explanation)
		}
		a.Trigger, a.Triggered = clip(s.Trigger, maxNames), a.Triggered || s.Triggered
		a.Stores += s.Stores
		a.SSTBytesWritten += s.SSTBytesWritten
		for _, e := range s.Evidence {
			if e.Closed && e.Store != "" {
				a.StoresClosed++
			}
			if !e.Clean {
				a.missing = append(a.missing, Missing{s.Application, e.Task, e.Store, e.Reason, e.Text})
			}
		}
	}
}

// The parts of an answer together stay below 8 KiB, whatever the names: the
// kubelet stops listening at 10.
const (
	maxNames       = 20
	maxHeld        = 2 << 10
	maxMissing     = 3 << 10
	maxExplanation = 1 << 10
	maxError       = 512
)

// finish completes an answer, cuts it, and tells of it.
func (g *Gate) finish(d *drain, ans *Answer, held []app) *Answer {
	ans.Explanation = clip(ans.Explanation, maxExplanation)
	ans.TriggerError = clip(ans.TriggerError, maxError)
	g.mu.Lock()
	ans.JournalError = clip(g.journalError(), maxError)
	g.mu.Unlock()
	ans.Held, ans.HeldMore = cut(ids(held), maxNames, maxHeld)
	ans.Missing, ans.MissingMore = cut(ans.missing, maxNames, maxMissing)
	waited := time.Since(d.begun)
	ans.WaitedSeconds = waited.Seconds()
	g.cfg.Events.Emit(event.PrestopEnded{Outcome: string(ans.Outcome), Waited: waited, Held: ans.Held, Explanation: ans.Explanation})
	return ans
}

// cut gives the first of some values: at most so many, of at most so many bytes
// as JSON; and how many there are beyond.
func cut[T any](all []T, most, bytes int) (first []T, more int) {
	size := 0
	for i, v := range all {
		size += jsonSize(v) + 1
		if i >= most || size > bytes {
			return all[:i], len(all) - i
		}
	}
	return all, 0
}

// jsonSize is how many bytes a value takes in JSON.
func jsonSize(v any) int {
	b, err := json.Marshal(v)
	if err != nil { // nothing here has one
		return maxMissing
	}
	return len(b)
}

func ids(apps []app) []string {
	out := make([]string, len(apps))
	for i, a := range apps {
		out[i] = a.id
	}
	return out
}

// join puts two sentences together, either of which may be empty.
func join(a, b string) string {
	switch {
	case a == "" || a == b:
		return b
	case b == "":
		return a
	}
	return a + "; " + b
}

func sortMissing(all []Missing) {
	slices.SortFunc(all, func(a, b Missing) int {
		return cmp.Or(strings.Compare(a.Application, b.Application), strings.Compare(a.Task, b.Task), strings.Compare(a.Store, b.Store))
	})
}
