package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"streams-sidecar/internal/report"
	"streams-sidecar/internal/shutdown"
	"streams-sidecar/test/fixture"
	"streams-sidecar/test/holder"
)

// agent is `sidecar run` in this process.
type agent struct {
	metrics, admin, hook string // URLs
	stop                 context.CancelFunc
	ended                chan int
}

// startAgent runs the agent on free ports until the end of the test. It returns
// when the first look is done.
func startAgent(t *testing.T, args ...string) *agent {
	t.Helper()
	return startAgentWithLog(t, os.Stderr, args...)
}

// startAgentWithLog is startAgent with the log of the agent.
func startAgentWithLog(t *testing.T, log io.Writer, args ...string) *agent {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, w := io.Pipe()
	a := &agent{stop: cancel, ended: make(chan int, 1)}
	args = append([]string{"run", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--hook-listen=127.0.0.1:0",
		"--log-level=error", "--stop-timeout=0"}, args...)
	go func() {
		code := execute(ctx, args, w, log)
		_ = w.Close()
		a.ended <- code
	}()
	lines := bufio.NewScanner(r)
	urls := map[string]string{}
	for len(urls) < 3 && lines.Scan() {
		f := strings.Fields(lines.Text())
		urls[f[0]] = f[1]
	}
	a.metrics, a.admin, a.hook = urls["metrics"], strings.TrimSuffix(urls["admin"], "/"), strings.TrimSuffix(urls["hook"], "/prestop")
	if a.hook == "" {
		t.Fatalf("the agent printed %v, want three addresses", urls)
	}
	go func() { _, _ = io.Copy(io.Discard, r) }() // until the agent ends
	t.Cleanup(func() {
		cancel()
		select {
		case code := <-a.ended:
			if code != 0 {
				t.Errorf("the agent ended with code %d", code)
			}
		case <-time.After(20 * time.Second):
			t.Error("the agent does not end")
		}
	})
	a.until(t, "readiness", func() bool { return a.get(t, a.hook+"/readyz") == "ok\n" })
	return a
}

func (a *agent) get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url) //nolint:noctx // bounded by the test
	if err != nil {
		t.Error(err)
		return ""
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return string(body)
}

func (a *agent) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	a.untilWithin(t, 20*time.Second, what, ok)
}

func (a *agent) untilWithin(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come", what)
		}
	}
}

// TestAgent: on three real directories every store is up, and every figure of
// the API is as status gives it.
func TestAgent(t *testing.T) {
	t.Parallel()
	dirs := []string{fixture.Unpack(t, "2.8.2", "closed-clean"), fixture.Unpack(t, "3.9.1", "killed9-alos-load"), fixture.Unpack(t, "4.4.0", "closed-eos")}
	args := []string{}
	for _, d := range dirs {
		args = append(args, "--state-dir", d)
	}
	a := startAgent(t, args...)
	_, want := statusJSON(t, dirs...)
	var got report.Document
	if err := json.Unmarshal([]byte(a.get(t, a.admin+"/api/v1/state")), &got); err != nil {
		t.Fatal(err)
	}
	neutral := func(d report.Document) string {
		for i := range d.StateDirs {
			d.StateDirs[i].FreeBytes = nil // the volume is in use by others
			for j := range d.StateDirs[i].Applications {
				for k := range d.StateDirs[i].Applications[j].Tasks {
					for l := range d.StateDirs[i].Applications[j].Tasks[k].Stores {
						d.StateDirs[i].Applications[j].Tasks[k].Stores[l].Checks = nil // at other times
					}
				}
			}
		}
		d.Verification = nil
		b, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if g, w := neutral(got), neutral(want); g != w {
		t.Errorf("the API\n%s\nstatus\n%s", g, w)
	}
	text := a.get(t, a.metrics)
	stores := 0
	for _, sd := range want.StateDirs {
		for _, app := range sd.Applications {
			for _, task := range app.Tasks {
				for _, s := range task.Stores {
					stores++
					labels := fmt.Sprintf(`application_id=%q,state_dir=%q,store=%q,task_id=%q`, app.ID, sd.Path, s.Name, task.ID)
					wantSeries(t, text, fmt.Sprintf("kstreams_store_up{%s} 1", labels))
					files := 0
					for _, f := range s.Families {
						files += f.Files
					}
					wantSeries(t, text, fmt.Sprintf("rocksdb_live_sst_files{%s} %d", labels, files))
					for _, o := range s.Offsets {
						wantSeries(t, text, fmt.Sprintf(`kstreams_store_changelog_offset{application_id=%q,partition="%d",state_dir=%q,store=%q,task_id=%q,topic=%q} %v`,
							app.ID, o.Partition, sd.Path, s.Name, task.ID, o.Topic, float64(o.Offset)))
					}
				}
			}
		}
	}
	if stores != 7+9+9 {
		t.Errorf("compared %d stores, want 25", stores)
	}
	if page := a.get(t, a.admin+"/"); !strings.Contains(page, "alos282") || !strings.Contains(page, "gtab") {
		t.Errorf("the status page shows no stores:\n%s", page)
	}
}

func wantSeries(t *testing.T, text, line string) {
	t.Helper()
	if !strings.Contains(text, "\n"+line+"\n") {
		t.Errorf("no series %s", line)
	}
}

// TestAgentSeesChanges: files that change while it runs show in the metrics.
func TestAgentSeesChanges(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	a := startAgent(t, "--state-dir", dir)
	kv := filepath.Join(dir, "alos391", "1_0", "rocksdb", "kv")
	write(t, filepath.Join(kv, "000123.log"), strings.Repeat("x", 4321))
	a.until(t, "the WAL", func() bool {
		return strings.Contains(a.get(t, a.metrics), `rocksdb_wal_size_bytes{application_id="alos391",store="kv",task_id="1_0"} 4321`)
	})
	if err := os.RemoveAll(filepath.Dir(kv)); err != nil {
		t.Fatal(err)
	}
	a.until(t, "the end of the store", func() bool { return !strings.Contains(a.get(t, a.metrics), `store="kv",task_id="1_0"`) })
}

// TestCaseF10: the application ends while a hook waits. A process that holds
// the locks as Streams does lets go of them one after the other; the answer
// comes soon after the last one, and not before. How soon is measured beside
// real applications (docs/performance.md); here the best of several attempts
// counts, and it leaves room for a loaded machine with the race detector.
func TestCaseF10(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	a := startAgent(t, "--state-dir", dir, "--prestop-timeout=30s")
	lock := filepath.Join(dir, "alos391", ".lock")
	store := filepath.Join(dir, "alos391", "1_0", "rocksdb", "kv", "LOCK")
	if got := a.get(t, a.hook+"/prestop?wait=1"); !strings.Contains(got, `"outcome":"not-running"`) {
		t.Errorf("nobody runs: %s", got)
	}
	const limit = 150 * time.Millisecond
	best := time.Hour
	for range 10 {
		h := holder.Hold(t, lock, store)
		if got := a.get(t, a.hook+"/prestop"); !strings.Contains(got, `"outcome":"observed"`) {
			t.Fatalf("one that only asks: %s", got)
		}
		type answer struct {
			at   time.Time
			body string
		}
		done := make(chan answer, 1)
		go func() { body := a.get(t, a.hook+"/prestop?wait=1"); done <- answer{time.Now(), body} }()
		time.Sleep(50 * time.Millisecond)
		h.Release(store)
		time.Sleep(50 * time.Millisecond)
		select {
		case x := <-done:
			t.Fatalf("answered while .lock is held: %s", x.body)
		default:
		}
		released := time.Now()
		h.Release(lock)
		x := <-done
		var ans shutdown.Answer
		if err := json.Unmarshal([]byte(x.body), &ans); err != nil || ans.Outcome != shutdown.ClosedUnclean || ans.Trigger != "signal" || ans.Triggered {
			t.Fatalf("answer %s (%v), want closed-unclean by nobody's doing", x.body, err)
		}
		best = min(best, x.at.Sub(released))
		if best <= limit {
			break
		}
	}
	if best > limit {
		t.Errorf("the answer came %v after the last release, want at most %v", best, limit)
	}
	a.until(t, "the counter", func() bool {
		return strings.Contains(a.get(t, a.metrics), `kstreams_prestop_requests_total{outcome="closed-unclean"} `)
	})
}

// TestHookMethods: only GET is a hook call.
func TestHookMethods(t *testing.T) {
	t.Parallel()
	a := startAgent(t, "--state-dir", fixture.Unpack(t, "3.9.1", "closed-clean"))
	for _, m := range []string{http.MethodPost, http.MethodHead, http.MethodPut, http.MethodDelete, http.MethodOptions} {
		req, err := http.NewRequest(m, a.hook+"/prestop", nil) //nolint:noctx // bounded by the test
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s /prestop: %d, want 405", m, resp.StatusCode)
		}
	}
	for _, path := range []string{"/livez", "/readyz", "/startupz"} {
		if got := a.get(t, a.hook+path); got != "ok\n" {
			t.Errorf("%s: %q", path, got)
		}
	}
}

// TestPortInUse: one clear line, at once.
func TestPortInUse(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	code, _, errs := sidecar("run", "--state-dir", t.TempDir(), "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--hook-listen="+l.Addr().String())
	if code != 1 || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, "hook listener") || !strings.Contains(errs, "--hook-listen") {
		t.Errorf("code %d, %q", code, errs)
	}
}
