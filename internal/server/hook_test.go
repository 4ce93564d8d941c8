package server_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"streams-sidecar/internal/event"
	"streams-sidecar/internal/server"
	"streams-sidecar/internal/shutdown"
	"streams-sidecar/internal/volume"
	"streams-sidecar/test/fixture"
	"streams-sidecar/test/holder"
)

// began counts the drains.
type began struct{ n atomic.Int32 }

func (b *began) Emit(e event.Event) {
	if _, ok := e.(event.PrestopBegan); ok {
		b.n.Add(1)
	}
}

// hookOver gives a hook listener over one directory with a real gate.
func hookOver(t *testing.T, events event.Sink, dir string) (*server.Listener, *shutdown.Gate) {
	t.Helper()
	p := look(dir)
	gate := shutdown.NewGate(shutdown.Config{Volumes: []*volume.Volume{volume.New(volume.OS())},
		Snapshot: p.Snapshot, Timeout: 5 * time.Minute, Events: events})
	return serve(t, server.Config{Handler: server.Hook(p, gate), Connections: server.HookConnections}), gate
}

// call opens a connection and sends a preStop call that waits.
func call(t *testing.T, l *server.Listener) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, "GET /prestop?wait=1 HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return c
}

func footprint() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// TestThousandCalls: they join one drain, cost little, and all get its answer;
// those that never read or hang up change nothing, and the probes are answered
// meanwhile. It is not parallel, since it measures memory.
func TestThousandCalls(t *testing.T) {
	const calls = 1000
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil || lim.Max < 2*calls+200 {
		t.Skipf("at most %d files can be open (%v)", lim.Max, err)
	}
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	var events began
	l, gate := hookOver(t, &events, dir)
	h := holder.Hold(t, filepath.Join(dir, "alos391", ".lock"))
	before, goroutines := footprint(), runtime.NumGoroutine()
	conns := make([]net.Conn, calls)
	for i := range conns {
		conns[i] = call(t, l)
	}
	// Each waiting call has two goroutines: its own, and one that listens
	// whether the caller hangs up.
	for deadline := time.Now().Add(20 * time.Second); runtime.NumGoroutine() < goroutines+2*calls; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, want %d more than %d", runtime.NumGoroutine(), 2*calls, goroutines)
		}
	}
	cost := (int64(footprint()) - int64(before)) / calls
	t.Logf("%d bytes for each call", cost)
	if cost > 64<<10 {
		t.Errorf("a waiting call costs %d bytes", cost)
	}
	for i, c := range conns { // a quarter hangs up
		if i%4 == 1 {
			_ = c.Close()
		}
	}
	resp, err := http.Get(l.URL("/livez")) //nolint:noctx // bounded by the test
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("/livez while they wait: %d", resp.StatusCode)
	}
	h.Kill()
	for i, c := range conns {
		if i%4 == 1 || i%4 == 2 {
			continue // has hung up, or never reads
		}
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		var ans shutdown.Answer
		err = json.NewDecoder(resp.Body).Decode(&ans)
		_ = resp.Body.Close()
		if err != nil || ans.Outcome != shutdown.ClosedUnclean {
			t.Fatalf("call %d: %+v %v", i, ans, err)
		}
	}
	if n := events.n.Load(); n != 1 {
		t.Errorf("%d drains, want one", n)
	}
	released := func() uint64 { return gate.State().Requests[shutdown.ClosedUnclean] }
	for deadline := time.Now().Add(20 * time.Second); released() < calls/4*3; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d calls were answered, want the %d that did not hang up", released(), calls/4*3)
		}
	}
}

// TestNothingBeforeTheOutcome: not one byte, since the kubelet takes the first
// ones as a sign of life and the end of the body as its leave.
func TestNothingBeforeTheOutcome(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	l, _ := hookOver(t, event.Discard, dir)
	h := holder.Hold(t, filepath.Join(dir, "alos391", ".lock"))
	for _, request := range []string{
		"GET /prestop?wait=1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"GET /prestop?wait=1 HTTP/1.0\r\n\r\n",
		"GET //prestop/?wait=1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
	} {
		c, err := net.Dial("tcp", l.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(150 * time.Millisecond))
		if n, err := c.Read(make([]byte, 1)); n > 0 || !os.IsTimeout(err) {
			t.Errorf("%q: %d bytes and %v before the outcome", request, n, err)
		}
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
		lock := filepath.Join(dir, "alos391", ".lock")
		h.Release(lock)
		got, err := io.ReadAll(c)
		head, text, _ := strings.Cut(string(got), "\r\n\r\n")
		var ans shutdown.Answer
		if err != nil || !strings.Contains(head, " 200 OK\r\n") || json.Unmarshal([]byte(text), &ans) != nil || ans.Outcome != shutdown.ClosedUnclean {
			t.Errorf("%q: %q %v", request, got, err)
		}
		h.Take(lock)
	}
}

// TestLongestAnswer: at most 8 KiB, whatever the names, and those that are left
// out are counted.
func TestLongestAnswer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const applications = 40
	var locks []string
	for i := range applications {
		name := strings.Repeat("<\x01\"", 70) + strings.Repeat("i", i)
		app := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Join(app, "0_0"), 0o755); err != nil {
			t.Fatal(err)
		}
		lock := filepath.Join(app, ".lock")
		writeFile(t, lock, "")
		locks = append(locks, lock)
	}
	l, _ := hookOver(t, event.Discard, dir)
	h := holder.Hold(t, locks...)
	defer h.Kill()
	resp, err := http.Get(l.URL("/prestop")) //nolint:noctx // bounded by the test
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	var ans shutdown.Answer
	if err != nil || json.Unmarshal(got, &ans) != nil || len(got) > 8<<10 {
		t.Fatalf("%d bytes: %s %v", len(got), got, err)
	}
	if len(ans.Held) == 0 || len(ans.Held)+ans.HeldMore != applications || ans.Outcome != shutdown.Observed {
		t.Errorf("%d named and %d counted, want %d together: %+v", len(ans.Held), ans.HeldMore, applications, ans)
	}
}
