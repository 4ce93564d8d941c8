package volume

import (
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
// maxStuck of them hang. A stuck unit is asked again as soon as the hanging
// call returns, not earlier. It is safe for concurrent use.
type Volume struct {
	fs       FS
	deadline time.Duration
	notify   func(Change)

	mu    sync.Mutex
	stuck map[string]stuckUnit
}

type stuckUnit struct {
	op, path string
	since    time.Time
}

// Change tells that a place became stuck, or answered again.
type Change struct {
	Op, Path string    // the call that hangs or hung
	Since    time.Time // when the call began
	Answered bool
}

// Option changes a Volume.
type Option func(*Volume)

// Deadline sets how long one system call may take; see [DefaultDeadline].
func Deadline(d time.Duration) Option { return func(v *Volume) { v.deadline = d } }

// Notify sets a function that is told of every [Change]. It must not block.
func Notify(f func(Change)) Option { return func(v *Volume) { v.notify = f } }

// New gives a Volume over a file system, usually [OS].
func New(fsys FS, opts ...Option) *Volume {
	v := &Volume{fs: fsys, deadline: DefaultDeadline, stuck: map[string]stuckUnit{}}
	for _, o := range opts {
		o(v)
	}
	return v
}

// StuckUnits is how many places of the volume hang now.
func (v *Volume) StuckUnits() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.stuck)
}

// Do runs a look at one unit and returns its result, or an [Error] of class
// Stuck once a single system call of it has taken longer than the deadline,
// or at once if the unit is already stuck.
//
// A look that is given up goes on until its call returns, and then ends at its
// next call. It must therefore return what it found rather than write to
// variables of its caller. The FS that it gets is for its own goroutine only.
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
		val, err := look(t)
		done <- result{val, err}
		v.answered(unit, t)
	}()
	timer := time.NewTimer(v.deadline)
	defer timer.Stop()
	for {
		select {
		case r := <-done:
			return r.val, r.err
		case <-timer.C:
		}
		left := v.deadline
		if c := t.current.Load(); c != nil && c != abandoned {
			left = v.deadline - time.Since(c.begun)
			if left <= 0 {
				if v.giveUp(unit, t, c) {
					return none, stuckError(stuckUnit{c.op, c.path, c.begun})
				}
				left = v.deadline // it returned in this moment
			}
		}
		timer.Reset(left)
	}
}

func stuckError(s stuckUnit) error {
	return &Error{Op: s.op, Path: s.path, Class: Stuck, Err: errStuck{s.since}}
}

func (v *Volume) refuse(unit string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s, ok := v.stuck[unit]; ok {
		return stuckError(s)
	}
	if len(v.stuck) >= maxStuck {
		for _, s := range v.stuck {
			return stuckError(s)
		}
	}
	return nil
}

// giveUp marks the unit as stuck, unless the call has returned meanwhile.
func (v *Volume) giveUp(unit string, t *tracked, c *call) bool {
	v.mu.Lock()
	if !t.current.CompareAndSwap(c, abandoned) {
		v.mu.Unlock()
		return false
	}
	v.stuck[unit] = stuckUnit{c.op, c.path, c.begun}
	v.mu.Unlock()
	if v.notify != nil {
		v.notify(Change{Op: c.op, Path: c.path, Since: c.begun})
	}
	return true
}

// answered is called when a look has ended, given up or not.
func (v *Volume) answered(unit string, t *tracked) {
	if t.current.Load() != abandoned {
		return
	}
	v.mu.Lock()
	s := v.stuck[unit]
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

// abandoned in the place of a call means that nobody waits for the look any more.
var abandoned = new(call)

func (t *tracked) begin(op, path string) (*call, error) {
	c := &call{op: op, path: path, begun: time.Now()}
	if !t.current.CompareAndSwap(nil, c) {
		return nil, &Error{Op: op, Path: path, Class: Stuck, Err: errAbandoned}
	}
	return c, nil
}

func (t *tracked) end(c *call) { t.current.CompareAndSwap(c, nil) }

func (t *tracked) List(dir string, visit func(Info) error) error {
	c, err := t.begin("list", dir)
	if err != nil {
		return err
	}
	err = t.fs.List(dir, func(i Info) error {
		// The clock starts anew with each entry: a directory of 100,000
		// files may take longer than one call may. And visit may itself
		// ask the volume.
		t.end(c)
		if err := visit(i); err != nil {
			return err
		}
		var err error
		c, err = t.begin("list", dir)
		return err
	})
	t.end(c)
	return err
}

func (t *tracked) Lstat(path string) (Info, error) {
	c, err := t.begin("stat", path)
	if err != nil {
		return Info{}, err
	}
	defer t.end(c)
	return t.fs.Lstat(path)
}

func (t *tracked) Stat(path string) (Info, error) {
	c, err := t.begin("stat", path)
	if err != nil {
		return Info{}, err
	}
	defer t.end(c)
	return t.fs.Stat(path)
}

func (t *tracked) Open(path string) (File, error) {
	c, err := t.begin("open", path)
	if err != nil {
		return nil, err
	}
	defer t.end(c)
	f, err := t.fs.Open(path)
	if err != nil {
		return nil, err
	}
	return &trackedFile{f, t, path}, nil
}

func (t *tracked) Lock(path string) (Lock, error) {
	c, err := t.begin("lock", path)
	if err != nil {
		return Lock{}, err
	}
	defer t.end(c)
	return t.fs.Lock(path)
}

func (t *tracked) Usage(path string) (Usage, error) {
	c, err := t.begin("statfs", path)
	if err != nil {
		return Usage{}, err
	}
	defer t.end(c)
	return t.fs.Usage(path)
}

func (t *tracked) Resolve(path string) (string, error) {
	c, err := t.begin("resolve", path)
	if err != nil {
		return "", err
	}
	defer t.end(c)
	return t.fs.Resolve(path)
}

type trackedFile struct {
	File
	t    *tracked
	path string
}

func (f *trackedFile) ReadAt(p []byte, off int64) (int, error) {
	c, err := f.t.begin("read", f.path)
	if err != nil {
		return 0, err
	}
	defer f.t.end(c)
	return f.File.ReadAt(p, off)
}
