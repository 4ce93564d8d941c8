package engine

import (
	"context"
	"errors"
	"time"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
)

// Opinion is what RocksDB says of a database beside what our readers say. Err
// says that it could not be asked; then there is nothing else.
type Opinion struct {
	Answer      *Answer
	Differences []Difference
	Err         error
	At          time.Time // when it was asked
}

// Findings are what follows from it for the database: that RocksDB refuses it,
// reads something else in it than we do, or fails on it each time.
func (o *Opinion) Findings(path string) (out []finding.Finding) {
	if e, ok := errors.AsType[*Error](o.Err); ok && e.Times >= failures {
		out = append(out, finding.New(finding.RocksDBFails, path, finding.Expected("an answer"),
			finding.Found("%s, %d times in a row", e.what(), e.Times)))
	}
	for i, x := range o.Differences {
		switch {
		case x.Subject == Open:
			out = append(out, finding.New(finding.RocksDBRefuses, path, finding.Expected("%s", x.Ours), finding.Found("%s", x.RocksDB)))
		case i == 0: // the others are in the JSON
			out = append(out, finding.New(finding.RocksDBDiffers, path,
				finding.Expected("%s %s", x.Subject, x.Ours), finding.Found("%s (differences in all: %d)", x.RocksDB, len(o.Differences))))
		}
	}
	return out
}

// failures in a row make a finding: one may be a slow volume's.
const failures = 2

// consultations is how often a live database is asked about that changes
// meanwhile. There is no pause between a look and the request after it: it
// would only make the look older.
const consultations = 10

// Consult asks RocksDB about a database and compares. Where they differ, again
// is called for a fresh look, which is nil if the database is gone, and RocksDB
// is asked anew: a difference, and an error of RocksDB, counts only if it comes
// twice in a row and the MANIFEST is still the one that our reader had read
// before the first time.
func (c *Client) Consult(ctx context.Context, db *store.Database, w What, again func() *store.Database) Opinion {
	once := false // RocksDB has differed from db already
	for range consultations {
		at := c.o.now()
		a, err := c.Ask(ctx, db, w)
		var differences []Difference
		if err == nil {
			if differences = Compare(db, a, w); len(differences) == 0 {
				return Opinion{Answer: a, At: at}
			}
		} else if e, ok := errors.AsType[*Error](err); !ok || e.AboutEngine() {
			return Opinion{Err: err, At: at}
		}
		now := again()
		if now == nil {
			return Opinion{Err: &Error{Kind: NotFit, Path: volume.Text(db.Path), Detail: "it is gone"}, At: at}
		}
		if err != nil && (Fit(db) != "") == (Fit(now) != "") {
			return Opinion{Err: err, At: at}
		}
		if err == nil {
			if why := Fit(now); why != "" {
				return Opinion{Err: &Error{Kind: NotFit, Path: volume.Text(db.Path), Detail: why}, At: at}
			}
			same := sameState(db, now)
			if same && once {
				return Opinion{Answer: a, Differences: differences, At: at}
			}
			once = same
		}
		db = now
	}
	return Opinion{Err: &Error{Kind: Moving, Path: volume.Text(db.Path)}, At: c.o.now()}
}

// sameState says that two looks have found the same MANIFEST, and with it the
// same live tables.
func sameState(a, b *store.Database) bool {
	sa, ia, oka := a.Manifest()
	sb, ib, okb := b.Manifest()
	return oka && okb && a.DirID == b.DirID && ia.Name == ib.Name && ia.ID() == ib.ID() && ia.Size == ib.Size && sa.Edits == sb.Edits
}

// Trouble is the finding that follows from an error about the engine as a whole,
// none from any other.
func Trouble(err error) []finding.Finding {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return nil
	}
	code, ok := map[Kind]finding.Code{Missing: finding.EngineMissing, Broken: finding.EngineBroken,
		Incompatible: finding.EngineIncompatible, NoMemory: finding.EngineNoMemory, Stuck: finding.EngineStuck}[e.Kind]
	if !ok {
		return nil
	}
	var found []finding.Detail
	if why := e.why(); why != "" {
		found = append(found, finding.Found("%s", why))
	}
	return []finding.Finding{finding.New(code, e.Path, found...)}
}
