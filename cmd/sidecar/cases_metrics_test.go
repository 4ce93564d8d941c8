package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"streams-sidecar/internal/probe"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
	"streams-sidecar/internal/volume/volumetest"
	"streams-sidecar/test/fixture"
	"streams-sidecar/test/manystores"
)

// D04: the device fails: every read gives EIO. That is said, says nothing about
// damage, and takes nothing else down.
func TestCaseD04(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	fake := volumetest.New(t, volume.OS())
	kv := filepath.Join(dir, "alos391", "1_0", "rocksdb", "kv")
	fake.Fail(volumetest.Read, filepath.Join(kv, "..."), syscall.EIO)
	fake.ReadOnly("...")
	s := store.Scan(volume.New(fake), dir, nil)
	if s.Layout.Usage == nil || !s.Layout.Usage.ReadOnly {
		t.Error("a read-only file system does not show")
	}
	s.Stores(func(_ *store.Application, task *store.Task, st *store.Store) {
		hit := task.Layout.ID == "1_0" && st.Name == "kv"
		got := codes(st.Findings)
		if hit && (!strings.Contains(got, "io-error") || st.Sound || st.Up) {
			t.Errorf("the store on the failing device: %s, sound %v, up %v", got, st.Sound, st.Up)
		}
		if !hit && (got != "" || !st.Up) {
			t.Errorf("%s %s: %s", task.Layout.ID, st.Name, got)
		}
	})
}

// G08: the documented list of series of a real store, with their types; values
// that a second process cannot know are not among them.
func TestCaseG08(t *testing.T) {
	t.Parallel()
	a := startAgent(t, "--state-dir", fixture.Unpack(t, "4.4.0", "closed-clean"))
	a.until(t, "the first verification", func() bool {
		return strings.Contains(a.get(t, a.metrics), `kstreams_store_verified_timestamp_seconds{application_id="alos440",depth="quick",store="win",task_id="1_0"}`)
	})
	text := a.get(t, a.metrics)
	var got []string
	for _, m := range regexp.MustCompile(`(?m)^((?:rocksdb|kstreams_store)_\w+)\{[^}]*store="win"[^}]*task_id="1_0"`).FindAllStringSubmatch(text, -1) {
		if kind := regexp.MustCompile(`(?m)^# TYPE ` + m[1] + ` (\w+)$`).FindStringSubmatch(text); kind != nil && !slices.Contains(got, m[1]+" "+kind[1]) {
			got = append(got, m[1]+" "+kind[1])
		}
	}
	want := []string{
		"kstreams_store_changelog_offset gauge", "kstreams_store_manifest_lag_seconds gauge", "kstreams_store_open gauge", "kstreams_store_segments gauge",
		"kstreams_store_size_bytes gauge", "kstreams_store_up gauge", "kstreams_store_verdict gauge", "kstreams_store_verified_timestamp_seconds gauge", "rocksdb_compaction_read_bytes_total counter",
		"rocksdb_compaction_written_bytes_total counter", "rocksdb_compactions_total counter", "rocksdb_flushed_bytes_total counter",
		"rocksdb_flushes_total counter", "rocksdb_latest_sequence_number gauge", "rocksdb_live_sst_files gauge",
		"rocksdb_live_sst_files_size_bytes gauge", "rocksdb_num_files_at_level gauge", "rocksdb_wal_enabled gauge",
		"rocksdb_wal_files gauge", "rocksdb_wal_size_bytes gauge",
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("series of a window store\n got %q\nwant %q", got, want)
	}
	for _, no := range []string{"memtable", "mem_table", "block_cache", "stall"} {
		if strings.Contains(text, "rocksdb_"+no) {
			t.Errorf("a series of what only the application can know: %s", no)
		}
	}
}

// G09: segments and column families are summed into their store: the number of
// series does not grow with them, and those of what vanished are gone.
func TestCaseG09(t *testing.T) {
	t.Parallel()
	src := fixture.Unpack(t, "4.4.0", "closed-clean")
	dir := t.TempDir()
	const tasks, segments = 24, 60
	win := filepath.Join(src, "alos440", "1_0", "win", "win.1796062800000")
	for task := range tasks {
		for segment := range segments {
			to := filepath.Join(dir, "app", fmt.Sprintf("0_%d", task), "win", fmt.Sprintf("win.%d", 1796062800000+300000*segment))
			if err := os.CopyFS(to, os.DirFS(win)); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The same finding in ten segments, those that are verified first, is one series.
	const marked = 10
	for segment := range marked {
		write(t, filepath.Join(dir, "app", "0_0", "win", fmt.Sprintf("win.%d", 1796062800000+300000*segment), "LOG"),
			"2026/11/30-18:10:34.000000 1 [ERROR] [db/x.cc:1] Waiting after background compaction error: Corruption: x\n")
	}
	a := startAgent(t, "--state-dir", dir, "--rescan-interval=1s")
	series := regexp.MustCompile(`(?m)^(?:rocksdb|kstreams)_\w+\{.*task_id=`)
	n := len(series.FindAllString(a.get(t, a.metrics), -1))
	if n == 0 || n > tasks*seriesPerStore {
		t.Errorf("%d series for %d stores of %d segments, want at most %d for each store", n, tasks, segments, seriesPerStore)
	}
	finding := fmt.Sprintf(`kstreams_store_finding{application_id="app",code="log-error",severity="warning",store="win",task_id="0_0"} %d`, marked)
	a.untilWithin(t, time.Minute, "the finding in ten segments", func() bool { return strings.Contains(a.get(t, a.metrics), finding) })
	if more := len(series.FindAllString(a.get(t, a.metrics), -1)); more > n+2*tasks+1 { // when each was verified, and the finding
		t.Errorf("%d series with one kind of finding, %d without", more, n)
	}
	if !strings.Contains(a.get(t, a.metrics), fmt.Sprintf(`kstreams_store_segments{application_id="app",store="win",task_id="0_7"} %d`, segments)) {
		t.Error("the segments are not counted")
	}
	if err := os.RemoveAll(filepath.Join(dir, "app", "0_7")); err != nil {
		t.Fatal(err)
	}
	a.until(t, "the end of a task's series", func() bool { return !strings.Contains(a.get(t, a.metrics), `task_id="0_7"`) })
}

// seriesPerStore is the bound in docs/metrics.md, for one changelog partition and no
// finding.
const seriesPerStore = 45

// TestSeriesBoundIsWrittenDown: the bound in the page is the one that is tested, and
// what the page lists adds up to it.
func TestSeriesBoundIsWrittenDown(t *testing.T) {
	t.Parallel()
	page := string(load(t, filepath.Join("..", "..", "docs", "metrics.md")))
	if !strings.Contains(page, fmt.Sprintf("at most %d series", seriesPerStore)) {
		t.Errorf("docs/metrics.md does not say %d", seriesPerStore)
	}
	sum := 0
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| store(, [^|]*)? \\|").FindAllStringSubmatch(page, -1) {
		switch labels := m[2]; {
		case m[1] == "kstreams_store_finding":
		case labels == "", strings.Contains(labels, "`topic`"):
			sum++
		case strings.Contains(labels, "`level`"):
			sum += 7
		default:
			sum += strings.Count(labels, "`")/2 - 1 // the values
		}
	}
	if sum != seriesPerStore {
		t.Errorf("the metrics in the page have %d series for a store, want %d", sum, seriesPerStore)
	}
}

// G10: a damaged store and a folder that is no store do not touch the others.
func TestCaseG10(t *testing.T) {
	t.Parallel()
	eachEra(t, func(t *testing.T, d damaged) {
		dir := t.TempDir()
		rocks := mkdir(t, dir, "app", "0_0", "rocksdb")
		write(t, filepath.Join(dir, "app", ".lock"), "")
		if !d.offsetsCF {
			write(t, filepath.Join(dir, "app", "0_0", ".checkpoint"), "0\n0\n")
		}
		good := []string{"s1", "s2", "s3", "s4", "s5"}
		for _, name := range append([]string{"bad"}, good...) {
			must(t, os.CopyFS(filepath.Join(rocks, name), os.DirFS(d.path(""))))
		}
		write(t, filepath.Join(rocks, "bad", "MANIFEST-000005"), "garbage")
		write(t, filepath.Join(mkdir(t, rocks, "notastore"), "readme.txt"), "hello")
		a := startAgent(t, "--state-dir", dir)
		set := func(store string) map[string]string { // the series of a store by name and other labels
			out := map[string]string{}
			for _, m := range regexp.MustCompile(`(?m)^(\w+\{application_id="app"[^}]*),store="`+store+`"([^}]*\}) (\S+)$`).FindAllStringSubmatch(a.get(t, a.metrics), -1) {
				out[m[1]+m[2]] = m[3]
			}
			return out
		}
		verified := `kstreams_store_verified_timestamp_seconds{application_id="app",depth="quick",task_id="0_0"}`
		for _, name := range append([]string{"bad"}, good...) {
			a.until(t, "the verification of "+name, func() bool { return set(name)[verified] != "" })
		}
		resp, err := http.Get(a.metrics) //nolint:noctx // bounded by the test
		must(t, err)
		must(t, resp.Body.Close())
		if resp.StatusCode != http.StatusOK {
			t.Errorf("status %d", resp.StatusCode)
		}
		first := set("s1")
		delete(first, verified)
		if len(first) < 25 || first[`kstreams_store_up{application_id="app",task_id="0_0"}`] != "1" || first[`kstreams_store_verdict{application_id="app",task_id="0_0",verdict="ok"}`] != "1" {
			t.Errorf("series of s1: %v", first)
		}
		for _, name := range good[1:] {
			other := set(name)
			delete(other, verified)
			if diff := cmp.Diff(first, other); diff != "" {
				t.Errorf("series (-s1 +%s):\n%s", name, diff)
			}
		}
		bad := set("bad")
		for series, want := range map[string]string{
			`kstreams_store_up{application_id="app",task_id="0_0"}`:                                                    "0",
			`kstreams_store_verdict{application_id="app",task_id="0_0",verdict="damaged"}`:                             "1",
			`kstreams_store_verdict{application_id="app",task_id="0_0",verdict="ok"}`:                                  "0",
			`kstreams_store_finding{application_id="app",code="manifest-unparseable",severity="damage",task_id="0_0"}`: "1",
			`kstreams_store_finding{application_id="app",code="manifest-tail-cut",severity="warning",task_id="0_0"}`:   "",
			`rocksdb_live_sst_files{application_id="app",task_id="0_0"}`:                                               "",
			`rocksdb_latest_sequence_number{application_id="app",task_id="0_0"}`:                                       "",
		} {
			if bad[series] != want {
				t.Errorf("bad: %s %q, want %q", series, bad[series], want)
			}
		}
		want := said{2, []string{"app=damaged", "app/0_0=damaged", "app/0_0/bad=damaged", "app/0_0/notastore=empty"}, []string{
			"app/0_0/bad manifest-unparseable damage app/0_0/rocksdb/bad/MANIFEST-000005@0: edits that tell the log number, the next file number, the last sequence; 0 edits that do not, and a partial tail"}}
		for _, name := range good {
			want.Verdicts = append(want.Verdicts, "app/0_0/"+name+"=ok")
		}
		expectBoth(t, want, dir)
	})
}

// G06: stock Kafka Streams writes no write-ahead log and sets the level of
// RocksDB's own log to ERROR: both are empty, and that is no trouble.
func TestCaseG06(t *testing.T) {
	t.Parallel()
	eachEra(t, func(t *testing.T, d damaged) {
		expectBoth(t, d.of(0, "ok", false), d.dir)
		labels := fmt.Sprintf(`application_id=%q,%%sstore="kv",task_id="0_0"`, d.app)
		a := startAgent(t, "--state-dir", d.dir)
		text := a.get(t, a.metrics)
		wantSeries(t, text, "rocksdb_wal_size_bytes{"+fmt.Sprintf(labels, "")+"} 0")
		wantSeries(t, text, "rocksdb_wal_enabled{"+fmt.Sprintf(labels, "")+"} 0")
		wantSeries(t, text, "kstreams_store_size_bytes{"+fmt.Sprintf(labels, `kind="log",`)+"} 0")
		for _, no := range []string{"_finding{", "background_error", "rocksdb_stall", "wal_last_write", "log_error"} {
			if strings.Contains(text, no) {
				t.Errorf("%s, which nothing tells, in\n%s", no, text)
			}
		}
		// A line at that level is one, wherever it is: the log of this open or of the
		// one before, below a stack of empty ones.
		const line = "2026/11/30-18:10:34.500000 7f1b [ERROR] [/db_impl/db_impl_compaction_flush.cc:3119] Waiting after background flush error: IO error: No space left on device: While appending to file: /s/000020.sst: No space left on device\n"
		for _, name := range []string{"LOG", "LOG.old.1796061034000000"} {
			for i := range 40 {
				write(t, d.path(fmt.Sprintf("LOG.old.17960620%08d", i)), "")
			}
			write(t, d.path(name), line)
			at := time.Date(2026, 11, 30, 18, 10, 34, 500e6, time.UTC)
			must(t, os.Chtimes(d.path(name), at, at))
			want := d.of(1, "ok", false, d.line("log-error", "warning", name+"@0", "; 1 line of level ERROR, 2026-11-30T18:10:34Z (no space): "+strings.TrimSpace(line[strings.Index(line, "Waiting"):])))
			expectBoth(t, want, d.dir)
			write(t, d.path(name), strings.Repeat(line, 3))
			must(t, os.Chtimes(d.path(name), at, at))
			want.Findings[0] = strings.NewReplacer("@0", fmt.Sprintf("@%d", 2*len(line)), "1 line of level ERROR,", "3 lines of level ERROR, the last one").Replace(want.Findings[0])
			expectBoth(t, want, d.dir)
			finding := "kstreams_store_finding{" + fmt.Sprintf(labels, `code="log-error",severity="warning",`) + "} 1"
			b := startAgent(t, "--state-dir", d.dir)
			b.until(t, "the line", func() bool { return strings.Contains(b.get(t, b.metrics), finding) })
			must(t, os.Remove(d.path(name)))
		}
		// Lines of other levels are none: somebody has set the level to INFO.
		write(t, d.path("LOG"), "2026/11/30-18:10:34.500000 7f1b [WARN] [x.cc:1] slow\n2026/11/30-18:10:34.600000 7f1b [x.cc:2] fine [ERROR] in a text\n")
		expectBoth(t, d.of(0, "ok", false), d.dir)
	})
	for _, version := range []string{"2.8.2", "3.9.1", "4.4.0"} {
		expectNone(t, fixture.Unpack(t, version, "closed-infolog"))
	}
}

func expectNone(t *testing.T, dir string) {
	t.Helper()
	for _, args := range [][]string{{dir}, {"--deep", dir}} {
		if code, doc := verifyJSON(t, args...); code != 0 || len(all(code, doc).Findings) > 0 {
			t.Errorf("verify %q: %+v", args, all(code, doc))
		}
	}
}

// TestBusyWAL: a WAL that is appended to as fast as 20,000 times a second beside
// 200 quiet stores is right within two seconds. What the agent takes meanwhile
// is for the benchmarks.
func TestBusyWAL(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	a := startAgent(t, "--state-dir", dir)
	wal, err := os.OpenFile(filepath.Join(dir, "alos391", "1_0", "rocksdb", "kv", "000004.log"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = wal.Close() }()
	size := 0
	for begun := time.Now(); time.Since(begun) < 2*time.Second; {
		for range 200 {
			n, err := wal.Write([]byte("twenty bytes of WAL."))
			if err != nil {
				t.Fatal(err)
			}
			size += n
		}
		time.Sleep(10 * time.Millisecond)
	}
	want := fmt.Sprintf(`rocksdb_wal_size_bytes{application_id="alos391",store="kv",task_id="1_0"} %d`, size)
	begun := time.Now()
	a.until(t, "the size of the WAL", func() bool { return strings.Contains(a.get(t, a.metrics), want) })
	if took := time.Since(begun); took > 6*time.Second { // two seconds, on a machine that is not loaded
		t.Errorf("the size was right after %v", took)
	}
}

// TestHoldsNoDeletedFile: while everything is replaced again and again, the
// agent never keeps a deleted file of the state directory open.
func TestHoldsNoDeletedFile(t *testing.T) {
	dir := fixture.Unpack(t, "4.4.0", "closed-clean")
	src := fixture.Unpack(t, "4.4.0", "closed-clean")
	a := startAgent(t, "--state-dir", dir, "--rescan-interval=1s")
	kept := map[string]int{}
	for range 40 {
		task := filepath.Join(dir, "alos440", "1_0")
		if err := os.RemoveAll(task); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(task, os.DirFS(filepath.Join(src, "alos440", "1_0"))); err != nil {
			t.Fatal(err)
		}
		a.get(t, a.metrics)
		open := map[string]bool{}
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		for _, fd := range fds {
			if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(to, dir) && strings.HasSuffix(to, " (deleted)") {
				open[to] = true
			}
		}
		for f := range kept {
			if !open[f] {
				delete(kept, f)
			}
		}
		for f := range open {
			if kept[f]++; kept[f] > 3 { // a look is over long before
				t.Errorf("%s stays open", f)
			}
		}
	}
}

// BenchmarkBusyWAL is what the agent takes while a WAL is appended to 20,000
// times a second beside 200 quiet stores: file events first, then polling.
func BenchmarkBusyWAL(b *testing.B) {
	exe, dir := built(b), manystores.Make(b, 200)
	wal, err := os.OpenFile(filepath.Join(dir, "many", "0_0", "rocksdb", "store-0", "000004.log"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = wal.Close() }()
	for range b.N {
		p := runBuilt(b, exe, "run", "--state-dir", dir, "--log-level=error", "--stop-timeout=0",
			"--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--hook-listen=127.0.0.1:0")
		before, begun, appends := p.cpu(b), time.Now(), 0
		for time.Since(begun) < 30*time.Second {
			for range 200 {
				if _, err := wal.Write([]byte("x")); err != nil {
					b.Fatal(err)
				}
				appends++
			}
			time.Sleep(time.Until(begun.Add(time.Duration(appends) * 50 * time.Microsecond)))
		}
		took := time.Since(begun)
		b.ReportMetric(100*float64(p.cpu(b)-before)/float64(took), "%-of-a-core")
		b.ReportMetric(float64(appends)/took.Seconds(), "appends/s")
		p.stop(b)
	}
}

// Muting and polling are visible: nothing of it is hidden from an operator.
func TestModesAreExported(t *testing.T) {
	t.Parallel()
	a := startAgent(t, "--state-dir", fixture.Unpack(t, "3.9.1", "closed-clean"))
	text := a.get(t, a.metrics)
	for _, m := range []probe.Mode{probe.Inotify, probe.Poll} {
		if !strings.Contains(text, fmt.Sprintf(`kstreams_sidecar_watcher_mode{mode=%q} `, string(m))) {
			t.Errorf("no mode %s", m)
		}
	}
	if !strings.Contains(text, "\nkstreams_sidecar_muted_directories 0\n") {
		t.Error("no kstreams_sidecar_muted_directories")
	}
}
