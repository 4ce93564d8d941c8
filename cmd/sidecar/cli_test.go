package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/report"
	"streams-sidecar/test/fixture"
	"streams-sidecar/test/holder"
)

func TestMain(m *testing.M) {
	if os.Getenv(asOtherEnv) != "" {
		main()
	}
	holder.Main(m)
}

// sidecar runs one command line in this process.
func sidecar(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = execute(context.Background(), args, &out, &errs)
	return code, out.String(), errs.String()
}

// statusJSON runs status and parses its answer.
func statusJSON(t *testing.T, dirs ...string) (int, report.Document) {
	t.Helper()
	args := []string{"status", "--output=json"}
	for _, d := range dirs {
		args = append(args, "--state-dir", d)
	}
	code, out, errs := sidecar(args...)
	var doc report.Document
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatalf("status: %v\n%s%s", err, out, errs)
	}
	if errs != "" {
		t.Errorf("status wrote to stderr: %s", errs)
	}
	return code, doc
}

func mkdir(t *testing.T, path ...string) string {
	t.Helper()
	p := filepath.Join(path...)
	if err := os.MkdirAll(p, 0o755); err != nil {
		t.Fatal(err)
	}
	return p
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func codes(fs []finding.Finding) string {
	var out []string
	for _, f := range fs {
		out = append(out, string(f.Code))
	}
	return strings.Join(out, ",")
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"stauts"}, 64, "stauts"},
		{[]string{"status", "--no-such-flag"}, 64, "no-such-flag"},
		{[]string{"status", "--output=xml"}, 64, "output"},
		{[]string{"inspect"}, 64, "path"},
		{[]string{"run", "--rescan-interval=1ms"}, 64, "rescan-interval"},
		{[]string{"run", "--prestop-timeout=-1s"}, 64, "prestop-timeout"},
		{[]string{"run", "--stop-timeout=-1s"}, 64, "stop-timeout"},
		{[]string{"run", "--web-config-file=/no/such/file"}, 1, "/no/such/file"},
		{[]string{"run", "--log-level=loud"}, 64, "loud"},
		{[]string{"run", "--termination-grace-period=soon"}, 64, "soon"},
		{[]string{"status", "--watch=1ns"}, 64, "watch"},
		{[]string{"run", "--listen=127.0.0.1:nope"}, 1, "--listen"},
		{[]string{"inspect", "/no/such/path"}, 3, "/no/such/path"},
	} {
		code, out, errs := sidecar(c.args...)
		if code != c.code || !strings.Contains(errs, c.says) || strings.Count(errs, "\n") != 1 || out != "" {
			t.Errorf("%q: code %d, stdout %q, stderr %q; want code %d and one line with %q", c.args, code, out, errs, c.code, c.says)
		}
	}
	if code, out, _ := sidecar("--help"); code != 0 || !strings.Contains(out, "inspect") {
		t.Errorf("--help: %d %q", code, out)
	}
	if code, out, _ := sidecar("version"); code != 0 || !strings.Contains(out, "built without RocksDB") {
		t.Errorf("version: %d %q", code, out)
	}
}

func TestStateDirFromEnvironment(t *testing.T) {
	a, b := fixture.Unpack(t, "3.9.1", "closed-clean"), fixture.Unpack(t, "4.4.0", "closed-clean")
	t.Setenv("STATE_DIR", a)
	if _, out, _ := sidecar("status"); !strings.Contains(out, "alos391") {
		t.Errorf("STATE_DIR is not looked at:\n%s", out)
	}
	t.Setenv("SIDECAR_STATE_DIR", b)
	if _, out, _ := sidecar("status"); !strings.Contains(out, "alos440") || strings.Contains(out, "alos391") {
		t.Errorf("SIDECAR_STATE_DIR does not win:\n%s", out)
	}
}

// TestExitCodes: 0, 1 and 3, and never 2.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		version, name string
		code          int
	}{
		{"4.4.0", "closed-clean", 0},
		{"3.9.1", "corrupt-alos-options-deleted", 0}, // the older OPTIONS file went too: info
		{"3.9.1", "corrupt-alos-ckpt-garbage", 2},
		{"3.9.1", "corrupt-alos-manifest-tail-cut", 1},
		{"3.9.1", "corrupt-alos-task-dir-moved-inside-app", 1},
		{"3.9.1", "corrupt-alos-current-empty", 2},
		{"3.9.1", "corrupt-alos-manifest-deleted", 2},
		{"3.9.1", "corrupt-alos-manifest-flip", 2},
	} {
		if code, _ := statusJSON(t, fixture.Unpack(t, c.version, c.name)); code != c.code {
			t.Errorf("%s/%s: exit code %d, want %d", c.version, c.name, code, c.code)
		}
	}
	if code, _ := statusJSON(t, filepath.Join(t.TempDir(), "missing")); code != 3 {
		t.Errorf("missing state directory: exit code %d, want 3", code)
	}
}

func TestInspect(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "4.4.0", "closed-clean")
	kv := filepath.Join(dir, "alos440", "1_0", "rocksdb", "kv")
	for path, want := range map[string][]string{
		kv: {"timestamped", "closed           clean", "alos440-kv-changelog-0 = 1135 (last-applied)", "keyValueWithTimestamp: 1 tables",
			"259 entries", "MANIFEST-000005", "L0  000011.sst", "RocksDB 10.1.3"},
		filepath.Join(dir, "alos440", "1_0"):                             {"task             1_0", "offsets-cf", "win, segmented"},
		filepath.Join(dir, "alos440", "1_0", "win"):                      {"segmented", "win.1796062800000"},
		filepath.Join(dir, "alos440", "1_0", "win", "win.1796062800000"): {"read on its own", "key-value"},
		filepath.Join(kv, "MANIFEST-000005"):                             {"column family 2 offsets", "L0  000010.sst"},
		filepath.Join(kv, "000010.sst"):                                  {"offsets", "alos440-kv-changelog-0 = 1135", "status = 0", "version 6, checksum XXH3"},
		filepath.Join(kv, "000011.sst"):                                  {"keyValueWithTimestamp", "259, of them 0 deletions"},
		filepath.Join(kv, "CURRENT"):                                     {"MANIFEST-000005"},
		filepath.Join(kv, "OPTIONS-000009"):                              {"column family offsets", "info_log_level=ERROR_LEVEL"},
		filepath.Join(kv, "LOG"):                                         {"other", "info log"},
		filepath.Join(kv, "000004.log"):                                  {"other", "write-ahead log"},
		filepath.Join(dir, "alos440", ".lock"):                           {"other", "lock"},
		filepath.Join(dir, "alos440", "kafka-streams-process-metadata"):  {"process id"},
		dir: {"other", "sidecar status"},
	} {
		code, out, errs := sidecar("inspect", path)
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("inspect %s: no %q in\n%s%s", path, w, out, errs)
			}
		}
		if code != 0 {
			t.Errorf("inspect %s: code %d", path, code)
		}
		if _, js, _ := sidecar("inspect", "--output=json", path); !json.Valid([]byte(js)) {
			t.Errorf("inspect --output=json %s: not JSON: %s", path, js)
		}
	}
	dir = fixture.Unpack(t, "3.9.1", "closed-clean")
	if _, out, _ := sidecar("inspect", filepath.Join(dir, "alos391", "1_0", ".checkpoint")); !strings.Contains(out, "alos391-win-changelog-0 = 1135") {
		t.Errorf("inspect .checkpoint: %s", out)
	}
	if code, out, _ := sidecar("inspect", filepath.Join(fixture.Unpack(t, "3.9.1", "corrupt-alos-sst-footer-flip"), "calos391", "0_0", "rocksdb", "kv")); code != 2 || !strings.Contains(out, "sst-footer-malformed") {
		t.Errorf("inspect of a store with a damaged footer: %d\n%s", code, out)
	}
}
