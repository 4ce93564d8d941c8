package shutdown

import "time"

// The documents that the gate keeps in the sidecar's own folder below each
// state directory.
const (
	lastShutdownFile = "last-shutdown.json"
	runsFile         = "runs.json"
)

const documentVersion = 1

// shutdowns is the content of last-shutdown.json.
type shutdowns struct {
	Version      int        `json:"version"`
	Applications []Shutdown `json:"applications"`
}

// Hook says whether a preStop call preceded an end.
type Hook string

// The two answers.
const (
	Called    Hook = "called"
	NotCalled Hook = "not-called"
)

// Shutdown is how one run of an application ended, or, with the outcomes
// Timeout and Stalled, how far it had come when a preStop call was answered.
type Shutdown struct {
	Application string  `json:"application"`
	Outcome     Outcome `json:"outcome"`
	Hook        Hook    `json:"hook"`
	// HookOutcome is what the newest call was answered, "" if it was not.
	HookOutcome  Outcome `json:"hook_outcome,omitempty"`
	Trigger      string  `json:"trigger,omitempty"`
	Triggered    bool    `json:"triggered,omitempty"`
	TriggerError string  `json:"trigger_error,omitempty"`

	Began *time.Time `json:"began,omitempty"` // of the newest call
	// Ended is when .lock was seen free; absent while it is held. With
	// NotWatched it is when the sidecar found it free.
	Ended *time.Time `json:"ended,omitempty"`
	// NotWatched says that the sidecar did not run at the moment of the end.
	NotWatched   bool     `json:"not_watched,omitempty"`
	CloseSeconds *float64 `json:"close_seconds,omitempty"` // from the call to the end

	// Run is when the run was seen first, nanoseconds since the epoch; it
	// tells one run from another.
	Run int64 `json:"run,omitempty"`

	Stores          int        `json:"stores"` // that were open
	SSTBytesWritten int64      `json:"sst_bytes_written"`
	Evidence        []Evidence `json:"evidence"`
	Explanation     string     `json:"explanation,omitempty"`
}

// Clean is the verdict; known is false as long as the end has not come.
func (s *Shutdown) Clean() (clean, known bool) {
	if s == nil {
		return false, false
	}
	return s.Outcome == ClosedClean, s.Outcome == ClosedClean || s.Outcome == ClosedUnclean
}

// Missing are the stores that are not proven to be closed cleanly.
func (s *Shutdown) Missing() []Evidence {
	var out []Evidence
	for _, e := range s.Evidence {
		if !e.Clean {
			out = append(out, e)
		}
	}
	return out
}

// Evidence is what the files say of one store after the end of its
// application. Store is "" where it is about the whole application.
type Evidence struct {
	Task   string `json:"task,omitempty"`
	Store  string `json:"store,omitempty"`
	Clean  bool   `json:"clean"`
	Closed bool   `json:"closed"` // RocksDB closed its databases, whoever asked for it
	Reason Reason `json:"reason,omitempty"`
	Text   string `json:"text,omitempty"`
	// SSTBytes on disk, and the highest number of a MANIFEST: numbers only
	// grow, so a store with a lower one was made anew. 0 if unknown.
	SSTBytes int64  `json:"sst_bytes,omitempty"`
	Manifest uint64 `json:"manifest,omitempty"`
}

// Reason why a store is not proven to be closed cleanly; stable.
type Reason string

// The reasons.
const (
	CheckpointMissing      Reason = "checkpoint-missing"
	CheckpointNotReplaced  Reason = "checkpoint-not-replaced"
	CheckpointUnreadable   Reason = "checkpoint-unreadable"
	FlushedAfterCheckpoint Reason = "flushed-after-checkpoint"
	NotClosed              Reason = "not-closed"
	OffsetsNotWritten      Reason = "offsets-not-written"
	StatusOpen             Reason = "status-open"
	OffsetBehindData       Reason = "offset-behind-data"
	ManifestUnparseable    Reason = "manifest-unparseable"
	TaskGone               Reason = "task-gone"
	StoreGone              Reason = "store-gone"
	Unreadable             Reason = "unreadable"
	NotProvableHere        Reason = "not-provable-here"
	LockHeld               Reason = "lock-held"
)

// reasonTexts say what each reason means, in one sentence.
var reasonTexts = map[Reason]string{
	CheckpointMissing:      "the task has no .checkpoint, as after a close without a commit",
	CheckpointNotReplaced:  "the task's .checkpoint was not written by this close: what was processed since it was written is restored, or under exactly-once everything",
	CheckpointUnreadable:   "the task's .checkpoint cannot be read or parsed",
	FlushedAfterCheckpoint: "data was written to tables after the task's .checkpoint: the store is ahead of its offset",
	NotClosed:              "RocksDB did not close the database: what was in its memtables is lost and has to be restored",
	OffsetsNotWritten:      "no changelog offset was written since the store was opened: RocksDB did not close it",
	StatusOpen:             "the store's status is open",
	OffsetBehindData:       "the store has data that is younger than its changelog offset: it was closed without a commit",
	ManifestUnparseable:    "the MANIFEST does not parse to its end",
	TaskGone:               "the task's directory is gone: Kafka Streams removes it when it closes a task under exactly-once after an error",
	StoreGone:              "the store's directory is gone",
	Unreadable:             "the files could not be read",
	NotProvableHere:        "the files do not tell whether this store was closed cleanly",
	LockHeld:               "its LOCK is held",
}
