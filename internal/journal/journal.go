// Package journal keeps the sidecar's own documents, one folder of small JSON
// files for each state directory: <state.dir>/.streams-sidecar/. What they say
// is for the packages that write and read them; here they are only documents.
//
// It is the only package that writes below a state directory, and it writes
// nowhere but in that folder: it never makes the state directory, never
// follows a symbolic link out of it or inside it, and nothing outside the
// folder is ever created, changed, renamed or removed. It takes no lock and
// keeps no file open between two calls. A reader sees a whole document, the
// old one or the new one, whatever was killed in the middle of a write.
//
// The volume may be full, read-only or gone, and it may hang: every call has a
// deadline, and an error that says what to do. Whoever acts on the state of an
// application may import it; it imports only volume.
package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"streams-sidecar/internal/volume"
)

// MaxSize of a document, in bytes as it stands in its file.
const MaxSize = 32 << 20

// MaxName is how long the name of a document may be, in bytes.
const MaxName = 128

// DefaultDeadline of a call. On an idle disk a [Folder.Write] took 4
// milliseconds; on one that was busy with other writes 1 in 100 took more than
// a second, and 1 in 600 more than two. Who can wait that long sets more.
const DefaultDeadline = 2 * time.Second

// folderName is the folder in a state directory. Streams takes only a
// directory with the name of its application id for its own.
const folderName = ".streams-sidecar"

// Folder is the folder of one state directory. It is safe for concurrent use:
// its calls run one after another, in no promised order. Two Folders of one
// directory, in one process or in several, don't disturb each other.
//
// A call that does not return within the deadline is given up with an error of
// class [volume.Stuck]. It still runs then, since a system call that hangs
// cannot be cancelled, and until it ends every other call fails at once; so a
// dead volume costs one goroutine for each Folder. Of a write that was given up
// nothing is left, unless only the rename or what follows it was missing: then
// the document is replaced as soon as the volume answers.
type Folder struct {
	dir      string // the state directory
	deadline time.Duration
	limit    int // MaxSize, and less in tests

	// around, in tests, stands between a call and the system: it runs one
	// step of it, or does not, or takes its time.
	around func(step string, sys func() error) error

	mu    sync.Mutex
	now   *call // under way, nil if none
	swept bool  // belongs to the call under way
}

// Option changes a Folder.
type Option func(*Folder)

// Deadline sets how long a call may take, waiting for its turn included. Zero
// and less stand for [DefaultDeadline].
func Deadline(d time.Duration) Option { return func(f *Folder) { f.deadline = d } }

// Open gives the Folder of a state directory. It touches nothing.
func Open(stateDir string, opts ...Option) *Folder {
	f := &Folder{dir: stateDir, limit: MaxSize}
	for _, o := range opts {
		o(f)
	}
	if f.deadline <= 0 {
		f.deadline = DefaultDeadline
	}
	return f
}

// Again gives another Folder of the same state directory: its calls do not wait
// for those of this one.
func (f *Folder) Again(opts ...Option) *Folder { return Open(f.dir, opts...) }

// Write replaces or creates a document and makes that durable: when it
// returns, the new document survives a crash of the node, and until then the
// old one does. The folder is made if it is missing.
//
// The doc is written as [json.Marshal] sees it, indented, in at most [MaxSize]
// bytes. After an error the old document is whole, or, where only the last
// step of making it durable failed, the new one; there is never a mix. A name
// consists of at most [MaxName] letters, digits, dots, dashes and underscores
// and does not begin with a dot.
//
// Every error is an [*Error].
func (f *Folder) Write(name string, doc any) error { return f.write("write", name, doc, true) }

// Put is Write without waiting for the disk: the new document survives the end
// of this process, however it ends, but a crash of the node before [Folder.Sync]
// can cost the new document and the old one. It took half a millisecond, and
// 40 of them in 1 of 100 cases on a busy disk.
func (f *Folder) Put(name string, doc any) error { return f.write("put", name, doc, false) }

func (f *Folder) write(op, name string, doc any, durable bool) error {
	if err := f.check(op, name); err != nil {
		return err
	}
	data, err := encode(doc)
	if err == nil && len(data) > f.limit { // Read would refuse it
		err = tooLarge(int64(len(data)), f.limit)
	}
	if err != nil {
		return &Error{Op: op, Path: f.path(name), Err: err}
	}
	return f.run(op, name, func(c *call) error { return c.write(name, data, durable) })
}

// Sync makes durable what Put has written. An error that the disk had with it
// since shows here. Without such a document the error is [fs.ErrNotExist].
//
// It takes as long as Write, and whatever else the Folder is asked meanwhile
// waits for it. Who must not wait, syncs by another Folder of the directory.
func (f *Folder) Sync(name string) error {
	if err := f.check("sync", name); err != nil {
		return err
	}
	return f.run("sync", name, func(c *call) error { return c.sync(name) })
}

// Read reads a document into doc as [json.Unmarshal] does. If there is none,
// and no folder or no state directory either, the error is [fs.ErrNotExist]; if
// the file holds something else than a document that fits doc, it is a
// [*Damaged], and doc may hold a part of it. One of more than [MaxSize] bytes
// is an error of class [volume.TooLarge].
func (f *Folder) Read(name string, doc any) error {
	if err := f.check("read", name); err != nil {
		return err
	}
	var data []byte
	err := f.run("read", name, func(c *call) (err error) {
		data, err = c.read(name)
		return err
	})
	if err != nil {
		return err // and data may still be written to
	}
	if err := json.Unmarshal(data, doc); err != nil {
		if _, mistake := errors.AsType[*json.InvalidUnmarshalError](err); !mistake {
			err = &Damaged{Size: len(data), Err: err}
		}
		return &Error{Op: "read", Path: f.path(name), Err: err}
	}
	return nil
}

// Remove removes a document. It is no error if there is none, nor a folder or
// a state directory. A crash of the node within seconds can bring it back.
func (f *Folder) Remove(name string) error {
	if err := f.check("remove", name); err != nil {
		return err
	}
	err := f.run("remove", name, func(c *call) error { return c.remove(name) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (f *Folder) folder() string          { return filepath.Join(f.dir, folderName) }
func (f *Folder) path(name string) string { return filepath.Join(f.folder(), name) }

func (f *Folder) check(op, name string) error {
	if isName(name) {
		return nil
	}
	return &Error{Op: op, Path: f.folder(), Err: fmt.Errorf("%.200q is no name of a document: %w", name, fs.ErrInvalid)}
}

// isName keeps names plain, whoever made them up, and free of the dot with
// which the names of temporary files begin.
func isName(s string) bool {
	if s == "" || len(s) > MaxName || s[0] == '.' {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		return !letter && r != '.' && r != '-' && r != '_'
	})
}

// encode is the document as it stands in its file. It gives the same bytes for
// the same document.
func encode(doc any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false) // people read it
	if err := e.Encode(doc); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return b.Bytes(), nil
}

// call is one call of a Folder. Its fields are guarded by the Folder's mu.
type call struct {
	folder  *Folder
	op      string
	path    string // of its document
	step    string // the system call under way, or the last one
	since   time.Time
	givenUp bool
	over    chan struct{} // closed when it was given up or has ended
}

// ticks is how often a deadline is counted down. A process that was stopped
// itself (SIGSTOP, the freezer, a used-up CPU quota) finds one tick afterwards,
// however long it was away, and so does not take that time for the volume's.
const ticks = 8

// run gives work its turn, in a goroutine of its own, and gives it up at the
// deadline.
func (f *Folder) run(op, name string, work func(*call) error) error {
	path := f.path(name)
	c := &call{folder: f, op: op, path: path, over: make(chan struct{})}
	tick := time.NewTicker(max(f.deadline/ticks, 1))
	defer tick.Stop()
	left := ticks
	for other := f.begin(c); other != nil; other = f.begin(c) {
		select {
		case <-other.over:
			if f.hangs(other) {
				return other.stuckFor(op, path)
			}
		case <-tick.C:
			if left--; left == 0 {
				return other.stuckFor(op, path)
			}
		}
	}

	done := make(chan error, 1)
	go func() {
		err := work(c)
		f.mu.Lock()
		f.now = nil
		if !c.givenUp {
			close(c.over)
		}
		f.mu.Unlock()
		done <- err
	}()
	for {
		select {
		case err := <-done:
			if err != nil {
				return &Error{Op: op, Path: path, Err: err}
			}
			return nil
		case <-tick.C:
			if left--; left <= 0 && f.giveUp(c) {
				return c.stuckFor(op, path)
			}
		}
	}
}

// begin makes c the call under way, or gives the one that is.
func (f *Folder) begin(c *call) (other *call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now == nil {
		c.step, c.since = c.op, time.Now()
		f.now = c
		return nil
	}
	return f.now
}

// hangs says whether a call was given up and has not ended since.
func (f *Folder) hangs(c *call) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now == c && c.givenUp
}

// giveUp makes a call the one that hangs, unless it has ended in this moment.
func (f *Folder) giveUp(c *call) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now != c {
		return false
	}
	c.givenUp = true
	close(c.over)
	return true
}

// stuckFor is the error of another call, or of itself, that waited for it in vain.
func (c *call) stuckFor(op, path string) error {
	c.folder.mu.Lock()
	defer c.folder.mu.Unlock()
	where := c.step
	if c.op != op || c.path != path {
		where = fmt.Sprintf("%s of %s: %s", c.op, filepath.Base(c.path), where)
	}
	return &Error{Op: op, Path: path, Err: &classed{volume.Stuck,
		fmt.Sprintf("%s: no answer from the volume since %s", where, c.since.UTC().Format(time.RFC3339))}}
}
