package sst_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"streams-sidecar/internal/rocksfile/sst"
)

// made gives a table of testdata/made: written by RocksDB, see its README.md.
func made(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "made", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// truth reads testdata/made/truth.txt: what RocksDB says of each of its files.
func truth(t testing.TB) []map[string]string {
	t.Helper()
	var files []map[string]string
	for line := range strings.Lines(string(made(t, "truth.txt"))) {
		f := map[string]string{}
		for _, field := range strings.Fields(line) {
			k, v, _ := strings.Cut(field, "=")
			f[k] = v
		}
		files = append(files, f)
	}
	names, err := filepath.Glob(filepath.Join("testdata", "made", "*.sst"))
	if err != nil || len(names) != len(files) || len(files) == 0 {
		t.Fatalf("%d tables, %d lines of truth, %v", len(names), len(files), err)
	}
	return files
}

func TestPropertiesAreThoseThatRocksDBReads(t *testing.T) {
	t.Parallel()
	for _, f := range truth(t) {
		t.Run(f["file"], func(t *testing.T) {
			t.Parallel()
			p := openBytes(t, made(t, f["file"])).Properties()
			number := func(v uint64) string { return strconv.FormatUint(v, 10) }
			bit := func(b bool) string { return map[bool]string{false: "0", true: "1"}[b] }
			orNull := func(s string) string { // Java's word for an empty text
				if s == "" {
					return "null"
				}
				return s
			}
			got := map[string]string{
				"file": f["file"], "written": f["written"], "shown": f["shown"],
				"entries": number(p.Entries), "deletions": number(p.Deletions),
				"merges": number(p.MergeOperands), "ranges": number(p.RangeDeletions),
				"raw-key": number(p.RawKeySize), "raw-value": number(p.RawValueSize),
				"data": number(p.DataSize), "index": number(p.IndexSize), "filter": number(p.FilterSize),
				"blocks": number(p.DataBlocks), "partitions": number(p.IndexPartitions),
				"user-key-index": bit(p.IndexKeyIsUserKey), "delta-index": bit(p.IndexValueIsDeltaEncoded),
				"family-id": number(uint64(p.ColumnFamilyID)), "family": p.ColumnFamily,
				"created": number(p.CreationTime), "oldest": number(p.OldestKeyTime),
				"filter-policy": orNull(p.FilterPolicy), "comparator": p.Comparator,
				"merge-operator": p.MergeOperator, "compression": p.Compression,
			}
			if !p.ColumnFamilyKnown {
				got["family-id"] = "2147483647"
			}
			if len(p.ColumnFamily) > 40 {
				got["family"] = strconv.Itoa(len(p.ColumnFamily)) + "-bytes"
			}
			switch f["compression"] { // as format_version 7 stores it; RocksDB shows it translated
			case ";;":
				f["compression"] = "NoCompression"
			case "BuiltinV2;07;":
				f["compression"] = "ZSTD"
			}
			if diff := cmp.Diff(f, got); diff != "" {
				t.Errorf("(-RocksDB, +sst):\n%s", diff)
			}
		})
	}
}

// digest is a sum over text as Make.java and Truth.java take it.
func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

func TestEntriesAreThoseThatRocksDBWrote(t *testing.T) {
	t.Parallel()
	for _, f := range truth(t) {
		t.Run(f["file"], func(t *testing.T) {
			t.Parallel()
			table := openBytes(t, made(t, f["file"]))
			var written, shown bytes.Buffer
			var point, ranges, keys int
			var last []byte
			plain := true // one value for each key: what an iterator shows without any rule
			for _, e := range entries(t, table) {
				value := e.Value
				if e.Type == sst.BlobIndex {
					value = nil
				}
				fmt.Fprintf(&written, "%x %d %d %x\n", e.Key, e.Sequence, e.Type, value)
				if e.Type == sst.RangeDeletion {
					ranges++
					continue
				}
				point++
				if keys > 0 && bytes.Equal(last, e.Key) {
					plain = false
					continue
				}
				keys++
				last = e.Key
				plain = plain && e.Type == sst.Value
				fmt.Fprintf(&shown, "%x %x\n", e.Key, e.Value)
				if table.Properties().Comparator == sst.Bytewise {
					got, ok, err := table.Get(e.Key)
					if diff := cmp.Diff(e, got); err != nil || !ok || diff != "" {
						t.Errorf("Get(%q) = %v, %v (-Each, +Get):\n%s", e.Key, ok, err, diff)
					}
				}
			}
			if got := digest(written.Bytes()); got != f["written"] {
				t.Errorf("the entries are not those that were written:\n%s", written.Bytes())
			}
			if got := strconv.Itoa(keys) + ":" + digest(shown.Bytes()); plain && ranges == 0 && got != f["shown"] {
				t.Errorf("shown %s, RocksDB shows %s", got, f["shown"])
			}
			counted := point + ranges
			if strings.Contains(f["file"], "ranges-rocksdb5") {
				counted = point // RocksDB 5.18 does not count them
			}
			if strconv.Itoa(counted) != f["entries"] || strconv.Itoa(ranges) != f["ranges"] {
				t.Errorf("%d point entries, %d ranges; RocksDB counts %s and %s", point, ranges, f["entries"], f["ranges"])
			}
		})
	}
}

func TestFormatOfEachMadeTable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		file     string
		format   uint32
		checksum sst.ChecksumType
		index    sst.IndexType
	}{
		{"v1-xxhash32-rocksdb5.sst", 1, sst.XXHash, sst.BinarySearch},
		{"v2-crc32c.sst", 2, sst.CRC32c, sst.BinarySearch},
		{"v3-xxhash64.sst", 3, sst.XXHash64, sst.BinarySearch},
		{"v4-xxhash32-restart4.sst", 4, sst.XXHash, sst.BinarySearch},
		{"v5-none.sst", 5, sst.NoChecksum, sst.BinarySearch},
		{"v5-xxh3-partitioned.sst", 5, sst.XXH3, sst.TwoLevel},
		{"v6-crc32c-firstkey.sst", 6, sst.CRC32c, sst.BinarySearchWithFirstKey},
		{"v6-xxhash32-hashsearch.sst", 6, sst.XXHash, sst.HashSearch},
		{"v6-none-datahash.sst", 6, sst.NoChecksum, sst.BinarySearch},
		{"v6-xxhash64-restart1.sst", 6, sst.XXHash64, sst.BinarySearch},
		{"v7-xxh3-mixed-partitioned.sst", 7, sst.XXH3, sst.TwoLevel},
		{"v7-uniform-rocksdb11.sst", 7, sst.XXH3, sst.BinarySearch},
	} {
		table := openBytes(t, made(t, c.file))
		if f, s, i := table.FormatVersion(), table.ChecksumType(), table.Properties().IndexType; f != c.format || s != c.checksum || i != c.index {
			t.Errorf("%s: format_version %d, %v, %v", c.file, f, s, i)
		}
	}
}

func isKind(err error, k sst.Kind) bool {
	e, ok := errors.AsType[*sst.Error](err)
	return ok && e.Kind == k
}

func TestGetRefusesAnotherOrder(t *testing.T) {
	t.Parallel()
	table := openBytes(t, made(t, "reverse-v6.sst"))
	_, _, err := table.Get([]byte("key-00000"))
	e, ok := errors.AsType[*sst.Error](err)
	if !ok || e.Kind != sst.Unsupported || e.Found != "rocksdb.ReverseBytewiseComparator" {
		t.Errorf("Get: %v", err)
	}
	if n := len(entries(t, table)); n != 120 {
		t.Errorf("Each visits %d entries", n)
	}
}

func TestIngestedTables(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		file     string
		sequence uint64
	}{
		{"v6-ingested-written.sst", 2},
		{"v6-ingested-unwritten.sst", 0},
	} {
		p := openBytes(t, made(t, c.file)).Properties()
		if !p.External || p.GlobalSequence != c.sequence || p.ColumnFamilyKnown {
			t.Errorf("%s: %+v", c.file, p)
		}
	}
	// A property block with another byte wrong is damaged for all that.
	data := made(t, "v6-ingested-written.sst")
	at := bytes.Index(data, []byte("SST Writer"))
	data[at] ^= 1
	if _, err := sst.Open(bytes.NewReader(data), int64(len(data))); !isKind(err, sst.BlockChecksum) {
		t.Errorf("Open: %v", err)
	}
}

func TestOpenReadsASecondTimeWhatIsNotInTheTail(t *testing.T) {
	t.Parallel()
	data := made(t, "long-family.sst")
	src := &counted{ReaderAt: bytes.NewReader(data)}
	table, err := sst.Open(src, int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	if f := table.Properties().ColumnFamily; f != strings.Repeat("f", 4000) || src.reads != 2 {
		t.Errorf("%d reads, family of %d bytes", src.reads, len(f))
	}
}
