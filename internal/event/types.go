package event

import (
	"log/slog"
	"time"
)

// Started: the agent runs.
type Started struct {
	Version   string
	StateDirs []string
}

// Advice: something about the way in which the agent is run that will get in
// its way. Code is stable.
type Advice struct {
	Code    string
	Subject string // what it is about
	Text    string // one sentence
}

// Stopping: the agent ends, and why.
type Stopping struct{ Reason string }

// Listening: a listener is open.
type Listening struct {
	Name    string // "metrics", "admin", "hook"
	Address string // as bound, host:port
}

// Waiting: a state directory does not exist yet.
type Waiting struct{ StateDir string }

// Scanned: a full look at every state directory is done.
type Scanned struct {
	Took         time.Duration
	Applications int
	Stores       int
}

// VolumeStuck: a call to the volume does not return.
type VolumeStuck struct {
	Path  string
	Op    string
	Since time.Time
}

// VolumeAnswered: a call that hung has returned.
type VolumeAnswered struct {
	Path string
	Op   string
	Hung time.Duration
}

// WatchingMode: how changes of the files are noticed from now on.
type WatchingMode struct {
	Mode   string // "inotify" or "poll"
	Reason string
}

// EventsLost: the kernel's event queue ran over; a full look follows.
type EventsLost struct{}

// ApplicationStarted: the .lock of an application is held.
type ApplicationStarted struct {
	Application string
	StateDir    string
	PID         int // 0 if not visible
}

// ApplicationStopped: the .lock of an application is free.
type ApplicationStopped struct {
	Application string
	StateDir    string
}

// StoreAppeared: a store directory is there that was not before.
type StoreAppeared struct{ Application, Task, Store string }

// StoreVanished: a store directory is gone.
type StoreVanished struct{ Application, Task, Store string }

// FindingAppeared: something was found that was not there at the look before.
type FindingAppeared struct {
	File     string
	Code     string
	Severity string
	Text     string
	Found    string
}

// FindingGone: something found earlier is no longer so.
type FindingGone struct{ File, Code string }

// PrestopBegan: a preStop call arrived and waits.
type PrestopBegan struct {
	Trigger    string
	MayTrigger bool // the call may cause the close
	Budget     time.Duration
	Running    []string // application ids
}

// PrestopEnded: a preStop call was answered.
type PrestopEnded struct {
	Outcome     string
	Waited      time.Duration
	Held        []string // application ids whose .lock is still held
	Explanation string   // "" where there is no more to say
}

// PrestopProgress: how far the close has come that a call waits for.
type PrestopProgress struct {
	Stores, Flushed, Closed int
	SSTBytesWritten         int64
	Remaining               time.Duration // 0 if unknown
}

// TriggerTrouble: the application could not be asked to close; it is tried
// again.
type TriggerTrouble struct {
	Trigger  string
	Attempts int
	Text     string
}

// ShutdownJudged: a run of an application has ended, and how.
type ShutdownJudged struct {
	Application string
	Outcome     string // "closed-clean" or "closed-unclean"
	Hook        string // "called" or "not-called"
	Stores      int    // that were open
	Missing     int    // of them, those without the proof
	Explanation string // "" for a clean one
}

// EndMissed: a run of an application has ended, and another one begun, before
// anybody could look at it.
type EndMissed struct{ Application string }

// EngineReady: RocksDB itself can be asked, from the start or again.
type EngineReady struct{ RocksDB string } // version of its library, "" if it does not tell

// DeepVerified: every byte of a database's tables was verified.
type DeepVerified struct {
	Path     string
	Tables   int
	Bytes    int64
	Findings int
}

// JournalTrouble: the sidecar's own folder cannot be read or written.
type JournalTrouble struct{ Text string }

// HookUnreachable: the hook listens where the kubelet cannot call it.
type HookUnreachable struct{ Address string }

// StopDelayed: the agent was told to stop and goes on for those who still hold
// their .lock.
type StopDelayed struct {
	Limit time.Duration
	Held  []string // application ids
}

// ServerTrouble: a listener has something to say that belongs to no answer.
type ServerTrouble struct {
	Listener string
	Kind     string // "tls", "panic", "web-config" or "other"
	Text     string
}

func (ApplicationStarted) turn() {}
func (ApplicationStopped) turn() {}
func (VolumeStuck) turn()        {}
func (VolumeAnswered) turn()     {}
func (WatchingMode) turn()       {}
func (FindingAppeared) turn()    {}
func (FindingGone) turn()        {}
func (PrestopBegan) turn()       {}
func (PrestopEnded) turn()       {}
func (TriggerTrouble) turn()     {}
func (ShutdownJudged) turn()     {}
func (EndMissed) turn()          {}
func (JournalTrouble) turn()     {}

// Level, Message and Attrs make each of them an Event.

func (Started) Level() slog.Level            { return slog.LevelInfo }
func (Advice) Level() slog.Level             { return slog.LevelWarn }
func (Stopping) Level() slog.Level           { return slog.LevelInfo }
func (Listening) Level() slog.Level          { return slog.LevelInfo }
func (Waiting) Level() slog.Level            { return slog.LevelWarn }
func (Scanned) Level() slog.Level            { return slog.LevelDebug }
func (VolumeStuck) Level() slog.Level        { return slog.LevelError }
func (VolumeAnswered) Level() slog.Level     { return slog.LevelInfo }
func (WatchingMode) Level() slog.Level       { return slog.LevelInfo }
func (EventsLost) Level() slog.Level         { return slog.LevelWarn }
func (EngineReady) Level() slog.Level        { return slog.LevelInfo }
func (DeepVerified) Level() slog.Level       { return slog.LevelDebug }
func (ApplicationStarted) Level() slog.Level { return slog.LevelInfo }
func (ApplicationStopped) Level() slog.Level { return slog.LevelInfo }
func (StoreAppeared) Level() slog.Level      { return slog.LevelDebug }
func (StoreVanished) Level() slog.Level      { return slog.LevelDebug }
func (FindingGone) Level() slog.Level        { return slog.LevelInfo }
func (PrestopBegan) Level() slog.Level       { return slog.LevelInfo }
func (PrestopEnded) Level() slog.Level       { return slog.LevelInfo }
func (PrestopProgress) Level() slog.Level    { return slog.LevelInfo }
func (TriggerTrouble) Level() slog.Level     { return slog.LevelWarn }
func (EndMissed) Level() slog.Level          { return slog.LevelWarn }
func (JournalTrouble) Level() slog.Level     { return slog.LevelWarn }
func (HookUnreachable) Level() slog.Level    { return slog.LevelWarn }
func (StopDelayed) Level() slog.Level        { return slog.LevelInfo }
func (ServerTrouble) Level() slog.Level      { return slog.LevelWarn }
func (e ShutdownJudged) Level() slog.Level {
	if e.Missing > 0 {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}
func (f FindingAppeared) Level() slog.Level {
	switch f.Severity {
	case "info":
		return slog.LevelInfo
	case "damage":
		return slog.LevelError
	default:
		return slog.LevelWarn
	}
}

func (Started) Message() string            { return "started" }
func (Advice) Message() string             { return "advice" }
func (Stopping) Message() string           { return "stopping" }
func (Listening) Message() string          { return "listening" }
func (Waiting) Message() string            { return "state directory does not exist yet, waiting for it" }
func (Scanned) Message() string            { return "scanned" }
func (VolumeStuck) Message() string        { return "volume does not answer" }
func (VolumeAnswered) Message() string     { return "volume answers again" }
func (WatchingMode) Message() string       { return "watching" }
func (EventsLost) Message() string         { return "file events were lost, looking at everything again" }
func (EngineReady) Message() string        { return "RocksDB itself can be asked" }
func (DeepVerified) Message() string       { return "every byte was verified" }
func (ApplicationStarted) Message() string { return "application runs" }
func (ApplicationStopped) Message() string { return "application has let go of its state directory" }
func (StoreAppeared) Message() string      { return "store appeared" }
func (StoreVanished) Message() string      { return "store vanished" }
func (FindingAppeared) Message() string    { return "finding" }
func (FindingGone) Message() string        { return "finding is gone" }
func (PrestopBegan) Message() string       { return "preStop call" }
func (PrestopEnded) Message() string       { return "preStop answered" }
func (PrestopProgress) Message() string    { return "closing" }
func (TriggerTrouble) Message() string {
	return "the application could not be asked to close, trying again"
}
func (ShutdownJudged) Message() string { return "application ended" }
func (EndMissed) Message() string {
	return "an application ended and began again before it could be looked at"
}
func (JournalTrouble) Message() string { return "the sidecar's own folder cannot be used" }

func (HookUnreachable) Message() string {
	return "the hook listens on a loopback address: the kubelet calls the pod's address and will not reach it"
}
func (StopDelayed) Message() string {
	return "told to stop, but an application runs: going on until it has closed"
}
func (ServerTrouble) Message() string { return "trouble of a listener" }

func (e Started) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("version", e.Version), slog.Any("state_dirs", e.StateDirs)}
}
func (e Advice) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("code", e.Code), slog.String("subject", e.Subject), slog.String("text", e.Text)}
}
func (e Stopping) Attrs() []slog.Attr { return []slog.Attr{slog.String("reason", e.Reason)} }
func (e Listening) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("listener", e.Name), slog.String("address", e.Address)}
}
func (e Waiting) Attrs() []slog.Attr { return []slog.Attr{slog.String("state_dir", e.StateDir)} }
func (e Scanned) Attrs() []slog.Attr {
	return []slog.Attr{slog.Duration("took", e.Took), slog.Int("applications", e.Applications), slog.Int("stores", e.Stores)}
}
func (e VolumeStuck) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("path", e.Path), slog.String("call", e.Op), slog.Time("since", e.Since)}
}
func (e VolumeAnswered) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("path", e.Path), slog.String("call", e.Op), slog.Duration("hung", e.Hung)}
}
func (e WatchingMode) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("mode", e.Mode), slog.String("reason", e.Reason)}
}
func (EventsLost) Attrs() []slog.Attr { return nil }
func (e EngineReady) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("rocksdb_version", e.RocksDB)}
}
func (e DeepVerified) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("database", e.Path), slog.Int("tables", e.Tables), slog.Int64("bytes", e.Bytes), slog.Int("findings", e.Findings)}
}
func (e ApplicationStarted) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("application", e.Application), slog.String("state_dir", e.StateDir), slog.Int("pid", e.PID)}
}
func (e ApplicationStopped) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("application", e.Application), slog.String("state_dir", e.StateDir)}
}
func (e StoreAppeared) Attrs() []slog.Attr { return storeAttrs(e.Application, e.Task, e.Store) }
func (e StoreVanished) Attrs() []slog.Attr { return storeAttrs(e.Application, e.Task, e.Store) }
func storeAttrs(app, task, store string) []slog.Attr {
	return []slog.Attr{slog.String("store", app+"/"+task+"/"+store)}
}
func (e FindingAppeared) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("file", e.File), slog.String("code", e.Code), slog.String("severity", e.Severity),
		slog.String("found", e.Found), slog.String("meaning", e.Text)}
}
func (e FindingGone) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("file", e.File), slog.String("code", e.Code)}
}
func (e PrestopBegan) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("trigger", e.Trigger), slog.Bool("may_trigger", e.MayTrigger), slog.Duration("budget", e.Budget), slog.Any("running", e.Running)}
}
func (e PrestopEnded) Attrs() []slog.Attr {
	out := []slog.Attr{slog.String("outcome", e.Outcome), slog.Duration("waited", e.Waited), slog.Any("held", e.Held)}
	if e.Explanation != "" {
		out = append(out, slog.String("explanation", e.Explanation))
	}
	return out
}
func (e PrestopProgress) Attrs() []slog.Attr {
	out := []slog.Attr{slog.Int("stores", e.Stores), slog.Int("flushed", e.Flushed), slog.Int("closed", e.Closed), slog.Int64("sst_bytes_written", e.SSTBytesWritten)}
	if e.Remaining > 0 {
		out = append(out, slog.Duration("remaining", e.Remaining))
	}
	return out
}
func (e TriggerTrouble) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("trigger", e.Trigger), slog.Int("attempts", e.Attempts), slog.String("error", e.Text)}
}
func (e ShutdownJudged) Attrs() []slog.Attr {
	out := []slog.Attr{slog.String("application", e.Application), slog.String("outcome", e.Outcome), slog.String("hook", e.Hook),
		slog.Int("stores", e.Stores), slog.Int("missing", e.Missing)}
	if e.Explanation != "" {
		out = append(out, slog.String("explanation", e.Explanation))
	}
	return out
}
func (e EndMissed) Attrs() []slog.Attr      { return []slog.Attr{slog.String("application", e.Application)} }
func (e JournalTrouble) Attrs() []slog.Attr { return []slog.Attr{slog.String("error", e.Text)} }
func (e HookUnreachable) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("code", "prestop-unreachable"), slog.String("address", e.Address)}
}
func (e StopDelayed) Attrs() []slog.Attr {
	return []slog.Attr{slog.Any("running", e.Held), slog.Duration("limit", e.Limit)}
}
func (e ServerTrouble) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("listener", e.Listener), slog.String("kind", e.Kind), slog.String("text", e.Text)}
}
