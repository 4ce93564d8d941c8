package verify

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/rocksfile/sst"
	"streams-sidecar/internal/statedir"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
)

// rules judges one task.
type rules struct {
	j, prev *Judgement
	anew    bool
	now     time.Time
	q       Question
	more    More
	dir     *store.StateDir
	app     *store.Application
	task    *store.Task
	shared  map[*store.Database]string
	out     Judged
	stores  []Judged // of task.Stores
	// claimed are the stores that a line of the .checkpoint names as those of this
	// application's changelogs; nil without a .checkpoint.
	claimed map[string]bool
}

// changelog gives the name of the store whose changelog a topic is. The topic of
// a store that reads its source topic instead does not tell its name.
func (r *rules) changelog(topic string) (store string, ok bool) {
	l, id := r.task.Layout, r.app.Layout.ID
	if store, ok = strings.CutPrefix(topic, id+"-"); ok && l.Topology != "" {
		store, ok = strings.CutPrefix(store, l.Topology+"-")
	}
	if !ok {
		return "", false
	}
	store, ok = strings.CutSuffix(store, "-changelog")
	return store, ok && store != "" && !strings.ContainsAny(store, "/\x00")
}

func (r *rules) readClaims() {
	c := r.task.Layout.Checkpoint
	if c == nil || r.task.Layout.Global {
		return
	}
	r.claimed = make(map[string]bool, len(r.task.Stores))
	for _, s := range r.task.Stores {
		r.claimed[s.Name] = false
	}
	for i := range c.Entries {
		if name, ok := r.changelog(c.Entries[i].Topic); ok {
			if _, there := r.claimed[name]; there {
				r.claimed[name] = true
			}
		}
	}
}

// atRest says that the application is known not to run.
func (r *rules) atRest() bool { return r.app.Running != nil && !*r.app.Running }

// comparators says of a store that is ordered by a comparator of somebody's own
// how far it can be judged.
func (r *rules) comparators(i int, s *store.Store) {
	for _, db := range s.Databases {
		state, _, ok := db.Manifest()
		if !ok {
			continue
		}
		for k := range state.Families {
			if c := state.Families[k].Comparator; c != "" && c != sst.Bytewise {
				r.conclude(i, finding.New(finding.ComparatorForeign, db.Path, finding.Expected("%s", sst.Bytewise),
					finding.Found("%s in family %s", volume.Text(c), volume.Text(state.Families[k].Name))))
				break
			}
		}
	}
}

// version holds a store against the version that is to start.
func (r *rules) version(i int, s *store.Store) {
	v := r.q.Streams
	if v == nil {
		return
	}
	refuse := func(file, expected, found string) {
		r.conclude(i, finding.New(finding.VersionCannotRead, file, finding.Expected("%s", expected), finding.Found("%s", found)))
	}
	for _, db := range s.Databases {
		if why := v.familyRefused(db); why != "" {
			refuse(db.Path, "families that Kafka Streams "+v.String()+" opens", why)
			return
		}
		for _, f := range db.Formats() {
			if expected, found := v.tableRefused(f); found != "" {
				refuse(db.Path, expected, found)
				return
			}
		}
	}
}

// end says of a store at rest that it was not closed cleanly. Once it is in use
// again, nothing is known of its end, and nothing depends on it any more.
func (r *rules) end(i int, s *store.Store) {
	if !r.atRest() || s.Empty || s.InUse == nil || *s.InUse {
		return
	}
	for _, db := range s.Databases {
		if db.IsEmpty() {
			continue
		}
		code, why := finding.UncleanEnd, ""
		switch {
		case db.Preallocated():
			why = "its MANIFEST was left open"
		case s.Era == store.OffsetsCF:
			code, why = openSign(db)
		default:
			why = r.endByCheckpoint(s, db)
		}
		if why == "" {
			continue
		}
		f := finding.New(code, db.Path, finding.Found("%s", why))
		if r.q.Guarantee == AtLeastOnce {
			f.Severity = finding.Info // nothing is wiped
		}
		r.conclude(i, f)
		return
	}
}

// openSign tells the end from the database's own marks (from 4.3 on), if the
// MANIFEST names all of its tables.
func openSign(db *store.Database) (code finding.Code, why string) {
	if !db.WholeManifest() {
		return "", ""
	}
	switch db.CloseSign() {
	case store.SignOpen:
		return finding.StatusOpen, "status is open"
	case store.SignNotWritten:
		return finding.UncleanEnd, "nothing was written to the family offsets since it was last opened"
	case store.SignBehind:
		return finding.UncleanEnd, "there is data that is younger than the changelog offset"
	}
	return "", ""
}

// endByCheckpoint tells the end from times, up to 4.2: a close flushes every
// store, writes the .position files and the .checkpoint, and then closes the
// stores, which cuts their MANIFESTs. In every clean close that was measured
// (2.8.2, 3.9.1, 4.2.2) no table is younger than the .checkpoint and no MANIFEST
// older. The time of a table is the one in the MANIFEST, which no copy or edit
// changes; and a .checkpoint counts only with a .position beside it of the same
// time, for otherwise somebody else may have written it. Only a store that the
// .checkpoint names is closed with it; that of the global stores is not written
// by a close (3.9, 4.0).
func (r *rules) endByCheckpoint(s *store.Store, db *store.Database) string {
	c := r.task.Layout.Checkpoint
	if s.Era == "" || !r.claimed[s.Name] {
		return ""
	}
	switch {
	case time.Duration(db.LastCreated())*time.Second > time.Duration(c.ModNanos)+roundedUp:
		return "a table was written after the .checkpoint"
	case db.ManifestWritten() > 0 && db.ManifestWritten() < c.ModNanos && r.writtenByStreams(c):
		return "it was not closed after the .checkpoint was written"
	}
	return ""
}

// roundedUp is what a time in whole seconds may be ahead: RocksDB takes that of a
// table when the flush begins, and archives keep those of files.
const roundedUp = time.Second

// together is how long before the .checkpoint the .position files are written, at
// most: 25 ms were measured.
const together = 5 * time.Second

// writtenByStreams says that a .position was written with the .checkpoint.
func (r *rules) writtenByStreams(c *statedir.Checkpoint) bool {
	return slices.ContainsFunc(r.task.Stores, func(s *store.Store) bool {
		p := s.Layout.Position
		return p != nil && p.ModNanos <= c.ModNanos && p.ModNanos > c.ModNanos-int64(together)
	})
}

// checkpoint holds what the task's .checkpoint claims against its stores.
func (r *rules) checkpoint() {
	l := r.task.Layout
	if l.Checkpoint == nil {
		r.checkpointMissing()
		return
	}
	for i := range r.task.Stores {
		if r.q.Guarantee == ExactlyOnce && r.stores[i].unclean() && r.task.Stores[i].Era == store.Checkpoint {
			r.conclude(-1, finding.New(finding.CheckpointLeftBehind, l.Checkpoint.Path,
				finding.Found("written %s", time.Unix(0, l.Checkpoint.ModNanos).UTC().Format(time.RFC3339))))
			break
		}
	}
	var unnamed []statedir.Offset
	at := make(map[string]int, len(r.task.Stores))
	for i, s := range slices.Backward(r.task.Stores) { // of two of one name the first
		at[s.Name] = i
	}
	for _, e := range l.Checkpoint.Entries {
		name, ok := r.changelog(e.Topic)
		i, there := at[name]
		if l.Global {
			ok = false // its topics are the application's own
		}
		switch {
		case !ok && e.Offset > 0:
			unnamed = append(unnamed, e)
		case !ok && e.Offset == statedir.OffsetUnknown, ok && e.Offset == statedir.OffsetUnknown && !there:
			r.unknown(-1, e)
		case ok && e.Offset == statedir.OffsetUnknown:
			r.unknown(i, e)
		case ok && there:
			r.claim(i, e)
		case ok:
			r.gone(name, e)
		}
	}
	if len(unnamed) > 0 {
		r.unnamed(unnamed[0])
	}
}

// unnamed judges a line whose topic does not tell a store: that of a global one, or
// of one that reads its source topic instead of a changelog. Which store it is
// about is not known; but if none of those that it can be has anything in it,
// what it claims is lost.
func (r *rules) unnamed(e statedir.Offset) {
	l := r.task.Layout
	if unlisted(r.task.Findings) || len(l.StoreCheckpoints) > 0 ||
		slices.ContainsFunc(r.task.Findings, func(f finding.Finding) bool { return f.Code == finding.ForeignDirectory }) {
		return
	}
	candidate := -1
	for i, s := range r.task.Stores {
		switch {
		case r.claimed[s.Name]:
		case s.Layout.Segmented || !s.Sound || s.Era == store.OffsetsCF || ofAnotherKind(s) || r.beingMade(s) && s.Empty:
			return
		case !s.Empty && (s.LastSequence == nil || *s.LastSequence > 0 || tables(s) > 0):
			return
		case candidate < 0:
			candidate = i
		}
	}
	claims := finding.Expected("a store with records of %s up to offset %d", volume.Text(e.Topic), e.Offset)
	switch {
	case candidate < 0:
		r.conclude(-1, finding.New(finding.StoreGone, l.Path, claims, finding.Found("none in this task")))
	case r.task.Stores[candidate].Empty:
		r.conclude(candidate, finding.New(finding.StoreEmpty, r.task.Stores[candidate].Layout.Path, claims, finding.Found("no database")))
	default:
		r.conclude(candidate, finding.New(finding.CheckpointAhead, l.Checkpoint.Path, claims,
			finding.Found("a database to which nothing was ever written")))
	}
}

// ofAnotherKind says that a store's directory holds files that are none of RocksDB's.
func ofAnotherKind(s *store.Store) bool {
	return slices.ContainsFunc(s.Databases, (*store.Database).Foreign)
}

// unknown notes the mark for an unknown offset, of a store or, with -1, the task.
func (r *rules) unknown(i int, e statedir.Offset) {
	r.conclude(i, finding.New(finding.CheckpointUnknown, r.task.Layout.Checkpoint.Path, finding.Found("%s-%d", volume.Text(e.Topic), e.Partition)))
}

func (j *Judged) unclean() bool {
	return slices.ContainsFunc(j.Findings, func(f finding.Finding) bool {
		return f.Code == finding.UncleanEnd || f.Code == finding.StatusOpen
	})
}

// ownStores tells the directories of stores of the application's own kind, which have
// a .checkpoint_<store> from 4.3 on, from those that only take up space.
func (r *rules) ownStores() {
	for name := range r.task.Layout.StoreCheckpoints {
		own := filepath.Join(r.task.Layout.Path, name)
		i := slices.IndexFunc(r.out.Findings, func(f finding.Finding) bool {
			return f.Code == finding.ForeignDirectory && f.File == volume.Text(own)
		})
		if i >= 0 {
			r.out.Findings = slices.Delete(slices.Clone(r.out.Findings), i, i+1)
			r.conclude(-1, finding.New(finding.StoreNotRocksDB, own))
		}
	}
}

// claim judges the line of a .checkpoint that is about a store.
func (r *rules) claim(at int, e statedir.Offset) {
	l, s := r.task.Layout, r.task.Stores[at]
	claims := finding.Expected("records up to offset %d", e.Offset)
	switch {
	// A window or session store may have lost its last segment to retention.
	case s.Layout.Segmented || !s.Sound:
	case s.Empty && ofAnotherKind(s):
		r.conclude(at, finding.New(finding.StoreNotRocksDB, s.Layout.Path))
	case s.Empty && !r.beingMade(s):
		r.conclude(at, finding.New(finding.StoreEmpty, s.Layout.Path, claims, finding.Found("no database")))
	case s.LastSequence != nil && *s.LastSequence == 0 && tables(s) == 0:
		r.conclude(at, finding.New(finding.CheckpointAhead, l.Checkpoint.Path, claims,
			finding.Found("a database to which nothing was ever written")))
	}
}

// beingMade says that a store is open although nothing is there yet.
func (r *rules) beingMade(s *store.Store) bool { return s.InUse != nil && *s.InUse }

func tables(s *store.Store) (n int) {
	for _, db := range s.Databases {
		n += db.Tables()
	}
	return n
}

// gone judges a line that names no store in the task.
func (r *rules) gone(name string, e statedir.Offset) {
	l := r.task.Layout
	if unlisted(r.task.Findings) {
		return
	}
	// A store of another kind keeps its files where it likes, mostly in a directory of
	// its name, of which Kafka Streams itself knows nothing.
	own := filepath.Join(l.Path, name)
	i := slices.IndexFunc(r.out.Findings, func(f finding.Finding) bool {
		return f.Code == finding.ForeignDirectory && f.File == volume.Text(own)
	})
	if i >= 0 {
		r.out.Findings = slices.Delete(slices.Clone(r.out.Findings), i, i+1)
		r.conclude(-1, finding.New(finding.StoreNotRocksDB, own))
		return
	}
	r.conclude(-1, finding.New(finding.StoreGone, filepath.Join(l.Path, "rocksdb", name),
		finding.Expected("a store with records up to offset %d", e.Offset), finding.Found("no such directory")))
}

// unlisted says that something of the task could not be read, so that what is not
// in the picture may be there all the same.
func unlisted(fs []finding.Finding) bool {
	return slices.ContainsFunc(fs, func(f finding.Finding) bool {
		return f.Severity == finding.Unreadable || f.Code == finding.SymlinkBroken || f.Code == finding.SameDirectory
	})
}

// checkpointMissing judges a task without a .checkpoint, up to 4.2.
func (r *rules) checkpointMissing() {
	l := r.task.Layout
	if l.Global || l.CheckpointPresent == nil || *l.CheckpointPresent || !r.atRest() ||
		r.task.Era != store.Checkpoint && r.task.Era != store.TaskLock {
		return
	}
	for _, s := range r.task.Stores {
		if tables(s) > 0 {
			r.conclude(-1, finding.New(finding.CheckpointMissing, filepath.Join(l.Path, ".checkpoint"), finding.Found("no such file")))
			return
		}
	}
}
