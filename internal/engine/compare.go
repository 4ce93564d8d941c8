package engine

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"streams-sidecar/internal/rocksfile/manifest"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
)

// Subject is what a Difference is about.
type Subject string

// The subjects.
const (
	Open         Subject = "open"          // RocksDB does not open or read what we have read
	FamilySet    Subject = "column-family" // one side does not have it
	LastSequence Subject = "last-sequence"
	Tables       Subject = "table"   // a live table, its level, size or sequence numbers
	Entries      Subject = "entries" // with a value, in the live tables of a family
	Offsets      Subject = "offset"  // a key of the family offsets
)

// Difference is one thing of which our readers and RocksDB say not the same.
// Texts are safe to print.
type Difference struct {
	Subject Subject
	Family  string
	Ours    string
	RocksDB string
}

const (
	none       = "none"
	unreadable = "could not be read"
)

// Compare gives every difference between what our readers have read of a
// database and RocksDB's answer about it; o says whether the answer has the
// offsets. RocksDB replays a WAL that has bytes, and our readers tell the
// flushed state: then the last sequence number and the offsets are compared
// only as far as RocksDB's must not be behind.
//
// Between our look and RocksDB's a live database may have changed. A difference
// counts only if a later look finds the directory as it was.
func Compare(db *store.Database, a *Answer, o What) []Difference {
	if a.Error != "" {
		return []Difference{{Subject: Open, Ours: "readable", RocksDB: volume.Text(a.Error)}}
	}
	state, _, ok := db.Manifest()
	if !ok {
		return nil
	}
	c := comparison{db: db, replayed: db.Sizes.WAL > 0}
	if ours, theirs := state.LastSequence, a.LastSequence; ours != theirs && !(c.replayed && theirs > ours) {
		c.add(LastSequence, "", strconv.FormatUint(ours, 10), strconv.FormatUint(theirs, 10))
	}
	families := map[string]*Family{}
	for i := range a.Families {
		families[string(a.Families[i].Name)] = &a.Families[i]
	}
	entries := map[string]*uint64{}
	for _, f := range db.Families() {
		entries[f.Name] = f.Entries
	}
	for i := range state.Families {
		ours := &state.Families[i]
		theirs, ok := families[ours.Name]
		if !ok {
			c.add(FamilySet, ours.Name, strconv.Itoa(len(ours.Files))+" tables", none)
			continue
		}
		delete(families, ours.Name)
		c.tables(ours, theirs)
		c.entries(entries[ours.Name], theirs)
	}
	for _, name := range slices.Sorted(maps.Keys(families)) {
		c.add(FamilySet, name, none, strconv.Itoa(len(families[name].Files))+" tables")
	}
	// Ours are not known where they are in a blob file.
	if o.Offsets && !c.replayed && db.OffsetsKnown() && a.OffsetsLeftOut == "" {
		c.offsets(a.Offsets)
	}
	return c.out
}

type comparison struct {
	db       *store.Database
	replayed bool
	out      []Difference
}

func (c *comparison) add(s Subject, family, ours, theirs string) {
	c.out = append(c.out, Difference{s, volume.Text(family), volume.Text(ours), volume.Text(theirs)})
}

func (c *comparison) tables(ours *manifest.Family, theirs *Family) {
	theirTables := map[uint64]string{}
	for i := range theirs.Files {
		t := &theirs.Files[i]
		theirTables[t.Number] = table(t.Number, t.Level, t.Size, t.SmallestSeq, t.LargestSeq)
	}
	for i := range ours.Files {
		f := &ours.Files[i]
		text := table(f.Number, f.Level, f.Size, f.SmallestSeq, f.LargestSeq)
		their, ok := theirTables[f.Number]
		delete(theirTables, f.Number)
		if !ok {
			their = none
		}
		if text != their {
			c.add(Tables, ours.Name, text, their)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(theirTables)) {
		c.add(Tables, ours.Name, none, theirTables[n])
	}
}

func table(number uint64, level int, size, smallest, largest uint64) string {
	return fmt.Sprintf("%06d.sst level %d, %d bytes, sequence %d to %d", number, level, size, smallest, largest)
}

func (c *comparison) entries(ours *uint64, theirs *Family) {
	if a, b := number(ours), number(theirs.Values()); a != b {
		c.add(Entries, string(theirs.Name), a, b)
	}
}

func number(n *uint64) string {
	if n == nil {
		return unreadable
	}
	return strconv.FormatUint(*n, 10)
}

// offsets compares the keys that our reader decodes: status and those of
// changelog partitions.
func (c *comparison) offsets(pairs []KeyValue) {
	const family = "offsets"
	theirs := map[string]string{}
	for _, p := range pairs {
		text := fmt.Sprintf("%x", p.Value)
		if len(p.Value) == 8 {
			text = strconv.FormatInt(int64(binary.BigEndian.Uint64(p.Value)), 10)
		}
		theirs[string(p.Key)] = text
	}
	ours := map[string]string{}
	for _, e := range c.db.OffsetEntries() {
		ours[e.Key()] = strconv.FormatInt(e.Offset, 10)
	}
	switch c.db.Status() {
	case store.StatusClosed:
		ours["status"] = "0"
	case store.StatusOpen:
		ours["status"] = "1"
	}
	for _, key := range slices.Sorted(maps.Keys(ours)) {
		their, ok := theirs[key]
		if !ok {
			their = none
		}
		if ours[key] != their {
			c.add(Offsets, family, key+" "+ours[key], key+" "+their)
		}
		delete(theirs, key)
	}
	for _, key := range slices.Sorted(maps.Keys(theirs)) {
		if _, _, ok := store.SplitOffsetKey(key); ok {
			c.add(Offsets, family, key+" "+none, key+" "+theirs[key])
		}
	}
}
