package server

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"streams-sidecar/internal/probe"
	"streams-sidecar/internal/shutdown"
	"streams-sidecar/internal/volume"
)

// Stater is what the admin listener needs of the preStop gate.
type Stater interface{ State() shutdown.State }

// shutdownView is the JSON of /api/v1/shutdown, a contract (docs/json.md).
type shutdownView struct {
	Phase         shutdown.Phase `json:"phase"`
	Trigger       string         `json:"trigger"`
	BudgetSeconds float64        `json:"budget_seconds"`
	Progress      *progressView  `json:"progress,omitempty"`
	LastShutdown  []lastView     `json:"last_shutdown"`
	Dead          []deadView     `json:"dead"`
	JournalError  string         `json:"journal_error,omitempty"`
}

type progressView struct {
	Begun            time.Time `json:"began"`
	WaitedSeconds    float64   `json:"waited_seconds"`
	Stores           int       `json:"stores"`
	StoresFlushed    int       `json:"stores_flushed"`
	StoresClosed     int       `json:"stores_closed"`
	SSTBytesWritten  int64     `json:"sst_bytes_written"`
	RemainingSeconds float64   `json:"remaining_seconds,omitempty"`
	Restoring        bool      `json:"restoring,omitempty"`
}

type lastView struct {
	StateDir string `json:"state_dir"`
	shutdown.Shutdown
}

type deadView struct {
	StateDir    string `json:"state_dir"`
	Application string `json:"application"`
}

func newShutdownView(s *shutdown.State, snap *probe.Snapshot) shutdownView {
	dir := func(i int) string {
		if snap == nil || i >= len(snap.StateDirs) {
			return ""
		}
		return volume.Text(snap.StateDirs[i].Layout.Path)
	}
	out := shutdownView{Phase: s.Phase, Trigger: s.Trigger, BudgetSeconds: s.Budget.Seconds(), JournalError: s.JournalError,
		LastShutdown: []lastView{}, Dead: []deadView{}}
	if p := s.Progress; p != nil {
		out.Progress = &progressView{p.Begun, s.Waited.Seconds(), p.Stores, p.Flushed, p.Closed, p.SSTBytesWritten, p.Remaining.Seconds(), p.Restoring}
	}
	for _, l := range s.Last {
		out.LastShutdown = append(out.LastShutdown, lastView{dir(l.Dir), l.Shutdown})
	}
	for _, d := range s.Dead {
		out.Dead = append(out.Dead, deadView{dir(d.Dir), d.Application})
	}
	return out
}

func (a *admin) shutdownJSON(w http.ResponseWriter, _ *http.Request) {
	s := a.gate.State()
	writeJSON(w, http.StatusOK, newShutdownView(&s, a.prober.Snapshot()))
}

// lines tell of the gate on the status page, one sentence each.
func (v *shutdownView) lines() (out []string) {
	switch p := v.Progress; {
	case p != nil:
		line := fmt.Sprintf("A preStop call has waited for %.0f s of at most %.0f s: of %d open stores %d have written a table and %d are closed; %s written.",
			p.WaitedSeconds, v.BudgetSeconds, p.Stores, p.StoresFlushed, p.StoresClosed, bytesOf(p.SSTBytesWritten))
		if p.RemainingSeconds > 0 {
			line += fmt.Sprintf(" At this rate it takes %.0f s more.", p.RemainingSeconds)
		}
		out = append(out, line)
	default:
		out = append(out, fmt.Sprintf("No preStop call waits. One would have %.0f s and use the trigger %s.", v.BudgetSeconds, v.Trigger))
	}
	for _, d := range v.Dead {
		out = append(out, fmt.Sprintf("%s: its client has died and its JVM lives on, /appz fails.", d.Application))
	}
	for i := range v.LastShutdown {
		out = append(out, v.LastShutdown[i].line())
	}
	if v.JournalError != "" {
		out = append(out, "What happened cannot be written down: "+v.JournalError)
	}
	return out
}

func (l *lastView) line() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: last end %s", l.Application, l.Outcome)
	if l.Ended != nil {
		fmt.Fprintf(&b, " at %s", l.Ended.UTC().Format(time.RFC3339))
	}
	if l.Hook == shutdown.Called {
		fmt.Fprintf(&b, ", preStop call answered %s", l.HookOutcome)
	} else {
		b.WriteString(", without a preStop call")
	}
	if l.CloseSeconds != nil {
		fmt.Fprintf(&b, ", %.1f s after it", *l.CloseSeconds)
	}
	fmt.Fprintf(&b, ", %d stores were open", l.Stores)
	if n := len(l.Missing()); n > 0 {
		fmt.Fprintf(&b, ", %d without proof", n)
	}
	b.WriteByte('.')
	if l.Explanation != "" {
		b.WriteString(" " + strings.ToUpper(l.Explanation[:1]) + l.Explanation[1:] + ".")
	}
	return b.String()
}
