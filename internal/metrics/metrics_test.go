package metrics_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"streams-sidecar/internal/metrics"
	"streams-sidecar/internal/probe"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
	"streams-sidecar/test/fixture"
)

func picture(t *testing.T, dirs ...string) *probe.Snapshot {
	t.Helper()
	s := &probe.Snapshot{Mode: probe.Inotify, ScanTook: 3 * time.Second}
	for _, d := range dirs {
		s.StateDirs = append(s.StateDirs, store.Scan(volume.New(volume.OS()), d, nil))
	}
	return s
}

func registry(dirs int, s *probe.Snapshot) *prometheus.Registry {
	return metrics.NewRegistry("v1", "go1", dirs, func() *probe.Snapshot { return s },
		func() metrics.Prestop {
			return metrics.Prestop{Requests: map[string]uint64{"observed": 2, "released": 0}, Waited: 1500 * time.Millisecond, Any: true}
		})
}

func gather(t *testing.T, reg *prometheus.Registry) map[string]*dto.MetricFamily {
	t.Helper()
	fs, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*dto.MetricFamily{}
	for _, f := range fs {
		out[f.GetName()] = f
	}
	return out
}

// series gives "name{labels} value" of our own metrics, sorted.
func series(t *testing.T, reg *prometheus.Registry) []string {
	t.Helper()
	var out []string
	for name, f := range gather(t, reg) {
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
		`kstreams_store_up{L,store="kv",task_id="1_0"} 1`,
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
	for _, s := range series(t, registry(1, picture(t, dir))) {
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
	got := series(t, registry(1, picture(t, dir)))
	for _, want := range []string{
		`kstreams_app_running{application_id="alos391"} 0`,
		`kstreams_task_checkpoint_present{application_id="alos391",task_id="1_1"} 1`,
		`kstreams_task_checkpoint_present{application_id="alos391",task_id="global"} 0`,
		`kstreams_store_segments{application_id="alos391",store="win",task_id="1_0"} 2`,
		`kstreams_prestop_requests_total{outcome="observed"} 2`,
		`kstreams_prestop_requests_total{outcome="released"} 0`,
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
	got := series(t, registry(2, picture(t, a, b)))
	for _, dir := range []string{a, b} {
		if want := fmt.Sprintf(`kstreams_app_running{application_id="alos391",state_dir=%q} 0`, dir); !slices.Contains(got, want) {
			t.Errorf("no series %s", want)
		}
	}
}

// TestUnknownIsAbsent: what could not be read has no value.
func TestUnknownIsAbsent(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "corrupt-alos-manifest-deleted")
	got := series(t, registry(1, picture(t, dir)))
	up := `kstreams_store_up{application_id="calos391",store="kv",task_id="0_0"} 0`
	if !slices.Contains(got, up) {
		t.Errorf("no series %s", up)
	}
	for _, s := range got {
		if strings.Contains(s, `store="kv"`) && strings.HasPrefix(s, "rocksdb_") && !strings.HasPrefix(s, "rocksdb_wal_") {
			t.Errorf("a value of a store that could not be read: %s", s)
		}
	}
	if len(series(t, registry(1, nil))) != 4 { // build info and the gate
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
	for _, m := range gather(t, registry(1, picture(t, dir)))["kstreams_app_running"].GetMetric() {
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
	for _, f := range gather(t, registry(1, picture(t, dir, fixture.Unpack(t, "3.9.1", "closed-clean")))) {
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
	ch := make(chan *prometheus.Desc, 1000)
	registry(1, nil).Describe(ch)
	close(ch)
	var exported []string
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
