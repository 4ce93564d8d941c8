package sst

import (
	"bytes"
	"encoding/binary"
	"math"
)

// crafted assembles files that no RocksDB writes, to try what hostile bytes
// can cost. What the format means is never tested with them, only with files
// that RocksDB wrote. format_version 5 without checksums.
type crafted struct {
	bytes.Buffer
	properties [][2]string // beyond what finish adds
	base       uint64      // bytes of the file before these
}

// add appends a block and returns its handle.
func (c *crafted) add(contents []byte) handle {
	h := handle{c.base + uint64(c.Len()), uint64(len(contents))}
	c.Write(contents)
	c.Write(make([]byte, trailerLen))
	return h
}

func (h handle) encode() []byte {
	return binary.AppendUvarint(binary.AppendUvarint(nil, h.offset), h.size)
}

// finish adds properties, metaindex and footer.
func (c *crafted) finish(index handle, more ...[2]string) []byte {
	var props, meta []byte
	for _, p := range append([][2]string{{"rocksdb.comparator", Bytewise}}, c.properties...) {
		props = appendEntry(props, 0, p[0], p[1])
	}
	meta = appendEntry(meta, 0, "rocksdb.properties", string(c.add(restart(props)).encode()))
	for _, m := range more {
		meta = appendEntry(meta, 0, m[0], m[1])
	}
	at := c.add(restart(meta))
	foot := make([]byte, footerLen)
	copy(foot[1:], append(at.encode(), index.encode()...))
	foot[41] = 5
	binary.LittleEndian.PutUint64(foot[45:], magicNumber)
	c.Write(foot)
	return c.Bytes()
}

func appendEntry(b []byte, shared int, unshared, value string) []byte {
	b = binary.AppendUvarint(b, uint64(shared))
	b = binary.AppendUvarint(b, uint64(len(unshared)))
	b = binary.AppendUvarint(b, uint64(len(value)))
	return append(append(b, unshared...), value...)
}

func appendUvarints(b []byte, values ...uint64) []byte {
	for _, v := range values {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

// restart makes a block of entries with one restart point.
func restart(entries []byte) []byte {
	return append(bytes.Clone(entries), 0, 0, 0, 0, 1, 0, 0, 0)
}

// hostile gives files of about size bytes that are as costly to read as their
// size allows, by what makes them so.
func hostile(size int) map[string][]byte {
	one := func(entries []byte) []byte { // a single data block
		var c crafted
		h := c.add(restart(entries))
		return c.finish(c.add(restart(appendEntry(nil, 0, "\xff\xff\xff\xff\xff\xff\xff\xff\xff", string(h.encode())))))
	}
	fill := func(b []byte, entry []byte, until int) []byte {
		for len(b) < until {
			b = append(b, entry...)
		}
		return b
	}
	files := map[string][]byte{}

	files["many entries"] = one(fill(appendEntry(nil, 0, "\x012345678", ""), appendEntry(nil, 8, "", ""), size))

	long := string(make([]byte, size/2))
	files["long key shared by many"] = one(fill(appendEntry(nil, 0, long, ""), appendEntry(nil, size/2, "", ""), size))
	var grow []byte
	for n := 8; len(grow) < size; n++ {
		grow = appendEntry(grow, max(0, n-8), "\x012345678"[:min(8, n)], "")
	}
	files["key that grows"] = one(grow)

	// The same user key again and again, each a version older than the one before.
	older := appendEntry(nil, 0, string(make([]byte, size/2))+"\x01\xff\xff\xff\xff\xff\xff\xff", "")
	for i := uint32(0); len(older) < size; i++ {
		older = appendEntry(older, size/2+4, string(binary.LittleEndian.AppendUint32(nil, math.MaxUint32-1-i)), "")
	}
	files["versions of a long key"] = one(older)

	delta := [][2]string{
		{"rocksdb.block.based.table.index.type", "\x00\x00\x00\x00"},
		{"rocksdb.index.key.is.user.key", "\x01"},
		{"rocksdb.index.value.is.delta.encoded", "\x01"},
	}
	// n empty blocks and the delta-encoded index of them: 12 bytes for each.
	empty := func(c *crafted, n int) []byte {
		index := append([]byte{0, 1, 'k'}, handle{uint64(c.Len()), 4}.encode()...)
		for range n {
			c.add([]byte{0, 0, 0, 0})
			index = append(index, 1, 0, 0) // same key, same size
		}
		return restart(index[:len(index)-3])
	}
	many := &crafted{properties: delta}
	files["many blocks"] = many.finish(many.add(empty(many, size/12)))

	far := &crafted{properties: delta}
	at := handle{uint64(far.Len()), 24}
	index := appendUvarints(nil, 0, uint64(size/2))
	index = append(append(index, make([]byte, size/2)...), at.encode()...)
	for i := range size / 50 {
		far.add(restart(appendEntry(nil, 0, string(binary.BigEndian.AppendUint32(nil, uint32(i)))+"\x012345678", "v")))
		index = append(appendUvarints(index, uint64(size/2), 1), byte(i), 0)
	}
	files["long separator shared by many"] = far.finish(far.add(restart(index[:len(index)-len(appendUvarints(nil, uint64(size/2), 1))-2])))

	levels := append([][2]string{{delta[0][0], "\x02\x00\x00\x00"}}, delta[1:]...)
	hollow := &crafted{properties: levels}
	files["many empty partitions"] = hollow.finish(hollow.add(empty(hollow, size/12)))

	two := &crafted{properties: levels}
	var data []handle
	for range size / 36 {
		data = append(data, two.add([]byte{0, 0, 0, 0}))
	}
	var top []byte
	for _, h := range data {
		h = two.add(restart(append([]byte{0, 1, 'k'}, h.encode()...)))
		top = append(append(top, 0, 1, 'k'), h.encode()...)
	}
	files["many partitions"] = two.finish(two.add(restart(top)))

	props := &crafted{}
	for range size / 8 {
		props.properties = append(props.properties, [2]string{"", ""})
	}
	props.properties = append(props.properties, [2]string{"rocksdb.column.family.name", string(make([]byte, size/2))})
	files["many properties and a long one"] = props.finish(props.add(restart(nil)))

	texts := &crafted{}
	for range size / 4096 {
		texts.properties = append(texts.properties, [2]string{"rocksdb.merge.operator", string(make([]byte, maxText))})
	}
	files["one property again and again"] = texts.finish(texts.add(restart(nil)))

	meta := &crafted{}
	var again [][2]string
	for range size / 12 {
		again = append(again, [2]string{"rocksdb.x", ""})
	}
	files["many meta blocks"] = meta.finish(meta.add(restart(nil)), again...)

	ranges := &crafted{}
	h := ranges.add(restart(fill(appendEntry(nil, 0, "\x012345678", ""), appendEntry(nil, 8, "", ""), size)))
	files["range deletions that are the data block"] = ranges.finish(
		ranges.add(restart(appendEntry(nil, 0, "kkkkkkkkk", string(h.encode())))),
		[2]string{"rocksdb.range_del", string(h.encode())})
	return files
}
