package metrics_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"streams-sidecar/internal/consult"
	"streams-sidecar/internal/engine"
	"streams-sidecar/internal/metrics"
	"streams-sidecar/internal/probe"
	"streams-sidecar/internal/scrub"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
	"streams-sidecar/test/fixture"
	"streams-sidecar/test/judge"
	"streams-sidecar/test/manystores"
)

func picture(t *testing.T, dirs ...string) *probe.Snapshot {
	t.Helper()
	s := &probe.Snapshot{Mode: probe.Inotify, ScanTook: 3 * time.Second}
	for _, d := range dirs {
		s.StateDirs = append(s.StateDirs, store.Scan(volume.New(volume.OS()), d, nil))
	}
	s.Judgement = judge.Picture(s.StateDirs)
	return s
}

func config(dirs int, s *probe.Snapshot) metrics.Config {
	return metrics.Config{
		Version: "v1", GoVersion: "go1", StateDirs: dirs, Source: func() *probe.Snapshot { return s },
		Prestop: func() metrics.Prestop {
			return metrics.Prestop{Requests: map[string]uint64{"observed": 2, "closed-clean": 0}, Waited: 1500 * time.Millisecond, Any: true,
				Budget: 25 * time.Second}
		},
	}
}

// rocks is an engine that says of each database what our readers say.
type rocks struct {
	restarts uint64
	err      error
}

func (r *rocks) Version(context.Context) (string, error) { return "10.10.1", r.err }

func (r *rocks) Restarts() uint64 { return r.restarts }

func (r *rocks) Consult(_ context.Context, db *store.Database, _ engine.What, _ func() *store.Database) engine.Opinion {
	if strings.Contains(db.Path, "/ver") {
		return engine.Opinion{Err: &engine.Error{Kind: engine.Moving, Path: db.Path}}
	}
	a := &engine.Answer{}
	for _, f := range db.Families() {
		all, deleted := *f.Entries+2, uint64(2)
		a.Families = append(a.Families, engine.Family{Name: []byte(f.Name), Entries: &all, Deletions: &deleted, Properties: map[string]uint64{
			"estimate-num-keys": *f.Entries, "estimate-live-data-size": uint64(f.Bytes), "num-blob-files": 0,
			"live-blob-file-size": 0, "live-blob-file-garbage-size": 0}})
	}
	return engine.Opinion{Answer: a, At: time.Unix(1_000_000, 0)}
}

// asked gives a Consultant that has asked about every database of a picture.
func asked(t *testing.T, e *rocks, s *probe.Snapshot) *consult.Consultant {
	t.Helper()
	c := consult.New(consult.Config{Engine: e, Picture: func() []*store.StateDir { return s.StateDirs }})
	want := uint64(0)
	for _, d := range s.StateDirs {
		d.Stores(func(_ *store.Application, _ *store.Task, s *store.Store) { want += uint64(len(s.Databases)) })
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	for n := uint64(0); n < want && e.err == nil || !c.State().Asked; time.Sleep(time.Millisecond) {
		n = 0
		for _, k := range c.State().Requests {
			n += k
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	return c
}

// TestRocksDB: the figures of RocksDB itself, and how asking it goes.
func TestRocksDB(t *testing.T) {
	t.Parallel()
	snap := picture(t, fixture.Unpack(t, "3.9.1", "closed-clean"))
	cfg := config(1, snap)
	cfg.RocksDB = consult.New(consult.Config{Engine: &rocks{}})
	for _, s := range series(t, cfg) { // before it was asked
		if strings.Contains(s, "engine_up") || strings.Contains(s, "engine_info") || strings.Contains(s, "rocksdb_estimate") {
			t.Errorf("there is %s", s)
		}
	}
	cfg.RocksDB = asked(t, &rocks{restarts: 3}, snap)
	got := series(t, cfg)
	for _, want := range []string{
		`kstreams_sidecar_engine_up{} 1`,
		`kstreams_sidecar_engine_info{rocksdb_version="10.10.1"} 1`,
		`kstreams_sidecar_engine_restarts_total{} 3`,
		`kstreams_sidecar_engine_requests_total{outcome="answered"} 11`,
		`kstreams_sidecar_engine_requests_total{outcome="moving"} 2`,
		`kstreams_sidecar_engine_requests_total{outcome="hung"} 0`,
		`rocksdb_estimate_num_keys{application_id="alos391",store="kv",task_id="1_0"} 259`,
		`rocksdb_table_entries{application_id="alos391",store="kv",task_id="1_0"} 263`,  // in two families
		`rocksdb_table_deletions{application_id="alos391",store="win",task_id="1_0"} 4`, // in two segments
		`rocksdb_num_blob_files{application_id="alos391",store="kv",task_id="1_0"} 0`,
		`rocksdb_live_blob_file_size_bytes{application_id="alos391",store="kv",task_id="1_0"} 0`,
		`rocksdb_live_blob_file_garbage_size_bytes{application_id="alos391",store="kv",task_id="1_0"} 0`,
		`kstreams_store_rocksdb_timestamp_seconds{application_id="alos391",store="kv",task_id="1_0"} 1000000`,
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no series %s in %s", want, strings.Join(got, "\n"))
		}
	}
	for _, s := range got {
		if strings.Contains(s, `store="ver"`) && (strings.Contains(s, "estimate") || strings.Contains(s, "table_") || strings.Contains(s, "blob") || strings.Contains(s, "store_rocksdb")) {
			t.Errorf("%s, of a store without an answer", s)
		}
	}
	cfg.RocksDB = asked(t, &rocks{err: &engine.Error{Kind: engine.Missing}}, snap)
	if got := series(t, cfg); !slices.Contains(got, `kstreams_sidecar_engine_up{} 0`) {
		t.Error("an engine that is missing is not said to be down")
	}
}

const openMetrics = "application/openmetrics-text; version=1.0.0"

// scrape gives the body of one scrape.
func scrape(t testing.TB, cfg metrics.Config, headers ...string) string {
	t.Helper()
	req := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	metrics.Handler(cfg).ServeHTTP(w, req)
	if w.Code != http.StatusOK {
		t.Fatalf("scrape: %d %s", w.Code, w.Body)
	}
	body := io.Reader(w.Body)
	if w.Header().Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(body)
		if err != nil {
			t.Fatal(err)
		}
		body = z
	}
	text, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// gather parses a scrape with Prometheus' own parser.
func gather(t *testing.T, cfg metrics.Config) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	fs, err := parser.TextToMetricFamilies(strings.NewReader(scrape(t, cfg)))
	if err != nil {
		t.Fatal(err)
	}
	return fs
}

// series gives "name{labels} value" of our own metrics, sorted.
func series(t *testing.T, cfg metrics.Config) []string {
	t.Helper()
	var out []string
	for name, f := range gather(t, cfg) {
		if !ours(name) {
			continue
		}
		for _, m := range f.GetMetric() {
			var ls []string
			for _, l := range m.GetLabel() {
				ls = append(ls, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			v := m.GetGauge().GetValue()
			if f.GetType() == dto.MetricType_COUNTER {
				v = m.GetCounter().GetValue()
			}
			out = append(out, fmt.Sprintf("%s{%s} %.0f", name, strings.Join(ls, ","), v))
		}
	}
	slices.Sort(out)
	return out
}

func ours(name string) bool {
	return strings.HasPrefix(name, "kstreams_") || strings.HasPrefix(name, "rocksdb_")
}

// TestStore: every series of one store, with values counted by hand from the
// files and the inventory of the directory.
func TestStore(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	kv := filepath.Join(dir, "alos391", "1_0", "rocksdb", "kv")
	size := func(names ...string) (n int64) {
		for _, name := range names {
			i, err := os.Stat(filepath.Join(kv, name))
			if err != nil {
				t.Fatal(err)
			}
			n += i.Size()
		}
		return n
	}
	sst := size("000010.sst")
	want := []string{
		`kstreams_store_changelog_offset{L,partition="0",store="kv",task_id="1_0",topic="alos391-kv-changelog"} 1135`,
		`kstreams_store_open{L,store="kv",task_id="1_0"} 0`,
		`kstreams_store_size_bytes{L,kind="log",store="kv",task_id="1_0"} 0`,
		fmt.Sprintf(`kstreams_store_size_bytes{L,kind="manifest",store="kv",task_id="1_0"} %d`, size("MANIFEST-000005")),
		fmt.Sprintf(`kstreams_store_size_bytes{L,kind="other",store="kv",task_id="1_0"} %d`, size("CURRENT", "IDENTITY", "OPTIONS-000007", "OPTIONS-000009")),
		fmt.Sprintf(`kstreams_store_size_bytes{L,kind="sst",store="kv",task_id="1_0"} %d`, sst),
		`kstreams_store_size_bytes{L,kind="wal",store="kv",task_id="1_0"} 0`,
		`kstreams_store_manifest_lag_seconds{L,store="kv",task_id="1_0"} 0`,
		`kstreams_store_up{L,store="kv",task_id="1_0"} 1`,
		`kstreams_store_verdict{L,store="kv",task_id="1_0",verdict="damaged"} 0`,
		`kstreams_store_verdict{L,store="kv",task_id="1_0",verdict="empty"} 0`,
		`kstreams_store_verdict{L,store="kv",task_id="1_0",verdict="incompatible"} 0`,
		`kstreams_store_verdict{L,store="kv",task_id="1_0",verdict="ok"} 1`,
		`kstreams_store_verdict{L,store="kv",task_id="1_0",verdict="unclean"} 0`,
		`kstreams_store_verdict{L,store="kv",task_id="1_0",verdict="unreadable"} 0`,
		`rocksdb_compaction_read_bytes_total{L,store="kv",task_id="1_0"} 0`,
		`rocksdb_compaction_written_bytes_total{L,store="kv",task_id="1_0"} 0`,
		`rocksdb_compactions_total{L,store="kv",task_id="1_0"} 0`,
		fmt.Sprintf(`rocksdb_flushed_bytes_total{L,store="kv",task_id="1_0"} %d`, sst),
		`rocksdb_flushes_total{L,store="kv",task_id="1_0"} 1`,
		`rocksdb_live_sst_files{L,store="kv",task_id="1_0"} 1`,
		fmt.Sprintf(`rocksdb_live_sst_files_size_bytes{L,store="kv",task_id="1_0"} %d`, sst),
		`rocksdb_num_files_at_level{L,level="0",store="kv",task_id="1_0"} 1`,
		`rocksdb_wal_enabled{L,store="kv",task_id="1_0"} 0`,
		`rocksdb_wal_files{L,store="kv",task_id="1_0"} 1`,
		`rocksdb_wal_size_bytes{L,store="kv",task_id="1_0"} 0`,
	}
	for i := range want {
		want[i] = strings.ReplaceAll(want[i], "L,", `application_id="alos391",`)
	}
	slices.Sort(want)
	var got []string
	for _, s := range series(t, config(1, picture(t, dir))) {
		if strings.Contains(s, `store="kv",task_id="1_0"`) && !strings.HasPrefix(s, "rocksdb_latest_sequence_number") {
			got = append(got, s)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestOthers: the series that belong to no store.
func TestOthers(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	got := series(t, config(1, picture(t, dir)))
	for _, want := range []string{
		`kstreams_app_running{application_id="alos391"} 0`,
		`kstreams_task_checkpoint_present{application_id="alos391",task_id="1_1"} 1`,
		`kstreams_task_checkpoint_present{application_id="alos391",task_id="global"} 0`,
		`kstreams_store_segments{application_id="alos391",store="win",task_id="1_0"} 2`,
		`kstreams_prestop_requests_total{outcome="observed"} 2`,
		`kstreams_prestop_requests_total{outcome="closed-clean"} 0`,
		`kstreams_prestop_wait_seconds{} 2`,
		`kstreams_sidecar_watcher_mode{mode="inotify"} 1`,
		`kstreams_sidecar_watcher_mode{mode="poll"} 0`,
		`kstreams_sidecar_scan_duration_seconds{} 3`,
		`kstreams_sidecar_build_info{goversion="go1",version="v1"} 1`,
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no series %s", want)
		}
	}
}

// TestTwoStateDirs: the same application id under two state directories is two
// applications.
func TestTwoStateDirs(t *testing.T) {
	t.Parallel()
	a, b := fixture.Unpack(t, "3.9.1", "closed-clean"), fixture.Unpack(t, "3.9.1", "killed9-alos-load")
	got := series(t, config(2, picture(t, a, b)))
	for _, dir := range []string{a, b} {
		if want := fmt.Sprintf(`kstreams_app_running{application_id="alos391",state_dir=%q} 0`, dir); !slices.Contains(got, want) {
			t.Errorf("no series %s", want)
		}
	}
}

// TestGate: what the gate knows of applications and of a close.
func TestGate(t *testing.T) {
	t.Parallel()
	yes, no, took, at := true, false, 2.5, time.Unix(1_800_000_000, 0)
	of := func(dirs int) []string {
		cfg := config(dirs, nil)
		cfg.Prestop = func() metrics.Prestop {
			return metrics.Prestop{
				Closing: &metrics.Closing{Stores: 30, Flushed: 20, Closed: 10, SSTBytesWritten: 7, Remaining: 3 * time.Second},
				Clients: []metrics.Client{
					{StateDir: "/a", Application: "one", Clean: &yes, Ended: &at, CloseSeconds: &took, Dead: &no},
					{StateDir: "/b", Application: "one", Clean: &no, Ended: &at, Dead: &yes},
					{StateDir: "/b", Application: "two"},
				},
				JournalFailed: true,
			}
		}
		if dirs == 1 {
			prestop := cfg.Prestop
			cfg.Prestop = func() metrics.Prestop { p := prestop(); p.Clients = p.Clients[:1]; return p }
		}
		return series(t, cfg)
	}
	one, two := of(1), of(2)
	for _, want := range []string{
		`kstreams_prestop_draining{} 1`, `kstreams_prestop_stores{state="open"} 30`, `kstreams_prestop_stores{state="flushed"} 20`,
		`kstreams_prestop_stores{state="closed"} 10`, `kstreams_prestop_sst_written_bytes{} 7`, `kstreams_prestop_remaining_seconds{} 3`,
		`kstreams_last_shutdown_clean{application_id="one"} 1`, `kstreams_last_shutdown_close_seconds{application_id="one"} 2`,
		`kstreams_app_dead{application_id="one"} 0`, `kstreams_sidecar_journal_failed{} 1`,
	} {
		if !slices.Contains(one, want) {
			t.Errorf("no series %s in\n%s", want, strings.Join(one, "\n"))
		}
	}
	for _, want := range []string{
		`kstreams_last_shutdown_clean{application_id="one",state_dir="/a"} 1`,
		`kstreams_last_shutdown_clean{application_id="one",state_dir="/b"} 0`,
		`kstreams_app_dead{application_id="one",state_dir="/b"} 1`,
	} {
		if !slices.Contains(two, want) {
			t.Errorf("no series %s", want)
		}
	}
	for _, s := range two {
		if strings.Contains(s, `"two"`) || strings.Contains(s, "close_seconds") && strings.Contains(s, "/b") {
			t.Errorf("a value that is not known: %s", s)
		}
	}
}

// TestUnknownIsAbsent: what could not be read has no value.
func TestUnknownIsAbsent(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "corrupt-alos-manifest-deleted")
	got := series(t, config(1, picture(t, dir)))
	up := `kstreams_store_up{application_id="calos391",store="kv",task_id="0_0"} 0`
	if !slices.Contains(got, up) {
		t.Errorf("no series %s", up)
	}
	for _, s := range got {
		if strings.Contains(s, `store="kv"`) && strings.HasPrefix(s, "rocksdb_") && !strings.HasPrefix(s, "rocksdb_wal_") {
			t.Errorf("a value of a store that could not be read: %s", s)
		}
	}
	if len(series(t, config(1, nil))) != 7 { // build info and the gate
		t.Error("series of a picture that does not exist yet")
	}
}

// TestHostileNames: every name gives valid labels that stay apart.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	src := fixture.Unpack(t, "3.9.1", "closed-clean")
	dir := t.TempDir()
	names := []string{"a b", `a"b`, "a\nb", "a\xffb", "a\\xffb", "ä"}
	for _, n := range names {
		if err := os.CopyFS(filepath.Join(dir, n), os.DirFS(filepath.Join(src, "alos391"))); err != nil {
			t.Fatal(err)
		}
	}
	apps := map[string]bool{}
	for _, m := range gather(t, config(1, picture(t, dir)))["kstreams_app_running"].GetMetric() {
		apps[m.GetLabel()[0].GetValue()] = true
	}
	if len(apps) != len(names) {
		t.Errorf("%d applications in the labels, want %d: %v", len(apps), len(names), apps)
	}
}

// TestLint: Prometheus' own linter over everything that is exported.
func TestLint(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "4.4.0", "wal-on-live-load")
	var fs []*dto.MetricFamily
	snap := picture(t, dir, fixture.Unpack(t, "3.9.1", "closed-clean"))
	cfg := config(1, snap)
	cfg.RocksDB = asked(t, &rocks{}, snap)
	for _, f := range gather(t, cfg) {
		fs = append(fs, f)
	}
	problems, err := promlint.NewWithMetricFamilies(fs).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestDocs: docs/metrics.md names exactly what can be exported.
func TestDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		documented = append(documented, m[1])
	}
	exported := metrics.MirroredNames()
	ch := make(chan *prometheus.Desc, 1000)
	cfg := config(1, nil)
	cfg.RocksDB = consult.New(consult.Config{Engine: &rocks{}})
	cfg.Verified = scrub.New(scrub.Config{})
	metrics.NewRegistry(cfg).Describe(ch)
	close(ch)
	name := regexp.MustCompile(`fqName: "([^"]+)"`)
	for d := range ch {
		if n := name.FindStringSubmatch(d.String())[1]; ours(n) {
			exported = append(exported, n)
		}
	}
	slices.Sort(documented)
	slices.Sort(exported)
	if !slices.Equal(documented, exported) {
		t.Errorf("documented\n%v\nexported\n%v", documented, exported)
	}
}

// TestOpenMetrics: the same samples in the other format, compressed and not,
// and its own ending.
func TestOpenMetrics(t *testing.T) {
	t.Parallel()
	cfg := config(1, picture(t, fixture.Unpack(t, "4.4.0", "wal-on-live-load")))
	text := scrape(t, cfg)
	open := scrape(t, cfg, "Accept", openMetrics)
	if !strings.HasSuffix(open, "\n# EOF\n") || strings.Count(open, "# EOF") != 1 {
		t.Error("OpenMetrics does not end with one # EOF")
	}
	if !strings.Contains(open, "# TYPE rocksdb_flushes counter\n") || !strings.Contains(open, "\nrocksdb_flushes_total{") {
		t.Error("OpenMetrics names a counter's family without _total")
	}
	mirrored := func(body string) (out []string) {
		for line := range strings.SplitSeq(body, "\n") {
			if strings.HasPrefix(line, "kstreams_store_") || strings.HasPrefix(line, "rocksdb_") {
				out = append(out, line)
			}
		}
		return out
	}
	if a, b := mirrored(text), mirrored(open); !slices.Equal(a, b) || len(a) < 50 {
		t.Errorf("%d samples as text, %d as OpenMetrics, and they differ", len(a), len(b))
	}
	if zipped := mirrored(scrape(t, cfg, "Accept-Encoding", "gzip")); !slices.Equal(zipped, mirrored(text)) {
		t.Error("compressed, the samples differ")
	}
}

// TestFamiliesOnce: each metric is one block with one HELP and one TYPE, and
// none is empty: OpenMetrics demands it.
func TestFamiliesOnce(t *testing.T) {
	t.Parallel()
	body := scrape(t, config(1, picture(t, fixture.Unpack(t, "3.9.1", "corrupt-alos-manifest-deleted"))))
	seen := map[string]bool{}
	current := ""
	for line := range strings.SplitSeq(strings.TrimSuffix(body, "\n"), "\n") {
		f := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "# HELP "):
			if seen[f[2]] {
				t.Errorf("%s comes twice", f[2])
			}
			seen[f[2]], current = true, f[2]
		case strings.HasPrefix(line, "# TYPE "):
			if f[2] != current {
				t.Errorf("TYPE of %s below HELP of %s", f[2], current)
			}
		default:
			if !strings.HasPrefix(line, current) {
				t.Errorf("a sample in the block of %s: %s", current, line)
			}
		}
	}
	if seen["rocksdb_wal_last_write_timestamp_seconds"] {
		t.Error("a family without samples is announced")
	}
}

// TestTooManyScrapes: a fifth at the same time is turned away, and a place is
// free again after each.
func TestTooManyScrapes(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	inside := make(chan struct{}, 10)
	cfg := config(1, nil)
	cfg.Source = func() *probe.Snapshot { inside <- struct{}{}; <-release; return nil }
	h := metrics.Handler(cfg)
	codes := make(chan int, 10)
	ask := func() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		codes <- w.Code
	}
	for range 4 {
		go ask()
		<-inside
	}
	ask()
	if c := <-codes; c != http.StatusServiceUnavailable {
		t.Errorf("the fifth scrape at once: %d, want 503", c)
	}
	close(release)
	for range 4 {
		if c := <-codes; c != http.StatusOK {
			t.Errorf("a scrape: %d", c)
		}
	}
	ask()
	if c := <-codes; c != http.StatusOK {
		t.Errorf("a later scrape: %d", c)
	}
}

// BenchmarkScrape renders 1,000 stores, most with all that files give.
func BenchmarkScrape(b *testing.B) {
	dirs := []*store.StateDir{store.Scan(volume.New(volume.OS()), manystores.Make(b, 1000), nil)}
	cfg := config(1, &probe.Snapshot{Mode: probe.Inotify, StateDirs: dirs, Judgement: judge.Picture(dirs)})
	for _, encoding := range []string{"identity", "gzip"} {
		b.Run(encoding, func(b *testing.B) {
			h := metrics.Handler(cfg)
			b.ReportAllocs()
			var used syscall.Rusage
			usage := func() time.Duration {
				if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
					b.Fatal(err)
				}
				return time.Duration(used.Utime.Nano() + used.Stime.Nano())
			}
			begun := usage()
			b.ResetTimer()
			n := 0
			for range b.N {
				req := httptest.NewRequest(http.MethodGet, "/metrics", nil)
				req.Header.Set("Accept-Encoding", encoding)
				w := &counter{header: http.Header{}}
				h.ServeHTTP(w, req)
				n = w.bytes
			}
			b.ReportMetric(float64(usage()-begun)/float64(b.N)/1e6, "ms-cpu")
			b.ReportMetric(float64(n), "bytes")
		})
	}
}

// counter is a ResponseWriter that only counts.
type counter struct {
	header http.Header
	bytes  int
}

func (c *counter) Header() http.Header         { return c.header }
func (c *counter) WriteHeader(int)             {}
func (c *counter) Write(b []byte) (int, error) { c.bytes += len(b); return len(b), nil }
