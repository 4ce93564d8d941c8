package engine

import (
	"fmt"
	"time"
)

// Kind says why RocksDB could not be asked.
type Kind string

// The kinds. Those up to Closed are about the engine itself and hold for every
// database; the others are about one.
const (
	// Missing: there is no such program.
	Missing Kind = "engine-missing"
	// Broken: it is there and does not start; the text says what it lacks,
	// such as its library.
	Broken Kind = "engine-broken"
	// Incompatible: it speaks another protocol, has another RocksDB than one
	// that reads every table format, or was built without.
	Incompatible Kind = "engine-incompatible"
	// NoMemory: it may not have what it needs, so that it was not started.
	NoMemory Kind = "engine-no-memory"
	// Stuck: the process was killed and does not end, as on a hung volume.
	// None other is started as long as it is there.
	Stuck Kind = "engine-stuck"
	// Closed: the client was closed.
	Closed Kind = "engine-closed"

	// NotFit: our own reader does not vouch for the database.
	NotFit Kind = "not-fit"
	// Hung: no answer within the deadline. The child was killed.
	Hung Kind = "hung"
	// Died: the child ended while it was asked.
	Died Kind = "died"
	// Garbage: what came is no answer, or too large for one. The child was killed.
	Garbage Kind = "garbage"
	// TooLarge: the answer is beyond what the sidecar takes.
	TooLarge Kind = "too-large"
	// SetAside: the child hung or died on this database before, and nothing has
	// changed in it since.
	SetAside Kind = "set-aside"
	// Moving: the database changed during every one of several attempts.
	Moving Kind = "moving"
)

// Error is why RocksDB could not be asked. What RocksDB itself says against a
// database is no Error but an Answer.
type Error struct {
	Kind Kind
	Path string // of the program, or of the database
	// Detail for a person: what is missing, what the child wrote last.
	Detail string
	// Times that the database has made a child hang or die in a row.
	Times int
	// Until when a database is set aside, if nothing changes in it before.
	Until time.Time
	// Err is the cause, if it is one of Go's.
	Err error
}

// Error implements error.
func (e *Error) Error() string {
	s := e.Path
	switch e.Kind {
	case Missing:
		s += ": no such program, so RocksDB cannot be asked"
	case Broken:
		s += ": the engine does not start"
	case Incompatible:
		s += ": not the engine of this sidecar"
	case NoMemory:
		s += ": too little memory for the engine"
	case Stuck:
		s += ": the engine was killed and does not end"
	case Closed:
		s = "the engine is not used any more"
	case NotFit:
		s += ": RocksDB is not asked"
	case Hung:
		s += ": RocksDB did not answer and was killed"
	case Died:
		s += ": RocksDB's process ended"
	case Garbage:
		s += ": RocksDB's process did not answer properly and was killed"
	case TooLarge:
		s += ": RocksDB's answer is too large"
	case Moving:
		s += ": it changed each time that RocksDB was asked"
	case SetAside:
		s += ": not asked again before " + e.Until.UTC().Format(time.RFC3339)
		if e.Times >= failures {
			s += " or a change"
		}
	}
	if why := e.why(); why != "" {
		s += ": " + why
	}
	return s
}

// what a child did on a database, the same when it is set aside for it.
func (e *Error) what() string {
	if e.Kind == SetAside {
		return e.Detail
	}
	what := string(e.Kind)
	if e.Detail != "" {
		what += ": " + e.Detail
	}
	return what
}

func (e *Error) why() string {
	switch {
	case e.Err == nil:
		return e.Detail
	case e.Detail == "":
		return e.Err.Error()
	}
	return fmt.Sprintf("%s: %v", e.Detail, e.Err)
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// AboutEngine says that no database can be asked, not just this one.
func (e *Error) AboutEngine() bool {
	switch e.Kind {
	case Missing, Broken, Incompatible, NoMemory, Stuck, Closed:
		return true
	}
	return false
}
