// Package scrub verifies every database in the picture in the background of the
// agent, one after the other, again and again: quick all the time, deep as often
// as it is told. It keeps the newest results for the metrics, the API and the
// status page.
//
// It knows when to verify: never so much that it takes more than a fiftieth of a
// core or more bytes a second than it may, and not while a preStop call waits.
// What to look for, and when to believe it, is package verify's.
package scrub

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"streams-sidecar/internal/event"
	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/verify"
	"streams-sidecar/internal/volume"
)

// DefaultQuick is how often a database is verified at the depth quick, at most.
const DefaultQuick = 10 * time.Minute

// DefaultRate is how many bytes of tables are read in a second, at most.
const DefaultRate = 32 << 20

const (
	// share of a core, as its inverse, that the quick verification may take: after
	// each database so many times its length is waited.
	share        = 50
	longestPause = 2 * time.Second
	turn         = time.Second // how often the picture is looked at for what is due
	// firstDeep is how long after the start of the process the first deep
	// verification begins, at most: a pod that is restarted each day is to have one.
	firstDeep = 10 * time.Minute
	// afterFinding is how soon a database that has changed is verified again in
	// which something was found.
	afterFinding = time.Minute
)

// Config of a Scrubber.
type Config struct {
	// Picture gives the state directories as they were last seen, nil before
	// the first look; Volumes has one for each of them.
	Picture func() []*store.StateDir
	Volumes []*volume.Volume
	// Paused says that nothing is to be read now.
	Paused func() bool
	// Quick and Deep are how often a database is verified at each depth; a Deep of
	// 0 is never.
	Quick, Deep time.Duration
	// Pace bounds the bytes that are read.
	Pace   *volume.Pace
	Events event.Sink
	// Changed is called when there is more or less to say of a database than
	// before; it must not block.
	Changed func()
	Now     func() time.Time
}

// Scrubber verifies. Run does the work; the other methods are safe to call from
// anywhere at any time.
type Scrubber struct {
	cfg   Config
	began time.Time

	mu     sync.RWMutex
	memory map[string]*memory
	totals Totals
}

// Totals are counted since the start of the process.
type Totals struct {
	Quick, Deep uint64 // verifications of a database
	Bytes       uint64 // read of tables
	Retries     uint64 // second looks
}

// memory of one database.
type memory struct {
	id          volume.ID
	quick, deep last
}

// last is the last verification of a database at one depth.
type last struct {
	result      *verify.Result
	fingerprint uint64 // of the directory
}

// New gives a Scrubber that has verified nothing yet.
func New(cfg Config) *Scrubber {
	if cfg.Quick <= 0 {
		cfg.Quick = DefaultQuick
	}
	if cfg.Paused == nil {
		cfg.Paused = func() bool { return false }
	}
	if cfg.Changed == nil {
		cfg.Changed = func() {}
	}
	if cfg.Events == nil {
		cfg.Events = event.Discard
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Scrubber{cfg: cfg, began: cfg.Now(), memory: map[string]*memory{}}
}

// Totals gives them.
func (s *Scrubber) Totals() Totals {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.totals
}

// Results gives the last ones of a database, at most one of each depth.
func (s *Scrubber) Results(db *store.Database) (out []*verify.Result) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	m := s.memory[db.Path]
	if m == nil || m.id != db.DirID {
		return nil
	}
	for _, l := range []*last{&m.quick, &m.deep} {
		if l.result != nil {
			out = append(out, l.result)
		}
	}
	return out
}

// Findings gives what was found in a database, as far as the files that it is
// about are still there.
func (s *Scrubber) Findings(db *store.Database) (out []finding.Finding) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	m := s.memory[db.Path]
	if m == nil || m.id != db.DirID {
		return nil
	}
	for _, l := range []*last{&m.quick, &m.deep} {
		if l.result == nil {
			continue
		}
		for _, f := range l.result.Findings {
			if l.fingerprint == db.Fingerprint() || stillThere(db, &f) {
				out = append(out, f)
			}
		}
	}
	return out
}

// stillThere says that a finding is about a live table, or about a log that is
// still there: anything else is judged anew with the next verification.
func stillThere(db *store.Database, f *finding.Finding) bool {
	name := f.File[strings.LastIndexByte(f.File, '/')+1:]
	if n, ok := store.FileNumber(name, ".sst"); ok {
		return db.Live(n)
	}
	return slices.ContainsFunc(append(db.Logs(), db.WALs()...), func(i volume.Info) bool { return i.Name == name })
}

// Run verifies until the context ends. It returns nil then; it has no other way out.
func (s *Scrubber) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if s.next(ctx) {
			continue
		}
		sleep(ctx, turn)
	}
	return nil
}

// subject is a database that is due at a depth.
type subject struct {
	verify.Subject
	depth verify.Depth
	due   time.Time
}

// next verifies the database that has been due for the longest; false if none is.
func (s *Scrubber) next(ctx context.Context) bool {
	dirs := s.cfg.Picture()
	if dirs == nil || s.cfg.Paused() {
		return false
	}
	all := (&verify.Plan{}).Subjects(s.cfg.Volumes, dirs)
	s.forget(all)
	x, ok := s.due(all)
	if !ok {
		return false
	}
	began := time.Now()
	s.verify(ctx, x)
	pause := time.Since(began) * (share - 1)
	if x.depth == verify.Deep {
		pause = 0 // it has its pace
	}
	sleep(ctx, min(pause, longestPause))
	return true
}

// due gives what is due the longest: what was never verified quickly goes first.
func (s *Scrubber) due(all []verify.Subject) (out subject, found bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	now := s.cfg.Now()
	consider := func(x subject) {
		if !x.due.After(now) && (!found || x.due.Before(out.due)) {
			out, found = x, true
		}
	}
	for _, x := range all {
		m := s.memory[x.Database.Path]
		if m != nil && m.id != x.Database.DirID {
			m = nil
		}
		if m == nil || m.quick.result == nil {
			consider(subject{x, verify.Quick, time.Time{}})
			continue
		}
		every := s.cfg.Quick
		if len(m.quick.result.Findings) > 0 && m.quick.fingerprint != x.Database.Fingerprint() {
			every = min(every, afterFinding)
		}
		consider(subject{x, verify.Quick, m.quick.result.At.Add(every)})
		if s.cfg.Deep > 0 {
			due := s.began.Add(min(s.cfg.Deep, firstDeep))
			if r := m.deep.result; r != nil {
				every := s.cfg.Deep
				if len(r.Findings) > 0 && m.deep.fingerprint != x.Database.Fingerprint() {
					every = min(every, afterFinding)
				}
				due = r.At.Add(every)
			}
			consider(subject{x, verify.Deep, due})
		}
	}
	return out, found
}

// verify verifies one database, read anew from its first byte.
func (s *Scrubber) verify(ctx context.Context, x subject) {
	known := x.Database
	db := known.Reread(x.Volume)
	if db == nil {
		return // it is gone; the next picture will not have it
	}
	x.Database = db
	r := verify.Check(ctx, []verify.Subject{x.Subject}, verify.Plan{Depth: x.depth, Pace: s.cfg.Pace, Workers: 1, Paused: s.cfg.Paused})[0]
	if !r.Complete {
		return
	}
	// What the reader of the directory says stands in the picture too, unless
	// nothing that a stat can see has changed with it.
	for _, f := range db.Findings {
		same := func(o finding.Finding) bool { return o.Code == f.Code && o.File == f.File }
		if !slices.ContainsFunc(known.Findings, same) && !slices.ContainsFunc(r.Findings, same) {
			r.Findings = append(r.Findings, f)
		}
	}
	now := last{r, db.Fingerprint()}
	s.mu.Lock()
	m := s.memory[known.Path]
	if m == nil || m.id != known.DirID {
		m = &memory{id: known.DirID}
	}
	next := *m
	var before last
	if x.depth == verify.Quick {
		before, next.quick = m.quick, now
		s.totals.Quick++
	} else {
		before, next.deep = m.deep, now
		s.totals.Deep++
	}
	s.memory[known.Path] = &next
	s.totals.Bytes += uint64(r.Bytes)
	s.totals.Retries += uint64(r.Retries)
	s.mu.Unlock()
	if x.depth == verify.Deep {
		s.cfg.Events.Emit(event.DeepVerified{Path: volume.Text(known.Path), Tables: r.Tables, Bytes: r.Bytes, Findings: len(r.Findings)})
	}
	if len(r.Findings) > 0 || before.result != nil && len(before.result.Findings) > 0 {
		s.cfg.Changed()
	}
}

// forget drops what is known of databases that are gone.
func (s *Scrubber) forget(all []verify.Subject) {
	there := make(map[string]bool, len(all))
	for _, x := range all {
		there[x.Database.Path] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for path := range s.memory {
		if !there[path] {
			delete(s.memory, path)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
