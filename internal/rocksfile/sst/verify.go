package sst

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"strconv"

	xxh32 "github.com/OneOfOne/xxhash"
	xxh64 "github.com/cespare/xxhash/v2"
	"github.com/zeebo/xxh3"
)

// Depth is how closely [Table.Verify] looks.
type Depth uint8

const (
	// Structure verifies every block but the data blocks, which is what RocksDB
	// reads when it opens a table, and that the index leads from the first data
	// block to the last.
	Structure Depth = iota
	// Checksums beside that verifies the checksum of every data block. None is
	// decompressed or parsed, except before format_version 6, whose checksums do
	// not know where a block belongs: there the first key of each must lie where
	// the index has it.
	Checksums
	// Entries beside that decompresses every block and parses every entry. With
	// the comparator [Bytewise] the keys must ascend, within a block and from
	// one to the next, and each separator of the index must lie between its
	// block and the next one. If no block is bad, the counts must be those of
	// the properties.
	Entries
)

const (
	// maxErrors bounds the errors that a Verification keeps.
	maxErrors = 100
	// maxMetaBlocks bounds what the metaindex may name. Real ones name fewer than ten.
	maxMetaBlocks = 1000
	// readSize is how much Verify reads at once, bytes. More is not faster: it
	// has to pass through the processor's cache between reading and hashing.
	readSize = 256 << 10
	pageSize = 4 << 10
)

// Verification is what [Table.Verify] has found. Everything below Errors is
// of what could be read, and what concerns entries is zero below the depth
// [Entries].
type Verification struct {
	// Errors are what is wrong, in the order in which it was found, which is
	// mostly that of the file: at most 100, one for a block. MoreErrors counts
	// those beyond.
	Errors     []*Error
	MoreErrors uint64

	Blocks, Bytes   uint64 // of every kind; bytes as stored, with trailers
	DataBlocks      uint64
	IndexPartitions uint64

	Entries        uint64 // without range deletions
	Deletions      uint64 // of all kinds, without range deletions
	MergeOperands  uint64
	RangeDeletions uint64
	RawKeySize     uint64 // internal keys, with those of the range deletions, bytes
	RawValueSize   uint64 // with those of the range deletions, bytes

	// SmallestSequence and LargestSequence are those of all entries and range
	// deletions; both 0 if there are none. In an ingested file all count as
	// its global sequence number.
	SmallestSequence, LargestSequence uint64
	// Smallest and Largest are the user keys of the first and the last entry,
	// nil if there is none; those of the range deletions are the smallest start
	// and the largest end by bytes.
	Smallest, Largest                   []byte
	SmallestRangeStart, LargestRangeEnd []byte
}

// Verify reads every block of the file once, the data blocks in file order,
// and goes on behind a bad one where the index still tells where. It reads
// 256 KiB at once, and holds that, one block of each level of the index, and
// with the depth [Entries] one decompressed block.
//
// With the depth [Structure] what lies behind the data blocks is read at once, if
// that is at most 256 KiB.
//
// What is wrong with the file is in the Verification. The error is what the
// source of the bytes answered, as it is; the Verification is then what was
// found before.
func (t *Table) Verify(depth Depth) (*Verification, error) {
	bytewise := t.props.Comparator == Bytewise
	v := verifier{t: t, s: getScratch(), depth: depth, ordered: depth == Entries && bytewise,
		placed: depth == Checksums && bytewise && t.foot.version < contextVersion,
		out:    &Verification{SmallestSequence: math.MaxUint64}}
	defer v.s.put()
	v.in = ahead{src: t.src, s: v.s, limit: t.foot.offset}
	v.scan.key, v.scan.minPacked, v.separator = v.s.last[:0], math.MaxUint64, v.s.separator[:0]
	err := v.run()
	v.s.last, v.s.separator = v.scan.key, v.separator
	if v.out.SmallestSequence > v.out.LargestSequence {
		v.out.SmallestSequence = 0 // there was no entry
	}
	return v.out, err
}

// verifier is one Verify.
type verifier struct {
	t       *Table
	s       *scratch
	depth   Depth
	ordered bool // keys can be compared, and all of them are
	placed  bool // the first key of each block is compared
	in      ahead
	end     window // what lies behind the data blocks, if it was read at once
	out     *Verification

	dataEnd uint64
	scan    scanner
	// separator of the block before, if hasSeparator.
	separator    []byte
	hasSeparator bool
}

// note keeps an error of the file, and gives back any other.
func (v *verifier) note(err error) error {
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	if len(v.out.Errors) < maxErrors {
		v.out.Errors = append(v.out.Errors, e)
	} else {
		v.out.MoreErrors++
	}
	return nil
}

// readEnd reads what lies behind the data blocks.
func (v *verifier) readEnd() error {
	from, to := v.t.props.DataSize, v.t.foot.offset
	if v.depth != Structure || from == 0 || from >= to || to-from > readSize {
		return nil
	}
	if n := int(to - from); cap(v.s.end) < n {
		v.s.end = make([]byte, n, max(n, 16<<10))
	}
	data := v.s.end[:to-from]
	n, err := v.t.src.ReadAt(data, int64(from))
	if n == len(data) {
		v.end = window{data, from}
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return nil // whose block it is that is too short, its own read will tell
	}
	return err
}

func (v *verifier) run() error {
	if err := v.readEnd(); err != nil {
		return err
	}
	meta, err := v.metaBlocks()
	if err := v.note(err); err != nil {
		return err
	}
	if err := v.note(v.index()); err != nil {
		return err
	}
	v.scan.tell(v.out, &v.t.props)
	for _, m := range meta {
		if err := v.note(v.metaBlock(m)); err != nil {
			return err
		}
	}
	if len(v.out.Errors) == 0 {
		return v.note(v.compare())
	}
	return nil
}

// index verifies the index and all data blocks. The error ends the level of
// the index that it is of.
func (v *verifier) index() error {
	t, s := v.t, v.s
	if t.props.IndexType > BinarySearchWithFirstKey {
		return t.unknownIndex()
	}
	load := func(x *indexBlock, h handle, part string, buf *[]byte) error {
		contents, err := t.read(s, h, part, v.end, buf)
		if err != nil {
			return err
		}
		v.count(h)
		err = x.reset(contents, t.props.IndexValueIsDeltaEncoded, t.props.IndexType == BinarySearchWithFirstKey)
		return place(err, part, h)
	}
	if err := load(&s.topIndex, t.foot.index, PartIndex, &s.top); err != nil {
		return err
	}
	if t.props.IndexType != TwoLevel {
		return t.walkLevel(&s.topIndex, t.foot.index, PartIndex, PartData, nil, &v.dataEnd,
			func(h handle) error { return v.dataBlock(&s.topIndex, t.foot.index, PartIndex, h) })
	}
	var end uint64
	return t.walkLevel(&s.topIndex, t.foot.index, PartIndex, PartPartition, nil, &end, func(p handle) error {
		err := load(&s.partIndex, p, PartPartition, &s.part)
		if err == nil {
			v.out.IndexPartitions++
			err = t.walkLevel(&s.partIndex, p, PartPartition, PartData, nil, &v.dataEnd,
				func(h handle) error { return v.dataBlock(&s.partIndex, p, PartPartition, h) })
		}
		if err == nil && v.ordered && v.hasSeparator {
			// A partition goes by the last key of its own.
			if c, ok := v.compareSeparators(v.separator, s.topIndex.key); !ok || c > 0 {
				err = place(malformed("a separator at or behind those of its partition", ""), PartIndex, t.foot.index)
			}
		}
		v.hasSeparator = v.hasSeparator && err == nil
		return v.note(err)
	})
}

// dataBlock verifies a data block, to which the current entry of an index
// block leads.
func (v *verifier) dataBlock(x *indexBlock, at handle, part string, h handle) error {
	v.out.DataBlocks++
	if v.depth == Structure {
		return v.note(v.t.foot.within(h, PartData))
	}
	if v.placed && h.size+trailerLen <= readSize/2 {
		contents, err := v.contents(h, PartData)
		if err == nil {
			err = v.checkFirst(x, h, contents)
		} else if e, ok := errors.AsType[*Error](err); ok && e.Kind == Codec {
			err = nil // its checksum fits
		}
		v.separator, v.hasSeparator = append(v.separator[:x.shared], x.key[x.shared:]...), true
		return v.note(err)
	}
	if v.depth == Checksums || h.size > maxBlock {
		err := v.checksum(h, PartData)
		if err == nil && v.depth != Checksums {
			err = v.t.foot.check(h, PartData)
		}
		return v.note(err)
	}
	contents, err := v.contents(h, PartData)
	if err == nil {
		err = place(v.scan.block(&v.s.entries, contents, v.ordered), PartData, h)
	}
	if v.ordered {
		if err == nil && v.scan.first != nil {
			err = v.checkSeparators(x, at, part, h)
		}
		// The one before is that of the index entry before: what is shared stays.
		v.separator, v.hasSeparator = append(v.separator[:x.shared], x.key[x.shared:]...), true
	}
	return v.note(err)
}

// checkFirst holds the first key of a block against the index entry that leads to
// it and the one before.
func (v *verifier) checkFirst(x *indexBlock, h handle, block []byte) error {
	var shared, unshared, length uint32
	n := 0
	if !take(block, &n, &shared) || !take(block, &n, &unshared) || !take(block, &n, &length) ||
		shared != 0 || unshared < 8 || int(unshared) > len(block)-n {
		return nil // an empty block, or one that only parsing it would judge
	}
	first := block[n : n+int(unshared)]
	switch {
	case v.hasSeparator && !v.behind(first, v.separator):
		return place(malformed("a first key behind the separator of the block before", ""), PartData, h)
	case x.firstKey && !bytes.Equal(first, x.first):
		return place(malformed("the first key that the index has", ""), PartData, h)
	case v.behind(first, x.key):
		return place(malformed("a first key before its separator", ""), PartData, h)
	}
	return nil
}

// checkSeparators holds the first and the last key of a block against the
// index entry that leads to it and the one before.
func (v *verifier) checkSeparators(x *indexBlock, at handle, part string, h handle) error {
	first, last := v.scan.first, v.scan.key
	switch {
	case v.hasSeparator && !v.behind(first, v.separator):
		return place(malformed("a first key behind the separator of the block before", ""), PartData, h)
	case x.firstKey && !bytes.Equal(first, x.first):
		return place(malformed("the first key that the index has", ""), PartData, h)
	case v.behind(last, x.key):
		return place(malformed("a separator at or behind the last key of the block at "+
			strconv.FormatUint(h.offset, 10), ""), part, at)
	}
	return nil
}

// behind says whether an internal key sorts behind a separator.
func (v *verifier) behind(key, separator []byte) bool {
	if v.t.props.IndexKeyIsUserKey {
		return bytes.Compare(key[:len(key)-8], separator) > 0
	}
	c, ok := v.compareSeparators(key, separator)
	return ok && c > 0
}

// compareSeparators compares keys as an index has them; not ok if they cannot be.
func (v *verifier) compareSeparators(a, b []byte) (c int, ok bool) {
	if v.t.props.IndexKeyIsUserKey {
		return bytes.Compare(a, b), true
	}
	if len(a) < 8 || len(b) < 8 {
		return 0, false
	}
	return compareInternal(a, b), true
}

// compareInternal orders internal keys: user keys ascending, sequence numbers
// descending.
func compareInternal(a, b []byte) int {
	n, m := len(a)-8, len(b)-8
	if c := bytes.Compare(a[:n], b[:m]); c != 0 {
		return c
	}
	x, y := binary.LittleEndian.Uint64(a[n:]), binary.LittleEndian.Uint64(b[m:])
	switch {
	case x > y:
		return -1
	case x < y:
		return 1
	}
	return 0
}

func (v *verifier) count(h handle) {
	v.out.Blocks++
	v.out.Bytes += h.size + trailerLen
}

// contents gives the verified and decompressed contents of a block. They are
// valid until the next one.
func (v *verifier) contents(h handle, part string) ([]byte, error) {
	serialized, err := v.whole(h, part)
	if err != nil {
		return nil, err
	}
	if serialized[h.size] == noCompression {
		return serialized[:h.size], nil
	}
	return v.t.decompress(v.s, serialized, h, part)
}

// whole gives a block with its trailer, its checksum verified.
func (v *verifier) whole(h handle, part string) ([]byte, error) {
	if err := v.t.foot.check(h, part); err != nil {
		return nil, err
	}
	serialized, ok := v.end.block(h)
	if !ok {
		var err error
		if serialized, err = v.in.read(h.offset, int(h.size)+trailerLen, &v.s.data, part); err != nil {
			return nil, err
		}
	}
	v.count(h)
	if v.t.verify {
		if err := v.t.foot.verify(serialized, h, part); err != nil {
			return nil, err
		}
	}
	return serialized, nil
}

// checksum verifies a block of any size without holding all of it.
func (v *verifier) checksum(h handle, part string) error {
	if err := v.t.foot.within(h, part); err != nil {
		return err
	}
	if _, there := v.end.block(h); there || h.size+trailerLen <= readSize/2 {
		_, err := v.whole(h, part)
		return err
	}
	sum := newDigest(v.t.foot.checksum)
	for at, left := h.offset, h.size; left > 0; {
		n := min(left, readSize/2)
		p, err := v.in.read(at, int(n), nil, part)
		if err != nil {
			return err
		}
		sum.write(p)
		at, left = at+n, left-n
	}
	trailer, err := v.in.read(h.offset+h.size, trailerLen, nil, part)
	if err != nil {
		return err
	}
	v.count(h)
	if !v.t.verify {
		return nil
	}
	return v.t.foot.match(binary.LittleEndian.Uint32(trailer[1:]), sum.sum(trailer[0]), h, part)
}

// named is a block that the metaindex names.
type named struct {
	name string
	handle
}

// metaBlocks verifies the metaindex and gives the blocks that it names, in
// file order, without the index. Two of them cannot share bytes.
func (v *verifier) metaBlocks() ([]named, error) {
	t, at := v.t, v.t.foot.metaindex
	contents, err := t.read(v.s, at, partMetaindex, v.end, &v.s.data)
	if err != nil {
		return nil, err
	}
	v.count(at)
	b := &v.s.entries
	if err := b.reset(contents, false); err != nil {
		return nil, place(err, partMetaindex, at)
	}
	var all []named
	for {
		ok, err := b.next()
		if err != nil {
			return nil, place(err, partMetaindex, at)
		}
		if !ok {
			break
		}
		h, n := decodeHandle(b.value)
		if n == 0 {
			return nil, place(malformed("a block handle for "+strconv.Quote(string(b.key)), ""), partMetaindex, at)
		}
		if err := t.foot.within(h, partOther); err != nil {
			return nil, err
		}
		if string(b.key) == "rocksdb.index" {
			continue
		}
		if all = append(all, named{string(b.key), h}); len(all) > maxMetaBlocks {
			return nil, place(malformed("at most "+strconv.Itoa(maxMetaBlocks)+" blocks", "more"), partMetaindex, at)
		}
	}
	slices.SortFunc(all, func(a, b named) int {
		switch {
		case a.offset < b.offset:
			return -1
		case a.offset > b.offset:
			return 1
		}
		return 0
	})
	for i := 1; i < len(all); i++ {
		if all[i].offset < all[i-1].end() {
			return nil, place(malformed("blocks that share no byte",
				strconv.Quote(all[i-1].name)+" and "+strconv.Quote(all[i].name)), partMetaindex, at)
		}
	}
	return all, nil
}

func (v *verifier) metaBlock(m named) error {
	switch {
	case m.name == "rocksdb.properties":
		v.count(m.handle)
		_, err := v.t.propertiesBlock(v.s, v.end)
		return err
	case m.name == "rocksdb.compression_dict":
		return v.checksum(m.handle, partDictionary)
	case m.name == "rocksdb.range_del":
		return v.rangeDeletions(m.handle)
	case len(m.name) > len(partitionedFilter) && m.name[:len(partitionedFilter)] == partitionedFilter:
		return v.filterPartitions(m.handle)
	case bytes.HasPrefix([]byte(m.name), []byte("fullfilter.")), bytes.HasPrefix([]byte(m.name), []byte("filter.")):
		return v.checksum(m.handle, partFilter)
	}
	return v.checksum(m.handle, partOther)
}

const partitionedFilter = "partitionedfilter."

// filterPartitions verifies a filter of several blocks: its index, laid out
// as that of the data blocks, and each of them.
func (v *verifier) filterPartitions(h handle) error {
	contents, err := v.t.read(v.s, h, partFilterIndex, v.end, &v.s.top)
	if err != nil {
		return err
	}
	v.count(h)
	x := &v.s.topIndex
	if err := x.reset(contents, v.t.props.IndexValueIsDeltaEncoded, false); err != nil {
		return place(err, partFilterIndex, h)
	}
	var end uint64
	return v.t.walkLevel(x, h, partFilterIndex, partFilter, nil, &end, func(f handle) error {
		return v.note(v.checksum(f, partFilter))
	})
}

func (v *verifier) rangeDeletions(h handle) error {
	if v.depth != Entries {
		return v.checksum(h, PartRangeDeletion)
	}
	contents, err := v.contents(h, PartRangeDeletion)
	if err != nil {
		return err
	}
	out := v.out
	return v.t.visitEntries(&v.s.entries, contents, h, PartRangeDeletion, func(e Entry) error {
		if e.Type != RangeDeletion {
			return place(malformed(RangeDeletion.String(), e.Type.String()), PartRangeDeletion, h)
		}
		out.RangeDeletions++
		out.RawKeySize += uint64(len(e.Key)) + 8
		out.RawValueSize += uint64(len(e.Value))
		out.SmallestSequence = min(out.SmallestSequence, e.Sequence)
		out.LargestSequence = max(out.LargestSequence, e.Sequence)
		if out.SmallestRangeStart == nil || bytes.Compare(e.Key, out.SmallestRangeStart) < 0 {
			out.SmallestRangeStart = append([]byte{}, e.Key...)
		}
		if out.LargestRangeEnd == nil || bytes.Compare(e.Value, out.LargestRangeEnd) > 0 {
			out.LargestRangeEnd = append([]byte{}, e.Value...)
		}
		return nil
	})
}

// compare holds what was counted against the properties.
func (v *verifier) compare() error {
	o, p := v.out, &v.t.props
	wrong := func(what string, said, found uint64) error {
		return place(malformed(strconv.FormatUint(said, 10)+" "+what, strconv.FormatUint(found, 10)), partProperties, v.t.propsAt)
	}
	// RocksDB does not count the blocks that it held back to make a dictionary of
	// them. The padding of aligned blocks is data, but no block's.
	if o.DataBlocks < p.DataBlocks {
		return wrong("data blocks", p.DataBlocks, o.DataBlocks)
	}
	if p.DataSize != 0 && p.DataSize < v.dataEnd {
		return wrong("bytes of data blocks", p.DataSize, v.dataEnd)
	}
	if v.depth != Entries {
		return nil
	}
	for _, c := range []struct {
		what                string
		said, found, ranges uint64
	}{
		// RocksDB 5 does not count the range deletions in the first two.
		{"entries", p.Entries, o.Entries, o.RangeDeletions},
		{"deletions", p.Deletions, o.Deletions, o.RangeDeletions},
		{"merge operands", p.MergeOperands, o.MergeOperands, 0},
		{"range deletions", p.RangeDeletions, o.RangeDeletions, 0},
	} {
		if c.said != c.found && c.said != c.found+c.ranges {
			return wrong(c.what, c.said, c.found+c.ranges)
		}
	}
	switch {
	case p.External || o.Entries+o.RangeDeletions == 0:
	case p.LargestSequenceKnown && p.LargestSequence != o.LargestSequence:
		return wrong("as the largest sequence number", p.LargestSequence, o.LargestSequence)
	case p.SmallestSequenceKnown && p.SmallestSequence != o.SmallestSequence:
		return wrong("as the smallest sequence number", p.SmallestSequence, o.SmallestSequence)
	}
	return nil
}

// ahead reads a file in large pieces, mostly from its beginning to its end.
type ahead struct {
	src   io.ReaderAt
	s     *scratch
	buf   []byte // of s
	off   uint64 // of buf in the file
	n     int    // bytes of it that are read
	limit uint64 // where the blocks of the file end
}

// read gives n bytes at off, which end before the limit, until the next call.
// More than fits is read into *large.
func (a *ahead) read(off uint64, n int, large *[]byte, part string) ([]byte, error) {
	if i := off - a.off; off >= a.off && i+uint64(n) <= uint64(a.n) {
		return a.buf[i : i+uint64(n)], nil
	}
	if a.buf == nil {
		if a.s.ahead == nil {
			a.s.ahead = make([]byte, readSize)
		}
		a.buf = a.s.ahead
	}
	// Whole pages of the file to whole pages of the buffer: the kernel copies
	// those a third faster.
	begin := off &^ (pageSize - 1)
	skip := int(off - begin)
	if skip+n > len(a.buf) {
		if cap(*large) < n {
			*large = make([]byte, n)
		}
		p := (*large)[:n]
		return p, readFull(a.src, p, int64(off), part)
	}
	have := 0
	if begin >= a.off && begin-a.off < uint64(a.n) {
		have = copy(a.buf, a.buf[begin-a.off:a.n])
	}
	m, err := a.src.ReadAt(a.buf[have:min(uint64(len(a.buf)), a.limit-begin)], int64(begin)+int64(have))
	a.off, a.n = begin, have+m
	switch {
	case a.n >= skip+n: // whatever is behind it will be tried again
		return a.buf[skip : skip+n], nil
	case err == nil || errors.Is(err, io.EOF):
		return nil, &Error{Kind: TooShort, Part: part, Offset: int64(off),
			Expected: strconv.FormatUint(off+uint64(n), 10) + " bytes", Found: strconv.FormatUint(begin+uint64(a.n), 10)}
	}
	return nil, err
}

// digest is ChecksumType.sum of a block that comes in pieces.
type digest struct {
	kind ChecksumType
	crc  uint32
	h32  hash.Hash32
	h64  hash.Hash64
}

func newDigest(kind ChecksumType) *digest {
	d := &digest{kind: kind}
	switch kind {
	case XXHash:
		d.h32 = xxh32.New32()
	case XXHash64:
		d.h64 = xxh64.New()
	case XXH3:
		d.h64 = xxh3.New()
	}
	return d
}

func (d *digest) write(p []byte) {
	switch d.kind { // none of them ever fails
	case CRC32c:
		d.crc = crc32.Update(d.crc, castagnoli, p)
	case XXHash:
		_, _ = d.h32.Write(p)
	case XXHash64, XXH3:
		_, _ = d.h64.Write(p)
	}
}

// sum ends with the block's last byte, its compression type.
func (d *digest) sum(last byte) uint32 {
	if d.kind == XXH3 {
		return xxh3Last(uint32(d.h64.Sum64()), last)
	}
	d.write([]byte{last})
	switch d.kind {
	case CRC32c:
		return maskCRC(d.crc)
	case XXHash:
		return d.h32.Sum32()
	case XXHash64:
		return uint32(d.h64.Sum64())
	}
	return 0
}

// scanner parses the entries of data blocks, one block after the other, counts
// them and looks at their order.
type scanner struct {
	key      []byte // the last one
	packed   uint64 // its sequence number and type
	hasKey   bool   // there is one to compare the next with
	first    []byte // the first key of the block, nil if that has none
	smallest []byte // of all

	entries, rawKeys, rawValues uint64
	types                       [256]uint64 // all but Value
	minPacked, maxPacked        uint64
}

// tell adds what was counted.
func (c *scanner) tell(o *Verification, p *Properties) {
	o.Entries = c.entries
	o.Deletions = c.types[Deletion] + c.types[SingleDeletion] + c.types[DeletionWithTimestamp]
	o.MergeOperands = c.types[Merge]
	o.RawKeySize, o.RawValueSize = c.rawKeys, c.rawValues
	if c.entries == 0 {
		return
	}
	o.Smallest, o.Largest = c.smallest, bytes.Clone(c.key[:len(c.key)-8])
	o.SmallestSequence, o.LargestSequence = c.minPacked>>8, c.maxPacked>>8
	if p.External && p.GlobalSequence != 0 {
		o.SmallestSequence, o.LargestSequence = p.GlobalSequence, p.GlobalSequence
	}
}

// block parses a block. The first key of an error's block is compared with
// nothing, nor is the one behind it.
func (c *scanner) block(b *block, contents []byte, ordered bool) error {
	c.first = nil
	err := b.reset(contents, false)
	if err == nil && b.separated {
		err = c.separated(b, ordered)
	} else if err == nil {
		err = c.plain(b, ordered)
	}
	c.hasKey = err == nil && (c.hasKey || c.first != nil)
	if c.smallest == nil && c.first != nil {
		c.smallest = bytes.Clone(c.first[:len(c.first)-8])
	}
	return err
}

// plain is for the layout that every RocksDB writes. It does at once what
// block.next, step and add do, which together take twice as long.
func (c *scanner) plain(b *block, ordered bool) error {
	p, restarts, off := b.data, b.restarts, 0
	next := nextRestart(&restarts)
	compare := ordered && c.hasKey
	for off < len(p) {
		q := p[off:]
		var shared, unshared, length int
		n := 3
		if len(q) > 2 && q[0]|q[1]|q[2] < 0x80 {
			shared, unshared, length = int(q[0]), int(q[1]), int(q[2])
		} else {
			var s, u, l uint32
			n = 0
			if !take(q, &n, &s) || !take(q, &n, &u) || !take(q, &n, &l) {
				return malformed("", "entry with an invalid length")
			}
			shared, unshared, length = int(s), int(u), int(l)
		}
		if off >= next || off == 0 {
			switch {
			case off > next:
				return malformed("", "restart point inside an entry")
			case off != next:
				return malformed("a restart point at the first entry", "")
			case shared != 0:
				return malformed("a whole key at a restart point", "one that shares bytes")
			}
			next = nextRestart(&restarts)
		}
		switch {
		case shared > len(c.key):
			return malformed("", "key that shares more than the one before has")
		case unshared+length > len(q)-n:
			return malformed("", "entry that runs past its block")
		case shared+unshared < 8:
			return malformed("an internal key", "a key of "+strconv.Itoa(shared+unshared)+" bytes")
		}
		rest := q[n : n+unshared]
		if off == 0 {
			c.first = rest
		}
		if was := len(c.key) - 8; compare && shared < was && unshared > 8 && c.key[shared] < rest[0] {
			// Almost always: what is shared is all that is equal, and no byte of
			// the sequence number is in it.
			c.key = append(c.key[:shared], rest...)
			c.packed = binary.LittleEndian.Uint64(rest[unshared-8:])
		} else if !c.step(shared, rest) && compare {
			return malformed("keys that ascend", "one that does not")
		}
		compare = ordered
		if err := c.add(length); err != nil {
			return err
		}
		off += n + unshared + length
	}
	if next != math.MaxInt {
		return malformed("", "restart point that is no entry")
	}
	return nil
}

func nextRestart(restarts *[]byte) int {
	if len(*restarts) < 4 {
		return math.MaxInt
	}
	at := binary.LittleEndian.Uint32(*restarts)
	*restarts = (*restarts)[4:]
	return int(at)
}

// separated is for the layout of RocksDB 11 in which values stand apart.
func (c *scanner) separated(b *block, ordered bool) error {
	compare := ordered && c.hasKey
	for {
		ok, err := b.next()
		if !ok {
			return err
		}
		if len(b.key) < 8 {
			return malformed("an internal key", "a key of "+strconv.Itoa(len(b.key))+" bytes")
		}
		if !c.step(int(b.shared), b.key[b.shared:]) && compare {
			return malformed("keys that ascend", "one that does not")
		}
		if c.first == nil {
			c.first = bytes.Clone(c.key)
		}
		compare = ordered
		if err := c.add(len(b.value)); err != nil {
			return err
		}
	}
}

// step moves to the next key, which has its first shared bytes in common with
// the one before and goes on with rest, 8 bytes in all at least. It says
// whether that one sorts behind. What they share is neither compared nor
// copied, so that the cost is bounded by the size of the block.
func (c *scanner) step(shared int, rest []byte) (behind bool) {
	was, user := len(c.key)-8, shared+len(rest)-8 // lengths of the user keys
	order := was - user                           // if one is the beginning of the other
	if shared <= was && shared <= user {
		order = bytes.Compare(c.key[shared:was], rest[:user-shared])
	}
	c.key = append(c.key[:shared], rest...)
	packed := binary.LittleEndian.Uint64(c.key[user:])
	behind = order < 0 || order == 0 && packed < c.packed
	c.packed = packed
	return behind
}

// add counts the entry that step has moved to.
func (c *scanner) add(value int) error {
	c.entries++
	c.rawKeys += uint64(len(c.key))
	c.rawValues += uint64(value)
	c.minPacked, c.maxPacked = min(c.minPacked, c.packed), max(c.maxPacked, c.packed)
	if t := Type(c.packed); t != Value {
		return c.addType(t)
	}
	return nil
}

func (c *scanner) addType(t Type) error {
	switch t {
	case Deletion, Merge, SingleDeletion, BlobIndex, DeletionWithTimestamp, WideColumnEntity, ValuePreferredSeqno:
		c.types[t]++
		return nil
	}
	return &complaint{Unsupported, "", "entry of " + t.String()}
}
