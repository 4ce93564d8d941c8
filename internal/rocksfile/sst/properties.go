package sst

import (
	"bytes"
	"encoding/binary"
	"math"
	"strconv"
	"strings"
)

// unknownFamily is what RocksDB writes for a file that belongs to no family
// yet (include/rocksdb/table_properties.h, kUnknownColumnFamily).
const unknownFamily = math.MaxInt32

// maxText is the largest text of a property that is kept.
const maxText = 4 << 10

// Bytewise is the name of RocksDB's default comparator.
const Bytewise = "leveldb.BytewiseComparator"

// IndexType is how the index of a file is laid out (RocksDB
// include/rocksdb/table.h, BlockBasedTableOptions::IndexType).
type IndexType uint32

// The index types up to RocksDB 11.
const (
	BinarySearch IndexType = iota
	HashSearch
	TwoLevel
	BinarySearchWithFirstKey
)

func (i IndexType) String() string {
	switch i {
	case BinarySearch:
		return "binary search"
	case HashSearch:
		return "hash search"
	case TwoLevel:
		return "two-level"
	case BinarySearchWithFirstKey:
		return "binary search with first key"
	default:
		return "index type " + strconv.FormatUint(uint64(i), 10)
	}
}

// Properties is what a file says of itself (RocksDB table/meta_blocks.cc and
// include/rocksdb/table_properties.h). What an older RocksDB does not write
// is zero, as RocksDB itself reads it; where zero is also an answer, a field
// beside it says whether there is one. Sizes are in bytes, times in seconds
// since the epoch with 0 for unknown. A text above 4 KiB is left out.
type Properties struct {
	// Entries counts the point entries and, from RocksDB 6.0 on, the range
	// deletions; RocksDB 5.18 does not count those here.
	Entries         uint64
	Deletions       uint64 // of all kinds; range deletions as in Entries
	MergeOperands   uint64
	RangeDeletions  uint64
	RawKeySize      uint64 // internal keys
	RawValueSize    uint64
	DataSize        uint64 // data blocks with their trailers, as stored
	IndexSize       uint64
	FilterSize      uint64
	DataBlocks      uint64
	IndexPartitions uint64 // 0 if the index has one level

	// FormatVersion is the footer's: RocksDB's own property of that name is
	// 0 in most files.
	FormatVersion uint32

	// ColumnFamilyID is valid if ColumnFamilyKnown: a file that was made
	// outside a database belongs to none.
	ColumnFamilyID    uint32
	ColumnFamilyKnown bool
	ColumnFamily      string

	Comparator    string // Bytewise by default
	MergeOperator string // "nullptr" if there is none
	FilterPolicy  string
	// Compression is RocksDB's name of the algorithm, "NoCompression" if
	// there is none, whichever way the format version spells it.
	Compression string
	// CompressionManager says who defines what the compression types mean, from
	// format_version 7 on: "BuiltinV2" is RocksDB itself. Empty in a file
	// without compression.
	CompressionManager string

	CreationTime     uint64 // of the oldest input, not of this file
	OldestKeyTime    uint64
	NewestKeyTime    uint64
	FileCreationTime uint64

	DBID, SessionID, HostID string // of the database that made the file
	OriginalFileNumber      uint64 // there; 0 if unknown

	IndexType                IndexType
	IndexKeyIsUserKey        bool
	IndexValueIsDeltaEncoded bool

	// LargestSequence and SmallestSequence are those of the entries. RocksDB
	// writes the first from 9.7 on and the second from 10.7 on.
	LargestSequence, SmallestSequence           uint64
	LargestSequenceKnown, SmallestSequenceKnown bool

	// External is set for a file that was made by SstFileWriter and ingested.
	// Its entries are stored with sequence number 0 and all count as
	// GlobalSequence; if that is 0, only the MANIFEST knows the number.
	External       bool
	GlobalSequence uint64
}

// SessionHalf is the half of the table's unique id that names the session which
// wrote it (RocksDB table/unique_id.cc, GetSstInternalUniqueId and
// DecodeSessionId): the last 64 bits of the number that the session id is in base
// 36. ok is false where the file does not say it.
func (p *Properties) SessionHalf() (half uint64, ok bool) {
	const low = 12 // digits of the lower 62 bits
	id := p.SessionID
	if len(id) <= low || len(id) > 2*low || p.DBID == "" || p.OriginalFileNumber == 0 {
		return 0, false
	}
	upper, err := strconv.ParseUint(id[:len(id)-low], 36, 64)
	if err != nil {
		return 0, false
	}
	lower, err := strconv.ParseUint(id[len(id)-low:], 36, 64)
	if err != nil {
		return 0, false
	}
	return lower&(1<<62-1) | upper<<62, true
}

// builtinManager is the CompressionManager of RocksDB's own algorithms.
const builtinManager = "BuiltinV2"

const globalSequenceName = "rocksdb.external_sst_file.global_seqno"

// parseProperties reads a properties block. As in RocksDB, a property that is
// no varint is skipped.
func parseProperties(b *block, p *Properties) error {
	var family, comparator, mergeOperator, filterPolicy, compression, manager, db, session, host []byte
	number := func(to *uint64) bool {
		v, n := binary.Uvarint(b.value)
		if n > 0 {
			*to = v
		}
		return n > 0
	}
	var external uint32
	for {
		ok, err := b.next()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		switch string(b.key) {
		case "rocksdb.num.entries":
			number(&p.Entries)
		case "rocksdb.deleted.keys":
			number(&p.Deletions)
		case "rocksdb.merge.operands":
			number(&p.MergeOperands)
		case "rocksdb.num.range-deletions":
			number(&p.RangeDeletions)
		case "rocksdb.raw.key.size":
			number(&p.RawKeySize)
		case "rocksdb.raw.value.size":
			number(&p.RawValueSize)
		case "rocksdb.data.size":
			number(&p.DataSize)
		case "rocksdb.index.size":
			number(&p.IndexSize)
		case "rocksdb.filter.size":
			number(&p.FilterSize)
		case "rocksdb.num.data.blocks":
			number(&p.DataBlocks)
		case "rocksdb.index.partitions":
			number(&p.IndexPartitions)
		case "rocksdb.column.family.id":
			var id uint64
			if number(&id) && id < unknownFamily {
				p.ColumnFamilyID, p.ColumnFamilyKnown = uint32(id), true
			}
		case "rocksdb.column.family.name":
			family = b.value
		case "rocksdb.comparator":
			comparator = b.value
		case "rocksdb.merge.operator":
			mergeOperator = b.value
		case "rocksdb.filter.policy":
			filterPolicy = b.value
		case "rocksdb.compression":
			compression = b.value
		case "rocksdb.creation.time":
			number(&p.CreationTime)
		case "rocksdb.oldest.key.time":
			number(&p.OldestKeyTime)
		case "rocksdb.newest.key.time":
			number(&p.NewestKeyTime)
		case "rocksdb.file.creation.time":
			number(&p.FileCreationTime)
		case "rocksdb.creating.db.identity":
			db = b.value
		case "rocksdb.creating.session.identity":
			session = b.value
		case "rocksdb.creating.host.identity":
			host = b.value
		case "rocksdb.original.file.number":
			number(&p.OriginalFileNumber)
		case "rocksdb.block.based.table.index.type":
			if len(b.value) == 4 {
				p.IndexType = IndexType(binary.LittleEndian.Uint32(b.value))
			}
		case "rocksdb.index.key.is.user.key":
			var v uint64
			p.IndexKeyIsUserKey = number(&v) && v != 0
		case "rocksdb.index.value.is.delta.encoded":
			var v uint64
			p.IndexValueIsDeltaEncoded = number(&v) && v != 0
		case "rocksdb.key.smallest.seqno":
			p.SmallestSequenceKnown = number(&p.SmallestSequence)
		case "rocksdb.key.largest.seqno":
			p.LargestSequenceKnown = number(&p.LargestSequence)
		case "rocksdb.external_sst_file.version":
			if len(b.value) == 4 {
				external = binary.LittleEndian.Uint32(b.value)
			}
		case globalSequenceName:
			if len(b.value) == 8 {
				p.GlobalSequence = binary.LittleEndian.Uint64(b.value)
			}
		}
	}
	// Version 1 files have no global sequence number: theirs are in the entries.
	if p.External = external == 2; !p.External {
		p.GlobalSequence = 0
	}
	if p.FormatVersion >= managerVersion {
		manager, _, _ = bytes.Cut(compression, []byte{';'})
		if string(manager) == builtinManager {
			p.CompressionManager, manager = builtinManager, nil
		}
	}
	if name := compressionName(compression); name != "" {
		p.Compression, compression = name, nil
	}
	if string(comparator) == Bytewise {
		p.Comparator, comparator = Bytewise, nil
	}
	// The other texts share one allocation.
	texts := [...]struct {
		value []byte
		to    *string
	}{
		{family, &p.ColumnFamily}, {comparator, &p.Comparator}, {mergeOperator, &p.MergeOperator},
		{filterPolicy, &p.FilterPolicy}, {compression, &p.Compression}, {manager, &p.CompressionManager},
		{db, &p.DBID}, {session, &p.SessionID}, {host, &p.HostID},
	}
	size := 0
	for i := range texts {
		if len(texts[i].value) > maxText {
			texts[i].value = nil
		}
		size += len(texts[i].value)
	}
	var all strings.Builder
	all.Grow(size)
	for _, t := range texts {
		all.Write(t.value)
	}
	rest := all.String()
	for _, t := range texts {
		if n := len(t.value); n > 0 {
			*t.to, rest = rest[:n], rest[n:]
		}
	}
	return nil
}

// globalSequenceOffset finds the value of the global sequence number in the
// contents of a properties block, 0 if there is none.
func globalSequenceOffset(b *block) int {
	for {
		if ok, err := b.next(); !ok || err != nil {
			return 0
		}
		if string(b.key) == globalSequenceName && len(b.value) == 8 {
			return b.off - len(b.value)
		}
	}
}

// compressions are RocksDB's names of its built-in algorithms by their number
// in a block's trailer (util/compression.h CompressionTypeToString).
var compressions = [...]string{"NoCompression", "Snappy", "Zlib", "BZip2", "LZ4", "LZ4HC", "Xpress", "ZSTD"}

const zstdNotFinal = "ZSTDNotFinal"

// compressionName gives the name for a property that needs no copy: one of
// the built-in names, or the form of format_version 7, "manager;hex types;"
// (table/table_properties.cc ParseCompressionNameForDisplay). Empty for
// anything else.
func compressionName(v []byte) string {
	for _, c := range compressions {
		if string(v) == c {
			return c
		}
	}
	if string(v) == zstdNotFinal {
		return zstdNotFinal
	}
	if len(v) > 64 {
		return ""
	}
	_, types, ok := strings.Cut(string(v), ";")
	if !ok {
		return ""
	}
	types, _, ok = strings.Cut(types, ";")
	if !ok || len(types)%2 != 0 {
		return ""
	}
	var names []string
	for ; types != ""; types = types[2:] {
		n, err := strconv.ParseUint(types[:2], 16, 8)
		if err != nil {
			return ""
		}
		if n != 0 && n != 0xff {
			names = append(names, compressionType(byte(n)))
		}
	}
	if names == nil {
		return compressions[0]
	}
	return strings.Join(names, ",")
}

func compressionType(t byte) string {
	if int(t) < len(compressions) {
		return compressions[t]
	}
	if t == zstdNotFinalType {
		return zstdNotFinal
	}
	return "compression type " + strconv.Itoa(int(t))
}
