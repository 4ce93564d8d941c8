package manifest

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"streams-sidecar/internal/rocksfile/record"
)

// builder applies edits to a State. The slices of the embedded State belong to
// the base and are never written to; what changes is in families and wals.
type builder struct {
	State
	base *State

	families []*family          // nil until the first edit
	byID     map[uint32]*family // once there are many
	wals     map[uint64]uint64  // synced sizes of tracked logs; nil until the first edit of one

	edit    edit
	changes uint32 // edits applied by this builder, the present one included
	group   group
	torn    bool // not only whole edits and groups are applied
}

// group is the atomic group that is being read. Its edits are applied as they
// come; if it turns out that they must not be, the builder is torn.
type group struct {
	have, want uint64
	failed     *Error // the first edit that could not be applied
}

// manyFamilies is from where on families are found by a map.
const manyFamilies = 16

// read applies everything from b.Size to size. b.Size becomes the end of the
// last edit or group that is whole; if b.torn is set, more than that is applied.
// tail is the partial record at the end, if there is one.
func (b *builder) read(src io.ReaderAt, size int64) (tail *Error, err error) {
	b.PendingGroup = false
	r := record.NewReader(src, b.Size, size)
	for {
		rec, err := r.Next()
		if err != nil {
			b.PendingGroup = b.group.have > 0
			b.torn = b.PendingGroup
			if errors.Is(err, io.EOF) {
				return nil, nil
			}
			err = readError(err)
			if me, ok := errors.AsType[*Error](err); ok && me.Partial() {
				return me, nil
			}
			return nil, err
		}
		whole, failed := b.record(rec, r.Start())
		if failed != nil {
			b.torn = true
			return nil, failed
		}
		if whole {
			b.Size = r.Offset()
		}
	}
}

// complete says whether a MANIFEST that ends here is one that RocksDB opens.
// tail is the partial record at its end, if there is one.
func (b *builder) complete(tail *Error) error {
	if b.seen == seenAll {
		if tail != nil {
			return tail
		}
		return nil
	}
	var missing []string
	for _, m := range [...]struct {
		bit  uint8
		name string
	}{{seenLog, "log number"}, {seenNext, "next file number"}, {seenSequence, "last sequence"}} {
		if b.seen&m.bit == 0 {
			missing = append(missing, m.name)
		}
	}
	e := &Error{Kind: Incomplete, Offset: b.Size, Expected: "edits that tell the " + strings.Join(missing, ", the "),
		Found: fmt.Sprintf("%d edits that do not", b.Edits)}
	if tail != nil {
		e.Err = tail.Err
		e.Found += ", and a " + tail.Kind.String()
	}
	return e
}

// record applies one record. whole says that no group is open behind it.
func (b *builder) record(rec []byte, offset int64) (whole bool, err *Error) {
	e, g := &b.edit, &b.group
	if err := e.decode(rec); err != nil {
		return false, at(offset, err)
	}
	if !e.inGroup {
		if g.have > 0 {
			return false, at(offset, &Error{Kind: AtomicGroup,
				Expected: fmt.Sprintf("edit %d of %d of the group", g.have+1, g.want), Found: "an edit outside of it"})
		}
		b.Edits++
		return true, at(offset, b.change(e))
	}
	if g.have == 0 {
		g.want = uint64(e.remaining) + 1
	}
	g.have++
	if g.have+uint64(e.remaining) != g.want {
		return false, at(offset, &Error{Kind: AtomicGroup,
			Expected: fmt.Sprintf("edit %d of %d of the group", g.have, g.want), Found: fmt.Sprintf("%d more to come", e.remaining)})
	}
	// RocksDB applies a group when it is whole, so that an edit which cannot
	// be applied does no harm in one that never is.
	if g.failed == nil {
		g.failed = at(offset, b.change(e))
	}
	if g.have < g.want {
		return false, nil
	}
	err = g.failed
	b.Edits += int(g.want)
	*g = group{}
	return true, err
}

func at(offset int64, err *Error) *Error {
	if err != nil {
		err.Offset = offset
	}
	return err
}

// change applies one edit, or a part of it and an error.
func (b *builder) change(e *edit) *Error {
	b.changes++
	if b.families == nil {
		b.begin()
	}
	f := b.find(e.family)
	// The order of the cases is RocksDB's (VersionEditHandler::ApplyVersionEdit):
	// whatever else such an edit says of tables is ignored.
	switch {
	case e.isAdd:
		if f != nil {
			return &Error{Kind: FamilyExists, Expected: fmt.Sprintf("no column family %d", e.family), Found: quote(f.Name)}
		}
		f = b.addFamily(Family{ID: e.family, Name: string(e.name), LogNumber: e.log})
	case e.isDrop:
		if f == nil {
			return &Error{Kind: FamilyMissing, Expected: fmt.Sprintf("column family %d", e.family), Found: "none"}
		}
		if e.family == 0 {
			return &Error{Kind: BadEdit, Expected: "a column family that can be dropped", Found: "default"}
		}
		b.dropFamily(f)
		f = nil
	case len(e.wals) > 0:
		if err := b.addWALs(e.wals); err != nil {
			return err
		}
		f = nil
	case e.walsBefore > 0:
		b.walsBefore = max(b.walsBefore, e.walsBefore)
		f = nil
	default:
		if f == nil {
			return &Error{Kind: UnknownFamily, Expected: fmt.Sprintf("column family %d", e.family), Found: "none"}
		}
		var counts Counts
		if err := f.change(e, b.changes, &counts); err != nil {
			return err
		}
		// Every edit that RocksDB logs carries the next file number
		// (VersionSet::LogAndApplyHelper), those of the snapshot at the
		// beginning of a MANIFEST never do (WriteCurrentStateToManifest).
		if e.hasNext {
			f.Counts.Add(counts)
			b.Counts.Add(counts)
			if counts.Flushes > 0 {
				for i := range e.added {
					t := &e.added[i]
					f.LastFlush = max(f.LastFlush, t.Number)
					f.FlushedSeq = max(f.FlushedSeq, t.LargestSeq)
					if i < len(e.added)-2 {
						continue
					}
					// A new slice: an earlier State may share the old one.
					last := []Flushed{{t.Number, t.SmallestSeq, t.LargestSeq, e.keys[i][0], e.keys[i][1]}}
					f.Flushed = append(last, f.Flushed[:min(1, len(f.Flushed))]...)
				}
			}
		}
	}
	return b.note(e, f)
}

// note takes over what an edit says beside files. f is nil if the edit is not
// one of a live column family.
func (b *builder) note(e *edit, f *family) *Error {
	if e.hasDBID {
		b.DBID = string(e.dbID)
	}
	if f != nil {
		// A log number that goes backwards is ignored.
		if e.hasLog && e.log >= f.LogNumber {
			f.LogNumber = e.log
			b.seen |= seenLog
		}
		if e.hasComparator {
			if err := f.setComparator(e.comparator); err != nil {
				return err
			}
		}
	}
	if e.hasPrevLog {
		b.PrevLog = e.prevLog
	}
	if e.hasNext {
		b.NextFile = e.nextFile
		b.seen |= seenNext
	}
	if e.hasMaxFamily {
		b.MaxFamily = e.maxFamily
	}
	if e.hasMinLog {
		b.MinLogToKeep = max(b.MinLogToKeep, e.minLogKeep)
	}
	if e.hasLastSequence {
		b.LastSequence = e.lastSequence
		b.seen |= seenSequence
	}
	return nil
}

func (b *builder) begin() {
	all := make([]family, len(b.base.Families))
	b.families = make([]*family, len(all), len(all)+3)
	for i := range all {
		all[i].Family, all[i].position = b.base.Families[i], i
		b.families[i] = &all[i]
	}
}

func (b *builder) find(id uint32) *family {
	if len(b.families) <= manyFamilies {
		for _, f := range b.families {
			if f.ID == id {
				return f
			}
		}
		return nil
	}
	if b.byID == nil {
		b.byID = make(map[uint32]*family, len(b.families))
		for _, f := range b.families {
			b.byID[f.ID] = f
		}
	}
	return b.byID[id]
}

func (b *builder) addFamily(f Family) *family {
	added := &family{Family: f, position: len(b.families)}
	b.families = append(b.families, added)
	if b.byID != nil {
		b.byID[f.ID] = added
	}
	return added
}

func (b *builder) dropFamily(f *family) {
	last := b.families[len(b.families)-1]
	b.families[f.position], last.position = last, f.position
	b.families = b.families[:len(b.families)-1]
	delete(b.byID, f.ID)
}

// notSynced is the size of a log of which none is known, in RocksDB too.
const notSynced = math.MaxUint64

func (b *builder) addWALs(wals []WAL) *Error {
	if b.wals == nil {
		b.wals = make(map[uint64]uint64, len(b.WALs)+len(wals))
		for _, w := range b.WALs {
			b.wals[w.Number] = w.size()
		}
	}
	for _, w := range wals {
		if w.Number < b.walsBefore {
			continue
		}
		old, ok := b.wals[w.Number]
		size := w.size()
		if ok && size == notSynced {
			return &Error{Kind: WALExists, Expected: fmt.Sprintf("log %d with a synced size", w.Number), Found: "a second creation of it"}
		}
		// Sizes may come in the wrong order.
		if !ok || old == notSynced || size > old {
			b.wals[w.Number] = size
		}
	}
	return nil
}

func (w WAL) size() uint64 {
	if !w.Synced {
		return notSynced
	}
	return w.SyncedSize
}

// finish gives the State. The builder must not be used after it.
func (b *builder) finish() *State {
	if b.families == nil {
		if b.PendingGroup == b.base.PendingGroup {
			return b.base
		}
		s := b.State
		return &s
	}
	s := b.State
	s.Families = make([]Family, len(b.families))
	for i, f := range b.families {
		s.Families[i] = f.finish()
	}
	byID := func(x, y Family) int { return cmp.Compare(x.ID, y.ID) }
	if !slices.IsSortedFunc(s.Families, byID) {
		slices.SortFunc(s.Families, byID)
	}
	s.WALs = b.finishWALs()
	return &s
}

func (b *builder) finishWALs() []WAL {
	if b.wals == nil {
		// They are in order, and only those in front can be gone.
		n, _ := slices.BinarySearchFunc(b.WALs, b.walsBefore, func(w WAL, n uint64) int { return cmp.Compare(w.Number, n) })
		if n == len(b.WALs) {
			return nil
		}
		return b.WALs[n:]
	}
	out := make([]WAL, 0, len(b.wals))
	for number, size := range b.wals {
		if number < b.walsBefore {
			continue
		}
		w := WAL{Number: number}
		if size != notSynced {
			w.SyncedSize, w.Synced = size, true
		}
		out = append(out, w)
	}
	slices.SortFunc(out, func(x, y WAL) int { return cmp.Compare(x.Number, y.Number) })
	return out
}
