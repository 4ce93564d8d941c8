package manifest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// family is a column family under construction. The slices of the embedded
// Family belong to an earlier State until finish.
//
// A table has a position: first come those of the earlier State, in its order,
// then the added ones as they came.
type family struct {
	Family
	position int // in builder.families

	changed bool
	removed map[int]uint32 // positions in Files, and the edit that deleted them
	added   []slot
	live    int    // tables that are not deleted
	highest uint64 // file number ever seen

	// index gives the last position of each number, once looking through them
	// all has cost as much as making it would.
	index map[uint64]int
	cost  int // in tables looked at

	blobs map[uint64]Blob // nil until the first change
}

type slot struct {
	File
	deleted uint32 // by which edit; 0 if live
}

// change applies the files of an edit, of which n is the number, and counts
// what happened.
func (f *family) change(e *edit, n uint32, c *Counts) *Error {
	if len(e.blobs)+len(e.garbage) > 0 {
		if err := f.changeBlobs(e); err != nil {
			return err
		}
	}
	if len(e.deleted)+len(e.added) == 0 {
		return nil
	}
	if !f.changed {
		f.begin(len(e.added))
	}
	var read, written uint64
	var deleted, moved int
	for _, ref := range e.deleted {
		p := f.find(ref, n)
		if p < 0 {
			return f.missing(ref)
		}
		switch file, by := f.at(p); by {
		case 0:
			f.remove(p, n)
			deleted++
			read += file.Size
		case n: // RocksDB keeps the deletions of an edit in a set
		default:
			return f.missing(ref)
		}
	}
	for i := range e.added {
		file := &e.added[i]
		written += file.Size
		if p := f.last(file.Number); p >= 0 {
			old, by := f.at(p)
			if by == 0 {
				return &Error{Kind: FileExists, Expected: fmt.Sprintf("a new file on level %d", file.Level),
					Found: fmt.Sprintf("file %d, which is on level %d", file.Number, old.Level)}
			}
			if by == n {
				moved++
				read -= old.Size
				written -= file.Size
			}
		}
		f.add(file)
	}

	switch {
	case deleted > 0 && moved == deleted && moved == len(e.added):
		c.TrivialMoves = 1
	case deleted > 0:
		c.Compactions, c.CompactionReadBytes, c.CompactionWrittenBytes = 1, read, written
	case e.hasLog:
		c.Flushes, c.FlushedBytes = uint64(len(e.added)), written
	default:
		c.IngestedFiles, c.IngestedBytes = uint64(len(e.added)), written
	}
	return nil
}

func (f *family) begin(more int) {
	f.changed, f.live = true, len(f.Files)
	f.added = make([]slot, 0, max(4, more))
	// The last table of each level has its highest number.
	for i := 0; i < len(f.Files); {
		level := f.Files[i].Level
		n, _ := slices.BinarySearchFunc(f.Files[i:], level+1, func(file File, level int) int { return cmp.Compare(file.Level, level) })
		i += n
		f.highest = max(f.highest, f.Files[i-1].Number)
	}
}

// at gives the table at a position and by which edit it was deleted, 0 if it
// is live.
func (f *family) at(p int) (file *File, deleted uint32) {
	if p < len(f.Files) {
		return &f.Files[p], f.removed[p]
	}
	s := &f.added[p-len(f.Files)]
	return &s.File, s.deleted
}

func (f *family) remove(p int, n uint32) {
	f.live--
	if p >= len(f.Files) {
		f.added[p-len(f.Files)].deleted = n
		return
	}
	if f.removed == nil {
		f.removed = make(map[int]uint32)
	}
	f.removed[p] = n
}

func (f *family) add(file *File) {
	f.added = append(f.added, slot{File: *file})
	f.live++
	f.highest = max(f.highest, file.Number)
	if f.index != nil {
		f.index[file.Number] = len(f.Files) + len(f.added) - 1
	}
}

// find gives the position of the newest table with this number, if it is or
// was on this level, else -1. n is the present edit, which has added none yet.
func (f *family) find(ref fileRef, n uint32) int {
	// Most tables that go were there before: no need to look at them all.
	p, ok := slices.BinarySearchFunc(f.Files, ref, func(file File, ref fileRef) int {
		return compareRefs(fileRef{file.Level, file.Number}, ref)
	})
	if ok {
		if by := f.removed[p]; by == 0 || by == n {
			return p
		}
	}
	if p = f.last(ref.number); p >= 0 {
		if file, _ := f.at(p); file.Level != ref.level {
			return -1
		}
	}
	return p
}

// last gives the newest position of a number, of a live table or a deleted one,
// or -1.
func (f *family) last(number uint64) int {
	if number > f.highest {
		return -1
	}
	all := len(f.Files) + len(f.added)
	if f.index == nil && f.cost <= 64*all+1024 {
		for i := len(f.added) - 1; i >= 0; i-- {
			if f.added[i].Number == number {
				f.cost += len(f.added) - i
				return len(f.Files) + i
			}
		}
		f.cost += all
		return slices.IndexFunc(f.Files, func(file File) bool { return file.Number == number })
	}
	if f.index == nil {
		f.index = make(map[uint64]int, all)
		for p := range all {
			file, _ := f.at(p)
			f.index[file.Number] = p
		}
	}
	if p, ok := f.index[number]; ok {
		return p
	}
	return -1
}

func (f *family) missing(ref fileRef) *Error {
	e := &Error{Kind: FileMissing, Expected: fmt.Sprintf("file %d on level %d, to be deleted", ref.number, ref.level), Found: "no such file"}
	if p := f.last(ref.number); p >= 0 {
		if file, deleted := f.at(p); deleted == 0 {
			e.Found = fmt.Sprintf("it on level %d", file.Level)
		}
	}
	return e
}

func (f *family) changeBlobs(e *edit) *Error {
	if f.blobs == nil {
		f.blobs = make(map[uint64]Blob, len(f.Blobs)+len(e.blobs))
		for _, b := range f.Blobs {
			f.blobs[b.Number] = b
		}
	}
	for _, b := range e.blobs {
		if _, ok := f.blobs[b.Number]; ok {
			return &Error{Kind: FileExists, Expected: "a new blob file", Found: fmt.Sprintf("blob file %d, which is there", b.Number)}
		}
		f.blobs[b.Number] = b
	}
	for _, g := range e.garbage {
		b, ok := f.blobs[g.number]
		if !ok {
			return &Error{Kind: FileMissing, Expected: fmt.Sprintf("blob file %d, to get garbage", g.number), Found: "no such file"}
		}
		b.GarbageCount += g.count
		b.GarbageBytes += g.bytes
		if b.GarbageCount > b.Count || b.GarbageBytes > b.Bytes {
			return &Error{Kind: BlobGarbage, Expected: fmt.Sprintf("at most %d blobs of %d bytes in blob file %d", b.Count, b.Bytes, b.Number),
				Found: fmt.Sprintf("%d of %d", b.GarbageCount, b.GarbageBytes)}
		}
		f.blobs[g.number] = b
	}
	return nil
}

// bytewise is the comparator of nearly every column family.
const bytewise = "leveldb.BytewiseComparator"

// withTimestamps ends the names of comparators that RocksDB may take for the
// one without it (RocksDB util/udt_util.cc).
const withTimestamps = ".u64ts"

func (f *family) setComparator(name []byte) *Error {
	switch string(name) {
	case f.Comparator:
		return nil
	case bytewise:
		name = nil
	}
	s := bytewise
	if name != nil {
		s = string(name)
	}
	if f.Comparator != "" && strings.TrimSuffix(s, withTimestamps) != strings.TrimSuffix(f.Comparator, withTimestamps) {
		return &Error{Kind: ComparatorChanged, Expected: quote(f.Comparator), Found: quote(s)}
	}
	f.Comparator = s
	return nil
}

func (f *family) finish() Family {
	out := f.Family
	if f.changed {
		out.Files = f.files()
	}
	switch {
	case f.blobs != nil:
		out.Blobs = make([]Blob, 0, len(f.blobs))
		for _, b := range f.blobs {
			out.Blobs = append(out.Blobs, b)
		}
		slices.SortFunc(out.Blobs, func(a, b Blob) int { return cmp.Compare(a.Number, b.Number) })
		markLive(out.Blobs, out.Files)
	case f.changed && len(out.Blobs) > 0:
		out.Blobs = slices.Clone(out.Blobs)
		markLive(out.Blobs, out.Files)
	}
	return out
}

func compareFiles(a, b *File) int {
	return compareRefs(fileRef{a.Level, a.Number}, fileRef{b.Level, b.Number})
}

// files merges the tables of the earlier State with the added ones.
func (f *family) files() []File {
	if f.live == 0 {
		return nil
	}
	added := slices.DeleteFunc(f.added, func(s slot) bool { return s.deleted != 0 })
	byFile := func(a, b slot) int { return compareFiles(&a.File, &b.File) }
	if !slices.IsSortedFunc(added, byFile) {
		slices.SortFunc(added, byFile)
	}
	var gone []int
	if f.removed != nil {
		gone = slices.Sorted(maps.Keys(f.removed))
	}
	out := make([]File, 0, f.live)
	from := 0
	upTo := func(to int) { // appends what is live of Files[from:to]
		for len(gone) > 0 && gone[0] < to {
			out = append(out, f.Files[from:gone[0]]...)
			from, gone = gone[0]+1, gone[1:]
		}
		out = append(out, f.Files[from:to]...)
		from = to
	}
	for i := range added {
		to, _ := slices.BinarySearchFunc(f.Files[from:], &added[i].File, func(file File, a *File) int { return compareFiles(&file, a) })
		upTo(from + to)
		out = append(out, added[i].File)
	}
	upTo(len(f.Files))
	return out
}

// markLive sets Blob.Live as RocksDB decides it (VersionBuilder::SaveBlobFilesTo).
// blobs is by number.
func markLive(blobs []Blob, files []File) {
	linked := make(map[uint64]bool)
	for i := range files {
		if n := files[i].OldestBlob; n != 0 {
			linked[n] = true
		}
	}
	older := false // a table points to this one or to one before it
	for i := range blobs {
		b := &blobs[i]
		older = older || linked[b.Number]
		b.Live = older && (linked[b.Number] || b.GarbageCount < b.Count)
	}
}

func quote(name string) string {
	const most = 60
	if len(name) > most {
		return strconv.Quote(name[:most]) + "…"
	}
	return strconv.Quote(name)
}
