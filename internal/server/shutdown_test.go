package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"streams-sidecar/internal/event"
	"streams-sidecar/internal/server"
	"streams-sidecar/internal/shutdown"
	"streams-sidecar/internal/shutdown/trigger"
	"streams-sidecar/internal/volume"
	"streams-sidecar/test/fixture"
	"streams-sidecar/test/holder"
)

const secret = "a-token-of-the-hook"

// TestStrayCallsCauseNothing: the hook's port is open to the cluster's network.
// Whatever comes there without the token, the application is never asked to
// close; with it, it is, once.
func TestStrayCallsCauseNothing(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	application := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(application.Close)
	url, err := trigger.NewHTTP(trigger.HTTPConfig{URL: application.URL})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "token")
	writeFile(t, file, secret)
	token, err := trigger.NewToken(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	lock := filepath.Join(dir, "alos391", ".lock")
	h := holder.Hold(t, lock)
	p := look(dir)
	gate := shutdown.NewGate(shutdown.Config{Volumes: []*volume.Volume{volume.New(volume.OS())}, Snapshot: p.Snapshot,
		Timeout: 5 * time.Minute, Events: event.Discard, HTTP: url, Token: token})
	l := serve(t, server.Config{Handler: server.Hook(p, gate), Connections: server.HookConnections})
	send := func(method, target, header, body string) (status int, text string) {
		t.Helper()
		c, err := net.Dial("tcp", l.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		if header != "" {
			header += "\r\n"
		}
		if _, err := fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n%s\r\n%s", method, target, len(body), header, body); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return 0, "" // refused
		}
		defer func() { _ = resp.Body.Close() }()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	targets := []string{"/prestop", "//prestop", "/prestop/", "/./prestop", "/x/../prestop", "/prestop?token=" + secret, "/prestop?X-Sidecar-Token=" + secret,
		"/prestop?wait=0&token=" + secret, "/prestop?wait=false", "/prestop/" + secret, "/prestop#" + secret, "http://x/prestop", "/PRESTOP", "/%70restop", "/prestop;token=" + secret}
	headers := []string{"", "X-Sidecar-Token:", "X-Sidecar-Token: wrong", "X-Sidecar-Token: " + secret + "x", "X-Sidecar-Token: " + secret[1:],
		"X-Sidecar-Token: " + strings.ToUpper(secret), "X-Sidecar-Token: \"" + secret + "\"", "X-Sidecar-Token: Bearer " + secret, "X-Sidecar-Token: wrong\r\nX-Sidecar-Token: " + secret,
		"X_Sidecar_Token: " + secret, "Sidecar-Token: " + secret, "Token: " + secret, "Authorization: Bearer " + secret, "Authorization: " + secret,
		"Cookie: X-Sidecar-Token=" + secret, "Trailer: X-Sidecar-Token", "X-Forwarded-X-Sidecar-Token: " + secret, "User-Agent: kube-lifecycle/1.37"}
	try := func(target, header string) {
		t.Helper()
		if status, text := send(http.MethodGet, target, header, ""); status == http.StatusOK && !strings.Contains(text, `"outcome":"observed"`) {
			t.Errorf("GET %s with %q: %d %s", target, header, status, text)
		}
	}
	for _, target := range targets {
		try(target, "")
	}
	for _, header := range headers { // a wrong token costs a look at the file
		try("/prestop", header)
	}
	// No other method, even with the token.
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodHead, http.MethodOptions, http.MethodPatch, "PRESTOP"} {
		if status, text := send(method, "/prestop", "X-Sidecar-Token: "+secret, "token="+secret); status == http.StatusOK {
			t.Errorf("%s: %d %s", method, status, text)
		}
	}
	// No other path.
	for _, target := range []string{"/", "/livez", "/appz", "/prestop2", "/prestop/now"} {
		if _, text := send(http.MethodGet, target, "X-Sidecar-Token: "+secret, ""); strings.Contains(text, "outcome") {
			t.Errorf("GET %s: %s", target, text)
		}
	}
	// An empty token is none, also while the file is empty.
	writeFile(t, file, "")
	for _, header := range []string{"", "X-Sidecar-Token:", "X-Sidecar-Token: \t"} {
		if _, text := send(http.MethodGet, "/prestop", header, ""); !strings.Contains(text, `"outcome":"observed"`) {
			t.Errorf("with an empty file and %q: %s", header, text)
		}
	}
	writeFile(t, file, secret)
	if n := asked.Load(); n != 0 {
		t.Fatalf("the application was asked to close %d times", n)
	}
	// The real one, whose header's name may be spelled in any way, waits.
	answered := make(chan string, 1)
	go func() { _, text := send(http.MethodGet, "/prestop", "x-sidecar-TOKEN: "+secret, ""); answered <- text }()
	for end := time.Now().Add(20 * time.Second); asked.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("with the token the application was not asked")
		}
	}
	h.Release(lock)
	var ans shutdown.Answer
	if text := <-answered; json.Unmarshal([]byte(text), &ans) != nil || !ans.Triggered || ans.Attempts != 1 || asked.Load() != 1 {
		t.Errorf("with the token: %s after %d requests", text, asked.Load())
	}
}

type stater shutdown.State

func (s stater) State() shutdown.State { return shutdown.State(s) }

// TestShutdownOnTheStatusPage: what the gate knows is told in sentences, with
// the names of applications as text.
func TestShutdownOnTheStatusPage(t *testing.T) {
	t.Parallel()
	p := look(t.TempDir())
	at, took := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), 12.34
	text := func(s shutdown.State) string { return body(get(server.Admin(p, stater(s), nil, nil), "/")) }
	has := func(page string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !strings.Contains(page, part) {
				t.Errorf("no %q in\n%s", part, page)
			}
		}
	}
	has(text(shutdown.State{Phase: shutdown.PhaseRunning, Trigger: "http", Budget: 55 * time.Second}),
		"No preStop call waits. One would have 55 s and use the trigger http.")
	has(text(shutdown.State{
		Phase: shutdown.PhaseDraining, Trigger: "http", Budget: 55 * time.Second, Waited: 7 * time.Second,
		Progress: &shutdown.Progress{Stores: 30, Flushed: 12, Closed: 3, SSTBytesWritten: 5 << 20, Remaining: 9 * time.Second},
	}), "has waited for 7 s of at most 55 s", "of 30 open stores 12 have written a table and 3 are closed", "5.0 MiB written", "it takes 9 s more")
	page := text(shutdown.State{
		Phase: shutdown.PhaseEnded, Trigger: "auto", Budget: time.Minute, JournalError: "the volume is full",
		Dead: []shutdown.AppRef{{Application: "<dead>"}},
		Last: []shutdown.LastShutdown{
			{Shutdown: shutdown.Shutdown{Application: "<b>", Outcome: shutdown.ClosedUnclean, Hook: shutdown.Called, HookOutcome: shutdown.Timeout, Ended: &at, CloseSeconds: &took,
				Stores: 2, Evidence: []shutdown.Evidence{{Task: "0_0", Store: "kv", Reason: shutdown.NotClosed}}, Explanation: "it was killed"}},
			{Shutdown: shutdown.Shutdown{Application: "c", Outcome: shutdown.ClosedClean, Hook: shutdown.NotCalled, Ended: &at, Stores: 9}},
		},
	})
	has(page, "&lt;dead&gt;: its client has died", "&lt;b&gt;: last end closed-unclean at 2026-01-02T03:04:05Z, preStop call answered timeout, 12.3 s after it, 2 stores were open, 1 without proof. It was killed.",
		"c: last end closed-clean at 2026-01-02T03:04:05Z, without a preStop call, 9 stores were open.", "cannot be written down: the volume is full")
	if strings.Contains(page, "<dead>") || strings.Contains(page, "<b>:") {
		t.Error("the name of an application is markup")
	}
}

// TestAppz: what the gate says of the client is the status for the kubelet.
func TestAppz(t *testing.T) {
	t.Parallel()
	p := look(t.TempDir())
	for _, ok := range []bool{true, false} {
		h := server.Hook(p, alive(ok))
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			w := do(h, method, "/appz")
			if (w.Code == http.StatusOK) != ok || !ok && (w.Code != http.StatusServiceUnavailable || method == http.MethodGet && body(w) != "the client is dead\n") {
				t.Errorf("%s, alive %v: %d %q", method, ok, w.Code, body(w))
			}
		}
		// The others do not depend on the application.
		if w := get(h, "/livez"); w.Code != http.StatusOK {
			t.Errorf("alive %v: /livez %d", ok, w.Code)
		}
	}
}

// alive is a gate of which only this is asked.
type alive bool

func (a alive) Alive() (bool, string) { return bool(a), "the client is dead" }

func (alive) Prestop(context.Context, shutdown.Call) (*shutdown.Answer, error) {
	return nil, os.ErrInvalid
}
