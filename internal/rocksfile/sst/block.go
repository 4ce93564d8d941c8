package sst

import (
	"encoding/binary"
	"math"
)

// Bits of the last word of a block beside the number of restart points
// (RocksDB table/block_based/data_block_footer.cc). Before RocksDB 11 only
// the first existed; the others were impossible numbers of restart points.
// Bit 29 is advice for the search of an index and changes no layout.
const (
	hashIndexBit = 1 << 31
	futureBit    = 1 << 30
	separatedBit = 1 << 28
	restartsMask = 1<<28 - 1
)

// block walks the entries of one block in order. See the comment at the top
// of RocksDB table/block_based/block_builder.cc for the layout.
//
// Memory stays within the block's own size: a key keeps the bytes that it
// shares with the one before, and values are not copied.
type block struct {
	data  []byte // the entries
	off   int    // of the next one
	delta bool   // entries have no value length, see indexBlock

	// In RocksDB 11 values may stand apart from the keys. Then the entry at a
	// restart point says where its value is, and the others follow on.
	separated bool
	values    []byte
	valueOff  int
	restarts  []byte // what is left of the restart array

	key    []byte // of the current entry, valid until next
	value  []byte // of the current entry; for delta the rest of the block
	shared uint32 // bytes that the key has in common with the one before
}

// reset starts on the contents of another block.
func (b *block) reset(contents []byte, delta bool) error {
	*b = block{key: b.key[:0], delta: delta}
	if len(contents) < 4 {
		return malformed("", "block without a footer")
	}
	contents, word := cutWord(contents)
	if word&futureBit != 0 {
		return &complaint{Unsupported, "", "feature bit 30 in a block"}
	}
	valuesAt := 0
	if word&separatedBit != 0 {
		if len(contents) < 4 {
			return malformed("", "block too small for the place of its values")
		}
		var at uint32
		contents, at = cutWord(contents)
		valuesAt = int(at)
	}
	if word&hashIndexBit != 0 {
		n := len(contents) - 2
		if n < 0 {
			return malformed("", "block too small for its hash index")
		}
		n -= int(binary.LittleEndian.Uint16(contents[n:]))
		if n < 0 {
			return malformed("", "hash index larger than its block")
		}
		contents = contents[:n]
	}
	restarts := int(word & restartsMask)
	if restarts > len(contents)/4 {
		return malformed("", "restart array larger than its block")
	}
	entries := len(contents) - 4*restarts
	b.data, b.restarts = contents[:entries], contents[entries:]
	if word&separatedBit != 0 {
		if valuesAt > entries {
			return malformed("", "values outside their block")
		}
		b.separated = true
		b.data, b.values = contents[:valuesAt], contents[valuesAt:entries]
	}
	if restarts == 0 && len(b.data) > 0 {
		return malformed("", "entries without a restart point")
	}
	return nil
}

func cutWord(p []byte) (rest []byte, word uint32) {
	n := len(p) - 4
	return p[:n], binary.LittleEndian.Uint32(p[n:])
}

// next moves to the next entry; false at the end.
func (b *block) next() (bool, error) {
	if b.off >= len(b.data) {
		return false, nil
	}
	p := b.data[b.off:]
	var shared, unshared, length uint32
	var n int
	switch {
	case !b.delta && len(p) > 2 && p[0]|p[1]|p[2] < 0x80:
		shared, unshared, length, n = uint32(p[0]), uint32(p[1]), uint32(p[2]), 3
	case b.delta && len(p) > 1 && p[0]|p[1] < 0x80:
		shared, unshared, n = uint32(p[0]), uint32(p[1]), 2
	default:
		ok := take(p, &n, &shared) && take(p, &n, &unshared) && (b.delta || take(p, &n, &length))
		if !ok {
			return false, malformed("", "entry with an invalid length")
		}
	}
	if b.separated {
		restart, err := b.atRestart()
		if err != nil {
			return false, err
		}
		var at uint32
		if restart {
			if !take(p, &n, &at) {
				return false, malformed("", "entry with an invalid place of its value")
			}
			b.valueOff = int(at)
		}
	}
	if uint64(shared) > uint64(len(b.key)) {
		return false, malformed("", "key that shares more than the one before has")
	}
	if uint64(unshared) > uint64(len(p)-n) {
		return false, malformed("", "key that runs past its block")
	}
	b.shared = shared
	b.key = append(b.key[:shared], p[n:n+int(unshared)]...)
	n += int(unshared)
	switch {
	case b.separated:
		if b.valueOff > len(b.values) || uint64(length) > uint64(len(b.values)-b.valueOff) {
			return false, malformed("", "value that runs past its block")
		}
		b.value = b.values[b.valueOff : b.valueOff+int(length)]
		b.valueOff += int(length)
	case b.delta:
		b.value = p[n:]
	default:
		if uint64(length) > uint64(len(p)-n) {
			return false, malformed("", "value that runs past its block")
		}
		b.value = p[n : n+int(length)]
		n += int(length)
	}
	b.off += n
	return true, nil
}

// atRestart says whether the next entry is at a restart point.
func (b *block) atRestart() (bool, error) {
	if len(b.restarts) < 4 {
		return false, nil
	}
	at := int64(binary.LittleEndian.Uint32(b.restarts))
	if at < int64(b.off) {
		return false, malformed("", "restart point inside an entry")
	}
	if at > int64(b.off) {
		return false, nil
	}
	b.restarts = b.restarts[4:]
	return true, nil
}

// take reads a varint32 at p[*n:] and moves n behind it.
func take(p []byte, n *int, v *uint32) bool {
	u, m := binary.Uvarint(p[*n:])
	if m <= 0 || u > math.MaxUint32 {
		return false
	}
	*n += m
	*v = uint32(u)
	return true
}

// indexBlock walks an index block: separator keys and block handles.
type indexBlock struct {
	block
	firstKey bool // each handle is followed by the block's first key
	handle   handle
	first    []byte // that key
}

func (x *indexBlock) reset(contents []byte, delta, firstKey bool) error {
	x.handle, x.firstKey = handle{}, firstKey
	if err := x.block.reset(contents, delta); err != nil {
		return err
	}
	if x.separated {
		return &complaint{Unsupported, "", "index block with separated values"}
	}
	return nil
}

// next moves to the next entry. Where values are delta-encoded, an entry
// whose key shares bytes with the one before has only the difference of the
// sizes, and its block is the one right behind (RocksDB table/format.cc,
// IndexValue::DecodeFrom). The handle is not checked against the file.
func (x *indexBlock) next() (bool, error) {
	ok, err := x.block.next()
	if !ok {
		return false, err
	}
	var n int
	if x.delta && x.shared > 0 {
		var d int64
		d, n = binary.Varint(x.value)
		x.handle = handle{x.handle.end(), x.handle.size + uint64(d)}
	} else {
		x.handle, n = decodeHandle(x.value)
	}
	if n <= 0 {
		return false, malformed("a block handle", "")
	}
	if x.firstKey {
		length, m := binary.Uvarint(x.value[n:])
		if m <= 0 || length > uint64(len(x.value)-n-m) {
			return false, malformed("a first key behind the block handle", "")
		}
		x.first = x.value[n+m : n+m+int(length)]
		n += m + int(length)
	}
	if x.delta {
		x.off += n
	}
	return true, nil
}

// release forgets the contents and keeps only the key's buffer.
func (b *block) release() { *b = block{key: b.key[:0]} }
