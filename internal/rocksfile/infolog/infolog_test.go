package infolog_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // zones do not depend on the machine

	"github.com/google/go-cmp/cmp"

	"streams-sidecar/internal/rocksfile/infolog"
	"streams-sidecar/test/fixture"
)

const (
	tailSize = 64 << 10
	layout   = "2006/01/02-15:04:05.000000"
)

// file is a LOG or a LOG.old.
type file struct {
	path     string
	data     []byte
	modified time.Time
}

// tail is what a caller would read of it.
func (f *file) tail() []byte { return f.data[max(0, len(f.data)-tailSize):] }

func logs(t testing.TB, version, name string) []file {
	t.Helper()
	var out []file
	root := fixture.Unpack(t, version, name)
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "LOG" && !strings.HasPrefix(d.Name(), "LOG.old.") {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(p)
		out = append(out, file{p, data, info.ModTime()})
		return err
	})
	if err != nil {
		t.Fatalf("%s/%s: %v", version, name, err)
	}
	return out
}

// Every fixture with a log that is not empty, against another way of reading:
// one expression. They were written in UTC.
func TestEveryLog(t *testing.T) {
	t.Parallel()
	raised := []string{"closed-infolog", "live-infolog", "corrupt-sst-flip-then-loaded", "wal-on-live-rotating", "wal-on-killed9-rotating"}
	level := regexp.MustCompile(`(?m)^\d{4}/\d\d/\d\d-\d\d:\d\d:\d\d\.\d{6} [0-9a-f]+ \[(WARN|ERROR|FATAL)\] `)
	found := map[string]int{}
	for _, n := range fixture.Names() {
		if n.Version != "2.8.2" && !slices.Contains(raised, n.Case) {
			continue
		}
		for _, f := range logs(t, n.Version, n.Case) {
			got := infolog.Parse(f.tail(), f.modified)
			want := map[string]int{}
			for _, m := range level.FindAllSubmatch(f.tail(), -1) {
				want[string(m[1])]++
				found[n.Version+" "+string(m[1])]++
			}
			if len(got.Errors) != want["ERROR"]+want["FATAL"] || len(got.Warnings) != want["WARN"] ||
				got.MoreErrors+got.MoreWarnings > 0 {
				t.Errorf("%s: %d errors, %d warnings; want %v", f.path, len(got.Errors), len(got.Warnings), want)
			}
			if len(f.data) <= tailSize && got.Skipped > 0 {
				t.Errorf("%s: skipped %d bytes of a whole log", f.path, got.Skipped)
			}
			for _, l := range append(got.Errors, got.Warnings...) {
				if l.Time.Format(layout) != l.Stamp || l.Source == "" || l.Text == "" ||
					!strings.HasPrefix(string(f.tail()[l.Offset:]), l.Stamp) {
					t.Errorf("%s: %+v", f.path, l)
				}
			}
		}
	}
	// RocksDB 5.18 wrote its statistics at WARN.
	if found["2.8.2 WARN"] < 50 || found["3.9.1 ERROR"] == 0 || found["4.4.0 ERROR"] == 0 || found["2.8.2 ERROR"] > 0 {
		t.Errorf("lines by version and level: %v", found)
	}
}

func TestFailedCompaction(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]infolog.Line{
		"3.9.1": {
			Time:   time.Date(2026, 11, 30, 18, 10, 34, 368008000, time.UTC),
			Stamp:  "2026/11/30-18:10:34.368008",
			Source: "/db_impl/db_impl_compaction_flush.cc:2989",
			Text: "Waiting after background compaction error: Corruption: block checksum mismatch: stored = 3472927012, computed = 391158775, " +
				"type = 1  in /var/lib/kafka-streams/c2391/c2391/0_0/rocksdb/kv/000011.sst offset 60510 size 4030, Accumulated background error counts: 1",
		},
		"4.4.0": {
			Time:   time.Date(2026, 11, 30, 18, 12, 2, 84856000, time.UTC),
			Stamp:  "2026/11/30-18:12:02.084856",
			Source: "/db_impl/db_impl_compaction_flush.cc:3449",
			Text: "Waiting after background compaction error: Corruption: block checksum mismatch: stored(context removed) = 2234011669, computed = 2128532345, " +
				"type = 4  in /var/lib/kafka-streams/c2440/c2440/0_0/rocksdb/kv/000013.sst offset 64545 size 4029, Accumulated background error counts: 1",
		},
	} {
		want.Level, want.Kind = infolog.Error, infolog.Corruption
		var got []infolog.Line
		for _, f := range logs(t, version, "corrupt-sst-flip-then-loaded") {
			got = append(got, infolog.Parse(f.tail(), f.modified).Errors...)
		}
		if diff := cmp.Diff([]infolog.Line{want}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", version, diff)
		}
	}
}

// RocksDB 10.10.1 wrote it on a tmpfs of 3 MB, at level WARN, and the file was
// modified 7 ms before its last line's stamp: the kernel's clock for files ticks.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	data := testdata(t, "disk-full.txt")
	got := infolog.Parse(data, time.UnixMicro(1796104088138871))
	var lines []string
	for _, l := range append(got.Warnings, got.Errors...) {
		text, _, _ := strings.Cut(l.Text, ":")
		lines = append(lines, fmt.Sprintf("%v %s (%v) %s: %s", l.Level, l.Time.Format("05.000000"), l.Kind, l.Source, text))
	}
	want := []string{
		"WARN 08.113396 (other) /column_family.cc:1046: [default] Stopping writes because we have 2 immutable memtables (waiting for flush), max_write_buffer_number is set to 2",
		"WARN 08.124755 (other) /column_family.cc:1046: [default] Stopping writes because we have 2 immutable memtables (waiting for flush), max_write_buffer_number is set to 2",
		"WARN 08.145086 (no space) /error_handler.cc:398: Background IO error IO error",
		"ERROR 08.145202 (no space) /db_impl/db_impl_compaction_flush.cc:3453: [JOB 14] Waiting after background flush error",
		"ERROR 08.145252 (no space) le/sst_file_manager_impl.cc:285: free space [0 bytes] is less than required disk buffer [262144 bytes]",
		"ERROR 08.145259 (no space) le/sst_file_manager_impl.cc:290: Cannot clear hard error",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A log cut at any byte gives the lines that begin after the cut, or before
// it, and never half a line.
func TestCutAnywhere(t *testing.T) {
	t.Parallel()
	data := testdata(t, "disk-full.txt")
	whole := infolog.Parse(data, time.Time{})
	lines := append(whole.Warnings, whole.Errors...)
	for cut := range data {
		var want []infolog.Line
		for _, l := range lines {
			if l.Offset >= cut {
				l.Offset -= cut
				want = append(want, l)
			}
		}
		got := infolog.Parse(data[cut:], time.Time{})
		if diff := cmp.Diff(want, append(got.Warnings, got.Errors...)); diff != "" {
			t.Fatalf("from %d (-want +got):\n%s", cut, diff)
		}
		if next := len(data) - cut; len(want) == 0 && got.Skipped != next || len(want) > 0 && got.Skipped != want[0].Offset {
			t.Fatalf("from %d: skipped %d", cut, got.Skipped)
		}

		got = infolog.Parse(data[:cut], time.Time{})
		for i, l := range append(got.Warnings, got.Errors...) {
			end := l.Offset + strings.IndexByte(string(data[l.Offset:]), '\n')
			if l.Cut != (cut <= end) || l.Stamp != lines[i].Stamp || !l.Cut && l.Text != lines[i].Text ||
				l.Cut && !strings.HasSuffix(strings.TrimRight(string(data[l.Offset:cut]), " "), l.Text) {
				t.Fatalf("up to %d: %+v", cut, l)
			}
		}
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	const a, b = "2026/11/30-18:10:34.000001 7f4e910ff6c0 ", "2026/11/30-18:10:35.000002 139950569813696 "
	type lines []string // level, source, text
	for _, tc := range []struct {
		name, log string
		want      lines
		skipped   int
	}{
		{"empty", "", nil, 0},
		{"no log", "a\nb\r\n\xff\n", nil, 7},
		{"a level without a place", a + "[ERROR] Error when reading x\n", lines{"ERROR||Error when reading x"}, 0},
		{"fatal", a + "[FATAL] [/c.cc:1] x\n", lines{"FATAL|/c.cc:1|x"}, 0},
		{"no text", a + "[ERROR] [/c.cc:1] \n" + a + "[ERROR] \n" + a + "\n", lines{"ERROR|/c.cc:1|", "ERROR||"}, 0},
		{"a place that ends the line", a + "[ERROR] [/c.h:1]\n", lines{"ERROR|/c.h:1|"}, 0},
		{"no place", a + "[ERROR] [c:1] x\n" + a + "[ERROR] [/c.cc:1a] x\n" + a + "[ERROR] [/c.cc:1]x\n" + a + "[ERROR] [/c.cc:1\n" +
			a + "[ERROR] [" + strings.Repeat("c", 300) + ".cc:1] x\n",
			lines{"ERROR||[c:1] x", "ERROR||[/c.cc:1a] x", "ERROR||[/c.cc:1]x", "ERROR||[/c.cc:1", "ERROR||[" + strings.Repeat("c", 300) + ".cc:1] x"}, 0},
		{"a column family called ERROR", a + "[/c.cc:1] [ERROR] [JOB 1] x\n" + a + "[WARN] [/c.cc:1] [ERROR] x\n", lines{"WARN|/c.cc:1|[ERROR] x"}, 0},
		{"other levels", a + "[DEBUG] [/c.cc:1] x\n" + a + "[INFO] x\n" + a + "[NOTICE] x\n" + a + "[ERROR]x\n", nil, 0},
		{"several lines", a + "[ERROR] x {\n\n  y\n}\n\n" + b + "z\nof z\n", lines{"ERROR||x {\n\n  y\n}"}, 0},
		{"rest of an earlier line", "est\nrest\n" + a + "[ERROR] x\n", lines{"ERROR||x"}, 9},
		{"CRLF", a + "[ERROR] x\r\n" + b + "[WARN] y\r\n", lines{"WARN||y", "ERROR||x"}, 0},
		{"no line end", a + "[ERROR] x", lines{"ERROR||x|cut"}, 0},
		{"the next line is cut in its stamp", a + "[ERROR] x\n2026/11/3", lines{"ERROR||x"}, 0},
		{"the next line is cut in its thread", a + "[ERROR] x\n" + b[:30], lines{"ERROR||x"}, 0},
		{"a further line is cut after a time", a + "[ERROR] x\n" + b[:30] + "x", lines{"ERROR||x\n" + b[:30] + "x|cut"}, 0},
		{"too long and of no language", a + "[ERROR] " + strings.Repeat("\x80", infolog.MaxText+1) + "\n",
			lines{"ERROR||" + strings.Repeat("\x80", infolog.MaxText) + "|cut"}, 0},
		{"a further line is cut", a + "[ERROR] x\n2026 y", lines{"ERROR||x\n2026 y|cut"}, 0},
		{"NUL bytes in a line", a + "[ERROR] x\x00\x00\x00" + b + "[ERROR] y\n", lines{"ERROR||x|cut", "ERROR||y"}, 0},
		{"NUL bytes between lines", a + "[ERROR] x\n\x00\x00\n\x00not x\n" + b + "[ERROR] y\n\x00", lines{"ERROR||x", "ERROR||y"}, 0},
		{"NUL bytes at the beginning", "\x00\x00" + a + "[ERROR] x\n", lines{"ERROR||x"}, 2},
		{"no time", "2026/13/30-18:10:34.000001 1 [ERROR] x\n2026/02/29-18:10:34.000001 1 [ERROR] x\n2026/02/00-18:10:34.000001 1 [ERROR] x\n" +
			"2026/02/01-24:10:34.000001 1 [ERROR] x\n2026/02/01-18:60:34.000001 1 [ERROR] x\n2026/02/01-18:10:61.000001 1 [ERROR] x\n" +
			"2026/02/01 18:10:34.000001 1 [ERROR] x\n2026/02/01-18:10:34.000001 g [ERROR] x\n2026/02/01-18:10:34.000001  [ERROR] x\n", nil, 350},
		{"no thread", "2026/02/01-18:10:34.000001 123456789012345678901 [ERROR] x\n2026/02/01-18:10:34.000001 1\n", nil, 88},
		{"a leap second", "2016/12/31-23:59:60.000001 1 [ERROR] x\n", lines{"ERROR||x"}, 0},
		{"too long", a + "[ERROR] " + strings.Repeat("x", infolog.MaxText) + "\n" + a + "[ERROR] y" + strings.Repeat("ü", infolog.MaxText) + "\n",
			lines{"ERROR||" + strings.Repeat("x", infolog.MaxText), "ERROR||y" + strings.Repeat("ü", infolog.MaxText/2-1) + "|cut"}, 0},
	} {
		tail := infolog.Parse([]byte(tc.log), time.Time{})
		var got lines
		for _, l := range append(tail.Warnings, tail.Errors...) {
			s := fmt.Sprintf("%v|%s|%s", l.Level, l.Source, l.Text)
			if l.Cut {
				s += "|cut"
			}
			got = append(got, s)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
		if want := tc.skipped; tail.Skipped != want {
			t.Errorf("%s: skipped %d, want %d", tc.name, tail.Skipped, want)
		}
	}
}

func TestNewestLinesAreKept(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	for i := range 1037 {
		fmt.Fprintf(&log, "2026/11/30-18:10:34.%06d 1 [ERROR] [/c.cc:1] e%d\n", i, i)
		if i < 101 {
			fmt.Fprintf(&log, "2026/11/30-18:10:34.%06d 1 [WARN] [/c.cc:1] w%d\n", i, i)
		}
	}
	got := infolog.Parse([]byte(log.String()), time.Time{})
	if got.MoreErrors != 937 || got.MoreWarnings != 1 {
		t.Errorf("%d more errors and %d more warnings", got.MoreErrors, got.MoreWarnings)
	}
	for name, lines := range map[string][]infolog.Line{"e": got.Errors, "w": got.Warnings} {
		first := map[string]int{"e": 937, "w": 1}[name]
		if len(lines) != infolog.MaxLines {
			t.Fatalf("%d lines", len(lines))
		}
		for i, l := range lines {
			if l.Text != fmt.Sprint(name, first+i) {
				t.Fatalf("line %d is %q", i, l.Text)
			}
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for k := infolog.Other; k <= infolog.ManifestWrite; k++ {
		seen[k.String()] = true
	}
	if len(seen) != int(infolog.ManifestWrite)+1 || seen[""] || infolog.Kind(99).String() != "kind 99" || infolog.Level(99).String() != "level 99" {
		t.Errorf("%v, %v, %v", seen, infolog.Kind(99), infolog.Level(99))
	}
}

func testdata(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}
