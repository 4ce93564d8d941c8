// Package volumetest makes a volume misbehave on purpose: calls that fail,
// stall, come too late or see the directory change under them.
//
// It wraps a real [volume.FS], usually volume.OS() over t.TempDir(), so that
// what is not told to misbehave is the real thing. Tests of every package may
// import it, and nothing else may.
package volumetest

import (
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"streams-sidecar/internal/volume"
)

// Op is a call that a rule is about and that is counted; where a
// [volume.Error] is made, it is the Op of that.
type Op string

// The calls: methods of [volume.FS] and [volume.File].
const (
	List    Op = "list"
	Stat    Op = "stat" // Stat, Lstat and File.Deleted
	Open    Op = "open"
	Read    Op = "read" // ReadAt and ReadPast
	Close   Op = "close"
	Lock    Op = "lock"
	Usage   Op = "statfs"
	Resolve Op = "resolve"
	Watch   Op = "watch"

	// Entry is the lstat of one entry while its directory is listed; the path
	// is the entry's.
	Entry Op = "entry"
	// Any stands for all of them except Entry.
	Any Op = "any"
)

// FS is a file system that obeys rules and counts its calls. It is safe for
// concurrent use.
//
// Rules and counts name a path as the caller of the FS spells it: "/a/b" is
// that path alone, "/a/b/..." is it and everything below, "..." is every path.
// All rules that match a call apply, in the order in which they were made.
type FS struct {
	t     testing.TB
	under volume.FS
	mu    sync.Mutex
	rules []*Rule
	calls map[call]int
}

type call struct {
	op   Op
	path string
}

func (c call) matches(op Op, path string) bool {
	if op != c.op && (op != Any || c.op == Entry) {
		return false
	}
	dir, tree := strings.CutSuffix(path, "...")
	return path == c.path ||
		tree && (strings.HasPrefix(c.path, dir) || c.path == strings.TrimSuffix(dir, "/"))
}

// New wraps a file system. What is still stalled when the test ends is released.
func New(t testing.TB, under volume.FS) *FS {
	f := &FS{t: t, under: under, calls: map[call]int{}}
	t.Cleanup(func() {
		f.mu.Lock()
		rules := slices.Clone(f.rules)
		f.mu.Unlock()
		for _, r := range rules {
			r.Release()
		}
	})
	return f
}

// Count is how many calls of op were made at path so far, failed ones included.
func (f *FS) Count(op Op, path string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for c, times := range f.calls {
		if c.matches(op, path) {
			n += times
		}
	}
	return n
}

// Rule is one misbehaviour. It lasts until [Rule.Release].
type Rule struct {
	fs   *FS
	at   call
	from int64 // applies to reads that go beyond this offset
	left int   // how many calls it still applies to; -1: released

	// What it does is one of these.
	fail          error // an errno, or io.EOF
	stall         chan struct{}
	before, after func()
	usage         func(*volume.Usage)

	blocked int
}

func (f *FS) add(op Op, path string, r *Rule) *Rule {
	r.fs, r.at, r.left = f, call{op, path}, math.MaxInt
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(f.rules, r)
	return r
}

// Fail makes calls fail with an errno, as a [volume.Error] of its class. They
// do not reach the file system, except Close, which closes all the same.
func (f *FS) Fail(op Op, path string, errno syscall.Errno) *Rule {
	return f.add(op, path, &Rule{fail: errno})
}

// FailAfter lets reads of a file come as far as the given number of bytes.
func (f *FS) FailAfter(path string, bytes int64, errno syscall.Errno) *Rule {
	return f.add(Read, path, &Rule{fail: errno, from: bytes})
}

// Cut makes reads of a file end after the given number of bytes, as if it had
// been truncated since it was opened.
func (f *FS) Cut(path string, bytes int64) *Rule {
	return f.add(Read, path, &Rule{fail: io.EOF, from: bytes})
}

// Stall makes calls block until [Rule.Release], and then go on normally.
func (f *FS) Stall(op Op, path string) *Rule {
	return f.add(op, path, &Rule{stall: make(chan struct{})})
}

// Before calls fn before each call, in its goroutine.
func (f *FS) Before(op Op, path string, fn func()) *Rule {
	return f.add(op, path, &Rule{before: fn})
}

// After calls fn when a call that was not made to fail is done (an Entry, when
// it has been visited), before its result is returned, in its goroutine.
func (f *FS) After(op Op, path string, fn func()) *Rule {
	return f.add(op, path, &Rule{after: fn})
}

// Full makes Usage say that no byte and no inode is free.
func (f *FS) Full(path string) *Rule {
	return f.add(Usage, path, &Rule{usage: func(u *volume.Usage) { u.Free, u.FreeInodes = 0, 0 }})
}

// ReadOnly makes Usage say that the file system is mounted read-only.
func (f *FS) ReadOnly(path string) *Rule {
	return f.add(Usage, path, &Rule{usage: func(u *volume.Usage) { u.ReadOnly = true }})
}

// Times makes the rule apply only to the next n calls that it matches.
func (r *Rule) Times(n int) *Rule {
	r.fs.mu.Lock()
	defer r.fs.mu.Unlock()
	r.left = n
	return r
}

// Release takes the rule back: calls that it blocks go on, later ones do not
// meet it. Doing so twice is harmless.
func (r *Rule) Release() {
	r.fs.mu.Lock()
	defer r.fs.mu.Unlock()
	if r.stall != nil && r.left >= 0 {
		close(r.stall)
	}
	r.left = -1
}

// Blocked is how many calls the rule blocks now.
func (r *Rule) Blocked() int {
	r.fs.mu.Lock()
	defer r.fs.mu.Unlock()
	return r.blocked
}

// WaitBlocked waits until the rule blocks n calls or more, and fails the test
// after ten seconds. It is for the goroutine of the test.
func (r *Rule) WaitBlocked(n int) {
	r.fs.t.Helper()
	for end := time.Now().Add(10 * time.Second); r.Blocked() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.fs.t.Fatalf("%d calls are blocked after ten seconds, want %d", r.Blocked(), n)
		}
	}
}

func (r *Rule) block(change int) {
	r.fs.mu.Lock()
	defer r.fs.mu.Unlock()
	r.blocked += change
}

func (r *Rule) error(op Op, path string) error {
	if errors.Is(r.fail, io.EOF) {
		return io.EOF
	}
	class := volume.ClassOf(r.fail)
	if class == volume.NoLocks && op != Lock {
		class = volume.Unclassified // as package volume has it
	}
	if op == Entry {
		op = Stat
	}
	return &volume.Error{Op: string(op), Path: path, Class: class, Err: r.fail}
}

// enter counts a call, does what is to be done before it, and returns the rule
// that makes it fail, if any, and those for afterwards. A read ends at end.
func (f *FS) enter(op Op, path string, end int64) (fail *Rule, later rules) {
	c := call{op, path}
	var met rules
	f.mu.Lock()
	f.calls[c]++
	for _, r := range f.rules {
		if r.left > 0 && r.from < end && c.matches(r.at.op, r.at.path) {
			r.left--
			met = append(met, r)
		}
	}
	f.mu.Unlock()
	for _, r := range met {
		switch {
		case r.before != nil:
			r.before()
		case r.stall != nil:
			r.block(1)
			<-r.stall
			r.block(-1)
		case r.fail == nil:
			later = append(later, r)
		case fail == nil || r.from < fail.from:
			fail = r
		}
	}
	return fail, later
}

type rules []*Rule

func (rs rules) after() {
	for _, r := range rs {
		if r.after != nil {
			r.after()
		}
	}
}
