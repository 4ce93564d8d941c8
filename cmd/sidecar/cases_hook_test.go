package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"streams-sidecar/internal/shutdown"
	"streams-sidecar/test/fixture"
	"streams-sidecar/test/holder"
)

// F04: a kubelet that speaks TLS to the plain port, or doubles the slash.
func TestCaseF04(t *testing.T) {
	t.Parallel()
	log := &lockedBuffer{}
	a := startAgentWithLog(t, log, "--state-dir", fixture.Unpack(t, "3.9.1", "closed-clean"), "--log-level=debug")
	addr := strings.TrimPrefix(a.hook, "http://")
	for _, path := range []string{"/prestop", "//prestop", "/prestop/", "//prestop//", "/./prestop", "//prestop/?wait=1"} {
		if status, text := ask(t, http.MethodGet, a.hook+path); status != 200 || !strings.Contains(text, `"outcome":"not-running"`) {
			t.Errorf("GET %s: %d %s", path, status, text)
		}
		for _, method := range []string{http.MethodHead, http.MethodPost, http.MethodDelete} {
			if status, _ := ask(t, method, a.hook+path); status != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d, want 405", method, path, status)
			}
		}
	}
	for range 100 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		err = tls.Client(c, &tls.Config{InsecureSkipVerify: true}).Handshake() //nolint:gosec // there is no certificate to check
		if _, ok := errors.AsType[tls.RecordHeaderError](err); !ok {
			t.Fatalf("a TLS handshake with the plain port ended with %v", err)
		}
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.Copy(io.Discard, c); os.IsTimeout(err) {
			t.Fatal("the connection stays open")
		}
		_ = c.Close()
	}
	// The kubelet falls back to HTTP on this very error.
	if resp, err := http.Get("https://" + addr + "/prestop"); err == nil || !strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") { //nolint:noctx // bounded by the test
		if err == nil {
			_ = resp.Body.Close()
		}
		t.Errorf("HTTPS on the plain port: %v", err)
	}
	// One connection serves several calls, as the kubelet has it.
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	r := bufio.NewReader(c)
	for range 3 {
		if _, err := io.WriteString(c, "GET /prestop HTTP/1.1\r\nHost: x\r\nUser-Agent: kube-lifecycle/1.37\r\nAccept-Encoding: gzip\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != 200 || resp.ContentLength <= 0 || !strings.Contains(string(text), "not-running") {
			t.Errorf("%d %s %v", resp.StatusCode, text, err)
		}
	}
	if text := log.String(); strings.Contains(text, "trouble") || strings.Contains(text, "TLS") {
		t.Errorf("the log tells of strangers' connections:\n%s", text)
	}
}

// F05: a hook on a loopback address cannot be called by the kubelet.
func TestCaseF05(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	for address, warned := range map[string]bool{"127.0.0.1:0": true, "localhost:0": true, ":0": false, "0.0.0.0:0": false} {
		log := &lockedBuffer{}
		a := startAgentWithLog(t, log, "--state-dir", dir, "--hook-listen="+address, "--log-level=warn")
		a.stop()
		if code := <-a.ended; code != 0 {
			t.Errorf("%s: code %d", address, code)
		}
		a.ended <- 0 // for the end of the test
		text := log.String()
		if got := strings.Count(text, "code=prestop-unreachable"); got > 1 || (got == 1) != warned {
			t.Errorf("--hook-listen=%s: warned %d times, want %v:\n%s", address, got, warned, text)
		}
	}
	_, help, _ := sidecar("run", "--help")
	if !strings.Contains(help, "(:9879)") {
		t.Errorf("the hook does not listen on all addresses by default:\n%s", help)
	}
}

// F07: the sidecar is told to stop while the application still closes.
func TestCaseF07(t *testing.T) {
	t.Parallel()
	dir := func(t *testing.T) (dir, lock string) {
		dir = fixture.Unpack(t, "3.9.1", "closed-clean")
		return dir, filepath.Join(dir, "alos391", ".lock")
	}
	// end waits for the agent and gives the reason that it logged.
	end := func(t *testing.T, a *agent, log *lockedBuffer, within time.Duration) string {
		t.Helper()
		select {
		case code := <-a.ended:
			a.ended <- code // for the end of the test
		case <-time.After(within):
			t.Fatalf("the agent has not ended within %v", within)
		}
		_, reason, found := strings.Cut(log.String(), `msg=stopping reason="`)
		if !found {
			t.Fatalf("no reason in\n%s", log)
		}
		return reason
	}
	const logged = "--log-level=info"

	t.Run("serves until the lock is free", func(t *testing.T) {
		t.Parallel()
		dir, lock := dir(t)
		h := holder.Hold(t, lock)
		log := &lockedBuffer{}
		a := startAgentWithLog(t, log, "--state-dir", dir, "--stop-timeout=5m", "--prestop-timeout=5m", logged)
		waiting := make(chan string, 1)
		go func() { waiting <- a.get(t, a.hook+"/prestop?wait=1") }()
		a.stop()
		a.until(t, "the word that it goes on", func() bool { return strings.Contains(log.String(), "going on until it has closed") })
		if got := a.get(t, a.hook+"/livez"); got != "ok\n" {
			t.Errorf("/livez: %s", got)
		}
		if !strings.Contains(a.get(t, a.metrics), `kstreams_app_running{application_id="alos391"} 1`) {
			t.Error("the metrics do not show the application")
		}
		select {
		case got := <-waiting:
			t.Fatalf("answered %s while the lock is held", got)
		case code := <-a.ended:
			t.Fatalf("ended with %d while the lock is held", code)
		default:
		}
		h.Kill()
		if got := <-waiting; !strings.Contains(got, `"outcome":"closed-unclean"`) {
			t.Errorf("the call got %s", got)
		}
		if got := end(t, a, log, 20*time.Second); !strings.Contains(got, "no application runs") {
			t.Errorf("reason %s", got)
		}
		if !strings.Contains(log.String(), "application has let go of its state directory") {
			t.Errorf("the last look did not see the end of the application:\n%s", log)
		}
	})

	t.Run("has a limit of its own", func(t *testing.T) {
		t.Parallel()
		dir, lock := dir(t)
		holder.Hold(t, lock)
		log := &lockedBuffer{}
		a := startAgentWithLog(t, log, "--state-dir", dir, "--stop-timeout=700ms", "--prestop-timeout=5m", logged)
		waiting := make(chan string, 3)
		for range cap(waiting) {
			go func() { waiting <- a.get(t, a.hook+"/prestop?wait=1") }()
		}
		a.until(t, "the calls", func() bool { return strings.Contains(log.String(), "preStop call") })
		begun := time.Now()
		a.stop()
		if got := end(t, a, log, 20*time.Second); !strings.Contains(got, "a .lock is still held: alos391") {
			t.Errorf("reason %s", got)
		}
		if took := time.Since(begun); took < 700*time.Millisecond {
			t.Errorf("it ended after %v", took)
		}
		for range cap(waiting) {
			if got := <-waiting; !strings.Contains(got, `"outcome":"timeout"`) || !strings.Contains(got, "told to stop") || !strings.Contains(got, `"alos391"`) {
				t.Errorf("a call that waited got %s", got)
			}
		}
	})

	t.Run("ends at once when nothing runs", func(t *testing.T) {
		t.Parallel()
		dir, _ := dir(t)
		best := time.Hour
		for range 3 { // a loaded machine may be late by itself
			log := &lockedBuffer{}
			a := startAgentWithLog(t, log, "--state-dir", dir, "--stop-timeout=5m", logged)
			c, err := net.Dial("tcp", strings.TrimPrefix(a.hook, "http://")) // one that says nothing
			if err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			a.stop()
			reason := end(t, a, log, 20*time.Second)
			best = min(best, time.Since(begun))
			_ = c.Close()
			if !strings.Contains(reason, "no application runs") || strings.Contains(log.String(), "going on") {
				t.Errorf("%s", log)
			}
			if best < 2*time.Second {
				return
			}
		}
		t.Errorf("it took %v, want less than 2s", best)
	})

	t.Run("by signal", func(t *testing.T) {
		t.Parallel()
		dir, lock := dir(t)
		for _, second := range []bool{false, true} {
			h := holder.Hold(t, lock)
			cmd, out := startProcess(t, "run", "--state-dir", dir, "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0",
				"--hook-listen=127.0.0.1:0", "--stop-timeout=5m")
			waitFor(t, out, "application runs")
			send(t, cmd, syscall.SIGTERM)
			waitFor(t, out, "going on until it has closed")
			if second {
				send(t, cmd, syscall.SIGTERM)
			} else {
				h.Kill()
			}
			_, _ = io.Copy(io.Discard, out.r)
			err := cmd.Wait()
			if (err != nil) != second {
				t.Errorf("second signal %v: the process ended with %v", second, err)
			}
			if second {
				h.Kill()
			}
		}
	})
}

// lines are what a process writes.
type lines struct {
	r *os.File
	*bufio.Scanner
}

// startProcess runs a command line in a process of its own, and gives what it
// writes.
func startProcess(t *testing.T, args ...string) (*exec.Cmd, lines) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), asOtherEnv+"=1")
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended by itself
		_ = r.Close()
	})
	_ = r.SetReadDeadline(time.Now().Add(20 * time.Second))
	return cmd, lines{r, bufio.NewScanner(r)}
}

func waitFor(t *testing.T, out lines, text string) {
	t.Helper()
	for out.Scan() {
		if strings.Contains(out.Text(), text) {
			return
		}
	}
	t.Fatalf("the process did not say %q: %v", text, out.Err())
}

func send(t *testing.T, cmd *exec.Cmd, s syscall.Signal) {
	t.Helper()
	if err := cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// TestWebConfigOfTheAgent: it is for Prometheus and people, never for the kubelet.
func TestWebConfigOfTheAgent(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "web.yml")
	write(t, file, "basic_auth_users:\n  me: $2a$04$LqFl6iMA8ItP1c2X6/jOveX7fIEksdgciW8ZNtxBbQYYFAyWsmDxW\n")
	a := startAgent(t, "--state-dir", fixture.Unpack(t, "3.9.1", "closed-clean"), "--web-config-file="+file)
	for url, want := range map[string]int{a.metrics: 401, a.admin + "/": 401, a.admin + "/api/v1/state": 401, a.hook + "/prestop": 200, a.hook + "/livez": 200} {
		if status, _ := ask(t, http.MethodGet, url); status != want {
			t.Errorf("%s: %d, want %d", url, status, want)
		}
	}
	for _, url := range []string{a.metrics, a.admin + "/api/v1/stores/alos391/1_0/kv"} {
		if text := a.get(t, strings.Replace(url, "http://", "http://me:first%20password@", 1)); !strings.Contains(text, "alos391") {
			t.Errorf("%s with the password: %s", url, text)
		}
	}
	// A file that is wrong ends it before any port is open, in one line.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	write(t, file, "basic_auth_users: 1\nother: 2\n")
	code, out, errs := sidecar("run", "--state-dir", t.TempDir(), "--listen="+l.Addr().String(), "--web-config-file="+file)
	if code != 1 || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, file) {
		t.Errorf("code %d, %q, %q; want 1 and one line with the file's name", code, out, errs)
	}
}

// lockedBuffer is a log that can be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func ask(t *testing.T, method, url string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(b)
}

// F03: the kubelet ignores the status code of a hook and takes any answer for
// success, so that only the body and the metrics can tell how it went.
func TestCaseF03(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	a := startAgent(t, "--state-dir", dir, "--prestop-timeout=1s")
	holder.Hold(t, filepath.Join(dir, "alos391", ".lock"))
	resp, err := http.Get(a.hook + "/prestop?wait=1") //nolint:noctx // bounded by the test
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var ans shutdown.Answer
	if err := json.NewDecoder(resp.Body).Decode(&ans); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v", resp.StatusCode, err)
	}
	if ans.Outcome != shutdown.Timeout || len(ans.Held) != 1 || ans.WaitedSeconds < 1 {
		t.Errorf("%+v, want a timeout after 1 s with one application held", ans)
	}
	a.until(t, "the counter", func() bool {
		return strings.Contains(a.get(t, a.metrics), `kstreams_prestop_requests_total{outcome="timeout"} 1`)
	})
}

// F06: no hook runs when the application is killed. It shows by the locks that
// are let go of and by the marks of a clean close that are missing; that no hook
// came is told too.
func TestCaseF06(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "4.4.0", "killed9-alos-load")
	app := filepath.Join(dir, "alos440")
	h := holder.Hold(t, filepath.Join(app, "1_0", "rocksdb", "kv", "LOCK"), filepath.Join(app, ".lock"))
	a := startAgent(t, "--state-dir", dir)
	state := func() string { return a.get(t, a.admin+"/api/v1/state") }
	if text := state(); !strings.Contains(text, `"running":true`) || strings.Contains(text, `"closed":`) {
		t.Errorf("while it runs: %s", text)
	}
	h.Kill()
	a.until(t, "the end of the application", func() bool {
		return strings.Contains(a.get(t, a.metrics), `kstreams_app_running{application_id="alos440"} 0`)
	})
	if text := state(); strings.Count(text, `"closed":"unclean"`) != 9 || strings.Contains(text, `"closed":"clean"`) {
		t.Errorf("after the kill: %s", text)
	}
	for _, outcome := range []string{"observed", "closed-clean", "closed-unclean", "stalled", "timeout", "not-running"} {
		if !strings.Contains(a.get(t, a.metrics), `kstreams_prestop_requests_total{outcome="`+outcome+`"} 0`) {
			t.Errorf("a hook call with outcome %s that never came", outcome)
		}
	}
}
