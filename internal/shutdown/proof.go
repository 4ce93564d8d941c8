package shutdown

import (
	"slices"
	"strings"
	"time"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
)

// surroundings are what is known besides the files.
type surroundings struct {
	clockStepped bool // the times of files cannot be compared
	cleanBefore  bool // the end before this run was clean
	triggered    bool // the gate has caused this close
	written      []int64
}

// prove says of every store that was open whether this close was clean. It
// only compares: a is a look at the application after its .lock and every LOCK
// were free, m what it was before.
//
// The eras differ. From 4.3 on each database proves itself, see
// [store.Database.CloseSign]. Up to 4.2 a task has one .checkpoint for all its
// stores; Streams flushes all of them, writes the .checkpoint, and then closes
// them.
func prove(m *mark, a *store.Application, s surroundings) []Evidence {
	var out []Evidence
	s.written = writings(a)
	tasks := map[string]*store.Task{}
	for _, t := range a.Tasks {
		tasks[volume.Text(t.Layout.ID)] = t
	}
	for _, id := range m.tasks() {
		t := tasks[id]
		if t == nil {
			for _, name := range sortedKeys(m.Open[id]) {
				e := Evidence{Task: id, Store: name}
				if why := unlisted(a.Layout.Findings); why != "" {
					e = e.missing(Unreadable, why)
				} else {
					e.Closed = true
					e = e.missing(TaskGone, "")
				}
				out = append(out, e)
			}
			continue
		}
		out = append(out, m.proveTask(id, t, s)...)
	}
	return out
}

func (e Evidence) missing(r Reason, detail string) Evidence {
	e.Clean, e.Reason, e.Text = false, r, reasonTexts[r]
	if detail != "" {
		e.Text += " (" + detail + ")"
	}
	return e
}

func (m *mark) proveTask(id string, t *store.Task, s surroundings) []Evidence {
	stores := map[string]*store.Store{}
	for _, st := range t.Stores {
		stores[volume.Text(st.Name)] = st
	}
	var out []Evidence
	var legacy []int // of out
	for _, name := range sortedKeys(m.Open[id]) {
		e, st := Evidence{Task: id, Store: name}, stores[name]
		if st != nil {
			e.SSTBytes, e.Manifest = st.Sizes.SST, newestManifest(st)
		}
		switch {
		case st == nil && unlisted(t.Layout.Findings) != "":
			e = e.missing(Unreadable, unlisted(t.Layout.Findings))
		case st == nil:
			e = e.missing(StoreGone, "")
		case !st.Sound || !st.Listed:
			e = e.missing(unreadableReason(st))
		case st.InUse == nil || *st.InUse:
			e = e.missing(LockHeld, "")
		case len(st.Databases) == 0:
			e.Clean, e.Closed = true, true // every segment has expired
		case st.Empty:
			e = e.missing(StoreGone, "the directory is empty")
		case !wholeManifests(st):
			e = e.missing(ManifestUnparseable, "")
		case st.Era == store.OffsetsCF:
			e = m.proveOffsets(e, st, m.Open[id][name], s)
		default:
			e.Closed = m.closed(st)
			legacy = append(legacy, len(out))
		}
		out = append(out, e)
	}
	if len(legacy) == 0 {
		return out
	}
	reason, detail := m.proveCheckpoint(id, t, s)
	for _, i := range legacy {
		if reason == "" {
			out[i].Clean = true
		} else {
			out[i] = out[i].missing(reason, detail)
		}
	}
	return out
}

// unlisted says why what is not in a directory may be there all the same, "" if
// it is gone.
func unlisted(fs []finding.Finding) string {
	for _, f := range fs {
		if f.Severity == finding.Unreadable {
			return string(f.Code)
		}
	}
	return ""
}

func unreadableReason(st *store.Store) (Reason, string) {
	for _, f := range st.Findings {
		switch f.Code {
		case finding.ManifestUnparseable, finding.ManifestEmpty, finding.ManifestTailPartial, finding.ManifestTailCut, finding.ManifestMissing,
			finding.CurrentMissing, finding.CurrentEmpty, finding.CurrentNoNewline, finding.CurrentMalformed:
			return ManifestUnparseable, string(f.Code)
		}
		if f.Severity != finding.Info {
			return Unreadable, string(f.Code)
		}
	}
	return Unreadable, ""
}

func wholeManifests(st *store.Store) bool {
	for _, db := range st.Databases {
		if !db.WholeManifest() {
			return false
		}
	}
	return true
}

// closed says that RocksDB is known to have closed every database of a store.
func (m *mark) closed(st *store.Store) bool {
	for _, db := range st.Databases {
		if !m.Preallocates || db.Preallocated() {
			return false
		}
	}
	return true
}

// signReasons are what a store's own signs (≥ 4.3) lack.
var signReasons = map[store.Sign]Reason{
	store.SignTorn:       ManifestUnparseable,
	store.SignNotWritten: OffsetsNotWritten,
	store.SignOpen:       StatusOpen,
	store.SignBehind:     OffsetBehindData,
	store.SignZeroed:     NotProvableHere,
	"":                   Unreadable,
}

// proveOffsets judges a store of 4.3 or later by its own databases.
func (m *mark) proveOffsets(e Evidence, st *store.Store, was openStore, s surroundings) Evidence {
	e.Closed = true
	for _, db := range st.Databases {
		if db.CloseSign() == store.SignNotWritten || m.Preallocates && db.Preallocated() {
			e.Closed = false
		}
	}
	// What an end that was not clean has left behind looks clean as soon as
	// Streams has opened and closed the store once in its start, and so it is
	// if it is killed right then (measured on 4.3.1 and 4.4.0).
	if !was.Settled && !s.cleanBefore && !slices.ContainsFunc(st.Databases, (*store.Database).DataFlushed) {
		return e.missing(NotProvableHere, "it was only opened and closed once, at the start, and the end before was not clean or is not known")
	}
	for _, db := range st.Databases {
		sign := db.CloseSign()
		reason, detail := signReasons[sign], ""
		switch {
		case sign == store.SignClean:
			continue
		case sign == store.SignZeroed:
			detail = "a compaction has removed the sequence numbers"
		case sign != store.SignNoStatus:
		// A transactional store has no status, and what an exception drops
		// from its buffer leaves no trace at all: only that this close was
		// asked for, and that RocksDB closed the database, speaks for it.
		case m.Preallocates && db.Preallocated():
			reason = NotClosed
		case !m.Preallocates:
			reason, detail = NotProvableHere, "a transactional store on a file system that does not preallocate"
		case !s.triggered:
			reason, detail = NotProvableHere, "a transactional store whose close the sidecar has not caused"
		default:
			continue
		}
		return e.missing(reason, detail)
	}
	e.Clean = true
	return e
}

// proveCheckpoint judges the stores of a task up to 4.2 together. An empty
// reason means clean.
func (m *mark) proveCheckpoint(id string, t *store.Task, s surroundings) (Reason, string) {
	if t.Layout.Global {
		// 3.9 and 4.0 never write its .checkpoint at a close.
		return m.closedAlone(t)
	}
	before, noted := m.Checkpoints[id]
	c := t.Layout.Checkpoint
	switch present := t.Layout.CheckpointPresent; {
	case present == nil:
		return Unreadable, ""
	case *present && c == nil:
		return CheckpointUnreadable, ""
	case c == nil && before.Present:
		return CheckpointMissing, ""
	case c == nil:
		return m.proveUnlogged(t, s)
	}
	w := m.afterwards(t, c.ModNanos)
	replaced := noted && !newCheckpoint(c).same(before)
	switch {
	case w.flushed != "" && !s.clockStepped:
		return FlushedAfterCheckpoint, w.flushed
	case replaced && s.clockStepped && w.trimmed > 0, replaced && w.closed > 0:
		// Streams also writes one at the end of a restoration and, under
		// at-least-once, now and then while it runs. Only a close lets
		// databases of the task be closed after it.
		return "", ""
	case replaced && !m.Preallocates:
		return NotProvableHere, "the .checkpoint was written anew, but it does not show that the stores were closed after it"
	case replaced:
		return NotClosed, "the .checkpoint was written anew, but no store was closed after it"
	case w.trimmed == 0:
		return NotClosed, ""
	case noted && !before.Young:
		// Every clean close writes it, also that of an idle task. A flush that
		// fails leaves no other trace.
		return CheckpointNotReplaced, ""
	// None was noted: there was no drain. Or the close may have begun before.
	case s.clockStepped:
		return NotProvableHere, "the clock was set during the close"
	case !m.Preallocates:
		return NotProvableHere, "no call preceded the close, and the file system does not preallocate"
	case w.closed < w.databases:
		return NotClosed, ""
	case noted && s.quiet(c.ModNanos, w.first, quiet), s.quiet(c.ModNanos, w.first, quietest):
		return CheckpointNotReplaced, "it was written long before the stores were closed"
	}
	return "", ""
}

// quietest is the longest time in which a close changes nothing: Streams
// flushes the stores of all tasks and writes their .checkpoints, one after the
// other, before it closes the first store. Where that had nearly come when the
// call came, it is shorter: at most 0.4 s were measured.
const (
	quietest = 5 * time.Second
	quiet    = time.Second
)

// quiet says that between two moments, nanoseconds, nothing was written for so
// long that they are not parts of one close.
func (s *surroundings) quiet(from, to int64, limit time.Duration) bool {
	for _, at := range s.written {
		if at > from && at < to {
			if at-from > int64(limit) {
				return true
			}
			from = at
		}
	}
	return to-from > int64(limit)
}

// writings are the times, ascending, of what a close writes before it closes
// the first store.
func writings(a *store.Application) (all []int64) {
	for _, t := range a.Tasks {
		if c := t.Layout.Checkpoint; c != nil {
			all = append(all, c.ModNanos)
		}
		for _, st := range t.Stores {
			for _, db := range st.Databases {
				all = append(all, db.LastTable(), db.LastFlush(), db.ManifestWritten())
			}
		}
	}
	slices.Sort(all)
	return all
}

// afterwards is what happened to the open databases of a task after its
// .checkpoint was written, by the times of the files. In every clean close of
// 2.8.2, 3.9.1 and 4.2.2 that was measured, tables are not younger than the
// .checkpoint and MANIFESTs not older, with differences down to none.
type afterwards struct {
	databases int
	trimmed   int    // look as if RocksDB has closed them
	closed    int    // of those, the ones that it has closed after it
	first     int64  // when the first of those was closed
	flushed   string // a store that was flushed after it, "" if none
}

func (m *mark) afterwards(t *store.Task, written int64) (w afterwards) {
	m.eachOpen(t, func(name string, db *store.Database) {
		w.databases++
		if db.LastFlush() > written {
			w.flushed = name
		}
		if !m.trimmed(db) {
			return
		}
		w.trimmed++
		// A close cuts the MANIFEST to its size, which sets its time also
		// where nothing was preallocated (measured on ext2); there, so does
		// the edit of a compaction.
		if db.ManifestWritten() >= written && (m.Preallocates || db.LastTable() <= written) {
			w.closed++
			if w.first == 0 || db.ManifestWritten() < w.first {
				w.first = db.ManifestWritten()
			}
		}
	})
	return w
}

// eachOpen calls f for every database of the stores of a task that were open.
func (m *mark) eachOpen(t *store.Task, f func(name string, db *store.Database)) {
	open := m.Open[volume.Text(t.Layout.ID)]
	for _, st := range t.Stores {
		name := volume.Text(st.Name)
		if _, ok := open[name]; !ok {
			continue
		}
		for _, db := range st.Databases {
			f(name, db)
		}
	}
}

// trimmed is false if the MANIFEST shows that the database was not closed. It
// is true also where that cannot be seen.
func (m *mark) trimmed(db *store.Database) bool { return !m.Preallocates || !db.Preallocated() }

// closedAlone judges a task by its MANIFESTs alone.
func (m *mark) closedAlone(t *store.Task) (reason Reason, detail string) {
	m.eachOpen(t, func(_ string, db *store.Database) {
		if !m.trimmed(db) {
			reason = NotClosed
		}
	})
	return reason, ""
}

// proveUnlogged judges a task that has no .checkpoint and had none: a task of
// unlogged stores only never has one. But neither has one under exactly-once
// that was killed, nor, before 3.6, one in its first run that was not closed
// cleanly.
func (m *mark) proveUnlogged(t *store.Task, s surroundings) (Reason, string) {
	if reason, detail := m.closedAlone(t); reason != "" {
		return reason, detail
	}
	if m.Preallocates && writesCheckpointAtStart(t) {
		return "", ""
	}
	// A clean close flushes all stores before it closes the first; another one
	// closes and so flushes them one by one, and after a kill nothing was
	// written to the MANIFESTs after the last flush.
	closed, flushed, databases, young := int64(0), int64(0), 0, false
	m.eachOpen(t, func(_ string, db *store.Database) {
		databases++
		young = young || db.LastTable() == 0
		flushed = max(flushed, db.LastFlush())
		if at := db.ManifestWritten(); closed == 0 || at < closed {
			closed = at
		}
	})
	switch {
	case young:
		// RocksDB 5.18 preallocates nothing before the first flush of a new
		// database (measured with 2.8.2).
		return NotProvableHere, "there is no .checkpoint, and a store without a table"
	case s.clockStepped, databases < 2, flushed == 0 && !m.Preallocates:
		return NotProvableHere, "there is no .checkpoint"
	case flushed > closed:
		return CheckpointMissing, "the stores were flushed one by one as they were closed"
	}
	return "", ""
}

// writesCheckpointAtStart says that a logged task has a .checkpoint from its
// first start on, if only one of unknown offsets: from 3.6, which is the first
// with RocksDB 7.9.
func writesCheckpointAtStart(t *store.Task) bool {
	for _, st := range t.Stores {
		for _, db := range st.Databases {
			if v := db.RocksDBVersion; v != "" {
				major, rest, _ := strings.Cut(v, ".")
				minor, _, _ := strings.Cut(rest, ".")
				return len(major) > 1 || major > "7" || major == "7" && minor == "9" || major == "7" && len(minor) > 1
			}
		}
	}
	return false
}
