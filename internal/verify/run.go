package verify

import (
	"context"
	"time"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
)

// Summary is what a verification has done.
type Summary struct {
	Depth   Depth
	Took    time.Duration
	Tables  int
	Bytes   int64 // read of tables
	Passed  int   // tables that a compaction took away before they were read
	Retries int   // second looks, at pictures and at databases
	// Complete is false if it was ended before everything was judged.
	Complete bool
}

// Verification is the whole of what [Run] gives.
type Verification struct {
	Summary
	Dirs      []*store.StateDir
	Judgement *Judgement
	// Results by the path of the database.
	Results map[string]*Result
}

// shortest is how much later than it may a picture is taken that is to confirm
// another one.
const shortest = 20 * time.Millisecond

// maxPictures bounds them, where an application changes from one to the next.
// What could not be confirmed by then is left out.
const maxPictures = 5

// Run takes a picture of state directories, checks every database in it, and
// judges it all. Volumes has one for each path. With the verification before it,
// only what has changed is read again, unless the depth is Deep. When ctx ends
// early, the Verification says that it is not complete.
func Run(ctx context.Context, vs []*volume.Volume, paths []string, q Question, plan Plan, before *Verification) *Verification {
	var dirs []*store.StateDir
	if before != nil {
		dirs = before.Dirs
	}
	return Picture(ctx, store.ScanAll(vs, paths, dirs), vs, q, plan, before, func(dirs []*store.StateDir) []*store.StateDir {
		return store.ScanAll(vs, paths, dirs)
	})
}

// Picture checks every database in a picture and judges it all; look takes
// another picture.
func Picture(ctx context.Context, dirs []*store.StateDir, vs []*volume.Volume, q Question, plan Plan, before *Verification,
	look func([]*store.StateDir) []*store.StateDir) *Verification {
	began := time.Now()
	out := &Verification{Dirs: dirs, Results: map[string]*Result{}, Summary: Summary{Depth: plan.Depth, Complete: true}}
	var subjects []Subject
	for _, s := range plan.Subjects(vs, dirs) {
		if r := before.known(s.Database, plan.Depth); r != nil {
			out.Results[s.Database.Path] = r
			continue
		}
		subjects = append(subjects, s)
	}
	for i, r := range Check(ctx, subjects, plan) {
		r.database = subjects[i].Database
		out.Results[subjects[i].Database.Path] = r
		out.Tables += r.Tables
		out.Bytes += r.Bytes
		out.Passed += r.Passed
		out.Retries += r.Retries
		out.Complete = out.Complete && r.Complete
	}
	var last *Judgement
	if before != nil {
		last = before.Judgement
	}
	out.Judgement = Judge(out.Dirs, q, out.more, last, true)
	for range maxPictures {
		after, open := out.Judgement.Unconfirmed()
		if !open || ctx.Err() != nil {
			break
		}
		out.Retries++
		sleep(ctx, after+shortest)
		out.Dirs = look(out.Dirs)
		out.Judgement = Judge(out.Dirs, q, out.more, out.Judgement, true)
	}
	out.Took = time.Since(began)
	return out
}

// known is the result for a database that has not changed since.
func (v *Verification) known(db *store.Database, d Depth) *Result {
	if v == nil || d == Deep {
		return nil
	}
	r := v.Results[db.Path]
	if r == nil || r.database != db || !r.Complete || r.Retries > 0 {
		return nil
	}
	return r
}

func (v *Verification) more(db *store.Database) []finding.Finding {
	if r := v.Results[db.Path]; r != nil {
		return r.Findings
	}
	return nil
}
