package engine

import (
	"context"
	"errors"

	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
)

// Opinion is what RocksDB says of a database beside what our readers say. Err
// says that it could not be asked; then there is nothing else.
type Opinion struct {
	Answer      *Answer
	Differences []Difference
	Err         error
}

// consultations is how often a live database is asked about that changes
// meanwhile. There is no pause between a look and the request after it: it
// would only make the look older.
const consultations = 10

// Consult asks RocksDB about a database and compares. Where they differ, again
// is called for a fresh look, which is nil if the database is gone: a
// difference, and an error of RocksDB, counts only if the MANIFEST is still the
// one that our reader had read before RocksDB did. Otherwise it is asked anew.
func (c *Client) Consult(ctx context.Context, db *store.Database, w What, again func() *store.Database) Opinion {
	for range consultations {
		a, err := c.Ask(ctx, db, w)
		var differences []Difference
		if err == nil {
			if differences = Compare(db, a, w); len(differences) == 0 {
				return Opinion{Answer: a}
			}
		} else if e, ok := errors.AsType[*Error](err); !ok || e.AboutEngine() {
			return Opinion{Err: err}
		}
		now := again()
		if now == nil {
			return Opinion{Err: &Error{Kind: NotFit, Path: volume.Text(db.Path), Detail: "it is gone"}}
		}
		if err != nil && (Fit(db) != "") == (Fit(now) != "") || err == nil && sameState(db, now) {
			return Opinion{Answer: a, Differences: differences, Err: err}
		}
		db = now
	}
	return Opinion{Err: &Error{Kind: Moving, Path: volume.Text(db.Path)}}
}

// sameState says that two looks have found the same MANIFEST, and with it the
// same live tables.
func sameState(a, b *store.Database) bool {
	sa, ia, oka := a.Manifest()
	sb, ib, okb := b.Manifest()
	return oka && okb && a.DirID == b.DirID && ia.Name == ib.Name && ia.ID() == ib.ID() && ia.Size == ib.Size && sa.Edits == sb.Edits
}
