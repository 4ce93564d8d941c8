package beside_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/report"
	"streams-sidecar/internal/verify"
	"streams-sidecar/internal/volume"
	"streams-sidecar/test/beside"
	"streams-sidecar/test/rockswriter"
)

// TestKilledAtEachCall: RocksDB makes, writes and opens a store again, and is
// killed at its first system call of a kind, at the second, and so on. What it
// leaves each time it opens again itself, and nothing of it is said to be
// damaged or unreadable.
func TestKilledAtEachCall(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not there")
	}
	program := rockswriter.Program(t)
	families := []rockswriter.Family{{Name: "keyValueWithTimestamp"}}
	put := func(first int, family string) rockswriter.Step {
		return rockswriter.Step{Do: rockswriter.Put, Family: family, Keys: 200, First: first, Size: 50, Batch: 50, NoWAL: true}
	}
	flush := rockswriter.Step{Do: rockswriter.Flush, Family: families[0].Name}
	recipe := rockswriter.Recipe{Options: universal + atomic, Families: families, Steps: []rockswriter.Step{
		put(0, ""), put(0, families[0].Name), flush, put(100, families[0].Name), flush,
		{Do: rockswriter.Compact, Family: families[0].Name}, put(200, families[0].Name), flush,
	}}
	session, err := json.Marshal(recipe)
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range []string{"openat", "write", "rename", "unlink", "ftruncate", "fallocate", "fdatasync", "fsync", "mkdir"} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			kills := 0
			for again := range 2 { // 1: the store is there already
				for n := 1; ; n++ {
					dir := t.TempDir()
					db := filepath.Join(dir, "app", "0_0", "rocksdb", "kv")
					must(t, os.MkdirAll(db, 0o755))
					must(t, os.WriteFile(filepath.Join(dir, "app", ".lock"), nil, 0o644))
					if again == 1 {
						rockswriter.Write(t, db, recipe)
					}
					cmd := exec.CommandContext(t.Context(), strace, "-f", "-qq", "-o", os.DevNull, "-e", "trace="+call,
						"-e", fmt.Sprintf("inject=%s:signal=SIGKILL:when=%d", call, n), program, db)
					cmd.Stdin = bytes.NewReader(session)
					out, err := cmd.CombinedOutput()
					if err == nil { // there is no n-th call
						must(t, os.RemoveAll(dir))
						break
					}
					if s := cmd.ProcessState.Sys().(syscall.WaitStatus); !s.Signaled() && s.ExitStatus() != 128+int(syscall.SIGKILL) {
						t.Fatalf("%d-th %s: %v\n%s", n, call, err, out)
					}
					kills++
					where := fmt.Sprintf("%d-th %s, %d", n, call, again)
					expectUnharmed(t, where, dir)
					rockswriter.Write(t, db, rockswriter.Recipe{Options: recipe.Options, Families: families})
					expectUnharmed(t, where+", after RocksDB has opened and closed it", dir)
					must(t, os.RemoveAll(dir))
				}
			}
			if kills == 0 {
				t.Error("never killed")
			}
			t.Logf("killed %d times", kills)
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// expectUnharmed verifies a state directory at rest.
func expectUnharmed(t *testing.T, where, dir string) {
	t.Helper()
	v := verify.Run(t.Context(), []*volume.Volume{volume.New(volume.OS())}, []string{dir}, verify.Question{}, verify.Plan{Depth: verify.Deep}, nil)
	doc := report.NewVerified(v)
	for _, p := range beside.Parts(&doc) {
		for _, f := range p.Findings {
			if f.Severity == finding.Damage || f.Severity == finding.Unreadable {
				t.Errorf("%s: %s: %s %s: expected %s, found %s", where, p.Name, f.Code, f.File, f.Expected, f.Found)
			}
		}
	}
}
