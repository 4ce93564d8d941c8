package sst

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"strconv"

	xxh32 "github.com/OneOfOne/xxhash"
	xxh64 "github.com/cespare/xxhash/v2"
	"github.com/zeebo/xxh3"
)

// Numbers of RocksDB table/format.h and table/format.cc.
const (
	magicNumber       = 0x88e241b785f4cff7
	legacyMagicNumber = 0xdb4775248b80fb57 // format_version 0

	maxFormatVersion = 7
	// From this version on the footer has a checksum, blocks are bound to
	// their place, and the index is found through the metaindex.
	contextVersion = 6
	// From this version on the properties name the compression manager.
	managerVersion = 7

	legacyFooterLen = 48
	footerLen       = 53
	trailerLen      = 5 // compression type, checksum
	maxBlock        = 64 << 20
)

// Table formats of RocksDB that are not block-based.
var foreignMagic = map[uint64]string{
	0x8242229663bf9564: "plain table",
	0x4f3418eb7a8f13b8: "plain table",
	0x926789d0c5f17873: "cuckoo table",
}

var extendedMagic = []byte{0x3e, 0x00, 0x7a, 0x00}

// ChecksumType is how the blocks of a file are checked (RocksDB
// include/rocksdb/table.h, ChecksumType).
type ChecksumType uint8

// The checksum types up to RocksDB 11.
const (
	NoChecksum ChecksumType = iota
	CRC32c
	XXHash
	XXHash64
	XXH3
)

func (c ChecksumType) String() string {
	switch c {
	case NoChecksum:
		return "none"
	case CRC32c:
		return "crc32c"
	case XXHash:
		return "xxHash"
	case XXHash64:
		return "xxHash64"
	case XXH3:
		return "XXH3"
	default:
		return "checksum type " + strconv.Itoa(int(c))
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const crcMask = 0xa282ead8

// sum is the checksum of data as it is stored, before the context is added
// (table/format.cc ComputeBuiltinChecksum).
func (c ChecksumType) sum(data []byte) uint32 {
	switch c {
	case CRC32c:
		return maskCRC(crc32.Checksum(data, castagnoli))
	case XXHash:
		return xxh32.Checksum32(data)
	case XXHash64:
		return uint32(xxh64.Sum64(data))
	case XXH3:
		last := len(data) - 1
		return xxh3Last(uint32(xxh3.Hash(data[:last])), data[last])
	default:
		return 0
	}
}

func maskCRC(crc uint32) uint32 { return bits.RotateLeft32(crc, -15) + crcMask }

// xxh3Last mixes in the last byte, a block's compression type, which comes
// after the hash.
func xxh3Last(sum uint32, last byte) uint32 { return sum ^ uint32(last)*0x6b9083d9 }

// shown is a checksum as RocksDB's messages print it.
func (c ChecksumType) shown(sum uint32) string {
	if c == CRC32c {
		sum = bits.RotateLeft32(sum-crcMask, 15)
	}
	return strconv.FormatUint(uint64(sum), 10)
}

// contextModifier binds a checksum to a file and to a place in it. It is zero
// before format_version 6, where base is.
func contextModifier(base uint32, offset uint64) uint32 {
	if base == 0 {
		return 0
	}
	return base ^ (uint32(offset) + uint32(offset>>32))
}

// handle is the place of a block: its offset, and its size without the trailer.
type handle struct{ offset, size uint64 }

// end is the first byte after the block's trailer. It cannot overflow for a
// handle that has passed footer.within.
func (h handle) end() uint64 { return h.offset + h.size + trailerLen }

func decodeHandle(p []byte) (h handle, n int) {
	offset, n1 := binary.Uvarint(p)
	if n1 <= 0 {
		return handle{}, 0
	}
	size, n2 := binary.Uvarint(p[n1:])
	if n2 <= 0 {
		return handle{}, 0
	}
	return handle{offset, size}, n1 + n2
}

type footer struct {
	offset    uint64 // in the file: blocks end here at the latest
	version   uint32
	checksum  ChecksumType
	base      uint32 // base context checksum, 0 before format_version 6
	metaindex handle
	index     handle // zero from format_version 6 on: it is in the metaindex
}

// parseFooter reads the footer at the end of tail, which is the end of a file
// of that size. See the comment above FooterBuilder::Build in RocksDB
// table/format.cc for the three layouts.
func parseFooter(tail []byte, size int64, verify bool) (footer, error) {
	if len(tail) < legacyFooterLen {
		return footer{}, &Error{Kind: TooShort, Part: PartFooter,
			Expected: "at least " + strconv.Itoa(legacyFooterLen) + " bytes", Found: decimal(size)}
	}
	magic := binary.LittleEndian.Uint64(tail[len(tail)-8:])
	switch {
	case magic == legacyMagicNumber:
		f := footer{offset: uint64(size) - legacyFooterLen, checksum: CRC32c}
		err := f.parseHandles(tail[len(tail)-legacyFooterLen:])
		return f, err
	case magic != magicNumber && foreignMagic[magic] != "":
		return footer{}, &Error{Kind: Unsupported, Part: PartFooter, Offset: size - 8,
			Expected: "block-based table", Found: foreignMagic[magic]}
	case magic != magicNumber:
		return footer{}, &Error{Kind: BadMagic, Part: PartFooter, Offset: size - 8,
			Expected: strconv.FormatUint(magicNumber, 10), Found: strconv.FormatUint(magic, 10)}
	case len(tail) < footerLen:
		return footer{}, &Error{Kind: TooShort, Part: PartFooter,
			Expected: "at least " + strconv.Itoa(footerLen) + " bytes", Found: decimal(size)}
	}
	raw := tail[len(tail)-footerLen:]
	f := footer{
		offset:   uint64(size) - footerLen,
		checksum: ChecksumType(raw[0]),
		version:  binary.LittleEndian.Uint32(raw[41:]),
	}
	if f.version > maxFormatVersion || f.checksum > XXH3 {
		if verify && f.isDamaged(raw) {
			return footer{}, f.fail(FooterChecksum, "", f.describe())
		}
		return footer{}, f.fail(Unsupported, "format_version up to "+strconv.Itoa(maxFormatVersion), f.describe())
	}
	if f.version < contextVersion {
		err := f.parseHandles(raw[1:])
		return f, err
	}
	f.base = binary.LittleEndian.Uint32(raw[9:])
	if stored, computed := binary.LittleEndian.Uint32(raw[5:]), f.sum(raw); verify && stored != computed {
		return footer{}, f.fail(FooterChecksum,
			strconv.FormatUint(uint64(stored), 10), strconv.FormatUint(uint64(computed), 10))
	}
	metaindex := uint64(binary.LittleEndian.Uint32(raw[13:]))
	switch {
	case !bytes.Equal(raw[1:5], extendedMagic):
		return footer{}, f.fail(Malformed, "the extended magic number", strconv.Quote(string(raw[1:5])))
	case f.base == 0:
		return footer{}, f.fail(Malformed, "a base context checksum", "0")
	case binary.LittleEndian.Uint64(raw[33:]) != 0:
		return footer{}, f.fail(Unsupported, "", "a feature that uses the footer's reserved bytes")
	case metaindex+trailerLen > f.offset:
		return footer{}, f.fail(Malformed, "a metaindex block within the file",
			"one of "+strconv.FormatUint(metaindex, 10)+" bytes")
	}
	f.metaindex = handle{f.offset - trailerLen - metaindex, metaindex}
	return f, nil
}

// sum is the checksum of a footer of format_version 6 or later.
func (f *footer) sum(raw []byte) uint32 {
	var c [footerLen]byte
	copy(c[:], raw)
	clear(c[5:9])
	return f.checksum.sum(c[:]) + contextModifier(f.base, f.offset)
}

// isDamaged proves that an unknown format version or checksum type is a
// damaged byte and not a newer RocksDB: with a known one in its place the
// footer's checksum fits. Nothing can be proved of a footer that is older
// than format_version 6, because it has none.
func (f *footer) isDamaged(raw []byte) bool {
	var c [footerLen]byte
	copy(c[:], raw)
	stored := binary.LittleEndian.Uint32(raw[5:])
	versions := []uint32{f.version}
	if f.version > maxFormatVersion {
		versions = []uint32{contextVersion, maxFormatVersion}
	}
	types := []ChecksumType{f.checksum}
	if f.checksum > XXH3 {
		types = []ChecksumType{CRC32c, XXHash, XXHash64, XXH3}
	}
	for _, v := range versions {
		binary.LittleEndian.PutUint32(c[41:], v)
		for _, t := range types {
			c[0] = byte(t)
			g := footer{offset: f.offset, checksum: t, base: binary.LittleEndian.Uint32(raw[9:])}
			if v >= contextVersion && t != NoChecksum && g.sum(c[:]) == stored {
				return true
			}
		}
	}
	return false
}

func (f *footer) describe() string {
	return "format_version " + strconv.FormatUint(uint64(f.version), 10) + ", " + f.checksum.String()
}

func (f *footer) parseHandles(p []byte) error {
	var n, m int
	f.metaindex, n = decodeHandle(p[:40])
	if n > 0 {
		f.index, m = decodeHandle(p[n:40])
	}
	if m == 0 {
		return f.fail(Malformed, "two block handles", "")
	}
	return nil
}

func (f *footer) fail(k Kind, expected, found string) error {
	return &Error{Kind: k, Part: PartFooter, Offset: int64(f.offset), Expected: expected, Found: found}
}

// within says whether a block may lie at h.
func (f *footer) within(h handle, part string) error {
	// Not h.end(): a damaged handle may overflow it.
	if f.offset < trailerLen || h.size > f.offset-trailerLen || h.offset > f.offset-trailerLen-h.size {
		return &Error{Kind: Malformed, Part: part, Offset: int64(min(h.offset, f.offset)),
			Expected: "a block that ends before the footer at " + strconv.FormatUint(f.offset, 10),
			Found: "one of " + strconv.FormatUint(h.size, 10) + " bytes at " +
				strconv.FormatUint(h.offset, 10)}
	}
	return nil
}

// check says beside that whether a block is one to read as a whole.
func (f *footer) check(h handle, part string) error {
	if err := f.within(h, part); err != nil {
		return err
	}
	if h.size > maxBlock {
		return &Error{Kind: TooLarge, Part: part, Offset: int64(h.offset), Size: int64(h.size),
			Expected: "at most " + strconv.Itoa(maxBlock) + " bytes", Found: strconv.FormatUint(h.size, 10)}
	}
	return nil
}

// verify compares the checksum in a block's trailer. serialized is the block
// with its trailer.
func (f *footer) verify(serialized []byte, h handle, part string) error {
	return f.match(binary.LittleEndian.Uint32(serialized[h.size+1:]), f.checksum.sum(serialized[:h.size+1]), h, part)
}

// match compares the checksum of a block as it is stored with the computed one.
func (f *footer) match(stored, computed uint32, h handle, part string) error {
	stored -= contextModifier(f.base, h.offset)
	if stored == computed {
		return nil
	}
	return &Error{Kind: BlockChecksum, Part: part, Offset: int64(h.offset), Size: int64(h.size),
		Expected: f.checksum.shown(stored), Found: f.checksum.shown(computed)}
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }
