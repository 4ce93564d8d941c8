package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"streams-sidecar/internal/report"
	"streams-sidecar/test/fixture"
	"streams-sidecar/test/holder"
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
	a := startAgent(t, "--state-dir", dir)
	a.get(t, a.hook+"/prestop")
	h.Kill()
	if after := inode(t, lock); after != before {
		t.Errorf("LOCK had inode %d, now %d", before, after)
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
	a := startAgent(t, "--state-dir", dir)
	a.until(t, "readiness", func() bool { return a.get(t, a.hook+"/readyz") == "ok\n" })
	if got := a.get(t, a.hook+"/prestop?wait=1"); !strings.Contains(got, `"not-running"`) {
		t.Errorf("prestop of a directory that is not there: %s", got)
	}
	src := fixture.Unpack(t, "4.4.0", "closed-clean")
	if err := os.CopyFS(dir, os.DirFS(src)); err != nil {
		t.Fatal(err)
	}
	a.until(t, "the new directory", func() bool { return strings.Contains(a.get(t, a.metrics), `store="gtab"`) })
	// And it may appear as another mount, or here as a link to one.
	link := filepath.Join(t.TempDir(), "mounted")
	b := startAgent(t, "--state-dir", link)
	if err := os.Symlink(src, link); err != nil {
		t.Fatal(err)
	}
	b.until(t, "the linked directory", func() bool { return strings.Contains(b.get(t, b.metrics), `store="gtab"`) })
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
			a := startAgent(t, "--state-dir", dir)
			if m := a.get(t, a.metrics); !strings.Contains(m, `kstreams_store_up{application_id="alos391",store="kv",task_id="1_0"} 1`) {
				t.Error("the store is not up")
			}
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
	all := ""
	app := doc.StateDirs[0].Applications[0]
	for _, task := range app.Tasks {
		tasks = append(tasks, task.ID)
		all += "," + codes(task.Findings)
		for _, s := range task.Stores {
			all += "," + codes(s.Findings)
		}
	}
	all += "," + codes(app.Findings)
	if got := strings.Join(tasks, " "); got != "1_0 1_1 global" {
		t.Errorf("tasks %s: the second name of 1_1 is counted", got)
	}
	if !strings.Contains(all, "same-directory") || !strings.Contains(all, "symlink-outside") {
		t.Errorf("findings %s, want same-directory and symlink-outside", all)
	}
	if s := storeOf(t, doc, "1_0", "kv"); *s.Families[1].Entries != 259 {
		t.Errorf("the store outside: %+v", s)
	}
	// Events come from the target.
	a := startAgent(t, "--state-dir", link)
	write(t, filepath.Join(outside, "000099.log"), "bytes")
	a.until(t, "the event from outside", func() bool {
		return strings.Contains(a.get(t, a.metrics), `rocksdb_wal_size_bytes{application_id="alos391",store="kv",task_id="1_0"} 5`)
	})
}
