package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

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
	a := startAgent(t, "--state-dir", dir, "--rescan-interval=1s")
	series := regexp.MustCompile(`(?m)^(?:rocksdb|kstreams)_\w+\{.*task_id=`)
	n := len(series.FindAllString(a.get(t, a.metrics), -1))
	if n == 0 || n > tasks*40 {
		t.Errorf("%d series for %d stores of %d segments, want at most 40 for each store", n, tasks, segments)
	}
	if !strings.Contains(a.get(t, a.metrics), fmt.Sprintf(`kstreams_store_segments{application_id="app",store="win",task_id="0_7"} %d`, segments)) {
		t.Error("the segments are not counted")
	}
	if err := os.RemoveAll(filepath.Join(dir, "app", "0_7")); err != nil {
		t.Fatal(err)
	}
	a.until(t, "the end of a task's series", func() bool { return !strings.Contains(a.get(t, a.metrics), `task_id="0_7"`) })
}

// G10: a damaged store and a folder that is no store do not touch the others.
func TestCaseG10(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	rocks := filepath.Join(dir, "alos391", "1_0", "rocksdb")
	write(t, filepath.Join(rocks, "kv", "MANIFEST-000005"), "garbage")
	write(t, filepath.Join(mkdir(t, rocks, "notastore"), "readme.txt"), "hello")
	a := startAgent(t, "--state-dir", dir)
	text := a.get(t, a.metrics)
	up := func(task, name string) string {
		m := regexp.MustCompile(`kstreams_store_up\{application_id="alos391",store="` + name + `",task_id="` + task + `"\} (\d)`).FindStringSubmatch(text)
		if m == nil {
			return "absent"
		}
		return m[1]
	}
	for _, s := range []struct{ task, name, want string }{
		{"1_0", "kv", "0"}, {"1_0", "ver", "1"}, {"1_0", "win", "1"}, {"1_0", "sess", "1"}, {"1_1", "kv", "1"}, {"global", "gtab", "1"},
	} {
		if got := up(s.task, s.name); got != s.want {
			t.Errorf("up of %s %s is %s, want %s", s.task, s.name, got, s.want)
		}
	}
	if strings.Contains(text, `rocksdb_live_sst_files{application_id="alos391",store="kv",task_id="1_0"}`) {
		t.Error("figures of a MANIFEST that could not be parsed")
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
