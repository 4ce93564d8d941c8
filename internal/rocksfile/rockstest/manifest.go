package rockstest

import (
	"cmp"
	"encoding/binary"
	"fmt"
)

// Edit is an encoded MANIFEST edit. Each method appends one field, in the order
// of the calls, and returns the longer edit; nothing is checked.
type Edit []byte

// File is a table that an edit adds. The keys are made up where they are empty.
type File struct {
	Level                   int
	Number, Size            uint64
	Smallest, Largest       string // user keys
	SmallestSeq, LargestSeq uint64
	CreationTime            uint64 // 0: the field is not written
	OldestBlob              uint64 // 0: the field is not written
	PathID                  uint32
	UniqueID                string // 16 bytes; "": 0123456789abcdef
}

func (e Edit) uvarint(values ...uint64) Edit {
	for _, v := range values {
		e = binary.AppendUvarint(e, v)
	}
	return e
}

func (e Edit) str(s string) Edit { return append(e.uvarint(uint64(len(s))), s...) }

// Comparator appends tag 1.
func (e Edit) Comparator(name string) Edit { return e.uvarint(1).str(name) }

// LogNumber appends tag 2.
func (e Edit) LogNumber(n uint64) Edit { return e.uvarint(2, n) }

// NextFile appends tag 3, which marks an edit as an event.
func (e Edit) NextFile(n uint64) Edit { return e.uvarint(3, n) }

// LastSequence appends tag 4.
func (e Edit) LastSequence(n uint64) Edit { return e.uvarint(4, n) }

// CompactCursor appends tag 5.
func (e Edit) CompactCursor(level int, key string) Edit {
	return e.uvarint(5, uint64(level)).str(internalKey(key, 1))
}

// Delete appends tag 6.
func (e Edit) Delete(level int, number uint64) Edit { return e.uvarint(6, uint64(level), number) }

// PrevLog appends tag 9.
func (e Edit) PrevLog(n uint64) Edit { return e.uvarint(9, n) }

// MinLogToKeep appends tag 10.
func (e Edit) MinLogToKeep(n uint64) Edit { return e.uvarint(10, n) }

// Add appends tag 103 with the fields that RocksDB 10.1 writes.
func (e Edit) Add(f File) Edit {
	e = e.fileHead(103, f).uvarint(f.SmallestSeq, f.LargestSeq)
	e = e.FileField(5, string(binary.AppendUvarint(nil, 0)))
	if f.CreationTime > 0 {
		e = e.FileField(6, string(binary.AppendUvarint(nil, f.CreationTime)))
	}
	e = e.FileField(13, string(binary.AppendUvarint(nil, f.Number)))
	if f.PathID > 0 {
		e = e.FileField(65, string([]byte{byte(f.PathID)}))
	}
	if f.OldestBlob > 0 {
		e = e.FileField(4, string(binary.AppendUvarint(nil, f.OldestBlob)))
	}
	e = e.FileField(12, cmp.Or(f.UniqueID, "0123456789abcdef"))
	return e.EndFile()
}

// BeginFile appends tag 103 up to the fields, for FileField and EndFile.
func (e Edit) BeginFile(f File) Edit { return e.fileHead(103, f).uvarint(f.SmallestSeq, f.LargestSeq) }

// FileField appends one field of a table.
func (e Edit) FileField(field uint64, value string) Edit { return e.uvarint(field).str(value) }

// EndFile ends the fields of a table.
func (e Edit) EndFile() Edit { return e.uvarint(1) }

// AddOld appends one of the old forms: tag 7, 100 or 102.
func (e Edit) AddOld(tag uint64, f File) Edit {
	e = e.fileHead(tag, f)
	if tag == 7 {
		return e
	}
	return e.uvarint(f.SmallestSeq, f.LargestSeq)
}

func (e Edit) fileHead(tag uint64, f File) Edit {
	if f.Smallest == "" {
		f.Smallest = fmt.Sprintf("k%07d", f.Number*1000)
	}
	if f.Largest == "" {
		f.Largest = fmt.Sprintf("k%07d", f.Number*1000+999)
	}
	e = e.uvarint(tag, uint64(f.Level), f.Number)
	if tag == 102 {
		e = e.uvarint(uint64(f.PathID))
	}
	return e.uvarint(f.Size).str(internalKey(f.Smallest, f.SmallestSeq)).str(internalKey(f.Largest, f.LargestSeq))
}

func internalKey(user string, seq uint64) string {
	return string(binary.LittleEndian.AppendUint64([]byte(user), seq<<8|1))
}

// Family appends tag 200; nothing for the family 0, as RocksDB does.
func (e Edit) Family(id uint32) Edit {
	if id == 0 {
		return e
	}
	return e.uvarint(200, uint64(id))
}

// AddFamily appends tags 200 and 201.
func (e Edit) AddFamily(id uint32, name string) Edit { return e.Family(id).uvarint(201).str(name) }

// DropFamily appends tags 200 and 202.
func (e Edit) DropFamily(id uint32) Edit { return e.Family(id).uvarint(202) }

// MaxFamily appends tag 203.
func (e Edit) MaxFamily(id uint32) Edit { return e.uvarint(203, uint64(id)) }

// Group appends tag 300: so many edits of the atomic group follow this one.
func (e Edit) Group(remaining uint32) Edit { return e.uvarint(300, uint64(remaining)) }

// AddBlob appends tag 400.
func (e Edit) AddBlob(number, count, size uint64) Edit {
	return e.uvarint(400, number, count, size).str("").str("").uvarint(0)
}

// BlobGarbage appends tag 401.
func (e Edit) BlobGarbage(number, count, size uint64) Edit {
	return e.uvarint(401, number, count, size, 0)
}

// DBID appends tag 8193.
func (e Edit) DBID(id string) Edit { return e.uvarint(8193).str(id) }

// AddWAL appends tag 8199; without a synced size if that is negative.
func (e Edit) AddWAL(number uint64, synced int64) Edit {
	w := Edit{}.uvarint(number)
	if synced >= 0 {
		w = w.uvarint(2, uint64(synced))
	}
	return e.uvarint(8199).str(string(w.uvarint(1)))
}

// DeleteWALsBefore appends tag 8200.
func (e Edit) DeleteWALsBefore(number uint64) Edit {
	return e.uvarint(8200).str(string(Edit{}.uvarint(number)))
}

// Tag appends any tag and what follows it as it is.
func (e Edit) Tag(tag uint64, body string) Edit { return append(e.uvarint(tag), body...) }

// Field appends any tag with a body behind its length.
func (e Edit) Field(tag uint64, body string) Edit { return e.uvarint(tag).str(body) }

// Manifest writes the edits as a MANIFEST.
func Manifest(edits ...Edit) []byte {
	var log []byte
	for _, e := range edits {
		log = AppendRecord(log, e)
	}
	return log
}

// History gives the edits of a MANIFEST as a Streams store leaves it: first the
// state at the opening, with a table in each of the column families, then
// events atomic flushes of all of them; after every fourth table of a family,
// a compaction into one. There are at least one family and, with the snapshot,
// 3 + 2·families + events·families edits, and one for each compaction.
func History(families, events int) []Edit {
	const comparator = "leveldb.BytewiseComparator"
	names := []string{"default", "keyValueWithTimestamp", "offsets"}
	edits := []Edit{Edit{}.DBID("0123abcd-0000-4000-8000-0123456789ab"), {}}
	tables := make([][]uint64, families)
	number, seq := uint64(7), uint64(1000)
	add := func(level int, size uint64) File {
		number++
		seq += 100
		return File{Level: level, Number: number, Size: size, SmallestSeq: seq - 99, LargestSeq: seq, CreationTime: 1796061472 + number}
	}
	for f := range families {
		id, name := uint32(f), fmt.Sprintf("family-%d", f)
		if f < len(names) {
			name = names[f]
		}
		e := Edit{}
		if f > 0 {
			e = e.AddFamily(id, name)
		}
		edits = append(edits, e.Comparator(comparator).Field(8201, "\x01"))
		file := add(0, 4096)
		tables[f] = []uint64{file.Number}
		edits = append(edits, Edit{}.LogNumber(4).LastSequence(1000).Add(file).Family(id))
	}
	edits = append(edits, Edit{}.PrevLog(0).NextFile(number+1).MaxFamily(uint32(families)-1).LastSequence(1000))
	for n := range events {
		for f := range families {
			file := add(0, 40000+uint64(n)*10)
			tables[f] = append(tables[f], file.Number)
			e := Edit{}.LogNumber(4).PrevLog(0).NextFile(number + 1).LastSequence(seq).Add(file).Family(uint32(f))
			if families > 1 {
				e = e.Group(uint32(families - 1 - f))
			}
			edits = append(edits, e)
		}
		for f := range families {
			if len(tables[f]) < 4 {
				continue
			}
			file := add(0, 120000)
			e := Edit{}.PrevLog(0).NextFile(number + 1).LastSequence(seq)
			for _, t := range tables[f] {
				e = e.Delete(0, t)
			}
			edits = append(edits, e.Add(file).Family(uint32(f)))
			tables[f] = []uint64{file.Number}
		}
	}
	return edits
}
