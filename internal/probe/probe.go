// Package probe keeps one immutable picture of every state directory up to
// date: a [Snapshot] that metrics, the API and the preStop gate read without
// ever touching the volume themselves.
//
// File events are a hint, a periodic rescan is the truth: whatever an event
// misses, the next rescan sees. Locks cause no events and are asked once a
// second. The package only looks; it knows nothing of metrics, HTTP or
// Kubernetes.
package probe

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"

	"streams-sidecar/internal/event"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
)

// Mode says how changes of the files are noticed.
type Mode string

// The modes.
const (
	Inotify Mode = "inotify"
	Poll    Mode = "poll"
)

// Snapshot is everything that is known at one moment. It never changes.
type Snapshot struct {
	At        time.Time // when the look was finished
	StateDirs []*store.StateDir
	Mode      Mode
	// ScanTook is how long the last full look took.
	ScanTook time.Duration
	// Seq counts the snapshots of this process, from 1.
	Seq uint64
}

// Config of a Probe.
type Config struct {
	StateDirs []string
	Volumes   []*volume.Volume // one for each state directory
	Events    event.Sink
	// Rescan is how often everything is looked at, events or not.
	Rescan time.Duration
	// LockPoll is how often the .lock of each application is asked.
	LockPoll time.Duration
	// Debounce is how long events are gathered before a look.
	Debounce time.Duration
	Now      func() time.Time
	// NewWatcher makes the source of file events; nil for the real one.
	NewWatcher func() (*fsnotify.Watcher, error)
}

// The defaults of Config.
const (
	DefaultRescan   = 30 * time.Second
	DefaultLockPoll = time.Second
	DefaultDebounce = 100 * time.Millisecond
)

// Probe watches. Run does the work; the other methods are safe to call from
// anywhere at any time and never block.
type Probe struct {
	cfg      Config
	snapshot atomic.Pointer[Snapshot]
	beat     atomic.Int64 // unix nanoseconds of the loop's last turn
	rescan   chan struct{}

	watcher *fsnotify.Watcher
	watched map[string]bool
	mode    Mode
}

// New gives a Probe that does nothing yet.
func New(cfg Config) *Probe {
	if cfg.Rescan <= 0 {
		cfg.Rescan = DefaultRescan
	}
	if cfg.LockPoll <= 0 {
		cfg.LockPoll = DefaultLockPoll
	}
	if cfg.Debounce <= 0 {
		cfg.Debounce = DefaultDebounce
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Events == nil {
		cfg.Events = event.Discard
	}
	if cfg.NewWatcher == nil {
		cfg.NewWatcher = fsnotify.NewWatcher
	}
	p := &Probe{cfg: cfg, rescan: make(chan struct{}, 1), watched: map[string]bool{}}
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

// look is one piece of work for the worker: everything, or some databases, or
// the locks only.
type look struct {
	full  bool
	dirty map[string]bool
}

// result is what a look has found.
type result struct {
	full      bool
	dirs      []*store.StateDir
	took      time.Duration
	added     int // watches added: what happened before them is seen by another look
	relook    bool
	mode      Mode
	modeSet   bool
	modeCause string
}

// Run watches until the context ends. It returns nil then; it has no other way out.
func (p *Probe) Run(ctx context.Context) error {
	p.openWatcher()
	defer p.closeWatcher()
	work, results := make(chan look), make(chan result)
	workerDone := make(chan struct{})
	go func() {
		defer close(workerDone)
		p.work(ctx, work, results)
	}()
	p.loop(ctx, work, results)
	close(work)
	// A worker that hangs in the volume must not keep the process.
	select {
	case <-workerDone:
	case <-time.After(time.Second):
	}
	return nil
}

func (p *Probe) openWatcher() {
	w, err := p.cfg.NewWatcher()
	if err != nil {
		p.setMode(Poll, err.Error())
		return
	}
	p.watcher = w
	p.setMode(Inotify, "")
}

func (p *Probe) closeWatcher() {
	if p.watcher != nil {
		_ = p.watcher.Close() // nothing to do about it at the end
	}
}

func (p *Probe) setMode(m Mode, reason string) {
	if p.mode != m {
		p.mode = m
		p.cfg.Events.Emit(event.WatchingMode{Mode: string(m), Reason: reason})
	}
}

// loop gathers what has to be looked at and hands it to the worker, one look at
// a time. It never touches the volume.
func (p *Probe) loop(ctx context.Context, work chan<- look, results <-chan result) {
	var (
		events   <-chan fsnotify.Event
		errs     <-chan error
		next     = look{full: true}
		busy     bool
		debounce <-chan time.Time
		beat     = time.NewTicker(time.Second)
		rescan   = time.NewTicker(p.cfg.Rescan)
		locks    = time.NewTicker(p.cfg.LockPoll)
		ready    = true // next may be handed over
	)
	defer beat.Stop()
	defer rescan.Stop()
	defer locks.Stop()
	if p.watcher != nil {
		events, errs = p.watcher.Events, p.watcher.Errors
	}
	known := newPlaces(nil)
	askLocks := false
	for {
		var out chan<- look
		if !busy && ((ready && (next.full || len(next.dirty) > 0)) || askLocks) {
			out = work
		}
		hand := next
		if !ready || (!next.full && len(next.dirty) == 0) {
			hand = look{} // the locks only
		}
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
			p.beat.Store(p.cfg.Now().UnixNano())
		case <-rescan.C:
			next.full, ready = true, true
		case <-p.rescan:
			next.full, ready = true, true
		case <-locks.C:
			askLocks = true
		case <-debounce:
			debounce, ready = nil, true
		case out <- hand:
			busy, askLocks = true, false
			if hand.full || len(hand.dirty) > 0 {
				next, ready = look{}, false
			}
		case r := <-results:
			busy = false
			if r.relook {
				next.full, ready = true, true
			}
			if r.dirs != nil {
				known = newPlaces(r.dirs)
				p.publish(r)
				if r.added > 0 {
					// What happened between the listing of a new directory
					// and its watch raised no event.
					next.full = true
					if debounce == nil {
						debounce = time.After(p.cfg.Debounce)
					}
				}
			}
		case e, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			if known.note(&next, e) && debounce == nil && !ready {
				debounce = time.After(p.cfg.Debounce)
			}
		case err, ok := <-errs:
			if !ok {
				errs = nil
				continue
			}
			if errors.Is(err, fsnotify.ErrEventOverflow) {
				p.cfg.Events.Emit(event.EventsLost{})
			}
			next.full, ready = true, true
		}
	}
}

// places knows the directories of the last picture, to tell an event in a
// database from one that may change the layout.
type places struct{ databases map[string]bool }

func newPlaces(dirs []*store.StateDir) places {
	p := places{map[string]bool{}}
	for _, d := range dirs {
		d.Stores(func(_ *store.Application, _ *store.Task, s *store.Store) {
			for _, db := range s.Databases {
				p.databases[db.Path] = true
			}
		})
	}
	return p
}

// note adds what an event calls for to the next look; false if nothing.
func (p places) note(next *look, e fsnotify.Event) bool {
	dir := filepath.Dir(e.Name)
	// chmod also stands for a changed mtime or link count; in a database it
	// comes with every unlink of an open file and tells nothing that counts.
	if e.Op == fsnotify.Chmod && p.databases[dir] {
		return false
	}
	if p.databases[dir] && !p.databases[e.Name] {
		if next.dirty == nil {
			next.dirty = map[string]bool{}
		}
		next.dirty[dir] = true
		return true
	}
	next.full = true
	return true
}

func (p *Probe) publish(r result) {
	prev := p.snapshot.Load()
	s := &Snapshot{At: p.cfg.Now(), StateDirs: r.dirs, Mode: p.mode, Seq: 1}
	if prev != nil {
		s.Seq, s.ScanTook = prev.Seq+1, prev.ScanTook
	}
	if r.full {
		s.ScanTook = r.took
	}
	if r.modeSet {
		p.setMode(r.mode, r.modeCause)
		s.Mode = p.mode
	}
	p.snapshot.Store(s)
	report(p.cfg.Events, prev, s, r)
}
