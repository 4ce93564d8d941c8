package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"streams-sidecar/test/manystores"
)

// built builds the binary that people run: static, without the race detector.
func built(b *testing.B) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "sidecar")
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("build: %v\n%s", err, out)
	}
	return path
}

// benchmarkStatus runs the binary once, from the start of the process to the finished
// table.
func benchmarkStatus(b *testing.B, stores int) {
	b.Helper()
	exe, dir := built(b), manystores.Make(b, stores)
	round := func() (wall, cpu time.Duration, rss int64) {
		var out bytes.Buffer
		cmd := exec.Command(exe, "status", "--state-dir", dir)
		cmd.Stdout = &out
		begun := time.Now()
		if err := cmd.Run(); err != nil {
			b.Fatal(err)
		}
		wall = time.Since(begun)
		if n := bytes.Count(out.Bytes(), []byte("store-")); n != stores {
			b.Fatalf("%d stores in the table, want %d", n, stores)
		}
		u := cmd.ProcessState.SysUsage().(*syscall.Rusage)
		return wall, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), u.Maxrss
	}
	round() // page cache warm
	var wall, cpu time.Duration
	var rss int64
	b.ResetTimer()
	for range b.N {
		w, c, r := round()
		wall, cpu, rss = wall+w, cpu+c, max(rss, r)
	}
	b.ReportMetric(float64(wall.Microseconds())/1e3/float64(b.N), "ms-wall")
	b.ReportMetric(float64(cpu.Microseconds())/1e3/float64(b.N), "ms-cpu")
	b.ReportMetric(float64(rss)/1024, "MiB-peak")
}

func BenchmarkStatus100Stores(b *testing.B)  { benchmarkStatus(b, 100) }
func BenchmarkStatus1000Stores(b *testing.B) { benchmarkStatus(b, 1000) }

// BenchmarkAgent1000Stores runs the agent over 1,000 stores: how long until the
// first look is done, what four scrapes at once cost, and what it takes when
// nothing happens but a scrape every 15 seconds and a rescan every 30. The idle
// time is a minute, or $AGENT_IDLE.
func BenchmarkAgent1000Stores(b *testing.B) {
	exe, dir := built(b), manystores.Make(b, 1000)
	idle := time.Minute
	if text := os.Getenv("AGENT_IDLE"); text != "" {
		var err error
		if idle, err = time.ParseDuration(text); err != nil {
			b.Fatal(err)
		}
	}
	for range b.N {
		p := runBuilt(b, exe, "run", "--state-dir", dir, "--log-level=error", "--stop-timeout=0",
			"--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--hook-listen=127.0.0.1:0")
		b.ReportMetric(float64(p.ready.Milliseconds()), "ms-ready")
		before := p.cpu(b)
		const rounds = 20
		for range rounds {
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() { p.scrape(b) })
			}
			wg.Wait()
		}
		b.ReportMetric(float64((p.cpu(b)-before).Microseconds())/1e3/rounds/4, "ms-cpu/scrape")
		before = p.cpu(b)
		begun := time.Now()
		for time.Since(begun) < idle {
			time.Sleep(min(15*time.Second, idle-time.Since(begun)))
			p.scrape(b)
		}
		b.ReportMetric(100*float64(p.cpu(b)-before)/float64(time.Since(begun)), "%-of-a-core-idle")
		b.ReportMetric(p.peak(b), "MiB-peak")
		p.stop(b)
	}
}

// builtAgent is a running agent.
type builtAgent struct {
	cmd     *exec.Cmd
	metrics string
	ready   time.Duration // from its start to the first successful /readyz
}

func runBuilt(b *testing.B, exe string, args ...string) *builtAgent {
	b.Helper()
	p := &builtAgent{cmd: exec.Command(exe, args...)}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	begun := time.Now()
	if err := p.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = p.cmd.Process.Kill() }) // it may have ended
	urls := map[string]string{}
	for lines := bufio.NewScanner(out); len(urls) < 3 && lines.Scan(); {
		f := strings.Fields(lines.Text())
		urls[f[0]] = f[1]
	}
	p.metrics = urls["metrics"]
	ready := strings.TrimSuffix(urls["hook"], "/prestop") + "/readyz"
	for {
		resp, err := http.Get(ready) //nolint:noctx // ends with the benchmark
		if err != nil {
			b.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			p.ready = time.Since(begun)
			return p
		}
		time.Sleep(time.Millisecond)
	}
}

func (p *builtAgent) scrape(b *testing.B) {
	resp, err := http.Get(p.metrics) //nolint:noctx // ends with the benchmark
	if err != nil {
		b.Error(err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		b.Errorf("scrape: %d %v", resp.StatusCode, err)
	}
}

// cpu is the user and system time of the process, from /proc/PID/stat.
func (p *builtAgent) cpu(b *testing.B) time.Duration {
	b.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	f := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	var user, system int64
	if _, err := fmt.Sscan(f[11]+" "+f[12], &user, &system); err != nil {
		b.Fatal(err)
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 everywhere
	return time.Duration(user+system) * tick
}

// peak is VmHWM.
func (p *builtAgent) peak(b *testing.B) float64 {
	b.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	var kib float64
	if _, after, ok := strings.Cut(string(data), "VmHWM:"); ok {
		if _, err := fmt.Sscan(after, &kib); err != nil {
			b.Fatal(err)
		}
	}
	return kib / 1024
}

func (p *builtAgent) stop(b *testing.B) {
	b.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		b.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		b.Fatal(err)
	}
}
