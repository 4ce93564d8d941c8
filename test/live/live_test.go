//go:build streams

package live

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sys/unix"

	"streams-sidecar/test/streams"
)

// patience is how long what must come may take.
const patience = 90 * time.Second

// duration is how long each version is watched under load: half a minute, or
// $LIVE, such as 5m.
func duration(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("LIVE")
	if text == "" {
		return 30 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestLive: the agent beside an application under steady load, with flushes,
// compactions, new segments, a restart, and a store that is deleted.
func TestLive(t *testing.T) {
	exe := build(t)
	lab := streams.Start(t)
	for _, version := range []string{"3.9.1", "4.4.0"} {
		t.Run(version, func(t *testing.T) {
			app := lab.App(t, version, streams.Options{
				Stores: streams.Full(version), InfoLog: true, WriteBuffer: 64 << 10,
				Commit: 200 * time.Millisecond, Keys: 3000, ValueBytes: 100, Spread: streams.Retention * 4 / 5,
			})
			s := start(t, exe, app.Dir)
			app.ProduceGlobal(300)
			app.Produce(3000) // over several segments
			app.Open()
			app.WaitRunning()
			s.until("the application runs", func() bool { return s.value("kstreams_app_running", nil) == 1 })

			load := app.Load(400)
			begun := time.Now()
			pinned := &pins{}
			for time.Since(begun) < duration(t) {
				time.Sleep(2 * time.Second)
				s.expectUp()
				pinned.look(s, app.Dir)
				s.events(app, "flush_finished")
				s.events(app, "compaction_finished")
			}
			load.Stop()
			if pinned.children == 0 {
				t.Error("the agent had no child, so that nothing is proved of what it holds")
			}
			s.compare(app)

			app.CloseClean()
			s.until("the end of the application", func() bool { return s.value("kstreams_app_running", nil) == 0 })
			s.compareOffsets(app)
			s.compareFiles(app)

			victim := filepath.Join(app.Dir, app.ID, task(t, app), "rocksdb", "plain")
			// At once: while its files go one after the other, it is a store
			// whose MANIFEST is missing, and the agent says so.
			if err := os.Rename(victim, filepath.Join(t.TempDir(), "plain")); err != nil {
				t.Fatal(err)
			}
			labels := map[string]string{"store": "plain", "task_id": filepath.Base(filepath.Dir(filepath.Dir(victim)))}
			s.until("the end of the deleted store's series", func() bool { return !s.has("kstreams_store_up", labels) })

			app.Open()
			app.WaitRunning()
			s.until("the deleted store again", func() bool { return s.has("kstreams_store_up", labels) })
			load = app.Load(400)
			time.Sleep(5 * time.Second)
			load.Stop()
			s.expectUp()
			s.compareFiles(app)
			s.hookAnswersInTime(app)
			s.expectAsked()
			s.stop()
			s.expectHarmless(app.Dir)
			s.expectQuiet()
		})
	}
}

// task is one with stores of its own.
func task(t *testing.T, app *streams.App) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(app.Dir, app.ID, "*_*", "rocksdb", "plain"))
	if err != nil || len(found) == 0 {
		t.Fatalf("no task in %s: %v", app.Dir, err)
	}
	return filepath.Base(filepath.Dir(filepath.Dir(found[0])))
}

// sidecar is a running agent.
type sidecar struct {
	t                    *testing.T
	metrics, admin, hook string
	// counted is how often each kind of event stood in the logs of each
	// database, those of segments that have expired too.
	counted map[string]map[string]int

	pid   int
	trace string // what strace has written
	log   *bytes.Buffer
	stop  func()
}

func build(t *testing.T) string {
	t.Helper()
	exe := filepath.Join(t.TempDir(), "sidecar")
	cmd := exec.Command("go", "build", "-trimpath", "-o", exe, "../../cmd/sidecar")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return exe
}

func start(t *testing.T, exe, dir string) *sidecar {
	t.Helper()
	s := &sidecar{t: t, trace: filepath.Join(t.TempDir(), "trace"), log: &bytes.Buffer{}}
	args := append(traced(s.trace), exe, "run", "--state-dir", dir, "--stop-timeout=0", "--prestop-timeout=60s", "--log-level=warn",
		"--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--hook-listen=127.0.0.1:0",
		"--engine", engine(t), "--engine-interval=1s")
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stderr = s.log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.pid = cmd.Process.Pid
	s.stop = sync.OnceFunc(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the agent ended: %v\n%s", err, s.log)
		}
	})
	t.Cleanup(s.stop)
	urls := map[string]string{}
	for lines := bufio.NewScanner(out); len(urls) < 3 && lines.Scan(); {
		f := strings.Fields(lines.Text())
		urls[f[0]] = f[1]
	}
	s.metrics, s.admin, s.hook = urls["metrics"], urls["admin"], urls["hook"]
	return s
}

func (s *sidecar) get(url string) string {
	s.t.Helper()
	resp, err := http.Get(url) //nolint:noctx // ends with the test
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: %d %v", url, resp.StatusCode, err)
	}
	return string(body)
}

func (s *sidecar) scrape() map[string]*dto.MetricFamily {
	s.t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	fs, err := parser.TextToMetricFamilies(strings.NewReader(s.get(s.metrics)))
	if err != nil {
		s.t.Fatal(err)
	}
	return fs
}

// values gives the samples of a metric with these labels, by their store.
func (s *sidecar) values(name string, labels map[string]string) map[string]float64 {
	s.t.Helper()
	out := map[string]float64{}
	for _, m := range s.scrape()[name].GetMetric() {
		has := map[string]string{}
		for _, l := range m.GetLabel() {
			has[l.GetName()] = l.GetValue()
		}
		match := true
		for k, v := range labels {
			match = match && has[k] == v
		}
		if match {
			out[has["store"]] += m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return out
}

func (s *sidecar) value(name string, labels map[string]string) float64 {
	s.t.Helper()
	sum := -1.0
	for _, v := range s.values(name, labels) {
		sum = max(sum, 0) + v
	}
	return sum
}

func (s *sidecar) has(name string, labels map[string]string) bool {
	s.t.Helper()
	return len(s.values(name, labels)) > 0
}

func (s *sidecar) until(what string, ok func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("%s: not seen within %v", what, patience)
		}
	}
}

// expectUp: every store up, and nothing found on a healthy application.
func (s *sidecar) expectUp() {
	s.t.Helper()
	for _, m := range s.scrape()["kstreams_store_up"].GetMetric() {
		if m.GetGauge().GetValue() != 1 {
			s.t.Errorf("not up: %v", m.GetLabel())
		}
	}
	if state := s.get(s.admin + "api/v1/state"); strings.Contains(state, `"severity":"warning"`) || strings.Contains(state, `"severity":"unreadable"`) {
		s.t.Errorf("a finding on a healthy application: %s", state)
	}
}

// same waits until what the agent says of each store is what somebody else
// says: on a running application both move, but without load they come to rest.
func (s *sidecar) same(what string, got, want func() map[string]float64) {
	s.t.Helper()
	s.like(what, got, want, func(a, b float64) bool { return a == b })
}

func (s *sidecar) like(what string, got, want func() map[string]float64, equal func(a, b float64) bool) {
	s.t.Helper()
	var g, w map[string]float64
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		if g, w = got(), want(); maps.EqualFunc(g, w, equal) && len(g) > 0 {
			return
		}
		if time.Now().After(deadline) {
			s.t.Errorf("%s\nthe agent %v\n  others %v", what, g, w)
			return
		}
	}
}

// compare holds the agent against the running application.
func (s *sidecar) compare(app *streams.App) {
	s.t.Helper()
	names := slices.Sorted(maps.Keys(app.Options.Stores))
	metric := func(name string) func() map[string]float64 {
		return func() map[string]float64 { return s.values(name, nil) }
	}
	s.same("bytes of live tables, and the application's own JMX", metric("rocksdb_live_sst_files_size_bytes"), func() map[string]float64 {
		out := map[string]float64{}
		for _, n := range names {
			out[n] = app.RocksDB(n, "live-sst-files-size")
		}
		return out
	})
	s.compareKeys(app, names)
	for metric, event := range map[string]string{"rocksdb_flushes_total": "flush_finished", "rocksdb_compactions_total": "compaction_finished"} {
		for _, segmented := range []bool{false, true} {
			of := func(all map[string]float64) map[string]float64 {
				maps.DeleteFunc(all, func(store string, _ float64) bool { return (store == "win" || store == "sess") != segmented })
				return all
			}
			s.like(metric+", and RocksDB's own log", func() map[string]float64 { return of(s.values(metric, nil)) },
				func() map[string]float64 { return of(s.events(app, event)) },
				// What the log of a segment says last before it expires, this test may
				// not have read.
				func(a, b float64) bool { return a == b || segmented && a > b && a < b*1.01+2 })
		}
	}
	flushes := s.values("rocksdb_flushes_total", nil)
	compactions := s.values("rocksdb_compactions_total", nil)
	if flushes["kv"] < 4 || compactions["kv"] < 1 || flushes["win"] < 4 {
		s.t.Errorf("too little happened to compare: %v flushes, %v compactions", flushes, compactions)
	}
	for store, v := range s.values("rocksdb_wal_enabled", nil) {
		if v != 0 {
			s.t.Errorf("the WAL of %s is said to be on", store)
		}
	}
	for store, v := range s.values("rocksdb_wal_size_bytes", nil) {
		if v != 0 {
			s.t.Errorf("%s has %v bytes of WAL", store, v)
		}
	}
	s.compareFiles(app)
}

// events counts one kind of event in RocksDB's logs of each store.
func (s *sidecar) events(app *streams.App, kind string) map[string]float64 {
	s.t.Helper()
	now := map[string]int{} // by store and database
	s.walk(app, func(store, path string, _ int64) {
		if !strings.HasPrefix(filepath.Base(path), "LOG") {
			return
		}
		data, err := os.ReadFile(path)
		if os.IsNotExist(err) { // the segment has expired
			return
		}
		if err != nil {
			s.t.Fatal(err)
		}
		now[store+" "+filepath.Dir(path)] += strings.Count(string(data), fmt.Sprintf(`"event": %q`, kind))
	})
	if s.counted == nil {
		s.counted = map[string]map[string]int{}
	}
	if s.counted[kind] == nil {
		s.counted[kind] = map[string]int{}
	}
	out := map[string]float64{}
	maps.Copy(s.counted[kind], now)
	for key, n := range s.counted[kind] {
		store, _, _ := strings.Cut(key, " ")
		out[store] += float64(n)
	}
	return out
}

// walk calls f for each file of each store's databases.
func (s *sidecar) walk(app *streams.App, f func(store, path string, size int64)) {
	s.t.Helper()
	root := filepath.Join(app.Dir, app.ID)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		part := strings.Split(rel, string(filepath.Separator))
		if len(part) < 4 { // of a task
			return nil
		}
		store := part[1]
		if store == "rocksdb" {
			store = part[2]
		}
		info, err := d.Info()
		if os.IsNotExist(err) {
			return nil
		}
		f(store, path, info.Size())
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		s.t.Fatal(err)
	}
}

// compareFiles holds sizes against what du would say.
func (s *sidecar) compareFiles(app *streams.App) {
	s.t.Helper()
	s.same("bytes on disk", func() map[string]float64 { return s.values("kstreams_store_size_bytes", nil) }, func() map[string]float64 {
		out := map[string]float64{}
		s.walk(app, func(store, _ string, size int64) { out[store] += float64(size) })
		return out
	})
}

// compareOffsets holds the durable offsets of a closed application against the
// ends of its changelogs at the broker.
func (s *sidecar) compareOffsets(app *streams.App) {
	s.t.Helper()
	ends := app.Ends()
	s.until("the offsets of the close", func() bool {
		for _, m := range s.scrape()["kstreams_store_changelog_offset"].GetMetric() {
			l := map[string]string{}
			for _, x := range m.GetLabel() {
				l[x.GetName()] = x.GetValue()
			}
			want, ok := ends[l["topic"]+"-"+l["partition"]]
			if l["task_id"] != "global" { // which has the offset of the next record
				want--
			}
			if ok && int64(m.GetGauge().GetValue()) != want {
				return false
			}
		}
		return true
	})
	seen := 0
	for _, m := range s.scrape()["kstreams_store_changelog_offset"].GetMetric() {
		seen += len(m.GetLabel()) / 5
	}
	if seen < 8 { // four logged stores at least, of two partitions
		s.t.Errorf("%d offsets, want at least 8", seen)
	}
}

// hookAnswersInTime: the application is closed while a hook waits. The answer
// comes at most 50 ms after the last release of .lock.
func (s *sidecar) hookAnswersInTime(app *streams.App) {
	s.t.Helper()
	type answer struct {
		at   time.Time
		body string
	}
	answers := make(chan answer, 1)
	go func() { body := s.get(s.hook + "?wait=1"); answers <- answer{time.Now(), body} }()
	released := make(chan time.Time, 1)
	go func() {
		for held(s.t, filepath.Join(app.Dir, app.ID, ".lock")) {
			time.Sleep(500 * time.Microsecond)
		}
		released <- time.Now()
	}()
	time.Sleep(300 * time.Millisecond)
	select {
	case a := <-answers:
		s.t.Fatalf("answered before the close: %s", a.body)
	default:
	}
	app.CloseClean()
	at, a := <-released, <-answers
	var body struct {
		Outcome string `json:"outcome"`
	}
	if err := json.Unmarshal([]byte(a.body), &body); err != nil || body.Outcome != "closed-clean" {
		s.t.Errorf("answer %s (%v), want closed-clean", a.body, err)
	}
	late := a.at.Sub(at)
	s.t.Logf("answered %v after the last release", late.Round(100*time.Microsecond))
	if limit := 50 * time.Millisecond; late > limit && os.Getenv("CI") == "" {
		s.t.Errorf("answered %v after the last release, want at most %v", late, limit)
	}
}

// held asks a lock in this process, which holds none itself.
func held(t *testing.T, path string) bool {
	f, err := os.Open(path)
	if err != nil {
		t.Error(err)
		return false
	}
	defer func() { _ = f.Close() }()
	l := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &l); err != nil {
		t.Error(strconv.Quote(path), err)
		return false
	}
	return l.Type != unix.F_UNLCK
}
