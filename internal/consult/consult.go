// Package consult has RocksDB itself asked about every database in the picture,
// one after the other, again and again, and keeps the newest answers for the
// metrics, the API and the status page.
//
// It knows when to ask: seldom what does not change, never so often that the
// child takes more than a twentieth of a core, and not while a preStop call
// waits. How to ask is the engine's. Nobody who reads its answers waits for
// RocksDB or for the volume, but who asks for the text of the statistics.
package consult

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"streams-sidecar/internal/engine"
	"streams-sidecar/internal/event"
	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
)

// DefaultEvery is how often a database that changes is asked about.
const DefaultEvery = time.Minute

const (
	// share of a core, as its inverse, that RocksDB may take: after each
	// request so many times its length is waited.
	share = 20
	// A pause is bounded: an answer that came at once must not be followed by a
	// burst of others, and one that took long not by a standstill.
	shortestPause = 40 * time.Millisecond
	longestPause  = 2 * time.Second

	turn = time.Second // how often the picture is looked at for what is due
	// longestWait is how many times rarer a database is asked about that does
	// not change.
	longestWait = 16
	// outdated is after how many times its interval an answer about a database
	// that has changed since is no answer any more.
	outdated = 3
	retry    = 10 * time.Second // of an engine that cannot be asked at all
)

// Engine is what is asked: an [engine.Client].
type Engine interface {
	Version(ctx context.Context) (string, error)
	Consult(ctx context.Context, db *store.Database, w engine.What, again func() *store.Database) engine.Opinion
	Restarts() uint64
}

// Config of a Consultant.
type Config struct {
	Engine Engine
	// Picture gives the state directories as they were last seen, nil before
	// the first look; Volumes has one for each of them, for a second look.
	Picture func() []*store.StateDir
	Volumes []*volume.Volume
	// Quiet says that RocksDB is not to be asked now.
	Quiet  func() bool
	Every  time.Duration
	Events event.Sink
}

// Consultant asks. Run does the work; the other methods are safe to call from
// anywhere at any time.
type Consultant struct {
	cfg Config

	mu       sync.RWMutex
	version  string
	err      error
	asked    bool // whether the engine was tried at all
	requests map[string]uint64
	memory   map[string]*memory
	slowest  time.Duration // the longest that any database has to wait for its turn
}

// memory of one database.
type memory struct {
	opinion     engine.Opinion
	id          volume.ID
	fingerprint uint64
	unchanged   int // looks in a row that found it as it was
	last        time.Time
	changed     time.Time // when it was first seen to differ from what was asked about
	findings    []finding.Finding
}

// New gives a Consultant that has asked nothing yet.
func New(cfg Config) *Consultant {
	if cfg.Every <= 0 {
		cfg.Every = DefaultEvery
	}
	if cfg.Quiet == nil {
		cfg.Quiet = func() bool { return false }
	}
	if cfg.Events == nil {
		cfg.Events = event.Discard
	}
	c := &Consultant{cfg: cfg, requests: map[string]uint64{}, memory: map[string]*memory{}}
	for _, o := range outcomes {
		c.requests[o] = 0
	}
	return c
}

// State is what there is to say of the engine as a whole.
type State struct {
	Asked   bool   // false before the first attempt: nothing is known
	Version string // of RocksDB's library, "" if it does not tell
	// Err is why RocksDB cannot be asked at all, nil if it can.
	Err      error
	Restarts uint64
	Requests map[string]uint64 // by outcome; every outcome is there
}

// State gives it.
func (c *Consultant) State() State {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return State{Asked: c.asked, Version: c.version, Err: c.err, Restarts: c.cfg.Engine.Restarts(), Requests: maps.Clone(c.requests)}
}

// Opinion gives RocksDB's newest opinion of a database. There is none before
// it was asked, and none of a database that was seen to change longer ago than
// three times the interval.
func (c *Consultant) Opinion(db *store.Database) (engine.Opinion, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	m, ok := c.memory[db.Path]
	if !ok || m.id != db.DirID {
		return engine.Opinion{}, false
	}
	if !m.changed.IsZero() && time.Since(m.changed) > outdated*max(c.cfg.Every, c.slowest) {
		return engine.Opinion{}, false
	}
	return m.opinion, true
}

// Statistics asks RocksDB about a database in this moment, also for the text of
// rocksdb.stats of each column family. Unlike everything else here it waits for
// the answer.
func (c *Consultant) Statistics(ctx context.Context, db *store.Database) engine.Opinion {
	dirs := c.cfg.Picture()
	for _, s := range databases(dirs) {
		if s.db.Path == db.Path {
			return c.consult(ctx, dirs, s, engine.What{Offsets: true, Stats: true})
		}
	}
	return engine.Opinion{Err: &engine.Error{Kind: engine.NotFit, Path: volume.Text(db.Path), Detail: "it is gone"}, At: time.Now()}
}

// Run asks until the context ends. It returns nil then; it has no other way out.
func (c *Consultant) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		wait := turn
		if dirs := c.cfg.Picture(); dirs != nil {
			all := databases(dirs)
			c.note(all)
			due := c.due(all)
			switch {
			case c.cfg.Quiet() || len(due) == 0 && c.known():
			case !c.ready(ctx):
				wait = retry
			case c.round(ctx, dirs, due, len(all)):
				continue
			}
		}
		sleep(ctx, wait)
	}
	return nil
}

// known says that the engine was tried, and could be asked.
func (c *Consultant) known() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.asked && c.err == nil
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// ready says whether the engine can be asked at all.
func (c *Consultant) ready(ctx context.Context) bool {
	version, err := c.cfg.Engine.Version(ctx)
	if ctx.Err() != nil {
		return false
	}
	c.set(version, err)
	return err == nil
}

func (c *Consultant) set(version string, err error) {
	c.mu.Lock()
	before, first := c.err, !c.asked
	c.asked, c.version, c.err = true, version, err
	c.mu.Unlock()
	if err == nil && (first || before != nil) {
		c.cfg.Events.Emit(event.EngineReady{RocksDB: version})
	}
	c.tell(engine.Trouble(before), engine.Trouble(err))
}

// tell emits what has come and gone between two lists of findings.
func (c *Consultant) tell(before, now []finding.Finding) {
	same := func(f *finding.Finding) func(finding.Finding) bool {
		return func(o finding.Finding) bool { return o.Code == f.Code && o.File == f.File }
	}
	for i := range now {
		if f := &now[i]; !slices.ContainsFunc(before, same(f)) {
			c.cfg.Events.Emit(event.FindingAppeared{File: f.File, Code: string(f.Code), Severity: string(f.Severity), Text: f.Text, Found: f.Found})
		}
	}
	for i := range before {
		if f := &before[i]; !slices.ContainsFunc(now, same(f)) {
			c.cfg.Events.Emit(event.FindingGone{File: f.File, Code: string(f.Code)})
		}
	}
}

// subject is a database that is due.
type subject struct {
	dir int // index of its state directory
	db  *store.Database
	due time.Time
}

// round asks about what is due until a turn is over. It says whether more is
// due already.
func (c *Consultant) round(ctx context.Context, dirs []*store.StateDir, due []subject, all int) (more bool) {
	began := time.Now()
	for _, s := range due {
		if time.Since(began) >= turn {
			return true
		}
		if ctx.Err() != nil || c.cfg.Quiet() {
			return false
		}
		took, ok := c.ask(ctx, dirs, s)
		if !ok {
			return false
		}
		pause := min(max(took*(share-1), shortestPause), longestPause)
		c.pace(took+pause, all)
		sleep(ctx, pause)
	}
	return false
}

// databases gives every one that there is.
func databases(dirs []*store.StateDir) (out []subject) {
	for i, d := range dirs {
		for _, db := range d.Databases() {
			out = append(out, subject{dir: i, db: db})
		}
	}
	return out
}

// due gives what is to be asked about now: what never was, then the longest due,
// and last those on which RocksDB has failed, which hold up all others.
func (c *Consultant) due(all []subject) (out []subject) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	now := time.Now()
	failed := map[string]bool{}
	for _, s := range all {
		if m, ok := c.memory[s.db.Path]; ok && m.id == s.db.DirID {
			s.due = m.last.Add(c.interval(m))
			if e, is := errors.AsType[*engine.Error](m.opinion.Err); is && e.Times > 0 {
				failed[s.db.Path] = true
			}
		}
		if !s.due.After(now) {
			out = append(out, s)
		}
	}
	slices.SortStableFunc(out, func(a, b subject) int {
		if x, y := failed[a.db.Path], failed[b.db.Path]; x != y {
			if x {
				return 1
			}
			return -1
		}
		return a.due.Compare(b.due)
	})
	return out
}

// interval until a database is asked about again. What has changed waits for the
// interval, what has not for twice, four times, up to sixteen times of it.
func (c *Consultant) interval(m *memory) time.Duration {
	if !m.changed.IsZero() {
		return c.cfg.Every
	}
	return c.cfg.Every * time.Duration(min(longestWait, 2<<min(m.unchanged, 16)))
}

// pace notes how long a round over n databases would take at this rate.
func (c *Consultant) pace(each time.Duration, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := each * time.Duration(n)
	c.slowest += (now - c.slowest) / 16
}

// consult asks about one database, with a fresh look at it where they differ.
func (c *Consultant) consult(ctx context.Context, dirs []*store.StateDir, s subject, w engine.What) engine.Opinion {
	return c.cfg.Engine.Consult(ctx, s.db, w, func() *store.Database {
		return dirs[s.dir].Refresh(c.cfg.Volumes[s.dir], map[string]bool{s.db.Path: true}).Database(s.db.Path)
	})
}

// ask asks about one database; ok is false if the engine cannot be asked at all.
func (c *Consultant) ask(ctx context.Context, dirs []*store.StateDir, s subject) (took time.Duration, ok bool) {
	began := time.Now()
	o := c.consult(ctx, dirs, s, engine.What{Offsets: true})
	if ctx.Err() != nil {
		return 0, false
	}
	if e, is := errors.AsType[*engine.Error](o.Err); is && e.AboutEngine() {
		c.set("", o.Err)
		return 0, false
	}
	m := &memory{opinion: o, id: s.db.DirID, fingerprint: s.db.Fingerprint(), last: time.Now(), findings: o.Findings(s.db.Path)}
	c.mu.Lock()
	var before []finding.Finding
	if old := c.memory[s.db.Path]; old != nil {
		before = old.findings
		if old.id == m.id && old.fingerprint == m.fingerprint {
			m.unchanged = old.unchanged + 1
		}
	}
	c.memory[s.db.Path] = m
	c.requests[outcome(&o)]++
	c.mu.Unlock()
	c.tell(before, m.findings)
	return m.last.Sub(began), true
}

// note marks what has changed since it was asked about, and drops what is known
// of databases that are gone.
func (c *Consultant) note(all []subject) {
	there := make(map[string]*store.Database, len(all))
	for _, s := range all {
		there[s.db.Path] = s.db
	}
	var gone []finding.Finding
	c.mu.Lock()
	for path, m := range c.memory {
		switch db := there[path]; {
		case db == nil:
			gone = append(gone, m.findings...)
			delete(c.memory, path)
		case m.changed.IsZero() && m.fingerprint != db.Fingerprint():
			m.changed = time.Now()
		}
	}
	c.mu.Unlock()
	c.tell(gone, nil)
}

// The outcomes of a request that are no kind of an [engine.Error].
const (
	answered = "answered"
	refused  = "refused" // RocksDB gave an error
	differed = "differed"
)

var outcomes = []string{answered, refused, differed, string(engine.NotFit), string(engine.Hung), string(engine.Died),
	string(engine.Garbage), string(engine.TooLarge), string(engine.SetAside), string(engine.Moving)}

func outcome(o *engine.Opinion) string {
	if e, ok := errors.AsType[*engine.Error](o.Err); ok {
		return string(e.Kind)
	}
	switch {
	case o.Answer.Error != "":
		return refused
	case len(o.Differences) > 0:
		return differed
	}
	return answered
}
