package manifest

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
)

// Tags of an edit (RocksDB db/version_edit.h).
const (
	tagComparator       = 1
	tagLogNumber        = 2
	tagNextFile         = 3
	tagLastSequence     = 4
	tagCompactCursor    = 5
	tagDeletedFile      = 6
	tagNewFile          = 7
	tagPrevLog          = 9
	tagMinLogToKeep     = 10
	tagNewFile2         = 100
	tagNewFile3         = 102
	tagNewFile4         = 103
	tagFamily           = 200
	tagFamilyAdd        = 201
	tagFamilyDrop       = 202
	tagMaxFamily        = 203
	tagAtomicGroup      = 300
	tagBlobAddition     = 400
	tagBlobGarbage      = 401
	tagIgnorable        = 1 << 13 // set in tags that may be skipped by their length
	tagDBID             = 8193
	tagBlobAdditionOld  = 8194 // 8194 to 8197 have no length in front
	tagBlobGarbageOld   = 8195
	tagWALAdditionOld   = 8196
	tagWALDeletionOld   = 8197
	tagFullHistoryTsLow = 8198
	tagWALAddition      = 8199
	tagWALDeletion      = 8200
	tagPersistUDT       = 8201
	tagCompactedSize    = 8203
)

// Tags of the fields at the end of a new file, tag 103.
const (
	fieldEnd           = 1
	fieldNeedCompact   = 2
	fieldMinLogToKeep  = 3
	fieldOldestBlob    = 4
	fieldAncestorTime  = 5
	fieldCreationTime  = 6
	fieldTemperature   = 9
	fieldUniqueID      = 12
	fieldEpoch         = 13
	fieldRangeDelSize  = 14
	fieldTailSize      = 15
	fieldUDTPersisted  = 16
	fieldNotSkippable  = 1 << 6 // set in fields that must be known
	fieldPathID        = 65
	fileNumberMask     = 1<<62 - 1 // the two bits above hold the path id in RocksDB's memory
	internalKeySuffix  = 8         // sequence number and value type
	maxPathID          = 3
	walFieldEnd        = 1
	walFieldSyncedSize = 2
)

// boundaryTypes has a bit for each value type that a file's smallest or
// largest key may have (RocksDB db/dbformat.h, IsExtendedValueType). The end
// of that enumeration counts too, and has moved up with the versions.
const boundaryTypes = 1<<0x00 | 1<<0x01 | 1<<0x02 | 1<<0x07 | 1<<0x0f | 1<<0x11 |
	1<<0x14 | 1<<0x15 | 1<<0x16 | 1<<0x18 | 1<<0x1a

// fileRef names a table that an edit deletes.
type fileRef struct {
	level  int
	number uint64
}

// blobGarbage is what became garbage in a blob file.
type blobGarbage struct{ number, count, bytes uint64 }

// edit is one decoded record. Its byte slices point into the record; all its
// memory is used again by the next one.
type edit struct {
	hasComparator, hasLog, hasNext, hasLastSequence  bool
	hasPrevLog, hasMaxFamily, hasMinLog, hasDBID     bool
	isAdd, isDrop, inGroup                           bool
	comparator, name, dbID                           []byte
	log, nextFile, lastSequence, prevLog, minLogKeep uint64
	family, maxFamily, remaining                     uint32

	deleted []fileRef
	added   []File
	keys    [][2]KeyStart // of the tables in added: the smallest and the largest
	blobs   []Blob
	garbage []blobGarbage
	wals    []WAL
	// walsBefore says that logs with lower numbers are gone; 0 says nothing.
	walsBefore uint64
}

func (e *edit) reset() {
	*e = edit{deleted: e.deleted[:0], added: e.added[:0], keys: e.keys[:0], blobs: e.blobs[:0], garbage: e.garbage[:0], wals: e.wals[:0]}
}

// decode reads the edit in rec, as strictly as RocksDB does
// (VersionEdit::DecodeFrom). The error has no offset.
func (e *edit) decode(rec []byte) *Error {
	e.reset()
	d := decoder{buf: rec}
	for d.pos < len(rec) && d.err == nil {
		at := d.pos
		tag := d.varint32("tag")
		if d.err != nil {
			break
		}
		switch tag {
		case tagComparator:
			e.comparator, e.hasComparator = d.bytes("comparator"), true
		case tagLogNumber:
			e.log, e.hasLog = d.varint64("log number"), true
		case tagNextFile:
			e.nextFile, e.hasNext = d.varint64("next file number"), true
		case tagLastSequence:
			e.lastSequence, e.hasLastSequence = d.varint64("last sequence"), true
		case tagCompactCursor:
			d.level("compaction cursor")
			d.internalKey("compaction cursor")
		case tagDeletedFile:
			e.deleted = append(e.deleted, fileRef{d.level("deleted file"), d.varint64("deleted file")})
		case tagNewFile, tagNewFile2, tagNewFile3, tagNewFile4:
			file, keys := d.newFile(tag, e)
			e.added, e.keys = append(e.added, file), append(e.keys, keys)
		case tagPrevLog:
			e.prevLog, e.hasPrevLog = d.varint64("previous log number"), true
		case tagMinLogToKeep:
			e.minLogKeep, e.hasMinLog = d.varint64("minimal log number to keep"), true
		case tagFamily:
			e.family = d.varint32("column family id")
		case tagFamilyAdd:
			e.name, e.isAdd = d.bytes("column family name"), true
		case tagFamilyDrop:
			e.isDrop = true
		case tagMaxFamily:
			e.maxFamily, e.hasMaxFamily = d.varint32("largest column family id"), true
		case tagAtomicGroup:
			e.remaining, e.inGroup = d.varint32("atomic group"), true
		case tagBlobAddition, tagBlobAdditionOld:
			e.blobs = append(e.blobs, d.blobAddition())
		case tagBlobGarbage, tagBlobGarbageOld:
			e.garbage = append(e.garbage, d.blobGarbage())
		case tagDBID:
			e.dbID, e.hasDBID = d.bytes("database id"), true
		case tagWALAdditionOld:
			e.wals = append(e.wals, d.walAddition())
		case tagWALAddition:
			in := decoder{buf: d.bytes("log addition")}
			if d.err == nil {
				e.wals, d.err = append(e.wals, in.walAddition()), in.err
			}
		case tagWALDeletionOld:
			e.walsBefore = d.varint64("log deletion")
		case tagWALDeletion:
			in := decoder{buf: d.bytes("log deletion")}
			if d.err == nil {
				e.walsBefore, d.err = in.varint64("log deletion"), in.err
			}
		case tagFullHistoryTsLow:
			if b := d.bytes("full_history_ts_low"); len(b) == 0 {
				d.fail("full_history_ts_low", "nothing")
			}
		case tagPersistUDT:
			d.sized("persist_user_defined_timestamps", d.bytes("persist_user_defined_timestamps"), 1)
		case tagCompactedSize:
			d.inner("compacted MANIFEST size", d.bytes("compacted MANIFEST size"))
		default:
			if tag&tagIgnorable == 0 {
				return &Error{Kind: NewerFormat, Expected: "a known tag", Found: fmt.Sprintf("tag %d at byte %d of the edit", tag, at)}
			}
			d.bytes("ignorable tag")
		}
	}
	return d.err
}

func compareRefs(a, b fileRef) int {
	if c := cmp.Compare(a.level, b.level); c != 0 {
		return c
	}
	return cmp.Compare(a.number, b.number)
}

// decoder takes fields from a buffer. The first failure stays; after it every
// method returns zero.
type decoder struct {
	buf []byte
	pos int
	err *Error
}

func (d *decoder) fail(what, found string) {
	if d.err == nil {
		d.err = &Error{Kind: BadEdit, Expected: what, Found: found}
	}
	d.pos = len(d.buf)
}

// varint takes at most most bytes. As in RocksDB, bits that do not fit into
// the result are dropped without complaint.
func (d *decoder) varint(what string, most int) (v uint64) {
	for i, b := range d.buf[d.pos:] {
		if i == most {
			break
		}
		v |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			d.pos += i + 1
			return v
		}
	}
	d.fail(what, "a number that does not end")
	return 0
}

func (d *decoder) varint64(what string) uint64 {
	if d.pos < len(d.buf) && d.buf[d.pos] < 0x80 {
		d.pos++
		return uint64(d.buf[d.pos-1])
	}
	return d.varint(what, 10)
}

func (d *decoder) varint32(what string) uint32 {
	if d.pos < len(d.buf) && d.buf[d.pos] < 0x80 {
		d.pos++
		return uint32(d.buf[d.pos-1])
	}
	return uint32(d.varint(what, 5))
}

// bytes takes a length and so many bytes.
func (d *decoder) bytes(what string) []byte {
	n, left := uint64(d.varint32(what)), len(d.buf)-d.pos
	if n > uint64(left) {
		d.fail(what, fmt.Sprintf("a length of %d with %d bytes left", n, left))
		return nil
	}
	b := d.buf[d.pos : d.pos+int(n)]
	d.pos += int(n)
	return b
}

func (d *decoder) sized(what string, b []byte, size int) {
	if d.err == nil && len(b) != size {
		d.fail(what, fmt.Sprintf("%d bytes instead of %d", len(b), size))
	}
}

// inner reads a number at the start of a field; what follows it is ignored.
func (d *decoder) inner(what string, b []byte) uint64 {
	in := decoder{buf: b}
	v := in.varint64(what)
	if d.err == nil && in.err != nil {
		d.err = in.err
	}
	return v
}

func (d *decoder) level(what string) int {
	v := d.varint32(what)
	if v > math.MaxInt32 {
		d.fail(what, fmt.Sprintf("level %d", v))
		return 0
	}
	return int(v)
}

// internalKey gives the start of the user's part of a key.
func (d *decoder) internalKey(what string) (start KeyStart) {
	key := d.bytes(what)
	if d.err != nil {
		return start
	}
	if len(key) < internalKeySuffix {
		d.fail(what, fmt.Sprintf("a key of %d bytes", len(key)))
		return start
	}
	if t := key[len(key)-internalKeySuffix]; t > 0x1a || boundaryTypes>>t&1 == 0 {
		d.fail(what, fmt.Sprintf("a key of type %#x", t))
	}
	copy(start[:], key[:len(key)-internalKeySuffix])
	return start
}

func (d *decoder) newFile(tag uint32, e *edit) (f File, keys [2]KeyStart) {
	const what = "new file"
	f.Level = d.level(what)
	f.Number = d.varint64(what) & fileNumberMask
	if tag == tagNewFile3 {
		f.PathID = d.varint32(what) & maxPathID
	}
	f.Size = d.varint64(what)
	keys = [2]KeyStart{d.internalKey(what), d.internalKey(what)}
	if tag != tagNewFile {
		f.SmallestSeq, f.LargestSeq = d.varint64(what), d.varint64(what)
	}
	if tag == tagNewFile4 {
		d.fileFields(&f, e)
	}
	return f, keys
}

func (d *decoder) fileFields(f *File, e *edit) {
	for d.err == nil {
		field := d.varint32("field of a new file")
		if field == fieldEnd {
			return
		}
		b := d.bytes("field of a new file")
		if d.err != nil {
			return
		}
		switch field {
		case fieldPathID:
			if d.sized("path id", b, 1); d.err == nil {
				if b[0] > maxPathID {
					d.fail("path id", fmt.Sprintf("%d", b[0]))
				}
				f.PathID = uint32(b[0])
			}
		case fieldNeedCompact:
			d.sized("mark for compaction", b, 1)
		case fieldTemperature:
			d.sized("temperature", b, 1)
		case fieldUDTPersisted:
			d.sized("mark of timestamps", b, 1)
		case fieldUniqueID:
			if d.sized("unique id", b, 16); d.err == nil {
				f.UniqueID = [2]uint64{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])}
			}
		case fieldMinLogToKeep:
			if len(b) < 8 {
				d.sized("minimal log number to keep", b, 8)
				return
			}
			e.minLogKeep, e.hasMinLog = binary.LittleEndian.Uint64(b), true
		case fieldOldestBlob:
			f.OldestBlob = d.inner("oldest blob file", b)
		case fieldCreationTime:
			f.CreationTime = d.inner("creation time", b)
		case fieldAncestorTime, fieldEpoch, fieldRangeDelSize, fieldTailSize:
			d.inner("field of a new file", b)
		default:
			if field&fieldNotSkippable != 0 {
				d.err = &Error{Kind: NewerFormat, Expected: "a known field of a new file", Found: fmt.Sprintf("field %d", field)}
			}
		}
	}
}

func (d *decoder) blobAddition() (b Blob) {
	const what = "new blob file"
	b.Number, b.Count, b.Bytes = d.varint64(what), d.varint64(what), d.varint64(what)
	d.bytes(what) // name and value of a checksum
	d.bytes(what)
	d.blobFields(what)
	return b
}

func (d *decoder) blobGarbage() (g blobGarbage) {
	const what = "garbage of a blob file"
	g.number, g.count, g.bytes = d.varint64(what), d.varint64(what), d.varint64(what)
	d.blobFields(what)
	return g
}

func (d *decoder) blobFields(what string) {
	for d.err == nil {
		field := d.varint32(what)
		if d.err != nil || field == 0 {
			return
		}
		if field&fieldNotSkippable != 0 {
			d.err = &Error{Kind: NewerFormat, Expected: "a known field in a " + what, Found: fmt.Sprintf("field %d", field)}
			return
		}
		d.bytes(what)
	}
}

func (d *decoder) walAddition() (w WAL) {
	const what = "log addition"
	w.Number = d.varint64(what)
	for d.err == nil {
		switch field := d.varint32(what); {
		case d.err != nil, field == walFieldEnd:
			return w
		case field == walFieldSyncedSize:
			w.SyncedSize, w.Synced = d.varint64(what), true
		default:
			d.err = &Error{Kind: NewerFormat, Expected: "a known field in a " + what, Found: fmt.Sprintf("field %d", field)}
		}
	}
	return w
}
