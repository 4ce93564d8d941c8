package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"streams-sidecar/internal/report"
	"streams-sidecar/test/fixture"
	"streams-sidecar/test/holder"
	"streams-sidecar/test/writes"
)

// The tests of this file are reports of what users met; each has the id of its
// report.

// A11: a task directory that holds only a lock, or empty folders, is a normal
// leftover.
func TestCaseA11(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(mkdir(t, dir, "app", "0_3"), ".lock"), "")
	mkdir(t, dir, "app", "0_4", "rocksdb")
	mkdir(t, dir, "app", "0_5", "rocksdb", "s")
	code, doc := statusJSON(t, dir)
	if code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	var got []string
	for _, task := range doc.StateDirs[0].Applications[0].Tasks {
		got = append(got, task.ID+" "+task.Verdict)
		for _, s := range task.Stores {
			got = append(got, task.ID+"/"+s.Name+" "+s.Verdict)
		}
		if len(task.Findings) > 0 {
			t.Errorf("%s: findings %v", task.ID, task.Findings)
		}
	}
	if want := "0_3 empty;0_4 empty;0_5 empty;0_5/s empty"; strings.Join(got, ";") != want {
		t.Errorf("got %v, want %s", got, want)
	}
	a := startAgent(t, "--state-dir", dir)
	for line := range strings.SplitSeq(a.get(t, a.metrics), "\n") {
		if strings.Contains(line, "task_id=") {
			t.Errorf("a series for an empty directory: %s", line)
		}
	}
}

// B04: a LOCK file without a holder says nothing, and nothing touches it.
func TestCaseB04(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	lock := filepath.Join(dir, "alos391", "1_0", "rocksdb", "kv", "LOCK")
	before := inode(t, lock)
	code, doc := statusJSON(t, dir)
	s := storeOf(t, doc, "1_0", "kv")
	if code != 0 || s.InUse == nil || *s.InUse || s.Verdict != "ok" || len(s.Findings) > 0 {
		t.Errorf("a LOCK file without holder: code %d, %+v", code, s)
	}
	h := holder.Hold(t, lock)
	if _, doc = statusJSON(t, dir); !*storeOf(t, doc, "1_0", "kv").InUse {
		t.Error("a held LOCK does not show")
	}
	sidecar("inspect", filepath.Dir(lock))
	for _, path := range []string{dir, filepath.Dir(lock)} {
		sidecar("verify", path)
		sidecar("verify", "--deep", path)
	}
	a := startAgent(t, "--state-dir", dir)
	a.get(t, a.hook+"/prestop")
	h.Kill()
	if after := inode(t, lock); after != before {
		t.Errorf("LOCK had inode %d, now %d", before, after)
	}
	if code, doc := verifyJSON(t, "--deep", dir); code != 0 || len(all(code, doc).Findings) > 0 {
		t.Errorf("after all of them: %+v", all(code, doc))
	}
	// A LOCK that is not there says nothing either, and nothing makes one.
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	if code, doc := verifyJSON(t, "--deep", dir); code != 0 || len(all(code, doc).Findings) > 0 {
		t.Errorf("without LOCK: %+v", all(code, doc))
	}
	if _, err := os.Stat(lock); err == nil {
		t.Error("LOCK is there again")
	}
	// No command has an option that would remove one.
	for _, command := range []string{"", "verify", "status", "inspect", "run", "version"} {
		_, help, _ := sidecar(strings.Fields(command + " --help")...)
		if help == "" {
			t.Errorf("no help for %q", command)
		}
		for _, word := range []string{"unlock", "--force", "remove-lock", "delete", "--repair"} {
			if strings.Contains(help, word) {
				t.Errorf("%s has %q", command, word)
			}
		}
	}
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	i, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return i.Sys().(*syscall.Stat_t).Ino
}

func storeOf(t *testing.T, doc report.Document, task, name string) report.Store {
	t.Helper()
	for _, sd := range doc.StateDirs {
		for _, a := range sd.Applications {
			for _, tk := range a.Tasks {
				for _, s := range tk.Stores {
					if tk.ID == task && s.Name == name {
						return s
					}
				}
			}
		}
	}
	t.Fatalf("no store %s %s", task, name)
	return report.Store{}
}

// G02: the state directory does not exist at the start.
func TestCaseG02(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "later")
	code, doc := statusJSON(t, dir)
	if got := codes(doc.StateDirs[0].Findings); code != 3 || got != "state-dir-missing" {
		t.Errorf("status: code %d, findings %s", code, got)
	}
	missing := said{3, nil, []string{". state-dir-missing unreadable " + dir + ": ; stat " + dir + ": no such file or directory"}}
	expectBoth(t, missing, dir)
	if _, err := os.Stat(dir); err == nil {
		t.Error("the state directory was made")
	}
	a := startAgent(t, "--state-dir", dir)
	wantSeries(t, a.get(t, a.metrics), fmt.Sprintf("kstreams_state_dir_present{state_dir=%q} 0", dir))
	a.until(t, "readiness", func() bool { return a.get(t, a.hook+"/readyz") == "ok\n" })
	if got := a.get(t, a.hook+"/prestop?wait=1"); !strings.Contains(got, `"not-running"`) {
		t.Errorf("prestop of a directory that is not there: %s", got)
	}
	src := fixture.Unpack(t, "4.4.0", "closed-clean")
	if err := os.CopyFS(dir, os.DirFS(src)); err != nil {
		t.Fatal(err)
	}
	a.until(t, "the new directory", func() bool { return strings.Contains(a.get(t, a.metrics), `store="gtab"`) })
	text := a.get(t, a.metrics)
	wantSeries(t, text, fmt.Sprintf("kstreams_state_dir_present{state_dir=%q} 1", dir))
	if strings.Contains(text, "_finding{") {
		t.Errorf("findings in\n%s", text)
	}
	if code, doc := verifyJSON(t, dir); code != 0 || len(all(code, doc).Verdicts) != 13 {
		t.Errorf("verify: %+v", all(code, doc))
	}
	// And it may appear as another mount, or here as a link to one.
	link := filepath.Join(t.TempDir(), "mounted")
	b := startAgent(t, "--state-dir", link)
	if err := os.Symlink(src, link); err != nil {
		t.Fatal(err)
	}
	b.until(t, "the linked directory", func() bool { return strings.Contains(b.get(t, b.metrics), `store="gtab"`) })
}

// G03: an application that never makes a store, such as one whose native library
// does not load, gives no finding, whether it runs or not.
func TestCaseG03(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	app := mkdir(t, dir, "app")
	lock := filepath.Join(app, ".lock")
	write(t, lock, "")
	write(t, filepath.Join(app, "kafka-streams-process-metadata"), `{"processId":"2f6e5f31-2ad7-4bd4-8d6b-8c6c8d0a8f10"}`)
	nothing := said{0, []string{"app=empty"}, nil}
	expectBoth(t, nothing, dir)
	expectBoth(t, nothing, "--guarantee=exactly-once", dir)
	h := holder.Hold(t, lock)
	expectBoth(t, nothing, dir)
	a := startAgent(t, "--state-dir", dir)
	text := a.get(t, a.metrics)
	wantSeries(t, text, `kstreams_app_running{application_id="app"} 1`)
	for _, no := range []string{"_finding{", "task_id=", "store="} {
		if strings.Contains(text, no) {
			t.Errorf("%s in\n%s", no, text)
		}
	}
	// Its tasks are made before its stores.
	mkdir(t, app, "0_0", "rocksdb")
	expectBoth(t, said{0, []string{"app=empty", "app/0_0=empty"}, nil}, dir)
	h.Kill()
	expectBoth(t, said{0, []string{"app=empty", "app/0_0=empty"}, nil}, dir)
}

// G05: OPTIONS with keys that nobody knows, mangled, or missing.
func TestCaseG05(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(t *testing.T, path string){
		"unknown key": func(t *testing.T, path string) {
			edit(t, path, "[DBOptions]\n", "[DBOptions]\n  key_of_a_version_to_come={a=1;b={c=2}}\n")
		},
		"mangled": func(t *testing.T, path string) { edit(t, path, "[DBOptions]\n", "[DBOptions]\n  garbage \x00\xff\n") },
		"missing": func(t *testing.T, path string) {
			for _, n := range []string{"OPTIONS-000007", "OPTIONS-000009"} {
				if err := os.Remove(filepath.Join(filepath.Dir(path), n)); err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := fixture.Unpack(t, "3.9.1", "closed-clean")
			change(t, filepath.Join(dir, "alos391", "1_0", "rocksdb", "kv", "OPTIONS-000009"))
			code, doc := statusJSON(t, dir)
			s := storeOf(t, doc, "1_0", "kv")
			if code != 0 || s.Kind != "timestamped" || s.Era != "checkpoint" || *s.Families[1].Entries != 259 {
				t.Errorf("code %d, %+v", code, s)
			}
			if got := codes(s.Findings); got != "options-unparsed" || s.Findings[0].Severity != "info" {
				t.Errorf("findings %v, want options-unparsed (info)", s.Findings)
			}
			for _, depth := range [][]string{{dir}, {"--deep", dir}} {
				code, doc = verifyJSON(t, depth...)
				if got := all(code, doc); code != 0 || len(got.Findings) != 1 || slices.ContainsFunc(got.Verdicts, func(v string) bool { return !strings.HasSuffix(v, "=ok") }) {
					t.Errorf("verify %q: %+v", depth, got)
				}
			}
			a := startAgent(t, "--state-dir", dir)
			text := a.get(t, a.metrics)
			wantSeries(t, text, `kstreams_store_up{application_id="alos391",store="kv",task_id="1_0"} 1`)
			wantSeries(t, text, `kstreams_store_verdict{application_id="alos391",store="kv",task_id="1_0",verdict="ok"} 1`)
			wantSeries(t, text, `kstreams_store_finding{application_id="alos391",code="options-unparsed",severity="info",store="kv",task_id="1_0"} 1`)
		})
	}
}

func edit(t *testing.T, path, old, new string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), old) {
		t.Fatalf("no %q in %s", old, path)
	}
	write(t, path, strings.Replace(string(data), old, new, 1))
}

// G11: links and second names are resolved once, and nothing is counted twice.
func TestCaseG11(t *testing.T) {
	t.Parallel()
	real := fixture.Unpack(t, "3.9.1", "closed-clean")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	// A store that lies elsewhere, and a second name for one inside.
	outside := filepath.Join(t.TempDir(), "outside")
	kv := filepath.Join(real, "alos391", "1_0", "rocksdb", "kv")
	if err := os.Rename(kv, outside); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, kv); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(real, "alos391", "1_1"), filepath.Join(real, "alos391", "9_9")); err != nil {
		t.Fatal(err)
	}
	_, doc := statusJSON(t, link, real)
	if n := len(doc.StateDirs[0].Applications); n != 1 {
		t.Fatalf("%d applications through the link, want 1", n)
	}
	if got := codes(doc.StateDirs[1].Findings); len(doc.StateDirs[1].Applications) != 0 || got != "same-directory" {
		t.Errorf("the second name of the state directory: %d applications, findings %s", len(doc.StateDirs[1].Applications), got)
	}
	var tasks []string
	told := ""
	app := doc.StateDirs[0].Applications[0]
	for _, task := range app.Tasks {
		tasks = append(tasks, task.ID)
		told += "," + codes(task.Findings)
		for _, s := range task.Stores {
			told += "," + codes(s.Findings)
		}
	}
	told += "," + codes(app.Findings)
	if got := strings.Join(tasks, " "); got != "1_0 1_1 global" {
		t.Errorf("tasks %s: the second name of 1_1 is counted", got)
	}
	if !strings.Contains(told, "same-directory") || !strings.Contains(told, "symlink-outside") {
		t.Errorf("findings %s, want same-directory and symlink-outside", told)
	}
	if s := storeOf(t, doc, "1_0", "kv"); *s.Families[1].Entries != 259 {
		t.Errorf("the store outside: %+v", s)
	}
	// Each table is read once, however many names lead to it, and the link that leads
	// out is told, not judged worse.
	_, once := verifyJSON(t, "--deep", real)
	if code, out, errs := sidecar("status", link, real); code != 0 || strings.Count(out, "same-directory") == 0 {
		t.Errorf("status of two: code %d, %s%s", code, out, errs)
	}
	for _, paths := range [][]string{{link}, {link, real}, {real, link, real}} { // the last one is no other name
		code, doc := verifyJSON(t, append([]string{"--deep"}, paths...)...)
		got := all(code, doc)
		if code != 0 || doc.Verification.Tables != once.Verification.Tables || doc.Verification.SizeBytes != once.Verification.SizeBytes {
			t.Errorf("%d names: code %d, %+v, want %+v", len(paths), code, doc.Verification, once.Verification)
		}
		if n := len(all(0, once).Verdicts); len(got.Verdicts) != n {
			t.Errorf("%d names: %d verdicts, want %d", len(paths), len(got.Verdicts), n)
		}
		want := []string{"alos391 same-directory info", "alos391/1_0/kv symlink-outside info"}
		if len(paths) > 1 {
			want = append(want, ". same-directory info")
		}
		var short []string
		for _, f := range got.Findings {
			short = append(short, strings.Join(strings.Fields(f)[:3], " "))
		}
		slices.Sort(want)
		if slices.Sort(short); !slices.Equal(short, want) {
			t.Errorf("%d names: %q, want %q", len(paths), got.Findings, want)
		}
	}
	// The store by the name of its target is a copy of a database.
	for _, path := range []string{kv, outside} {
		if code, doc := verifyJSON(t, "--deep", path); code != 0 || doc.Verification.Tables != 1 {
			t.Errorf("%s: code %d, %+v", path, code, doc.Verification)
		}
	}
	// Events come from the target.
	a := startAgent(t, "--state-dir", link)
	write(t, filepath.Join(outside, "000099.log"), "bytes")
	a.until(t, "the event from outside", func() bool {
		return strings.Contains(a.get(t, a.metrics), `rocksdb_wal_size_bytes{application_id="alos391",store="kv",task_id="1_0"} 5`)
	})
}

// G12: the file with the process id is a member's identity: nothing touches it.
func TestCaseG12(t *testing.T) {
	t.Parallel()
	for version, app := range map[string]string{"3.9.1": "alos391", "4.4.0": "alos440"} {
		dir := fixture.Unpack(t, version, "closed-clean")
		path := filepath.Join(dir, app, "kafka-streams-process-metadata")
		original := load(t, path)
		for content, want := range map[string]string{
			"":                        "", // as it is
			`{"processId":"no uuid"}`: app + " process-id-malformed warning " + app + "/kafka-streams-process-metadata",
			"\x00\x00\x00":            app + " process-id-malformed warning " + app + "/kafka-streams-process-metadata",
		} {
			if content == "" {
				content = string(original)
			}
			write(t, path, content)
			before, w := photograph(t, dir), writes.Watch(t, dir)
			for _, args := range [][]string{{dir}, {"--deep", dir}} {
				code, doc := verifyJSON(t, args...)
				got := all(code, doc)
				if want == "" && (code != 0 || len(got.Findings) > 0) ||
					want != "" && (code != 1 || len(got.Findings) != 1 || !strings.HasPrefix(got.Findings[0], want)) {
					t.Errorf("%s %q: %+v, want %q", version, content, got, want)
				}
			}
			w.ExpectNothing(t)
			if diff := before.differs(photograph(t, dir)); diff != "" {
				t.Errorf("%s %q: changed: %s", version, content, diff)
			}
			if got := load(t, path); string(got) != content {
				t.Errorf("%s: %q became %q", version, content, got)
			}
		}
	}
}
