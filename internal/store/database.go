package store

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/rocksfile/manifest"
	"streams-sidecar/internal/rocksfile/options"
	"streams-sidecar/internal/volume"
)

// Bounds of what is read whole. Real files: CURRENT 16 bytes, OPTIONS 5–17 KB.
const (
	currentLimit = 4 << 10
	optionsLimit = 4 << 20
)

// A live store changes while it is read: CURRENT may name a MANIFEST that is
// deleted a moment later, and a table may vanish between the listing and the
// MANIFEST. What looks wrong is therefore looked at again, after a pause that
// is longer than the few milliseconds in which RocksDB switches files.
const (
	secondLooks = 2
	lookPause   = 25 * time.Millisecond
	// moving bounds how long a directory is given that changes from look to
	// look, as one that is being deleted does.
	moving = 10
)

// beingMade is how long after its newest file a store in use may still be on
// its way into being.
const beingMade = 10 * time.Second

// tailBytes of a MANIFEST are remembered, to tell a file that has grown from
// another one that has got its number and its inode.
const tailBytes = 64

// Database is one RocksDB directory: a store, or one segment of a store.
type Database struct {
	Path string
	// DirID is the identity of the directory.
	DirID volume.ID
	// Start of the segment, milliseconds since the epoch; 0 if it is none.
	Start int64

	InUse *bool // its LOCK is held; nil if it could not be asked
	// HolderPID of the LOCK, 0 if not visible.
	HolderPID int
	Up        bool // everything that was needed could be read
	Listed    bool // the directory could be listed: Sizes and WALFiles are known
	Sizes     Sizes
	WALFiles  int
	Counts    manifest.Counts // since first seen, over several MANIFESTs
	Findings  []finding.Finding
	// RocksDBVersion that wrote the newest OPTIONS file; "" if unknown.
	RocksDBVersion string
	// WALDir is where OPTIONS says that the write-ahead logs are kept, "" for
	// the database's own directory.
	WALDir string
	// ManifestAllocated is how many bytes the MANIFEST occupies, ManifestSize
	// how many it has: RocksDB preallocates 4 MiB while it has it open.
	ManifestAllocated, ManifestSize int64

	place          place
	empty          bool
	foreign        bool
	walWritten     int64
	walEnabled     *bool
	lastSequence   *uint64
	families       []Family
	state          *manifest.State // nil if not parsed
	wholeManifest  bool            // the MANIFEST was parsed to its last byte
	partialTail    bool            // it ends within a record, seen twice
	manifest       volume.Info
	manifestNumber uint64
	manifestTail   [tailBytes]byte // the last bytes that were parsed
	tables         map[uint64]*table
	strays         []volume.Info
	moreStrays     int   // beyond those
	newestStray    int64 // modification time of the youngest of all of them, nanoseconds
	logs, wals     []volume.Info
	offsets        offsets

	optionsFile     volume.Info
	optionsFamilies []string

	listing     uint64 // fingerprint of the directory; see fingerprint
	settled     bool   // nothing seen that another look might see otherwise
	beforeCount manifest.Counts
}

// What an application that runs and does not have a database open is deleting,
// file by file, looks damaged: the segment of a window that has expired, the
// stores of a task that it wipes. It is believed to be damaged only once nothing
// has changed in it for the time that is standing; until then it is looked at
// again after each deletionPause. On ext4 under load 50 ms and more were seen
// between two files.
const (
	standing      = 2 * time.Second
	deletionPause = 100 * time.Millisecond
	// longestDeletion is how long a directory is waited for that changes on and
	// on. It is then as good as gone.
	longestDeletion = 10 * time.Second
)

// lookDatabase reads one database directory, or gives prev back if nothing in
// it has changed. It never fails: an error is a finding. A directory that is
// gone since the layout was read, as a segment that has expired, gives nil.
func lookDatabase(v *volume.Volume, p place, prev *Database) *Database {
	db := lookOnce(v, p, prev)
	if prev != nil && db != nil && db.listing == prev.listing {
		return db // it had its time
	}
	still := time.Duration(0)
	for began := time.Now(); db.maybeDeleted() && still < standing; {
		if time.Since(began) > longestDeletion {
			return nil
		}
		time.Sleep(deletionPause)
		next := lookOnce(v, p, db)
		if still += deletionPause; next == nil || next.listing != db.listing {
			still = 0
		}
		db = next
	}
	return db
}

// maybeDeleted says that what looks damaged may be on its way out.
func (d *Database) maybeDeleted() bool {
	return d != nil && d.place.running && d.InUse != nil && !*d.InUse &&
		slices.ContainsFunc(d.Findings, func(f finding.Finding) bool { return f.Severity == finding.Damage || f.Code == finding.Unread })
}

func lookOnce(v *volume.Volume, p place, prev *Database) *Database {
	db, err := volume.Do(v, p.path, func(fs volume.FS) (*Database, error) {
		return readDatabase(fs, p, prev)
	})
	if err == nil {
		return db
	}
	if volume.IsGone(err) {
		return nil
	}
	// What was known before is out of date by an unknown amount: only the
	// counters, which cannot go back, are kept.
	db = &Database{Path: p.path, DirID: p.id, Start: p.start, place: p, Findings: []finding.Finding{finding.FromError(err, p.path)}}
	if prev != nil {
		db.Counts, db.beforeCount = prev.Counts, prev.Counts
	}
	return db
}

func readDatabase(fs volume.FS, p place, prev *Database) (*Database, error) {
	var last uint64 // fingerprint
	looks := 0      // at a directory that stood still
	for attempt := 0; ; attempt++ {
		l, err := list(fs, p.path)
		if err != nil {
			return nil, err
		}
		if l.fingerprint == last || attempt >= moving {
			looks++
		}
		last = l.fingerprint
		lock := askLock(fs, p.path, l)
		if prev != nil && prev.settled && prev.listing == l.fingerprint {
			return prev.withLock(lock), nil
		}
		r := reading{fs: fs, l: l, prev: prev, db: &Database{
			Path: p.path, DirID: p.id, Start: p.start, place: p, Up: true, Listed: true, settled: true,
			Sizes: l.sizes, WALFiles: l.walFiles, walWritten: l.walWritten,
			listing: l.fingerprint,
		}}
		r.db.setLock(lock)
		// What the last look found too has had its second looks.
		again := r.read()
		r.db.Findings = finding.Bounded(r.db.Findings, r.left)
		if !again || r.knownTrouble() || looks >= secondLooks {
			return r.db, nil
		}
		time.Sleep(lookPause)
	}
}

// LockPath is the file that RocksDB locks while it has the database open.
func (d *Database) LockPath() string { return filepath.Join(d.Path, "LOCK") }

type lockAnswer struct {
	lock volume.Lock
	err  error
	path string
}

func askLock(fs volume.FS, dir string, l *listing) lockAnswer {
	a := lockAnswer{path: filepath.Join(dir, "LOCK")}
	if l.hasLock {
		a.lock, a.err = fs.Lock(a.path)
		if volume.IsGone(a.err) {
			a.err = nil
		}
	}
	return a
}

func (d *Database) setLock(a lockAnswer) {
	if a.err != nil {
		d.InUse = nil
		d.Findings = append(d.Findings, finding.FromError(a.err, a.path))
		d.settled = false
		return
	}
	held := a.lock.Held
	d.InUse, d.HolderPID = &held, a.lock.PID
}

func (d *Database) withLock(a lockAnswer) *Database {
	if a.err == nil && d.InUse != nil && *d.InUse == a.lock.Held && d.HolderPID == a.lock.PID {
		return d
	}
	c := *d
	c.Findings = slices.Clone(d.Findings)
	c.setLock(a)
	return &c
}

// listing is what the directory entries and stats of a database tell.
type listing struct {
	entries     int
	fingerprint uint64
	sizes       Sizes
	walFiles    int
	walWritten  int64
	newestWAL   uint64
	newestMod   int64 // the latest st_mtim of a file, nanoseconds
	hasLock     bool
	foreign     bool // a file that is none of RocksDB's
	hasCurrent  bool
	manifests   int
	// firstManifest says that one of them is the one that a new database begins with.
	firstManifest bool
	newest        uint64 // number of the newest OPTIONS file
	options       volume.Info
	identity      int64 // bytes of IDENTITY
	current       int64 // bytes of CURRENT
	tables        map[uint64]volume.Info
	blobs         map[uint64]volume.Info
	// logs are LOG, and the newest of its predecessors that has bytes; wals the
	// write-ahead logs that have bytes, maxWALs at most.
	logs, wals []volume.Info
}

// maxWALs is how many write-ahead logs with bytes are remembered by name. A
// database has a few.
const maxWALs = 16

// maxStrays is how many tables that the MANIFEST does not name are remembered.
// An interrupted flush or compaction leaves a few.
const maxStrays = 64

var seed = maphash.MakeSeed()

// fingerprint of one entry; the sum over a directory tells whether anything
// that a stat can see has changed, in whatever order the entries come.
func fingerprint(i *volume.Info) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	_, _ = h.WriteString(i.Name) // never fails
	maphash.WriteComparable(&h, [7]int64{i.Size, i.Allocated, i.ModNanos, int64(i.Ino), int64(i.Dev),
		int64(i.Mode)<<8 | int64(i.Kind), int64(i.UID)<<32 | int64(i.GID)})
	return h.Sum64()
}

func list(fs volume.FS, dir string) (*listing, error) {
	l := &listing{tables: map[uint64]volume.Info{}}
	err := fs.List(dir, func(i volume.Info) error {
		l.entries++
		l.fingerprint += fingerprint(&i)
		l.add(&i)
		return nil
	})
	return l, err
}

func (l *listing) add(i *volume.Info) {
	name := i.Name
	l.newestMod = max(l.newestMod, i.ModNanos)
	switch {
	case name == "CURRENT":
		l.hasCurrent, l.current = true, i.Size
		l.sizes.Other += i.Size
	case name == "IDENTITY":
		l.identity = i.Size
		l.sizes.Other += i.Size
	case name == "LOCK":
		l.hasLock = true
	case name == "LOG" || strings.HasPrefix(name, "LOG.old."):
		l.sizes.Log += i.Size
		l.addLog(i)
	case strings.HasPrefix(name, "MANIFEST-"):
		l.manifests++
		l.firstManifest = l.firstManifest || name == "MANIFEST-000001"
		l.sizes.Manifest += i.Size
	case strings.HasPrefix(name, "OPTIONS-"):
		l.sizes.Other += i.Size
		if n, err := strconv.ParseUint(name[len("OPTIONS-"):], 10, 64); err == nil && n >= l.newest {
			l.newest, l.options = n, *i
		}
	case strings.HasSuffix(name, ".sst"):
		l.sizes.SST += i.Size
		if n, ok := FileNumber(name, ".sst"); ok {
			l.tables[n] = *i
		}
	case strings.HasSuffix(name, ".blob"):
		l.sizes.Other += i.Size
		if n, ok := FileNumber(name, ".blob"); ok {
			if l.blobs == nil {
				l.blobs = map[uint64]volume.Info{}
			}
			l.blobs[n] = *i
		}
	case strings.HasSuffix(name, ".log"):
		l.sizes.WAL += i.Size
		l.walFiles++
		if n, ok := FileNumber(name, ".log"); ok {
			l.newestWAL = max(l.newestWAL, n)
		}
		if i.Size > 0 {
			l.walWritten = max(l.walWritten, i.ModNanos)
			if len(l.wals) < maxWALs {
				l.wals = append(l.wals, *i)
			}
		}
	case i.Kind == volume.Regular:
		l.sizes.Other += i.Size
		l.foreign = l.foreign || !strings.HasSuffix(name, ".dbtmp") && !strings.HasSuffix(name, ".trash")
	}
}

// addLog keeps LOG and the newest of the others, of those that have bytes.
func (l *listing) addLog(i *volume.Info) {
	if i.Size == 0 {
		return
	}
	l.logs = append(l.logs, *i)
	// LOG first; the names of the others end with the time of the open that has
	// put them aside, in microseconds.
	slices.SortFunc(l.logs, func(a, b volume.Info) int {
		return cmp.Or(cmp.Compare(len(a.Name), len("LOG"))-cmp.Compare(len(b.Name), len("LOG")),
			cmp.Compare(len(b.Name), len(a.Name)), strings.Compare(b.Name, a.Name))
	})
	l.logs = l.logs[:min(len(l.logs), 2)]
}

// FileNumber is that of a file NNNNNN.sst, .log or .blob (RocksDB
// file/filename.cc); ok is false for another name.
func FileNumber(name, suffix string) (n uint64, ok bool) {
	n, err := strconv.ParseUint(strings.TrimSuffix(name, suffix), 10, 64)
	return n, err == nil
}

// nothing says that the directory holds no database: none was ever made, or it
// was removed. RocksDB would make a new one here.
func (l *listing) nothing() bool {
	return !l.hasCurrent && (l.manifests == 0 || l.unborn()) && len(l.tables) == 0 && len(l.blobs) == 0 && l.sizes.WAL == 0
}

// unborn says that RocksDB was ended while it made the database: it writes a first
// MANIFEST, which names no table, and then CURRENT (db/db_impl/db_impl_open.cc,
// DBImpl::NewDB); the log, another MANIFEST and OPTIONS come only with the open
// that follows. It makes a new database over that file, as if it were not there.
func (l *listing) unborn() bool {
	return l.manifests == 1 && l.firstManifest && l.walFiles == 0 && l.options.Name == ""
}

// reading is one attempt to read a database.
type reading struct {
	fs   volume.FS
	l    *listing
	prev *Database
	db   *Database
	left int // findings beyond those that are kept
}

func (r *reading) path(name string) string { return filepath.Join(r.db.Path, name) }

// knownTrouble says that every finding was there at the last look too.
func (r *reading) knownTrouble() bool {
	if r.prev == nil {
		return false
	}
	for _, f := range r.db.Findings {
		if !slices.ContainsFunc(r.prev.Findings, func(o finding.Finding) bool { return o.Code == f.Code && o.File == f.File }) {
			return false
		}
	}
	return true
}

// defect adds a finding about content: as long as no stat changes, it stays.
func (r *reading) defect(f finding.Finding) {
	if f.Severity != finding.Info {
		r.db.Up = false
	}
	if len(r.db.Findings) >= finding.Most {
		r.left++
		return
	}
	r.db.Findings = append(r.db.Findings, f)
}

// enough says that so much is wrong that nobody wants to know more of it.
func (r *reading) enough() bool { return r.left > 0 }

// failure adds a finding about an error of the volume, which may be over at the
// next look although no stat changes.
func (r *reading) failure(err error, path string) {
	r.defect(finding.FromError(err, path))
	r.db.settled = false
}

// read fills in r.db and says whether a second look is called for.
func (r *reading) read() (again bool) {
	if r.prev != nil {
		r.db.Counts, r.db.beforeCount = r.prev.Counts, r.prev.beforeCount
	}
	r.db.foreign = r.l.foreign
	if r.l.nothing() {
		r.db.empty = true
		return false
	}
	if r.l.current >= encryptedPrefix && r.l.current < encryptedPrefix+currentLimit && r.l.identity >= encryptedPrefix {
		r.defect(finding.New(finding.Encrypted, r.path("CURRENT"),
			finding.Expected("some 16 bytes"), finding.Found("%d bytes: %d more, as in front of every file of an encrypted database", r.l.current, encryptedPrefix)))
		return false
	}
	r.db.logs, r.db.wals = r.l.logs, r.l.wals
	r.readOptions()
	again = r.readManifest()
	if r.l.identity == 0 && r.l.hasCurrent {
		r.db.Findings = append(r.db.Findings, finding.New(finding.IdentityMissing, r.path("IDENTITY")))
	}
	if r.db.state == nil {
		return again
	}
	again = r.readTables() || again
	r.findStrays()
	r.checkSequence()
	return r.checkBlobs() || again
}

// checkSequence holds the last sequence number against those of the tables: every
// edit that adds tables carries one that is not lower. RocksDB only asserts it
// (db/version_edit_handler.cc, CheckIterationResult), and shows no entry above.
func (r *reading) checkSequence() {
	state := r.db.state
	for i := range state.Families {
		for _, f := range state.Families[i].Files {
			if f.LargestSeq > state.LastSequence {
				r.defect(finding.New(finding.ManifestBehind, r.path(r.db.manifest.Name),
					finding.Expected("at least %d, as in table %06d.sst", f.LargestSeq, f.Number), finding.Found("%d", state.LastSequence)))
				return
			}
		}
	}
}

// findStrays keeps the tables that the MANIFEST does not name.
func (r *reading) findStrays() {
	live := make(map[uint64]bool, len(r.db.tables))
	for i := range r.db.state.Families {
		for _, f := range r.db.state.Families[i].Files {
			live[f.Number] = true
		}
	}
	for n, info := range r.l.tables {
		if !live[n] {
			r.db.strays = append(r.db.strays, info)
			r.db.newestStray = max(r.db.newestStray, info.ModNanos)
		}
	}
	// The newest are the most likely to be missed, empty ones the least.
	slices.SortFunc(r.db.strays, func(a, b volume.Info) int {
		m, _ := FileNumber(a.Name, ".sst")
		n, _ := FileNumber(b.Name, ".sst")
		return cmp.Or(cmp.Compare(min(b.Size, 1), min(a.Size, 1)), cmp.Compare(n, m))
	})
	if more := len(r.db.strays) - maxStrays; more > 0 {
		r.db.strays, r.db.moreStrays = r.db.strays[:maxStrays], more
	}
}

// Sizes of a blob file's header and footer, bytes (RocksDB
// db/blob/blob_log_format.h).
const blobFrame = 30 + 32

// checkBlobs looks for the blob files that the MANIFEST names, and says whether
// a second look is called for.
func (r *reading) checkBlobs() (again bool) {
	n := 0
	for i := range r.db.state.Families {
		for _, b := range r.db.state.Families[i].Blobs {
			if !b.Live || r.enough() {
				continue
			}
			n++
			path := r.path(fmt.Sprintf("%06d.blob", b.Number))
			info, there := r.l.blobs[b.Number]
			var err error
			if !there { // written after the listing?
				info, err = r.fs.Lstat(path)
			}
			expected := b.Bytes + blobFrame
			switch {
			case err != nil && !volume.IsGone(err):
				r.failure(err, path)
			case err != nil:
				r.stillNamed(finding.New(finding.BlobMissing, path, finding.Expected("%d bytes", expected), finding.Found("no such file")))
			case uint64(info.Size) < expected:
				r.stillNamed(finding.New(finding.BlobSizeMismatch, path, finding.Expected("%d bytes", expected), finding.Found("%d bytes", info.Size)))
			default:
				continue
			}
			again = true
		}
	}
	if n > 0 {
		found := "1 blob file"
		if n > 1 {
			found = fmt.Sprintf("%d blob files", n)
		}
		r.db.Findings = append(r.db.Findings, finding.New(finding.BlobFiles, r.db.Path, finding.Found("%s", found)))
	}
	return again
}

func (r *reading) readOptions() {
	i := &r.l.options
	if i.Name == "" {
		// The last file that an open writes: as long as the store is in use it
		// may be on its way, and nothing depends on it.
		if r.inUse() {
			r.db.settled = false
			return
		}
		r.db.Findings = append(r.db.Findings, finding.New(finding.OptionsUnparsed, r.db.Path,
			finding.Expected("OPTIONS-NNNNNN"), finding.Found("no such file")))
		return
	}
	if p := r.prev; p != nil && p.optionsFile == *i {
		r.db.optionsFile, r.db.optionsFamilies, r.db.RocksDBVersion, r.db.WALDir = p.optionsFile, p.optionsFamilies, p.RocksDBVersion, p.WALDir
		for _, f := range p.Findings {
			if f.Code == finding.OptionsUnparsed {
				r.db.Findings = append(r.db.Findings, f)
			}
		}
		return
	}
	path := r.path(i.Name)
	data, _, err := volume.ReadFile(r.fs, path, optionsLimit)
	if err != nil {
		if !volume.IsGone(err) {
			f := finding.FromError(err, path)
			f.Severity = finding.Info // nothing depends on OPTIONS
			r.db.Findings = append(r.db.Findings, f)
			r.db.settled = false
		}
		return
	}
	r.db.optionsFile = *i
	r.db.RocksDBVersion, r.db.optionsFamilies = options.Summary(data)
	r.db.WALDir = options.WALDir(data)
	if line, ok := options.FirstStrange(data); ok {
		r.db.Findings = append(r.db.Findings, OptionsFinding(line, path))
	}
}

func (r *reading) inUse() bool { return r.db.InUse != nil && *r.db.InUse }

func (r *reading) readManifest() (again bool) {
	if !r.l.hasCurrent && r.inUse() && time.Since(time.Unix(0, r.l.newestMod)) < beingMade {
		// RocksDB makes the MANIFEST before CURRENT, and on a slow volume
		// there is time between the two.
		r.db.empty, r.db.settled = true, false
		return false
	}
	if !r.l.hasCurrent {
		r.defect(finding.New(finding.CurrentMissing, r.path("CURRENT"),
			finding.Found("%d MANIFEST and %d table files without it", r.l.manifests, len(r.l.tables))))
		return true
	}
	data, _, err := volume.ReadFile(r.fs, r.path("CURRENT"), currentLimit)
	if err != nil {
		r.failure(err, r.path("CURRENT"))
		return true
	}
	name, num, err := manifest.ParseCurrent(data)
	if err != nil {
		f := CurrentFinding(data, err, r.path("CURRENT"))
		if whole := r.wholeManifests(); len(whole) > 0 {
			f.Found += "; parsed to its end: " + strings.Join(whole, ", ")
		}
		r.defect(f)
		return true
	}
	f, err := r.fs.Open(r.path(name))
	if err != nil {
		if volume.IsGone(err) {
			f := finding.New(finding.ManifestMissing, r.path(name), finding.Found("no such file"))
			if whole := r.wholeManifests(); len(whole) > 0 {
				f.Found += "; parsed to its end: " + strings.Join(whole, ", ")
			}
			r.defect(f)
		} else {
			r.failure(err, r.path(name))
		}
		return true
	}
	defer func() { _ = f.Close() }()
	return r.parseManifest(f, name, num)
}

func (r *reading) parseManifest(f volume.File, name string, num uint64) (again bool) {
	db, info := r.db, f.Info()
	db.manifest, db.manifestNumber = info, num
	db.ManifestAllocated, db.ManifestSize = info.Allocated, info.Size
	var err error
	if p := r.prev; p != nil && p.state != nil && p.manifest.ID() == info.ID() && p.manifestNumber == num && p.sameTail(f) {
		db.state, err = p.state.Follow(f, info.Size)
	} else {
		db.beforeCount = db.Counts
		db.state, err = manifest.Load(f, info.Size)
	}
	if db.state != nil {
		db.manifestTail, _ = tail(f, db.state.Size)
	}
	if db.state != nil {
		db.Counts = db.beforeCount
		db.Counts.Add(db.state.Counts)
		seq := db.state.LastSequence
		db.lastSequence = &seq
	}
	db.walEnabled = r.walEnabled()
	path := r.path(name)
	me, typed := errors.AsType[*manifest.Error](err)
	switch {
	case err == nil:
		// An atomic group that is not complete is not applied, by RocksDB
		// neither: what is known is the state before it.
		db.wholeManifest = true
		return false
	case !typed:
		r.failure(err, path)
	default:
		db.partialTail = me.Partial()
		switch f := ManifestFinding(me, path); {
		case info.Size == 0:
			r.defect(finding.New(finding.ManifestEmpty, path))
		case f.Code == finding.ManifestTailPartial && !r.inUse():
			r.defect(finding.New(finding.ManifestTailCut, path, finding.At(*f.Offset), finding.Expected("%s", f.Expected), finding.Found("%s", f.Found)))
		default:
			r.defect(f)
		}
	}
	return true
}

// encryptedPrefix is what RocksDB's encrypted environment puts in front of each
// file, bytes (RocksDB include/rocksdb/env_encryption.h, defaultPrefixLength).
const encryptedPrefix = 4096

// maxManifests bounds how many are tried where CURRENT names none. A database
// has one or two.
const maxManifests = 4

// wholeManifests are the names of the MANIFESTs in the directory that can be
// parsed to their end, the newest first: where CURRENT is lost, RocksDB could
// go on from one of them.
func (r *reading) wholeManifests() (names []string) {
	var all []volume.Info
	err := r.fs.List(r.db.Path, func(i volume.Info) error {
		if strings.HasPrefix(i.Name, "MANIFEST-") {
			all = append(all, i)
		}
		return nil
	})
	if err != nil {
		return nil
	}
	slices.SortFunc(all, func(a, b volume.Info) int { return strings.Compare(b.Name, a.Name) })
	for _, i := range all[:min(len(all), maxManifests)] {
		f, err := r.fs.Open(r.path(i.Name))
		if err != nil {
			continue
		}
		if _, err := manifest.Load(f, f.Info().Size); err == nil {
			names = append(names, i.Name)
		}
		_ = f.Close()
	}
	return names
}

// CurrentFinding is the finding for a CURRENT that names no MANIFEST; err is that
// of [manifest.ParseCurrent].
func CurrentFinding(data []byte, err error, path string) finding.Finding {
	code := finding.CurrentMalformed
	switch {
	case len(bytes.Trim(data, "\x00")) == 0:
		code = finding.CurrentEmpty
	case data[len(data)-1] != '\n':
		code = finding.CurrentNoNewline
	}
	return finding.New(code, path, finding.Expected("MANIFEST-NNNNNN and a newline"), finding.Found("%v", err))
}

// OptionsFinding is the finding for a line of an OPTIONS file that is none of
// RocksDB's.
func OptionsFinding(line options.Line, path string) finding.Finding {
	return finding.New(finding.OptionsUnparsed, path, finding.At(line.Offset),
		finding.Expected("a setting of RocksDB up to 11.8"), finding.Found("line %d: %s", line.Number, volume.Text(line.Text)))
}

// tail reads the bytes before an offset of a MANIFEST; ok is false if they are
// not there.
func tail(f volume.File, size int64) (out [tailBytes]byte, ok bool) {
	n := min(size, tailBytes)
	_, err := f.ReadAt(out[:n], size-n)
	return out, err == nil
}

func (d *Database) sameTail(f volume.File) bool {
	t, ok := tail(f, d.state.Size)
	return ok && t == d.manifestTail
}

// ManifestFinding is the finding for a MANIFEST that does not parse to its end.
func ManifestFinding(e *manifest.Error, path string) finding.Finding {
	code := finding.ManifestUnparseable
	switch {
	case e.Partial():
		code = finding.ManifestTailPartial
	case e.Newer():
		code = finding.FormatNewer
	}
	return finding.New(code, path, finding.At(e.Offset), finding.Expected("%s", e.Expected), finding.Found("%s", e.Found))
}

// walEnabled tells whether the writer uses its WAL, as far as that shows. With
// a WAL, the switch of a memtable that has entries begins a new log file, so
// that after a flush the newest log is younger than the MANIFEST. Kafka Streams
// writes with the WAL off: the log that the open made stays the newest one,
// empty. (The open makes the log right before the MANIFEST, RocksDB 5.18 right
// after it; the numbers that follow go to OPTIONS files. What it recovers from
// an older WAL it has written before that, to tables of lower numbers.)
func (r *reading) walEnabled() *bool {
	if r.l.sizes.WAL > 0 {
		on := true
		return &on
	}
	if r.db.state == nil || r.l.newestWAL == 0 || r.l.newestWAL > r.db.manifestNumber+1 {
		return nil
	}
	for i := range r.db.state.Families {
		if r.db.state.Families[i].LastFlush > r.l.newestWAL {
			off := false
			return &off
		}
	}
	return nil
}
