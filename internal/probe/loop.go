package probe

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"streams-sidecar/internal/event"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/verify"
)

// look is one piece of work for the worker: everything, or some databases, or
// the locks only.
type look struct {
	full  bool
	dirty map[string]bool // databases
	// mute and unmute change which directories are watched, renew names those
	// whose watch may be gone, or that of all of them.
	mute, unmute, renew []string
	renewAll            bool
}

func (l *look) empty() bool {
	return !l.full && len(l.dirty) == 0 && len(l.mute) == 0 && len(l.unmute) == 0 && len(l.renew) == 0
}

// result is what a look has found.
type result struct {
	full   bool
	dirs   []*store.StateDir // nil after a look at the locks only
	took   time.Duration
	added  int  // watches added: what happened before them is seen by another look
	relook bool // a lock has changed

	judgement *verify.Judgement

	events *watches // the source of events, if it has changed
	mode   Mode
	reason string // why it polls
}

// loop gathers what has to be looked at and hands it to the worker, one look at
// a time. It never touches the volume.
type loop struct {
	*Probe
	work    chan<- look
	results <-chan result

	events <-chan fsnotify.Event
	errs   <-chan error

	next     look // what to look at next
	ready    bool // it may be handed over: the debounce is over
	debounce <-chan time.Time
	confirm  <-chan time.Time // when to look whether what was concluded still holds
	askLocks bool
	busy     bool // the worker is at it

	known places
	mode  Mode
	rates map[string]*rate     // of events by directory, within the current second
	muted map[string]time.Time // until when
	due   time.Time            // of the next full look
}

type rate struct{ events int }

// confirmAfter is how much later than it may a picture is taken that is to
// confirm a conclusion of damage.
const confirmAfter = 50 * time.Millisecond

// maxRenew bounds how many names are gathered before simply all are meant.
const maxRenew = 4096

func newLoop(p *Probe, work chan<- look, results <-chan result) *loop {
	return &loop{
		Probe: p, work: work, results: results,
		next: look{full: true}, ready: true,
		rates: map[string]*rate{}, muted: map[string]time.Time{},
		due: p.cfg.Now().Add(p.cfg.Rescan),
	}
}

func (l *loop) run(ctx context.Context) {
	second, locks := time.NewTicker(time.Second), time.NewTicker(l.cfg.LockPoll)
	// Finer than a second where the rescan is, as in tests.
	rescan := time.NewTicker(min(l.cfg.Rescan, l.cfg.Poll, time.Second))
	defer second.Stop()
	defer locks.Stop()
	defer rescan.Stop()
	for {
		hand, out := l.offer()
		select {
		case <-ctx.Done():
			return
		case <-second.C:
			l.beat.Store(l.cfg.Now().UnixNano())
			l.eachSecond()
		case <-rescan.C:
			if !l.cfg.Now().Before(l.due) {
				l.soon(true)
			}
		case <-l.rescan:
			l.soon(true)
		case <-locks.C:
			l.askLocks = true
		case <-l.debounce:
			l.debounce, l.ready = nil, true
		case <-l.confirm:
			l.confirm = nil
			l.soon(true)
		case out <- hand:
			l.handed(&hand)
		case r := <-l.results:
			l.take(&r)
		case e, ok := <-l.events:
			if !ok {
				l.events = nil
				continue
			}
			l.note(e)
		case err, ok := <-l.errs:
			if !ok {
				l.errs = nil
				continue
			}
			if errors.Is(err, fsnotify.ErrEventOverflow) {
				l.cfg.Events.Emit(event.EventsLost{})
				l.next.renewAll = true
			}
			l.soon(true)
		}
	}
}

// offer gives what the worker should do now, and the channel to offer it on:
// nil if there is nothing, or it is busy.
func (l *loop) offer() (look, chan<- look) {
	switch {
	case l.busy:
		return look{}, nil
	case l.ready && !l.next.empty():
		return l.next, l.work
	case l.askLocks:
		return look{}, l.work
	}
	return look{}, nil
}

func (l *loop) handed(hand *look) {
	l.busy, l.askLocks = true, false
	if hand.empty() {
		return
	}
	l.next, l.ready = look{}, false
	if hand.full {
		l.due = l.cfg.Now().Add(l.interval())
	}
}

// interval is until the next full look. Polling everything may take a fiftieth
// of the time at most.
func (l *loop) interval() time.Duration {
	if l.mode != Poll {
		return l.cfg.Rescan
	}
	every := l.cfg.Poll
	if s := l.Snapshot(); s != nil {
		every = max(every, 50*s.ScanTook)
	}
	return min(every, l.cfg.Rescan)
}

// soon calls for a full look, at once or after the debounce.
func (l *loop) soon(now bool) {
	l.next.full = true
	if now {
		l.ready = true
	} else {
		l.later()
	}
}

func (l *loop) later() {
	if l.debounce == nil && !l.ready {
		l.debounce = time.After(l.cfg.Debounce)
	}
}

func (l *loop) take(r *result) {
	l.busy = false
	if r.events != nil {
		l.events, l.errs = r.events.channels()
	}
	if r.mode != "" && r.mode != l.mode {
		l.mode = r.mode
		l.cfg.Events.Emit(event.WatchingMode{Mode: string(r.mode), Reason: r.reason})
		l.due = l.cfg.Now().Add(l.interval())
	}
	if r.relook {
		l.soon(true)
	}
	if r.dirs == nil {
		return
	}
	if after, open := r.judgement.Unconfirmed(); open && l.confirm == nil {
		l.confirm = time.After(after + confirmAfter)
	}
	l.known = newPlaces(r.dirs)
	l.publish(r, l.mode, len(l.muted))
	if r.added > 0 {
		// What happened between the listing of a new directory and its watch
		// raised no event.
		l.soon(false)
	}
}

// eachSecond looks at the muted directories and lets them be watched again
// when their time is over.
func (l *loop) eachSecond() {
	clear(l.rates)
	now := l.cfg.Now()
	for dir, until := range l.muted {
		if now.Before(until) {
			l.dirty(dir)
			continue
		}
		delete(l.muted, dir)
		l.next.unmute = append(l.next.unmute, dir)
		l.dirty(dir)
	}
	if len(l.next.dirty) > 0 || len(l.next.unmute) > 0 {
		l.ready = true
	}
}

// note adds what an event calls for to the next look.
func (l *loop) note(e fsnotify.Event) {
	dir := filepath.Dir(e.Name)
	if l.known.databases[e.Name] { // about a database's directory itself
		dir = filepath.Dir(dir)
	}
	if e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename) {
		// If it was a directory that is watched, its watch went with it, and
		// another directory may have its path by now.
		if len(l.next.renew) < maxRenew {
			l.next.renew = append(l.next.renew, e.Name)
		} else {
			l.next.renewAll = true
		}
		l.later()
	}
	if _, ok := l.muted[dir]; ok {
		return // the rest of what was in the queue
	}
	r := l.rates[dir]
	if r == nil {
		r = &rate{}
		l.rates[dir] = r
	}
	if r.events++; r.events > l.cfg.MuteAbove {
		l.muted[dir] = l.cfg.Now().Add(l.cfg.MuteFor)
		l.next.mute = append(l.next.mute, dir)
		l.dirty(dir)
		l.later()
		return
	}
	// chmod also stands for a changed link count: in a database it comes with
	// every unlink of a file that is open somewhere.
	if e.Op == fsnotify.Chmod && l.known.databases[dir] {
		return
	}
	if l.known.databases[dir] && !l.known.databases[e.Name] {
		l.dirty(dir)
	} else {
		l.next.full = true
	}
	l.later()
}

// dirty calls for a look at a directory: a database alone, or else everything.
func (l *loop) dirty(dir string) {
	if !l.known.databases[dir] {
		l.next.full = true
		return
	}
	if l.next.dirty == nil {
		l.next.dirty = map[string]bool{}
	}
	l.next.dirty[dir] = true
}

// places knows the databases of the last picture, to tell an event in one from
// one that may change the layout.
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
