package verify

import (
	"path/filepath"
	"time"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
)

// Judgement is what there is to say of everything in one picture. It is
// immutable.
type Judgement struct {
	apps   map[*store.Application]Judged
	tasks  map[*store.Task]Judged
	stores map[*store.Store]Judged
	// suspects are the conclusions of damage that this picture allows.
	suspects map[suspect]sighting
	wait     time.Duration // until the first of those that do not count may
	open     bool          // there are such
}

// sighting of a suspect in every full picture since a moment.
type sighting struct {
	first  time.Time
	counts bool
}

// What is concluded from several files must hold for a while: at rest longer than
// two files are apart that are renamed or copied together; of an application that
// runs longer than it needs to delete a task, file by file (a rebalance, the
// cleaner, a wipe under exactly-once).
const (
	atRest  = 200 * time.Millisecond
	running = 5 * time.Second
)

type suspect struct {
	code finding.Code
	file string
}

// More gives what else is known of a database: the results of [Check], the
// opinion of RocksDB. It may be nil.
type More func(*store.Database) []finding.Finding

// Judge judges a picture. What it concludes of damage counts only if every picture
// for a while allowed the same conclusion: 200 ms, and five seconds where the
// application runs. prev is the judgement of the picture before, nil if there was
// none, and anew says that everything was looked at again since.
func Judge(dirs []*store.StateDir, q Question, more More, prev *Judgement, anew bool) *Judgement {
	j := &Judgement{
		apps: map[*store.Application]Judged{}, tasks: map[*store.Task]Judged{}, stores: map[*store.Store]Judged{},
		suspects: map[suspect]sighting{},
	}
	now := time.Now()
	for _, d := range dirs {
		shared := sharedWALDirs(d)
		for _, a := range d.Applications {
			app := Judged{Verdict: Empty, Findings: a.Findings}
			for _, t := range a.Tasks {
				r := rules{j: j, prev: prev, anew: anew, now: now, q: q, more: more, dir: d, app: a, task: t, shared: shared,
					out: Judged{Verdict: Empty, Findings: t.Findings}, stores: make([]Judged, len(t.Stores))}
				r.judge()
				j.tasks[t] = r.out
				for i, s := range t.Stores {
					j.stores[s] = r.stores[i]
				}
				app.Verdict = Worse(app.Verdict, r.out.Verdict)
			}
			app.Verdict = Worse(app.Verdict, Worst(app.Findings))
			j.apps[a] = app
		}
	}
	return j
}

// Application gives what there is to say of an application of the picture.
func (j *Judgement) Application(a *store.Application) Judged { return j.apps[a] }

// Task gives what there is to say of a task of the picture.
func (j *Judgement) Task(t *store.Task) Judged { return j.tasks[t] }

// Store gives what there is to say of a store of the picture.
func (j *Judgement) Store(s *store.Store) Judged { return j.stores[s] }

// With adds what else is known of a part.
func (j Judged) With(more []finding.Finding) Judged {
	for i := range more {
		j.add(more[i])
		j.Verdict = Worse(j.Verdict, of(&more[i]))
	}
	return j
}

// Unconfirmed says that another picture is called for: there are conclusions that
// it may confirm, the first of them after the time that it gives.
func (j *Judgement) Unconfirmed() (after time.Duration, open bool) { return j.wait, j.open }

// confirmed notes a conclusion of damage and says whether it counts.
func (r *rules) confirmed(f *finding.Finding) bool {
	key, seen := suspect{f.Code, f.File}, sighting{first: r.now}
	if r.prev != nil {
		if before, known := r.prev.suspects[key]; known {
			seen = before
		}
	}
	need := running
	if r.atRest() {
		need = atRest
	}
	left := need - r.now.Sub(seen.first)
	seen.counts = seen.counts || r.anew && left <= 0
	r.j.suspects[key] = seen
	if !seen.counts {
		if left = max(left, 0); !r.j.open || left < r.j.wait {
			r.j.wait = left
		}
		r.j.open = true
	}
	return seen.counts
}

// conclude adds a finding of the rules to a store, or with store -1 to the task.
func (r *rules) conclude(store int, f finding.Finding) {
	to := &r.out
	if store >= 0 {
		to = &r.stores[store]
	}
	if to.concluded >= finding.Most {
		to.left++
		return
	}
	to.concluded++
	if f.Severity != finding.Damage || r.confirmed(&f) {
		to.add(f)
	}
}

// judge fills in r.out and r.stores.
func (r *rules) judge() {
	r.readClaims()
	for i, s := range r.task.Stores {
		out := &r.stores[i]
		out.Findings = s.Findings
		for _, db := range s.Databases {
			if r.more != nil && !db.IsEmpty() {
				for _, f := range r.more(db) {
					out.add(f)
				}
			}
			if dir := r.shared[db]; dir != "" {
				out.add(finding.New(finding.WALDirShared, db.Path, finding.Found("wal_dir=%s", volume.Text(dir))))
			}
		}
		r.comparators(i, s)
		r.version(i, s)
		r.end(i, s)
	}
	r.ownStores()
	r.checkpoint()
	r.out.Findings = finding.Bounded(r.out.Findings, r.out.left)
	for i, s := range r.task.Stores {
		out := &r.stores[i]
		out.Findings = finding.Bounded(out.Findings, out.left)
		out.Verdict = Worst(out.Findings)
		if out.Verdict == Empty && !s.Empty {
			out.Verdict = OK
		}
		if s.Empty && out.Verdict == OK {
			out.Verdict = Empty // findings that are worth knowing make it no store
		}
		r.out.Verdict = Worse(r.out.Verdict, out.Verdict)
	}
	r.out.Verdict = Worse(r.out.Verdict, Worst(r.out.Findings))
	if r.task.Empty && r.out.Verdict == OK {
		r.out.Verdict = Empty
	}
	if !r.task.Empty && r.out.Verdict == Empty {
		r.out.Verdict = OK
	}
}

// sharedWALDirs gives the databases of a state directory that keep their
// write-ahead logs where another one does, with that place. The second one has
// mostly no OPTIONS that would say so, since its first open fails on it; but it
// was begun and never finished, beside one whose logs are elsewhere.
func sharedWALDirs(d *store.StateDir) map[*store.Database]string {
	out := map[*store.Database]string{}
	for _, a := range d.Applications {
		byDir := map[string][]*store.Database{}
		var begun []*store.Database
		elsewhere := ""
		for _, t := range a.Tasks {
			for _, s := range t.Stores {
				for _, db := range s.Databases {
					switch {
					case db.Begun():
						begun = append(begun, db)
					case db.WALDir != "" && filepath.Base(db.WALDir) != filepath.Base(db.Path):
						elsewhere = db.WALDir
						byDir[db.WALDir] = append(byDir[db.WALDir], db)
					}
				}
			}
		}
		if elsewhere != "" {
			byDir[elsewhere] = append(byDir[elsewhere], begun...)
		}
		for dir, dbs := range byDir {
			for _, db := range dbs {
				if len(dbs) > 1 {
					out[db] = dir
				}
			}
		}
	}
	return out
}
