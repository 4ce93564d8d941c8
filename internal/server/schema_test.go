package server_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"streams-sidecar/internal/journal"
	"streams-sidecar/internal/server"
	"streams-sidecar/internal/shutdown"
	"streams-sidecar/internal/shutdown/trigger"
	"streams-sidecar/internal/volume"
	"streams-sidecar/test/fixture"
	"streams-sidecar/test/holder"
)

// The documents of docs/json.md that tell of shutdowns.
const (
	prestopSchema = "prestop.schema.json"
	lastSchema    = "last-shutdown.schema.json"
	apiSchema     = "shutdown.schema.json"
)

func schema(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	s, err := c.Compile(filepath.Join("..", "..", "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func conforms(t *testing.T, name string, body []byte) {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	if err := schema(t, name).Validate(v); err != nil {
		t.Errorf("%v: %s", err, body)
	}
}

// gateRig is a real gate over one real directory whose application runs, with
// both listeners before it.
type gateRig struct {
	dir         string
	locks       []string // .lock and every LOCK
	holder      *holder.Holder
	gate        *shutdown.Gate
	hook, admin http.Handler
}

func newGateRig(t *testing.T, version, name string, cfg shutdown.Config) *gateRig {
	t.Helper()
	r := &gateRig{dir: fixture.Unpack(t, version, name)}
	own := journal.Open(r.dir, journal.Deadline(30*time.Second))
	// The run that left this was closed cleanly as well.
	apps, err := filepath.Glob(filepath.Join(r.dir, "*", ".lock"))
	if err != nil || len(apps) != 1 {
		t.Fatalf("%v %v", apps, err)
	}
	if err := own.Write("last-shutdown.json", map[string]any{"version": 1, "applications": []shutdown.Shutdown{
		{Application: filepath.Base(filepath.Dir(apps[0])), Outcome: shutdown.ClosedClean, Hook: shutdown.NotCalled}}}); err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"*/.lock", "*/*/rocksdb/*/LOCK", "*/*/*/*/LOCK"} {
		found, err := filepath.Glob(filepath.Join(r.dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		r.locks = append(r.locks, found...)
	}
	slices.Sort(r.locks)
	r.locks = slices.Compact(r.locks)
	r.holder = holder.Hold(t, r.locks...)
	p := look(r.dir)
	cfg.Volumes = []*volume.Volume{volume.New(volume.OS())}
	cfg.Journals = []*journal.Folder{own}
	cfg.Snapshot = p.Snapshot
	r.gate = shutdown.NewGate(cfg)
	r.gate.Follow()
	r.hook, r.admin = server.Hook(p, r.gate), server.Admin(p, r.gate, nil, nil)
	return r
}

// call makes a preStop call and holds its answer, what the API says and what
// was written down against the contract.
func (r *gateRig) call(t *testing.T, target string, header ...string) (ans shutdown.Answer, state struct{ Phase shutdown.Phase }) {
	t.Helper()
	resp := get(r.hook, target, header...)
	conforms(t, prestopSchema, resp.Body.Bytes())
	ans = unmarshal[shutdown.Answer](t, resp)
	state = r.api(t)
	if ans.Outcome == shutdown.Observed {
		return ans, state
	}
	last, err := os.ReadFile(filepath.Join(r.dir, ".streams-sidecar", "last-shutdown.json"))
	if err != nil {
		t.Fatal(err)
	}
	conforms(t, lastSchema, last)
	if !bytes.Contains(last, []byte(ans.Outcome)) {
		t.Errorf("answered %s and wrote down %s", ans.Outcome, last)
	}
	return ans, state
}

func (r *gateRig) api(t *testing.T) struct{ Phase shutdown.Phase } {
	t.Helper()
	resp := get(r.admin, "/api/v1/shutdown")
	conforms(t, apiSchema, resp.Body.Bytes())
	return unmarshal[struct{ Phase shutdown.Phase }](t, resp)
}

// TestSchemaOfCleanShutdown: an application that is asked by its endpoint and
// closes, from the first word of the API to the last.
func TestSchemaOfCleanShutdown(t *testing.T) {
	t.Parallel()
	var r *gateRig
	var asked atomic.Int32
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		for r.gate.State().Progress == nil && req.Context().Err() == nil {
			time.Sleep(time.Millisecond) // it is asked before the locks are counted
		}
		if got := r.api(t).Phase; got != shutdown.PhaseDraining {
			t.Errorf("while the application is asked the phase is %s", got)
		}
		if asked.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		// The sidecar hangs up when it has read 4 KiB: then it has noted that
		// it was answered.
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write(make([]byte, 8<<10))
		_ = http.NewResponseController(w).Flush()
		<-req.Context().Done()
		for _, l := range r.locks {
			r.holder.Release(l)
		}
	}))
	defer app.Close()
	h, err := trigger.NewHTTP(trigger.HTTPConfig{URL: app.URL})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "token")
	writeFile(t, file, "secret")
	token, err := trigger.NewToken(file)
	if err != nil {
		t.Fatal(err)
	}
	r = newGateRig(t, "4.4.0", "closed-clean", shutdown.Config{Timeout: time.Minute, HTTP: h, Token: token})
	if got := r.api(t).Phase; got != shutdown.PhaseRunning {
		t.Errorf("before the call the phase is %s", got)
	}
	if ans, _ := r.call(t, "/prestop", server.TokenHeader, "wrong"); ans.Outcome != shutdown.Observed || ans.Triggered || asked.Load() > 0 {
		t.Errorf("with a wrong token: %+v", ans)
	}
	ans, state := r.call(t, "/prestop", server.TokenHeader, "secret")
	if ans.Outcome != shutdown.ClosedClean || !ans.Triggered || ans.Attempts != 2 || ans.Stores == 0 || ans.StoresClosed != ans.Stores || state.Phase != shutdown.PhaseEnded {
		t.Errorf("%+v, then %s", ans, state.Phase)
	}
	if again, _ := r.call(t, "/prestop", server.TokenHeader, "secret"); again.Outcome != shutdown.ClosedClean {
		t.Errorf("a second call after the end: %+v", again)
	}
}

// TestSchemaOfOtherShutdowns: every other outcome, in every era.
func TestSchemaOfOtherShutdowns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		version, name string
		target        string
		cfg           shutdown.Config
		ends          bool // the application is killed while the call waits
		want          shutdown.Outcome
		phase         shutdown.Phase
	}{
		{"2.8.2", "live-quiet", "/prestop?wait=1", shutdown.Config{Trigger: shutdown.TriggerNone, Timeout: time.Minute}, true, shutdown.ClosedUnclean, shutdown.PhaseEnded},
		{"3.9.1", "killed9-alos-load", "/prestop?wait=1", shutdown.Config{Trigger: shutdown.TriggerNone, Timeout: time.Minute}, true, shutdown.ClosedUnclean, shutdown.PhaseEnded},
		{"4.3.1", "live-eos", "/prestop?wait=1", shutdown.Config{Trigger: shutdown.TriggerNone, Timeout: time.Minute}, true, shutdown.ClosedUnclean, shutdown.PhaseEnded},
		{"4.4.0", "live-quiet", "/prestop?wait=1", shutdown.Config{Trigger: shutdown.TriggerNone, Timeout: 200 * time.Millisecond}, false, shutdown.Timeout, shutdown.PhaseRunning},
		{"3.9.1", "live-quiet", "/prestop?wait=1", shutdown.Config{Trigger: shutdown.TriggerNone, Timeout: time.Minute, Stall: 200 * time.Millisecond}, false, shutdown.Stalled, shutdown.PhaseRunning},
		{"4.2.2", "live-quiet", "/prestop", shutdown.Config{Trigger: shutdown.TriggerNone, Timeout: time.Minute}, false, shutdown.Observed, shutdown.PhaseRunning},
	} {
		t.Run(c.version+" "+string(c.want), func(t *testing.T) {
			t.Parallel()
			r := newGateRig(t, c.version, c.name, c.cfg)
			killed := make(chan struct{})
			go func() {
				defer close(killed)
				for c.ends && r.gate.State().Progress == nil {
					time.Sleep(time.Millisecond)
				}
				if c.ends {
					r.holder.Kill()
				}
			}()
			ans, state := r.call(t, c.target)
			<-killed
			if ans.Outcome != c.want || state.Phase != c.phase {
				t.Errorf("%+v, then %s; want %s, then %s", ans, state.Phase, c.want, c.phase)
			}
			if want := c.want == shutdown.ClosedUnclean || c.want == shutdown.Timeout || c.want == shutdown.Stalled; (len(ans.Missing) > 0) != want {
				t.Errorf("missing: %+v", ans.Missing)
			}
		})
	}
	p := look(fixture.Unpack(t, "3.9.1", "closed-clean"))
	g := shutdown.NewGate(shutdown.Config{Volumes: []*volume.Volume{volume.New(volume.OS())}, Snapshot: p.Snapshot})
	resp := get(server.Hook(p, g), "/prestop")
	conforms(t, prestopSchema, resp.Body.Bytes())
	if ans := unmarshal[shutdown.Answer](t, resp); ans.Outcome != shutdown.NotRunning {
		t.Errorf("%+v", ans)
	}
	conforms(t, apiSchema, get(server.Admin(p, g, nil, nil), "/api/v1/shutdown").Body.Bytes())
	conforms(t, apiSchema, get(server.Admin(&prober{}, noGate(), nil, nil), "/api/v1/shutdown").Body.Bytes())
}

// told is a gate with a state of the test's own.
type told struct{ state shutdown.State }

func (t told) State() shutdown.State { return t.state }

// TestSchemaHasEveryField: the contract names exactly the fields that there
// are, those too that seldom show, and docs/json.md explains each.
func TestSchemaHasEveryField(t *testing.T) {
	t.Parallel()
	now, took := asOf, 1.5
	end := shutdown.Shutdown{
		Application: "a", Outcome: shutdown.ClosedUnclean, Hook: shutdown.Called, HookOutcome: shutdown.Stalled, Trigger: shutdown.TriggerHTTP,
		Triggered: true, TriggerError: "x", Began: &now, Ended: &now, NotWatched: true, Run: 1, CloseSeconds: &took, Stores: 1, SSTBytesWritten: 1,
		Evidence:    []shutdown.Evidence{{Task: "0_0", Store: "s", Reason: shutdown.NotClosed, Text: "x", SSTBytes: 1, Manifest: 5}, {Clean: true, Closed: true}},
		Explanation: "x",
	}
	p := look(fixture.Unpack(t, "3.9.1", "closed-clean"))
	api := get(server.Admin(p, told{shutdown.State{
		Phase: shutdown.PhaseDraining, Trigger: shutdown.TriggerSignal, Budget: time.Minute,
		Progress: &shutdown.Progress{Begun: now, Stores: 3, Flushed: 2, Closed: 1, SSTBytesWritten: 1, Remaining: time.Second, Restoring: true},
		Last:     []shutdown.LastShutdown{{Shutdown: end}}, Dead: []shutdown.AppRef{{Application: "a"}}, JournalError: "x", Waited: time.Second, Any: true,
	}}, nil, nil), "/api/v1/shutdown").Body.Bytes()
	last := encode(t, map[string]any{"version": 1, "applications": []shutdown.Shutdown{end}})
	answer := encode(t, shutdown.Answer{
		Outcome: shutdown.Stalled, WaitedSeconds: 1, Trigger: shutdown.TriggerHTTP, Triggered: true, Attempts: 2, TriggerError: "x", Applications: 1,
		Stores: 2, StoresClosed: 1, SSTBytesWritten: 1, Restoring: true, Held: []string{"a"}, HeldMore: 1,
		Missing:     []shutdown.Missing{{Application: "a", Task: "0_0", Store: "s", Reason: shutdown.LockHeld, Text: "x"}},
		MissingMore: 1, Explanation: "x", JournalError: "x",
	})
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "json.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		schema string
		body   []byte
		types  []any // whose fields it has
	}{
		{apiSchema, api, nil},
		{lastSchema, last, []any{shutdown.Shutdown{}, shutdown.Evidence{}}},
		{prestopSchema, answer, []any{shutdown.Answer{}, shutdown.Missing{}}},
	} {
		conforms(t, c.schema, c.body)
		inBody, inSchema := map[string]bool{}, map[string]bool{}
		keys(parse(t, c.body), "", inBody)
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", c.schema))
		if err != nil {
			t.Fatal(err)
		}
		keys(parse(t, text), "properties", inSchema)
		if c.schema == apiSchema { // what it takes over
			keys(parse(t, last), "", inSchema)
			delete(inSchema, "version")
			delete(inSchema, "applications")
		}
		if diff := cmp.Diff(sorted(inSchema), sorted(inBody)); diff != "" {
			t.Errorf("%s (-schema +document):\n%s", c.schema, diff)
		}
		for _, of := range c.types {
			for i := range reflect.TypeOf(of).NumField() {
				name, _, _ := strings.Cut(reflect.TypeOf(of).Field(i).Tag.Get("json"), ",")
				if name != "" && !inBody[name] {
					t.Errorf("%T has a field %s that this test does not set", of, name)
				}
			}
		}
		for name := range inBody {
			if !bytes.Contains(page, []byte("`"+name+"`")) {
				t.Errorf("docs/json.md does not explain %s", name)
			}
		}
	}
}

// TestSchemasRefuse: they do not take anything.
func TestSchemasRefuse(t *testing.T) {
	t.Parallel()
	const answer = `{"waited_seconds":1,"trigger":"none","triggered":false,"applications":0,"stores":0,"stores_closed":0,"sst_bytes_written":0,`
	const end = `{"version":1,"applications":[{"application":"a","hook":"not-called","stores":1,"sst_bytes_written":0,`
	const now = `{"trigger":"auto","budget_seconds":15,"dead":[],`
	for _, c := range [][2]string{
		{prestopSchema, `{}`}, {prestopSchema, answer + `"outcome":"released"}`}, {prestopSchema, answer + `"outcome":"observed","more":1}`},
		{prestopSchema, answer + `"outcome":"closed-unclean","missing":[{"application":"a","reason":"no-reason"}]}`},
		{lastSchema, `{"version":2,"applications":[]}`}, {lastSchema, end + `"outcome":"observed","evidence":[]}]}`},
		{lastSchema, end + `"outcome":"closed-clean","evidence":[],"more":1}]}`},
		{lastSchema, end + `"outcome":"closed-unclean","evidence":[{"clean":false,"closed":true}]}]}`},
		{lastSchema, end + `"outcome":"closed-clean","evidence":[{"clean":true,"closed":true,"reason":"not-closed"}]}]}`},
		{apiSchema, now + `"phase":"draining","last_shutdown":[]}`}, {apiSchema, now + `"phase":"stopped","last_shutdown":[]}`},
		{apiSchema, now + `"phase":"ended","last_shutdown":[{"application":"a","outcome":"closed-clean","hook":"called","stores":0,"sst_bytes_written":0,"evidence":[]}]}`},
	} {
		if schema(t, c[0]).Validate(parse(t, []byte(c[1]))) == nil {
			t.Errorf("%s accepts %s", c[0], c[1])
		}
	}
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func parse(t *testing.T, text []byte) any {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// keys collects the names of all fields of a document; below a name, only of
// those objects that have it.
func keys(v any, below string, into map[string]bool) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			keys(e, below, into)
		}
	case map[string]any:
		for k, e := range v {
			if fields, ok := e.(map[string]any); ok && k == below && below != "" {
				for name := range fields {
					into[name] = true
				}
			}
			if below == "" {
				into[k] = true
			}
			keys(e, below, into)
		}
	}
}

func sorted(names map[string]bool) []string { return slices.Sorted(maps.Keys(names)) }
