package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"streams-sidecar/internal/shutdown"
	"streams-sidecar/test/fixture"
	"streams-sidecar/test/holder"
)

// application plays Kafka Streams in a state directory with one application: it
// holds its locks, and changes the files as that does.
type application struct {
	t   *testing.T
	dir string   // of the application
	dbs []string // the directories of its databases
	*holder.Holder
}

// newApplication unpacks one that has ended an hour ago; from 4.3 on cleanly, as
// the sidecar remembers: what a start leaves behind depends on that.
func newApplication(t *testing.T, version, name string) (stateDir string, a *application) {
	t.Helper()
	stateDir = fixture.Unpack(t, version, name)
	locks, err := filepath.Glob(filepath.Join(stateDir, "*", ".lock"))
	if err != nil || len(locks) != 1 {
		t.Fatal(locks, err)
	}
	a = &application{t: t, dir: filepath.Dir(locks[0])}
	old := time.Now().Add(-time.Hour)
	a.must(filepath.WalkDir(stateDir, func(path string, _ os.DirEntry, err error) error {
		if filepath.Base(path) == "LOCK" {
			a.dbs = append(a.dbs, filepath.Dir(path))
		}
		return errors.Join(err, os.Chtimes(path, old, old))
	}))
	if version >= "4.3" {
		a.must(os.Mkdir(filepath.Join(stateDir, ".streams-sidecar"), 0o755))
		a.must(os.WriteFile(filepath.Join(stateDir, ".streams-sidecar", "last-shutdown.json"),
			fmt.Appendf(nil, `{"version":1,"applications":[{"application":%q,"outcome":"closed-clean","hook":"not-called"}]}`, filepath.Base(a.dir)), 0o644))
	}
	return stateDir, a
}

func (a *application) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

// start opens every database; its agent has seen that when it returns.
func (a *application) start(ag *agent) {
	a.t.Helper()
	locks := []string{filepath.Join(a.dir, ".lock")}
	for _, db := range a.dbs {
		locks = append(locks, filepath.Join(db, "LOCK"))
	}
	a.Holder = holder.Hold(a.t, locks...)
	for _, db := range a.dbs {
		a.preallocate(db) // after the lock, as RocksDB does: what an agent reads on this write must be in use
	}
	ag.until(a.t, "the start", func() bool {
		return ag.shutdown(a.t).Phase == "running" && strings.Count(ag.get(a.t, ag.admin+"/api/v1/state"), `"in_use":true`) == a.stores()
	})
	time.Sleep(600 * time.Millisecond) // for the gate, which looks at the pictures four times a second
}

// stores are those of its databases; the segments of one are in one folder.
func (a *application) stores() int {
	all := map[string]bool{}
	for _, db := range a.dbs {
		if parent := filepath.Dir(db); filepath.Base(parent) != "rocksdb" {
			db = parent
		}
		all[db] = true
	}
	return len(all)
}

func (a *application) manifest(db string) string {
	a.t.Helper()
	name, err := os.ReadFile(filepath.Join(db, "CURRENT"))
	a.must(err)
	return filepath.Join(db, strings.TrimSpace(string(name)))
}

func (a *application) preallocate(db string) {
	a.t.Helper()
	path := a.manifest(db)
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	a.must(err)
	defer func() { _ = f.Close() }()
	fi, err := f.Stat()
	a.must(err)
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, 9<<17); errors.Is(err, syscall.EOPNOTSUPP) {
		a.t.Skip("the file system cannot preallocate")
	} else {
		a.must(err)
	}
	a.must(os.Chtimes(path, fi.ModTime(), fi.ModTime()))
}

// close is a clean close up to 4.2.
func (a *application) close() {
	a.t.Helper()
	found, err := filepath.Glob(filepath.Join(a.dir, "*_*", ".checkpoint"))
	a.must(err)
	for _, path := range found {
		data, err := os.ReadFile(path)
		a.must(err)
		a.must(os.WriteFile(path+".tmp", data, 0o644))
		a.must(os.Rename(path+".tmp", path))
	}
	for _, db := range a.dbs {
		path := a.manifest(db)
		fi, err := os.Stat(path)
		a.must(err)
		a.must(os.Truncate(path, fi.Size()))
		a.must(os.Chtimes(path, time.Time{}, time.Now()))
		a.Release(filepath.Join(db, "LOCK"))
	}
	a.Release(filepath.Join(a.dir, ".lock"))
}

// shutdownAPI is what /api/v1/shutdown has.
type shutdownAPI struct {
	Phase    string
	Progress *struct{ Stores int }
	Last     []struct {
		StateDir string `json:"state_dir"`
		shutdown.Shutdown
	} `json:"last_shutdown"`
	JournalError string `json:"journal_error"`
}

func (a *agent) shutdown(t *testing.T) (s shutdownAPI) {
	t.Helper()
	text := a.get(t, a.admin+"/api/v1/shutdown")
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return s
}

// verdict waits for the verdict about the only application.
func (a *agent) verdict(t *testing.T) shutdown.Shutdown {
	t.Helper()
	var s shutdownAPI
	a.until(t, "the verdict", func() bool {
		s = a.shutdown(t)
		return len(s.Last) == 1 && s.Last[0].Ended != nil
	})
	return s.Last[0].Shutdown
}

func (a *agent) series(t *testing.T, line string) {
	t.Helper()
	a.until(t, line, func() bool { return strings.Contains(a.get(t, a.metrics), "\n"+line+"\n") })
}

// end stops the agent as the end of the test would.
func (a *agent) end(t *testing.T) {
	t.Helper()
	a.stop()
	select {
	case code := <-a.ended:
		a.ended <- code // for the end of the test
	case <-time.After(20 * time.Second):
		t.Fatal("the agent does not end")
	}
}

func reasons(s shutdown.Shutdown) map[shutdown.Reason]int {
	out := map[shutdown.Reason]int{}
	for _, e := range s.Evidence {
		out[e.Reason]++
	}
	return out
}

// A01: under exactly-once the .checkpoint is removed at the start, and a kill
// leaves none: the next start wipes the task.
func TestCaseA01(t *testing.T) {
	t.Parallel()
	dir, app := newApplication(t, "4.2.2", "closed-eos")
	a := startAgent(t, "--state-dir", dir)
	for _, task := range []string{"1_0", "1_1"} {
		a.series(t, `kstreams_task_checkpoint_present{application_id="eos422",task_id="`+task+`"} 1`)
		app.must(os.Remove(filepath.Join(app.dir, task, ".checkpoint")))
	}
	app.start(a)
	if strings.Contains(a.get(t, a.metrics), "kstreams_last_shutdown_clean{") {
		t.Error("before any end was seen there is a verdict")
	}
	app.Kill()
	if s := a.verdict(t); s.Outcome != shutdown.ClosedUnclean || reasons(s)[shutdown.NotClosed] != 9 {
		t.Errorf("judged %+v", s)
	}
	a.series(t, `kstreams_last_shutdown_clean{application_id="eos422"} 0`)
	for _, task := range []string{"1_0", "1_1"} {
		a.series(t, `kstreams_task_checkpoint_present{application_id="eos422",task_id="`+task+`"} 0`)
	}
}

// A03: a quiet store has an old .checkpoint under at-least-once. A hook that only
// observes does not wait for a new one, which cannot come before SIGTERM.
func TestCaseA03(t *testing.T) {
	t.Parallel()
	dir, app := newApplication(t, "3.9.1", "closed-clean")
	a := startAgent(t, "--state-dir", dir, "--prestop-trigger=none", "--prestop-timeout=5m")
	app.start(a)
	for range 2 {
		old := time.Now().Add(-3 * time.Hour)
		app.must(os.Chtimes(filepath.Join(app.dir, "1_0", ".checkpoint"), old, old))
		var ans shutdown.Answer
		if err := json.Unmarshal([]byte(a.get(t, a.hook+"/prestop")), &ans); err != nil || ans.Outcome != shutdown.Observed || ans.WaitedSeconds > 5 || ans.Stores != 9 {
			t.Errorf("got %+v %v, want observed at once", ans, err)
		}
		// And with tables that are younger than it.
		young := time.Now().Add(-time.Second)
		tables, err := filepath.Glob(filepath.Join(app.dir, "1_0", "rocksdb", "kv", "*.sst"))
		app.must(err)
		app.must(os.Chtimes(tables[0], young, young))
	}
	app.close()
	if s := a.verdict(t); reasons(s)[""] != 9 || s.HookOutcome != shutdown.Observed {
		t.Errorf("judged %+v, want clean", s)
	}
}

// A05: from 4.3 on the stores tell by themselves, without a .checkpoint.
func TestCaseA05(t *testing.T) {
	t.Parallel()
	dir, app := newApplication(t, "4.4.0", "killed9-eos-uncommitted-flushed")
	a := startAgent(t, "--state-dir", dir)
	app.start(a)
	app.Kill()
	s := a.verdict(t)
	if s.Outcome != shutdown.ClosedUnclean || reasons(s)[shutdown.StatusOpen] != 2 {
		t.Errorf("judged %+v, want two stores whose status is open", s)
	}
	a.series(t, `kstreams_last_shutdown_clean{application_id="ed440"} 0`)
	dir, app = newApplication(t, "4.3.1", "closed-clean")
	b := startAgent(t, "--state-dir", dir)
	app.start(b)
	app.close()
	if s := b.verdict(t); s.Outcome != shutdown.ClosedClean || reasons(s)[""] != 9 {
		t.Errorf("judged %+v, want clean", s)
	}
	b.series(t, `kstreams_last_shutdown_clean{application_id="alos431"} 1`)
}

// A06, A07: a framework that calls cleanUp on every stop, or the cleaner, removes
// the task directories after a clean close. That it was clean stays true.
func TestCaseA06(t *testing.T) { wiped(t, []string{"1_1"}) }
func TestCaseA07(t *testing.T) { wiped(t, []string{"1_0", "1_1", "global"}) }

func wiped(t *testing.T, tasks []string) {
	t.Parallel()
	dir, app := newApplication(t, "3.9.1", "closed-clean")
	a := startAgent(t, "--state-dir", dir)
	app.start(a)
	app.close()
	if s := a.verdict(t); s.Outcome != shutdown.ClosedClean || s.Hook != shutdown.NotCalled {
		t.Errorf("judged %+v, want clean", s)
	}
	for _, task := range tasks {
		if !strings.Contains(a.get(t, a.metrics), `task_id="`+task+`"`) {
			t.Errorf("%s has no series", task)
		}
		app.must(os.RemoveAll(filepath.Join(app.dir, task)))
	}
	for _, task := range tasks {
		a.until(t, "the end of the series", func() bool { return !strings.Contains(a.get(t, a.metrics), `task_id="`+task+`"`) })
	}
	a.series(t, `kstreams_last_shutdown_clean{application_id="alos391"} 1`)
	if got := a.get(t, a.hook+"/livez"); got != "ok\n" {
		t.Errorf("/livez: %s", got)
	}
	if s := a.verdict(t); s.Outcome != shutdown.ClosedClean {
		t.Errorf("afterwards judged %+v", s)
	}
}

// A08: a shell as process 1 swallows SIGTERM: the hook was called, and nothing
// happened until the kill. The next start tells why that may be.
func TestCaseA08(t *testing.T) {
	t.Parallel()
	dir, app := newApplication(t, "3.9.1", "closed-clean")
	log := &lockedBuffer{}
	a := startAgentWithLog(t, log, "--state-dir", dir, "--prestop-trigger=none", "--log-level=info")
	app.start(a)
	if got := a.get(t, a.hook+"/prestop"); !strings.Contains(got, `"outcome":"observed"`) {
		t.Errorf("the hook got %s", got)
	}
	app.Kill()
	const says = "no close activity after the signal: it may not reach the JVM"
	if s := a.verdict(t); s.Hook != shutdown.Called || s.HookOutcome != shutdown.Observed || !strings.Contains(s.Explanation, says) {
		t.Errorf("judged %+v", s)
	}
	a.until(t, "the log", func() bool { return strings.Contains(log.String(), says) })
	a.end(t)
	next := startAgent(t, "--state-dir", dir)
	if s := next.verdict(t); !strings.Contains(s.Explanation, says) || s.Outcome != shutdown.ClosedUnclean {
		t.Errorf("the next start has %+v", s)
	}
	next.series(t, `kstreams_last_shutdown_clean{application_id="alos391"} 0`)
	if page := next.get(t, next.admin+"/"); !strings.Contains(page, "No close activity after the signal") {
		t.Errorf("the status page does not tell:\n%s", page)
	}
	// With a signal that reaches it the same pod is clean.
	app.start(next)
	app.close()
	next.series(t, `kstreams_last_shutdown_clean{application_id="alos391"} 1`)
	if s := next.verdict(t); s.Explanation != "" {
		t.Errorf("judged %+v", s)
	}
}

// A15, F06: the process dies without any call, and it shows at once, and at the
// next start.
func TestCaseA15(t *testing.T) {
	t.Parallel()
	dir, app := newApplication(t, "4.4.0", "killed9-alos-load")
	a := startAgent(t, "--state-dir", dir)
	app.start(a)
	app.Kill()
	for i := range 2 {
		s := a.verdict(t)
		if s.Outcome != shutdown.ClosedUnclean || s.Hook != shutdown.NotCalled || s.Began != nil || s.CloseSeconds != nil || s.NotWatched ||
			reasons(s)[shutdown.OffsetsNotWritten] != 9 || !strings.Contains(s.Explanation, "the process was killed") {
			t.Errorf("agent %d: %+v", i, s)
		}
		a.series(t, `kstreams_last_shutdown_clean{application_id="alos440"} 0`)
		m := a.get(t, a.metrics)
		if strings.Contains(m, "kstreams_last_shutdown_close_seconds{") || !strings.Contains(m, "kstreams_last_shutdown_timestamp_seconds{") {
			t.Errorf("agent %d: the metrics have a duration without a call, or no time", i)
		}
		if i == 0 {
			a.end(t)
			a = startAgent(t, "--state-dir", dir)
		}
	}
}

// hookToken writes a token.
func hookToken(t *testing.T) (flag string, header http.Header) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	write(t, path, "a-token\n")
	return "--prestop-token-file=" + path, http.Header{"X-Sidecar-Token": {"a-token"}}
}

func hook(t *testing.T, url string, header http.Header) (ans shutdown.Answer, size int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return ans, 0
	}
	defer func() { _ = resp.Body.Close() }()
	if err := json.NewDecoder(resp.Body).Decode(&ans); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%d %v", resp.StatusCode, err)
	}
	return ans, int(resp.ContentLength)
}

// TestPrestop: the whole way, from the call over the application's endpoint to
// the proof, with what the metrics and the API say on it.
func TestPrestop(t *testing.T) {
	t.Parallel()
	dir, app := newApplication(t, "4.2.2", "closed-clean")
	asked := make(chan string, 10)
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.URL.Path + " " + r.Header.Get("X-Why")
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(endpoint.Close)
	flag, header := hookToken(t)
	a := startAgent(t, "--state-dir", dir, flag, "--prestop-http-url="+endpoint.URL+"/actuator/shutdown", "--prestop-http-header=X-Why: stop",
		"--prestop-http-status=202", "--termination-grace-period=10m")
	a.series(t, "kstreams_prestop_budget_seconds 595")
	app.start(a)
	a.series(t, "kstreams_prestop_draining 0")
	a.series(t, `kstreams_app_dead{application_id="alos422"} 0`)
	got := make(chan shutdown.Answer, 1)
	go func() { ans, _ := hook(t, a.hook+"/prestop", header); got <- ans }()
	select {
	case what := <-asked:
		if what != "POST /actuator/shutdown stop" {
			t.Errorf("asked %s", what)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the application was not asked")
	}
	a.series(t, "kstreams_prestop_draining 1")
	a.series(t, `kstreams_prestop_stores{state="open"} 9`)
	a.series(t, `kstreams_prestop_stores{state="closed"} 0`)
	if s := a.shutdown(t); s.Phase != "draining" || s.Progress == nil || s.Progress.Stores != 9 || len(s.Last) != 0 {
		t.Errorf("while it waits: %+v", s)
	}
	if page := a.get(t, a.admin+"/"); !strings.Contains(page, "of at most 595 s: of 9 open stores") {
		t.Errorf("the status page does not tell:\n%s", page)
	}
	app.close()
	ans := <-got
	if ans.Outcome != shutdown.ClosedClean || !ans.Triggered || ans.Trigger != "http" || ans.Stores != 9 || ans.StoresClosed != 9 || len(ans.Missing) != 0 || ans.JournalError != "" {
		t.Errorf("the hook got %+v, want closed-clean", ans)
	}
	a.series(t, `kstreams_last_shutdown_clean{application_id="alos422"} 1`)
	a.series(t, "kstreams_prestop_draining 0")
	m := a.get(t, a.metrics)
	for _, gone := range []string{"kstreams_prestop_stores{", "kstreams_prestop_sst_written_bytes ", "kstreams_prestop_remaining_seconds "} {
		if strings.Contains(m, "\n"+gone) {
			t.Errorf("%s after the drain", gone)
		}
	}
	if !strings.Contains(m, "kstreams_last_shutdown_close_seconds{") || !strings.Contains(m, `kstreams_prestop_requests_total{outcome="closed-clean"} 1`) {
		t.Error("the metrics do not tell of the close")
	}
	if s := a.verdict(t); s.Hook != shutdown.Called || s.HookOutcome != shutdown.ClosedClean || !s.Triggered || *s.CloseSeconds > ans.WaitedSeconds+1 {
		t.Errorf("remembered %+v", s)
	}
	if n := len(asked); n != 0 {
		t.Errorf("asked %d times more", n)
	}
}

// TestSidecarIsKilledInADrain: the next process judges the end, with what the one
// before had noted, also if it came in between.
func TestSidecarIsKilledInADrain(t *testing.T) {
	t.Parallel()
	for _, between := range []bool{true, false} {
		dir, app := newApplication(t, "3.9.1", "closed-clean")
		asked := make(chan bool, 10)
		endpoint := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- true }))
		t.Cleanup(endpoint.Close)
		flag, header := hookToken(t)
		cmd, out := startProcess(t, "run", "--state-dir", dir, "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--hook-listen=127.0.0.1:0",
			flag, "--prestop-http-url="+endpoint.URL, "--prestop-timeout=5m")
		a := &agent{}
		for a.hook == "" && out.Scan() {
			switch f := strings.Fields(out.Text()); f[0] {
			case "metrics":
				a.metrics = f[1]
			case "admin":
				a.admin = strings.TrimSuffix(f[1], "/")
			case "hook":
				a.hook = strings.TrimSuffix(f[1], "/prestop")
			}
		}
		go func() { // until it is killed
			for out.Scan() {
			}
		}()
		a.until(t, "readiness", func() bool { return a.get(t, a.hook+"/readyz") == "ok\n" })
		app.start(a)
		broken := make(chan error, 1)
		go func() {
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, a.hook+"/prestop", nil)
			req.Header = header
			resp, err := http.DefaultClient.Do(req)
			if err == nil {
				_ = resp.Body.Close()
			}
			broken <- err
		}()
		<-asked
		a.until(t, "the trigger in runs.json", func() bool {
			data, _ := os.ReadFile(filepath.Join(dir, ".streams-sidecar", "runs.json"))
			return strings.Contains(string(data), `"triggered": true`)
		})
		send(t, cmd, syscall.SIGKILL)
		_ = cmd.Wait()
		if err := <-broken; err == nil {
			t.Error("the hook of a sidecar that was killed got an answer")
		}
		var next *agent
		if between {
			app.close()
			next = startAgent(t, "--state-dir", dir)
		} else {
			next = startAgent(t, "--state-dir", dir)
			next.until(t, "the run to be resumed", func() bool { return next.shutdown(t).Phase == "running" })
			app.close()
		}
		s := next.verdict(t)
		if s.Outcome != shutdown.ClosedClean || s.Hook != shutdown.Called || !s.Triggered || s.Trigger != "http" || s.NotWatched != between || s.Stores != 9 || s.HookOutcome != "" {
			t.Errorf("in between %v: judged %+v, want closed-clean after the call", between, s)
		}
		next.series(t, `kstreams_last_shutdown_clean{application_id="alos391"} 1`)
		next.until(t, "the end of runs.json", func() bool {
			_, err := os.Stat(filepath.Join(dir, ".streams-sidecar", "runs.json"))
			return errors.Is(err, os.ErrNotExist)
		})
	}
}

// F07: as a native sidecar it gets SIGTERM after the end of the application, and
// is done within two seconds, with the verdict on the disk.
func TestCaseF07Native(t *testing.T) {
	t.Parallel()
	best := time.Hour
	for range 3 { // a loaded machine may be late by itself
		dir, app := newApplication(t, "3.9.1", "closed-clean")
		a := startAgent(t, "--state-dir", dir, "--stop-timeout=5m", "--prestop-trigger=none")
		app.start(a)
		app.close()
		begun := time.Now()
		a.end(t) // before it has looked again
		best = min(best, time.Since(begun))
		var doc struct{ Applications []shutdown.Shutdown }
		data, err := os.ReadFile(filepath.Join(dir, ".streams-sidecar", "last-shutdown.json"))
		app.must(err)
		app.must(json.Unmarshal(data, &doc))
		if len(doc.Applications) != 1 || doc.Applications[0].Outcome != shutdown.ClosedClean || doc.Applications[0].Ended == nil || doc.Applications[0].NotWatched {
			t.Fatalf("on the disk: %s", data)
		}
		if _, err := os.Stat(filepath.Join(dir, ".streams-sidecar", "runs.json")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("runs.json is still there: %v", err)
		}
		if best < 2*time.Second {
			return
		}
	}
	t.Errorf("it took %v, want less than 2s", best)
}

// TestPrestopFlags: what cannot work is said before anything is open, in one
// line, without what may be secret.
func TestPrestopFlags(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty")
	write(t, empty, " \n")
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--prestop-trigger=http"}, 64, "--prestop-http-url"},
		{[]string{"--prestop-trigger=kill"}, 64, "--prestop-trigger"},
		{[]string{"--prestop-http-url=ftp://user:secret@host/"}, 64, "http://"},
		{[]string{"--prestop-http-url=http://host/?a=secret", "--prestop-http-header=nothing"}, 64, "header 1"},
		{[]string{"--prestop-http-url=http://host/", "--prestop-http-status=99"}, 64, "99"},
		{[]string{"--prestop-token-file=" + empty}, 1, "empty"},
		{[]string{"--prestop-token-file=" + empty + "-not-there"}, 3, "not-there"},
		{[]string{"--prestop-stall=0s"}, 64, "--prestop-stall"},
		{[]string{"--prestop-timeout=-1s"}, 64, "negative"},
	} {
		code, out, errs := sidecar(append([]string{"run", "--state-dir", t.TempDir(), "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--hook-listen=127.0.0.1:0"}, c.args...)...)
		if code != c.code || out != "" || !strings.Contains(errs, c.says) || strings.Contains(errs, "secret") {
			t.Errorf("%q: code %d, %q, %q; want %d and %q", c.args, code, out, errs, c.code, c.says)
		}
	}
}
