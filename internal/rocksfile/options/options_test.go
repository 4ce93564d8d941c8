package options_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"streams-sidecar/internal/rocksfile/options"
	"streams-sidecar/test/fixture"
)

// files gives every OPTIONS file of a fixture by its path in the archive.
func files(t testing.TB, version, name string) map[string][]byte {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "..", "testdata", "fixtures", version, name+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // it was only read
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err == nil && strings.HasPrefix(path.Base(h.Name), "OPTIONS-") {
			found[h.Name], err = io.ReadAll(r)
		}
		if err != nil {
			t.Fatalf("%s/%s: %v", version, name, err)
		}
	}
}

func TestOptionsOfEveryFixture(t *testing.T) {
	t.Parallel()
	rocksDB := map[string]string{"2.8.2": "5.18.4", "3.9.1": "7.9.2", "4.2.2": "10.1.3", "4.3.1": "10.1.3", "4.4.0": "10.1.3"}
	format := map[string]string{"2.8.2": "0", "3.9.1": "5", "4.2.2": "6", "4.3.1": "6", "4.4.0": "6"}
	for streams, want := range rocksDB {
		inventory := fixture.Inventory(t, streams)
		for _, name := range []string{"closed-clean", "closed-eos", "live-eos", "killed9-alos-load", "corrupt-base-alos"} {
			t.Run(streams+"/"+name, func(t *testing.T) {
				t.Parallel()
				newest := map[string]string{} // by store
				all := files(t, streams, name)
				for file, data := range all {
					o := options.Parse(data)
					if o.RocksDBVersion != want || o.FileVersion != "1.1" || len(o.Unparsed) > 0 || o.Dropped > 0 {
						t.Errorf("%s: version %q, file version %q, unparsed %v", file, o.RocksDBVersion, o.FileVersion, o.Unparsed)
					}
					if got, want := settings(o), strings.Count(string(data), "=")-nested(data); got != want {
						t.Errorf("%s: %d settings of %d", file, got, want)
					}
					// From RocksDB 6 on it is not written if it is the database's own directory.
					if got, ok := o.DB["wal_dir"]; ok != (streams == "2.8.2") || path.Base(got) != path.Base(path.Dir(file)) && ok {
						t.Errorf("%s: wal_dir %q, %v", file, got, ok)
					}
					if got := o.DB["info_log_level"]; got != "ERROR_LEVEL" {
						t.Errorf("%s: info_log_level %q", file, got)
					}
					for _, f := range o.Families {
						if f.TableFactory != "BlockBasedTable" || f.Options["compression"] != "kNoCompression" ||
							f.Options["table_factory"] != "BlockBasedTable" && streams == "2.8.2" {
							t.Errorf("%s: %+v", file, f)
						}
						if f.Table["format_version"] != format[streams] {
							t.Errorf("%s: format_version %q of %s", file, f.Table["format_version"], f.Name)
						}
					}
					if dir := path.Dir(file); newest[dir] < file {
						newest[dir] = file
					}
				}
				for store, s := range inventory[name].Stores {
					o := options.Parse(all[newest[store]])
					var got, want []string
					for _, f := range o.Families {
						got = append(got, f.Name)
						if _, ok := o.Family(f.Name); !ok {
							t.Errorf("%s: no family %q", store, f.Name)
						}
					}
					for f := range s.Families {
						want = append(want, f)
					}
					slices.Sort(got)
					slices.Sort(want)
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("%s: families (-RocksDB, +options):\n%s", store, diff)
					}
				}
			})
		}
	}
}

func settings(o *options.Options) int {
	n := 2 + len(o.DB) // rocksdb_version, options_file_version
	for _, f := range o.Families {
		n += len(f.Options) + len(f.Table)
	}
	return n
}

// nested counts the equals signs inside of values.
func nested(data []byte) int {
	n := 0
	for line := range strings.Lines(string(data)) {
		if !strings.HasPrefix(line, "#") {
			n += max(0, strings.Count(line, "=")-1)
		}
	}
	return n
}

func TestEscapes(t *testing.T) {
	t.Parallel()
	data := escapes(t)
	o := options.Parse(data)
	if len(o.Unparsed) > 0 || o.RocksDBVersion != "10.10.1" {
		t.Errorf("version %q, unparsed %v", o.RocksDBVersion, o.Unparsed)
	}
	if got := o.DB["db_log_dir"]; got != "/data/l#og:a" {
		t.Errorf("db_log_dir %q", got)
	}
	want := []string{"default", `q"uote`, `hash#colon:back\slash`, "line\nbreak\rreturn", " space ", "[x]", "a=b"}
	for _, name := range want {
		f, ok := o.Family(name)
		if !ok || f.Options["merge_operator"] == "" {
			t.Errorf("no family %q", name)
			continue
		}
		if factory := map[bool]string{false: "BlockBasedTable", true: "PlainTable"}[name == "a=b"]; f.TableFactory != factory || len(f.Table) == 0 {
			t.Errorf("%q: table factory %q, %d settings", name, f.TableFactory, len(f.Table))
		}
	}
	version, families := options.Summary(data)
	if diff := cmp.Diff(want, families); version != "10.10.1" || diff != "" {
		t.Errorf("Summary: %q, families (-want, +got):\n%s", version, diff)
	}
	if f, ok := o.Family("q"); ok {
		t.Errorf("a family that does not exist: %+v", f)
	}
}

func escapes(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "made", "OPTIONS-escapes"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestLenience(t *testing.T) {
	t.Parallel()
	type line = options.Line
	for _, c := range []struct {
		name, text string
		want       options.Options
	}{
		{"empty", "", options.Options{}},
		{"only comments", "# a\n\n  # b\n", options.Options{}},
		{
			"names that no RocksDB knows",
			"[Version]\nrocksdb_version=99.1.0\n[DBOptions]\n  no_such_option={a=1;b={c=2;};}\n[CFOptions \"default\"]\nx=\n",
			options.Options{
				RocksDBVersion: "99.1.0",
				DB:             map[string]string{"no_such_option": "{a=1;b={c=2;};}"},
				Families:       []options.Family{{Name: "default", Options: map[string]string{"x": ""}}},
			},
		},
		{
			"comments, spaces, carriage returns and no last line feed",
			"  [DBOptions]  # the database\r\n\ta = 1 # one\r\nb=c\\#d#e\r\n e = f = g ",
			options.Options{DB: map[string]string{"a": "1", "b": "c#d", "e": "f = g"}},
		},
		{
			"the first value of a name counts, in sections that come twice too",
			"[DBOptions]\na=1\na=2\n[CFOptions \"x\"]\nb=1\n[DBOptions]\na=3\nc=4\n[CFOptions \"x\"]\nb=2\nd=5\n",
			options.Options{
				DB:       map[string]string{"a": "1", "c": "4"},
				Families: []options.Family{{Name: "x", Options: map[string]string{"b": "1", "d": "5"}}},
			},
		},
		{
			"lines that belong nowhere",
			"early=1\n[DBOptions]\nno equals sign\n=value\n[Unknown \"x\"]\na=1\n[DBOptions\n[TableOptions/BlockBasedTable \"ghost\"]\nb=2\n[TableOptions/ \"y\"]\n[Version]\nother=3\n",
			options.Options{
				DB: map[string]string{},
				Unparsed: []line{
					{1, 0, "early=1"},
					{3, 20, "no equals sign"},
					{4, 35, "=value"},
					{5, 42, `[Unknown "x"]`},
					{6, 56, "a=1"},
					{7, 60, "[DBOptions"},
					{8, 71, `[TableOptions/BlockBasedTable "ghost"]`},
					{9, 110, "b=2"},
					{10, 114, `[TableOptions/ "y"]`},
					{12, 144, "other=3"},
				},
			},
		},
		{
			"table",
			"[CFOptions \"default\"]\n[TableOptions/PlainTable \"default\"]\nbloom=10\n[TableOptions/Other \"default\"]\nbloom=11\n",
			options.Options{Families: []options.Family{{
				Name: "default", Options: map[string]string{}, Table: map[string]string{"bloom": "10"}, TableFactory: "PlainTable",
			}}},
		},
		{
			"cut inside of a line",
			"[DBOptions]\nwal_dir=/a\\",
			options.Options{DB: map[string]string{"wal_dir": "/a"}},
		},
		{
			"zeros",
			"[DBOptions]\nx=1\n\x00\x00\x00",
			options.Options{DB: map[string]string{"x": "1"}, Unparsed: []line{{3, 16, "\x00\x00\x00"}}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, *options.Parse([]byte(c.text))); diff != "" {
				t.Errorf("(-want, +got):\n%s", diff)
			}
		})
	}
}

func TestSummaryAgreesWithParse(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"closed-clean", "live-eos"} {
		for _, streams := range []string{"2.8.2", "3.9.1", "4.4.0"} {
			for file, data := range files(t, streams, name) {
				if err := compare(data); err != nil {
					t.Errorf("%s: %v", file, err)
				}
			}
		}
	}
}

func TestHostileFiles(t *testing.T) {
	t.Parallel()
	for name, text := range hostile(1 << 16) {
		if err := compare([]byte(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// compare holds Summary and Parse against each other, and both against what
// they promise.
func compare(data []byte) error {
	o := options.Parse(data)
	if dir, want := options.WALDir(data), o.DB["wal_dir"]; dir != want && len(o.DB) < 1000 { // Parse has a bound
		return fmt.Errorf("WALDir %q, Parse %q", dir, want)
	}
	version, names := options.Summary(data)
	if version != o.RocksDBVersion {
		return fmt.Errorf("Summary has version %q, Parse %q", version, o.RocksDBVersion)
	}
	seen := map[string]bool{}
	var once []string
	for _, n := range names {
		if !seen[n] {
			seen[n] = true
			once = append(once, n)
		}
	}
	var parsed []string
	for _, f := range o.Families {
		parsed = append(parsed, f.Name)
	}
	if len(once) > len(parsed) && len(parsed) == 4096 {
		once = once[:4096]
	}
	if !slices.Equal(once, parsed) {
		return fmt.Errorf("Summary has families %q, Parse %q", once, parsed)
	}
	last := 0
	for _, l := range o.Unparsed {
		if l.Number <= last || l.Offset < 0 || l.Offset >= int64(len(data)) || l.Text == "" || len(l.Text) > 200 {
			return fmt.Errorf("line %+v after %d", l, last)
		}
		last = l.Number
	}
	if o.Dropped > 0 && len(o.Unparsed) != 100 {
		return fmt.Errorf("%d lines dropped, %d kept", o.Dropped, len(o.Unparsed))
	}
	return nil
}

func hostile(size int) map[string]string {
	distinct := func(head, format string) string {
		var b strings.Builder
		b.WriteString(head)
		for i := 0; b.Len() < size; i++ {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	return map[string]string{
		"many settings":              distinct("[DBOptions]\n", "%x=\n"),
		"many families":              distinct("", "[CFOptions \"%x\"]\na=\n"),
		"one family again and again": distinct("", "[CFOptions \"x\"]\n%x=\n"),
		"many lines of nothing":      strings.Repeat("x\n", size/2),
		"many sections of nothing":   strings.Repeat("[]\n", size/3),
		"one long line":              "[DBOptions]\nx=" + strings.Repeat("\\", size),
		"escaped comments":           "[DBOptions]\nx=" + strings.Repeat("\\#", size/2),
		"long escaped values":        distinct("[DBOptions]\n", "%x="+strings.Repeat(`\n`, 1000)+"\n"),
		"comments":                   strings.Repeat("#\n", size/2),
	}
}

func TestMemoryIsBounded(t *testing.T) {
	const size = 1 << 20
	for name, text := range hostile(size) {
		data := []byte(text)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		o := options.Parse(data)
		runtime.GC()
		runtime.ReadMemStats(&after)
		if held := int64(after.HeapAlloc) - int64(before.HeapAlloc); held > 8*size {
			t.Errorf("%s: %d bytes held for %d", name, held, len(data))
		}
		runtime.KeepAlive(o)
		runtime.ReadMemStats(&before)
		options.Summary(data)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 6*size {
			t.Errorf("%s: Summary allocates %d bytes for %d", name, used, len(data))
		}
	}
}

func FuzzOptions(f *testing.F) {
	f.Add(escapes(f))
	for _, data := range files(f, "4.4.0", "live-quiet") {
		f.Add(data)
		break
	}
	for _, text := range hostile(2000) {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := compare(data); err != nil {
			t.Error(err)
		}
	})
}

// newest gives an OPTIONS file of a store with three column families.
func newest(b *testing.B) []byte {
	for _, data := range files(b, "4.4.0", "corrupt-base-alos") {
		if _, families := options.Summary(data); len(families) == 3 {
			return data
		}
	}
	b.Fatal("no such file")
	return nil
}

func BenchmarkOptionsSummary(b *testing.B) {
	data := newest(b)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		options.Summary(data)
	}
}

func BenchmarkParse(b *testing.B) {
	data := newest(b)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		options.Parse(data)
	}
}
