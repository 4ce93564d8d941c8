package engine_test

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"streams-sidecar/internal/engine"
	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/rocksfile/sst"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
	"streams-sidecar/test/rockswriter"
)

// odd is a database that no Kafka Streams of stock leaves behind.
type odd struct {
	sessions []rockswriter.Recipe
	// is fails if the recipe has not had its effect, so that the case would be
	// the usual database again.
	is func(*testing.T, *store.Database)
	// notFit is what Fit says; where it is empty, RocksDB is asked and must
	// agree with our readers.
	notFit string
	// findings of our reader, each once.
	findings []finding.Code
	// hidden: our reader cannot decode the offsets, which RocksDB tells.
	hidden bool
	// leftOut is why RocksDB does not tell them either.
	leftOut string
}

const familyOffsets = "offsets"

var offset = []byte{0, 0, 0, 0, 0, 0, 0, 5}

// mixed are the steps that most cases share: every kind of entry, in several
// tables of two families, all flushed.
func mixed(more ...rockswriter.Step) []rockswriter.Step {
	return append([]rockswriter.Step{
		{Do: rockswriter.Put, Keys: 400, Size: 60},
		{Do: rockswriter.Put, Seed: 7, Keys: 100, Size: 60, Batch: 9},
		{Do: rockswriter.Delete, First: 10, Keys: 5},
		{Do: rockswriter.SingleDelete, First: 20, Keys: 5},
		{Do: rockswriter.Flush},
		{Do: rockswriter.Put, Family: familyOffsets, Key: []byte("app-kv-changelog-0"), Value: offset},
		{Do: rockswriter.Put, Family: familyOffsets, Key: []byte("status"), Value: make([]byte, 8)},
		{Do: rockswriter.Put, Family: familyOffsets, Key: []byte("position"), Size: 200},
		{Do: rockswriter.Flush, Family: familyOffsets},
		{Do: rockswriter.DeleteRange, First: 300, Keys: 50},
		{Do: rockswriter.Put, First: 100, Keys: 100, Size: 60},
		{Do: rockswriter.Flush},
	}, more...)
}

// unflushed are writes that only the WAL has.
var unflushed = rockswriter.Step{Do: rockswriter.Put, Keys: 30, Size: 60, Sync: true}

// session is one with the families default and offsets, and without
// compression unless options say otherwise.
func session(options string, steps ...rockswriter.Step) rockswriter.Recipe {
	return rockswriter.Recipe{Options: "compression=kNoCompression;" + options,
		Families: []rockswriter.Family{{Name: familyOffsets}}, Steps: steps}
}

// blocks is the option for the block-based tables.
func blocks(options string) string { return "block_based_table_factory={" + options + "};" }

func abandoned(options string, steps ...rockswriter.Step) []rockswriter.Recipe {
	r := session(options, steps...)
	r.Abandon = true
	return []rockswriter.Recipe{r}
}

func closed(options string, steps ...rockswriter.Step) []rockswriter.Recipe {
	return []rockswriter.Recipe{session(options, steps...)}
}

func odds() map[string]odd {
	all := map[string]odd{}
	formats(all)
	logs(all)
	families(all)
	values(all)
	return all
}

// formats of tables.
func formats(all map[string]odd) {
	for v := range uint32(8) {
		// The format 0 has no place for another checksum than crc32c.
		all[fmt.Sprintf("format %d", v)] = odd{
			sessions: closed(blocks(fmt.Sprintf("format_version=%d;checksum=kCRC32c;block_size=256", v)), mixed()...),
			is:       tables(func(x *sst.Table) bool { return x.FormatVersion() == v }),
		}
	}
	for name, c := range map[string]sst.ChecksumType{"kNoChecksum": sst.NoChecksum, "kCRC32c": sst.CRC32c,
		"kxxHash": sst.XXHash, "kxxHash64": sst.XXHash64, "kXXH3": sst.XXH3} {
		for _, v := range []int{5, 7} {
			all[fmt.Sprintf("checksum %s in format %d", c, v)] = odd{
				sessions: closed(blocks(fmt.Sprintf("format_version=%d;checksum=%s", v, name)), mixed()...),
				is:       tables(func(x *sst.Table) bool { return x.ChecksumType() == c }),
			}
		}
	}
	for _, name := range []string{"Snappy", "Zlib", "BZip2", "LZ4", "LZ4HC", "ZSTD"} {
		for _, v := range []int{2, 7} {
			option := "k" + name + "Compression"
			if name == "ZSTD" {
				option = "kZSTD"
			}
			all[fmt.Sprintf("compression %s in format %d", name, v)] = odd{
				sessions: closed(fmt.Sprintf("compression=%s;%s", option, blocks(fmt.Sprintf("format_version=%d;block_size=512", v))), mixed()...),
				is:       tables(func(x *sst.Table) bool { return x.Properties().Compression == name }),
			}
		}
	}
	all["compression with a dictionary"] = odd{
		sessions: closed("compression=kZSTD;compression_opts={max_dict_bytes=1000;zstd_max_train_bytes=10000}", mixed()...),
		is:       tables(func(x *sst.Table) bool { return x.Properties().Compression == "ZSTD" }),
	}
	const prefix = "prefix_extractor=fixed:3;"
	for name, index := range map[string]sst.IndexType{"kBinarySearch": sst.BinarySearch, "kHashSearch": sst.HashSearch,
		"kTwoLevelIndexSearch": sst.TwoLevel, "kBinarySearchWithFirstKey": sst.BinarySearchWithFirstKey} {
		for _, filter := range []string{"", "bloomfilter:10:false", "ribbonfilter:10"} {
			options := "index_type=" + name + ";block_size=256;metadata_block_size=128"
			policy, _, _ := strings.Cut(filter, ":")
			if filter != "" {
				options += ";filter_policy=" + filter
			}
			all[fmt.Sprintf("index %s, filter %q", index, policy)] = odd{
				sessions: closed(prefix+blocks(options), mixed()...),
				is: tables(func(x *sst.Table) bool {
					return x.Properties().IndexType == index && x.Properties().FilterPolicy == policy
				}),
			}
		}
	}
	all["partitioned index and filter"] = odd{
		sessions: closed(blocks("index_type=kTwoLevelIndexSearch;partition_filters=true;filter_policy=bloomfilter:10:false;block_size=64;metadata_block_size=64"), mixed()...),
		is: tables(func(x *sst.Table) bool {
			return x.Properties().IndexPartitions > 1 || x.Properties().ColumnFamily == familyOffsets
		}),
	}
	all["hash index in the data blocks"] = odd{
		sessions: closed(blocks("data_block_index_type=kDataBlockBinaryAndHash"), mixed()...),
		is:       withOption("data_block_index_type=kDataBlockBinaryAndHash"),
	}
	all["formats of several sessions"] = odd{
		sessions: []rockswriter.Recipe{
			session(blocks("format_version=0;checksum=kCRC32c")+"disable_auto_compactions=true", mixed()...),
			session(blocks("format_version=7;checksum=kxxHash")+"disable_auto_compactions=true", mixed()...),
		},
		is: func(t *testing.T, db *store.Database) {
			versions := map[uint32]bool{}
			eachTable(t, db, func(x *sst.Table) { versions[x.FormatVersion()] = true })
			if !versions[0] || !versions[7] {
				t.Errorf("formats %v", versions)
			}
		},
	}
	all["plain table"] = odd{
		sessions: closed("table_factory=PlainTable;prefix_extractor=fixed:3;allow_mmap_reads=true", rockswriter.Step{Do: rockswriter.Put, Keys: 10, Size: 10}, rockswriter.Step{Do: rockswriter.Flush}),
		notFit:   "format-newer",
		findings: []finding.Code{finding.FormatNewer},
	}
	all["thousands of tables"] = odd{
		sessions: closed("target_file_size_base=1;num_levels=2;info_log_level=ERROR_LEVEL;"+blocks("block_size=1"),
			rockswriter.Step{Do: rockswriter.Put, Keys: 6200, Size: 10, NoWAL: true, Batch: 100}, rockswriter.Step{Do: rockswriter.Flush},
			rockswriter.Step{Do: rockswriter.Put, Keys: 6200, Size: 10, NoWAL: true, Batch: 100}, rockswriter.Step{Do: rockswriter.Flush},
			rockswriter.Step{Do: rockswriter.Compact}),
		is: func(t *testing.T, db *store.Database) {
			if state, _, _ := db.Manifest(); len(state.Families[0].Files) < 3000 {
				t.Errorf("%d tables", len(state.Families[0].Files))
			}
		},
	}
}

// logs: kinds of WAL.
func logs(all map[string]odd) {
	hasWAL := func(t *testing.T, db *store.Database) {
		if db.Sizes.WAL == 0 {
			t.Error("no WAL with bytes")
		}
	}
	all["WAL that a close has left"] = odd{sessions: closed("", mixed(unflushed)...), is: hasWAL}
	all["WAL that a kill has left"] = odd{sessions: abandoned("", mixed(unflushed)...), is: hasWAL}
	all["WAL off"] = odd{
		sessions: closed("", rockswriter.Step{Do: rockswriter.Put, Keys: 20, Size: 10, NoWAL: true}, rockswriter.Step{Do: rockswriter.Flush}),
		is: func(t *testing.T, db *store.Database) {
			if db.Sizes.WAL > 0 {
				t.Errorf("%d bytes of WAL", db.Sizes.WAL)
			}
		},
	}
	all["several WALs"] = odd{
		sessions: abandoned("", mixed(
			rockswriter.Step{Do: rockswriter.Put, Family: familyOffsets, Keys: 10, Size: 8},
			unflushed, rockswriter.Step{Do: rockswriter.Flush}, unflushed)...),
		is: func(t *testing.T, db *store.Database) {
			if n := len(walTypes(t, db)); n < 2 {
				t.Errorf("%d WALs with bytes", n)
			}
		},
	}
	all["compressed WAL"] = odd{sessions: abandoned("wal_compression=kZSTD", mixed(unflushed)...), is: withRecord(9)}
	all["recycled WAL"] = odd{
		sessions: abandoned("recycle_log_file_num=2", slices.Concat(mixed(), mixed(), mixed(unflushed))...),
		is:       withRecord(5),
	}
	all["recycled and compressed WAL"] = odd{
		sessions: abandoned("recycle_log_file_num=2;wal_compression=kZSTD", slices.Concat(mixed(), mixed(), mixed(unflushed))...),
		is:       withRecord(9),
	}
	all["WAL that is flushed on demand"] = odd{
		sessions: abandoned("manual_wal_flush=true", mixed(rockswriter.Step{Do: rockswriter.Put, Keys: 20, Size: 10},
			rockswriter.Step{Do: rockswriter.FlushWAL}, rockswriter.Step{Do: rockswriter.Put, Keys: 20, Size: 10})...),
		is: withOption("manual_wal_flush=true"),
	}
	// RocksDB crashed on it until the engine had the option too.
	all["WALs that the MANIFEST tracks"] = odd{
		sessions: abandoned("track_and_verify_wals_in_manifest=true", mixed(
			rockswriter.Step{Do: rockswriter.Put, Family: familyOffsets, Keys: 10, Size: 8, Sync: true},
			unflushed, rockswriter.Step{Do: rockswriter.Flush}, unflushed)...),
		is: func(t *testing.T, db *store.Database) {
			if state, _, _ := db.Manifest(); len(state.WALs) == 0 {
				t.Error("it tracks none")
			}
		},
	}
	all["WALs that name the one before"] = odd{
		sessions: abandoned("track_and_verify_wals=true", mixed(unflushed, rockswriter.Step{Do: rockswriter.Flush}, unflushed)...),
		is:       withRecord(130),
	}
}

// families and the shape of the database.
func families(all map[string]odd) {
	all["empty"] = odd{sessions: []rockswriter.Recipe{{}}}
	all["empty families"] = odd{sessions: closed("")}
	all["family that was flushed later"] = odd{
		sessions: closed("", rockswriter.Step{Do: rockswriter.Put, Family: familyOffsets, Key: []byte("t-0"), Value: offset, NoWAL: true},
			rockswriter.Step{Do: rockswriter.Put, Keys: 100, Size: 10, NoWAL: true}, rockswriter.Step{Do: rockswriter.Flush},
			rockswriter.Step{Do: rockswriter.Put, First: 100, Keys: 100, Size: 10, NoWAL: true},
			rockswriter.Step{Do: rockswriter.Flush}, rockswriter.Step{Do: rockswriter.Flush, Family: familyOffsets}),
		is: func(t *testing.T, db *store.Database) {
			state, _, _ := db.Manifest()
			if a, b := state.Families[0].Files[0], state.Families[1].Files[0]; b.Number < a.Number || b.LargestSeq > a.LargestSeq {
				t.Errorf("%+v, %+v", a, b)
			}
		},
	}
	all["dropped family"] = odd{
		sessions: closed("", mixed(rockswriter.Step{Do: rockswriter.Drop, Family: familyOffsets},
			rockswriter.Step{Do: rockswriter.Put, Keys: 10, Size: 10}, rockswriter.Step{Do: rockswriter.Flush})...),
		is: func(t *testing.T, db *store.Database) {
			if state, _, _ := db.Manifest(); len(state.Families) != 1 || state.MaxFamily != 1 {
				t.Errorf("%d families", len(state.Families))
			}
		},
	}
	for _, style := range []string{"Level", "Universal", "FIFO"} {
		all["compaction style "+style] = odd{
			sessions: closed("compaction_style=kCompactionStyle"+style, mixed(rockswriter.Step{Do: rockswriter.Compact})...),
			is:       withOption("compaction_style=kCompactionStyle" + style),
		}
	}
	all["three levels"] = odd{
		sessions: closed("num_levels=3;level_compaction_dynamic_level_bytes=false", mixed(rockswriter.Step{Do: rockswriter.Compact})...),
		is: func(t *testing.T, db *store.Database) {
			if state, _, _ := db.Manifest(); state.Families[0].Files[0].Level == 0 {
				t.Error("nothing was compacted")
			}
		},
	}
	all["MANIFEST that was begun anew"] = odd{
		sessions: closed("max_manifest_file_size=100", slices.Concat(mixed(), mixed(), mixed(rockswriter.Step{Do: rockswriter.Compact}))...),
		is: func(t *testing.T, db *store.Database) {
			if db.ManifestNumber() <= 5 {
				t.Errorf("MANIFEST %d", db.ManifestNumber())
			}
		},
	}
	foreign := func(f rockswriter.Family) []rockswriter.Recipe {
		return []rockswriter.Recipe{{Options: "compression=kNoCompression", Families: []rockswriter.Family{f}, Steps: []rockswriter.Step{
			{Do: rockswriter.Put, Family: f.Name, Keys: 100, Size: 10}, {Do: rockswriter.Flush, Family: f.Name}}}}
	}
	const onlyTheApplication = ", which only the application has"
	all["foreign comparator"] = odd{
		sessions: foreign(rockswriter.Family{Name: "default", Comparator: "com.example.Order"}),
		notFit:   "family default is ordered by com.example.Order" + onlyTheApplication,
	}
	all["foreign comparator of the offsets"] = odd{
		sessions: foreign(rockswriter.Family{Name: familyOffsets, Comparator: "com.example.Order"}),
		notFit:   "family offsets is ordered by com.example.Order" + onlyTheApplication,
	}
	all["keys in reverse"] = odd{
		sessions: foreign(rockswriter.Family{Name: "other", Options: "comparator=rocksdb.ReverseBytewiseComparator"}),
		notFit:   "family other is ordered by rocksdb.ReverseBytewiseComparator" + onlyTheApplication,
	}
	all["user-defined timestamps"] = odd{
		sessions: []rockswriter.Recipe{{Families: []rockswriter.Family{{Name: "other", Options: "comparator=leveldb.BytewiseComparator.u64ts"}}}},
		notFit:   "family other is ordered by leveldb.BytewiseComparator.u64ts" + onlyTheApplication,
	}
}

// values that are not in the tables, or not whole there.
func values(all map[string]odd) {
	blobs := func(t *testing.T, db *store.Database) {
		state, _, _ := db.Manifest()
		if len(state.Families[0].Blobs) == 0 || !state.Families[0].Blobs[0].Live {
			t.Errorf("%+v", state.Families[0].Blobs)
		}
	}
	all["blob files"] = odd{
		sessions: closed("enable_blob_files=true;min_blob_size=30;blob_compression_type=kLZ4Compression", mixed()...),
		is:       blobs,
		findings: []finding.Code{finding.BlobFiles},
	}
	all["blob files with garbage"] = odd{
		sessions: closed("enable_blob_files=true;min_blob_size=30", mixed(rockswriter.Step{Do: rockswriter.Compact})...),
		is: func(t *testing.T, db *store.Database) {
			blobs(t, db)
			if state, _, _ := db.Manifest(); state.Families[0].Blobs[0].GarbageBytes == 0 {
				t.Error("no garbage")
			}
		},
		findings: []finding.Code{finding.BlobFiles},
	}
	all["offsets in blob files"] = odd{
		sessions: closed("enable_blob_files=true", mixed()...), is: blobs,
		findings: []finding.Code{finding.BlobFiles, finding.OffsetsNotDecoded}, hidden: true,
	}
	all["merge operands"] = odd{
		sessions: closed("merge_operator=stringappend", mixed(
			rockswriter.Step{Do: rockswriter.Merge, First: 50, Keys: 100, Size: 5}, rockswriter.Step{Do: rockswriter.Flush})...),
		is: func(t *testing.T, db *store.Database) {
			var operands uint64
			eachTable(t, db, func(x *sst.Table) { operands += x.Properties().MergeOperands })
			if operands != 100 {
				t.Errorf("%d operands", operands)
			}
		},
	}
	all["merge operands in a WAL"] = odd{
		sessions: abandoned("merge_operator=stringappend", mixed(rockswriter.Step{Do: rockswriter.Merge, First: 50, Keys: 100, Size: 5})...),
		is:       withOption("merge_operator={id=StringAppendOperator"),
	}
	all["merge operands among the offsets"] = odd{
		sessions: closed("merge_operator=stringappend", mixed(
			rockswriter.Step{Do: rockswriter.Merge, Family: familyOffsets, Key: []byte("app-kv-changelog-0"), Value: offset},
			rockswriter.Step{Do: rockswriter.Flush, Family: familyOffsets})...),
		findings: []finding.Code{finding.OffsetsNotDecoded}, leftOut: "merge_operator",
	}
	all["range deletion among the offsets"] = odd{
		sessions: closed("", mixed(
			rockswriter.Step{Do: rockswriter.DeleteRange, Family: familyOffsets, Keys: 10},
			rockswriter.Step{Do: rockswriter.Flush, Family: familyOffsets})...),
		findings: []finding.Code{finding.OffsetsNotDecoded}, hidden: true,
	}
	all["offsets that are something else"] = odd{
		sessions: closed("", rockswriter.Step{Do: rockswriter.Put, Family: familyOffsets, Keys: 10_001, Size: 20, NoWAL: true, Batch: 100},
			rockswriter.Step{Do: rockswriter.Flush, Family: familyOffsets}),
		leftOut: "not Kafka Streams'",
	}
}

// alone reads one database.
func alone(dir string) *store.Database {
	return store.Alone(volume.New(volume.OS()), dir).Databases[0]
}

// eachTable opens every table that is there with our reader.
func eachTable(t *testing.T, db *store.Database, f func(*sst.Table)) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(db.Path, "*.sst"))
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		i, err := file.Stat()
		if err != nil {
			t.Fatal(err)
		}
		x, err := sst.Open(file, i.Size())
		if err != nil {
			t.Fatal(err)
		}
		f(x)
		_ = file.Close()
	}
}

// tables gives a function that fails unless each table is such a one.
func tables(is func(*sst.Table) bool) func(*testing.T, *store.Database) {
	return func(t *testing.T, db *store.Database) {
		t.Helper()
		eachTable(t, db, func(x *sst.Table) {
			if !is(x) {
				t.Errorf("format %d, %s, %+v", x.FormatVersion(), x.ChecksumType(), x.Properties())
			}
		})
	}
}

// walTypes gives the type of the first record of each WAL that has bytes.
func walTypes(t *testing.T, db *store.Database) (types []byte) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(db.Path, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) > 6 {
			types = append(types, data[6])
		}
	}
	return types
}

// withRecord gives a function that fails unless a WAL begins with such a record.
func withRecord(kind byte) func(*testing.T, *store.Database) {
	return func(t *testing.T, db *store.Database) {
		t.Helper()
		if types := walTypes(t, db); !slices.Contains(types, kind) {
			t.Errorf("records %v, none of type %d", types, kind)
		}
	}
}

// withOption gives a function that fails unless RocksDB has written that into
// its OPTIONS file.
func withOption(text string) func(*testing.T, *store.Database) {
	return func(t *testing.T, db *store.Database) {
		t.Helper()
		names, err := filepath.Glob(filepath.Join(db.Path, "OPTIONS-*"))
		if err != nil || len(names) == 0 {
			t.Fatal(names, err)
		}
		data, err := os.ReadFile(names[0])
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(data), text) {
			t.Errorf("no %s in %s", text, data)
		}
	}
}

// TestOddDatabases: of databases of every kind that RocksDB writes, our readers
// say what RocksDB says, or it is not asked, for a reason; and none that RocksDB
// opens is called damaged.
func TestOddDatabases(t *testing.T) {
	t.Parallel()
	c := realEngine(t, engine.Options{})
	t.Run("all", func(t *testing.T) {
		for name, o := range odds() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				dir := filepath.Join(t.TempDir(), "db")
				for _, r := range o.sessions {
					rockswriter.Write(t, dir, r)
				}
				o.check(t, c, alone(dir))
			})
		}
	})
	if n := c.Restarts(); n != 0 {
		t.Errorf("%d restarts", n)
	}
	small(t, c)
}

func (o *odd) check(t *testing.T, c *engine.Client, db *store.Database) {
	t.Helper()
	if o.is != nil {
		o.is(t, db)
	}
	var codes []finding.Code
	for _, f := range db.Findings {
		codes = append(codes, f.Code)
	}
	slices.Sort(codes)
	if diff := cmp.Diff(o.findings, slices.Compact(codes)); diff != "" {
		t.Errorf("findings (-want +got):\n%s\n%+v", diff, db.Findings)
	}
	if why := engine.Fit(db); why != o.notFit {
		t.Errorf("fit: %q, want %q", why, o.notFit)
	}
	if o.notFit != "" {
		return
	}
	a, err := c.Ask(ctx, db, everything)
	if err != nil {
		t.Fatal(err)
	}
	if diff := engine.Compare(db, a, everything); len(diff) > 0 {
		t.Errorf("%+v", diff)
	}
	if now := alone(db.Path); now.Fingerprint() != db.Fingerprint() {
		t.Error("RocksDB has changed the directory")
	}
	if a.Error == "" {
		o.checkOffsets(t, db, a)
		checkBlobs(t, db, a)
	}
}

// checkOffsets: where our reader cannot decode them, nothing is made up, and
// RocksDB tells them.
func (o *odd) checkOffsets(t *testing.T, db *store.Database, a *engine.Answer) {
	t.Helper()
	if o.hidden || o.leftOut != "" && len(o.findings) > 0 {
		if db.OffsetsKnown() || len(db.OffsetEntries()) > 0 || db.Status() != "" {
			t.Errorf("our reader tells offsets: %v, %v, %q", db.OffsetsKnown(), db.OffsetEntries(), db.Status())
		}
	}
	if o.hidden && !slices.ContainsFunc(a.Offsets, func(p engine.KeyValue) bool {
		return string(p.Key) == "app-kv-changelog-0" && slices.Equal(p.Value, offset)
	}) {
		t.Errorf("RocksDB tells other offsets: %q", a.Offsets)
	}
	if (a.OffsetsLeftOut == "") != (o.leftOut == "") || !strings.Contains(a.OffsetsLeftOut, o.leftOut) {
		t.Errorf("left out: %q, want %q", a.OffsetsLeftOut, o.leftOut)
	}
}

// checkBlobs: the MANIFEST says to us what it says to RocksDB.
func checkBlobs(t *testing.T, db *store.Database, a *engine.Answer) {
	t.Helper()
	state, _, _ := db.Manifest()
	for i := range state.Families {
		var files, garbage uint64
		for _, b := range state.Families[i].Blobs {
			if b.Live {
				files++
				garbage += b.GarbageBytes
			}
		}
		p := a.Families[i].Properties
		if p["num-blob-files"] != files || p["live-blob-file-garbage-size"] != garbage {
			t.Errorf("%s: %d blob files with %d bytes of garbage, RocksDB: %v", state.Families[i].Name, files, garbage, p)
		}
	}
}

// TestDamageOfOddDatabases: what stock Kafka Streams has none of can be damaged
// too; docs/engine.md has the same in words.
func TestDamageOfOddDatabases(t *testing.T) {
	t.Parallel()
	c := realEngine(t, engine.Options{})
	flipAt := func(at int) func([]byte) []byte {
		return func(data []byte) []byte {
			data[at] ^= 1
			return data
		}
	}
	removeFirst := func(t *testing.T, dir, pattern string) {
		t.Helper()
		names, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(names) == 0 {
			t.Fatal(names, err)
		}
		if err := os.Remove(names[0]); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []struct {
		name     string
		sessions []rockswriter.Recipe
		harm     func(t *testing.T, dir string)
		notFit   bool
		says     string // by RocksDB; "" if it opens the database and says nothing
	}{
		{"flipped bit in a WAL", abandoned("", mixed(unflushed)...),
			func(t *testing.T, dir string) { edit(t, dir, "*.log", flipAt(20)) }, false, ""},
		{"WAL cut within a record", abandoned("", mixed(unflushed)...),
			func(t *testing.T, dir string) { edit(t, dir, "*.log", func(data []byte) []byte { return data[:20] }) }, false, ""},
		{"deleted WAL", abandoned("", mixed(unflushed)...),
			func(t *testing.T, dir string) { removeFirst(t, dir, "*.log") }, false, ""},
		{"deleted WAL that the MANIFEST tracks", odds()["WALs that the MANIFEST tracks"].sessions,
			func(t *testing.T, dir string) { removeFirst(t, dir, "*.log") }, false, "Missing WAL with log number"},
		// They may be in another directory, of which only the application knows.
		{"no WAL where the MANIFEST tracks some", odds()["WALs that the MANIFEST tracks"].sessions,
			func(t *testing.T, dir string) {
				for more, _ := filepath.Glob(filepath.Join(dir, "*.log")); len(more) > 0; more, _ = filepath.Glob(filepath.Join(dir, "*.log")) {
					removeFirst(t, dir, "*.log")
				}
			}, true, "Missing WAL with log number"},
		{"MANIFEST with zeros over a header", closed("", mixed()...),
			func(t *testing.T, dir string) {
				edit(t, dir, "MANIFEST-*", func(data []byte) []byte {
					last := 0
					for at := 0; at < len(data); at += 7 + int(binary.LittleEndian.Uint16(data[at+4:])) {
						last = at
					}
					clear(data[last : last+7])
					return data
				})
			}, true, ""},
		{"deleted blob file", odds()["blob files"].sessions,
			func(t *testing.T, dir string) { removeFirst(t, dir, "*.blob") }, true, ""},
		{"flipped bit in a block without a checksum", closed(blocks("checksum=kNoChecksum"), mixed()...),
			func(t *testing.T, dir string) { edit(t, dir, "*.sst", flipAt(50)) }, false, ""},
	} {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "db")
			for _, r := range d.sessions {
				rockswriter.Write(t, dir, r)
			}
			whole, err := c.Ask(ctx, alone(dir), everything)
			if err != nil {
				t.Fatal(err)
			}
			d.harm(t, dir)
			if why := engine.Fit(alone(dir)); (why != "") != d.notFit {
				t.Errorf("fit: %q", why)
			}
			a, err := engine.AskAnyway(ctx, c, dir, 0, everything)
			if err != nil {
				t.Fatal(err)
			}
			if d.says == "" && a.Error != "" || !strings.Contains(a.Error, d.says) {
				t.Errorf("RocksDB says %q, want %q", a.Error, d.says)
			}
			if strings.Contains(d.name, "WAL") && a.LastSequence >= whole.LastSequence {
				t.Errorf("sequence %d, before the damage %d", a.LastSequence, whole.LastSequence)
			}
		})
	}
}

// TestEncryptedDatabase: RocksDB's EncryptedEnv puts 4 KiB in front of each file
// and encrypts the rest with a counter (RocksDB env/env_encryption.cc). Without
// the key nothing can be told, least of all that it is damaged.
func TestEncryptedDatabase(t *testing.T) {
	t.Parallel()
	c := realEngine(t, engine.Options{})
	dir := filepath.Join(t.TempDir(), "db")
	rockswriter.Write(t, dir, session("", mixed(unflushed)...))
	encrypt(t, dir)
	db := alone(dir)
	for _, f := range db.Findings {
		if f.Code != finding.Encrypted && f.Code != finding.FileTooLarge && f.Code != finding.OptionsUnparsed {
			t.Errorf("finding %+v", f)
		}
	}
	_, err := c.Ask(ctx, db, everything)
	if e := asError(t, err); e.Kind != engine.NotFit {
		t.Error(err)
	}
	a, err := engine.AskAnyway(ctx, c, dir, 0, everything)
	if err != nil || a.Error == "" {
		t.Errorf("RocksDB without the key: %+v, %v", a, err)
	}
}

func encrypt(t *testing.T, dir string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	block, err := aes.NewCipher([]byte("sixteen byte key"))
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range files {
		if strings.HasPrefix(f.Name(), "LO") { // LOCK, and LOG, which is not encrypted
			continue
		}
		path := filepath.Join(dir, f.Name())
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		vector := binary.BigEndian.AppendUint64(make([]byte, 8, 16), uint64(i))
		data = append(make([]byte, 4096), data...)
		cipher.NewCTR(block, vector).XORKeyStream(data, data)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// asError gives the client's own error.
func asError(t *testing.T, err error) *engine.Error {
	t.Helper()
	e, ok := errors.AsType[*engine.Error](err)
	if !ok {
		t.Fatalf("%v", err)
	}
	return e
}
