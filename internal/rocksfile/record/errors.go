package record

import "fmt"

// Kind is what is wrong with a log.
type Kind uint8

// The kinds. What RocksDB makes of each depends on its recovery mode; see
// RocksDB db/log_reader.cc.
const (
	TruncatedHeader   Kind = iota + 1 // the file ends inside a header
	TruncatedBody                     // the file ends inside a payload that would fit into the block
	TruncatedRecord                   // the file ends after a First or Middle
	BadLength                         // a payload would cross the end of its block, or its checksum is right for a smaller length
	Checksum                          // header or payload are not what was written
	UnexpectedType                    // Middle or Last without a First, or another type inside a record
	UnknownType                       // a type that no RocksDB up to 11.8 writes, with a right checksum
	RecyclableInPlain                 // types 5 to 8, 11 or 131 in a log that is not a recycled one: RocksDB from 9.4 on never ends
	DirtyPadding                      // "rest of block unused", and yet it is not zero: RocksDB skips it silently
	ZerosInRecord                     // zeros where a record must go on
	TooLong                           // a record of more than MaxRecord bytes
	Compressed                        // the log is compressed (type 9), which this reader cannot undo
	OldRecord                         // a recycled log goes on with a record of its former life: its end
	BadMeta                           // a malformed record of type 10, 11, 130 or 131
)

var kindNames = [...]string{
	TruncatedHeader:   "truncated header",
	TruncatedBody:     "truncated body",
	TruncatedRecord:   "truncated record",
	BadLength:         "bad length",
	Checksum:          "checksum mismatch",
	UnexpectedType:    "unexpected type",
	UnknownType:       "unknown type",
	RecyclableInPlain: "recyclable type in a plain log",
	DirtyPadding:      "padding is not zero",
	ZerosInRecord:     "zeros inside a record",
	TooLong:           "record too long",
	Compressed:        "compressed log",
	OldRecord:         "record of an older log",
	BadMeta:           "malformed meta record",
}

func (k Kind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Error is a defect of a log.
type Error struct {
	Kind   Kind
	Offset int64 // of the header that is at fault, or of the end of the file where one is missing
	Record int64 // of the first header of the logical record that is lost by it; Offset, if none was open
	// Resume is where RocksDB's mode SkipAnyCorruptedRecords goes on: at a
	// fragment, at the next block, or at the end of the file. It is Offset
	// itself for RecyclableInPlain (where RocksDB goes round in circles) and for
	// a beginning inside an open record.
	Resume int64
	// LastBlock says that the file ends inside the block: RocksDB then takes
	// a BadLength for a TruncatedBody, and silently drops what follows.
	LastBlock       bool
	Expected, Found string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s at offset %d: expected %s, found %s", e.Kind, e.Offset, e.Expected, e.Found)
}

// Tail says whether a writer that is at work, or was killed at it, leaves just
// this behind: the file ends inside a record, or a recycled log goes on with
// its former content. Everything else is damage.
func (e *Error) Tail() bool {
	switch e.Kind {
	case TruncatedHeader, TruncatedBody, TruncatedRecord, OldRecord:
		return true
	}
	return false
}

var typeNames = map[byte]string{
	typeZero: "Zero", typeFull: "Full", typeFirst: "First", typeMiddle: "Middle", typeLast: "Last",
	5: "RecyclableFull", 6: "RecyclableFirst", 7: "RecyclableMiddle", 8: "RecyclableLast",
	typeCompression: "SetCompressionType", typeTimestampSize: "UserDefinedTimestampSize",
	typeRecycledTimestamp: "RecyclableUserDefinedTimestampSize", typePredecessor: "PredecessorWALInfo",
	typeRecycledPredecessor: "RecyclablePredecessorWALInfo",
}

func typeName(kind byte) string {
	if n := typeNames[kind]; n != "" {
		return fmt.Sprintf("type %d (%s)", kind, n)
	}
	return fmt.Sprintf("type %d", kind)
}
