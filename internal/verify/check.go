package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/rocksfile/manifest"
	"streams-sidecar/internal/rocksfile/sst"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
)

// Depth is how closely [Check] looks.
type Depth string

// The depths. Quick reads of each table what RocksDB reads when it opens it:
// footer, metaindex, properties, index and filter. Deep reads every byte and
// verifies the checksum of every block; of a table without checksums it parses
// every entry.
const (
	Quick Depth = "quick"
	Deep  Depth = "deep"
)

// Plan is how [Check] goes about it.
type Plan struct {
	Depth Depth
	// Pace bounds the bytes that are read in a second; nil for no bound. It
	// counts what is read of tables alone.
	Pace *volume.Pace
	// Workers is how many tables are read at a time; 0 for as many as there are
	// processors.
	Workers int
	// Read is told of bytes that were read, from several goroutines; nil for
	// nobody.
	Read func(bytes int64)
	// Only says which stores are meant, by the index of the state directory and
	// the store's path; nil for all.
	Only func(dir int, path string) bool
	// Paused says that nothing is to be read now; nil for never.
	Paused func() bool
}

// Subject is a database to check, as it was last seen.
type Subject struct {
	Volume   *volume.Volume
	Dir      *store.StateDir
	Task     *store.Task // nil for a database on its own
	Store    *store.Store
	Database *store.Database
}

// Subjects are the databases of a picture that are meant. Volumes has one for each
// state directory.
func (p *Plan) Subjects(vs []*volume.Volume, dirs []*store.StateDir) (out []Subject) {
	for i, d := range dirs {
		d.Stores(func(_ *store.Application, t *store.Task, s *store.Store) {
			if p.Only != nil && !p.Only(i, s.Layout.Path) {
				return
			}
			for _, db := range s.Databases {
				if !db.IsEmpty() {
					out = append(out, Subject{vs[i], d, t, s, db})
				}
			}
		})
	}
	return out
}

// Result is what was found in one database.
type Result struct {
	Depth Depth
	At    time.Time     // when it was finished
	Took  time.Duration // the reading of its tables, one after the other
	// Tables that were judged, and how many bytes of them were read.
	Tables int
	Bytes  int64
	// Passed are the tables that a compaction took away before they were read.
	Passed  int
	Retries int // second looks that were needed
	// Complete is false if the check was ended before everything was judged.
	Complete bool
	Findings []finding.Finding

	database *store.Database // as it was
	left     int             // findings beyond those that are kept
}

const (
	// secondLooks is how often what looks like damage is looked at again.
	secondLooks = 2
	lookPause   = 100 * time.Millisecond
	// tablesPerLook is how many tables a quick check reads in one look at the
	// volume, of which each costs a goroutine.
	tablesPerLook = 8
	// maxPerTable bounds the findings of one table; those that follow are
	// counted.
	maxPerTable = 5
	// deletedEvery is after how many bytes a reader looks whether its table was
	// deleted.
	deletedEvery = 4 << 20
)

// Check reads databases and gives one result for each, in the same order. What
// looks like damage is read again, in a database that was read anew, before it is
// a finding. It never fails: what could not be read is a finding; when ctx ends,
// the results say that they are not complete.
func Check(ctx context.Context, subjects []Subject, plan Plan) []*Result {
	c := checker{ctx: ctx, plan: plan}
	results := make([]*Result, len(subjects))
	var jobs []func()
	for i := range subjects {
		r := &Result{Depth: plan.Depth, Complete: true}
		results[i] = r
		jobs = c.jobs(jobs, &subjects[i], subjects[i].Database, r)
	}
	c.run(jobs)
	c.again(subjects, results)
	for _, r := range results {
		r.Findings = finding.Bounded(r.Findings, r.left)
		slices.SortStableFunc(r.Findings, func(a, b finding.Finding) int { return b.Severity.Rank() - a.Severity.Rank() })
		r.At = time.Now()
	}
	return results
}

type checker struct {
	ctx  context.Context
	plan Plan
	mu   sync.Mutex // of the results
}

func (c *checker) run(jobs []func()) {
	workers := c.plan.Workers
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	next := make(chan func())
	var all sync.WaitGroup
	for range min(workers, len(jobs)) {
		all.Go(func() {
			for job := range next {
				job()
			}
		})
	}
	for _, job := range jobs {
		next <- job
	}
	close(next)
	all.Wait()
}

// jobs adds one for each live table of a database and one for everything else
// in its directory.
func (c *checker) jobs(jobs []func(), s *Subject, db *store.Database, r *Result) []func() {
	jobs = append(jobs, func() { c.keep(r, c.others(s, db)) })
	state, _, ok := db.Manifest()
	if !ok {
		return jobs
	}
	var files []*manifest.File
	for i := range state.Families {
		for j := range state.Families[i].Files {
			file := &state.Families[i].Files[j]
			if file.PathID != 0 {
				continue // in a place that is not known
			}
			// What the reader of the directory could not read has a finding.
			if _, known := db.TableValues(file.Number); known || db.Up {
				files = append(files, file)
			}
		}
	}
	together := 1
	if c.plan.Depth == Quick {
		together = tablesPerLook
	}
	for some := range slices.Chunk(files, together) {
		jobs = append(jobs, func() {
			for _, o := range c.tables(s, db, state, some) {
				c.keep(r, o)
			}
		})
	}
	return jobs
}

// outcome of one job.
type outcome struct {
	findings []finding.Finding
	tables   int
	bytes    int64
	passed   int
	took     time.Duration
	aborted  bool
}

func (c *checker) keep(r *Result, o outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.Tables += o.tables
	r.Bytes += o.bytes
	r.Passed += o.passed
	r.Took += o.took
	r.Complete = r.Complete && !o.aborted
	for _, f := range o.findings {
		if len(r.Findings) >= finding.Most {
			r.left++
			continue
		}
		r.Findings = merge(r.Findings, f)
	}
}

// again looks anew at what looks like damage, and at a database of which a table
// has vanished: that is damage only if its newest MANIFEST still names it. One
// pause is for all of them, since a volume that fails can make every database
// doubtful.
func (c *checker) again(subjects []Subject, results []*Result) {
	for look := 0; look < secondLooks && c.ctx.Err() == nil; look++ {
		var jobs []func()
		for i, r := range results {
			if doubted := damaged(r.Findings); doubted || r.Passed > 0 && look == 0 {
				jobs = append(jobs, func() { c.lookAgain(&subjects[i], r, doubted) })
			}
		}
		if len(jobs) == 0 {
			return
		}
		sleep(c.ctx, lookPause)
		c.run(jobs)
	}
}

func (c *checker) lookAgain(s *Subject, r *Result, doubted bool) {
	r.Retries++
	db := s.Database.Reread(s.Volume)
	if db == nil { // it is gone: a segment that has expired, a task that was wiped
		r.Findings = slices.DeleteFunc(r.Findings, isDamage)
		return
	}
	var found []finding.Finding
	if doubted {
		found = c.confirm(s, db, r.Findings)
	}
	kept := slices.DeleteFunc(r.Findings, func(f finding.Finding) bool {
		return isDamage(f) && !slices.ContainsFunc(found, func(o finding.Finding) bool { return sameFinding(&o, &f) })
	})
	// What the reader itself says has had its second look.
	for _, f := range db.Findings {
		if isDamage(f) {
			kept = merge(kept, f)
		}
	}
	r.Findings = kept
}

func isDamage(f finding.Finding) bool { return f.Severity == finding.Damage }

func damaged(fs []finding.Finding) bool { return slices.ContainsFunc(fs, isDamage) }

// confirm reads anew what had findings of damage, as far as it still belongs to
// the database.
func (c *checker) confirm(s *Subject, db *store.Database, before []finding.Finding) []finding.Finding {
	o := c.others(s, db)
	state, _, ok := db.Manifest()
	if !ok {
		return o.findings
	}
	for i := range state.Families {
		for j := range state.Families[i].Files {
			file := &state.Families[i].Files[j]
			path := volume.Text(tablePath(db, file))
			if slices.ContainsFunc(before, func(f finding.Finding) bool { return isDamage(f) && f.File == path }) {
				for _, t := range c.tables(s, db, state, []*manifest.File{file}) {
					o.findings = append(o.findings, t.findings...)
				}
			}
		}
	}
	return o.findings
}

func tablePath(db *store.Database, file *manifest.File) string {
	return filepath.Join(db.Path, fmt.Sprintf("%06d.sst", file.Number))
}

var (
	errDeleted = errors.New("deleted meanwhile")
	errEnded   = errors.New("ended")
)

// tables checks live tables in one look at the volume. If the look fails, each has
// one of its own.
func (c *checker) tables(s *Subject, db *store.Database, state *manifest.State, files []*manifest.File) []outcome {
	out, err := volume.Do(s.Volume, db.Path, func(fs volume.FS) ([]outcome, error) {
		out := make([]outcome, 0, len(files))
		for _, file := range files {
			out = append(out, c.table(fs, db, state, file))
		}
		return out, nil
	})
	switch {
	case err == nil:
		return out
	case len(files) == 1:
		return []outcome{{findings: []finding.Finding{finding.FromError(err, tablePath(db, files[0]))}}}
	}
	out = nil
	for i := range files {
		out = append(out, c.tables(s, db, state, files[i:i+1])...)
	}
	return out
}

// table checks one live table.
func (c *checker) table(fs volume.FS, db *store.Database, state *manifest.State, file *manifest.File) (o outcome) {
	if c.ctx.Err() != nil {
		return outcome{aborted: true}
	}
	path := tablePath(db, file)
	began := time.Now()
	o, err := c.open(fs, path, state, file)
	o.took = time.Since(began)
	switch {
	case err == nil:
	case errors.Is(err, errEnded):
		o.aborted = true
	case errors.Is(err, errDeleted), volume.IsGone(err):
		o = outcome{passed: 1, took: o.took}
	default:
		o.findings = append(o.findings, finding.FromError(err, path))
	}
	return o
}

func (c *checker) open(fs volume.FS, path string, state *manifest.State, file *manifest.File) (outcome, error) {
	f, err := fs.Open(path)
	if err != nil {
		return outcome{}, err
	}
	defer func() { _ = f.Close() }()
	if uint64(f.Info().Size) != file.Size {
		return outcome{}, errDeleted // or it is damage, which the reader of the directory finds
	}
	src := source{file: f, c: c, bytes: f}
	if c.plan.Depth == Deep {
		src.bytes = volume.Past(f)
	}
	if c.plan.Pace != nil {
		src.bytes = c.plan.Pace.Reader(c.ctx, src.bytes)
	}
	return c.read(&src, path, state, file)
}

// read judges an open table. The error is one of the volume, or one of the two
// above.
func (c *checker) read(src *source, path string, state *manifest.State, file *manifest.File) (o outcome, err error) {
	o.tables = 1
	defer func() { o.bytes = src.read }()
	t, err := sst.Open(src, src.file.Info().Size)
	if err != nil {
		return o, o.table(err, path)
	}
	props := t.Properties()
	if f, ok := foreign(&props, path, state, file); ok {
		o.findings = append(o.findings, f)
	}
	depth := sst.Structure
	if c.plan.Depth == Deep {
		if depth = sst.Checksums; t.ChecksumType() == sst.NoChecksum {
			depth = sst.Entries
		}
	}
	v, err := t.Verify(depth)
	o.verification(v, path)
	return o, err
}

// table adds the finding for an error of package sst, and gives back any other.
func (o *outcome) table(err error, path string) error {
	e, ok := errors.AsType[*sst.Error](err)
	if !ok {
		return err
	}
	code := finding.SSTUnparseable
	if e.Part == sst.PartData || e.Part == sst.PartRangeDeletion {
		if code = finding.SSTBlockMalformed; e.Kind == sst.BlockChecksum {
			code = finding.SSTBlockChecksum
		}
	}
	o.findings = append(o.findings, store.TableFinding(e, path, code))
	return nil
}

func (o *outcome) verification(v *sst.Verification, path string) {
	more := int(v.MoreErrors)
	for i, e := range v.Errors {
		if i >= maxPerTable {
			more += len(v.Errors) - i
			break
		}
		_ = o.table(e, path)
	}
	if n := len(o.findings); more > 0 && n > 0 {
		o.findings[n-1].Found += fmt.Sprintf("; and %d more bad blocks", more)
	}
}

// foreign finds a table that is not the one that the MANIFEST means: RocksDB
// compares the unique id in the MANIFEST with what it makes of the table's
// properties (verify_sst_unique_id_in_manifest, on since 7.6), half of which is
// the session that wrote the table. A file that was imported into a column family
// keeps the number that it had in another database.
func foreign(p *sst.Properties, path string, state *manifest.State, file *manifest.File) (f finding.Finding, found bool) {
	if session, ok := p.SessionHalf(); ok && file.UniqueID != [2]uint64{} && session != file.UniqueID[0] {
		return finding.New(finding.SSTForeign, path, finding.Expected("the session %016x", file.UniqueID[0]),
			finding.Found("%016x (%s)", session, volume.Text(p.SessionID))), true
	}
	if n := p.OriginalFileNumber; n != 0 && n != file.Number && !p.External && (state.DBID == "" || state.DBID == p.DBID) {
		return finding.New(finding.SSTForeign, path, finding.Expected("a table that was written as number %d", file.Number),
			finding.Found("number %d", n)), true
	}
	return finding.Finding{}, false
}

// source is a table that is read at a pace, and let go once it is deleted.
type source struct {
	file  volume.File
	bytes io.ReaderAt // of it
	c     *checker
	read  int64
	since int64 // bytes since it was last asked whether it is deleted
}

func (s *source) ReadAt(p []byte, off int64) (int, error) {
	for s.c.plan.Paused != nil && s.c.plan.Paused() && s.c.ctx.Err() == nil {
		sleep(s.c.ctx, lookPause)
	}
	if s.c.ctx.Err() != nil {
		return 0, errEnded
	}
	if s.since += int64(len(p)); s.since >= deletedEvery {
		s.since = 0
		if gone, err := s.file.Deleted(); err == nil && gone {
			return 0, errDeleted
		}
	}
	n, err := s.bytes.ReadAt(p, off)
	s.read += int64(n)
	if s.c.plan.Read != nil {
		s.c.plan.Read(int64(n))
	}
	switch {
	case s.c.ctx.Err() != nil:
		return n, errEnded
	case err == io.EOF: // cut while it was deleted?
		if gone, failed := s.file.Deleted(); failed == nil && gone {
			return n, errDeleted
		}
	}
	return n, err
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
