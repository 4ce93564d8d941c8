package report

import (
	"time"

	"streams-sidecar/internal/store"
	"streams-sidecar/internal/verify"
)

// Verification is what a command has read to judge.
type Verification struct {
	Depth     string  `json:"depth"` // quick or deep
	Seconds   float64 `json:"seconds"`
	Tables    int     `json:"tables"`
	SizeBytes int64   `json:"size_bytes"` // read of them
	// Passed are tables that a compaction took away before they were read.
	Passed   int  `json:"passed"`
	Retries  int  `json:"retries"` // second looks
	Complete bool `json:"complete"`
}

// StoreCheck is the last check of a store's tables at one depth. With several
// databases AsOf is that of the one that was checked the longest ago.
type StoreCheck struct {
	Depth      string    `json:"depth"`
	AsOf       time.Time `json:"as_of"`
	AgeSeconds float64   `json:"age_seconds"`
	Databases  int       `json:"databases"` // of the store that were checked
	Tables     int       `json:"tables"`
	SizeBytes  int64     `json:"size_bytes"`
	Passed     int       `json:"passed"`
	Retries    int       `json:"retries"`
	Complete   bool      `json:"complete"`
}

// Checks gives the last results for a database, at most one of each depth. A nil
// Checks gives none.
type Checks func(*store.Database) []*verify.Result

// AddChecks adds when and how deep the tables of each store were last checked.
// dirs are those that the document was made from.
func (d *Document) AddChecks(dirs []*store.StateDir, now time.Time, checks Checks) {
	for i, s := range dirs {
		for j, a := range s.Applications {
			for k, t := range a.Tasks {
				for l, st := range t.Stores {
					d.StateDirs[i].Applications[j].Tasks[k].Stores[l].AddChecks(st, now, checks)
				}
			}
		}
	}
}

// AddChecks adds those of one store.
func (out *Store) AddChecks(s *store.Store, now time.Time, checks Checks) {
	if checks == nil {
		return
	}
	for _, depth := range []verify.Depth{verify.Quick, verify.Deep} {
		c := StoreCheck{Depth: string(depth), Complete: true}
		databases := 0
		for _, db := range s.Databases {
			if db.IsEmpty() {
				continue
			}
			databases++
			for _, r := range checks(db) {
				if r.Depth == depth {
					c.add(r)
				}
			}
		}
		if c.Databases == 0 {
			continue
		}
		c.Complete = c.Complete && c.Databases == databases
		c.AgeSeconds = max(0, now.Sub(c.AsOf).Seconds())
		out.Checks = append(out.Checks, c)
	}
}

func (c *StoreCheck) add(r *verify.Result) {
	if c.Databases == 0 || r.At.Before(c.AsOf) {
		c.AsOf = r.At.UTC()
	}
	c.Databases++
	c.Tables += r.Tables
	c.SizeBytes += r.Bytes
	c.Passed += r.Passed
	c.Retries += r.Retries
	c.Complete = c.Complete && r.Complete
}

// NewVerified gives the document of a verification.
func NewVerified(v *verify.Verification) Document {
	d := New(v.Dirs, v.Judgement)
	d.AddChecks(v.Dirs, time.Now(), func(db *store.Database) []*verify.Result {
		if r := v.Results[db.Path]; r != nil {
			return []*verify.Result{r}
		}
		return nil
	})
	d.Verification = &Verification{string(v.Depth), v.Took.Seconds(), v.Tables, v.Bytes, v.Passed, v.Retries, v.Complete}
	return d
}

// verification says below the findings what was read, if a command has verified.
func (p *printer) verification(v *Verification) {
	if v == nil {
		return
	}
	p.line("")
	what := "index and footer of "
	if v.Depth == string(verify.Deep) {
		what = "every block of "
	}
	text := what + Plural(v.Tables, "table") + ": " + Bytes(v.SizeBytes) + " read in " + time.Duration(v.Seconds*float64(time.Second)).Round(time.Millisecond).String()
	if v.Passed > 0 {
		text += "; " + Plural(v.Passed, "table") + " went away meanwhile, by compaction"
	}
	if v.Retries > 0 {
		text += "; " + Plural(v.Retries, "second look")
	}
	wrap(p, "", text)
	if !v.Complete {
		p.line("interrupted: not everything was judged")
	}
}

// Keep leaves in the i-th state directory, which was made from d, what covers
// says of the path of an application, task or store. The verdicts on tasks and
// applications are then those on what is left.
func (out *Document) Keep(i int, d *store.StateDir, covers func(path string) bool) {
	sd := &out.StateDirs[i]
	apps := sd.Applications
	sd.Applications = []Application{}
	for j, a := range d.Applications {
		if !covers(a.Layout.Path) {
			continue
		}
		app := apps[j]
		tasks := app.Tasks
		whole, left := 0, 0 // stores
		app.Tasks = []Task{}
		for k, t := range a.Tasks {
			whole += len(t.Stores)
			if !covers(t.Layout.Path) {
				continue
			}
			task := tasks[k]
			stores := task.Stores
			task.Stores = []Store{}
			verdict := verify.Empty
			for l, s := range t.Stores {
				if covers(s.Layout.Path) {
					task.Stores = append(task.Stores, stores[l])
					verdict = verify.Worse(verdict, verify.Verdict(stores[l].Verdict))
				}
			}
			left += len(task.Stores)
			if len(task.Stores) < len(stores) {
				task.Verdict = string(verify.Worse(verdict, verify.Worst(task.Findings)))
			}
			app.Tasks = append(app.Tasks, task)
		}
		if left != whole || len(app.Tasks) < len(tasks) {
			verdict := verify.Worst(app.Findings)
			for k := range app.Tasks {
				verdict = verify.Worse(verdict, verify.Verdict(app.Tasks[k].Verdict))
			}
			app.Verdict = string(verdict)
		}
		sd.Applications = append(sd.Applications, app)
	}
}
