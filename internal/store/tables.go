package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/rocksfile/manifest"
	"streams-sidecar/internal/rocksfile/sst"
	"streams-sidecar/internal/volume"
)

// offsetsLimit bounds the tables of a family offsets that are read: real ones
// have a few hundred bytes of data, a foreign family of that name may not.
const offsetsLimit = 16 << 20

// table is what is remembered of a live SST: it never changes once written.
type table struct {
	info   volume.Info
	values uint64 // entries that are no tombstones
	format Format
}

// Format is what a reader of a table must know.
type Format struct {
	Version  uint32 // format_version
	Checksum sst.ChecksumType
}

// offsets is the content of the column family offsets (≥ 4.3): one key
// <topic>-<partition> per changelog partition with the offset as 8 bytes, big
// endian, a key status (0 closed, 1 open) and a key position, which is not
// read (AbstractColumnFamilyAccessor of kafka-streams 4.3.1).
type offsets struct {
	known     bool // the family exists and all of it was read
	entries   []OffsetEntry
	status    Status
	hasKey    bool   // there is a <topic>-<partition> key
	newestSeq uint64 // sequence number of the newest such key
	source    []source
}

const statusKey = "status"

var statusStart = func() (k manifest.KeyStart) { copy(k[:], statusKey); return k }()

// source is a table that was read for it.
type source struct {
	number uint64
	info   volume.Info
}

// OffsetEntry is one key <topic>-<partition> of the family offsets. Offset -4
// is Streams' own mark for "not known".
type OffsetEntry struct {
	Topic     string
	Partition int32
	Offset    int64
}

// Key is the key in the family.
func (e OffsetEntry) Key() string { return e.Topic + "-" + strconv.Itoa(int(e.Partition)) }

// SplitOffsetKey takes the key of a changelog partition in the family offsets
// apart, <topic>-<partition>; ok is false for any other key.
func SplitOffsetKey(key string) (topic string, partition int32, ok bool) {
	i := strings.LastIndexByte(key, '-')
	if i <= 0 {
		return "", 0, false
	}
	p, err := strconv.ParseInt(key[i+1:], 10, 32)
	return key[:i], int32(p), err == nil
}

// readTables reads the properties of the live tables and the offsets, and says
// whether a second look is called for.
func (r *reading) readTables() (again bool) {
	db := r.db
	db.tables = make(map[uint64]*table, len(r.l.tables))
	db.families = make([]Family, 0, len(db.state.Families))
	for i := range db.state.Families {
		mf := &db.state.Families[i]
		f := Family{Name: mf.Name, Files: len(mf.Files)}
		var sum uint64
		whole := true
		raw := rawOffsets{}
		wanted := mf.Name == familyOffsets && r.newOffsets(mf)
		for j := range mf.Files {
			file := &mf.Files[j]
			f.Bytes += int64(file.Size)
			f.addLevel(file)
			if r.enough() {
				whole = false
				continue
			}
			var visit *rawOffsets
			if wanted {
				visit = &raw
			}
			t, look := r.readTable(file, visit)
			again = again || look
			if t == nil {
				whole = false
				continue
			}
			db.tables[file.Number] = t
			sum += t.values
		}
		if whole {
			f.Entries = &sum
		}
		db.families = append(db.families, f)
		switch {
		case wanted && whole && !raw.failed:
			db.offsets = r.decodeOffsets(raw, mf)
		case mf.Name == familyOffsets && !wanted && r.prev != nil:
			db.offsets = r.prev.offsets
		}
	}
	return again
}

func (f *Family) addLevel(file *manifest.File) {
	i, found := slices.BinarySearchFunc(f.Levels, file.Level, func(l Level, n int) int { return l.Level - n })
	if !found {
		f.Levels = slices.Insert(f.Levels, i, Level{Level: file.Level})
	}
	f.Levels[i].Files++
	f.Levels[i].Bytes += int64(file.Size)
}

// newOffsets says whether the tables of the family offsets have to be read:
// not if the last look has read the same ones.
func (r *reading) newOffsets(mf *manifest.Family) bool {
	return r.prev == nil || !r.prev.offsets.known || !slices.Equal(r.prev.offsets.source, r.sources(mf))
}

// sources identifies the tables by number, inode, size and time: numbers come
// again in a store that was made anew.
func (r *reading) sources(mf *manifest.Family) []source {
	out := make([]source, len(mf.Files))
	for i := range mf.Files {
		n := mf.Files[i].Number
		out[i] = source{n, r.l.tables[n]}
	}
	return out
}

// readTable gives what is known of one live table, or nil after a finding.
// With raw, it also collects its entries.
func (r *reading) readTable(file *manifest.File, raw *rawOffsets) (t *table, again bool) {
	name := fmt.Sprintf("%06d.sst", file.Number)
	path := r.path(name)
	info, there := r.l.tables[file.Number]
	if !there {
		if file.PathID != 0 {
			return nil, false // in another of the store's db_paths, which we do not know
		}
		var err error
		// Written after the listing?
		if info, err = r.fs.Lstat(path); err != nil {
			r.missing(err, file, path)
			return nil, true
		}
	}
	if info.Kind == volume.Regular && uint64(info.Size) != file.Size {
		r.sizeMismatch(file, path, info.Size)
		return nil, true
	}
	if raw == nil && r.prev != nil {
		if t := r.prev.tables[file.Number]; t != nil && t.info == info {
			return t, false
		}
	}
	f, err := r.fs.Open(path)
	if err != nil {
		r.missing(err, file, path)
		return nil, true
	}
	defer func() { _ = f.Close() }()
	if size := f.Info().Size; uint64(size) != file.Size { // a link to it, or changed since the listing
		r.sizeMismatch(file, path, size)
		return nil, true
	}
	tab, err := sst.Open(f, f.Info().Size)
	if err != nil {
		return nil, r.tableError(err, path, finding.SSTUnparseable)
	}
	if raw != nil {
		if err := raw.collect(tab, info.Size); err != nil {
			raw.failed = true
			again = r.tableError(err, path, finding.OffsetsUnparseable)
		}
	}
	p := tab.Properties()
	return &table{info, p.Entries - min(p.Entries, p.Deletions), Format{p.FormatVersion, tab.ChecksumType()}}, again
}

// missing handles a live table that cannot be opened. It is missing only if the
// newest MANIFEST still names it: a compaction deletes its inputs right after
// the edit that drops them.
func (r *reading) missing(err error, file *manifest.File, path string) {
	if !volume.IsGone(err) {
		r.failure(err, path)
		return
	}
	r.stillNamed(finding.New(finding.SSTMissing, path,
		finding.Expected("%d bytes", file.Size), finding.Found("no such file")))
}

func (r *reading) sizeMismatch(file *manifest.File, path string, size int64) {
	r.stillNamed(finding.New(finding.SSTSizeMismatch, path,
		finding.Expected("%d bytes", file.Size), finding.Found("%d bytes", size)))
}

// stillNamed adds a finding about a file that the MANIFEST names, unless there is
// a newer MANIFEST by now.
func (r *reading) stillNamed(f finding.Finding) {
	now, err := r.fs.Lstat(r.path(r.db.manifest.Name))
	if err != nil || now.ID() != r.db.manifest.ID() || now.Size != r.db.manifest.Size {
		r.db.settled = false
		return
	}
	r.defect(f)
}

// tableError makes the finding and says whether to look again. A table is
// complete before the MANIFEST names it, so what is wrong in it stays wrong.
func (r *reading) tableError(err error, path string, code finding.Code) (again bool) {
	te, ok := errors.AsType[*sst.Error](err)
	if !ok {
		if _, bounded := errors.AsType[errOffsets](err); bounded {
			r.defect(finding.New(code, path, finding.Found("%v", err)))
			return false
		}
		r.failure(err, path)
		return true
	}
	r.defect(TableFinding(te, path, code))
	return false
}

// TableFinding is the finding for a table that cannot be read; code is that of
// a table that contradicts its format in a part that has no code of its own.
func TableFinding(e *sst.Error, path string, code finding.Code) finding.Finding {
	switch {
	case e.Kind == sst.Unsupported:
		code = finding.FormatNewer
	case e.Kind == sst.TooLarge:
		code = finding.FileTooLarge
	case e.Kind == sst.Codec:
		code = finding.CompressedNotDecoded
	case e.Part == sst.PartFooter:
		code = finding.SSTFooterMalformed
	case e.Part == sst.PartIndex || e.Part == sst.PartPartition:
		code = finding.SSTIndexMalformed
	}
	return finding.New(code, path, finding.At(e.Offset), finding.Expected("%s", e.Expected), finding.Found("%s", e.Found))
}

type errOffsets string

func (e errOffsets) Error() string { return string(e) }

// rawOffsets collects the newest version of each key over several tables.
type rawOffsets struct {
	newest map[string]rawOffset
	ranges bool // there are range deletions, which may cover any of the keys
	failed bool
}

type rawOffset struct {
	seq   uint64
	kind  sst.Type
	value []byte
}

func (o *rawOffsets) collect(tab *sst.Table, size int64) error {
	if size > offsetsLimit {
		return errOffsets(fmt.Sprintf("%d bytes, more than the bound of %d: not the offsets of Kafka Streams", size, offsetsLimit))
	}
	if o.newest == nil {
		o.newest = map[string]rawOffset{}
	}
	kept := 0
	return tab.Each(func(e sst.Entry) error {
		if e.Type == sst.RangeDeletion {
			o.ranges = true
			return nil
		}
		if old, ok := o.newest[string(e.Key)]; ok && old.seq > e.Sequence {
			return nil
		}
		// Compressed, a small file holds any number of bytes.
		if kept += len(e.Key) + len(e.Value); kept > offsetsLimit {
			return errOffsets(fmt.Sprintf("more than the bound of %d bytes of keys and values: not the offsets of Kafka Streams", offsetsLimit))
		}
		o.newest[string(e.Key)] = rawOffset{e.Sequence, e.Type, slices.Clone(e.Value)}
		return nil
	})
}

func (r *reading) decodeOffsets(raw rawOffsets, mf *manifest.Family) offsets {
	out := offsets{known: true, source: r.sources(mf)}
	strange := map[string]bool{}
	if raw.ranges {
		strange[sst.RangeDeletion.String()] = true
	}
	for key, v := range raw.newest {
		topic, p, isOffset := SplitOffsetKey(key)
		if key != statusKey && !isOffset {
			continue // position, or a key of a version to come
		}
		switch v.kind {
		case sst.Value:
		case sst.Deletion, sst.SingleDeletion, sst.DeletionWithTimestamp:
			continue
		default:
			strange[v.kind.String()] = true
			continue
		}
		if len(v.value) != 8 {
			r.defect(finding.New(finding.OffsetsUnparseable, r.db.Path,
				finding.Expected("8 bytes for the key %q", key), finding.Found("%d bytes", len(v.value))))
			out.known = false
			continue
		}
		n := int64(binary.BigEndian.Uint64(v.value))
		if key == statusKey {
			switch n {
			case 0:
				out.status = StatusClosed
			case 1:
				out.status = StatusOpen
			default:
				r.defect(finding.New(finding.OffsetsUnparseable, r.db.Path,
					finding.Expected("status 0 or 1"), finding.Found("%d", n)))
				out.known = false
			}
			continue
		}
		out.entries = append(out.entries, OffsetEntry{topic, p, n})
		out.hasKey = true
		out.newestSeq = max(out.newestSeq, v.seq)
	}
	if len(strange) > 0 {
		r.defect(finding.New(finding.OffsetsNotDecoded, r.db.Path,
			finding.Expected("values and deletions"), finding.Found("%s", strings.Join(slices.Sorted(maps.Keys(strange)), ", "))))
		return offsets{}
	}
	slices.SortFunc(out.entries, func(a, b OffsetEntry) int {
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return int(a.Partition) - int(b.Partition)
	})
	return out
}
