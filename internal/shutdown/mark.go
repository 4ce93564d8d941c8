package shutdown

import (
	"maps"
	"path/filepath"
	"slices"
	"time"

	"streams-sidecar/internal/statedir"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
)

// mark is what an application looked like while it ran: which of its stores
// were open, and once a drain has begun, what the .checkpoint of each task was
// at that moment. What the close must have changed is told by comparison with
// it, never by the clock. It is kept in runs.json, so that a sidecar that is
// killed in the middle of a close can still judge it. Names are as
// [volume.Text] makes them.
type mark struct {
	// Open are the stores whose LOCK was seen held in this run, by task and
	// name.
	Open map[string]map[string]openStore `json:"open"`
	// Checkpoints by task; nil before a drain has begun. A task without one
	// has the zero value.
	Checkpoints map[string]checkpoint `json:"checkpoints,omitempty"`
	// opened counts how often the stores that were there when the run began,
	// or was seen first, have been opened since; nil in a run that an earlier
	// process saw first.
	opened map[storeName]*openings
	// Preallocates says that a MANIFEST was seen preallocated on this file
	// system: only then does a trimmed one mean that it was closed.
	Preallocates bool `json:"preallocates"`
}

// openStore is one store that was open.
type openStore struct {
	// Manifests is the number of each database's MANIFEST, by the name of its
	// directory: every open begins another one.
	Manifests map[string]uint64 `json:"manifests"`
	// Flushes and Flushed are what was counted when the drain began: tables
	// and their bytes.
	Flushes uint64 `json:"flushes"`
	Flushed uint64 `json:"flushed_bytes"`
	// Settled says that the store was used in this run, not merely opened for
	// a moment at its start: from 4.3 on Streams opens every store that is
	// there, closes it, and opens those that it is assigned again some
	// seconds later.
	Settled bool `json:"settled"`

	// FreeSince is when it was first seen closed while its application ran
	// on; nil while it is open.
	FreeSince *time.Time `json:"free_since,omitempty"`

	since time.Time // when it was first seen open with these MANIFESTs
}

// letGo says that the application had let go of the store long before a moment,
// as when its task has moved to another instance: it is no part of a close.
func (o openStore) letGo(at time.Time, before time.Duration) bool {
	return o.FreeSince != nil && at.Sub(*o.FreeSince) > before
}

// settles is for how long a store is open that is in use; the first opening
// takes milliseconds.
const settles = 15 * time.Second

// checkpoint identifies one writing of a .checkpoint, which Streams replaces
// by a rename.
type checkpoint struct {
	Present bool   `json:"present"`
	Ino     uint64 `json:"ino,omitempty"`
	Mod     int64  `json:"mod,omitempty"` // st_mtim, nanoseconds
	// Young says that it was written shortly before it was noted: perhaps by
	// a close that had begun already.
	Young bool `json:"young,omitempty"`
}

func newCheckpoint(c *statedir.Checkpoint) checkpoint {
	if c == nil {
		return checkpoint{}
	}
	return checkpoint{Present: true, Ino: c.Ino, Mod: c.ModNanos}
}

func (c checkpoint) same(o checkpoint) bool {
	return c.Present == o.Present && c.Ino == o.Ino && c.Mod == o.Mod
}

// stores is how many were open.
func (m *mark) stores() int {
	n := 0
	for _, t := range m.Open {
		n += len(t)
	}
	return n
}

// note adds what is open in a newer picture; changed says that there was
// something new.
func (m *mark) note(a *store.Application) (changed bool) {
	now := time.Now()
	held := map[storeName]bool{}
	for _, t := range a.Tasks {
		for _, s := range t.Stores {
			m.count(t, s)
			if s.InUse == nil || !*s.InUse {
				if s.InUse == nil { // it may be held
					held[nameOf(t, s)] = true
				}
				continue
			}
			for _, db := range s.Databases {
				if !m.Preallocates && db.InUse != nil && *db.InUse && db.Preallocated() {
					m.Preallocates, changed = true, true
				}
			}
			task, name := volume.Text(t.Layout.ID), volume.Text(s.Name)
			held[storeName{task, name}] = true
			stores := m.Open[task]
			if stores == nil {
				stores = map[string]openStore{}
				if m.Open == nil {
					m.Open = map[string]map[string]openStore{}
				}
				m.Open[task] = stores
			}
			was, known := stores[name]
			if !known {
				was = newOpenStore(s)
				was.since, was.Settled = now, m.settled(task, name)
				stores[name], changed = was, true
				continue
			}
			if numbers := manifests(s); !maps.Equal(was.Manifests, numbers) {
				was.Settled = was.Settled || reopened(was.Manifests, numbers)
				was.Manifests, was.since = numbers, now
				stores[name], changed = was, true
			}
			if was.since.IsZero() { // an earlier process saw it first
				was.since = now
				stores[name] = was
			}
			settled := was.Settled || m.settled(task, name) || now.Sub(was.since) >= settles
			if was.FreeSince != nil || settled != was.Settled {
				was.Settled, was.FreeSince = settled, nil
				stores[name], changed = was, true
			}
		}
	}
	for task, stores := range m.Open {
		for name, was := range stores {
			if was.FreeSince == nil && !held[storeName{task, name}] {
				was.FreeSince = &now
				stores[name], changed = was, true
			}
		}
	}
	return changed
}

// drop forgets the stores that were let go of so long before a moment.
func (m *mark) drop(at time.Time, before time.Duration) {
	for task, stores := range m.Open {
		maps.DeleteFunc(stores, func(_ string, o openStore) bool { return o.letGo(at, before) })
		if len(stores) == 0 {
			delete(m.Open, task)
		}
	}
}

func newOpenStore(s *store.Store) openStore {
	return openStore{Manifests: manifests(s), Flushed: s.Counts.FlushedBytes, Flushes: s.Counts.Flushes}
}

func manifests(s *store.Store) map[string]uint64 {
	out := make(map[string]uint64, len(s.Databases))
	for _, db := range s.Databases {
		if n := db.ManifestNumber(); n > 0 {
			out[volume.Text(filepath.Base(db.Path))] = n
		}
	}
	return out
}

// newestManifest is the highest number of a store's MANIFESTs, 0 if none is known.
func newestManifest(s *store.Store) (n uint64) {
	for _, db := range s.Databases {
		n = max(n, db.ManifestNumber())
	}
	return n
}

// reopened says that a database has another MANIFEST than before; segments that
// are new or gone say nothing.
func reopened(was, now map[string]uint64) bool {
	for name, n := range now {
		if before, ok := was[name]; ok && before != n {
			return true
		}
	}
	return false
}

// openings of a store in one run.
type openings struct {
	manifests map[string]uint64
	times     int
}

// watch begins to count how often stores are opened: from a picture of the
// application, at rest if there is one, or nil where there was no such application.
func (m *mark) watch(a *store.Application) {
	m.opened = map[storeName]*openings{}
	if a == nil {
		return
	}
	for _, t := range a.Tasks {
		for _, s := range t.Stores {
			if !s.Empty {
				m.opened[nameOf(t, s)] = &openings{manifests: manifests(s)}
			}
		}
	}
}

// count notes that a store has been opened, also where it is closed again by now.
func (m *mark) count(t *store.Task, s *store.Store) {
	if len(m.opened) == 0 {
		return
	}
	o := m.opened[nameOf(t, s)]
	if o == nil || o.times > 1 {
		return
	}
	if now := manifests(s); reopened(o.manifests, now) {
		o.manifests = now
		o.times++
	}
}

// settled says that a store was made in this run, or opened more than once.
func (m *mark) settled(task, name string) bool {
	if m.opened == nil {
		return false
	}
	o := m.opened[storeName{task, name}]
	return o == nil || o.times > 1
}

// continues says that an application is still in the run that the mark was
// made in: a store that is open has the MANIFEST that it had.
func (m *mark) continues(a *store.Application) bool {
	other := false
	m.each(a, func(_ string, s *store.Store, was openStore) {
		other = other || reopened(was.Manifests, manifests(s))
	})
	if !other {
		return true // perhaps nothing is open yet, or no more
	}
	for _, t := range a.Tasks {
		for _, s := range t.Stores {
			if s.InUse == nil || !*s.InUse {
				continue
			}
			was := m.Open[volume.Text(t.Layout.ID)][volume.Text(s.Name)]
			for _, db := range s.Databases {
				if n := db.ManifestNumber(); n > 0 && was.Manifests[volume.Text(filepath.Base(db.Path))] == n {
					return true
				}
			}
		}
	}
	return false
}

// lookCheckpoints asks the disk for the .checkpoint of every task, by task: the
// picture may be some moments old.
func lookCheckpoints(v *volume.Volume, a *store.Application) map[string]checkpoint {
	out := make(map[string]checkpoint, len(a.Tasks))
	for _, t := range a.Tasks {
		c, err := t.Layout.LookCheckpoint(v)
		if err != nil { // the picture's is as good as can be had
			c = t.Layout.Checkpoint
		}
		noted := newCheckpoint(c)
		noted.Young = c != nil && time.Since(time.Unix(0, c.ModNanos)).Abs() < quietest
		out[volume.Text(t.Layout.ID)] = noted
	}
	return out
}

// A store that was closed longer than this before a call, or before an end
// without one, was no part of the close. Closing takes seconds; a call may come
// when it has begun already.
const (
	letGoBeforeCall = time.Minute
	letGoBeforeEnd  = 10 * time.Minute
)

// begin notes the checkpoints at the beginning of a drain, and from where
// progress counts. held are the stores whose LOCK is held now, nil if they are
// those of the picture, which may be some moments old.
func (m *mark) begin(a *store.Application, checkpoints map[string]checkpoint, held map[storeName]bool) {
	m.note(a)
	m.drop(time.Now(), letGoBeforeCall)
	m.Checkpoints = checkpoints
	for task, stores := range m.Open {
		for name, o := range stores {
			if o.FreeSince != nil || held != nil && !held[storeName{task, name}] { // its close has begun before
				delete(m.Checkpoints, task)
			}
		}
	}
	m.each(a, func(task string, s *store.Store, was openStore) {
		was.Flushes, was.Flushed = s.Counts.Flushes, s.Counts.FlushedBytes
		m.Open[task][volume.Text(s.Name)] = was
	})
}

// clone is a copy that does not change with the mark.
func (m *mark) clone() mark {
	c := *m
	c.Open = make(map[string]map[string]openStore, len(m.Open))
	for task, stores := range m.Open {
		c.Open[task] = maps.Clone(stores)
	}
	return c
}

// each calls f for every store that was open and is still there.
func (m *mark) each(a *store.Application, f func(task string, s *store.Store, was openStore)) {
	for _, t := range a.Tasks {
		task := volume.Text(t.Layout.ID)
		open := m.Open[task]
		for _, s := range t.Stores {
			if was, ok := open[volume.Text(s.Name)]; ok {
				f(task, s, was)
			}
		}
	}
}

// tasks with an open store, sorted.
func (m *mark) tasks() []string { return sortedKeys(m.Open) }

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// clock is a moment by both clocks.
type clock struct {
	wall time.Time // without its monotonic part
	mono time.Time
}

func readClock() clock {
	now := time.Now()
	return clock{now.Round(0), now}
}

// stepped says that the wall clock was set between two moments: the times of
// files that were written before and after cannot be compared.
func (c clock) stepped(now clock) bool {
	if c.mono.IsZero() {
		return false
	}
	d := now.wall.Sub(c.wall) - now.mono.Sub(c.mono)
	return d.Abs() > time.Second
}
