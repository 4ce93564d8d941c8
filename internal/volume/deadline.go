package volume

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultDeadline is how long one system call may take before its place
// counts as stuck. A spinning disk under load answers within a fraction of a
// second; an NFS server that fails over can take longer, and is reported as
// stuck for that time, which is true.
const DefaultDeadline = 2 * time.Second

// maxStuck bounds how many calls of one volume may hang at the same time, and
// with them the goroutines and threads that a dead volume can cost. Once it
// is reached the whole volume counts as stuck.
const maxStuck = 4

// Volume gives out looks at one file system and remembers where it is stuck.
//
// Work is named by a unit: the directory that it looks at. When a call hangs,
// its unit is stuck; other units of the volume are still asked (a single
// broken mount below a state directory must not hide the rest), until
// maxStuck of them hang. A stuck unit is asked again as soon as every look at
// it that was given up has ended, not earlier. It is safe for concurrent use.
//
// Looks that were already under way when the volume died hang too: what it
// can hold is maxStuck looks and as many more as its users run at a time.
type Volume struct {
	fs       FS
	deadline time.Duration
	notify   func(Change)

	// telling is held from a change of stuck until notify has been told of
	// it, or else an answer could overtake the word that the place is stuck.
	// It is taken before mu, never inside.
	telling sync.Mutex
	mu      sync.Mutex
	stuck   map[string]*stuckUnit
}

type stuckUnit struct {
	op, path string
	since    time.Time
	looks    int // given up and not yet ended
}

func (s *stuckUnit) err() error {
	return &Error{Op: s.op, Path: s.path, Class: Stuck, Err: errStuck{s.since}}
}

// Change tells that a place became stuck, or answered again.
type Change struct {
	Op, Path string    // the call that hangs or hung, the first one if several did
	Since    time.Time // when that call began
	Answered bool
}

// Option changes a Volume.
type Option func(*Volume)

// Deadline sets how long one system call may take; see [DefaultDeadline],
// which is also what zero and less stand for.
func Deadline(d time.Duration) Option { return func(v *Volume) { v.deadline = d } }

// Notify sets a function that is told of every [Change], in order: a place
// that became stuck is told once, and once that it answers. It must not block
// and must not call [Do] on the same Volume.
func Notify(f func(Change)) Option { return func(v *Volume) { v.notify = f } }

// New gives a Volume over a file system, usually [OS].
func New(fsys FS, opts ...Option) *Volume {
	v := &Volume{fs: fsys, stuck: map[string]*stuckUnit{}}
	for _, o := range opts {
		o(v)
	}
	if v.deadline <= 0 {
		v.deadline = DefaultDeadline
	}
	return v
}

// StuckUnits is how many places of the volume hang now.
func (v *Volume) StuckUnits() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.stuck)
}

// Panic is the cause in the [Error] of a look that panicked.
//
// A reader that meets a malformed store with a bug of its own must not take
// the agent down, with its watch over every other store and its hold on the
// application's stop; so it becomes an error of this one look. Panicking anew
// in the goroutine of the caller would only move the crash there.
type Panic struct {
	Value any
	Stack []byte // of the look, for the log
}

func (p *Panic) Error() string { return "panic: " + Text(fmt.Sprint(p.Value)) }

// Do runs a look at one unit and returns its result, or an [Error] of class
// Stuck once a single system call of it has taken longer than the deadline (by
// an eighth), or at once if the unit is already stuck. A look that panics
// gives an [Error] with a [Panic] in it.
//
// A look that is given up goes on until its call returns; that call and every
// later one fail, and its result is dropped. It must therefore return what it
// found rather than write to variables of its caller, or read into buffers of
// it. The FS that it gets is for its own goroutine and its own time only:
// calls from a second goroutine or after the look fail. Only calls to the FS
// have a deadline, so a look must not block on anything else.
func Do[T any](v *Volume, unit string, look func(FS) (T, error)) (T, error) {
	var none T
	if err := v.refuse(unit); err != nil {
		return none, err
	}
	type result struct {
		val T
		err error
	}
	t := &tracked{fs: v.fs}
	done := make(chan result, 1)
	go func() {
		r := result{err: &Error{Op: "look", Path: unit, Err: errExited}}
		defer func() {
			if p := recover(); p != nil {
				r = result{err: &Error{Op: "look", Path: unit, Err: &Panic{p, debug.Stack()}}}
			}
			givenUp := t.finish()
			done <- r
			if givenUp {
				v.answered(unit)
			}
		}()
		val, err := look(t)
		r = result{val, err}
	}()
	timer := time.NewTimer(v.deadline)
	defer timer.Stop()
	var late *call
	for {
		select {
		case r := <-done:
			return r.val, r.err
		case <-timer.C:
		}
		left := v.deadline
		if c := t.running(); c != nil {
			left -= time.Since(c.begun)
			switch {
			case left > 0:
			case c != late:
				// If this process itself was stopped (SIGSTOP, freezer,
				// a used-up CPU quota), the call may have returned long
				// ago: let its goroutine run before judging.
				late, left = c, v.deadline/8
			default:
				if err := v.giveUp(unit, t, c); err != nil {
					return none, err
				}
				left = v.deadline // it returned in this moment
			}
		}
		timer.Reset(left)
	}
}

// refuse gives the error of a unit that is stuck, by itself or with the whole
// volume, and nil for one that may be asked.
func (v *Volume) refuse(unit string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s, ok := v.stuck[unit]; ok {
		return s.err()
	}
	if len(v.stuck) < maxStuck {
		return nil
	}
	var oldest *stuckUnit
	for _, s := range v.stuck {
		if oldest == nil || s.since.Before(oldest.since) {
			oldest = s
		}
	}
	return oldest.err()
}

// giveUp marks the unit as stuck and gives the error to return, or nil if the
// call has returned meanwhile.
func (v *Volume) giveUp(unit string, t *tracked, c *call) error {
	v.telling.Lock()
	defer v.telling.Unlock()
	hanging := &stuckUnit{op: c.op, path: c.path, since: c.begun, looks: 1}
	v.mu.Lock()
	// Under the lock: from here on the look may end at any time, and must
	// then find its unit.
	if !t.current.CompareAndSwap(c, abandoned) {
		v.mu.Unlock()
		return nil
	}
	known, ok := v.stuck[unit]
	if ok {
		known.looks++
	} else {
		v.stuck[unit] = hanging
	}
	v.mu.Unlock()
	if !ok && v.notify != nil {
		v.notify(Change{Op: c.op, Path: c.path, Since: c.begun})
	}
	return hanging.err()
}

// answered is called when a look that was given up has ended. The end of the
// look counts, not the return of its call: it may have to close a file first,
// and that can hang as well.
func (v *Volume) answered(unit string) {
	v.telling.Lock()
	defer v.telling.Unlock()
	v.mu.Lock()
	s := v.stuck[unit]
	s.looks--
	if s.looks > 0 {
		v.mu.Unlock()
		return
	}
	delete(v.stuck, unit)
	v.mu.Unlock()
	if v.notify != nil {
		v.notify(Change{Op: s.op, Path: s.path, Since: s.since, Answered: true})
	}
}

// tracked is an FS that notes which call is under way. It belongs to the
// goroutine of one look.
type tracked struct {
	fs      FS
	current atomic.Pointer[call] // nil between two calls
}

type call struct {
	op, path string
	begun    time.Time
}

// In the place of a call: nobody waits for the look any more, or it has ended.
var (
	abandoned = new(call)
	finished  = new(call)
)

// running is the call under way, nil if there is none to wait for.
func (t *tracked) running() *call {
	if c := t.current.Load(); c != abandoned && c != finished {
		return c
	}
	return nil
}

// finish ends the look and says whether it had been given up.
func (t *tracked) finish() bool { return t.current.Swap(finished) == abandoned }

func (t *tracked) begin(op, path string) (*call, error) {
	c := &call{op: op, path: path, begun: time.Now()}
	if t.current.CompareAndSwap(nil, c) {
		return c, nil
	}
	switch t.current.Load() {
	case abandoned:
		return nil, &Error{Op: op, Path: path, Class: Stuck, Err: errAbandoned}
	case finished:
		return nil, &Error{Op: op, Path: path, Err: errFinished}
	default:
		return nil, &Error{Op: op, Path: path, Err: errConcurrent}
	}
}

// end gives an error if the look was given up during the call; what the call
// returned is then too late. A call that never began (nil) ends well.
func (t *tracked) end(c *call) error {
	if c == nil || t.current.CompareAndSwap(c, nil) {
		return nil
	}
	return &Error{Op: c.op, Path: c.path, Class: Stuck, Err: errAbandoned}
}

// ask makes one call about a path.
func ask[T any](t *tracked, op, path string, method func(string) (T, error)) (T, error) {
	var none T
	c, err := t.begin(op, path)
	if err != nil {
		return none, err
	}
	val, err := method(path)
	if late := t.end(c); late != nil {
		return none, late
	}
	return val, err
}

func (t *tracked) Lstat(path string) (Info, error)     { return ask(t, "stat", path, t.fs.Lstat) }
func (t *tracked) Stat(path string) (Info, error)      { return ask(t, "stat", path, t.fs.Stat) }
func (t *tracked) Lock(path string) (Lock, error)      { return ask(t, "lock", path, t.fs.Lock) }
func (t *tracked) Usage(path string) (Usage, error)    { return ask(t, "statfs", path, t.fs.Usage) }
func (t *tracked) Resolve(path string) (string, error) { return ask(t, "resolve", path, t.fs.Resolve) }

func (t *tracked) Watch(path string, add func(string) error) error {
	_, err := ask(t, "watch", path, func(path string) (struct{}, error) { return struct{}{}, t.fs.Watch(path, add) })
	return err
}

func (t *tracked) List(dir string, visit func(Info) error) error {
	c, err := t.begin("list", dir)
	if err != nil {
		return err
	}
	err = t.fs.List(dir, func(i Info) error {
		// The clock starts anew with each entry: a directory of 100,000
		// files may take longer than one call may. And visit may itself
		// ask the volume.
		if late := t.end(c); late != nil {
			c = nil
			return late
		}
		visitErr := visit(i)
		var err error
		c, err = t.begin("list", dir) // also for what follows an error: the closing
		if visitErr != nil {
			return visitErr
		}
		return err
	})
	if late := t.end(c); late != nil {
		return late
	}
	return err
}

func (t *tracked) Open(path string) (File, error) {
	c, err := t.begin("open", path)
	if err != nil {
		return nil, err
	}
	f, err := t.fs.Open(path)
	if late := t.end(c); late != nil {
		if err == nil {
			_ = f.Close()
		}
		return nil, late
	}
	if err != nil {
		return nil, err
	}
	return &trackedFile{f, t, path}, nil
}

type trackedFile struct {
	File
	t    *tracked
	path string
}

// readPiece is how many bytes one watched read asks for at most: a slow disk
// that takes seconds for a large read makes progress and is not stuck.
const readPiece = 1 << 20

func (f *trackedFile) ReadAt(p []byte, off int64) (int, error) {
	return f.read(f.File.ReadAt, p, off)
}

func (f *trackedFile) ReadPast(p []byte, off int64) (int, error) {
	return f.read(f.File.ReadPast, p, off)
}

func (f *trackedFile) Deleted() (bool, error) {
	return ask(f.t, "stat", f.path, func(string) (bool, error) { return f.File.Deleted() })
}

func (f *trackedFile) read(method func([]byte, int64) (int, error), p []byte, off int64) (int, error) {
	n := 0
	for {
		piece := p[n:min(n+readPiece, len(p))]
		c, err := f.t.begin("read", f.path)
		if err != nil {
			return n, err
		}
		m, err := method(piece, off+int64(n))
		if late := f.t.end(c); late != nil {
			return n, late
		}
		n += m
		if err != nil || m < len(piece) || n == len(p) {
			return n, err
		}
	}
}

// Close is watched as well, since close(2) flushes on NFS and FUSE and can
// hang there. It closes the file in any case.
func (f *trackedFile) Close() error {
	c, err := f.t.begin("close", f.path)
	if err != nil {
		return f.File.Close()
	}
	err = f.File.Close()
	if late := f.t.end(c); late != nil {
		return late
	}
	return err
}
