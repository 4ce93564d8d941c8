// Package probe keeps one immutable picture of every state directory up to
// date: a [Snapshot] that metrics, the API and the preStop gate read without
// ever touching the volume themselves.
//
// File events are a hint, a periodic rescan is the truth: whatever an event
// misses, the next rescan sees. Where there are no events (a network volume, no
// watch to be had, a directory that raises too many) it polls what it must and
// says so. Locks cause no events and are asked once a second. The package only
// looks; it knows nothing of metrics, HTTP or Kubernetes.
package probe

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"

	"streams-sidecar/internal/event"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/verify"
	"streams-sidecar/internal/volume"
)

// Mode says how changes of the files are noticed.
type Mode string

// The modes. In mode Poll at least one directory is not watched for more than
// a while, so that everything is looked at more often.
const (
	Inotify Mode = "inotify"
	Poll    Mode = "poll"
)

// Snapshot is everything that is known at one moment. It never changes.
type Snapshot struct {
	At        time.Time // when the look was finished
	StateDirs []*store.StateDir
	Judgement *verify.Judgement // of them
	Mode      Mode
	// ScanTook is how long the last full look took.
	ScanTook time.Duration
	// Muted is how many directories are polled for a while because they raise
	// too many events.
	Muted int
	// Seq counts the snapshots of this process, from 1.
	Seq uint64
}

// Config of a Probe.
type Config struct {
	StateDirs []string
	Volumes   []*volume.Volume // one for each state directory
	// Question is what the judgement depends on, and More what else is known of
	// a database; it may be nil.
	Question verify.Question
	More     verify.More
	Events   event.Sink
	// Rescan is how often everything is looked at, events or not, and Poll how
	// often in mode Poll.
	Rescan, Poll time.Duration
	// LockPoll is how often the .lock of each application is asked.
	LockPoll time.Duration
	// Debounce is how long events are gathered before a look.
	Debounce time.Duration
	// MuteAbove is how many events a directory may raise within a second, and
	// MuteFor how long one that raises more is polled once a second instead:
	// a WAL that is appended to 1,000 times a second costs its watcher 7 % of
	// a core (measured), a poll next to nothing.
	MuteAbove int
	MuteFor   time.Duration
	Now       func() time.Time
	// NewWatcher makes the source of file events; nil for the real one.
	NewWatcher func() (*fsnotify.Watcher, error)
}

// The defaults of Config.
const (
	DefaultRescan    = 30 * time.Second
	DefaultPoll      = 5 * time.Second
	DefaultLockPoll  = time.Second
	DefaultDebounce  = 100 * time.Millisecond
	DefaultMuteAbove = 200
	DefaultMuteFor   = 10 * time.Second
)

func orDefault[T int | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

// Probe watches. Run does the work; the other methods are safe to call from
// anywhere at any time and never block.
type Probe struct {
	cfg      Config
	snapshot atomic.Pointer[Snapshot]
	beat     atomic.Int64 // unix nanoseconds of the loop's last turn
	rescan   chan struct{}
}

// New gives a Probe that does nothing yet.
func New(cfg Config) *Probe {
	orDefault(&cfg.Rescan, DefaultRescan)
	orDefault(&cfg.Poll, DefaultPoll)
	orDefault(&cfg.LockPoll, DefaultLockPoll)
	orDefault(&cfg.Debounce, DefaultDebounce)
	orDefault(&cfg.MuteAbove, DefaultMuteAbove)
	orDefault(&cfg.MuteFor, DefaultMuteFor)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Events == nil {
		cfg.Events = event.Discard
	}
	if cfg.NewWatcher == nil {
		cfg.NewWatcher = fsnotify.NewWatcher
	}
	p := &Probe{cfg: cfg, rescan: make(chan struct{}, 1)}
	p.beat.Store(cfg.Now().UnixNano())
	return p
}

// Snapshot is the newest picture, or nil before the first look is done.
func (p *Probe) Snapshot() *Snapshot { return p.snapshot.Load() }

// Rescan asks for a full look soon.
func (p *Probe) Rescan() {
	select {
	case p.rescan <- struct{}{}:
	default:
	}
}

// Alive says whether the loop has turned within the last limit. The loop never
// waits for the volume, so a hung disk does not make it false.
func (p *Probe) Alive(limit time.Duration) bool {
	return p.cfg.Now().UnixNano()-p.beat.Load() < int64(limit)
}

// Run watches until the context ends. It returns nil then; it has no other way out.
func (p *Probe) Run(ctx context.Context) error {
	w := newWorker(p)
	work, results := make(chan look), make(chan result)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer w.watches.close()
		w.run(ctx, work, results)
	}()
	newLoop(p, work, results).run(ctx)
	close(work)
	// A worker that hangs in the volume must not keep the process.
	select {
	case <-done:
	case <-time.After(time.Second):
	}
	return nil
}

func (p *Probe) publish(r *result, mode Mode, muted int) {
	prev := p.snapshot.Load()
	s := &Snapshot{At: p.cfg.Now(), StateDirs: r.dirs, Judgement: r.judgement, Mode: mode, Muted: muted, Seq: 1}
	if prev != nil {
		s.Seq, s.ScanTook = prev.Seq+1, prev.ScanTook
	}
	if r.full {
		s.ScanTook = r.took
	}
	p.snapshot.Store(s)
	report(p.cfg.Events, prev, s, r)
}
