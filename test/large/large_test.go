//go:build large

package large

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"streams-sidecar/internal/volume"
	"streams-sidecar/test/rockswriter"
)

const (
	tableKeys  = 64_000
	valueBytes = 1000
	tables     = 80
	wantBytes  = 5_000_000_000
	// maxMemory is what the process may occupy at its peak, bytes.
	maxMemory = 128 << 20
)

// TestDeepIn128MiB has RocksDB write 5 GB of tables, which takes as much disk
// below TMPDIR while it runs. With SIDECAR_TEST_CGROUP, the directory of a memory
// cgroup, the sidecar runs in that.
func TestDeepIn128MiB(t *testing.T) {
	bin := os.Getenv("SIDECAR_TEST_BIN")
	if bin == "" {
		t.Fatal("SIDECAR_TEST_BIN is not set: use make bench-large")
	}
	dir := t.TempDir()
	if u, err := volume.OS().Usage(dir); err != nil || u.Type == "tmpfs" || u.Free < 2*wantBytes {
		t.Skipf("%s is no disk with 10 GB free: %+v, %v", dir, u, err)
	}
	db := filepath.Join(dir, "app", "0_0", "rocksdb", "kv")
	if err := os.MkdirAll(db, 0o755); err != nil {
		t.Fatal(err)
	}
	r := rockswriter.Recipe{Options: "info_log_level=ERROR_LEVEL;compression=kNoCompression;write_buffer_size=200000000;" +
		"disable_auto_compactions=true;level0_slowdown_writes_trigger=1000;level0_stop_writes_trigger=1000;" +
		"block_based_table_factory={format_version=5;filter_policy=bloomfilter:10:false}"}
	for i := range tables {
		r.Steps = append(r.Steps,
			rockswriter.Step{Do: rockswriter.Put, Keys: tableKeys, First: i * tableKeys, Size: valueBytes, Batch: 1000, NoWAL: true},
			rockswriter.Step{Do: rockswriter.Flush})
	}
	rockswriter.Write(t, db, r)

	var out, words bytes.Buffer
	args := []string{filepath.Join(bin, "sidecar"), "verify", "--deep", "--output=json", "--state-dir", dir}
	if group := os.Getenv("SIDECAR_TEST_CGROUP"); group != "" { // one that bounds memory
		args = append([]string{"sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, group}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &words
	begun := time.Now()
	err := cmd.Run()
	wall := time.Since(begun)
	if code := cmd.ProcessState.ExitCode(); code != 0 && code != 1 {
		t.Fatalf("%v\n%s", err, words.Bytes())
	}
	var answer struct {
		Verification struct {
			Tables    int   `json:"tables"`
			SizeBytes int64 `json:"size_bytes"`
			Complete  bool  `json:"complete"`
		}
	}
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
		t.Fatalf("%v\n%s", err, out.Bytes())
	}
	if v := answer.Verification; v.Tables != tables || v.SizeBytes < wantBytes || !v.Complete {
		t.Fatalf("not all was verified: %+v\n%s", v, out.Bytes())
	}
	peak := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
	cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	read := answer.Verification.SizeBytes
	t.Logf("%.2f GB of tables: %.1f s, %.1f s of processor time, %.1f MiB of memory at the peak",
		float64(read)/1e9, wall.Seconds(), cpu.Seconds(), float64(peak)/(1<<20))
	if peak > maxMemory {
		t.Errorf("%d bytes of memory, more than %d", peak, maxMemory)
	}
}
