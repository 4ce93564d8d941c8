package store

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/rocksfile/manifest"
	"streams-sidecar/internal/statedir"
	"streams-sidecar/internal/volume"
)

// The column families of Kafka Streams (RocksDBTimestampedStore,
// RocksDBStore of 4.3, RocksDB…StoreWithHeaders of 4.3).
const (
	familyDefault        = "default"
	familyOffsets        = "offsets"
	familyTimestamp      = "keyValueWithTimestamp"
	familyHeaders        = "keyValueWithTimestampAndHeaders"
	familyWindowHeaders  = "windowKeyValueWithHeaders"
	familySessionHeaders = "sessionKeyValueWithHeaders"
)

// offsetUnknown is what Streams writes for "not known" (OffsetCheckpoint.OFFSET_UNKNOWN).
const offsetUnknown = -4

type owner struct {
	app  *statedir.Application
	task *statedir.Task
}

// look reads one store. prev is the earlier look or nil; with a dirty set,
// databases outside it are taken over from prev unread.
func look(v *volume.Volume, o owner, sl *statedir.Store, prev *Store, dirty map[string]bool) *Store {
	running := o.app.Running != nil && *o.app.Running
	places := []place{{path: sl.Path, id: sl.DirID, running: running}}
	if sl.Segmented {
		places = places[:0]
		for i := range sl.Segments {
			places = append(places, place{sl.Segments[i].Path, sl.Segments[i].DirID, sl.Segments[i].StartMillis, running})
		}
	}
	dbs := make([]*Database, 0, len(places))
	same := prev != nil && !prev.doubted && len(prev.Databases) == len(places) && prev.sameOutside(o, sl)
	for _, p := range places {
		before := prev.database(p)
		db := before
		if before == nil || dirty == nil || dirty[p.path] {
			db = lookDatabase(v, p, before)
		}
		same = same && db == before
		if db != nil {
			dbs = append(dbs, db)
		}
	}
	if same {
		return prev
	}
	return join(o, sl, prev, dbs)
}

// sameOutside says that everything that a store takes from outside its
// databases is as it was at the earlier look. Checkpoints keep their pointer
// while their file is the same.
func (s *Store) sameOutside(o owner, sl *statedir.Store) bool {
	was, wt := s.Layout, s.task
	return was.DirID == sl.DirID && was.Segmented == sl.Segmented && was.SetAside == sl.SetAside &&
		slices.Equal(was.Segments, sl.Segments) && len(was.Findings) == 0 && len(sl.Findings) == 0 &&
		wt.Checkpoint == o.task.Checkpoint && wt.LockFile == o.task.LockFile &&
		wt.StoreCheckpoints[s.Name] == o.task.StoreCheckpoints[s.Name] &&
		equal(s.app.Running, o.app.Running)
}

func equal(a, b *bool) bool { return a == b || (a != nil && b != nil && *a == *b) }

type place struct {
	path  string
	id    volume.ID
	start int64 // of a segment, milliseconds
	// running says that the application is known to run.
	running bool
}

// database is the earlier look at a place. A directory of another identity is
// another database, whatever its path: a store that was wiped and made anew has
// files of the same names.
func (s *Store) database(p place) *Database {
	if s == nil {
		return nil
	}
	for _, db := range s.Databases {
		if db.Path == p.path && db.DirID == p.id {
			return db
		}
	}
	return nil
}

func join(o owner, sl *statedir.Store, prev *Store, dbs []*Database) *Store {
	s := &Store{owner: o, Layout: sl, Name: sl.Name, Databases: dbs, Up: true, Listed: true, Whole: true}
	s.Findings = append(s.Findings, sl.Findings...)
	if sl.Segmented {
		s.Segments = len(dbs)
	}
	if prev != nil {
		s.retired = prev.retired
		for _, db := range prev.Databases {
			if s.database(place{path: db.Path, id: db.DirID}) == nil {
				s.retired.Add(db.Counts)
			}
		}
	}
	s.Counts = s.retired
	for _, db := range dbs {
		// A directory that cannot be read is found by both readers.
		for _, f := range db.Findings {
			if !slices.ContainsFunc(s.Findings, func(o finding.Finding) bool { return o.Code == f.Code && o.File == f.File }) {
				s.Findings = append(s.Findings, f)
			}
		}
		s.Sizes.add(db.Sizes)
		s.WALFiles += db.WALFiles
		s.WALWritten = max(s.WALWritten, db.walWritten)
		s.Counts.Add(db.Counts)
		s.Up = s.Up && db.Up
		s.Listed = s.Listed && db.Listed
		s.Whole = s.Whole && db.wholeManifest
		s.WALEnabled = either(s.WALEnabled, db.walEnabled)
	}
	if prev != nil {
		s.WALEnabled = either(s.WALEnabled, prev.WALEnabled)
	}
	s.Kind = kindOf(sl.Segmented, dbs)
	s.Era = s.eraOf(o)
	s.Sound = sound(s.Findings)
	s.Empty = s.Sound && !slices.ContainsFunc(dbs, func(d *Database) bool { return !d.empty })
	s.InUse = anyHeld(dbs)
	s.Families = sumFamilies(dbs)
	s.LastSequence = sumSequences(dbs)
	s.Offsets = s.durableOffsets(o)
	s.compareLegacy(o)
	s.Status = statusOf(dbs)
	if s.Era == OffsetsCF && o.app.Running != nil && !*o.app.Running {
		s.Closed = closedOf(dbs)
	}
	return s
}

// either joins two answers about the WAL: one true makes it true, and what is
// known of one database holds for the store.
func either(a, b *bool) *bool {
	if a == nil || (b != nil && *b) {
		return b
	}
	return a
}

func kindOf(segmented bool, dbs []*Database) Kind {
	kind := Kind("")
	for _, db := range dbs {
		k := db.kind()
		switch {
		case !segmented:
			kind = k
		case k == Window || k == Session:
			return k
		case k != "":
			kind = Segmented
		}
	}
	return kind
}

// kind of a single database, from its families. Absent if the families are not
// known in full, or one of them is none that Streams has.
func (d *Database) kind() Kind {
	names, complete := d.familyNames()
	if !complete {
		return ""
	}
	kind := KeyValue
	for _, n := range names {
		switch n {
		case familyDefault, familyOffsets:
		case familyTimestamp:
			if kind == KeyValue {
				kind = Timestamped
			}
		case familyHeaders:
			kind = Headers
		case familyWindowHeaders:
			kind = Window
		case familySessionHeaders:
			kind = Session
		default:
			return ""
		}
	}
	return kind
}

// eraOf reads the era from the families: a family offsets, in the MANIFEST or
// in OPTIONS (a MANIFEST cut in half has lost it), proves ≥ 4.3; families known
// in full without it prove an earlier version.
func (s *Store) eraOf(o owner) Era {
	known := false
	version := ""
	for _, db := range s.Databases {
		names, complete := db.familyNames()
		if slices.Contains(names, familyOffsets) || slices.Contains(db.optionsFamilies, familyOffsets) {
			return OffsetsCF
		}
		known = known || complete
		if db.RocksDBVersion != "" {
			version = db.RocksDBVersion
		}
	}
	if !known {
		return ""
	}
	// 3.0 and later remove a task's .lock only when they next need the
	// directory, so the file alone proves nothing there; 2.8 is the last
	// one with RocksDB 5.
	if o.task.LockFile && (version == "" || strings.HasPrefix(version, "5.")) {
		return TaskLock
	}
	return Checkpoint
}

func anyHeld(dbs []*Database) *bool {
	held, known := false, true
	for _, db := range dbs {
		if db.InUse == nil {
			known = false
			continue
		}
		held = held || *db.InUse
	}
	if !held && !known {
		return nil
	}
	return &held
}

func sumFamilies(dbs []*Database) []Family {
	var out []Family
	at := map[string]int{}
	for _, db := range dbs {
		for i := range db.families {
			f := &db.families[i]
			j, ok := at[f.Name]
			if !ok {
				at[f.Name] = len(out)
				c := *f
				c.Levels = slices.Clone(f.Levels)
				out = append(out, c)
				continue
			}
			out[j].merge(f)
		}
	}
	return out
}

func (f *Family) merge(o *Family) {
	f.Files += o.Files
	f.Bytes += o.Bytes
	if f.Entries != nil && o.Entries != nil {
		sum := *f.Entries + *o.Entries
		f.Entries = &sum
	} else {
		f.Entries = nil
	}
	for _, l := range o.Levels {
		i, found := slices.BinarySearchFunc(f.Levels, l, func(a, b Level) int { return a.Level - b.Level })
		if !found {
			f.Levels = slices.Insert(f.Levels, i, l)
			continue
		}
		f.Levels[i].Files += l.Files
		f.Levels[i].Bytes += l.Bytes
	}
}

func sumSequences(dbs []*Database) *uint64 {
	var sum uint64
	for _, db := range dbs {
		if db.lastSequence == nil {
			return nil
		}
		sum += *db.lastSequence
	}
	if len(dbs) == 0 {
		return nil
	}
	return &sum
}

// durableOffsets are the store's offsets from wherever its era keeps them.
func (s *Store) durableOffsets(o owner) []Offset {
	meaning := LastApplied
	if o.task.Global {
		meaning = Next
	}
	var out []Offset
	if s.Era == OffsetsCF {
		// Streams takes a segmented store's offset from its newest segment
		// that has one (AbstractSegments.committedOffset, 4.3.1).
		for _, db := range slices.Backward(s.Databases) {
			for i := range db.offsets.entries {
				e := &db.offsets.entries[i]
				if hasOffset(out, e.Topic, e.Partition) {
					continue
				}
				out = append(out, Offset{e.Topic, e.Partition, e.Offset, meaning})
			}
		}
	} else if c := o.task.Checkpoint; c != nil {
		topic := o.task.ChangelogTopic(o.app.ID, s.Name)
		for _, e := range c.Entries {
			if e.Topic == topic {
				out = append(out, Offset{e.Topic, e.Partition, e.Offset, meaning})
			}
		}
	}
	// The file of a custom store has its name, so whatever is in it is its own.
	if c := o.task.StoreCheckpoints[s.Name]; c != nil {
		for _, e := range c.Entries {
			if !hasOffset(out, e.Topic, e.Partition) {
				out = append(out, Offset{e.Topic, e.Partition, e.Offset, meaning})
			}
		}
	}
	out = slices.DeleteFunc(out, func(x Offset) bool { return x.Offset == offsetUnknown })
	slices.SortFunc(out, func(a, b Offset) int {
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return int(a.Partition) - int(b.Partition)
	})
	return out
}

// compareLegacy finds a .checkpoint from before 4.3 that says otherwise than a
// store of 4.3: at the next start LegacyCheckpointingStateStore commits the
// file's offsets into the store, whatever is there.
func (s *Store) compareLegacy(o owner) {
	c := o.task.Checkpoint
	if s.Era != OffsetsCF || c == nil || o.task.Global {
		return
	}
	topic := o.task.ChangelogTopic(o.app.ID, s.Name)
	for _, e := range c.Entries {
		if e.Topic != topic {
			continue
		}
		own := "none"
		if e.Offset == offsetUnknown {
			own = strconv.Itoa(offsetUnknown) // both do not know
		}
		for _, x := range s.Offsets {
			if x.Topic == e.Topic && x.Partition == e.Partition {
				own = strconv.FormatInt(x.Offset, 10)
			}
		}
		if own != strconv.FormatInt(e.Offset, 10) {
			s.Findings = append(s.Findings, finding.New(finding.LegacyCheckpoint, c.Path,
				finding.Expected("%s, as the store has it", own), finding.Found("%d", e.Offset)))
		}
	}
}

func hasOffset(out []Offset, topic string, partition int32) bool {
	return slices.ContainsFunc(out, func(x Offset) bool { return x.Topic == topic && x.Partition == partition })
}

func statusOf(dbs []*Database) Status {
	var status Status
	for _, db := range dbs {
		switch {
		case db.offsets.status == StatusOpen:
			return StatusOpen
		case db.offsets.status == StatusClosed:
			status = StatusClosed
		}
	}
	return status
}

func closedOf(dbs []*Database) Closed {
	closed := Clean
	for _, db := range dbs {
		switch db.closed() {
		case Unclean:
			return Unclean
		case "":
			closed = ""
		}
	}
	if len(dbs) == 0 {
		return ""
	}
	return closed
}

// Sign is what the files of a database at rest show of its last close (≥ 4.3).
type Sign string

// The signs. The empty one means that it cannot be told: the database is in use
// or could not be read, or it is none of 4.3 and later.
const (
	SignClean      Sign = "clean"
	SignTorn       Sign = "torn"        // the MANIFEST ends within a record
	SignNotWritten Sign = "not-written" // no table of offsets since the last open
	SignOpen       Sign = "open"        // status is open
	SignBehind     Sign = "behind"      // data is younger than the offset
	SignNoStatus   Sign = "no-status"   // clean but for the status, which a transactional store (4.4) never has
	SignZeroed     Sign = "zeroed"      // a compaction has removed the sequence numbers, and the MANIFEST does not have them
)

// CloseSign applies the rule that separated every case on 4.3.1 and 4.4.0: a
// close always writes a table of the family offsets, numbered after the
// MANIFEST that its open made; it stores status 0 (closed); and it writes the
// changelog offset after the last of the data, so with a higher sequence
// number. Locks, status and a trimmed MANIFEST alone prove nothing: a client
// that died in ERROR leaves all three.
func (d *Database) CloseSign() Sign {
	if d.InUse == nil || *d.InUse || d.state == nil || !d.offsets.known {
		return ""
	}
	if d.partialTail {
		return SignTorn
	}
	var newest, data uint64
	var flushed []manifest.Flushed
	for i := range d.state.Families {
		f := &d.state.Families[i]
		if f.Name == familyOffsets {
			newest, flushed = f.LastFlush, f.Flushed
		} else {
			data = max(data, f.FlushedSeq)
		}
		for j := range f.Files {
			if f.Name == familyOffsets {
				newest = max(newest, f.Files[j].Number)
			} else {
				data = max(data, f.Files[j].LargestSeq)
			}
		}
	}
	switch {
	case newest <= d.manifestNumber:
		return SignNotWritten
	case d.offsets.status == StatusOpen:
		return SignOpen
	case !d.offsets.hasKey: // it is not logged: there is no offset that could lag
	case d.offsets.newestSeq > 0 && d.offsets.newestSeq <= data:
		return SignBehind
	case d.offsets.newestSeq == 0 && len(flushed) == 0:
		return SignZeroed
	case d.offsets.newestSeq == 0 && committed(flushed) <= data:
		return SignBehind
	}
	if d.offsets.status == "" {
		return SignNoStatus
	}
	return SignClean
}

// committed is the sequence number after which the offset was last written, as
// far as the last flushes of the family offsets tell. RocksDB compacts that
// family every few closes, also while it closes, and the compaction zeroes the
// sequence numbers (measured on 4.3.1 and 4.4.0); the MANIFEST has those of the
// tables that were flushed. A commit writes the offset and the position
// together, a close without a commit only the status.
func committed(flushed []manifest.Flushed) uint64 {
	for _, f := range flushed {
		if f.SmallestKey != statusStart || f.LargestKey != statusStart {
			return f.SmallestSeq
		}
	}
	return 0
}

// closed is what the sign says without more: a transactional store would need
// a MANIFEST that was seen preallocated while open, and at rest it was not.
func (d *Database) closed() Closed {
	switch d.CloseSign() {
	case SignClean:
		return Clean
	case SignTorn, SignNotWritten, SignOpen, SignBehind:
		return Unclean
	}
	return ""
}

// Families of the database, by id; none if its MANIFEST could not be parsed.
func (d *Database) Families() []Family { return slices.Clone(d.families) }

// OffsetEntries are the keys <topic>-<partition> of the family offsets, as they
// stand there.
func (d *Database) OffsetEntries() []OffsetEntry { return slices.Clone(d.offsets.entries) }

// OffsetsKnown says that there is a family offsets and that all of it was read and
// decoded.
func (d *Database) OffsetsKnown() bool { return d.offsets.known }

// Status is the key status of the family offsets, "" if there is none.
func (d *Database) Status() Status { return d.offsets.status }

// Manifest gives the file that CURRENT names and what it says; ok is false if
// it could not be parsed at all.
func (d *Database) Manifest() (state *manifest.State, info volume.Info, ok bool) {
	return d.state, d.manifest, d.state != nil
}

// LastFlush is when the youngest table that a flush has written since the
// MANIFEST was begun was finished, by its st_mtim in nanoseconds; 0 if there is
// none or a compaction has taken it away.
func (d *Database) LastFlush() int64 {
	if d.state == nil {
		return 0
	}
	at := int64(0)
	for i := range d.state.Families {
		if t := d.tables[d.state.Families[i].LastFlush]; t != nil {
			at = max(at, t.info.ModNanos)
		}
	}
	return at
}

// DataFlushed says that a flush has written a table of a family other than
// offsets since the MANIFEST was begun: the database was opened to be used.
func (d *Database) DataFlushed() bool {
	if d.state == nil {
		return false
	}
	for i := range d.state.Families {
		if f := &d.state.Families[i]; f.Name != familyOffsets && f.LastFlush > 0 {
			return true
		}
	}
	return false
}

// LastCreated is when the youngest live table was begun, as the MANIFEST says:
// seconds since the epoch; 0 if it does not say (RocksDB before 6).
func (d *Database) LastCreated() (at uint64) {
	if d.state == nil {
		return 0
	}
	for i := range d.state.Families {
		for j := range d.state.Families[i].Files {
			at = max(at, d.state.Families[i].Files[j].CreationTime)
		}
	}
	return min(at, maxSeconds)
}

// maxSeconds bounds what a damaged MANIFEST says: the year 2242, which fits into
// nanoseconds.
const maxSeconds = 1 << 33

// LastTable is when the youngest live table was finished, by its st_mtim in
// nanoseconds; 0 if there is none.
func (d *Database) LastTable() int64 {
	at := int64(0)
	for _, t := range d.tables {
		at = max(at, t.info.ModNanos)
	}
	return at
}

// ManifestNumber of the MANIFEST that CURRENT names, 0 if it could not be
// parsed. Every open of a database begins a new one.
func (d *Database) ManifestNumber() uint64 {
	if d.state == nil {
		return 0
	}
	return d.manifestNumber
}

// PartialTail says that the MANIFEST ends within a record.
func (d *Database) PartialTail() bool { return d.partialTail }

// WholeManifest says that the MANIFEST was parsed to its last byte.
func (d *Database) WholeManifest() bool { return d.wholeManifest }

// ManifestWritten is st_mtim of the MANIFEST in nanoseconds; 0 if it could not
// be opened.
func (d *Database) ManifestWritten() int64 { return d.manifest.ModNanos }

// preallocated is what a MANIFEST that is open has over its size: RocksDB
// allocates 4 MiB (measured with 5.18 to 10.1), and a close trims it to the
// file system's blocks.
const preallocated = 1 << 20

// Preallocated says that the MANIFEST occupies much more than its size: it is
// open, or was left open by a process that was killed. False says something
// only on a file system where it was once seen true.
func (d *Database) Preallocated() bool {
	return d.state != nil && d.ManifestAllocated-d.ManifestSize >= preallocated
}

// Fingerprint of the directory as it was listed: it changes with everything that
// a stat of its entries can see. It means nothing to another process.
func (d *Database) Fingerprint() uint64 { return d.listing }

// IsEmpty says that there is no database in the directory: none was ever made, it
// was removed, or it is just being made.
func (d *Database) IsEmpty() bool { return d.empty }

// TableValues is the number of entries with a value in one live table, by its
// number; ok is false if its properties could not be read.
func (d *Database) TableValues(number uint64) (values uint64, ok bool) {
	t := d.tables[number]
	if t == nil {
		return 0, false
	}
	return t.values, true
}

// ManifestLag is how many seconds younger the youngest table file in a database
// of the store is than its MANIFEST; ok is false if it is not known.
func (s *Store) ManifestLag() (lag float64, ok bool) {
	for _, db := range s.Databases {
		if db.state == nil {
			continue
		}
		ok = true
		lag = max(lag, float64(max(db.LastTable(), db.newestStray)-db.manifest.ModNanos)/1e9)
	}
	return lag, ok
}

// Formats of the live tables, each once.
func (d *Database) Formats() (out []Format) {
	for _, t := range d.tables {
		if !slices.Contains(out, t.format) {
			out = append(out, t.format)
		}
	}
	slices.SortFunc(out, func(a, b Format) int {
		return cmp.Or(cmp.Compare(a.Version, b.Version), cmp.Compare(a.Checksum, b.Checksum))
	})
	return out
}

// Strays are the tables in the directory that the MANIFEST does not name, the
// newest first, at most 64, and how many there are beyond those.
func (d *Database) Strays() (strays []volume.Info, more int) { return d.strays, d.moreStrays }

// Foreign says that there is a file in the directory that is none of RocksDB's.
func (d *Database) Foreign() bool { return d.foreign }

// WALs are the write-ahead logs that have bytes, at most 16.
func (d *Database) WALs() []volume.Info { return d.wals }

// Logs are LOG and the newest of its predecessors, of those that have bytes.
func (d *Database) Logs() []volume.Info { return d.logs }

// Tables are how many live tables the MANIFEST names, of every family.
func (d *Database) Tables() (n int) {
	for i := range d.families {
		n += d.families[i].Files
	}
	return n
}

// Begun says that the database was begun and its first open not finished: it has
// the MANIFEST of a new one and no OPTIONS, which that open writes last.
func (d *Database) Begun() bool {
	return d.state != nil && d.manifestNumber == 1 && d.optionsFile.Name == "" && d.InUse != nil && !*d.InUse
}

// Live says that the MANIFEST names the table of a number.
func (d *Database) Live(number uint64) bool {
	if d.state == nil {
		return false
	}
	for i := range d.state.Families {
		if slices.ContainsFunc(d.state.Families[i].Files, func(f manifest.File) bool { return f.Number == number }) {
			return true
		}
	}
	return false
}

// Reread reads a database anew from its first byte, whatever is known of it; nil
// if it is gone.
func (d *Database) Reread(v *volume.Volume) *Database {
	return lookDatabase(v, d.place, nil)
}

// familyNames are the families that the MANIFEST (or, where it cannot be read,
// OPTIONS) lists, and whether that is all of them.
func (d *Database) familyNames() (names []string, complete bool) {
	if d.state != nil {
		for i := range d.state.Families {
			names = append(names, d.state.Families[i].Name)
		}
		if d.wholeManifest {
			return names, true
		}
	}
	if len(d.optionsFamilies) > 0 {
		return d.optionsFamilies, true
	}
	return names, false
}
