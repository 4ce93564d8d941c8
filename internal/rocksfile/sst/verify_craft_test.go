package sst

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
)

func internalKey(user string, sequence uint64, kind Type) string {
	return string(binary.LittleEndian.AppendUint64([]byte(user), sequence<<8|uint64(kind)))
}

func value(user string) string { return internalKey(user, 1, Value) }

// entryBlock has whole keys, and a restart point at the first.
func entryBlock(keys ...string) []byte {
	var b []byte
	for _, k := range keys {
		b = appendEntry(b, 0, k, "v")
	}
	return restart(b)
}

// TestVerifyWithoutChecksums: what the checksums cannot tell, and no RocksDB
// writes.
func TestVerifyWithoutChecksums(t *testing.T) {
	t.Parallel()
	plain := func(separators []string, blocks ...[]byte) func(*crafted) handle {
		return func(c *crafted) handle {
			var index []byte
			for i, b := range blocks {
				index = appendEntry(index, 0, separators[i], string(c.add(b).encode()))
			}
			return c.add(restart(index))
		}
	}
	two := func(a, b []byte) func(*crafted) handle {
		return plain([]string{value("c"), value("z")}, a, b)
	}
	number := func(name string, n uint64) [2]string {
		return [2]string{"rocksdb." + name, string(binary.AppendUvarint(nil, n))}
	}
	counts := [][2]string{number("num.entries", 4), number("num.data.blocks", 2), number("data.size", 1<<20)}
	healthy := two(entryBlock(value("a"), value("b")), entryBlock(value("d"), value("e")))
	change := func(b []byte, at int, to byte) []byte {
		c := bytes.Clone(b)
		c[(at+len(c))%len(c)] = to
		return c
	}
	for _, c := range []struct {
		name       string
		properties [][2]string
		build      func(*crafted) handle
		part, says string // of the only error; "" if there is none
	}{
		{"healthy", counts, healthy, "", ""},
		{"versions of a key", counts, two(entryBlock(internalKey("a", 3, Value), internalKey("a", 2, Value)),
			entryBlock(value("d"), value("e"))), "", ""},
		{"versions in the wrong order", nil, two(entryBlock(internalKey("a", 2, Value), internalKey("a", 3, Value)),
			entryBlock(value("d"))), PartData, "keys that ascend"},
		{"the same twice", nil, two(entryBlock(value("a"), value("a")), entryBlock(value("d"))), PartData, "keys that ascend"},
		{"keys in the wrong order", nil, two(entryBlock(value("b"), value("a")), entryBlock(value("d"))), PartData, "keys that ascend"},
		{"key that is the beginning of the one before", nil, two(entryBlock(value("bb"), value("b")), entryBlock(value("d"))), PartData, "keys that ascend"},
		{"blocks in the wrong order", nil, two(entryBlock(value("b"), value("c")), entryBlock(value("a"))), PartData, "keys that ascend"},
		{"another comparator", [][2]string{{"rocksdb.comparator", "another"}}, two(entryBlock(value("b"), value("a")), entryBlock(value("a"))), "", ""},
		{"first key before the separator", nil, plain([]string{value("e"), value("z")}, entryBlock(value("a")), entryBlock(value("d"))),
			PartData, "a first key behind the separator"},
		{"last key behind the separator", nil, plain([]string{value("a"), value("z")}, entryBlock(value("a"), value("b")), entryBlock(value("d"))),
			PartIndex, "a separator at or behind the last key of the block at 0"},
		{"key without sequence number", nil, two(entryBlock("short"), entryBlock(value("d"))), PartData, "an internal key"},
		{"type that is none", nil, two(entryBlock(internalKey("a", 1, 0x60)), entryBlock(value("d"))), PartData, "entry of type 0x60"},
		{"restart point in an entry", nil, two(change(entryBlock(value("a"), value("b")), -8, 5), entryBlock(value("d"))), PartData, "restart point"},
		{"restart point beyond the entries", nil, two(restartAt(entryBlock(value("a")), 200), entryBlock(value("d"))), PartData, "restart point"},
		{"value that runs past its block", nil, two(change(entryBlock(value("a")), 2, 100), entryBlock(value("d"))), PartData, "runs past"},
		{"fewer entries than said", [][2]string{number("num.entries", 5)}, healthy, partProperties, "5 entries, found 4"},
		{"fewer blocks than said", append([][2]string{number("num.data.blocks", 3)}, counts[0]), healthy, partProperties, "3 data blocks, found 2"},
		{"more bytes than said", append([][2]string{number("data.size", 20)}, counts[0]), healthy, partProperties, "20 bytes of data blocks"},
		{"deletions", append([][2]string{number("deleted.keys", 1)}, counts...), healthy, partProperties, "1 deletions, found 0"},
		{"merge operands", append([][2]string{number("merge.operands", 1)}, counts...), healthy, partProperties, "1 merge operands, found 0"},
		{"range deletions", append([][2]string{number("num.range-deletions", 1)}, counts...), healthy, partProperties, "1 range deletions, found 0"},
		{"largest sequence number", append([][2]string{number("key.largest.seqno", 9)}, counts...), healthy, partProperties, "9 as the largest sequence number, found 1"},
		{"smallest sequence number", append([][2]string{number("key.smallest.seqno", 0)}, counts...), healthy, partProperties, "0 as the smallest sequence number, found 1"},
	} {
		f := &crafted{properties: c.properties}
		if c.properties == nil { // what is wrong in the blocks comes first anyway
			f.properties = counts
		}
		index := c.build(f)
		data := f.finish(index)
		table, err := Open(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(c.name, err)
		}
		v, err := table.Verify(Entries)
		switch {
		case err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.says == "":
			// The comparator of another order has other counts here.
			if len(v.Errors) > 0 && v.Errors[0].Part != partProperties || len(v.Errors) > 0 && c.name != "another comparator" {
				t.Errorf("%s: %v", c.name, v.Errors)
			}
		case len(v.Errors) != 1 || v.Errors[0].Part != c.part || !strings.Contains(v.Errors[0].Error(), c.says):
			t.Errorf("%s: %v, want %q of the %s", c.name, v.Errors, c.says, c.part)
		}
	}
}

// restartAt adds a second restart point.
func restartAt(b []byte, at uint32) []byte {
	b = binary.LittleEndian.AppendUint32(bytes.Clone(b[:len(b)-4]), at)
	return binary.LittleEndian.AppendUint32(b, 2)
}
