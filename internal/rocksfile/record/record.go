// Package record reads the physical format that RocksDB's write-ahead log and
// its MANIFEST share: blocks of 32 KiB that hold fragments, each with a
// checksum, which together make logical records.
//
// It knows the layout and nothing of what the records say. It is strict: it
// stops at the first defect, names its exact place and kind, and says where a
// reader that wants to skip it would go on, so that every recovery mode of
// RocksDB can be built on it. It must never loop, never trust a length before
// the bytes are there, and never hold more than one block and one record.
//
// Packages of internal/rocksfile that parse logs may import it.
//
// Source of the format: RocksDB db/log_format.h, db/log_reader.cc and
// db/log_writer.cc, read from 5.18.4 to 11.8.1.
package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

const (
	// BlockSize is the size of a block in bytes; blocks start at offset 0 of
	// the file. A fragment never crosses the end of one.
	BlockSize = 32 << 10

	// MaxRecord bounds a logical record, in bytes. RocksDB has no bound of its
	// own; a MANIFEST record of this size would list some 250,000 files.
	MaxRecord = 64 << 20

	headerSize         = 7  // checksum 4, length 2, type 1
	recycledHeaderSize = 11 // and the low half of the log's number, 4
)

// Types of fragments (RocksDB db/log_format.h).
const (
	typeZero                = 0 // with length 0: the rest of the block is unused
	typeFull                = 1
	typeFirst               = 2
	typeMiddle              = 3
	typeLast                = 4
	typeRecycledFull        = 5 // 5 to 8: the same four in a recycled file
	typeRecycledLast        = 8
	typeCompression         = 9
	typeTimestampSize       = 10
	typeRecycledTimestamp   = 11
	typePredecessor         = 130
	typeRecycledPredecessor = 131
	ignorable               = 0x80 // unknown types with this bit may be skipped
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Reader reads the logical records of a log, one after the other. It is not
// safe for concurrent use.
type Reader struct {
	src  io.ReaderAt
	size int64 // what is trusted of the file

	buf   []byte // reused from block to block
	block []byte // what is there of the current block, from blockAt on
	at    int    // of the next header in block
	short bool   // the file ends before the block does

	blockAt int64 // file offset of block[0]

	joined     []byte // fragments of the current record
	maxRecord  int    // MaxRecord, except in tests
	start, end int64

	recyclable bool   // set by AllowRecycled
	logNumber  uint32 // with it
	recycled   bool   // a recycled header was met
	seen       bool   // a logical record was returned

	err error
}

// NewReader gives a reader of the first size bytes of src. start is 0 or an
// earlier [Reader.Offset], and need not be the start of a block. A start
// behind size is the end of the file.
//
// The log is taken for a plain one, as every MANIFEST is; see
// [Reader.AllowRecycled].
func NewReader(src io.ReaderAt, start, size int64) *Reader {
	return &Reader{src: src, size: size, blockAt: start, start: start, end: start, seen: start > 0, maxRecord: MaxRecord}
}

// AllowRecycled makes the reader accept what a write-ahead log of a store with
// recycle_log_file_num may hold. log is the number in the file's name: a record
// that carries another one is left from the file's former life. resumed is what
// Recycled of the reader said that read up to start, false if start is 0.
//
// It must be called before the first Next.
func (r *Reader) AllowRecycled(log uint64, resumed bool) {
	r.recyclable, r.logNumber, r.recycled = true, uint32(log), resumed
}

// Recycled says whether the log was found to be a recycled one.
func (r *Reader) Recycled() bool { return r.recycled }

// Start is the file offset of the first header of the record that Next
// returned last.
func (r *Reader) Start() int64 { return r.start }

// Offset is the file offset just after the last record that Next returned: a
// reader of the same file that starts there returns what follows. Unused space
// behind a record is not counted, so that nothing is missed that is written
// into it later.
func (r *Reader) Offset() int64 { return r.end }

// Next returns the next logical record. It is valid until the next call and
// must not be changed; it may be empty, as RocksDB writes such records.
//
// The error is io.EOF at a clean end, an *[Error] at a defect, or a wrapped
// error of src. It is final: every later call returns it again.
func (r *Reader) Next() ([]byte, error) {
	if r.err != nil {
		return nil, r.err
	}
	record, err := r.next()
	if err != nil {
		r.err = err
		return nil, err
	}
	r.seen = true
	return record, nil
}

func (r *Reader) next() ([]byte, error) {
	r.joined = r.joined[:0]
	first := int64(-1) // header of the first fragment of an open record
	for {
		f, err := r.fragment(first)
		if err != nil {
			return nil, err
		}
		switch f.kind {
		case typeFull:
			if err := r.beginning(f, first); err != nil {
				return nil, err
			}
			r.start, r.end = f.offset, r.offset()
			return f.payload, nil

		case typeFirst:
			if err := r.beginning(f, first); err != nil {
				return nil, err
			}
			first = f.offset
			r.joined = append(r.joined, f.payload...)

		case typeMiddle, typeLast:
			if first < 0 {
				return nil, r.defect(UnexpectedType, f.offset, first, r.offset(), "the start of a record", typeName(f.kind))
			}
			if len(r.joined)+len(f.payload) > r.maxRecord {
				return nil, r.defect(TooLong, f.offset, first, r.offset(),
					fmt.Sprintf("a record of at most %d bytes", r.maxRecord), "more")
			}
			r.joined = append(r.joined, f.payload...)
			if f.kind == typeLast {
				r.start, r.end = first, r.offset()
				return r.joined, nil
			}

		case typeCompression:
			return nil, r.defect(Compressed, f.offset, first, r.offset(), "records without compression",
				fmt.Sprintf("a compression record % x", f.payload))

		default:
			if err := r.meta(f, first); err != nil {
				return nil, err
			}
		}
	}
}

// beginning checks that a record may begin here.
func (r *Reader) beginning(f fragment, first int64) error {
	// Early writers could leave a First without payload at the end of a block
	// and then start the record anew (RocksDB db/log_reader.cc).
	if first < 0 || len(r.joined) == 0 {
		return nil
	}
	// What follows may be sound: a skipping reader drops the open record and
	// takes this fragment.
	return r.defect(UnexpectedType, f.offset, first, f.offset, "Middle or Last", typeName(f.kind))
}

// meta handles records that are no data of the log's user.
func (r *Reader) meta(f fragment, first int64) error {
	known := false
	switch f.kind {
	case typeTimestampSize, typeRecycledTimestamp:
		known = true
		if len(f.payload)%6 != 0 {
			return r.defect(BadMeta, f.offset, first, r.offset(), "a multiple of 6 bytes", fmt.Sprintf("%d", len(f.payload)))
		}
	case typePredecessor, typeRecycledPredecessor:
		known = true
		if len(f.payload) < 24 {
			return r.defect(BadMeta, f.offset, first, r.offset(), "24 bytes", fmt.Sprintf("%d", len(f.payload)))
		}
	}
	if !known && f.kind&ignorable == 0 {
		return r.defect(UnknownType, f.offset, first, r.offset(), "a known type", typeName(f.kind))
	}
	if first >= 0 {
		return r.defect(UnexpectedType, f.offset, first, r.offset(), "Middle or Last", typeName(f.kind))
	}
	return nil
}

// fragment is one physical record.
type fragment struct {
	kind    byte  // recycled data types are mapped to their plain ones
	offset  int64 // of its header in the file
	payload []byte
}

// fragment reads the next physical record whose checksum is right. first is
// the offset of the record that is open, or -1.
func (r *Reader) fragment(first int64) (fragment, error) {
	for {
		rest := r.block[r.at:]
		if len(rest) < headerSize {
			done, err := r.ended(first, headerSize)
			if done {
				return fragment{}, err
			}
			continue
		}
		offset := r.offset()
		length, kind, header := int(binary.LittleEndian.Uint16(rest[4:])), rest[6], headerSize
		if recycledType(kind) {
			if !r.recyclable || r.seen && !r.recycled {
				return fragment{}, r.defect(RecyclableInPlain, offset, first, offset, "a plain record",
					typeName(kind)+", at which RocksDB from 9.4 on never ends")
			}
			r.recycled = true
			header = recycledHeaderSize
			if len(rest) < header {
				done, err := r.ended(first, header)
				if done {
					return fragment{}, err
				}
				continue
			}
		}

		if header+length > len(rest) {
			room := int(BlockSize - offset%BlockSize)
			what := BadLength
			found := fmt.Sprintf("%d to the end of the %s", len(rest), r.endName())
			if r.short && header+length <= room {
				what = TruncatedBody
				if n := soundLength(rest, header); n >= 0 {
					what = BadLength
					found = fmt.Sprintf("that the checksum is right for %d", header+n)
				}
			}
			return fragment{}, r.defect(what, offset, first, r.blockEnd(), fmt.Sprintf("%d bytes", header+length), found)
		}
		if header == recycledHeaderSize {
			if n := binary.LittleEndian.Uint32(rest[headerSize:]); n != r.logNumber {
				return fragment{}, r.defect(OldRecord, offset, first, offset+int64(header+length),
					fmt.Sprintf("log %d", r.logNumber), fmt.Sprintf("log %d", n))
			}
		}
		if kind == typeZero && length == 0 {
			if n := firstNonZero(rest); n >= 0 {
				// RocksDB skips the rest of the block without a word. Whoever
				// wrote zeros here wrote only zeros, so this hides records.
				return fragment{}, r.defect(DirtyPadding, offset, first, r.blockEnd(),
					"zeros to the end of the block", fmt.Sprintf("%#02x at %d", rest[n], offset+int64(n)))
			}
			if first >= 0 {
				return fragment{}, r.defect(ZerosInRecord, offset, first, r.blockEnd(), "Middle or Last", "zeros")
			}
			r.at = len(r.block)
			continue
		}

		stored := unmask(binary.LittleEndian.Uint32(rest))
		if sum := crc32.Checksum(rest[6:header+length], castagnoli); sum != stored {
			return fragment{}, r.defect(Checksum, offset, first, r.blockEnd(),
				fmt.Sprintf("0x%08x", stored), fmt.Sprintf("0x%08x", sum))
		}
		r.at += header + length
		if kind >= typeRecycledFull && kind <= typeRecycledLast {
			kind -= typeRecycledFull - typeFull
		}
		return fragment{kind, offset, rest[header : header+length]}, nil
	}
}

// ended handles a block with less than a header left. It loads the next one,
// or says that the reading is done, and how.
func (r *Reader) ended(first int64, header int) (done bool, err error) {
	if !r.short {
		if err := r.load(); err != nil {
			return true, err
		}
		return false, nil
	}
	offset, rest := r.offset(), len(r.block)-r.at
	switch {
	case rest > 0:
		return true, r.defect(TruncatedHeader, offset, first, r.blockEnd(),
			fmt.Sprintf("%d bytes", header), fmt.Sprintf("%d to the end of the file", rest))
	case first >= 0:
		return true, r.defect(TruncatedRecord, offset, first, offset, "Middle or Last", "the end of the file")
	}
	return true, io.EOF
}

// load reads the block after the current one, or what is there of it.
func (r *Reader) load() error {
	at := r.blockAt + int64(len(r.block))
	room := BlockSize - at%BlockSize
	n := max(0, min(room, r.size-at))
	if int64(cap(r.buf)) < n {
		r.buf = make([]byte, n)
	}
	got := 0
	if n > 0 {
		var err error
		got, err = r.src.ReadAt(r.buf[:n], at)
		if int64(got) < n && !errors.Is(err, io.EOF) {
			if err == nil {
				err = io.ErrNoProgress
			}
			return fmt.Errorf("read block at %d: %w", at, err)
		}
	}
	r.block, r.blockAt, r.at = r.buf[:got], at, 0
	r.short = int64(got) < room // also if the file has shrunk meanwhile
	return nil
}

// offset is the file offset of the next header.
func (r *Reader) offset() int64 { return r.blockAt + int64(r.at) }

// blockEnd is where the next block starts, or the end of the file.
func (r *Reader) blockEnd() int64 { return r.blockAt + int64(len(r.block)) }

func (r *Reader) endName() string {
	if r.short {
		return "file"
	}
	return "block"
}

func (r *Reader) defect(kind Kind, offset, first, resume int64, expected, found string) error {
	if first < 0 {
		first = offset
	}
	return &Error{Kind: kind, Offset: offset, Record: first, Resume: resume, LastBlock: r.short,
		Expected: expected, Found: found}
}

func recycledType(kind byte) bool {
	return kind >= typeRecycledFull && kind <= typeRecycledLast ||
		kind == typeRecycledTimestamp || kind == typeRecycledPredecessor
}

func firstNonZero(b []byte) int {
	for i, c := range b {
		if c != 0 {
			return i
		}
	}
	return -1
}

// soundLength looks for a payload length with which the fragment at the start
// of b is sound, -1 if there is none. A writer that was cut off leaves none; a
// length that was changed later does, and hides all that follows from RocksDB.
func soundLength(b []byte, header int) int {
	stored := ^unmask(binary.LittleEndian.Uint32(b))
	sum := ^crc32.Checksum(b[6:header], castagnoli)
	for n := 0; ; n++ {
		if sum == stored {
			return n
		}
		if header+n == len(b) {
			return -1
		}
		sum = castagnoli[byte(sum)^b[header+n]] ^ sum>>8
	}
}

// unmask undoes what RocksDB does to stored checksums so that a checksum over
// data that holds checksums stays a good one (RocksDB util/crc32c.h).
func unmask(masked uint32) uint32 {
	rotated := masked - 0xa282ead8
	return rotated>>17 | rotated<<15
}
