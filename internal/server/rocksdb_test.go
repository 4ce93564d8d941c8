package server_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"streams-sidecar/internal/consult"
	"streams-sidecar/internal/engine"
	"streams-sidecar/internal/report"
	"streams-sidecar/internal/server"
	"streams-sidecar/internal/store"
	"streams-sidecar/test/fixture"
)

// rocks says of every database what our readers say, unless fail says why not.
type rocks struct {
	state   consult.State
	fail    error
	waiting chan struct{} // closed by whom the statistics wait for
	came    chan struct{}
	asked   int // for statistics
	refuses bool
}

func (r *rocks) State() consult.State { return r.state }

func (r *rocks) Opinion(db *store.Database) (engine.Opinion, bool) {
	if r.fail != nil {
		return engine.Opinion{Err: r.fail, At: asOf}, true
	}
	return engine.Opinion{Answer: answer(db, ""), At: asOf}, true
}

func (r *rocks) Statistics(ctx context.Context, db *store.Database) engine.Opinion {
	r.asked++
	if r.waiting != nil {
		close(r.came)
		select {
		case <-r.waiting:
		case <-ctx.Done():
			return engine.Opinion{Err: ctx.Err()}
		}
	}
	if r.fail != nil {
		return engine.Opinion{Err: r.fail, At: time.Now()}
	}
	o := engine.Opinion{Answer: answer(db, "** Compaction Stats [<b>] **"), At: time.Now()}
	if r.refuses {
		o.Answer = &engine.Answer{Error: "Corruption: <b>"}
		o.Differences = engine.Compare(db, o.Answer, engine.What{})
	}
	return o
}

func answer(db *store.Database, stats string) *engine.Answer {
	state, _, _ := db.Manifest()
	a := &engine.Answer{LastSequence: state.LastSequence}
	for _, f := range db.Families() {
		none := uint64(0)
		a.Families = append(a.Families, engine.Family{Name: []byte(f.Name), Entries: f.Entries, Deletions: &none, Stats: stats,
			Properties: map[string]uint64{"estimate-num-keys": *f.Entries, "base-level": 6}})
	}
	return a
}

func well() *rocks { return &rocks{state: consult.State{Asked: true, Version: "10.10.1"}} }

// TestRocksDBOfTheAPI: what RocksDB itself says is with each store; the text of
// its statistics only where it was asked for.
func TestRocksDBOfTheAPI(t *testing.T) {
	t.Parallel()
	p := look(fixture.Unpack(t, "4.4.0", "closed-clean"))
	h := server.Admin(p, noGate(), well(), nil)
	resp := get(h, "/api/v1/state")
	conforms(t, "state.schema.json", resp.Body.Bytes())
	doc := unmarshal[report.Document](t, resp)
	if doc.Engine == nil || doc.Engine.RocksDB != "10.10.1" || doc.Engine.Error != "" || len(doc.Engine.Findings) != 0 {
		t.Errorf("engine %+v", doc.Engine)
	}
	const kv = "/api/v1/stores/alos440/1_0/kv"
	for _, task := range doc.StateDirs[0].Applications[0].Tasks {
		for _, s := range task.Stores {
			if o := s.RocksDB; o == nil || o.Asked == 0 || o.LastSequence == nil || o.AsOf == nil || !o.AsOf.Equal(asOf) {
				t.Errorf("%s %s: %+v", task.ID, s.Name, o)
			}
		}
	}
	for target, stats := range map[string]string{kv: "", kv + "?stats=0": "", kv + "?stats=1": "** Compaction Stats [<b>] **"} {
		resp := get(h, target)
		conforms(t, "store.schema.json", resp.Body.Bytes())
		d := unmarshal[report.StoreDetail](t, resp)
		o := d.Databases[0].RocksDB
		if d.Store.RocksDB == nil || o == nil || o.LastSequence == nil || o.Reason != "" || len(o.Families) != 3 {
			t.Fatalf("%s: %+v", target, o)
		}
		if f := o.Families[1]; f.Name != "keyValueWithTimestamp" || *f.Entries != 259 || f.Properties["base-level"] != 6 || f.Stats != stats {
			t.Errorf("%s: %+v", target, f)
		}
		if now := !o.AsOf.Equal(asOf); now != (stats != "") {
			t.Errorf("%s: as of %v", target, o.AsOf)
		}
	}
	for target, want := range map[string]int{kv + "?stats=maybe": 400, kv + "?stats=": 200, "/stores/alos440/1_0/kv?stats=x": 400} {
		if resp := get(h, target); resp.Code != want {
			t.Errorf("%s: %d, want %d", target, resp.Code, want)
		}
	}
	// Not asked at all, and not yet.
	bare := server.Admin(p, noGate(), nil, nil)
	if d := unmarshal[report.Document](t, get(bare, "/api/v1/state")); d.Engine != nil {
		t.Errorf("not asked: %+v", d.Engine)
	}
	if resp := get(bare, kv+"?stats=1"); resp.Code != http.StatusNotFound || !strings.Contains(body(resp), "engine-interval") {
		t.Errorf("not asked: %d %s", resp.Code, body(resp))
	}
	if d := unmarshal[report.Document](t, get(server.Admin(p, noGate(), &rocks{}, nil), "/api/v1/state")); d.Engine != nil {
		t.Errorf("not yet asked: %+v", d.Engine)
	}
}

// TestRocksDBTrouble: that it cannot be asked is a finding, and nothing else
// changes.
func TestRocksDBTrouble(t *testing.T) {
	t.Parallel()
	p := look(fixture.Unpack(t, "4.4.0", "closed-clean"))
	gone := &engine.Error{Kind: engine.Broken, Path: "/opt/sidecar-engine", Detail: "no <librocksdb.so>"}
	h := server.Admin(p, noGate(), &rocks{state: consult.State{Asked: true, Err: gone}, fail: &engine.Error{Kind: engine.Hung, Times: 2, Detail: "after 5s"}}, nil)
	resp := get(h, "/api/v1/state")
	conforms(t, "state.schema.json", resp.Body.Bytes())
	doc := unmarshal[report.Document](t, resp)
	if e := doc.Engine; e == nil || e.Reason != "engine-broken" || len(e.Findings) != 1 || e.Findings[0].Code != "engine-broken" {
		t.Errorf("engine %+v", doc.Engine)
	}
	for _, task := range doc.StateDirs[0].Applications[0].Tasks {
		for _, s := range task.Stores {
			if len(s.Findings) == 0 || s.Findings[0].Code != "rocksdb-fails" || len(s.Offsets) == 0 && task.ID != "global" {
				t.Errorf("%s %s: %+v", task.ID, s.Name, s)
			}
		}
	}
	// The findings are of this answer, not of the picture.
	bare := unmarshal[report.Document](t, get(server.Admin(p, noGate(), nil, nil), "/api/v1/state"))
	if n := len(bare.StateDirs[0].Applications[0].Tasks[0].Stores[0].Findings); n != 0 {
		t.Errorf("the picture has %d findings", n)
	}
	resp = get(h, "/api/v1/stores/alos440/1_0/win?stats=1")
	conforms(t, "store.schema.json", resp.Body.Bytes())
	for _, db := range unmarshal[report.StoreDetail](t, resp).Databases {
		if o := db.RocksDB; o == nil || o.Reason != "hung" || o.Error == "" || o.LastSequence != nil {
			t.Errorf("%+v", o)
		}
	}
	for _, want := range []string{"RocksDB cannot be asked", "engine-broken", "no &lt;librocksdb.so&gt;", "rocksdb-fails"} {
		if page := body(get(h, "/")); !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
}

// TestRocksDBOnThePages: plainly that of a reader, and escaped.
func TestRocksDBOnThePages(t *testing.T) {
	t.Parallel()
	h := server.Admin(look(fixture.Unpack(t, "4.4.0", "closed-clean")), noGate(), well(), nil)
	if page := body(get(h, "/")); !strings.Contains(page, "RocksDB 10.10.1, a reader of its own beside the application, has given an opinion of 9 of 9 stores; it differs") {
		t.Errorf("status page:\n%s", page)
	}
	plain := body(get(h, "/stores/alos440/1_0/kv"))
	for _, want := range []string{"a reader of its own", "none of\nthe application&#39;s counters", "estimate-num-keys 259", `href="/stores/alos440/1_0/kv?stats=1"`} {
		if !strings.Contains(strings.ReplaceAll(plain, "application's", "application&#39;s"), want) {
			t.Errorf("no %q in\n%s", want, plain)
		}
	}
	if strings.Contains(plain, "Compaction Stats") {
		t.Error("statistics that nobody asked for")
	}
	if page := body(get(h, "/stores/alos440/1_0/kv?stats=1")); !strings.Contains(page, "<pre>** Compaction Stats [&lt;b&gt;] **</pre>") {
		t.Errorf("no statistics in\n%s", page)
	}
	if got := crawl(t, h); got != 9 {
		t.Errorf("the page links to %d stores, want 9", got)
	}
}

// TestOneWaitsForRocksDB: a second request for statistics does not wait behind
// the first, and one whose caller has gone lets go.
func TestOneWaitsForRocksDB(t *testing.T) {
	t.Parallel()
	r := well()
	r.waiting, r.came = make(chan struct{}), make(chan struct{})
	h := server.Admin(look(fixture.Unpack(t, "4.4.0", "closed-clean")), noGate(), r, nil)
	first := make(chan int)
	go func() { first <- get(h, "/api/v1/stores/alos440/1_0/kv?stats=1").Code }()
	<-r.came
	if resp := get(h, "/api/v1/stores/alos440/1_1/kv?stats=1"); resp.Code != http.StatusServiceUnavailable {
		t.Errorf("the second: %d", resp.Code)
	}
	if resp := get(h, "/api/v1/stores/alos440/1_1/kv"); resp.Code != http.StatusOK {
		t.Errorf("one that does not ask: %d", resp.Code)
	}
	close(r.waiting)
	if code := <-first; code != http.StatusOK {
		t.Errorf("the first: %d", code)
	}
	r.waiting, r.came = nil, nil
	if resp := get(h, "/api/v1/stores/alos440/1_1/kv?stats=1"); resp.Code != http.StatusOK {
		t.Errorf("afterwards: %d", resp.Code)
	}
}

// TestStatisticsShowWhatIsWrong: what RocksDB refuses is a finding with its
// statistics too.
func TestStatisticsShowWhatIsWrong(t *testing.T) {
	t.Parallel()
	r := well()
	r.refuses = true
	h := server.Admin(look(fixture.Unpack(t, "4.4.0", "closed-clean")), noGate(), r, nil)
	resp := get(h, "/api/v1/stores/alos440/1_0/kv?stats=1")
	conforms(t, "store.schema.json", resp.Body.Bytes())
	d := unmarshal[report.StoreDetail](t, resp)
	if f := d.Store.Findings; len(f) != 1 || f[0].Code != "rocksdb-refuses" || len(d.Store.RocksDB.Differences) != 1 || d.Databases[0].RocksDB.Reason != "refused" {
		t.Errorf("%+v", d)
	}
	if page := body(get(h, "/stores/alos440/1_0/kv?stats=1")); !strings.Contains(page, "rocksdb-refuses") || !strings.Contains(page, "Corruption: &lt;b&gt;") {
		t.Errorf("the page hides it:\n%s", page)
	}
}

// TestStatisticsOfManySegments: of the newest ones; the others as they were asked
// about last.
func TestStatisticsOfManySegments(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "4.4.0", "closed-clean")
	segments, err := filepath.Glob(filepath.Join(dir, "alos440", "1_0", "win", "win.*"))
	if err != nil || len(segments) == 0 {
		t.Fatal(segments, err)
	}
	for i := range 50 {
		if err := os.CopyFS(fmt.Sprintf("%s/win.%d", filepath.Dir(segments[0]), 1_600_000_000_000+i*300_000), os.DirFS(segments[0])); err != nil {
			t.Fatal(err)
		}
	}
	r := well()
	d := unmarshal[report.StoreDetail](t, get(server.Admin(look(dir), noGate(), r, nil), "/api/v1/stores/alos440/1_0/win?stats=1"))
	if len(d.Databases) != 50+len(segments) || r.asked != 32 {
		t.Fatalf("%d segments, %d asked for statistics", len(d.Databases), r.asked)
	}
	for i, db := range d.Databases {
		if newest := i >= len(d.Databases)-32; db.RocksDB == nil || (db.RocksDB.Families[0].Stats != "") != newest {
			t.Errorf("%s: %+v", db.Path, db.RocksDB)
		}
	}
}
