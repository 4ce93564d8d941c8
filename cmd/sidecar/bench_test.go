package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
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
