package server_test

import (
	"encoding/json"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"streams-sidecar/internal/probe"
	"streams-sidecar/internal/report"
	"streams-sidecar/internal/server"
	"streams-sidecar/internal/shutdown"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/verify"
	"streams-sidecar/internal/volume"
	"streams-sidecar/test/fixture"
	"streams-sidecar/test/holder"
	"streams-sidecar/test/judge"
)

func TestMain(m *testing.M) { holder.Main(m) }

// prober is a picture that a test sets.
type prober struct {
	snap atomic.Pointer[probe.Snapshot]
	dead atomic.Bool
}

func (p *prober) Snapshot() *probe.Snapshot { return p.snap.Load() }
func (p *prober) Alive(time.Duration) bool  { return !p.dead.Load() }

var asOf = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// look gives a prober with the picture of some directories.
func look(dirs ...string) *prober {
	p := &prober{}
	s := &probe.Snapshot{At: asOf, Mode: probe.Inotify, ScanTook: 12 * time.Millisecond, Seq: 1}
	for _, d := range dirs {
		s.StateDirs = append(s.StateDirs, store.Scan(volume.New(volume.OS()), d, nil))
	}
	s.Judgement = judge.Picture(s.StateDirs)
	p.snap.Store(s)
	return p
}

// get asks a handler and gives the answer.
func get(h http.Handler, target string, header ...string) *httptest.ResponseRecorder {
	return do(h, http.MethodGet, target, header...)
}

func do(h http.Handler, method, target string, header ...string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w
}

func body(w *httptest.ResponseRecorder) string { return w.Body.String() }

func unmarshal[T any](t *testing.T, w *httptest.ResponseRecorder) T {
	t.Helper()
	var v T
	if got := w.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type %q of %s", got, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	return v
}

// errorAnswer is what the API answers when it cannot.
type errorAnswer struct {
	Error   string
	Choices []struct {
		StateDir string `json:"state_dir"`
		Path     string
	}
}

// TestStoreOfTheAPI: the API has every store of real directories as state has
// it, and each of its live tables.
func TestStoreOfTheAPI(t *testing.T) {
	t.Parallel()
	p := look(fixture.Unpack(t, "3.9.1", "closed-clean"), fixture.Unpack(t, "4.4.0", "closed-clean"))
	h := server.Admin(p, noGate(), nil, nil)
	n := 0
	for _, sd := range unmarshal[report.Document](t, get(h, "/api/v1/state")).StateDirs {
		for _, a := range sd.Applications {
			for _, task := range a.Tasks {
				for _, want := range task.Stores {
					n++
					resp := get(h, "/api/v1/stores/"+a.ID+"/"+task.ID+"/"+want.Name)
					got := unmarshal[report.StoreDetail](t, resp)
					if resp.Code != 200 || !got.AsOf.Equal(asOf) || got.StateDir != sd.Path || got.Application != a.ID ||
						got.Task != task.ID || got.Running == nil || *got.Running || !strings.HasPrefix(got.Path, sd.Path) {
						t.Errorf("%s %s %s: %d %+v", a.ID, task.ID, want.Name, resp.Code, got)
					}
					if diff := cmp.Diff(want, got.Store); diff != "" {
						t.Errorf("%s %s %s differs from state (-state +store):\n%s", a.ID, task.ID, want.Name, diff)
					}
					compareTables(t, got)
				}
			}
		}
	}
	if n != 18 {
		t.Errorf("compared %d stores, want 18", n)
	}
}

// compareTables holds the tables of a store's databases against its families.
func compareTables(t *testing.T, d report.StoreDetail) {
	t.Helper()
	type sum struct {
		files   int
		bytes   int64
		entries uint64
	}
	want, got := map[string]sum{}, map[string]sum{}
	for _, f := range d.Store.Families {
		want[f.Name] = sum{f.Files, f.SizeBytes, *f.Entries}
	}
	for _, db := range d.Databases {
		if db.Manifest == nil || db.RocksDBVersion == "" || db.Manifest.LastSequence == 0 && len(db.Manifest.Families[0].Tables) > 0 {
			t.Errorf("%s: %+v", db.Path, db)
			continue
		}
		for _, f := range db.Manifest.Families {
			s := got[f.Name]
			for _, table := range f.Tables {
				s = sum{s.files + 1, s.bytes + int64(table.SizeBytes), s.entries + *table.Entries}
			}
			got[f.Name] = s
		}
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(sum{})); diff != "" {
		t.Errorf("%s: tables against families (-families +tables):\n%s", d.Path, diff)
	}
}

// TestStoreOfNamedTopology: its task has a slash in the id.
func TestStoreOfNamedTopology(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	top := filepath.Join(dir, "alos391", "__payments__")
	if err := os.Mkdir(top, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "alos391", "1_0"), filepath.Join(top, "0_0")); err != nil {
		t.Fatal(err)
	}
	h := server.Admin(look(dir), noGate(), nil, nil)
	for _, tree := range []string{"/api/v1/stores/", "/stores/"} {
		for _, task := range []string{"__payments__/0_0", "__payments__%2F0_0", "%5F_payments__%2f0_0"} {
			resp := get(h, tree+"alos391/"+task+"/kv")
			if text := body(resp); resp.Code != 200 || !strings.Contains(text, "__payments__/0_0") {
				t.Errorf("%s%s: %d %s", tree, task, resp.Code, text)
			}
		}
	}
	if got := crawl(t, h); got != 9 {
		t.Errorf("the status page links to %d stores, want 9", got)
	}
}

var href = regexp.MustCompile(`href="([^"]*)"`)

// crawl follows every link of the status page to a store, and from there to
// its JSON, and gives their number.
func crawl(t *testing.T, h http.Handler) int {
	t.Helper()
	n := 0
	for _, m := range href.FindAllStringSubmatch(body(get(h, "/")), -1) {
		link := html.UnescapeString(m[1])
		if !strings.HasPrefix(link, "/stores/") {
			continue
		}
		n++
		resp := get(h, link)
		page := body(resp)
		if resp.Code != 200 {
			t.Errorf("%s: %d %s", link, resp.Code, page)
		}
		for _, m := range href.FindAllStringSubmatch(page, -1) {
			if link := html.UnescapeString(m[1]); link != "/" {
				if resp := get(h, link); resp.Code != 200 {
					t.Errorf("%s: %d %s", link, resp.Code, body(resp))
				}
			}
		}
	}
	return n
}

// TestStoreWithATwin: two stores that only their place tells apart.
func TestStoreWithATwin(t *testing.T) {
	t.Parallel()
	one, two := fixture.Unpack(t, "3.9.1", "closed-clean"), fixture.Unpack(t, "3.9.1", "closed-clean")
	// What is left of a key-value store that became a window store.
	left := filepath.Join(one, "alos391", "1_0", "rocksdb", "win")
	if err := os.CopyFS(left, os.DirFS(filepath.Join(one, "alos391", "1_0", "rocksdb", "kv"))); err != nil {
		t.Fatal(err)
	}
	h := server.Admin(look(one, two), noGate(), nil, nil)
	const task = "/api/v1/stores/alos391/1_0/"
	resp := get(h, task+"kv")
	got := unmarshal[errorAnswer](t, resp)
	if resp.Code != http.StatusConflict || len(got.Choices) != 2 || got.Choices[0].StateDir != one || got.Choices[1].StateDir != two ||
		!strings.Contains(got.Error, "state_dir") {
		t.Errorf("%d %+v", resp.Code, got)
	}
	for _, dir := range []string{one, two} {
		if d := unmarshal[report.StoreDetail](t, get(h, task+"kv?state_dir="+dir)); d.StateDir != dir || d.Store.Name != "kv" {
			t.Errorf("%+v", d)
		}
	}
	resp = get(h, task+"win?state_dir="+one)
	if got := unmarshal[errorAnswer](t, resp); resp.Code != http.StatusConflict || len(got.Choices) != 2 {
		t.Errorf("%d %+v", resp.Code, got)
	}
	if d := unmarshal[report.StoreDetail](t, get(h, task+"win?path="+left)); d.Path != left || d.Store.Kind != "timestamped" {
		t.Errorf("%+v", d)
	}
	resp = get(h, "/stores/alos391/1_0/kv")
	page := body(resp)
	if links := href.FindAllStringSubmatch(page, -1); resp.Code != http.StatusConflict || len(links) != 3 {
		t.Errorf("%d %s", resp.Code, page)
	} else if resp := get(h, html.UnescapeString(links[2][1])); resp.Code != 200 || !strings.Contains(body(resp), two) {
		t.Errorf("%s: %d", links[2][1], resp.Code)
	}
	// The page names the directory, but nothing that tells the twins apart.
	if text := body(get(h, "/")); !strings.Contains(text, "state_dir=") {
		t.Errorf("links without state_dir:\n%s", text)
	}
}

// TestErrors: what is not there, in the form of who asks.
func TestErrors(t *testing.T) {
	t.Parallel()
	h := server.Admin(look(fixture.Unpack(t, "3.9.1", "closed-clean")), noGate(), nil, nil)
	const stores = "/api/v1/stores/"
	for target, says := range map[string]string{
		stores + "nobody/1_0/kv":                       "no application nobody",
		stores + "alos391/7_7/kv":                      "has no task 7_7",
		stores + "alos391/1_0/no%2Fstore":              "has no store no/store",
		stores + "alos391/1_0/kv?state_dir=/elsewhere": "no application alos391 in /elsewhere",
		stores + "alos391/1_0":                         "{application}/{task}/{store}",
		stores + "alos391//kv":                         "{application}/{task}/{store}",
		stores + "alos391/a/b/c/kv":                    "{application}/{task}/{store}",
		stores + "alos391/%3Cscript%3E/kv":             "<script>",
		stores:                                         "{application}/{task}/{store}",
		"/api/v2/state":                                "no such page",
		"/api/v1/state/":                               "no such page",
	} {
		resp := get(h, target)
		if got := unmarshal[errorAnswer](t, resp); resp.Code != 404 || !strings.Contains(got.Error, says) {
			t.Errorf("%s: %d %+v, want 404 with %q", target, resp.Code, got, says)
		}
		if page, ok := strings.CutPrefix(target, "/api/v1"); ok {
			resp := get(h, page)
			if text := body(resp); resp.Code != 404 || strings.Contains(text, "<script>") {
				t.Errorf("%s: %d %s", page, resp.Code, text)
			}
		}
	}
	resp := do(h, http.MethodPost, stores+"alos391/1_0/kv")
	if got := unmarshal[errorAnswer](t, resp); resp.Code != 405 || resp.Header().Get("Allow") != "GET" || got.Error == "" {
		t.Errorf("POST: %d %+v", resp.Code, got)
	}
}

// TestBeforeTheFirstPicture: nothing is made up.
func TestBeforeTheFirstPicture(t *testing.T) {
	t.Parallel()
	admin := server.Admin(&prober{}, noGate(), nil, nil)
	for _, target := range []string{"/api/v1/state", "/api/v1/stores/a/0_0/s"} {
		resp := get(admin, target)
		if got := unmarshal[errorAnswer](t, resp); resp.Code != 503 || !strings.Contains(got.Error, "first look") {
			t.Errorf("%s: %d %+v", target, resp.Code, got)
		}
	}
	for _, target := range []string{"/", "/?format=text", "/stores/a/0_0/s"} {
		if resp := get(admin, target); resp.Code != 503 || !strings.Contains(body(resp), "first look") {
			t.Errorf("%s: %d", target, resp.Code)
		}
	}
	p := &prober{}
	hook := server.Hook(p, nil)
	for target, want := range map[string]int{"/livez": 200, "/readyz": 503, "/startupz": 503} {
		if resp := get(hook, target); resp.Code != want {
			t.Errorf("%s: %d, want %d", target, resp.Code, want)
		}
	}
	p.dead.Store(true)
	p.snap.Store(&probe.Snapshot{})
	for target, want := range map[string]int{"/livez": 503, "/readyz": 200, "/startupz": 200} {
		if resp := get(hook, target); resp.Code != want {
			t.Errorf("%s: %d, want %d", target, resp.Code, want)
		}
	}
}

// TestStatusPage: what a person looks for is on it.
func TestStatusPage(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "corrupt-alos-current-empty")
	h := server.Admin(look(dir, fixture.Unpack(t, "4.4.0", "closed-clean")), noGate(), nil, nil)
	resp := get(h, "/", "Accept", "text/html,application/xhtml+xml,text/plain;q=0.8")
	page := body(resp)
	for _, want := range []string{"2026-01-02 03:04:05 UTC", "inotify", "12ms", dir, "% used", "not running", "gtab", "timestamped",
		"current-empty", "What to do:", `content="5"`, `name="viewport"`, `href="/api/v1/state"`} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	for key, want := range map[string]string{"Content-Type": "text/html; charset=utf-8", "X-Content-Type-Options": "nosniff",
		"Cache-Control": "no-store", "Vary": "Accept"} {
		if got := resp.Header().Get(key); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
	if got := resp.Header().Get("Content-Security-Policy"); !strings.HasPrefix(got, "default-src 'none'; style-src 'unsafe-inline'") {
		t.Errorf("Content-Security-Policy: %q", got)
	}
	if strings.Contains(page, "<script") || strings.Contains(page, "src=") {
		t.Errorf("the page loads something:\n%s", page)
	}
	if got := crawl(t, h); got != 2+9 {
		t.Errorf("the page links to %d stores, want 11", got)
	}
	for _, ask := range [][]string{{"/", "Accept", "text/plain"}, {"/?format=text", "Accept", "text/html"}} {
		resp := get(h, ask[0], ask[1:]...)
		if text := body(resp); resp.Header().Get("Content-Type") != "text/plain; charset=utf-8" ||
			!strings.HasPrefix(text, "streams-sidecar, as of 2026-01-02T03:04:05Z\n") || !strings.Contains(text, "gtab") {
			t.Errorf("%v: %s", ask, text)
		}
	}
}

// TestStorePage: families, levels, tables, offsets, MANIFEST.
func TestStorePage(t *testing.T) {
	t.Parallel()
	h := server.Admin(look(fixture.Unpack(t, "4.4.0", "closed-clean")), noGate(), nil, nil)
	page := body(get(h, "/stores/alos440/1_0/kv"))
	for _, want := range []string{"keyValueWithTimestamp", "alos440-kv-changelog", "1135", "last-applied", "MANIFEST-000005", "000011.sst",
		"259", "RocksDB 10.1.3", "clean", "offsets-cf", "timestamped", "1 file, 0 B"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
}

// TestHostileNames: a name is text wherever it goes, and its links find it.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	names := []string{
		`<script>alert(1)<`, `"onload="x`, "'><img src=x>", "a&amp;b", "new\nline", "bad\xff\xfe", "%2F%00", "a b+c", "?q=1#f",
		"javascript:alert(1)", "..;", "{{.}}", "ünï", `back\slash`, "...",
	}
	dir := t.TempDir()
	for _, name := range names {
		s := filepath.Join(dir, name, "0_0", "rocksdb", name)
		if err := os.MkdirAll(s, 0o755); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(s, "CURRENT"), name) // evidence of a finding
	}
	// With a second directory, every link has a state_dir.
	for _, h := range []http.Handler{server.Admin(look(dir), noGate(), nil, nil), server.Admin(look(dir, t.TempDir()), noGate(), nil, nil)} {
		if got := crawl(t, h); got != len(names) {
			t.Errorf("the page links to %d stores, want %d", got, len(names))
		}
	}
	h := server.Admin(look(dir), noGate(), nil, nil)
	texts := []string{body(get(h, "/"))}
	for _, name := range names {
		if text := volume.Text(name); !strings.Contains(html.UnescapeString(texts[0]), ">"+text+"</a>") {
			t.Errorf("no %q in\n%s", text, texts[0])
		}
		api := "/api/v1/stores/" + url.PathEscape(volume.Text(name)) + "/0_0/" + url.PathEscape(volume.Text(name))
		if d := unmarshal[report.StoreDetail](t, get(h, api)); d.Store.Name != volume.Text(name) || d.Application != volume.Text(name) {
			t.Errorf("%s: %+v", api, d)
		}
		page := body(get(h, strings.TrimPrefix(api, "/api/v1")))
		if !strings.Contains(page, "current-no-newline") {
			t.Errorf("%q: no finding in\n%s", name, page)
		}
		texts = append(texts, page)
	}
	for _, page := range texts {
		for _, bad := range []string{"<script", "<img", ` onload=`, `"onload=`, `href="javascript`} {
			if strings.Contains(page, bad) {
				t.Errorf("%q is in\n%s", bad, page)
			}
		}
	}
}

// TestStateIsMadeOnce: whoever asks for the same picture gets the same bytes,
// and a new picture shows.
func TestStateIsMadeOnce(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	p := look(dir)
	h := server.Admin(p, noGate(), nil, nil)
	var wg sync.WaitGroup
	bodies := make([]string, 32)
	for i := range bodies {
		wg.Go(func() { bodies[i] = body(get(h, "/api/v1/state")) })
	}
	wg.Wait()
	for _, b := range bodies {
		if b != bodies[0] || !strings.Contains(b, "alos391") {
			t.Fatalf("got %s and %s", b, bodies[0])
		}
	}
	next := *p.snap.Load()
	next.Seq++
	next.StateDirs = nil
	p.snap.Store(&next)
	for target, want := range map[string]string{"/api/v1/state": `{"state_dirs":[]}`, "/": "No findings"} {
		if got := body(get(h, target)); !strings.Contains(got, want) || strings.Contains(got, "alos391") {
			t.Errorf("%s of the next picture: %s", target, got)
		}
	}
}

// noGate is a gate that has seen nothing.
func noGate() *shutdown.Gate {
	return shutdown.NewGate(shutdown.Config{Snapshot: func() *probe.Snapshot { return nil }})
}

// TestStorePageSaysWhenItWasVerified: each depth with its age.
func TestStorePageSaysWhenItWasVerified(t *testing.T) {
	t.Parallel()
	checks := func(*store.Database) []*verify.Result {
		return []*verify.Result{
			{Depth: verify.Quick, At: time.Now().Add(-90500 * time.Millisecond), Tables: 1, Bytes: 4096, Complete: true},
			{Depth: verify.Deep, At: time.Now().Add(-3*time.Hour - time.Second/2), Tables: 2, Bytes: 1 << 20, Retries: 1},
		}
	}
	h := server.Admin(look(fixture.Unpack(t, "4.4.0", "closed-clean")), noGate(), nil, checks)
	page := body(get(h, "/stores/alos440/1_0/kv"))
	for _, want := range []string{"<dt>verified, quick</dt><dd>1m30s ago: 1 table, 4.0 KiB</dd>", "<dt>verified, deep</dt><dd>3h0m0s ago: 2 tables, 1.0 MiB; not all of the store</dd>",
		`<dd class="ok">ok</dd>`} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	d := unmarshal[report.StoreDetail](t, get(h, "/api/v1/stores/alos440/1_0/kv"))
	if c := d.Store.Checks; len(c) != 2 || c[0].Depth != "quick" || c[0].AgeSeconds < 90 || c[0].AgeSeconds > 120 || !c[0].Complete || c[1].Complete || c[1].Retries != 1 {
		t.Errorf("%+v", c)
	}
	if state := unmarshal[report.Document](t, get(h, "/api/v1/state")); len(state.StateDirs[0].Applications[0].Tasks[0].Stores[0].Checks) != 2 {
		t.Errorf("%+v", state)
	}
}
