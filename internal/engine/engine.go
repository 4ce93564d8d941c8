// Package engine asks RocksDB itself about a database, in a child process
// (cmd/sidecar-engine) that it starts when there is something to ask, bounds in
// memory and time, and replaces when it hangs, dies or talks nonsense: one
// flipped bit can make any open of RocksDB spin for ever or crash.
//
// It knows how to supervise that process, which databases may be put to it, and
// how its answers compare with what our own readers say. It must never link
// RocksDB, never let a child outlive this process, and never ask about a
// database that our own reader could not parse to its end. cmd/sidecar and the
// rooms of higher tiers may import it.
package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"streams-sidecar/internal/engine/wire"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
)

// Defaults and bounds.
const (
	DefaultDeadline = 5 * time.Second
	// DefaultMemory is what RocksDB may have in heap and stacks, of which it
	// takes 60 MiB on starting and touches a third. The rest keeps it below
	// 96 MiB resident whatever it meets. Go's own heap is not in it (Linux does
	// not count what is mapped over a reservation): the child copies little.
	DefaultMemory = 128 << 20
	// LeastMemory is what the child is not started below. It starts from 64 MiB
	// on; the rest is for a WAL of MaxWAL. It takes some 20 MiB resident, and
	// never more than its bound less Unused, which it has mapped and does not
	// touch.
	LeastMemory = 96 << 20
	Unused      = 32 << 20
	// MaxWAL is the most bytes of WAL that RocksDB is asked to replay, because
	// a reader keeps all of it in memory. Kafka Streams has none.
	MaxWAL = 16 << 20

	startDeadline = 15 * time.Second // the library is 15 MB, on a cold volume
	// A database is set aside for a moment after the first failure, which may be
	// a slow volume's, and for long after the next.
	setAsideFor     = time.Hour
	setAsideAtLeast = time.Minute // even if the database changes meanwhile, as a live one does all the time
)

// byteWise is the comparator of every database of Kafka Streams, and RocksDB's
// default; a MANIFEST that names none for a family means it too (the family
// default, up to RocksDB 5.18).
const byteWise = "leveldb.BytewiseComparator"

// Answer is what RocksDB says of a database.
type Answer = wire.Answer

// Family is one column family of an Answer.
type Family = wire.Family

// Table is one live SST of a Family.
type Table = wire.Table

// KeyValue is one key of the family offsets in an Answer.
type KeyValue = wire.KeyValue

// What is asked beyond column families, tables and properties.
type What struct {
	Offsets bool // every key of the family offsets
	Stats   bool // the text of rocksdb.stats; see [wire.Family]
}

// Options of a Client. The zero value of each field means its default.
type Options struct {
	Program  string // path of sidecar-engine
	Deadline time.Duration
	// Memory that the child may have, bytes. With less than LeastMemory it is not
	// started.
	Memory uint64

	// For tests.
	env   []string // of the child, beside what it gets
	now   func() time.Time
	pause func(int) time.Duration
}

// Client asks one child, one request at a time. It is safe for use by several
// goroutines, which wait for each other.
type Client struct {
	o      Options
	turn   chan struct{} // who has it may use what is below
	child  *process
	zombie *process // killed, and not ended yet
	failed *Error   // why the last start failed
	// consecutive failures to start, and deaths while asked
	starts, deaths int
	idle           int       // deaths between two requests, since the last answer
	notBefore      time.Time // of the next start
	aside          map[string]setAside
	version        string
	nextID         uint64
	closed         bool

	everStarted bool
	restarts    atomic.Uint64
	closing     chan struct{}
	closeOnce   sync.Once
}

// setAside is a database on which a child hung or died.
type setAside struct {
	id          volume.ID
	fingerprint uint64
	since       time.Time
	times       int // that it has failed in a row
	why         string
}

// until when it is not asked, if nothing changes in it.
func (a *setAside) until() time.Time {
	if a.times < 2 {
		return a.since.Add(setAsideAtLeast)
	}
	return a.since.Add(setAsideFor)
}

// New gives a client. No child is started before there is something to ask.
func New(o Options) *Client {
	if o.Deadline <= 0 {
		o.Deadline = DefaultDeadline
	}
	if o.Memory == 0 {
		o.Memory = DefaultMemory
	}
	if o.now == nil {
		o.now = time.Now
	}
	if o.pause == nil {
		o.pause = pauseAfter
	}
	return &Client{o: o, turn: make(chan struct{}, 1), aside: map[string]setAside{}, closing: make(chan struct{})}
}

// Restarts is how many children have replaced an earlier one.
func (c *Client) Restarts() uint64 { return c.restarts.Load() }

// Version is that of RocksDB's library, "" if it does not tell. It starts a
// child if there is none. The error is an *Error or that of ctx.
func (c *Client) Version(ctx context.Context) (string, error) {
	if err := c.take(ctx); err != nil {
		return "", err
	}
	defer c.give()
	if err := c.ensure(ctx); err != nil {
		return "", err
	}
	return c.version, nil
}

// Ask opens a database in the child, reads what is asked, and has it closed
// again. Only a database that was read whole may be asked about (see [Fit]).
// The error is an *Error or that of ctx; what RocksDB has against the database
// is in the answer.
func (c *Client) Ask(ctx context.Context, db *store.Database, w What) (*Answer, error) {
	if why := Fit(db); why != "" {
		return nil, &Error{Kind: NotFit, Path: volume.Text(db.Path), Detail: why}
	}
	return c.ask(ctx, subject{db.Path, db.DirID, db.Fingerprint()}, w)
}

// Fit says why a database must not be put to RocksDB, "" if it may.
func Fit(db *store.Database) string {
	if db.IsEmpty() {
		return "there is no database in it"
	}
	state, _, ok := db.Manifest()
	if !ok || !db.WholeManifest() {
		return "its MANIFEST could not be parsed to its end"
	}
	for i := range state.Families {
		if cmp := state.Families[i].Comparator; cmp != byteWise && cmp != "" {
			return fmt.Sprintf("family %s is ordered by %s, which only the application has",
				volume.Text(state.Families[i].Name), volume.Text(cmp))
		}
	}
	for i := range db.Findings {
		if f := &db.Findings[i]; !f.Severity.Judgeable() {
			return string(f.Code)
		}
	}
	if n := len(state.WALs); n > 0 && db.WALFiles == 0 {
		// RocksDB would miss them, and only the application knows where they are.
		return fmt.Sprintf("its MANIFEST names %d write-ahead logs, and none is in its directory", n)
	}
	if db.Sizes.WAL > MaxWAL {
		return fmt.Sprintf("%d bytes of WAL, all of which RocksDB would take into memory", db.Sizes.WAL)
	}
	return ""
}

type subject struct {
	path        string
	id          volume.ID
	fingerprint uint64
}

func (c *Client) ask(ctx context.Context, s subject, w What) (*Answer, error) {
	if err := c.take(ctx); err != nil {
		return nil, err
	}
	defer c.give()
	if err := c.isAside(s); err != nil {
		return nil, err
	}
	if err := c.ensure(ctx); err != nil {
		return nil, err
	}
	c.nextID++
	a, err := c.child.ask(ctx, &wire.Request{ID: c.nextID, Path: []byte(s.path), Offsets: w.Offsets, Stats: w.Stats}, c.o.Deadline)
	if err == nil {
		c.deaths, c.idle = 0, 0
		delete(c.aside, s.path)
		return a, nil
	}
	if err.Kind == TooLarge {
		err.Path = volume.Text(s.path)
		return nil, err
	}
	c.bury()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("ask RocksDB: %w", ctx.Err()) // the caller's haste is no fault of the database
	}
	err.Path = volume.Text(s.path)
	c.deaths++
	// Briefly: whoever waits holds up every other database, and this one is set
	// aside anyway.
	c.notBefore = c.o.now().Add(c.o.pause(min(c.deaths, longestRun)))
	c.setAside(s, err)
	return nil, err
}

func (c *Client) isAside(s subject) error {
	a, ok := c.aside[s.path]
	if !ok {
		return nil
	}
	now := c.o.now()
	same := a.id == s.id && a.fingerprint == s.fingerprint
	if now.Sub(a.since) < setAsideAtLeast || same && now.Before(a.until()) {
		return &Error{Kind: SetAside, Path: volume.Text(s.path), Detail: a.why, Times: a.times, Until: a.until()}
	}
	return nil
}

func (c *Client) setAside(s subject, err *Error) {
	now := c.o.now()
	for path, a := range c.aside { // those of stores that are gone
		if now.Sub(a.since) > 24*setAsideFor {
			delete(c.aside, path)
		}
	}
	before := c.aside[s.path]
	if before.id != s.id { // another directory, made anew
		before.times = 0
	}
	err.Times = before.times + 1
	c.aside[s.path] = setAside{s.id, s.fingerprint, now, err.Times, err.what()}
}

// take waits for the turn.
func (c *Client) take(ctx context.Context) error {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for the engine: %w", ctx.Err())
	case <-c.closing:
		return &Error{Kind: Closed}
	}
	if c.closed {
		c.give()
		return &Error{Kind: Closed}
	}
	if ctx.Err() != nil { // select chooses by chance
		c.give()
		return fmt.Errorf("wait for the engine: %w", ctx.Err())
	}
	return nil
}

func (c *Client) give() { <-c.turn }

// Close ends the child, if there is one. A request that waits for its answer
// is waited for, by at most its deadline.
func (c *Client) Close() {
	c.closeOnce.Do(func() {
		close(c.closing)
		c.turn <- struct{}{}
		c.closed = true
		c.bury()
		c.give()
	})
}
