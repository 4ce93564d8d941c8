package sst_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"streams-sidecar/internal/rocksfile/sst"
	"streams-sidecar/test/rockswriter"
)

// The options of RocksDB by the name that we have for what they give.
var (
	codecs = map[string]string{"NoCompression": "kNoCompression", "Snappy": "kSnappyCompression", "Zlib": "kZlibCompression",
		"BZip2": "kBZip2Compression", "LZ4": "kLZ4Compression", "LZ4HC": "kLZ4HCCompression", "ZSTD": "kZSTD"}
	checksums = map[sst.ChecksumType]string{sst.NoChecksum: "kNoChecksum", sst.CRC32c: "kCRC32c",
		sst.XXHash: "kxxHash", sst.XXHash64: "kxxHash64", sst.XXH3: "kXXH3"}
	indexes = map[sst.IndexType]string{sst.BinarySearch: "kBinarySearch", sst.HashSearch: "kHashSearch",
		sst.TwoLevel: "kTwoLevelIndexSearch", sst.BinarySearchWithFirstKey: "kBinarySearchWithFirstKey"}
	// With these a dictionary makes a difference.
	dictionaries = map[string]string{"": "",
		"samples":   "max_dict_bytes=2000",
		"trained":   "max_dict_bytes=2000;zstd_max_train_bytes=100000",
		"finalized": "max_dict_bytes=2000;zstd_max_train_bytes=100000;use_zstd_dict_trainer=false"}
)

const (
	keysEach  = 200
	valueSize = 90
)

// writeEach lets RocksDB write one table for each family's options, which it
// names. All have the same entries, see checkEach.
func writeEach(t testing.TB, options map[string]string) map[string][]byte {
	t.Helper()
	r := rockswriter.Recipe{Options: "info_log_level=ERROR_LEVEL;disable_auto_compactions=true;prefix_extractor=fixed:3;db_host_id=made"}
	for name, o := range options {
		r.Families = append(r.Families, rockswriter.Family{Name: name, Options: o})
		r.Steps = append(r.Steps,
			rockswriter.Step{Do: rockswriter.DeleteRange, Family: name, First: 50, Keys: 3, NoWAL: true},
			rockswriter.Step{Do: rockswriter.Put, Family: name, Keys: keysEach, Size: valueSize, Batch: 100, NoWAL: true},
			rockswriter.Step{Do: rockswriter.Delete, Family: name, First: keysEach, Keys: 3, NoWAL: true},
			rockswriter.Step{Do: rockswriter.Flush, Family: name})
	}
	dir := filepath.Join(t.TempDir(), "db")
	rockswriter.Write(t, dir, r)
	names, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, n := range names {
		data, err := os.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		files[openBytes(t, data).Properties().ColumnFamily] = data
	}
	if len(files) != len(options) {
		t.Fatalf("%d tables for %d families", len(files), len(options))
	}
	return files
}

// checkEach holds a table of writeEach against what was put into it.
func checkEach(t *testing.T, name string, table *sst.Table) {
	t.Helper()
	point, ranges, deleted := 0, 0, 0
	err := table.Each(func(e sst.Entry) error {
		switch {
		case e.Type == sst.RangeDeletion:
			ranges++
			if string(e.Key) != "key00000050" || string(e.Value) != "key00000052" {
				return fmt.Errorf("range deletion from %q to %q", e.Key, e.Value)
			}
		case e.Type == sst.Deletion:
			deleted++
		case e.Type != sst.Value:
			return fmt.Errorf("an entry of type %v", e.Type)
		default:
			key := fmt.Sprintf("key%08d", point)
			if string(e.Key) != key || !bytes.Equal(e.Value, bytes.Repeat([]byte(key), 9)[:valueSize]) {
				return fmt.Errorf("entry %d is %q with %q", point, e.Key, e.Value)
			}
			point++
		}
		return nil
	})
	if err != nil || point != keysEach || ranges != 1 || deleted != 3 {
		t.Errorf("%s: %d values, %d ranges, %d deletions, %v", name, point, ranges, deleted, err)
		return
	}
	e, ok, err := table.Get([]byte("key00000123"))
	if err != nil || !ok || !bytes.HasPrefix(e.Value, []byte("key00000123key")) {
		t.Errorf("%s: Get: %q, %v, %v", name, e.Value, ok, err)
	}
}

// TestEveryFormatOfRocksDB reads each codec in each format_version with each
// checksum type and each index type, as RocksDB writes them.
func TestEveryFormatOfRocksDB(t *testing.T) {
	t.Parallel()
	for version := range uint32(8) {
		t.Run(fmt.Sprintf("format %d", version), func(t *testing.T) {
			t.Parallel()
			options := map[string]string{}
			for codec, codecOption := range codecs {
				for checksum, checksumOption := range checksums {
					if version == 0 && checksum != sst.CRC32c {
						continue // it has no place for another
					}
					for index, indexOption := range indexes {
						if sst.RaceDetector && (int(checksum)+int(index)+len(codec))%10 != int(version) {
							continue
						}
						options[fmt.Sprintf("%s/%s/%s", codec, checksum, index)] = "compression=" + codecOption +
							";block_based_table_factory={block_size=500;metadata_block_size=128;checksum=" + checksumOption + ";index_type=" + indexOption +
							fmt.Sprintf(";format_version=%d}", version)
					}
				}
			}
			for name, data := range writeEach(t, options) {
				table := openBytes(t, data)
				p := table.Properties()
				if got := fmt.Sprintf("%s/%s/%s", p.Compression, table.ChecksumType(), p.IndexType); got != name || table.FormatVersion() != version {
					t.Errorf("%s is %s in format %d", name, got, table.FormatVersion())
				}
				checkEach(t, name, table)
				checkVerified(t, name, data)
			}
		})
	}
}

// TestDictionariesOfRocksDB: with a dictionary the data blocks alone depend on
// it, for the algorithms that have any use for one. RocksDB writes none before
// format_version 2.
func TestDictionariesOfRocksDB(t *testing.T) {
	t.Parallel()
	for _, version := range []int{2, 5, 7} {
		t.Run(fmt.Sprintf("format %d", version), func(t *testing.T) {
			t.Parallel()
			options := map[string]string{}
			for codec, codecOption := range codecs {
				for dictionary, o := range dictionaries {
					if o != "" {
						o = "compression_opts={" + o + "};"
					}
					options[codec+"/"+dictionary] = "compression=" + codecOption + ";" + o + fmt.Sprintf("block_based_table_factory={block_size=500;checksum=kCRC32c;format_version=%d}", version)
				}
			}
			for name, data := range writeEach(t, options) {
				table := openBytes(t, data)
				codec, dictionary, _ := strings.Cut(name, "/")
				uses := codec == "Zlib" || codec == "LZ4" || codec == "LZ4HC" || codec == "ZSTD"
				if uses && table.HasDictionary() != (dictionary != "") {
					t.Errorf("%s: a dictionary: %v", name, table.HasDictionary())
				}
				checkEach(t, name, table)
				checkVerified(t, name, data)
			}
		})
	}
}

var rewrite = flag.Bool("rewrite", false, "let RocksDB write testdata/compressed anew")

// small are the tables of testdata/compressed, so that every codec is tried
// where RocksDB cannot be had too.
var small = map[string]string{
	"v0-zstd":                      "compression=kZSTD;block_based_table_factory={block_size=500;format_version=0;checksum=kCRC32c}",
	"v1-zlib":                      "compression=kZlibCompression;block_based_table_factory={block_size=500;format_version=1}",
	"v1-bzip2":                     "compression=kBZip2Compression;block_based_table_factory={block_size=500;format_version=1}",
	"v1-lz4":                       "compression=kLZ4Compression;block_based_table_factory={block_size=500;format_version=1}",
	"v2-zlib-samples":              "compression=kZlibCompression;compression_opts={max_dict_bytes=2000};block_based_table_factory={block_size=500;format_version=2}",
	"v4-bzip2":                     "compression=kBZip2Compression;block_based_table_factory={block_size=500;format_version=4}",
	"v5-snappy":                    "compression=kSnappyCompression;block_based_table_factory={block_size=500;format_version=5}",
	"v5-lz4-samples":               "compression=kLZ4Compression;compression_opts={max_dict_bytes=2000};block_based_table_factory={block_size=500;format_version=5}",
	"v6-zstd-trained":              "compression=kZSTD;compression_opts={max_dict_bytes=2000;zstd_max_train_bytes=100000};block_based_table_factory={block_size=500;format_version=6}",
	"v6-zlib-partitioned":          "compression=kZlibCompression;block_based_table_factory={block_size=500;metadata_block_size=128;index_type=kTwoLevelIndexSearch;format_version=6}",
	"v7-zstd-samples":              "compression=kZSTD;compression_opts={max_dict_bytes=2000};block_based_table_factory={block_size=500;format_version=7}",
	"v7-lz4hc-first-key":           "compression=kLZ4HCCompression;block_based_table_factory={block_size=500;index_type=kBinarySearchWithFirstKey;format_version=7}",
	"v7-snappy-uncompressed-index": "compression=kSnappyCompression;block_based_table_factory={block_size=500;enable_index_compression=false;format_version=7}",
}

func TestCompressedTables(t *testing.T) {
	dir := filepath.Join("testdata", "compressed")
	if *rewrite {
		for name, data := range writeEach(t, small) {
			if err := os.WriteFile(filepath.Join(dir, name+".sst"), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(names) != len(small) {
		t.Fatalf("%d tables, %v", len(names), err)
	}
	for _, n := range names {
		data, err := os.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(n), ".sst")
		table := openBytes(t, data)
		if p := table.Properties(); p.ColumnFamily != name || p.Compression == "NoCompression" {
			t.Errorf("%s: %+v", name, p)
		}
		if want := strings.Contains(name, "samples") || strings.Contains(name, "trained"); table.HasDictionary() != want {
			t.Errorf("%s: a dictionary: %v", name, table.HasDictionary())
		}
		checkEach(t, name, table)
	}
}

// TestVerifyOfEveryLayout: what else RocksDB puts into a table, with each
// checksum type. A mutation of any block is found.
func TestVerifyOfEveryLayout(t *testing.T) {
	t.Parallel()
	layouts := map[string]string{
		"full filter":              "filter_policy=bloomfilter:10:false",
		"ribbon filter":            "filter_policy=ribbonfilter:10",
		"partitioned filter":       "block_size=100;metadata_block_size=128;index_type=kTwoLevelIndexSearch;partition_filters=true;filter_policy=bloomfilter:40:false",
		"old partitioned filter":   "block_size=100;metadata_block_size=128;index_type=kTwoLevelIndexSearch;partition_filters=true;filter_policy=bloomfilter:40:false;format_version=3",
		"hash index":               "index_type=kHashSearch;block_size=200",
		"hash index in the blocks": "data_block_index_type=kDataBlockBinaryAndHash;block_size=1000",
		"first key":                "index_type=kBinarySearchWithFirstKey;block_size=200",
		"whole keys in the index":  "index_shortening=kNoShortening;block_size=200;index_block_restart_interval=8",
		"no delta":                 "use_delta_encoding=false;block_size=500",
		"old":                      "format_version=2;block_size=200",
	}
	options := map[string]string{}
	for layout, o := range layouts {
		for _, checksum := range []sst.ChecksumType{sst.CRC32c, sst.XXHash, sst.XXHash64, sst.XXH3} {
			if sst.RaceDetector && checksum != sst.XXH3 {
				continue
			}
			options[fmt.Sprintf("%s, %s", layout, checksum)] = "compression=kNoCompression;block_based_table_factory={" + o + ";checksum=" + checksums[checksum] + "}"
		}
	}
	for name, data := range writeEach(t, options) {
		checkEach(t, name, openBytes(t, data))
		checkVerified(t, name, data)
		if strings.HasSuffix(name, sst.XXH3.String()) || strings.HasPrefix(name, "full filter") {
			checkMutations(t, name, data)
		}
	}
	// Padding belongs to no block.
	for name, data := range writeEach(t, map[string]string{"aligned": "compression=kNoCompression;block_based_table_factory={block_align=true}"}) {
		if v := verify(t, openBytes(t, data), sst.Entries); len(v.Errors) > 0 || v.Entries != keysEach+3 {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// TestVerifyOfLargeBlocks, which do not fit into what is read at once.
func TestVerifyOfLargeBlocks(t *testing.T) {
	t.Parallel()
	r := rockswriter.Recipe{Options: "info_log_level=ERROR_LEVEL;write_buffer_size=100000000;compression=kNoCompression"}
	for checksum, option := range checksums {
		if sst.RaceDetector && checksum != sst.XXH3 {
			continue
		}
		name := checksum.String()
		r.Families = append(r.Families, rockswriter.Family{Name: name, Options: "block_based_table_factory={block_size=700000;filter_policy=bloomfilter:200:false;checksum=" + option + "}"})
		r.Steps = append(r.Steps, rockswriter.Step{Do: rockswriter.Put, Family: name, Keys: 30_000, Size: 100, Batch: 1000, NoWAL: true},
			rockswriter.Step{Do: rockswriter.Flush, Family: name})
	}
	dir := filepath.Join(t.TempDir(), "db")
	rockswriter.Write(t, dir, r)
	names, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(names) != len(r.Families) {
		t.Fatal(names, err)
	}
	for _, n := range names {
		data, err := os.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		table := openBytes(t, data)
		p := table.Properties()
		if p.DataBlocks < 3 || p.FilterSize < 300_000 {
			t.Fatalf("%+v", p)
		}
		if !sst.RaceDetector {
			checkVerified(t, p.ColumnFamily, data)
		}
		if table.ChecksumType() == sst.NoChecksum {
			continue
		}
		blocks := table.DataBlocks(t)
		for what, at := range map[string]uint64{"first": 0, "middle": (blocks[1][0] + blocks[1][1]) / 2,
			"type": blocks[1][1] - 5, "checksum": blocks[2][1] - 1, "filter": blocks[len(blocks)-1][1] + 200_000} {
			data[at] ^= 1
			v, w := verify(t, table, sst.Checksums), verify(t, table, sst.Entries)
			data[at] ^= 1
			if len(v.Errors) != 1 || !reflect.DeepEqual(v.Errors, w.Errors) || v.Errors[0].Kind != sst.BlockChecksum ||
				(v.Errors[0].Part == "filter block") != (what == "filter") ||
				v.Errors[0].Offset > int64(at) || v.Errors[0].Offset+v.Errors[0].Size+5 <= int64(at) {
				t.Errorf("%s, %s: %v, %v", p.ColumnFamily, what, v.Errors, w.Errors)
			}
		}
	}
}
