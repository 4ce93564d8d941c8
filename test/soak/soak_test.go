//go:build soak

package soak

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"streams-sidecar/test/fixture"
)

const (
	storesPerTask = 4
	ticksPerSec   = 100 // USER_HZ, of /proc/…/stat, on every Linux
)

// many writes a state directory with so many copies of a real store, each of
// three column families.
func many(t *testing.T, stores int) (dir string, dbs []string) {
	t.Helper()
	src := filepath.Join(fixture.Unpack(t, "4.4.0", "closed-clean"), "alos440")
	dir = t.TempDir()
	app := filepath.Join(dir, "many")
	for i := range stores {
		db := filepath.Join(app, fmt.Sprintf("0_%d", i/storesPerTask), "rocksdb", fmt.Sprintf("store-%d", i))
		must(t, os.MkdirAll(db, 0o755))
		must(t, os.CopyFS(db, os.DirFS(filepath.Join(src, "1_0", "rocksdb", "kv"))))
		dbs = append(dbs, db)
	}
	for _, name := range []string{".lock", "kafka-streams-process-metadata"} {
		data, err := os.ReadFile(filepath.Join(src, name))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(app, name), data, 0o644))
	}
	return dir, dbs
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// agent is one that runs.
type agent struct {
	t             *testing.T
	metrics, hook string
	pid           int
	ready         time.Duration // from its start
	stop          func()
}

func start(t *testing.T, args ...string) *agent {
	t.Helper()
	bin := os.Getenv("SIDECAR_TEST_BIN") // with sidecar and sidecar-engine; scripts/soak sets it
	if bin == "" {
		t.Fatal("SIDECAR_TEST_BIN is not set: use make soak")
	}
	cmd := exec.Command(filepath.Join(bin, "sidecar"), append([]string{"run", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0",
		"--hook-listen=127.0.0.1:0", "--stop-timeout=0", "--log-level=error"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	begun := time.Now()
	must(t, cmd.Start())
	a := &agent{t: t, pid: cmd.Process.Pid}
	a.stop = func() {
		must(t, cmd.Process.Signal(syscall.SIGTERM))
		if err := cmd.Wait(); err != nil {
			t.Errorf("the agent ended: %v", err)
		}
	}
	urls := map[string]string{}
	for lines := bufio.NewScanner(out); len(urls) < 3 && lines.Scan(); {
		f := strings.Fields(lines.Text())
		urls[f[0]] = f[1]
	}
	a.metrics, a.hook = urls["metrics"], strings.TrimSuffix(urls["hook"], "/prestop")
	for a.get(a.hook+"/readyz") != "ok\n" {
		time.Sleep(time.Millisecond)
	}
	a.ready = time.Since(begun)
	return a
}

func (a *agent) get(url string) string {
	a.t.Helper()
	resp, err := http.Get(url) //nolint:noctx // ends with the test
	must(a.t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	must(a.t, err)
	return string(body)
}

// requests is how many have been answered, and how many not.
func (a *agent) requests() (answered, others float64) {
	a.t.Helper()
	const name = `kstreams_sidecar_engine_requests_total{outcome="`
	for line := range strings.Lines(a.get(a.metrics)) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok {
			continue
		}
		outcome, value, _ := strings.Cut(strings.TrimSpace(rest), `"} `)
		n, err := strconv.ParseFloat(value, 64)
		must(a.t, err)
		if outcome == "answered" {
			answered = n
		} else {
			others += n
		}
	}
	return answered, others
}

// cpu is what a process has used so far.
func cpu(t *testing.T, pid int) time.Duration {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(t, err)
	f := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	ticks := 0
	for _, i := range []int{11, 12} { // utime and stime: fields 14 and 15 of proc(5)
		n, err := strconv.Atoi(f[i])
		must(t, err)
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerSec
}

// peak is the most memory that a process has had resident, bytes.
func peak(t *testing.T, pid int) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); f[0] == "VmHWM:" {
			n, err := strconv.Atoi(f[1])
			must(t, err)
			return n << 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

// child is the agent's engine.
func (a *agent) child() int {
	a.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		files, err := filepath.Glob("/proc/[0-9]*/stat")
		must(a.t, err)
		for _, path := range files {
			data, err := os.ReadFile(path)
			if err != nil {
				continue // it has ended
			}
			end := strings.LastIndexByte(string(data), ')')
			if end < 0 {
				continue
			}
			if f := strings.Fields(string(data[end+1:])); len(f) > 1 && f[1] == strconv.Itoa(a.pid) && strings.Contains(string(data[:end]), "sidecar-engine") {
				pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
				must(a.t, err)
				return pid
			}
		}
	}
	a.t.Fatal("the agent has no engine")
	return 0
}

// change touches one store after the other, so that each changes once within a
// minute, until the time is over.
func change(t *testing.T, dbs []string, d time.Duration) {
	t.Helper()
	tick := time.NewTicker(time.Minute / time.Duration(len(dbs)))
	defer tick.Stop()
	for i, begun := 0, time.Now(); time.Since(begun) < d; i++ {
		now := <-tick.C
		must(t, os.Chtimes(filepath.Join(dbs[i%len(dbs)], "LOG"), now, now))
	}
}

// TestThousandStores: 1,000 stores that all change every minute, and RocksDB
// asked about each of them as often.
func TestThousandStores(t *testing.T) {
	const stores = 1000
	dir, dbs := many(t, stores)
	without := start(t, "--state-dir", dir, "--engine-interval=0")
	before := cpu(t, without.pid)
	change(t, dbs, 2*time.Minute)
	alone := (cpu(t, without.pid) - before).Seconds() / 120
	without.stop()

	a := start(t, "--state-dir", dir)
	child := a.child()
	change(t, dbs, 70*time.Second) // everything once
	asked, _ := a.requests()
	own, engine, begun := cpu(t, a.pid), cpu(t, child), time.Now()
	change(t, dbs, 4*time.Minute)
	took := time.Since(begun).Seconds()
	now, others := a.requests()
	perMinute := (now - asked) / took * 60
	share, beside := (cpu(t, child)-engine).Seconds()/took, (cpu(t, a.pid)-own).Seconds()/took
	if a.child() != child {
		t.Error("it is another process now")
	}
	t.Logf("%.0f requests a minute (%.0f in the first 70 s), %.0f in vain; RocksDB's process: %.2f %% of a core, at most %d MiB; the agent: %.2f %% of a core, %.2f %% without it",
		perMinute, asked, others, share*100, peak(t, child)>>20, beside*100, alone*100)
	if peak(t, child) >= 96<<20 {
		t.Errorf("RocksDB's process had %d MiB", peak(t, child)>>20)
	}
	if share >= 0.05 {
		t.Errorf("RocksDB's process took %.2f %% of a core", share*100)
	}
	if others > 0 || perMinute < stores*0.8 {
		t.Errorf("%.0f requests a minute, %.0f in vain", perMinute, others)
	}
	a.stop()
}

// TestReady: how soon the first look is done, with RocksDB beside it and
// without.
func TestReady(t *testing.T) {
	dir, _ := many(t, 100)
	median := func(args ...string) time.Duration {
		var took []time.Duration
		for range 9 {
			a := start(t, append(args, "--state-dir", dir)...)
			took = append(took, a.ready)
			a.stop()
		}
		slices.Sort(took)
		return took[len(took)/2]
	}
	with, without := median(), median("--engine-interval=0")
	t.Logf("ready after %v, without RocksDB after %v", with.Round(time.Millisecond), without.Round(time.Millisecond))
	if with >= 300*time.Millisecond {
		t.Errorf("ready only after %v", with)
	}
}
