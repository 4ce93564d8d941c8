// Package manifest reads CURRENT and MANIFEST: which tables a RocksDB database
// consists of at this moment, in which column family and on which level, and
// how it came there.
//
// It knows the edits that RocksDB has ever written and applies them as RocksDB
// does when it opens a database, just as strictly, with three exceptions: it
// compares no keys (RocksDB also refuses tables of one level that overlap), it
// does not know the number of levels that the options allow, and it refuses at
// once the one defect at which RocksDB never ends. It knows nothing of the
// files that the MANIFEST names, nor of Kafka.
//
// It must never panic, loop, or hold more than a small multiple of the
// MANIFEST; a State, once returned, is never changed.
//
// Source: RocksDB db/version_edit.cc, db/version_edit_handler.cc,
// db/version_builder.cc and db/version_set.cc, read at 5.18.4, 7.9.2, 9.7.3,
// 10.1.3 and 11.8.1.
package manifest

import (
	"errors"
	"fmt"
	"io"
)

// State is what a MANIFEST says from its start to Size. It is immutable and
// safe to share; States of one MANIFEST share what has not changed.
type State struct {
	Families []Family // by ID; "default" is always there, dropped ones are not

	LastSequence uint64 // of the newest write that is in a table, or shortly after it
	NextFile     uint64 // the next file number that the writer would have used
	MinLogToKeep uint64 // write-ahead logs with lower numbers are not needed; 0 says nothing
	PrevLog      uint64 // a second log that was needed in old versions; 0 for none
	MaxFamily    uint32 // the largest column family id ever given away; 0 where it is not said
	DBID         string // as in IDENTITY; empty where it is not said

	// WALs are the write-ahead logs that the MANIFEST tracks, by number; none
	// without track_and_verify_wals_in_manifest.
	WALs []WAL

	// Counts is what happened since this MANIFEST was begun, over all column
	// families, the dropped ones too.
	Counts Counts

	// Size is the offset in bytes up to which the MANIFEST is in the State: the
	// end of its last applied edit. Follow goes on here.
	Size  int64
	Edits int // applied so far, the snapshot at the beginning included
	// PendingGroup says that behind Size an atomic group begins that is not
	// complete. RocksDB ignores such a group at the end of the file.
	PendingGroup bool

	seen       uint8 // seenLog | seenNext | seenSequence
	walsBefore uint64
}

const (
	seenLog = 1 << iota
	seenNext
	seenSequence
	seenAll = seenLog | seenNext | seenSequence
)

// Family is one column family.
type Family struct {
	ID         uint32
	Name       string // bytes as RocksDB has them
	Comparator string // its name; empty where no edit has said it
	// LogNumber is the first write-ahead log that may hold entries which are
	// in no table of this family.
	LogNumber uint64
	Files     []File // live tables, by level, then number
	Blobs     []Blob // blob files that the MANIFEST has added, by number
	Counts    Counts
	// LastFlush is the highest number of a table that a flush has written since
	// this MANIFEST was begun, live or not; 0 if none has.
	LastFlush uint64
	// Flushed are the last tables that flushes have written since this MANIFEST
	// was begun, at most two, live or not, the last one first.
	Flushed []Flushed
	// FlushedSeq is the highest sequence number of all of those tables. Unlike
	// that of a live table, no compaction zeroes it.
	FlushedSeq uint64
}

// Flushed is a table as the flush wrote it.
type Flushed struct {
	Number                  uint64
	SmallestSeq, LargestSeq uint64
	SmallestKey, LargestKey KeyStart
}

// KeyStart is the first bytes of a key; a shorter one is filled up with zeros.
type KeyStart [16]byte

// File is a live table.
type File struct {
	Number uint64
	Size   uint64 // bytes
	// SmallestSeq and LargestSeq are 0 in the oldest form of the edit (tag 7),
	// which does not tell them, and for tables whose sequence numbers a
	// compaction has zeroed.
	SmallestSeq, LargestSeq uint64
	CreationTime            uint64 // Unix seconds; 0 unknown
	OldestBlob              uint64 // number of the oldest blob file that it points to; 0 none
	Level                   int
	PathID                  uint32 // index into db_paths or cf_paths, 0 to 3
	// UniqueID is what the writer took from the table's properties (RocksDB
	// table/unique_id.cc, from 7.3 on): in its first half the session that made
	// the table. Zero where it is not said.
	UniqueID [2]uint64
}

// Blob is a blob file. Its content and garbage are counted in blobs and bytes.
type Blob struct {
	Number                     uint64
	Count, Bytes               uint64
	GarbageCount, GarbageBytes uint64
	// Live says that RocksDB still keeps it. It does not once no table points
	// to it or to an older one, or when it is nothing but garbage.
	Live bool
}

// WAL is a write-ahead log that the MANIFEST tracks.
type WAL struct {
	Number     uint64
	SyncedSize uint64 // bytes that were synced
	Synced     bool   // SyncedSize is said
}

// Counts is what the edits tell of events, with the bytes of the tables (blob
// files not included). The records that describe the state at the beginning of
// a MANIFEST are no events.
//
// The edits do not name the event, so it is told from their content: tables
// added with a log number and none deleted is a flush; without a log number it
// is an ingestion or import; tables deleted is a compaction, except when all of
// them, and only they, come back at another level: a trivial move. What
// RocksDB's own log calls an event and what is counted here are the same, with
// these exceptions: a flush of nothing but obsolete entries makes no table and
// is not counted; a recovery that writes tables from a write-ahead log counts
// as a flush per table; a deletion without any new table (FIFO, or a range of
// files) counts as a compaction, a change of level on demand as a trivial move,
// and a repair of the database as a flush per table.
type Counts struct {
	Flushes                uint64 // one per table: an atomic flush of two column families is two
	FlushedBytes           uint64
	Compactions            uint64
	CompactionReadBytes    uint64 // sizes of the tables that were deleted
	CompactionWrittenBytes uint64 // sizes of the tables that were added; RocksDB's log also counts those without entries, which it throws away
	TrivialMoves           uint64 // one per edit, of one table or several
	IngestedFiles          uint64
	IngestedBytes          uint64
}

// Add adds o to c.
func (c *Counts) Add(o Counts) {
	c.Flushes += o.Flushes
	c.FlushedBytes += o.FlushedBytes
	c.Compactions += o.Compactions
	c.CompactionReadBytes += o.CompactionReadBytes
	c.CompactionWrittenBytes += o.CompactionWrittenBytes
	c.TrivialMoves += o.TrivialMoves
	c.IngestedFiles += o.IngestedFiles
	c.IngestedBytes += o.IngestedBytes
}

// genesis is the state of a MANIFEST of which nothing has been read.
var genesis = &State{Families: []Family{{Name: "default"}}}

// Load reads the first size bytes of a MANIFEST. The State is never nil: with
// an error it is what holds up to the last edit that was whole and could be
// applied. The error is an *[Error], or a wrapped error of src.
func Load(src io.ReaderAt, size int64) (*State, error) { return genesis.Follow(src, size) }

// Follow reads what the MANIFEST has from s.Size to size. It returns a new
// State, or s itself if nothing is new; s stays as it is. The errors are those
// of [Load]; the result of Load and then Follow is that of one Load of it all.
//
// It costs as much as the new edits and the number of tables of those column
// families that they touch.
func (s *State) Follow(src io.ReaderAt, size int64) (*State, error) {
	if size < s.Size {
		return s, &Error{Kind: Shrunk, Offset: size, Expected: fmt.Sprintf("at least %d bytes", s.Size), Found: fmt.Sprintf("%d", size)}
	}
	b := builder{base: s, State: *s}
	tail, err := b.read(src, size)
	if b.torn {
		// A part of an edit or of a group was applied. That is so rare that it
		// is cheaper to read everything before it once more than to be able to
		// take edits back.
		whole, pending := b.Size, b.PendingGroup
		b = builder{base: s, State: *s}
		if _, again := b.read(src, whole); isReadFailure(again) {
			return b.finish(), again
		}
		b.PendingGroup = pending
	}
	if err == nil {
		err = b.complete(tail)
	}
	return b.finish(), err
}

func isReadFailure(err error) bool {
	if err == nil {
		return false
	}
	_, typed := errors.AsType[*Error](err)
	return !typed
}
