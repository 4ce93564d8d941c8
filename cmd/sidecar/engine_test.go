package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"streams-sidecar/internal/report"
	"streams-sidecar/internal/rocksfile/rockstest"
	"streams-sidecar/test/fixture"
	"streams-sidecar/test/writes"
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
	before, w := photograph(t, dir), writes.Watch(t, dir)
	code, doc, text := statusWithEngine(t, program, dir)
	w.ExpectNothing(t)
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
	if code != report.ExitDamage { // our reader sees the id too
		t.Errorf("code %d", code)
	}
	task := doc.StateDirs[0].Applications[0].Tasks[0]
	if s := task.Stores[0]; task.ID != "1_0" || s.Name != "kv" || len(s.RocksDB.Differences) != 1 || s.RocksDB.Differences[0].Subject != "open" {
		t.Errorf("%s %s: %+v", task.ID, s.Name, s.RocksDB)
	}
	for _, want := range []string{"differs", "1 difference,", "Mismatch in unique ID", "rocksdb-refuses"} {
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

// state asks the API of an agent.
func (a *agent) state(t *testing.T) (doc report.Document) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.get(t, a.admin+"/api/v1/state")), &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// TestAgentWithoutItsEngine: it says so, and everything else works.
func TestAgentWithoutItsEngine(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "4.4.0", "closed-clean")
	broken := filepath.Join(t.TempDir(), "sidecar-engine")
	if err := os.WriteFile(broken, []byte("#!/bin/sh\necho 'librocksdb.so: cannot open shared object file' >&2; exit 127\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "sidecar-engine")
	if err := os.WriteFile(other, []byte("\x7fELF\x02\x01\x01 of another machine"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ program, code, says string }{
		{filepath.Join(t.TempDir(), "nothing"), "engine-missing", "no such program"},
		{broken, "engine-broken", "librocksdb.so: cannot open shared object file"},
		{other, "engine-broken", "exec format error"},
	} {
		log := &lockedBuffer{}
		a := startAgentWithLog(t, log, "--state-dir", dir, "--engine", c.program, "--log-level=info")
		a.until(t, "the finding", func() bool { e := a.state(t).Engine; return e != nil && e.Reason == c.code })
		e := a.state(t).Engine
		if len(e.Findings) != 1 || string(e.Findings[0].Code) != c.code || !strings.Contains(e.Error, c.says) || e.RocksDB != "" {
			t.Errorf("%s: %+v", c.program, e)
		}
		a.series(t, "kstreams_sidecar_engine_up 0")
		m := a.get(t, a.metrics)
		if strings.Contains(m, "rocksdb_estimate_num_keys") || strings.Contains(m, "engine_info") || !strings.Contains(m, "rocksdb_live_sst_files{") {
			t.Errorf("%s: metrics\n%s", c.program, m)
		}
		if got := a.get(t, a.hook+"/livez") + a.get(t, a.hook+"/readyz"); got != "ok\nok\n" {
			t.Errorf("%s: probes say %s", c.program, got)
		}
		if page := a.get(t, a.admin+"/"); !strings.Contains(page, "RocksDB cannot be asked") || !strings.Contains(page, c.code) {
			t.Errorf("%s: status page\n%s", c.program, page)
		}
		a.end(t)
		if n := strings.Count(log.String(), c.code); n != 1 {
			t.Errorf("%s: %d lines in\n%s", c.program, n, log)
		}
	}
	// Not asked for: nothing of it anywhere.
	a := startAgent(t, "--state-dir", dir, "--engine-interval=0")
	if e := a.state(t).Engine; e != nil || strings.Contains(a.get(t, a.metrics), "sidecar_engine") {
		t.Errorf("--engine-interval=0: %+v", e)
	}
	if code, _, errs := sidecar("run", "--state-dir", dir, "--engine-interval=10ms"); code != 64 || !strings.Contains(errs, "--engine-interval=10ms: from 1s to 168h0m0s") {
		t.Errorf("code %d, %s", code, errs)
	}
}

// TestAgentAsksRocksDB: of every store of real directories, what RocksDB says
// is there soon, and is what the files say; nothing is written, no lock taken.
func TestAgentAsksRocksDB(t *testing.T) {
	t.Parallel()
	program := realEngine(t)
	dirs := []string{fixture.Unpack(t, "2.8.2", "closed-clean"), fixture.Unpack(t, "4.4.0", "closed-clean")}
	var watchers []*writes.Watcher
	var before []photo
	args := []string{"--engine", program}
	for _, d := range dirs {
		args = append(args, "--state-dir", d)
		before, watchers = append(before, photograph(t, d)), append(watchers, writes.Watch(t, d))
	}
	a := startAgent(t, args...)
	stores := 0
	each := func(f func(where string, s *report.Store)) {
		doc := a.state(t)
		stores = 0
		for _, d := range doc.StateDirs {
			for _, task := range d.Applications[0].Tasks {
				for i := range task.Stores {
					stores++
					f(d.Path+" "+task.ID+" "+task.Stores[i].Name, &task.Stores[i])
				}
			}
		}
	}
	a.until(t, "RocksDB's opinion of every store", func() bool {
		all := true
		each(func(_ string, s *report.Store) { all = all && s.RocksDB != nil && s.RocksDB.LastSequence != nil })
		return all
	})
	m := a.get(t, a.metrics)
	each(func(where string, s *report.Store) {
		if len(s.RocksDB.Differences)+len(s.RocksDB.NotAsked)+len(s.Findings) > 0 {
			t.Errorf("%s: %+v, findings %+v", where, s.RocksDB, s.Findings)
		}
	})
	if n := strings.Count(m, "\nrocksdb_estimate_num_keys{"); n != stores || n < 15 {
		t.Errorf("%d series for %d stores", n, stores)
	}
	stats := a.get(t, a.admin+"/api/v1/stores/alos440/1_0/kv?stats=1")
	if !strings.Contains(stats, "** Compaction Stats [keyValueWithTimestamp] **") {
		t.Errorf("no statistics in %s", stats)
	}
	a.end(t)
	for i, d := range dirs {
		if diff := before[i].differs(photograph(t, d)); diff != "" {
			t.Errorf("changed: %s", diff)
		}
		watchers[i].ExpectNothing(t)
	}
}

// TestAgentOutlivesRocksDB: a store on which RocksDB spins for ever, and a
// process that is killed, cost neither the agent nor any other store anything.
func TestAgentOutlivesRocksDB(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "sidecar-engine") // a name by which to tell its processes from those of other tests
	if err := os.Symlink(realEngine(t), program); err != nil {
		t.Fatal(err)
	}
	dir := fixture.Unpack(t, "4.4.0", "wal-on-killed9")
	logs, err := filepath.Glob(filepath.Join(dir, "*", "0_0", "rocksdb", "kv", "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatal(logs, err)
	}
	spins := 0
	for _, path := range logs { // of the second record, a bit of its type
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) < 7 {
			continue
		}
		at := 7 + int(data[4]) + int(data[5])<<8
		if at+7 > len(data) {
			continue
		}
		data[at+6] ^= 4 // one that may be recycled
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		spins++
	}
	if spins == 0 {
		t.Fatal("no log has two records")
	}
	a := startAgent(t, "--state-dir", dir, "--engine", program, "--engine-interval=2s")
	value := func(series string) (n float64) {
		for line := range strings.Lines(a.get(t, a.metrics)) {
			if text, ok := strings.CutPrefix(line, series+" "); ok {
				var err error
				if n, err = strconv.ParseFloat(strings.TrimSpace(text), 64); err != nil {
					t.Fatal(err)
				}
			}
		}
		return n
	}
	a.until(t, "a failure", func() bool { return value(`kstreams_sidecar_engine_requests_total{outcome="hung"}`) > 0 })
	a.until(t, "every other store", func() bool {
		asked, not := 0, 0
		for _, task := range a.state(t).StateDirs[0].Applications[0].Tasks {
			for _, s := range task.Stores {
				switch {
				case s.RocksDB == nil:
					return false
				case s.RocksDB.LastSequence != nil:
					asked++
				case s.Name == "kv" && task.ID == "0_0":
					not++
				}
			}
		}
		return not == 1 && asked == 3
	})
	a.until(t, "a new process", func() bool { return value("kstreams_sidecar_engine_restarts_total") > 0 })
	a.series(t, "kstreams_sidecar_engine_up 1")
	a.series(t, `kstreams_store_up{application_id="`+a.state(t).StateDirs[0].Applications[0].ID+`",store="kv",task_id="0_0"} 1`)
	// Killed between two requests.
	answered := func() float64 { return value(`kstreams_sidecar_engine_requests_total{outcome="answered"}`) }
	pids := processes(t, program)
	if len(pids) != 1 {
		t.Errorf("processes %v, want one", pids)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	was := answered()
	a.until(t, "more answers", func() bool { return answered() != was })
	if got := a.get(t, a.hook+"/livez") + a.get(t, a.hook+"/readyz"); got != "ok\nok\n" {
		t.Errorf("probes say %s", got)
	}
}

// processes that were started by the name of a program.
func processes(t *testing.T, program string) (out []int) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range lines {
		line, err := os.ReadFile(path)
		if name, _, _ := strings.Cut(string(line), "\x00"); err != nil || name != program {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, pid)
	}
	return out
}

// TestStatusIsCalledOff: a look that was not finished is not shown.
func TestStatusIsCalledOff(t *testing.T) {
	t.Parallel()
	program := realEngine(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	code := execute(ctx, []string{"status", "--with-engine", "--engine", program, "--state-dir", fixture.Unpack(t, "3.9.1", "closed-clean")}, &out, &errs)
	if code != report.ExitUnreadable || out.Len()+errs.Len() != 0 {
		t.Errorf("code %d, %s%s", code, &out, &errs)
	}
}

// TestForgetEmpty: a setting that is empty is not given.
func TestForgetEmpty(t *testing.T) { // not in parallel: the environment is everybody's
	t.Setenv("SIDECAR_ENGINE_INTERVAL", "")
	t.Setenv("SIDECAR_REAL", "x")
	t.Setenv("OTHER_EMPTY", "")
	forgetEmpty()
	for name, there := range map[string]bool{"SIDECAR_ENGINE_INTERVAL": false, "SIDECAR_REAL": true, "OTHER_EMPTY": true} {
		if _, ok := os.LookupEnv(name); ok != there {
			t.Errorf("%s is there: %v", name, ok)
		}
	}
}
