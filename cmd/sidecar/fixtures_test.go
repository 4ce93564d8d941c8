package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/report"
	"streams-sidecar/test/fixture"
)

// verifyJSON runs verify and parses its answer.
func verifyJSON(t *testing.T, args ...string) (int, report.Document) {
	t.Helper()
	code, out, errs := sidecar(append([]string{"verify", "--output=json"}, args...)...)
	var doc report.Document
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatalf("verify %q: %v\n%s%s", args, err, out, errs)
	}
	if errs != "" {
		t.Errorf("verify %q wrote to stderr: %s", args, errs)
	}
	return code, doc
}

// said is everything that a document says, as a test writes it down. Paths are relative to the state directory.
type said struct {
	Code     int      // exit code
	Verdicts []string // "application", "application/task", "application/task/store", each with "=verdict"
	Findings []string // "where code severity file@offset: expected; found"
}

func all(code int, doc report.Document) said {
	s := said{Code: code}
	for _, d := range doc.StateDirs {
		rel := func(text string) string { return strings.ReplaceAll(text, d.Path+"/", "") }
		add := func(where string, fs []finding.Finding) {
			for _, f := range fs {
				line := fmt.Sprintf("%s %s %s %s", where, f.Code, f.Severity, rel(f.File))
				if f.Offset != nil {
					line += fmt.Sprintf("@%d", *f.Offset)
				}
				s.Findings = append(s.Findings, fmt.Sprintf("%s: %s; %s", line, f.Expected, rel(f.Found)))
			}
		}
		add(".", d.Findings)
		for _, a := range d.Applications {
			s.Verdicts = append(s.Verdicts, a.ID+"="+a.Verdict)
			add(a.ID, a.Findings)
			for _, task := range a.Tasks {
				at := a.ID + "/" + task.ID
				s.Verdicts = append(s.Verdicts, at+"="+task.Verdict)
				add(at, task.Findings)
				for _, st := range task.Stores {
					s.Verdicts = append(s.Verdicts, at+"/"+st.Name+"="+st.Verdict)
					add(at+"/"+st.Name, st.Findings)
				}
			}
		}
	}
	return s.sorted()
}

// expect runs verify and wants it to say exactly this.
func expect(t *testing.T, want said, args ...string) {
	t.Helper()
	agree(t, strings.Join(args, " "), want, all(verifyJSON(t, args...)))
}

func agree(t *testing.T, what string, want, got said) {
	t.Helper()
	if diff := cmp.Diff(want.sorted(), got.sorted()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func (s said) sorted() said {
	return said{s.Code, slices.Sorted(slices.Values(s.Verdicts)), slices.Sorted(slices.Values(s.Findings))}
}

// expectBoth wants the same of both depths.
func expectBoth(t *testing.T, want said, args ...string) {
	t.Helper()
	expect(t, want, args...)
	expect(t, want, append([]string{"--deep"}, args...)...)
}

// damaged is a fixture corrupt-…: the base with one damage. What must be said of
// it is told here by its files, by what was done to it (testdata/fixtures/README.md),
// and by what RocksDB and Kafka Streams then did (its inventory), and not by the
// program.
type damaged struct {
	t         *testing.T
	name      fixture.Name
	dir       string // the state directory
	app, task string // its only application and task
	offsetsCF bool   // Kafka Streams 4.3 or later
	last      int    // the offset that the .checkpoint or the family offsets of the base has
	evidence  string // the two numbers in RocksDB's own error: stored, computed
}

func unpackDamaged(t *testing.T, n fixture.Name) damaged {
	t.Helper()
	d := damaged{t: t, name: n, dir: fixture.Unpack(t, n.Version, n.Case), offsetsCF: n.Version >= "4.3", app: "calos", last: 2999}
	switch {
	case strings.Contains(n.Case, "-eos"):
		d.app, d.last = "ceos", 3001
	case n.Case == "corrupt-sst-flip-then-loaded":
		d.app = "c2"
	}
	d.app += strings.ReplaceAll(n.Version, ".", "")
	d.task = d.app + "/0_0"
	fails := fixture.Inventory(t, n.Version)[n.Case].Stores[d.kv("")].OpenFails
	for pattern, order := range map[string][2]int{
		`mismatch: stored.* = (\d+), computed = (\d+)`: {1, 2},
		`mismatch: expected (\d+), got (\d+)`:          {2, 1}, // RocksDB 5 expects what it has computed
		`magic number: expected (\d+), found (\d+)`:    {1, 2},
	} {
		if m := regexp.MustCompile(pattern).FindStringSubmatch(fails); m != nil {
			d.evidence = m[order[0]] + "; " + m[order[1]]
		}
	}
	return d
}

func (d *damaged) kv(file string) string { return filepath.Join(d.task, "rocksdb", "kv", file) }

func (d *damaged) size(file string) int {
	d.t.Helper()
	i, err := os.Stat(filepath.Join(d.dir, d.kv(file)))
	if err != nil {
		d.t.Fatal(err)
	}
	return int(i.Size())
}

// table is the largest one, which has the damage, and its size before that.
func (d *damaged) table() (name string, size int) {
	switch {
	case d.name.Version == "2.8.2":
		return "000011.sst", 129225
	case d.name.Version == "3.9.1":
		return "000010.sst", 129020
	case d.offsetsCF:
		return "000011.sst", 129112
	}
	return "000010.sst", 129112
}

// badBlock is where the block of data begins that has the middle byte of that
// table, by RocksDB's own messages: "offset 60510 size 4030" with 3.9.1, "offset
// 64545 size 4029" with the others.
func (d *damaged) badBlock() int {
	if d.name.Version == "3.9.1" {
		return 60510
	}
	return 64545
}

// manifest says of the MANIFEST where its first record begins that is not whole or
// has another checksum, and the evidence of it. It walks the records (RocksDB
// db/log_format.h, util/crc32c.h) without the reader under test.
func (d *damaged) manifest() (at int, evidence string) {
	d.t.Helper()
	data, err := os.ReadFile(filepath.Join(d.dir, d.kv("MANIFEST-000005")))
	if err != nil {
		d.t.Fatal(err)
	}
	return badRecord(d.t, data)
}

func badRecord(t *testing.T, data []byte) (at int, evidence string) {
	t.Helper()
	const header = 7 // checksum, length, type
	for at+header <= len(data) {
		end := at + header + int(binary.LittleEndian.Uint16(data[at+4:]))
		if end > len(data) {
			return at, fmt.Sprintf("%d bytes; %d to the end of the file", end-at, len(data)-at)
		}
		stored := binary.LittleEndian.Uint32(data[at:]) - 0xa282ead8
		stored = stored>>17 | stored<<15
		if sum := crc32.Checksum(data[at+header-1:end], crc32.MakeTable(crc32.Castagnoli)); sum != stored {
			return at, fmt.Sprintf("0x%08x; 0x%08x", stored, sum)
		}
		at = end
	}
	if at == len(data) {
		t.Fatal("every record is whole")
	}
	return at, fmt.Sprintf("%d bytes; %d to the end of the file", header, len(data)-at)
}

// lost are the findings for every table, where the MANIFEST names none any more.
func (d *damaged) lost() (fs []string) {
	d.t.Helper()
	tables, err := filepath.Glob(filepath.Join(d.dir, d.kv("*.sst")))
	if want := 1 + map[bool]int{true: 1}[d.offsetsCF]; err != nil || len(tables) != want {
		d.t.Fatalf("tables %q (%v), want %d", tables, err, want)
	}
	for _, p := range tables {
		name := filepath.Base(p)
		fs = append(fs, fmt.Sprintf("%s/kv sst-unreferenced damage %s: a MANIFEST that names it: its end is lost; %d bytes", d.task, d.kv(name), d.size(name)))
	}
	return fs
}

func (d *damaged) gone(store string) string {
	return fmt.Sprintf("%s store-gone damage %s/rocksdb/%s: a store with records up to offset %d; no such directory", d.task, d.task, store, d.last)
}

// of is what verify must say with the worst verdict and these findings, of the
// store kv if store is set.
func (d *damaged) of(code int, verdict string, store bool, findings ...string) said {
	kv := "ok"
	if store {
		kv = verdict
	}
	return said{code, []string{d.app + "=" + verdict, d.task + "=" + verdict, d.task + "/kv=" + kv, d.task + "/x00=ok"}, findings}
}

// without is what verify says of a task in which kv is gone, or both.
func (d *damaged) without(code int, verdict string, both bool, findings ...string) said {
	s := d.of(code, verdict, false, findings...)
	s.Verdicts = slices.DeleteFunc(s.Verdicts, func(v string) bool {
		return strings.HasPrefix(v, d.task+"/kv=") || both && strings.HasPrefix(v, d.task+"/x00=")
	})
	return s
}

// want is what both depths must say; quick is nil where they say the same.
func (d *damaged) want(damage string) (quick *said, deep said) {
	d.t.Helper()
	at := func(code, severity, file, evidence string) string {
		return fmt.Sprintf("%s/kv %s %s %s: %s", d.task, code, severity, d.kv(file), evidence)
	}
	table, size := d.table()
	switch damage {
	case "base", "app-dir-process-meta-removed", "ckpt-lower",
		"ckpt-line-removed": // as if the store had no changelog
		return nil, d.of(0, "ok", false)
	case "ckpt-line-and-store-removed": // the safe way to set one store aside
		return nil, d.without(0, "ok", false)

	case "sst-data-flip":
		ok := d.of(0, "ok", false)
		return &ok, d.of(2, "damaged", true, at("sst-block-checksum", "damage", fmt.Sprintf("%s@%d", table, d.badBlock()), d.evidence))
	case "sst-data-flip-first":
		ok := d.of(0, "ok", false)
		return &ok, d.of(2, "damaged", true, at("sst-block-checksum", "damage", table+"@0", d.evidence))
	case "sst-footer-flip":
		return nil, d.of(2, "damaged", true, at("sst-footer-malformed", "damage", fmt.Sprintf("%s@%d", table, size-8), d.evidence))
	case "sst-truncated", "sst-zero":
		left := map[string]int{"sst-truncated": size / 2}[damage]
		return nil, d.of(2, "damaged", true, at("sst-size-mismatch", "damage", table, fmt.Sprintf("%d bytes; %d bytes", size, left)))
	case "sst-deleted":
		return nil, d.of(2, "damaged", true, at("sst-missing", "damage", table, fmt.Sprintf("%d bytes; no such file", size)))

	case "manifest-truncated", "manifest-tail-cut":
		offset, evidence := d.manifest()
		cut := at("manifest-tail-cut", "warning", fmt.Sprintf("MANIFEST-000005@%d", offset), evidence)
		if damage == "manifest-tail-cut" && !d.offsetsCF {
			return nil, d.of(1, "unclean", true, cut) // the last record was not needed
		}
		fs := append(d.lost(), cut)
		if !d.offsetsCF {
			fs = append(fs, fmt.Sprintf("%s/kv checkpoint-ahead-of-data damage %s/.checkpoint: records up to offset %d; a database to which nothing was ever written", d.task, d.task, d.last))
		}
		return nil, d.of(2, "damaged", true, fs...)
	case "manifest-flip":
		offset, evidence := d.manifest()
		return nil, d.of(2, "damaged", true, at("manifest-unparseable", "damage", fmt.Sprintf("MANIFEST-000005@%d", offset), evidence))
	case "manifest-deleted":
		return nil, d.of(2, "damaged", true, at("manifest-missing", "damage", "MANIFEST-000005", "; no such file"))
	case "current-empty":
		return nil, d.of(2, "damaged", true, at("current-empty", "damage", "CURRENT", "MANIFEST-NNNNNN and a newline; it is empty; parsed to its end: MANIFEST-000005"))
	case "current-no-newline":
		return nil, d.of(2, "damaged", true, at("current-no-newline", "damage", "CURRENT",
			`MANIFEST-NNNNNN and a newline; no newline at the end of "MANIFEST-000005"; parsed to its end: MANIFEST-000005`))

	case "options-deleted":
		return nil, d.of(0, "ok", false, at("options-unparsed", "info", "", "OPTIONS-NNNNNN; no such file"))
	case "identity-deleted":
		return nil, d.of(0, "ok", false, at("identity-missing", "info", "IDENTITY", "; "))
	case "wal-garbage":
		return nil, d.of(1, "ok", false, at("wal-garbage", "warning", "000004.log@0", "a record; 1000 to the end of the file"))

	case "store-dir-removed", "store-dir-renamed-inside":
		var fs []string
		if damage == "store-dir-renamed-inside" {
			fs = append(fs, fmt.Sprintf("%s foreign-directory warning %s/rocksdb/kv.corrupt: ; %d bytes", d.task, d.task, d.below("rocksdb/kv.corrupt")))
		}
		if !d.offsetsCF {
			return nil, d.without(2, "damaged", false, append(fs, d.gone("kv"))...)
		}
		return nil, d.without(len(fs), "ok", false, fs...) // its offsets are gone with it: it is restored
	case "rocksdb-dir-removed":
		if !d.offsetsCF {
			return nil, d.without(2, "damaged", true, d.gone("kv"), d.gone("x00"))
		}
		return nil, d.without(0, "empty", true)
	case "task-dir-moved":
		return nil, said{0, []string{d.app + "=empty"}, nil}
	case "task-dir-moved-inside-app":
		d.task = d.app + "/0_0.quarantine"
		return nil, said{1, []string{d.app + "=ok"}, []string{
			fmt.Sprintf("%s foreign-directory warning %s: ; %d bytes", d.app, d.task, d.below("")),
		}}

	case "ckpt-removed":
		return nil, d.of(1, "ok", false, fmt.Sprintf("%s checkpoint-missing warning %s/.checkpoint: ; no such file", d.task, d.task))
	case "ckpt-empty":
		return nil, d.of(2, "damaged", false, fmt.Sprintf("%s checkpoint-empty damage %s/.checkpoint@0: line 1: format version 0; the end of the file", d.task, d.task))
	case "ckpt-garbage":
		return nil, d.of(2, "damaged", false, fmt.Sprintf(`%s checkpoint-malformed damage %s/.checkpoint@0: line 1: format version 0; "hello"`, d.task, d.task))

	case "sst-flip-then-loaded":
		return d.loaded()
	}
	d.t.Fatalf("nothing is written down of the damage %q", damage)
	return nil, said{}
}

// loaded is the store that went on after a flipped byte, until a compaction met it.
// Nobody closed it: of the stores, kv is told by its mark or by a table that is
// younger than the .checkpoint, like x00.
func (d *damaged) loaded() (quick *said, deep said) {
	d.t.Helper()
	table, offset, when := "000011.sst", 60510, "2026-11-30T18:10:34Z"
	ends := []string{
		fmt.Sprintf("%s/kv unclean-end warning %s: ; a table was written after the .checkpoint", d.task, d.kv("")),
		fmt.Sprintf("%s/x00 unclean-end warning %s/rocksdb/x00: ; a table was written after the .checkpoint", d.task, d.task),
	}
	if d.offsetsCF {
		table, offset, when = "000013.sst", 64545, "2026-11-30T18:12:02Z"
		ends = []string{
			fmt.Sprintf("%s/kv offsets-status-open warning %s: ; status is open", d.task, d.kv("")),
			fmt.Sprintf("%s/x00 unclean-end warning %s/rocksdb/x00: ; there is data that is younger than the changelog offset", d.task, d.task),
		}
	}
	log, err := os.ReadFile(filepath.Join(d.dir, d.kv("LOG")))
	if err != nil {
		d.t.Fatal(err)
	}
	_, line, ok := strings.Cut(strings.TrimSuffix(string(log), "\n"), "Waiting after ")
	if !ok || strings.Contains(line, "\n") {
		d.t.Fatalf("LOG %q has not one line", log)
	}
	// The time of LOG is that of its machine, which had UTC.
	fs := append(ends, fmt.Sprintf("%s/kv log-error warning %s@0: ; 1 line of level ERROR, %s (corruption): Waiting after %s", d.task, d.kv("LOG"), when, line))
	before, after := d.of(1, "unclean", true, fs...), d.of(2, "damaged", true, append(fs,
		fmt.Sprintf("%s/kv sst-block-checksum damage %s@%d: %s", d.task, d.kv(table), offset, d.evidence))...)
	before.Verdicts[3], after.Verdicts[3] = d.task+"/x00=unclean", d.task+"/x00=unclean"
	return &before, after
}

// below are the bytes of the files in a folder of the task.
func (d *damaged) below(folder string) (n int64) {
	d.t.Helper()
	err := filepath.WalkDir(filepath.Join(d.dir, d.task, folder), func(_ string, e os.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			i, failed := e.Info()
			if failed != nil {
				return failed
			}
			n += i.Size()
		}
		return err
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return n
}

// TestDamagedFixtures: of every real directory with a damage, at both depths, and
// of those that they were made from, exactly what there is to say.
func TestDamagedFixtures(t *testing.T) {
	t.Parallel()
	n := 0
	for _, name := range fixture.Names() {
		damage, ok := strings.CutPrefix(name.Case, "corrupt-")
		if !ok {
			continue
		}
		n++
		for _, guarantee := range []string{"alos-", "eos-"} {
			damage = strings.TrimPrefix(damage, guarantee)
		}
		if strings.HasPrefix(damage, "base-") {
			damage = "base"
		}
		t.Run(name.String(), func(t *testing.T) {
			t.Parallel()
			d := unpackDamaged(t, name)
			quick, deep := d.want(damage)
			if quick == nil {
				quick = &deep
			}
			expect(t, *quick, d.dir)
			expect(t, deep, "--deep", d.dir)
			agree(t, "status", *quick, all(statusJSON(t, d.dir)))
		})
	}
	if n < 70 {
		t.Errorf("only %d fixtures", n)
	}
}

// TestClosedFixtures: of a real directory that was closed cleanly, in every version,
// at both depths: nothing at all.
func TestClosedFixtures(t *testing.T) {
	t.Parallel()
	stores := 0
	for _, name := range fixture.Names() {
		if !strings.HasPrefix(name.Case, "closed-") && name.Case != "wal-on-closed" {
			continue
		}
		dir := fixture.Unpack(t, name.Version, name.Case)
		want := said{}
		app := ""
		for path := range fixture.Inventory(t, name.Version)[name.Case].Stores {
			rel, err := filepath.Rel(fixture.Root(t, name.Version, name.Case), path)
			if err != nil {
				t.Fatal(err)
			}
			parts := strings.Split(rel, "/") // application, task, then rocksdb and the store, or the store and the segment
			app = parts[0]
			store := parts[2]
			if store == "rocksdb" {
				store = parts[3]
			}
			want.Verdicts = append(want.Verdicts, app+"=ok", app+"/"+parts[1]+"=ok", app+"/"+parts[1]+"/"+store+"=ok")
		}
		if name == (fixture.Name{Version: "2.8.2", Case: "closed-article-statedir"}) {
			// The start had failed: x00 was never made whole, and 0_1 not begun.
			want.Verdicts = append(want.Verdicts, "art282/0_1=empty")
			want.Findings = append(want.Findings, "art282/0_0/x00 options-unparsed info art282/0_0/rocksdb/x00: OPTIONS-NNNNNN; no such file")
			// It could not be, for x01 keeps its log where x00 was to keep its own.
			for _, store := range []string{"x00", "x01"} {
				want.Findings = append(want.Findings, "art282/0_0/"+store+" wal-dir-shared warning art282/0_0/rocksdb/"+store+": ; wal_dir=/var/lib/kafka-streams")
			}
			want.Code = 1
		}
		slices.Sort(want.Verdicts)
		want.Verdicts = slices.Compact(want.Verdicts)
		stores += len(want.Verdicts)
		expectBoth(t, want, dir)
		expectBoth(t, want, "--guarantee=exactly-once", dir)
		expectBoth(t, want, "--guarantee=at-least-once", dir)
	}
	if stores < 100 {
		t.Errorf("only %d verdicts", stores)
	}
}

// TestLeftFixtures: a directory that was left open, by a kill or because it was copied
// from a running application, is never damaged, and what is said of it is what
// can be told.
func TestLeftFixtures(t *testing.T) {
	t.Parallel()
	for _, name := range fixture.Names() {
		if strings.HasPrefix(name.Case, "corrupt-") || strings.HasPrefix(name.Case, "closed-") || name.Case == "wal-on-closed" {
			continue
		}
		t.Run(name.String(), func(t *testing.T) {
			t.Parallel()
			dir := fixture.Unpack(t, name.Version, name.Case)
			content := fixture.Inventory(t, name.Version)[name.Case]
			want := map[string]int{} // by code
			for _, s := range content.Stores {
				want["wal-not-empty info"] += len(s.WAL)
				switch {
				case name.Version < "4.3":
				case s.Status != nil && *s.Status == 1:
					want["offsets-status-open warning"]++
				default:
					want["unclean-end warning"]++
				}
			}
			for _, c := range content.Checkpoints {
				want["checkpoint-offset-unknown info"] += strings.Count(string(c), " -4\n")
			}
			// The three applications under exactly-once that had deleted it and had tables.
			if name.Version < "4.3" && strings.HasPrefix(name.Case, "killed9-eos") && name.Version != "3.9.1" {
				want["checkpoint-missing warning"] = map[string]int{"killed9-eos-load": 2}[name.Case]
				if name.Case == "killed9-eos-uncommitted-flushed" {
					want["checkpoint-missing warning"] = 1
				}
			}
			code, doc := verifyJSON(t, "--deep", dir)
			got := all(code, doc)
			counts := map[string]int{}
			for _, f := range got.Findings {
				words := strings.Fields(f)
				counts[words[1]+" "+words[2]]++
			}
			if name.Version < "4.3" {
				// The archives do not keep what tells most of those: that the
				// MANIFEST was still preallocated. What is left are the times.
				want["unclean-end warning"] = counts["unclean-end warning"]
				told := strings.HasPrefix(name.Case, "killed9-") && name.Version > "2.8.2" && want["checkpoint-missing warning"] == 0
				if told && counts["unclean-end warning"] == 0 {
					t.Error("a kill is not told by any store")
				}
			}
			for k, n := range want {
				if n == 0 {
					delete(want, k)
				}
			}
			if diff := cmp.Diff(want, counts); diff != "" {
				t.Errorf("findings by code (-want +got):\n%s", diff)
			}
			wantCode := 0
			for k := range want {
				if strings.HasSuffix(k, " warning") {
					wantCode = 1
				}
			}
			if code != wantCode {
				t.Errorf("exit code %d, want %d", code, wantCode)
			}
			for _, v := range got.Verdicts {
				if _, verdict, _ := strings.Cut(v, "="); verdict != "ok" && verdict != "unclean" {
					t.Errorf("verdict %s", v)
				}
			}
			expect(t, got, dir) // every byte is as RocksDB wrote it, so that the depths agree
			got.Code = 0
			for i := range got.Findings {
				got.Findings[i] = strings.NewReplacer(" unclean-end warning ", " unclean-end info ", " offsets-status-open warning ", " offsets-status-open info ").Replace(got.Findings[i])
			}
			if want["checkpoint-missing warning"] == 0 {
				expect(t, got, "--guarantee=at-least-once", dir)
			}
		})
	}
}
