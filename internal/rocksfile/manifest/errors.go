package manifest

import (
	"errors"
	"fmt"

	"streams-sidecar/internal/rocksfile/record"
)

// Kind is what is wrong with a MANIFEST.
type Kind uint8

// The kinds. RocksDB opens a store in spite of PartialTail, in an older state
// and without a word; it refuses all others, except for three forms of Damaged:
// at a recycled type it never ends, and at padding that is not zero or a length
// that is too large in the last block it goes on as at a partial tail.
const (
	PartialTail       Kind = iota + 1 // the file ends inside a record
	Damaged                           // a record is not what was written; wraps a *record.Error
	BadEdit                           // a sound record that does not decode as an edit
	NewerFormat                       // something that must not be skipped and is not known: a newer RocksDB wrote it
	UnknownFamily                     // an edit of a column family that does not exist
	FamilyExists                      // a column family is added twice
	FamilyMissing                     // a column family is dropped that does not exist
	ComparatorChanged                 // a column family gets another comparator
	FileExists                        // a table or blob file is added twice
	FileMissing                       // a table is deleted, or a blob file gets garbage, that is not there
	BlobGarbage                       // a blob file gets more garbage than it has content
	WALExists                         // a write-ahead log is created twice
	AtomicGroup                       // an atomic group is interrupted or counts wrong
	Incomplete                        // no edit says the log number, the next file number or the last sequence
	Shrunk                            // the file is smaller than what was read of it before
)

var kindNames = [...]string{
	PartialTail:       "partial tail",
	Damaged:           "damaged record",
	BadEdit:           "malformed edit",
	NewerFormat:       "newer format",
	UnknownFamily:     "unknown column family",
	FamilyExists:      "column family added twice",
	FamilyMissing:     "dropped column family does not exist",
	ComparatorChanged: "comparator changed",
	FileExists:        "file added twice",
	FileMissing:       "file does not exist",
	BlobGarbage:       "too much garbage in a blob file",
	WALExists:         "write-ahead log created twice",
	AtomicGroup:       "broken atomic group",
	Incomplete:        "incomplete",
	Shrunk:            "shrunk",
}

func (k Kind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Error is a defect of a MANIFEST.
type Error struct {
	Kind            Kind
	Offset          int64 // in the file: of the record's first header, or of the header that is at fault
	Expected, Found string
	Err             error // the *record.Error behind it, or nil
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s at offset %d: expected %s, found %s", e.Kind, e.Offset, e.Expected, e.Found)
}

func (e *Error) Unwrap() error { return e.Err }

// Partial says that nothing is wrong but that the file ends inside a record:
// it is being written at this moment, or its writer was killed, or its end is
// lost. RocksDB opens the store without the record.
func (e *Error) Partial() bool { return e.Kind == PartialTail }

// Newer says that the MANIFEST may be sound and cannot be judged: it holds what
// this reader does not know.
func (e *Error) Newer() bool { return e.Kind == NewerFormat }

// readError turns an error of the record reader into one of this package;
// errors of the file itself stay what they are.
func readError(err error) error {
	re, ok := errors.AsType[*record.Error](err)
	if !ok {
		return fmt.Errorf("read MANIFEST: %w", err)
	}
	kind := Damaged
	switch {
	case re.Tail():
		kind = PartialTail
	case re.Kind == record.UnknownType, re.Kind == record.Compressed, re.Kind == record.TooLong:
		kind = NewerFormat
	}
	return &Error{Kind: kind, Offset: re.Offset, Expected: re.Expected, Found: re.Found, Err: re}
}
