// Package sst reads RocksDB's block-based table files (*.sst) of
// format_version 0 to 7, as RocksDB 3 to 11 write them, without RocksDB: the
// footer, the properties, and every entry, with all checksums verified. It
// decompresses what RocksDB compresses with Snappy, zlib, bzip2, LZ4 and zstd,
// with and without a dictionary; not XPRESS, which only RocksDB on Windows has,
// and no algorithm of an application's own.
//
// [Table.Verify] looks at every block of a file.
//
// It resolves no blob, applies no merge and no range deletion, and uses no
// filter. It believes no length that a file claims: whatever the bytes are, it
// ends, does not panic, and takes memory of a small multiple of the file's size
// at most; for a compressed block, of 64 MiB at most.
//
// The package only reads, from the io.ReaderAt that it is given. It imports no
// other package of this module; store, verify and whatever else looks into
// table files may import it.
package sst

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strconv"
	"sync"
)

// tailSize is what Open reads at first. Footer, metaindex and properties take
// 0.9 to 1.5 KiB in the files that RocksDB 5.18 to 11 write by default.
const tailSize = 4 << 10

// The parts of a file, as [Error] names them. Those that begin with a capital
// letter are for a reader who tells them apart.
const (
	PartFooter        = "footer"
	partMetaindex     = "metaindex block"
	partProperties    = "properties block"
	PartIndex         = "index block"
	PartPartition     = "index partition"
	PartData          = "data block"
	PartRangeDeletion = "range deletion block"
	partDictionary    = "compression dictionary"
	partFilter        = "filter block"
	partFilterIndex   = "filter index"
	partOther         = "meta block"
)

// Type says what an entry is (RocksDB db/dbformat.h, ValueType).
type Type uint8

// The types that occur in table files up to RocksDB 11.
const (
	Deletion              Type = 0x00
	Value                 Type = 0x01
	Merge                 Type = 0x02
	SingleDeletion        Type = 0x07
	RangeDeletion         Type = 0x0f // Key is the first key deleted, Value the first one not deleted
	BlobIndex             Type = 0x11
	DeletionWithTimestamp Type = 0x14
	WideColumnEntity      Type = 0x16
	ValuePreferredSeqno   Type = 0x18
)

func (t Type) String() string {
	switch t {
	case Deletion:
		return "deletion"
	case Value:
		return "value"
	case Merge:
		return "merge"
	case SingleDeletion:
		return "single deletion"
	case RangeDeletion:
		return "range deletion"
	case BlobIndex:
		return "blob index"
	case DeletionWithTimestamp:
		return "deletion with timestamp"
	case WideColumnEntity:
		return "wide-column entity"
	case ValuePreferredSeqno:
		return "value with preferred sequence number"
	default:
		return "type 0x" + strconv.FormatUint(uint64(t), 16)
	}
}

// Entry is one entry of a file.
type Entry struct {
	Key      []byte // user key
	Sequence uint64
	Type     Type // as stored; a type that this package does not know is no error
	Value    []byte
}

// Table is an open table file. It holds no bytes of the file, and may be used
// by several goroutines at once if its source may.
type Table struct {
	src      io.ReaderAt
	foot     footer
	props    Properties
	propsAt  handle
	rangeDel handle // size 0: none
	dict     handle // of the compression dictionary; size 0: none
	verify   bool   // false only for tests that want to reach the decoders with any bytes
}

// Open reads the footer, the metaindex and the properties of a table file of
// size bytes and verifies their checksums. In the usual case that is one read
// of 4 KiB; one more for each of the two blocks that does not lie in the last
// 4 KiB.
//
// If src has fewer bytes than size, the error is of kind [TooShort]. What src
// answers otherwise is returned as it is, everything else as an *[Error].
func Open(src io.ReaderAt, size int64) (*Table, error) { return open(src, size, true) }

func open(src io.ReaderAt, size int64, verify bool) (*Table, error) {
	s := getScratch()
	defer s.put()
	tail := s.tail[:max(0, min(size, tailSize))]
	tailOff := size - int64(len(tail))
	if err := readFull(src, tail, tailOff, PartFooter); err != nil {
		return nil, err
	}
	f, err := parseFooter(tail, size, verify)
	if err != nil {
		return nil, err
	}
	t := &Table{src: src, foot: f, verify: verify}
	t.props.FormatVersion = f.version
	w := window{tail, uint64(tailOff)}
	if err := t.readMetaindex(s, w); err != nil {
		return nil, err
	}
	if err := t.readProperties(s, w); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Table) readMetaindex(s *scratch, w window) error {
	const part = partMetaindex
	at := t.foot.metaindex
	contents, err := t.read(s, at, part, w, &s.data)
	if err != nil {
		return err
	}
	b := &s.entries
	if err := b.reset(contents, false); err != nil {
		return place(err, part, at)
	}
	index := t.foot.version < contextVersion
	for {
		ok, err := b.next()
		if err != nil {
			return place(err, part, at)
		}
		if !ok {
			break
		}
		var to *handle
		switch string(b.key) {
		case "rocksdb.properties":
			to = &t.propsAt
		case "rocksdb.range_del":
			to = &t.rangeDel
		case "rocksdb.compression_dict":
			to = &t.dict
		case "rocksdb.index":
			if t.foot.version < contextVersion {
				continue
			}
			to, index = &t.foot.index, true
		default:
			continue
		}
		h, n := decodeHandle(b.value)
		if n == 0 {
			return place(malformed("a block handle for "+string(b.key), ""), part, at)
		}
		*to = h
	}
	if t.propsAt.size == 0 {
		return place(malformed("rocksdb.properties", "no such entry"), part, at)
	}
	if !index {
		return place(malformed("rocksdb.index", "no such entry"), part, at)
	}
	return nil
}

func (t *Table) readProperties(s *scratch, w window) error {
	const part = partProperties
	contents, err := t.propertiesBlock(s, w)
	if err != nil {
		return err
	}
	b := &s.entries
	if err := b.reset(contents, false); err != nil {
		return place(err, part, t.propsAt)
	}
	if err := parseProperties(b, &t.props); err != nil {
		return place(err, part, t.propsAt)
	}
	return nil
}

func (t *Table) propertiesBlock(s *scratch, w window) ([]byte, error) {
	contents, err := t.read(s, t.propsAt, partProperties, w, &s.data)
	if err != nil {
		// RocksDB may have written the sequence number into an ingested file
		// after its checksum was computed for the number 0 (table/meta_blocks.cc,
		// ReadTablePropertiesHelper).
		return t.withoutGlobalSequence(s, w, err)
	}
	return contents, nil
}

// withoutGlobalSequence verifies the properties block again, with the global
// sequence number zeroed. It returns the block as it is stored, or cause.
func (t *Table) withoutGlobalSequence(s *scratch, w window, cause error) ([]byte, error) {
	const part = partProperties
	if e, ok := errors.AsType[*Error](cause); !ok || e.Kind != BlockChecksum {
		return nil, cause
	}
	serialized, err := t.fetch(t.propsAt, part, w, &s.data)
	if err != nil {
		return nil, err
	}
	contents := serialized[:t.propsAt.size]
	if s.entries.reset(contents, false) != nil {
		return nil, cause
	}
	at := globalSequenceOffset(&s.entries)
	if at == 0 {
		return nil, cause
	}
	number := contents[at : at+8]
	stored := binary.LittleEndian.Uint64(number)
	clear(number)
	err = t.foot.verify(serialized, t.propsAt, part)
	binary.LittleEndian.PutUint64(number, stored)
	if err != nil {
		return nil, cause
	}
	return contents, nil
}

// Properties gives what the file says of itself.
func (t *Table) Properties() Properties { return t.props }

// FormatVersion is the footer's format_version, 0 to 7.
func (t *Table) FormatVersion() uint32 { return t.foot.version }

// ChecksumType is how the blocks of the file are checked.
func (t *Table) ChecksumType() ChecksumType { return t.foot.checksum }

// Each calls visit for every entry in file order: the point entries by
// ascending key and descending sequence number, then the range deletions. The
// slices of an entry are valid until visit returns. An error of visit ends
// the walk and is returned as it is.
//
// Every block is read and verified once. The walk ends at the first block
// that is damaged, with an error that has its offset and size.
//
// Each does not compare the number of entries with the properties.
func (t *Table) Each(visit func(Entry) error) error {
	s := getScratch()
	defer s.put()
	block := func(h handle, part string) error {
		contents, err := t.read(s, h, part, window{}, &s.data)
		if err != nil {
			return err
		}
		return t.visitEntries(&s.entries, contents, h, part, visit)
	}
	err := t.walkIndex(s, nil, func(h handle) error { return block(h, PartData) })
	if err == nil && t.rangeDel.size > 0 {
		err = block(t.rangeDel, PartRangeDeletion)
	}
	return err
}

func (t *Table) visitEntries(b *block, contents []byte, h handle, part string, visit func(Entry) error) error {
	if err := b.reset(contents, false); err != nil {
		return place(err, part, h)
	}
	for {
		ok, err := b.next()
		if err != nil {
			return place(err, part, h)
		}
		if !ok {
			return nil
		}
		n := len(b.key) - 8
		if n < 0 {
			return place(malformed("an internal key", "a key of "+strconv.Itoa(len(b.key))+" bytes"), part, h)
		}
		packed := binary.LittleEndian.Uint64(b.key[n:])
		e := Entry{Key: b.key[:n:n], Sequence: packed >> 8, Type: Type(packed), Value: b.value}
		if t.props.External && t.props.GlobalSequence != 0 {
			e.Sequence = t.props.GlobalSequence
		}
		if err := visit(e); err != nil {
			return err
		}
	}
}

// errStop ends a walk that has found what it looked for.
var errStop = errors.New("stop")

// Get returns the newest entry of a user key, which may be a deletion, and
// false if the file has none. Range deletions are not considered. The entry's
// slices are the caller's.
//
// It reads the index, one block of it if it is partitioned, and one or two
// data blocks. A file with another comparator than [Bytewise] is an error of
// kind [Unsupported].
func (t *Table) Get(userKey []byte) (Entry, bool, error) {
	if t.props.Comparator != Bytewise {
		return Entry{}, false, &Error{Kind: Unsupported, Part: partProperties,
			Offset: int64(t.propsAt.offset), Expected: "comparator " + Bytewise, Found: t.props.Comparator}
	}
	s := getScratch()
	defer s.put()
	var found Entry
	var ok bool
	const part = PartData
	err := t.walkIndex(s, userKey, func(h handle) error {
		contents, err := t.read(s, h, part, window{}, &s.data)
		if err != nil {
			return err
		}
		return t.visitEntries(&s.entries, contents, h, part, func(e Entry) error {
			c := bytes.Compare(e.Key, userKey)
			if c < 0 {
				return nil
			}
			if c == 0 {
				e.Key, e.Value = bytes.Clone(e.Key), bytes.Clone(e.Value)
				found, ok = e, true
			}
			return errStop
		})
	})
	if err != nil && !errors.Is(err, errStop) {
		return Entry{}, false, err
	}
	return found, ok, nil
}

// walkIndex calls visit for every data block in file order, except those
// whose keys are all below from. It holds only one block of each level.
func (t *Table) walkIndex(s *scratch, from []byte, visit func(handle) error) error {
	const top, partition, data = PartIndex, PartPartition, PartData
	if t.props.IndexType > BinarySearchWithFirstKey {
		return t.unknownIndex()
	}
	level := func(x *indexBlock, h handle, part string, buf *[]byte) error {
		contents, err := t.read(s, h, part, window{}, buf)
		if err != nil {
			return err
		}
		err = x.reset(contents, t.props.IndexValueIsDeltaEncoded, t.props.IndexType == BinarySearchWithFirstKey)
		return place(err, part, h)
	}
	if err := level(&s.topIndex, t.foot.index, top, &s.top); err != nil {
		return err
	}
	var dataEnd, partitionEnd uint64
	if t.props.IndexType != TwoLevel {
		return t.walkLevel(&s.topIndex, t.foot.index, top, data, from, &dataEnd, visit)
	}
	return t.walkLevel(&s.topIndex, t.foot.index, top, partition, from, &partitionEnd, func(h handle) error {
		if err := level(&s.partIndex, h, partition, &s.part); err != nil {
			return err
		}
		return t.walkLevel(&s.partIndex, h, partition, data, from, &dataEnd, visit)
	})
}

func (t *Table) unknownIndex() error {
	return &Error{Kind: Unsupported, Part: PartIndex, Offset: int64(min(t.foot.index.offset, t.foot.offset)),
		Found: t.props.IndexType.String()}
}

// walkLevel calls visit for the handles of one index block, which are those
// of the parts below. Each must lie behind the one before, whose end is in
// *end: that is how RocksDB writes them, and it bounds what a damaged index
// can make us read.
func (t *Table) walkLevel(x *indexBlock, at handle, part, below string, from []byte, end *uint64, visit func(handle) error) error {
	for {
		ok, err := x.next()
		if err != nil {
			return place(err, part, at)
		}
		if !ok {
			return nil
		}
		h := x.handle
		if err := t.foot.within(h, below); err != nil {
			return err
		}
		if h.offset < *end {
			return place(malformed("a block at or behind "+strconv.FormatUint(*end, 10),
				"one at "+strconv.FormatUint(h.offset, 10)), part, at)
		}
		*end = h.end()
		if from != nil {
			key := x.key
			if !t.props.IndexKeyIsUserKey {
				if len(key) < 8 {
					return place(malformed("an internal key", "a key of "+strconv.Itoa(len(key))+" bytes"), part, at)
				}
				key = key[:len(key)-8]
			}
			if bytes.Compare(key, from) < 0 {
				continue
			}
		}
		if err := visit(h); err != nil {
			return err
		}
	}
}

// window is a part of the file that has already been read.
type window struct {
	data []byte
	off  uint64
}

// block gives a block that lies in the file, with its trailer, if it begins in
// the window, which reaches up to the last one.
func (w window) block(h handle) ([]byte, bool) {
	if len(w.data) == 0 || h.offset < w.off {
		return nil, false
	}
	return w.data[h.offset-w.off : h.end()-w.off], true
}

// read returns the contents of a block without its trailer, verified and
// decompressed. They are valid until *buf is used again.
func (t *Table) read(s *scratch, h handle, part string, w window, buf *[]byte) ([]byte, error) {
	serialized, err := t.fetch(h, part, w, buf)
	if err != nil {
		return nil, err
	}
	if t.verify {
		if err := t.foot.verify(serialized, h, part); err != nil {
			return nil, err
		}
	}
	if serialized[h.size] == noCompression {
		return serialized[:h.size], nil
	}
	contents, err := t.decompress(s, serialized, h, part)
	if err == nil {
		// Both are buffers: what was read is of no more use.
		*buf, s.codec.out = s.codec.out, *buf
	}
	return contents, err
}

// decompress returns what a block becomes, in the buffer of the codec.
// serialized is the block with its trailer.
func (t *Table) decompress(s *scratch, serialized []byte, h handle, part string) ([]byte, error) {
	kind := serialized[h.size]
	// From format_version 7 on a file names the mapping from its types to
	// algorithms (table/block_based/block_based_table_reader.cc GetDecompressor).
	if m := t.props.CompressionManager; m != builtinManager && t.foot.version >= managerVersion && part != partProperties && part != partMetaindex {
		return nil, &Error{Kind: Codec, Part: part, Offset: int64(h.offset), Size: int64(h.size),
			Expected: "compression manager " + builtinManager, Found: strconv.Quote(m)}
	}
	dictionary := part == PartData && t.dict.size > 0 && usesDictionary(kind)
	if dictionary && s.codec.dict == nil {
		if err := t.readDictionary(s); err != nil {
			return nil, err
		}
	}
	contents, err := s.codec.decompress(kind, serialized[:h.size], t.foot.version, dictionary)
	return contents, place(err, part, h)
}

// readDictionary gives the codec the dictionary of the table.
func (t *Table) readDictionary(s *scratch) error {
	dict, err := t.read(s, t.dict, partDictionary, window{}, &s.dict)
	if err != nil {
		return err
	}
	s.codec.dict, s.codec.zstdDict = dict, nil
	return nil
}

// fetch returns a block with its trailer, out of the window if it lies there.
func (t *Table) fetch(h handle, part string, w window, buf *[]byte) ([]byte, error) {
	if err := t.foot.check(h, part); err != nil {
		return nil, err
	}
	if p, ok := w.block(h); ok {
		return p, nil
	}
	n := int(h.size) + trailerLen
	if cap(*buf) < n {
		*buf = make([]byte, n, max(n, 8<<10))
	}
	p := (*buf)[:n]
	return p, readFull(t.src, p, int64(h.offset), part)
}

func readFull(src io.ReaderAt, p []byte, off int64, part string) error {
	n, err := src.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return &Error{Kind: TooShort, Part: part, Offset: off,
			Expected: decimal(off+int64(len(p))) + " bytes", Found: decimal(off + int64(n))}
	}
	return err
}

// place turns a decoder's complaint into an error about a block.
func place(err error, part string, h handle) error {
	c, ok := errors.AsType[*complaint](err)
	if !ok {
		return err
	}
	return &Error{Kind: c.kind, Part: part, Offset: int64(h.offset), Size: int64(h.size),
		Expected: c.expected, Found: c.found}
}

// scratch is what one Open, Each or Get works in.
type scratch struct {
	tail                [tailSize]byte
	top, part, data     []byte
	dict                []byte
	ahead, end          []byte
	last, separator     []byte
	codec               codec
	topIndex, partIndex indexBlock
	entries             block
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func getScratch() *scratch { return scratches.Get().(*scratch) }

// put gives the scratch back without what an unusual file made large.
func (s *scratch) put() {
	const most = 1 << 20
	for _, b := range []*[]byte{&s.top, &s.part, &s.data, &s.dict, &s.last, &s.separator, &s.topIndex.key, &s.partIndex.key, &s.entries.key} {
		if cap(*b) > most {
			*b = nil
		}
	}
	// The blocks still point into a buffer that may just have been dropped.
	s.codec.forget(most)
	s.topIndex.release()
	s.partIndex.release()
	s.entries.release()
	scratches.Put(s)
}
