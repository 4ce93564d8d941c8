// Package wire is what the sidecar and its engine say to each other over two
// pipes: the messages, and how one is framed.
//
// It knows bytes and neither processes nor RocksDB. Each side bounds what it
// takes from the other before it allocates for it. Only package engine, its
// child and cmd/sidecar-engine may import it.
package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Protocol is the version of everything here. Both programs are built and
// shipped together; a child that says another number is not asked.
const Protocol = 1

// Bounds of one message, in bytes without its frame. An answer about 10,000
// tables takes 2 MiB.
const (
	MaxRequest = 64 << 10
	MaxReply   = 8 << 20
)

// Hello is the first message of a child, before it was asked anything.
type Hello struct {
	Protocol int `json:"protocol"`
	// RocksDB is the version of the library that is loaded, such as
	// "10.10.1"; "" if the library does not tell.
	RocksDB string `json:"rocksdb,omitempty"`
	// Without says why the program cannot open a database at all.
	Without string `json:"without,omitempty"`
}

// Request asks about one database. A path is bytes, and JSON has only text:
// []byte travels as base64.
type Request struct {
	ID      uint64 `json:"id"`
	Path    []byte `json:"path"`
	Offsets bool   `json:"offsets,omitempty"` // read the family offsets
	Stats   bool   `json:"stats,omitempty"`   // give the text of rocksdb.stats
}

// Reply answers the request with the same ID.
type Reply struct {
	ID     uint64 `json:"id"`
	Answer Answer `json:"answer"`
	// TooLarge says that the answer is beyond MaxReply, and left out.
	TooLarge bool `json:"too_large,omitempty"`
}

// Answer is what RocksDB says of one database that it has opened read-only.
type Answer struct {
	// Error is RocksDB's own text if it did not open the database or did not
	// read what was asked for; then nothing else is set.
	Error string `json:"error,omitempty"`
	// LastSequence is the sequence number of the newest entry, of a WAL too.
	LastSequence uint64   `json:"last_sequence"`
	Families     []Family `json:"families"`
	// Offsets are the keys of the family offsets with their values, if they
	// were asked for and there is such a family.
	Offsets []KeyValue `json:"offsets,omitempty"`
	// OffsetsLeftOut says why they are not there although they were asked for
	// and nothing is wrong with them: too many of them, or a merge operator is
	// needed, which only the application has.
	OffsetsLeftOut string `json:"offsets_left_out,omitempty"`
}

// Family is one column family.
type Family struct {
	Name  []byte  `json:"name"`
	Files []Table `json:"files"`
	// Properties by their name without "rocksdb.": those that are true of the
	// flushed state whoever opens it (RocksDB db/internal_stats.cc), each in
	// its own unit.
	Properties map[string]uint64 `json:"properties"`
	// Entries and Deletions of all live tables, as their properties have them;
	// nil if RocksDB could not read them.
	Entries   *uint64 `json:"entries,omitempty"`
	Deletions *uint64 `json:"deletions,omitempty"`
	// Stats is the text of rocksdb.stats of this family. Every counter in it
	// is the reader's own; of the application's database only the files, sizes
	// and scores of the levels speak.
	Stats string `json:"stats,omitempty"`
}

// Property is one of Properties, nil if the family lacks it.
func (f *Family) Property(name string) *uint64 {
	if v, ok := f.Properties[name]; ok {
		return &v
	}
	return nil
}

// Values is how many entries have a value, as our own readers count them; nil if
// RocksDB could not read a table.
func (f *Family) Values() *uint64 {
	if f.Entries == nil || f.Deletions == nil {
		return nil
	}
	n := *f.Entries - min(*f.Entries, *f.Deletions)
	return &n
}

// Table is one live SST.
type Table struct {
	Number      uint64 `json:"number"`
	Level       int    `json:"level"`
	Size        uint64 `json:"size"` // bytes
	SmallestSeq uint64 `json:"smallest_seq"`
	LargestSeq  uint64 `json:"largest_seq"`
}

// KeyValue is one entry of the family offsets.
type KeyValue struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

// ErrTooLarge says that a frame is longer than its reader or writer allows.
var ErrTooLarge = errors.New("message is too large")

// Write sends one message: its length as four bytes, big endian, and its JSON.
func Write(w io.Writer, v any, limit int) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	if len(data) > limit {
		return fmt.Errorf("%w: %d bytes of at most %d", ErrTooLarge, len(data), limit)
	}
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(data)), uint32(len(data)))
	if _, err := w.Write(append(frame, data...)); err != nil {
		return fmt.Errorf("write message: %w", err)
	}
	return nil
}

// step is how much is allocated before more bytes have really come.
const step = 64 << 10

// Read takes one message of at most limit bytes into v. It gives io.EOF, as it
// is, if the other side has ended between two messages.
func Read(r io.Reader, v any, limit int) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return err
		}
		return fmt.Errorf("read length of message: %w", err)
	}
	n := int64(binary.BigEndian.Uint32(head[:]))
	if n > int64(limit) {
		return fmt.Errorf("%w: %d bytes of at most %d", ErrTooLarge, n, limit)
	}
	data := make([]byte, 0, min(n, step))
	for int64(len(data)) < n {
		have := len(data)
		more := min(n-int64(have), max(int64(have), step))
		data = append(data, make([]byte, more)...)
		if _, err := io.ReadFull(r, data[have:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("read message of %d bytes: %w", n, err)
		}
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("decode message: %w", err)
	}
	return nil
}
