package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"streams-sidecar/internal/report"
	"streams-sidecar/internal/volume/volumetest/hungfs"
	"streams-sidecar/test/fixture"
)

// elsewhere moves a store's directory onto a mount that can hang.
func elsewhere(t *testing.T, store string) *hungfs.FS {
	t.Helper()
	moved := filepath.Join(t.TempDir(), "moved")
	if err := os.CopyFS(moved, os.DirFS(store)); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(store); err != nil {
		t.Fatal(err)
	}
	m := hungfs.Mount(t, moved)
	if err := os.Symlink(m.Path, store); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestHungStore: a store on a volume that hangs, for real, is a finding; the
// others are as they were.
func TestHungStore(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	m := elsewhere(t, filepath.Join(dir, "alos391", "1_0", "rocksdb", "kv"))
	code, doc := statusJSON(t, dir)
	if s := storeOf(t, doc, "1_0", "kv"); code != 0 || *s.Families[1].Entries != 259 {
		t.Fatalf("before it hangs: code %d, %+v", code, s)
	}
	m.Stall()
	code, doc = statusJSON(t, dir)
	if code != 3 {
		t.Errorf("exit code %d, want 3", code)
	}
	all, _ := json.Marshal(doc) // it came from JSON
	if !strings.Contains(string(all), `"volume-stuck"`) {
		t.Errorf("no finding volume-stuck: %s", all)
	}
	if s := storeOf(t, doc, "1_1", "kv"); *s.Families[1].Entries != 241 || len(s.Findings) > 0 || len(s.Offsets) != 1 {
		t.Errorf("the neighbour: %+v", s)
	}
	m.Release()
}

// TestCaseF09, D04: while a store hangs, the agent answers everything at once, and
// recovers by itself.
func TestCaseF09(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	m := elsewhere(t, filepath.Join(dir, "alos391", "1_0", "rocksdb", "kv"))
	a := startAgent(t, "--state-dir", dir, "--rescan-interval=1s")
	healthy := `kstreams_store_up{application_id="alos391",store="kv",task_id="1_0"} 1`
	a.until(t, "the store", func() bool { return strings.Contains(a.get(t, a.metrics), healthy) })
	m.Stall()
	a.until(t, "the loss of the store", func() bool { return !strings.Contains(a.get(t, a.metrics), healthy) })
	for range 20 {
		for _, url := range []string{a.metrics, a.hook + "/livez", a.hook + "/readyz", a.admin + "/api/v1/state"} {
			begun := time.Now()
			body := a.get(t, url)
			if took := time.Since(begun); took > time.Second {
				t.Errorf("%s took %v while a volume hangs", url, took)
			}
			if strings.HasSuffix(url, "z") && body != "ok\n" {
				t.Errorf("%s: %s", url, body)
			}
		}
	}
	if text := a.get(t, a.metrics); !strings.Contains(text, `kstreams_store_up{application_id="alos391",store="kv",task_id="1_1"} 1`) {
		t.Error("the neighbour is not up")
	}
	m.Release()
	a.until(t, "the recovery", func() bool { return strings.Contains(a.get(t, a.metrics), healthy) })
}

// TestGarbage: garbage, nothing, a directory, a FIFO or a loop in the place of
// each file of a store and task never crashes, and leaves the neighbours as
// they were.
func TestGarbage(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2.8.2", "4.4.0"} {
		dir := fixture.Unpack(t, version, "closed-clean")
		app := "alos" + strings.ReplaceAll(version, ".", "")
		var files []string
		for _, pattern := range []string{"1_0/rocksdb/kv/*", "1_0/.checkpoint", "1_0/*.position", "kafka-streams-process-metadata", ".lock", "1_0/win/*/CURRENT"} {
			found, err := filepath.Glob(filepath.Join(dir, app, pattern))
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, found...)
		}
		if len(files) < 12 {
			t.Fatalf("only %d files", len(files))
		}
		r := rand.New(rand.NewPCG(1, 2))
		for _, f := range files {
			original, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for what, put := range map[string]func() error{
				"empty":     func() error { return os.WriteFile(f, nil, 0o644) },
				"garbage":   func() error { return os.WriteFile(f, garbage(r, 5000), 0o644) },
				"zeros":     func() error { return os.WriteFile(f, make([]byte, 5000), 0o644) },
				"half":      func() error { return os.WriteFile(f, original[:len(original)/2], 0o644) },
				"flipped":   func() error { return os.WriteFile(f, flipped(r, original), 0o644) },
				"directory": func() error { return os.Mkdir(f, 0o755) },
				"fifo":      func() error { return syscall.Mkfifo(f, 0o644) },
				"loop":      func() error { return os.Symlink(filepath.Base(f), f) },
			} {
				if err := os.RemoveAll(f); err != nil {
					t.Fatal(err)
				}
				if err := put(); err != nil {
					t.Fatal(err)
				}
				code, doc := statusJSON(t, dir)
				if code < 0 || code > 3 {
					t.Errorf("%s %s: exit code %d", f, what, code)
				}
				if s := storeOf(t, doc, "1_1", "kv"); *s.Families[1].Entries != 241 || len(s.Findings) > 0 {
					t.Errorf("%s %s: the neighbour: %+v", f, what, s)
				}
				if code, _, errs := sidecar("inspect", f); code < 0 || code > 3 || strings.Count(errs, "\n") > 1 {
					t.Errorf("inspect %s %s: exit code %d, %s", f, what, code, errs)
				}
			}
			if err := os.RemoveAll(f); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(f, original, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func garbage(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func flipped(r *rand.Rand, data []byte) []byte {
	b := append([]byte{}, data...)
	if len(b) > 0 {
		b[r.IntN(len(b))] ^= 0xff
	}
	return b
}

// TestWrongKinds: a file where a directory should be, at every place.
func TestWrongKinds(t *testing.T) {
	t.Parallel()
	for _, place := range []string{"1_0", "1_0/rocksdb", "1_0/rocksdb/kv", "1_0/win", "1_0/win/win.1796062800000", "global"} {
		dir := fixture.Unpack(t, "3.9.1", "closed-clean")
		path := filepath.Join(dir, "alos391", place)
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		write(t, path, "a file")
		_, doc := statusJSON(t, dir)
		if s := storeOf(t, doc, "1_1", "kv"); *s.Families[1].Entries != 241 {
			t.Errorf("%s: the neighbour: %+v", place, s)
		}
		all, _ := json.Marshal(doc) // it came from JSON
		// In a task a plain file of any name is nothing that Streams minds.
		if place != "1_0/win" && !strings.Contains(string(all), `"wrong-kind"`) && !strings.Contains(string(all), `"foreign-in-segments"`) {
			t.Errorf("%s: no finding: %s", place, all)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "a file")
	code, doc := statusJSON(t, file)
	if got := codes(doc.StateDirs[0].Findings); code != 3 || got != "wrong-kind" {
		t.Errorf("a file as state directory: code %d, findings %s", code, got)
	}
}

// TestManyFiles: 100,000 files in one store.
func TestManyFiles(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	kv := filepath.Join(dir, "alos391", "1_0", "rocksdb", "kv")
	const files = 100_000
	name := func(i int) string { return filepath.Join(kv, fmt.Sprintf("LOG.old.%d", i)) }
	for i := range files {
		if base := i / 1000 * 1000; base == i {
			write(t, name(i), "")
		} else if err := os.Link(name(base), name(i)); err != nil { // cheaper than a file
			t.Fatal(err)
		}
	}
	code, doc := statusJSON(t, dir)
	if s := storeOf(t, doc, "1_0", "kv"); code != 0 || *s.Families[1].Entries != 259 || len(s.Findings) > 0 {
		t.Errorf("code %d, %+v", code, s)
	}
}

// TestHostileNames: spaces, quotes, newlines, invalid UTF-8, in every place
// where a name can be.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	src := fixture.Unpack(t, "3.9.1", "closed-clean")
	for _, name := range []string{"with space", `quo"te'`, "new\nline", "tab\t", "bad\xff\xfe", "-dash", "ünï", "a\\b", "{}", "%s%d"} {
		dir := filepath.Join(t.TempDir(), "state "+name)
		app := filepath.Join(dir, name)
		if err := os.CopyFS(app, os.DirFS(filepath.Join(src, "alos391"))); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(app, "1_0", "rocksdb", "kv"), filepath.Join(app, "1_0", "rocksdb", name)); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(app, "1_1", "rocksdb", "kv", "CURRENT"), name)
		// The offset of the store that has lost its name.
		write(t, filepath.Join(app, "1_0", ".checkpoint"), "0\n0\n")
		code, doc := statusJSON(t, dir)
		if len(doc.StateDirs[0].Applications) == 0 {
			t.Errorf("%q: no application: %+v", name, doc)
			continue
		}
		var kind string
		for _, s := range doc.StateDirs[0].Applications[0].Tasks[0].Stores {
			if len(s.Families) == 0 {
				t.Errorf("%q: a store without families: %+v", name, s)
			} else if s.Families[0].Name == "default" && len(s.Families) == 2 {
				kind = s.Kind
			}
		}
		if code != 2 || kind != "timestamped" {
			t.Errorf("%q: code %d, kind %q", name, code, kind)
		}
		_, text, _ := sidecar("status", "--state-dir", dir)
		for line := range strings.SplitSeq(text, "\n") {
			if strings.Contains(line, "\t") || !utf8.ValidString(line) || line == "line" {
				t.Errorf("%q reaches the terminal raw: %q", name, line)
			}
		}
	}
}

const asOtherEnv = "STREAMS_SIDECAR_TEST_COMMAND"

// TestDenied: what the sidecar's user may not read is a finding; the others
// are as they were. As root this runs in a child of another user.
func TestDenied(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	app := filepath.Join(dir, "alos391")
	for place, mode := range map[string]os.FileMode{
		"1_0/rocksdb/kv": 0, "1_0/win": 0, "1_0/rocksdb/ver/MANIFEST-000005": 0,
		"1_0/.checkpoint": 0, "global": 0o444, ".": 0o755,
	} {
		if err := os.Chmod(filepath.Join(app, place), mode); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(filepath.Join(app, place), 0o755) }) // so that it can be removed
	}
	out := asOther(t, dir, "status", "--output=json", "--state-dir", dir)
	var doc report.Document
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if s := storeOf(t, doc, "1_1", "kv"); *s.Families[1].Entries != 241 || len(s.Findings) > 0 || len(s.Offsets) != 1 {
		t.Errorf("the neighbour: %+v", s)
	}
	if n := strings.Count(out, `"permission-denied"`); n < 5 {
		t.Errorf("%d findings permission-denied, want at least 5:\n%s", n, out)
	}
	kv, ver := storeOf(t, doc, "1_0", "kv"), storeOf(t, doc, "1_0", "ver")
	if kv.Verdict != "unreadable" || kv.SizeBytes != nil || kv.InUse != nil || ver.Verdict != "unreadable" || *ver.SizeBytes == 0 {
		t.Errorf("what could not be read: %+v, %+v", kv, ver)
	}
}

// asOther runs a command line as a user who is not root.
func asOther(t *testing.T, dir string, args ...string) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), asOtherEnv+"=1")
	if os.Getuid() == 0 {
		const nobody = 65534
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		// go test and t.TempDir make their folders for this user only.
		for _, p := range []string{exe, dir} {
			for p = filepath.Dir(p); p != filepath.Dir(p); p = filepath.Dir(p) {
				if i, err := os.Stat(p); err != nil || i.Mode().Perm() != 0o700 || strings.HasPrefix(p, "/root") {
					continue
				}
				if err := os.Chmod(p, 0o755); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	return string(out)
}
