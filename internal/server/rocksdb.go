package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"streams-sidecar/internal/consult"
	"streams-sidecar/internal/engine"
	"streams-sidecar/internal/probe"
	"streams-sidecar/internal/report"
	"streams-sidecar/internal/store"
)

// Consultant is what the admin listener needs of consult.
type Consultant interface {
	State() consult.State
	Opinion(db *store.Database) (engine.Opinion, bool)
	Statistics(ctx context.Context, db *store.Database) engine.Opinion
}

const (
	// statsQuery asks for the text of rocksdb.stats with a store.
	statsQuery = "stats"
	// statsTimeout is how long such a request may take. It is longer than the
	// engine's own deadline for one database.
	statsTimeout = 10 * time.Second
	// statsDatabases is of how many segments, the newest, statistics are given:
	// the text of each is some kilobytes, and nobody reads hundreds.
	statsDatabases = 32
)

// document is the whole picture, with what was verified of it and what RocksDB
// itself says of it.
func (a *admin) document(snap *probe.Snapshot) report.Document {
	doc := report.New(snap.StateDirs, snap.Judgement)
	doc.AddChecks(snap.StateDirs, time.Now(), a.checks)
	if a.rocks == nil {
		return doc
	}
	if s := a.rocks.State(); s.Asked {
		doc.AddOpinions(snap.StateDirs, s.Version, s.Err, a.rocks.Opinion)
	}
	return doc
}

// rocksLine says how far RocksDB itself was asked.
func (a *admin) rocksLine(doc *report.Document) string {
	switch {
	case a.rocks == nil:
		return ""
	case doc.Engine == nil:
		return "RocksDB was not asked yet."
	case doc.Engine.Error != "":
		return "RocksDB cannot be asked: " + doc.Engine.Error + "."
	}
	n := doc.Opinions()
	return fmt.Sprintf("%s, a reader of its own beside the application, has given an opinion of %d of %d stores; it differs from the sidecar's own readers in %d of them.",
		doc.Engine.Named("RocksDB"), n.Stores, n.Of, n.Differing)
}

// opinionsFor gives what RocksDB says of a store: as it was last asked, or, if
// the request wants its statistics, as of now. ok is false if the request was
// answered.
func (a *admin) opinionsFor(w http.ResponseWriter, req *http.Request, s *store.Store) (opinions report.Opinions, ok bool) {
	wanted, err := statsWanted(req)
	if err != nil {
		fail(w, req, http.StatusBadRequest, err.Error())
		return nil, false
	}
	if a.rocks == nil {
		if wanted {
			fail(w, req, http.StatusNotFound, "RocksDB is not asked (--engine-interval=0)")
		}
		return nil, !wanted
	}
	if !wanted {
		return a.rocks.Opinion, true
	}
	select {
	case a.asking <- struct{}{}:
		defer func() { <-a.asking }()
	default:
		fail(w, req, http.StatusServiceUnavailable, "somebody else is waiting for RocksDB's statistics")
		return nil, false
	}
	// A caller that hangs up does not call off what runs: that would mean killing
	// the process.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(req.Context()), statsTimeout)
	defer cancel()
	now := map[string]engine.Opinion{}
	for _, db := range slices.Backward(s.Databases) {
		if db.IsEmpty() {
			continue
		}
		if len(now) == statsDatabases || req.Context().Err() != nil {
			break
		}
		o := a.rocks.Statistics(ctx, db)
		if ctx.Err() != nil {
			break
		}
		now[db.Path] = o
	}
	return func(db *store.Database) (engine.Opinion, bool) {
		if o, ok := now[db.Path]; ok {
			return o, true
		}
		return a.rocks.Opinion(db)
	}, true
}

func statsWanted(req *http.Request) (bool, error) {
	text := req.URL.Query().Get(statsQuery)
	if text == "" {
		return false, nil
	}
	wanted, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("%s=%q: it is 1 or 0", statsQuery, text)
	}
	return wanted, nil
}
