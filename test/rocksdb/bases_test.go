package rocksdb_test

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"streams-sidecar/internal/rocksfile/manifest"
	"streams-sidecar/test/fixture"
	"streams-sidecar/test/rocksdb"
	"streams-sidecar/test/rockswriter"
)

// base is a sound database, and another one of the same shape with other keys.
type base struct {
	name string
	make func(t *testing.T, dir string, twin bool) (database string)

	once        sync.Once
	files, twin map[string][]byte // by name
	families    []string          // beside default
	answer      rocksdb.Answer
	judgement
}

// database is a directory's files by name, without those that RocksDB locks or
// logs in.
func database(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, e := range entries {
		if e.Name() == "LOCK" || strings.HasPrefix(e.Name(), "LOG") {
			continue
		}
		if files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// load makes both databases, and asks RocksDB and us about the first: nothing
// may be wrong with it.
func (b *base) load(t *testing.T) {
	t.Helper()
	b.once.Do(func() {
		dir := t.TempDir()
		b.files = database(t, b.make(t, filepath.Join(dir, "one"), false))
		b.twin = database(t, b.make(t, filepath.Join(dir, "two"), true))
		name := manifestOf(t, b.files)
		state, err := manifest.Load(strings.NewReader(string(b.files[name])), int64(len(b.files[name])))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, f := range state.Families {
			if f.ID != 0 {
				b.families = append(b.families, f.Name)
			}
		}
		copied := filepath.Join(dir, "copy")
		write(t, copied, b.files)
		b.judgement = judge(copied)
		b.answer = rocksdb.Ask(t, copied, b.families)
		if b.answer.End != "" || b.answer.OpenError != "" || trouble(b.answer) != "" {
			t.Fatalf("RocksDB does not take the unharmed database: %+v", b.answer)
		}
		if ranks[b.word] >= ranks["incompatible"] {
			t.Fatalf("the unharmed database is %s: %q", b.word, b.codes)
		}
		entries := 0
		for _, f := range b.answer.Families {
			entries += f.Entries
		}
		if entries == 0 {
			t.Fatal("the unharmed database has no entries, and nothing can be lost")
		}
	})
	if b.answer.Families == nil {
		t.FailNow() // the first one that wanted it has said why
	}
}

func write(t testing.TB, dir string, files map[string][]byte) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	// Tables first and the MANIFEST last, as they would be if somebody had changed it.
	for _, name := range slices.SortedFunc(maps.Keys(files), func(a, b string) int {
		return cmp.Or(strings.Compare(filepath.Ext(b), filepath.Ext(a)), strings.Compare(a, b))
	}) {
		if err := os.WriteFile(filepath.Join(dir, name), files[name], 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func manifestOf(t testing.TB, files map[string][]byte) string {
	t.Helper()
	name, _, err := manifest.ParseCurrent(files["CURRENT"])
	if err != nil || files[name] == nil {
		t.Fatalf("CURRENT %q: %v", files["CURRENT"], err)
	}
	return name
}

const (
	common  = "info_log_level=ERROR_LEVEL;disable_auto_compactions=true;write_buffer_size=1048576;"
	offsets = "offsets"
)

// flushes are tables of the same number of keys each, so that some have the
// same size; the twin has other keys.
func flushes(twin bool, family string, tables int) []rockswriter.Step {
	var steps []rockswriter.Step
	for i := range tables {
		first := 100 * i
		if twin {
			first += 10_000
		}
		steps = append(steps,
			rockswriter.Step{Do: rockswriter.Put, Family: family, First: first, Keys: 100, Size: 60, Batch: 50, NoWAL: true},
			rockswriter.Step{Do: rockswriter.Flush, Family: family})
	}
	return steps
}

// made is a database of three tables with these options.
func made(name, options string, more ...rockswriter.Step) *base {
	return sessions(name, func(twin bool) []rockswriter.Recipe {
		return []rockswriter.Recipe{{Options: common + options, Steps: append(flushes(twin, "", 3), more...)}}
	})
}

func sessions(name string, recipes func(twin bool) []rockswriter.Recipe) *base {
	return &base{name: name, make: func(t *testing.T, dir string, twin bool) string {
		t.Helper()
		for _, r := range recipes(twin) {
			rockswriter.Write(t, dir, r)
		}
		return dir
	}}
}

func table(options string) string {
	return "block_based_table_factory={block_size=1000;filter_policy=bloomfilter:10:false;" + options + "};"
}

// streams is what Kafka Streams from 4.3 on has: three families, flushed
// together, without a log; as many sessions, each with a commit and a close.
func streams(name string, n int) *base {
	return sessions(name, func(twin bool) []rockswriter.Recipe {
		out := make([]rockswriter.Recipe, n)
		for i := range out {
			first := 150 * i
			if twin {
				first += 10_000
			}
			offset := fmt.Appendf(nil, "%08d", first)
			out[i] = rockswriter.Recipe{
				Options:  common + "atomic_flush=true;" + table("format_version=6;checksum=kXXH3;block_size=4096"),
				Families: []rockswriter.Family{{Name: "keyValueWithTimestamp"}, {Name: offsets}},
				Steps: []rockswriter.Step{
					{Do: rockswriter.Put, Family: "keyValueWithTimestamp", First: first, Keys: 150, Size: 60, Batch: 50, NoWAL: true},
					{Do: rockswriter.Delete, Family: "keyValueWithTimestamp", First: first + 5, Keys: 3, NoWAL: true},
					{Do: rockswriter.Put, Family: offsets, Key: []byte("app-kv-changelog-0"), Value: offset, NoWAL: true},
					{Do: rockswriter.Put, Family: offsets, Key: []byte("status"), Value: make([]byte, 8), NoWAL: true},
					{Do: rockswriter.Flush, Family: "keyValueWithTimestamp"},
				},
			}
		}
		return out
	})
}

// busy has a MANIFEST of many edits: tables on two levels, deleted ones, keys
// that are in several tables.
func busy(name string, options string) *base {
	return sessions(name, func(twin bool) []rockswriter.Recipe {
		r := rockswriter.Recipe{Options: common + options}
		for range 3 {
			r.Steps = append(r.Steps, flushes(twin, "", 4)...)
			r.Steps = append(r.Steps, rockswriter.Step{Do: rockswriter.Compact})
		}
		r.Steps = append(r.Steps, rockswriter.Step{Do: rockswriter.Delete, First: 20, Keys: 10, NoWAL: true}, rockswriter.Step{Do: rockswriter.Flush})
		r.Steps = append(r.Steps, flushes(twin, "", 2)...)
		return []rockswriter.Recipe{r}
	})
}

// withoutIDs takes the unique IDs of the tables out of the MANIFEST: RocksDB
// before 7.3 wrote none.
func withoutIDs(b *base) *base {
	made := b.make
	b.make = func(t *testing.T, dir string, twin bool) string {
		t.Helper()
		dir = made(t, dir, twin)
		files := database(t, dir)
		g := generator{t: t}
		records, _ := g.records(files[manifestOf(t, files)])
		removed := 0
		for i, r := range records {
			// Field 12 of a table, 16 bytes (db/version_edit.h, kUniqueId).
			for at := bytes.Index(r, []byte{12, 16}); at >= 0; at = bytes.Index(r, []byte{12, 16}) {
				r = slices.Delete(r, at, at+2+16)
				removed++
			}
			records[i] = r
		}
		if removed == 0 {
			t.Fatal("no unique ID in the MANIFEST")
		}
		write(t, dir, map[string][]byte{manifestOf(t, files): manifestOfRecords(records)})
		return dir
	}
	return b
}

// stored is a store of a real Kafka Streams, and another of the same application.
func stored(version, archive, one, two string) *base {
	return &base{name: version + "-" + archive, make: func(t *testing.T, _ string, twin bool) string {
		t.Helper()
		pattern := one
		if twin {
			pattern = two
		}
		found, err := filepath.Glob(filepath.Join(fixture.Unpack(t, version, archive), "*", pattern))
		if err != nil || len(found) != 1 {
			t.Fatalf("%s: %q, %v", pattern, found, err)
		}
		return found[0]
	}}
}

var bases = []*base{
	made("format0", table("format_version=0;checksum=kCRC32c")),
	made("format1", table("format_version=1;checksum=kxxHash")),
	made("format2", table("format_version=2;checksum=kCRC32c")+"compression=kNoCompression;"),
	made("format3", table("format_version=3;checksum=kxxHash64")+"compression=kZlibCompression;"),
	made("format4", table("format_version=4;checksum=kXXH3")+"compression=kLZ4HCCompression;"),
	made("format5", table("format_version=5;checksum=kCRC32c")+"compression=kNoCompression;"),
	made("format6", table("format_version=6;checksum=kXXH3")+"compression=kNoCompression;"),
	made("format7", table("format_version=7;checksum=kXXH3")+"compression=kZSTD;"),
	made("format5-none", table("format_version=5;checksum=kNoChecksum")+"compression=kNoCompression;"),
	made("format6-none", table("format_version=6;checksum=kNoChecksum")+"compression=kLZ4Compression;"),
	made("partitions5", table("format_version=5;checksum=kxxHash64;index_type=kTwoLevelIndexSearch;partition_filters=true;metadata_block_size=100")+"compression=kLZ4Compression;"),
	made("partitions6", table("format_version=6;checksum=kxxHash;index_type=kTwoLevelIndexSearch;partition_filters=true;metadata_block_size=100")+"compression=kNoCompression;"),
	made("first-key", table("format_version=6;checksum=kCRC32c;index_type=kBinarySearchWithFirstKey")),
	made("hash-index", table("format_version=4;checksum=kCRC32c;index_type=kHashSearch")+"prefix_extractor=fixed:6;"),
	made("dictionary", table("format_version=6;checksum=kXXH3")+"compression=kZSTD;compression_opts={max_dict_bytes=2000;zstd_max_train_bytes=20000};"),
	made("bzip2", table("format_version=5;checksum=kCRC32c")+"compression=kBZip2Compression;"),
	made("range-deletions", table("format_version=5;checksum=kCRC32c"),
		rockswriter.Step{Do: rockswriter.DeleteRange, First: 50, Keys: 100, NoWAL: true}, rockswriter.Step{Do: rockswriter.Flush}),
	streams("streams1", 1),
	streams("streams3", 3),
	withoutIDs(sessions("without-ids", func(twin bool) []rockswriter.Recipe {
		return []rockswriter.Recipe{{
			Options: common + table("format_version=5;checksum=kCRC32c") + "compression=kNoCompression;",
			Steps:   flushes(twin, "", 8),
		}}
	})),
	busy("busy5", table("format_version=5;checksum=kCRC32c")),
	busy("busy6", table("format_version=6;checksum=kXXH3")+"compression=kNoCompression;"),
	stored("2.8.2", "corrupt-base-alos", "0_0/rocksdb/kv", "0_0/rocksdb/x00"),
	stored("3.9.1", "corrupt-base-alos", "0_0/rocksdb/kv", "0_0/rocksdb/x00"),
	stored("4.2.2", "corrupt-base-alos", "0_0/rocksdb/kv", "0_0/rocksdb/x00"),
	stored("4.3.1", "closed-clean", "1_0/rocksdb/kv", "1_1/rocksdb/kv"),
	stored("4.4.0", "corrupt-base-alos", "0_0/rocksdb/kv", "0_0/rocksdb/x00"),
	stored("3.9.1", "killed9-alos-load", "1_0/rocksdb/kv", "1_1/rocksdb/kv"),
	stored("4.4.0", "killed9-alos-load", "1_0/rocksdb/kv", "1_1/rocksdb/kv"),
}
