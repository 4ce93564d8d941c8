package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"streams-sidecar/internal/report"
	"streams-sidecar/internal/rocksfile/rockstest"
	"streams-sidecar/test/fixture"
)

// statusWithEngine runs status --with-engine and gives its code, its document
// and its text.
func statusWithEngine(t *testing.T, program, dir string) (int, report.Document, string) {
	t.Helper()
	args := []string{"status", "--with-engine", "--engine", program, "--state-dir", dir}
	code, text, errs := sidecar(args...)
	again, out, moreErrs := sidecar(append(args, "--output=json")...)
	if code != again || errs+moreErrs != "" {
		t.Errorf("exit codes %d and %d; stderr %s%s", code, again, errs, moreErrs)
	}
	var doc report.Document
	d := json.NewDecoder(bytes.NewReader([]byte(out)))
	d.DisallowUnknownFields()
	if err := d.Decode(&doc); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return code, doc, text
}

func TestStatusWithoutItsEngine(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	code, doc, text := statusWithEngine(t, filepath.Join(t.TempDir(), "nothing"), dir)
	if code != report.ExitUnreadable || doc.Engine == nil || doc.Engine.Reason != "engine-missing" {
		t.Errorf("code %d, %+v", code, doc.Engine)
	}
	if len(doc.StateDirs[0].Applications) != 1 || !strings.Contains(text, "timestamped") {
		t.Errorf("without its table:\n%s", text)
	}
	if code, doc := statusJSON(t, dir); code != 0 || doc.Engine != nil {
		t.Errorf("not asked for: code %d, %+v", code, doc.Engine)
	}
}

func realEngine(t *testing.T) string {
	t.Helper()
	program := os.Getenv("SIDECAR_TEST_ENGINE")
	if program == "" {
		t.Skip("SIDECAR_TEST_ENGINE is not set: scripts/test sets it, where RocksDB can be had")
	}
	if _, err := os.Stat(program); err != nil { // and so that a new build makes the test run again
		t.Fatal(err)
	}
	return program
}

func TestStatusWithEngine(t *testing.T) {
	t.Parallel()
	program := realEngine(t)
	dir := fixture.Unpack(t, "4.4.0", "closed-clean")
	before, w := photograph(t, dir), watchWrites(t, dir)
	code, doc, text := statusWithEngine(t, program, dir)
	w.expectNothing(t)
	if diff := before.differs(photograph(t, dir)); diff != "" {
		t.Errorf("changed: %s", diff)
	}
	if code != 0 || doc.Engine == nil || doc.Engine.Error != "" || !strings.HasPrefix(doc.Engine.RocksDB, "10.") {
		t.Errorf("code %d, %+v", code, doc.Engine)
	}
	stores := 0
	for _, task := range doc.StateDirs[0].Applications[0].Tasks {
		for _, s := range task.Stores {
			stores++
			if o := s.RocksDB; o == nil || o.LastSequence == nil || len(o.Differences)+len(o.NotAsked) > 0 || len(o.Offsets) != len(s.Offsets) {
				t.Errorf("%s %s: %+v", task.ID, s.Name, o)
			}
		}
	}
	if stores != 9 || strings.Count(text, "agrees") != 9 {
		t.Errorf("%d stores:\n%s", stores, text)
	}
}

// TestStatusShowsADifference: a MANIFEST that our reader takes and RocksDB
// does not, because it names another table than the one that is there.
func TestStatusShowsADifference(t *testing.T) {
	t.Parallel()
	program := realEngine(t)
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	path := filepath.Join(dir, "alos391", "1_0", "rocksdb", "kv", "MANIFEST-000005")
	log, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.Stat(filepath.Join(filepath.Dir(path), "000010.sst"))
	if err != nil {
		t.Fatal(err)
	}
	edit := rockstest.Edit{}.Family(1).NextFile(40).Delete(0, 10).
		Add(rockstest.File{Number: 10, Size: uint64(table.Size()), SmallestSeq: 1, LargestSeq: 1136}) // with an id of its own
	if err := os.WriteFile(path, rockstest.AppendRecord(log, edit), 0o600); err != nil {
		t.Fatal(err)
	}
	code, doc, text := statusWithEngine(t, program, dir)
	if code != 0 {
		t.Errorf("code %d", code)
	}
	task := doc.StateDirs[0].Applications[0].Tasks[0]
	if s := task.Stores[0]; task.ID != "1_0" || s.Name != "kv" || len(s.RocksDB.Differences) != 1 || s.RocksDB.Differences[0].Subject != "open" {
		t.Errorf("%s %s: %+v", task.ID, s.Name, s.RocksDB)
	}
	for _, want := range []string{"differs", "1 difference,", "Mismatch in unique ID"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestVersionOfRocksDB(t *testing.T) {
	t.Parallel()
	code, out, _ := sidecar("version", "--engine", filepath.Join(t.TempDir(), "nothing"))
	if code != 0 || !strings.Contains(out, "no such program") {
		t.Errorf("without: code %d, %s", code, out)
	}
	code, out, _ = sidecar("version", "--engine", realEngine(t))
	if code != 0 || !strings.Contains(out, "sidecar-engine has RocksDB 10.") {
		t.Errorf("with: code %d, %s", code, out)
	}
}
