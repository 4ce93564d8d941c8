package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"streams-sidecar/internal/report"
	"streams-sidecar/internal/rocksfile/infolog"
	"streams-sidecar/internal/scrub"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/verify"
	"streams-sidecar/internal/volume"
	"streams-sidecar/internal/volume/volumetest"
	"streams-sidecar/test/fixture"
	"streams-sidecar/test/holder"
	"streams-sidecar/test/rockswriter"
	"streams-sidecar/test/writes"
)

// The tests of this file are reports of what users met; each has the id of its
// report.

// eachEra runs a test on the sound base of the damaged fixtures, two stores kv
// and x00 in the task 0_0, of a version with a .checkpoint and of one with offsets
// in each store.
func eachEra(t *testing.T, test func(t *testing.T, d damaged)) {
	t.Helper()
	for _, version := range []string{"3.9.1", "4.4.0"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			test(t, unpackDamaged(t, fixture.Name{Version: version, Case: "corrupt-base-alos"}))
		})
	}
}

func (d *damaged) path(file string) string { return filepath.Join(d.dir, d.kv(file)) }

// line is one finding about a file of kv.
func (d *damaged) line(code, severity, file, evidence string) string {
	return fmt.Sprintf("%s/kv %s %s %s: %s", d.task, code, severity, d.kv(file), evidence)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func load(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	return data
}

// B01: another process has the store open.
func TestCaseB01(t *testing.T) {
	t.Parallel()
	eachEra(t, func(t *testing.T, d damaged) {
		lock, app := d.path("LOCK"), filepath.Join(d.dir, d.app, ".lock")
		before := photograph(t, d.dir)
		inUse := func(want bool, pid int) {
			t.Helper()
			_, doc := verifyJSON(t, d.dir)
			if kv, x := storeOf(t, doc, "0_0", "kv"), storeOf(t, doc, "0_0", "x00"); kv.InUse == nil || *kv.InUse != want || x.InUse == nil || *x.InUse {
				t.Errorf("in use: kv %v, x00 %v; want %v, false", kv.InUse, x.InUse, want)
			}
			_, out, _ := sidecar("inspect", "--output=json", d.path(""))
			var detail report.StoreDetail
			if err := json.Unmarshal([]byte(out), &detail); err != nil || len(detail.Databases) != 1 {
				t.Fatalf("inspect: %v\n%s", err, out)
			}
			if got := detail.Databases[0].HolderPID; got != pid {
				t.Errorf("holder %d, want %d", got, pid)
			}
		}
		ok := d.of(0, "ok", false)
		expectBoth(t, ok, d.dir)
		inUse(false, 0)

		// Kafka Streams holds .lock too.
		h := holder.Hold(t, app, lock)
		expectBoth(t, ok, d.dir)
		inUse(true, h.PID())
		// A tool does not: nobody should have the store open.
		h.Release(app)
		strange := ok
		strange.Code = 1
		strange.Findings = []string{d.app + " lock-without-app-lock warning " + d.app + "/.lock: held, as long as a store is open; free, while " + d.kv("LOCK") + " is held"}
		expectBoth(t, strange, d.dir)
		inUse(true, h.PID())
		h.Kill()
		expectBoth(t, ok, d.dir)
		inUse(false, 0)
		if diff := before.differs(photograph(t, d.dir)); diff != "" {
			t.Errorf("changed: %s", diff)
		}

		// A store that is in use is judged like any other.
		table, size := d.table()
		must(t, os.Truncate(d.path(table), int64(size-1)))
		bad := d.of(2, "damaged", true, d.line("sst-size-mismatch", "damage", table, fmt.Sprintf("%d bytes; %d bytes", size, size-1)))
		h = holder.Hold(t, app, lock)
		expectBoth(t, bad, d.dir)
		h.Kill()
		expectBoth(t, bad, d.dir)
	})
}

// verifyOn verifies a state directory on a volume that misbehaves.
func verifyOn(t *testing.T, fs volume.FS, dir string, depth verify.Depth) (int, report.Document) {
	t.Helper()
	doc := report.NewVerified(verify.Run(context.Background(), []*volume.Volume{volume.New(fs)}, []string{dir}, verify.Question{}, verify.Plan{Depth: depth}, nil))
	return doc.ExitCode(), doc
}

// B02: the lock call itself is refused, as on NFS without its lock service.
func TestCaseB02(t *testing.T) {
	t.Parallel()
	for _, errno := range []syscall.Errno{syscall.ENOLCK, syscall.EOPNOTSUPP, syscall.ENOSYS} {
		eachEra(t, func(t *testing.T, d damaged) {
			for _, depth := range []verify.Depth{verify.Quick, verify.Deep} {
				fake := volumetest.New(t, volume.OS())
				fake.Fail(volumetest.Lock, d.path("LOCK"), errno)
				code, doc := verifyOn(t, fake, d.dir, depth)
				got := all(code, doc)
				want := d.of(3, "unreadable", true)
				want.Findings = []string{d.line("lock-unsupported", "unreadable", "LOCK", "; lock "+d.kv("LOCK")+": "+errno.Error())}
				agree(t, errno.Error(), want, got)
				if kv := storeOf(t, doc, "0_0", "kv"); kv.InUse != nil {
					t.Errorf("%v: in use is %v although it cannot be known", errno, *kv.InUse)
				}
				if doc.StateDirs[0].FileSystem == "" {
					t.Error("the type of the file system is not told")
				}
				var text strings.Builder
				must(t, doc.WriteText(&text))
				if !strings.Contains(text.String(), "without nolock") {
					t.Errorf("no advice about the mount in\n%s", text.String())
				}
			}
			// And that of the application: nothing is known of whether it runs, and
			// nothing is said of how the stores were closed.
			fake := volumetest.New(t, volume.OS())
			lock := filepath.Join(d.app, ".lock")
			fake.Fail(volumetest.Lock, filepath.Join(d.dir, lock), errno)
			code, doc := verifyOn(t, fake, d.dir, verify.Deep)
			want := d.of(3, "ok", false, d.app+" lock-unsupported unreadable "+lock+": ; lock "+lock+": "+errno.Error())
			want.Verdicts[0] = d.app + "=unreadable"
			agree(t, errno.Error(), want, all(code, doc))
			if doc.StateDirs[0].Applications[0].Running != nil {
				t.Errorf("%v: it is said whether it runs", errno)
			}
		})
	}
}

// B03: three forms of a refused lock are three things: another process has the
// store open, the file system cannot lock, or the same process has it open
// already, which ends in the words of the second.
func TestCaseB03(t *testing.T) {
	t.Parallel()
	t.Run("texts", func(t *testing.T) {
		t.Parallel()
		const here = "lock hold by current process, acquire time 1796062218 acquiring thread 139950569813696: "
		for text, want := range map[string]infolog.Kind{
			"While lock file: /s/LOCK: Resource temporarily unavailable": infolog.LockHeld,
			"While lock file: /s/LOCK: No locks available":               infolog.LockUnsupported,
			here + "/s/LOCK: No locks available":                         infolog.LockHeldHere,
			here + "/s/LOCK: Keine Sperren verfügbar":                    infolog.LockHeldHere,
			// The language of the machine hides which of the two it is, and so
			// neither is said.
			"While lock file: /s/LOCK: Keine Sperren verfügbar":                           infolog.LockRefused,
			"While lock file: /s/LOCK: Die Ressource ist zur Zeit nicht verfügbar":        infolog.LockRefused,
			"While lock file: /No locks available/LOCK: Resource temporarily unavailable": infolog.LockHeld,
		} {
			for _, prefix := range []string{"", "IO error: "} {
				if got := infolog.Classify(prefix + text); got != want {
					t.Errorf("%s%s: %v, want %v", prefix, text, got, want)
				}
			}
		}
	})
	eachEra(t, func(t *testing.T, d damaged) {
		lock := d.path("LOCK")
		fake := volumetest.New(t, volume.OS())
		want := func(what string, held bool, pid int) {
			t.Helper()
			if l, err := fake.Lock(lock); err != nil || l.Held != held || l.PID != pid {
				t.Errorf("%s: %+v, %v", what, l, err)
			}
		}
		want("free", false, 0)
		h := holder.Hold(t, lock)
		want("held by another process", true, h.PID())
		h.Kill()
		// This process: a descriptor holds it, which is nobody's process id.
		f, err := os.OpenFile(lock, os.O_RDWR, 0)
		must(t, err)
		must(t, unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}))
		want("held by a descriptor of this process", true, 0)
		must(t, f.Close())
		want("free again", false, 0)
		// The file system.
		fake.Fail(volumetest.Lock, lock, syscall.ENOLCK)
		if l, err := fake.Lock(lock); l.Held || volume.ClassOf(err) != volume.NoLocks {
			t.Errorf("not supported: %+v, %v", l, err)
		}
	})
	// Whoever wants the lock gets it at any moment, and nothing is opened for
	// writing, however many requests for the store there are at a time.
	eachEra(t, func(t *testing.T, d damaged) {
		lock := d.path("LOCK")
		must(t, os.Mkdir(filepath.Join(d.dir, ownFolder), 0o750))
		a := startAgent(t, "--state-dir", d.dir, "--rescan-interval=1s")
		h := holder.Hold(t)
		before := photograph(t, d.dir)
		var ended atomic.Bool
		var all sync.WaitGroup
		var requests atomic.Int64
		for _, request := range []func() string{
			func() string { _, out, errs := sidecar("verify", "--deep", d.dir); return out + errs },
			func() string { _, out, errs := sidecar("verify", d.path("")); return out + errs },
			func() string { _, out, errs := sidecar("status", "--state-dir", d.dir); return out + errs },
			func() string { return a.get(t, a.metrics) },
		} {
			all.Go(func() {
				for !ended.Load() {
					requests.Add(1)
					for _, word := range []string{"lock hold by", "No locks", "temporarily unavailable"} {
						if text := request(); strings.Contains(text, word) {
							t.Errorf("%q in\n%s", word, text)
						}
					}
				}
			})
		}
		for turn := 0; turn < 500 || requests.Load() < 40; turn++ {
			h.Take(lock) // fails the test if anybody has it
			h.Release(lock)
		}
		ended.Store(true)
		all.Wait()
		h.Kill()
		if diff := before.differs(photograph(t, d.dir)); diff != "" {
			t.Errorf("changed: %s", diff)
		}
	})
}

// B07: a second client finds the directory taken: that is no trouble of ours, and
// the stores are judged all the same.
func TestCaseB07(t *testing.T) {
	t.Parallel()
	eachEra(t, func(t *testing.T, d damaged) {
		h := holder.Hold(t, filepath.Join(d.dir, d.app, ".lock"))
		expectBoth(t, d.of(0, "ok", false), d.dir)
		_, doc := verifyJSON(t, d.dir)
		if r := doc.StateDirs[0].Applications[0].Running; r == nil || !*r {
			t.Errorf("running %v, want true", r)
		}
		a := startAgent(t, "--state-dir", d.dir)
		running := fmt.Sprintf("kstreams_app_running{application_id=%q} ", d.app)
		text := a.get(t, a.metrics)
		wantSeries(t, text, running+"1")
		if strings.Contains(text, "_finding{") {
			t.Errorf("findings in\n%s", text)
		}
		h.Kill()
		a.until(t, "the end of the application", func() bool { return strings.Contains(a.get(t, a.metrics), running+"0\n") })
	})
	// What is left of an unclean end says nothing while the application runs again.
	dir := fixture.Unpack(t, "4.4.0", "killed9-alos-load")
	ended, _ := verifyJSON(t, dir)
	h := holder.Hold(t, filepath.Join(dir, "alos440", ".lock"))
	code, doc := verifyJSON(t, dir)
	if got := all(code, doc); ended != 1 || got.Code != 0 || len(got.Findings) > 0 {
		t.Errorf("code %d at rest, and %d and %q while it runs", ended, got.Code, got.Findings)
	}
	h.Kill()
}

// recordsOf gives where the records of a MANIFEST begin and end.
func recordsOf(data []byte) (spans [][2]int) {
	for at := 0; at+7 <= len(data); {
		end := at + 7 + int(data[at+4]) + int(data[at+5])<<8
		spans = append(spans, [2]int{at, end})
		at = end
	}
	return spans
}

// C04: the MANIFEST has a bad record in the middle, is empty, or has lost its end.
func TestCaseC04(t *testing.T) {
	t.Parallel()
	eachEra(t, func(t *testing.T, d damaged) {
		path := d.path("MANIFEST-000005")
		sound := load(t, path)
		spans := recordsOf(sound)
		if len(spans) < 5 {
			t.Fatalf("only %d records", len(spans))
		}
		for _, span := range spans {
			if span[1]-span[0] == 7 {
				continue // nothing in it but its header
			}
			data := slices.Clone(sound)
			data[span[1]-1] ^= 1
			must(t, os.WriteFile(path, data, 0o644))
			at, evidence := badRecord(t, data)
			if at != span[0] {
				t.Fatalf("the record at %d: %d", span[0], at)
			}
			began := time.Now()
			expect(t, d.of(2, "damaged", true, d.line("manifest-unparseable", "damage", fmt.Sprintf("MANIFEST-000005@%d", at), evidence)), d.dir)
			if took := time.Since(began); took > 3*time.Second { // one, on a machine that is not loaded
				t.Errorf("took %v", took)
			}
		}
		must(t, os.WriteFile(path, nil, 0o644))
		expectBoth(t, d.of(2, "damaged", true, d.line("manifest-empty", "damage", "MANIFEST-000005", "; ")), d.dir)

		data := sound[:len(sound)-10]
		must(t, os.WriteFile(path, data, 0o644))
		at, evidence := badRecord(t, data)
		cut := d.line("manifest-tail-cut", "warning", fmt.Sprintf("MANIFEST-000005@%d", at), evidence)
		if d.offsetsCF { // the record belonged to the group of those that named the tables
			expectBoth(t, d.of(2, "damaged", true, append(d.lost(), cut)...), d.dir)
		} else {
			expectBoth(t, d.of(1, "unclean", true, cut), d.dir)
		}
		// Cut where a record ends, it lacks nothing but what the record said.
		at = spans[len(spans)-1][0]
		fs := []string{}
		if !d.offsetsCF { // the records that named the tables too
			at = spans[len(spans)-2][0]
			fs = append(fs, d.line("checkpoint-ahead-of-data", "damage", "", "records up to offset 2999; a database to which nothing was ever written"))
			fs[0] = strings.Replace(fs[0], d.kv("")+":", d.task+"/.checkpoint:", 1)
		}
		must(t, os.WriteFile(path, sound[:at], 0o644))
		for _, f := range d.lost() {
			why := "RocksDB has closed the database after it"
			if !d.offsetsCF {
				why = "the .checkpoint was written after the table"
			}
			fs = append(fs, strings.Replace(f, "its end is lost", why, 1))
		}
		if d.offsetsCF { // the group that named both is not applied without its end
			fs = append(fs, d.line("unclean-end", "warning", "", "; nothing was written to the family offsets since it was last opened"))
		}
		expectBoth(t, d.of(2, "damaged", true, fs...), d.dir)
		must(t, os.WriteFile(path, data, 0o644))
		// While it is in use, the record may be on its way.
		h := holder.Hold(t, filepath.Join(d.dir, d.app, ".lock"), d.path("LOCK"))
		expectBoth(t, d.of(1, "ok", false, strings.Replace(cut, "manifest-tail-cut", "manifest-tail-partial", 1)), d.dir)
		h.Kill()
	})
}

// C05: tables are written and the MANIFEST stands still, for weeks.
func TestCaseC05(t *testing.T) {
	t.Parallel()
	eachEra(t, func(t *testing.T, d damaged) {
		series := func(store string) string {
			return fmt.Sprintf(`kstreams_store_manifest_lag_seconds{application_id=%q,store=%q,task_id="0_0"} `, d.app, store)
		}
		h := holder.Hold(t, filepath.Join(d.dir, d.app, ".lock"), d.path("LOCK"))
		a := startAgent(t, "--state-dir", d.dir)
		wantSeries(t, a.get(t, a.metrics), series("kv")+"0")
		table, _ := d.table()
		data := load(t, d.path(table))
		i, err := os.Stat(d.path("MANIFEST-000005"))
		must(t, err)
		// A hundred and fifty flushes, one each minute: more than are remembered by name.
		for n := range 150 {
			name := d.path(fmt.Sprintf("%06d.sst", 50+n))
			must(t, os.WriteFile(name, data[:min(len(data), 2000)], 0o644))
			at := i.ModTime().Add(time.Duration(n+1) * time.Minute)
			must(t, os.Chtimes(name, at, at))
			if n == 9 {
				a.until(t, "a lag of ten minutes", func() bool { return strings.Contains(a.get(t, a.metrics), series("kv")+"600\n") })
			}
		}
		a.until(t, "a lag of 150 minutes", func() bool { return strings.Contains(a.get(t, a.metrics), series("kv")+"9000\n") })
		text := a.get(t, a.metrics)
		wantSeries(t, text, series("x00")+"0")
		wantSeries(t, text, fmt.Sprintf(`kstreams_store_verdict{application_id=%q,store="kv",task_id="0_0",verdict="damaged"} 0`, d.app))
		at := i.ModTime().Add(3 * time.Hour)
		must(t, os.Chtimes(d.path("MANIFEST-000005"), at, at))
		a.until(t, "the end of the lag", func() bool { return strings.Contains(a.get(t, a.metrics), series("kv")+"0\n") })
		h.Kill()
	})
}

// C06: CURRENT is empty, zeros, or lacks its newline, although the MANIFEST is
// complete: that one is named, and nothing is written.
func TestCaseC06(t *testing.T) {
	t.Parallel()
	eachEra(t, func(t *testing.T, d damaged) {
		path := d.path("CURRENT")
		// An older MANIFEST, complete, and a newer one without its end.
		sound := load(t, d.path("MANIFEST-000005"))
		must(t, os.WriteFile(d.path("MANIFEST-000003"), sound, 0o644))
		must(t, os.WriteFile(d.path("MANIFEST-000099"), sound[:len(sound)/2], 0o644))
		const whole = "; parsed to its end: MANIFEST-000005, MANIFEST-000003"
		const expected = "MANIFEST-NNNNNN and a newline; "
		for _, c := range []struct{ content, code, found string }{
			{"", "current-empty", "it is empty"},
			{strings.Repeat("\x00", 16), "current-empty", "it holds nothing but 16 NUL bytes"},
			{strings.Repeat("\x00", 4096), "current-empty", "it holds nothing but 4096 NUL bytes"},
			{"MANIFEST-000005", "current-no-newline", `no newline at the end of "MANIFEST-000005"`},
			{"MANIFEST-0000", "current-no-newline", `no newline at the end of "MANIFEST-0000"`},
			{"hello\n", "current-malformed", `"hello" is not the name of a MANIFEST`},
			{"MANIFEST-\n", "current-malformed", `"MANIFEST-" is not the name of a MANIFEST`},
		} {
			write(t, path, c.content)
			before, w := photograph(t, d.dir), writes.Watch(t, d.dir)
			expectBoth(t, d.of(2, "damaged", true, d.line(c.code, "damage", "CURRENT", expected+c.found+whole)), d.dir)
			w.ExpectNothing(t)
			if diff := before.differs(photograph(t, d.dir)); diff != "" {
				t.Errorf("%q: changed: %s", c.content, diff)
			}
		}
		// What is proposed does open.
		write(t, path, "MANIFEST-000005\n")
		expectBoth(t, d.of(0, "ok", false), d.dir)
	})
}

// C08: CURRENT names a MANIFEST that is not there.
func TestCaseC08(t *testing.T) {
	t.Parallel()
	eachEra(t, func(t *testing.T, d damaged) {
		elsewhere := filepath.Join(t.TempDir(), "MANIFEST-000005")
		must(t, os.Rename(d.path("MANIFEST-000005"), elsewhere))
		expectBoth(t, d.of(2, "damaged", true, d.line("manifest-missing", "damage", "MANIFEST-000005", "; no such file")), d.dir)
		must(t, os.Rename(elsewhere, d.path("MANIFEST-000004")))
		write(t, d.path("MANIFEST-000006"), "no MANIFEST")
		before := photograph(t, d.dir)
		expectBoth(t, d.of(2, "damaged", true, d.line("manifest-missing", "damage", "MANIFEST-000005", "; no such file; parsed to its end: MANIFEST-000004")), d.dir)
		if diff := before.differs(photograph(t, d.dir)); diff != "" {
			t.Errorf("changed: %s", diff)
		}
		// Copied elsewhere, it is the same database.
		alone := filepath.Join(t.TempDir(), "copy")
		must(t, os.CopyFS(alone, os.DirFS(d.path(""))))
		if code, doc := verifyJSON(t, alone); code != 2 || len(doc.StateDirs[0].Applications[0].Tasks[0].Stores[0].Findings) != 1 {
			t.Errorf("a copy: code %d, %+v", code, doc)
		}
	})
}

// C09: a table has another size than the MANIFEST says. The quick depth finds it.
func TestCaseC09(t *testing.T) {
	t.Parallel()
	eachEra(t, func(t *testing.T, d damaged) {
		table, size := d.table()
		sound := load(t, d.path(table))
		for _, data := range [][]byte{sound[:size-1], sound[:1], {}, append(slices.Clone(sound), 0), append(slices.Clone(sound), sound...)} {
			must(t, os.WriteFile(d.path(table), data, 0o644))
			expectBoth(t, d.of(2, "damaged", true, d.line("sst-size-mismatch", "damage", table, fmt.Sprintf("%d bytes; %d bytes", size, len(data)))), d.dir)
		}
		// Level and family are in the details.
		_, out, _ := sidecar("inspect", "--output=json", d.path(""))
		var detail report.StoreDetail
		must(t, json.Unmarshal([]byte(out), &detail))
		found := false
		for _, f := range detail.Databases[0].Manifest.Families {
			for _, x := range f.Tables {
				found = found || f.Name == "keyValueWithTimestamp" && x.Level == 0 && fmt.Sprintf("%06d.sst", x.Number) == table && x.SizeBytes == uint64(size)
			}
		}
		if !found {
			t.Errorf("%s is not at level 0 of keyValueWithTimestamp: %+v", table, detail.Databases[0].Manifest)
		}
		must(t, os.WriteFile(d.path(table), sound, 0o644))
		expectBoth(t, d.of(0, "ok", false), d.dir)
	})
}

// C10: the size is right, and a block is not what was written.
func TestCaseC10(t *testing.T) {
	t.Parallel()
	eachEra(t, func(t *testing.T, d damaged) {
		table, size := d.table()
		data := load(t, d.path(table))
		data[size/2] ^= 0xff
		must(t, os.WriteFile(d.path(table), data, 0o644))
		expect(t, d.of(0, "ok", false), d.dir)
		code, doc := verifyJSON(t, "--deep", d.dir)
		got := all(code, doc)
		line := d.line("sst-block-checksum", "damage", fmt.Sprintf("%s@%d", table, d.badBlock()), "")
		want := d.of(2, "damaged", true)
		if got.Code != want.Code || !slices.Equal(got.Verdicts, want.sorted().Verdicts) || len(got.Findings) != 1 ||
			!regexp.MustCompile("^"+regexp.QuoteMeta(line)+`\d+; \d+$`).MatchString(got.Findings[0]) {
			t.Errorf("got %+v, want %q", got, line)
		}
		// Every byte of every table was read, and that of kv twice.
		total := int64(0)
		for _, pattern := range []string{d.path("*.sst"), filepath.Join(d.dir, d.task, "rocksdb", "x00", "*.sst")} {
			tables, err := filepath.Glob(pattern)
			must(t, err)
			for _, p := range tables {
				i, err := os.Stat(p)
				must(t, err)
				total += i.Size()
			}
		}
		if v := doc.Verification; v == nil || v.Depth != "deep" || v.SizeBytes < total || v.Retries == 0 || !v.Complete {
			t.Errorf("%+v, want at least %d bytes and a second look", v, total)
		}
		// At a pace: 256 KiB a second for 258 KiB and more.
		began := time.Now()
		code, doc = verifyJSON(t, "--deep", "--rate=128K", d.dir)
		agree(t, "at a pace", got, all(code, doc))
		if took, least := time.Since(began), time.Duration(float64(total-128<<10)/(128<<10)*float64(time.Second)); took < least {
			t.Errorf("took %v for %d bytes, want at least %v", took, total, least)
		}
	})
}

// C10, in the background: what was found, and how many bytes were verified.
func TestCaseC10InTheBackground(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"3.9.1", "4.4.0"} {
		d := unpackDamaged(t, fixture.Name{Version: version, Case: "corrupt-alos-sst-data-flip"})
		vs := volumes([]string{d.dir})
		dirs := store.ScanAll(vs, []string{d.dir}, nil)
		var ahead atomic.Int64 // of the clock
		s := scrub.New(scrub.Config{Picture: func() []*store.StateDir { return dirs }, Volumes: vs, Quick: 24 * time.Hour, Deep: time.Hour,
			Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		runs := func(quick, deep uint64) {
			t.Helper()
			for deadline := time.Now().Add(20 * time.Second); s.Totals().Quick < quick || s.Totals().Deep < deep; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("%+v, want %d and %d verifications", s.Totals(), quick, deep)
				}
			}
		}
		runs(2, 0)
		found := map[string]string{}
		look := func() {
			dirs[0].Stores(func(_ *store.Application, _ *store.Task, st *store.Store) {
				found[st.Name] = codes(s.Findings(st.Databases[0]))
			})
		}
		if look(); found["kv"] != "" || found["x00"] != "" || s.Totals().Deep != 0 {
			t.Errorf("before the deep one: %q, %+v", found, s.Totals())
		}
		ahead.Store(int64(time.Hour + time.Minute))
		runs(2, 2)
		if look(); found["kv"] != "sst-block-checksum" || found["x00"] != "" {
			t.Errorf("after the deep one: %q", found)
		}
		// Every byte of two tables, the damaged one twice.
		if _, size := d.table(); s.Totals().Bytes < 2*uint64(size) || s.Totals().Retries == 0 {
			t.Errorf("%+v", s.Totals())
		}
		cancel()
		must(t, <-done)
	}
}

// C15: no reading command changes anything: names, sizes, times and contents,
// at rest, after every one of them and a hundred scrapes.
func TestCaseC15(t *testing.T) {
	t.Parallel()
	for _, n := range fixture.Names() {
		t.Run(n.String(), func(t *testing.T) {
			t.Parallel()
			dir := fixture.Unpack(t, n.Version, n.Case)
			before := photograph(t, dir)
			w := writes.Watch(t, dir)
			for _, args := range [][]string{
				{"verify", dir}, {"verify", "--deep", dir}, {"verify", "--deep", "--output=json", "--guarantee=exactly-once", "--streams-version=3.9.1", dir},
				{"status", dir}, {"inspect", dir},
			} {
				sidecar(args...)
			}
			w.ExpectNothing(t)
			if diff := before.differs(photograph(t, dir)); diff != "" {
				t.Errorf("changed: %s", diff)
			}
		})
	}
	eachEra(t, func(t *testing.T, d damaged) {
		write(t, d.path("CURRENT"), "")
		must(t, os.Mkdir(filepath.Join(d.dir, ownFolder), 0o750))
		before := photograph(t, d.dir)
		w := writes.Watch(t, d.dir)
		a := startAgent(t, "--state-dir", d.dir, "--rescan-interval=1s")
		for range 100 {
			a.get(t, a.metrics)
		}
		a.until(t, "a verification", func() bool {
			return regexp.MustCompile(`kstreams_store_verified_timestamp_seconds\{[^}]*store="x00"`).MatchString(a.get(t, a.metrics))
		})
		w.ExpectNothing(t)
		if diff := before.differs(photograph(t, d.dir)); diff != "" {
			t.Errorf("changed: %s", diff)
		}
	})
}

// C15, with RocksDB's own process.
func TestCaseC15WithEngine(t *testing.T) {
	t.Parallel()
	program := realEngine(t)
	eachEra(t, func(t *testing.T, d damaged) {
		before, w := photograph(t, d.dir), writes.Watch(t, d.dir)
		code, _, errs := sidecar("status", "--with-engine", "--engine", program, "--state-dir", d.dir)
		w.ExpectNothing(t)
		if diff := before.differs(photograph(t, d.dir)); diff != "" || code != 0 {
			t.Errorf("code %d, %s; changed: %s", code, errs, diff)
		}
	})
}

// C16: databases that only their own options open: a comparator and a merge
// operator of somebody's own, values in blob files. Nothing of that is damage, and
// what is physical is verified all the same.
func TestCaseC16(t *testing.T) {
	t.Parallel()
	rockswriter.Program(t)
	const options = "info_log_level=ERROR_LEVEL;disable_auto_compactions=true;"
	put := []rockswriter.Step{{Do: rockswriter.Put, Keys: 500, Size: 100, NoWAL: true}, {Do: rockswriter.Flush}}
	for name, c := range map[string]struct {
		recipe  rockswriter.Recipe
		finding string // "" for none; of the store kv, after its name
	}{
		"comparator": {rockswriter.Recipe{Options: options, Families: []rockswriter.Family{{Name: "default", Comparator: "somebody.Backwards"}}, Steps: put},
			"comparator-foreign info app/0_0/rocksdb/kv: leveldb.BytewiseComparator; somebody.Backwards in family default"},
		"reverse": {rockswriter.Recipe{Options: options + "comparator=rocksdb.ReverseBytewiseComparator", Steps: put},
			"comparator-foreign info app/0_0/rocksdb/kv: leveldb.BytewiseComparator; rocksdb.ReverseBytewiseComparator in family default"},
		"merge operator": {rockswriter.Recipe{Options: options + "merge_operator=uint64add", Steps: []rockswriter.Step{
			{Do: rockswriter.Put, Keys: 100, Size: 8, NoWAL: true}, {Do: rockswriter.Merge, Keys: 500, Size: 8, NoWAL: true}, {Do: rockswriter.Flush}}}, ""},
		"blobs": {rockswriter.Recipe{Options: options + "enable_blob_files=true", Steps: put}, "blob-files info app/0_0/rocksdb/kv: ; 1 blob file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, filepath.Join(mkdir(t, dir, "app"), ".lock"), "")
			kv := filepath.Join(mkdir(t, dir, "app", "0_0", "rocksdb"), "kv")
			write(t, filepath.Join(dir, "app", "0_0", ".checkpoint"), "0\n0\n")
			rockswriter.Write(t, kv, c.recipe)
			want := func(code int, verdict string, more ...string) said {
				s := said{code, []string{"app=" + verdict, "app/0_0=" + verdict, "app/0_0/kv=" + verdict}, more}
				if c.finding != "" {
					s.Findings = append(s.Findings, "app/0_0/kv "+c.finding)
				}
				return s
			}
			expectBoth(t, want(0, "ok"), dir)
			code, doc := verifyJSON(t, "--deep", kv)
			if v := doc.Verification; code != 0 || v.Tables != 1 || v.SizeBytes == 0 {
				t.Errorf("code %d, %+v, want one table read", code, v)
			}
			tables, err := filepath.Glob(filepath.Join(kv, "*.sst"))
			if err != nil || len(tables) != 1 {
				t.Fatalf("tables %q %v", tables, err)
			}
			sound := load(t, tables[0])
			data := slices.Clone(sound)
			data[100] ^= 1
			must(t, os.WriteFile(tables[0], data, 0o644))
			expect(t, want(0, "ok"), dir)
			_, doc = verifyJSON(t, "--deep", dir)
			if s := storeOf(t, doc, "0_0", "kv"); s.Verdict != "damaged" || !strings.Contains(codes(s.Findings), "sst-block-checksum") {
				t.Errorf("a flipped bit: %+v", s)
			}
			must(t, os.WriteFile(tables[0], sound[:len(sound)-1], 0o644))
			expect(t, want(2, "damaged", fmt.Sprintf("app/0_0/kv sst-size-mismatch damage app/0_0/rocksdb/kv/%s: %d bytes; %d bytes", filepath.Base(tables[0]), len(sound), len(sound)-1)), dir)
		})
	}
}

// C16: RocksDB's encrypted environment puts a page in front of each file and
// leaves nothing to recognise.
func TestCaseC16Encrypted(t *testing.T) {
	t.Parallel()
	eachEra(t, func(t *testing.T, d damaged) {
		r := rand.New(rand.NewPCG(1, 2))
		entries, err := os.ReadDir(d.path(""))
		must(t, err)
		size := 0
		for _, e := range entries {
			if e.Name() == "LOCK" || e.Name() == "LOG" {
				continue
			}
			n := len(load(t, d.path(e.Name())))
			if e.Name() == "CURRENT" {
				size = n + 4096
			}
			must(t, os.WriteFile(d.path(e.Name()), garbage(r, n+4096), 0o644))
		}
		code, doc := verifyJSON(t, "--deep", d.dir)
		got := all(code, doc)
		want := d.of(3, "incompatible", true, d.line("encrypted", "unreadable", "CURRENT",
			fmt.Sprintf("some 16 bytes; %d bytes: 4096 more, as in front of every file of an encrypted database", size)))
		agree(t, "encrypted", want, got)
	})
}

// G07: RocksDB's log has the time of its machine, without a zone.
func TestCaseG07(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]time.Time{
		"3.9.1": time.Date(2026, 11, 30, 18, 10, 34, 0, time.UTC),
		"4.4.0": time.Date(2026, 11, 30, 18, 12, 2, 0, time.UTC),
	} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			d := unpackDamaged(t, fixture.Name{Version: version, Case: "corrupt-sst-flip-then-loaded"})
			path := d.path("LOG")
			sound := string(load(t, path))
			i, err := os.Stat(path)
			must(t, err)
			const layout = "2006/01/02-15:04:05.000000"
			stamp, err := time.Parse(layout, sound[:len(layout)])
			must(t, err)
			when := func() string {
				t.Helper()
				_, doc := verifyJSON(t, d.dir)
				for _, f := range storeOf(t, doc, "0_0", "kv").Findings {
					if m := regexp.MustCompile(`1 line of level ERROR, (.*?) \(corruption\)`).FindStringSubmatch(f.Found); f.Code == "log-error" && m != nil {
						return m[1]
					}
				}
				t.Fatal("no log-error")
				return ""
			}
			for _, ahead := range []time.Duration{9 * time.Hour, 0, -(3*time.Hour + 30*time.Minute), 14 * time.Hour} {
				local := stamp.Add(ahead).Format(layout)
				write(t, path, local+sound[len(layout):])
				must(t, os.Chtimes(path, i.ModTime(), i.ModTime()))
				if got := when(); got != want.Format(time.RFC3339) {
					t.Errorf("%v ahead of UTC: %s, want %v", ahead, got, want)
				}
				// A copy has another time: no zone can be told from it, least of all one
				// that makes a time in the future.
				for _, later := range []time.Duration{73 * time.Hour, -40 * time.Hour} {
					at := i.ModTime().Add(ahead + later)
					must(t, os.Chtimes(path, at, at))
					if got := when(); got != local+" in the writer's zone" {
						t.Errorf("%v ahead, modified %v later: %s, want that the zone is not known", ahead, later, got)
					}
				}
			}
		})
	}
}

// G07, with a log that RocksDB itself has written in Tokyo.
func TestCaseG07Tokyo(t *testing.T) {
	rockswriter.Program(t)
	t.Setenv("TZ", "JST-9") // RocksDB's process inherits it; this one has read its own already
	dir := t.TempDir()
	write(t, filepath.Join(mkdir(t, dir, "app"), ".lock"), "")
	kv := filepath.Join(mkdir(t, dir, "app", "0_0", "rocksdb"), "kv")
	recipe := rockswriter.Recipe{Options: "info_log_level=ERROR_LEVEL;compression=kNoCompression",
		Steps: []rockswriter.Step{{Do: rockswriter.Put, Keys: 500, Size: 200, NoWAL: true}, {Do: rockswriter.Flush}}}
	rockswriter.Write(t, kv, recipe)
	tables, err := filepath.Glob(filepath.Join(kv, "*.sst"))
	if err != nil || len(tables) != 1 {
		t.Fatalf("tables %q %v", tables, err)
	}
	data := load(t, tables[0])
	data[5000] ^= 0xff
	must(t, os.WriteFile(tables[0], data, 0o644))
	before := time.Now()
	recipe.Steps = append(recipe.Steps, rockswriter.Step{Do: rockswriter.Compact})
	rockswriter.Write(t, kv, recipe)
	after := time.Now()
	_, doc := verifyJSON(t, dir)
	found := ""
	for _, f := range storeOf(t, doc, "0_0", "kv").Findings {
		if f.Code == "log-error" {
			found = f.Found
		}
	}
	m := regexp.MustCompile(`1 line of level ERROR, (\S+) \(corruption\): `).FindStringSubmatch(found)
	if m == nil {
		t.Fatalf("no log-error with a time: %q", found)
	}
	at, err := time.Parse(time.RFC3339, m[1])
	if err != nil || at.Before(before.Truncate(time.Second)) || at.After(after) {
		t.Errorf("%s (%v), want from %v to %v", m[1], err, before.UTC(), after.UTC())
	}
}
