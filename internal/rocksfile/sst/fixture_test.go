package sst_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"streams-sidecar/internal/rocksfile/sst"
	"streams-sidecar/test/fixture"
)

var versions = []string{"2.8.2", "3.9.1", "4.2.2", "4.3.1", "4.4.0"}

// tables gives every table file of a fixture by its path in the archive, and
// every LOG. They are read once and shared: not to be changed.
func tables(t testing.TB, version, name string) map[string][]byte {
	t.Helper()
	read := func() (map[string][]byte, error) { return readArchive(version, name) }
	once, _ := archives.LoadOrStore(version+"/"+name, sync.OnceValues(read))
	files, err := once.(func() (map[string][]byte, error))()
	if err != nil {
		t.Fatalf("%s/%s: %v", version, name, err)
	}
	return files
}

var archives sync.Map

// readArchive does not unpack to disk, as fixture.Unpack does: that would
// take most of the time of these tests.
func readArchive(version, name string) (map[string][]byte, error) {
	f, err := os.Open(filepath.Join("..", "..", "..", "testdata", "fixtures", version, name+".tar.gz"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	found := map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err == nil && (path.Ext(h.Name) == ".sst" || path.Base(h.Name) == "LOG") {
			found[h.Name], err = io.ReadAll(r)
		}
		if err != nil {
			return nil, err
		}
	}
}

func openBytes(t testing.TB, data []byte) *sst.Table {
	t.Helper()
	table, err := sst.Open(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return table
}

// entries copies every entry of a table.
func entries(t testing.TB, table *sst.Table) []sst.Entry {
	t.Helper()
	var all []sst.Entry
	err := table.Each(func(e sst.Entry) error {
		e.Key, e.Value = bytes.Clone(e.Key), bytes.Clone(e.Value)
		all = append(all, e)
		return nil
	})
	if err != nil {
		t.Fatalf("Each: %v", err)
	}
	return all
}

// checkHealthy holds a table against what it says of itself. Every step-th
// key is looked up.
func checkHealthy(t *testing.T, data []byte, step int) {
	t.Helper()
	table := openBytes(t, data)
	p := table.Properties()
	all := entries(t, table)
	if uint64(len(all)) != p.Entries {
		t.Errorf("%d entries, the properties have %d", len(all), p.Entries)
	}
	var keys, values, deletions, largest uint64
	for i, e := range all {
		keys += uint64(len(e.Key)) + 8
		values += uint64(len(e.Value))
		if e.Type == sst.Deletion || e.Type == sst.RangeDeletion {
			deletions++
		}
		largest = max(largest, e.Sequence)
		first := i == 0 || e.Type == sst.RangeDeletion && all[i-1].Type != sst.RangeDeletion
		newest := first || !bytes.Equal(all[i-1].Key, e.Key)
		if !first {
			c := bytes.Compare(all[i-1].Key, e.Key)
			if c > 0 || c == 0 && all[i-1].Sequence <= e.Sequence {
				t.Fatalf("entry %d (%q, %d) is not behind the one before (%q, %d)", i,
					e.Key, e.Sequence, all[i-1].Key, all[i-1].Sequence)
			}
		}
		if e.Type == sst.RangeDeletion || !newest || i%step != 0 {
			continue
		}
		got, ok, err := table.Get(e.Key)
		if err != nil || !ok {
			t.Fatalf("Get(%q) = %v, %v", e.Key, ok, err)
		}
		if !bytes.Equal(got.Key, e.Key) || got.Sequence != e.Sequence || got.Type != e.Type ||
			!bytes.Equal(got.Value, e.Value) {
			t.Fatalf("Get(%q) = %+v, Each gave %+v", e.Key, got, e)
		}
	}
	if keys != p.RawKeySize || values != p.RawValueSize || deletions != p.Deletions {
		t.Errorf("%d bytes of keys, %d of values, %d deletions; the properties have %d, %d, %d",
			keys, values, deletions, p.RawKeySize, p.RawValueSize, p.Deletions)
	}
	if p.LargestSequenceKnown && largest != p.LargestSequence {
		t.Errorf("largest sequence number %d, the properties have %d", largest, p.LargestSequence)
	}
}

// damaged are the cases whose store kv has a table that cannot be read.
var damaged = regexp.MustCompile(`^corrupt-.*sst-(data-flip|data-flip-first|footer-flip|index-flip|truncated|zero|page-zeroed|flip-then-loaded)$`)

func TestHealthyTablesOfEveryFixture(t *testing.T) {
	t.Parallel()
	cases := map[string][]string{}
	for _, n := range fixture.Names() {
		// The damaged ones have no table beside the damage that the base has not.
		base := strings.HasPrefix(n.Case, "corrupt-base-")
		if !base && strings.HasPrefix(n.Case, "corrupt-") {
			continue
		}
		if sst.RaceDetector && !base && !strings.HasPrefix(n.Case, "closed-") {
			continue // there is nothing concurrent in them, and it is slow
		}
		cases[n.Version] = append(cases[n.Version], n.Case)
	}
	for version, names := range cases {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			seen := map[[32]byte]bool{} // most cases have tables in common
			for _, name := range names {
				for file, data := range tables(t, version, name) {
					sum := sha256.Sum256(data)
					if path.Base(file) == "LOG" || seen[sum] {
						continue
					}
					seen[sum] = true
					step := 1
					if sst.RaceDetector && len(data) > 20_000 {
						step = 29 // every key is looked up without it
					}
					checkHealthy(t, data, step)
					if t.Failed() {
						t.Fatalf("in %s: %s", name, file)
					}
				}
			}
			if len(seen) < 10 {
				t.Errorf("only %d different tables", len(seen))
			}
		})
	}
}

func TestFormatOfEachStreamsVersion(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		version  string
		format   uint32
		checksum sst.ChecksumType
	}{
		{"2.8.2", 0, sst.CRC32c},
		{"3.9.1", 5, sst.CRC32c},
		{"4.2.2", 6, sst.XXH3},
		{"4.3.1", 6, sst.XXH3},
		{"4.4.0", 6, sst.XXH3},
	} {
		t.Run(c.version, func(t *testing.T) {
			t.Parallel()
			for file, data := range tables(t, c.version, "corrupt-base-alos") {
				if path.Base(file) == "LOG" {
					continue
				}
				table := openBytes(t, data)
				if table.FormatVersion() != c.format || table.ChecksumType() != c.checksum {
					t.Errorf("%s: format_version %d, %v", file, table.FormatVersion(), table.ChecksumType())
				}
				p := table.Properties()
				if p.Comparator != sst.Bytewise || p.Compression != "NoCompression" || !p.ColumnFamilyKnown ||
					p.IndexType != sst.BinarySearch || p.FormatVersion != c.format {
					t.Errorf("%s: %+v", file, p)
				}
				if later := c.version != "2.8.2"; (p.DBID != "") != later || (p.SessionID != "") != later ||
					(p.HostID != "") != later || (p.FileCreationTime != 0) != later {
					t.Errorf("%s: identity %q %q %q, created %d", file, p.DBID, p.SessionID, p.HostID, p.FileCreationTime)
				}
			}
		})
	}
}

// live are the keys of a family that are not deleted, over all its tables.
func live(t *testing.T, files [][]byte) map[string][]byte {
	t.Helper()
	newest := map[string]sst.Entry{}
	for _, data := range files {
		for _, e := range entries(t, openBytes(t, data)) {
			if old, ok := newest[string(e.Key)]; !ok || old.Sequence < e.Sequence {
				newest[string(e.Key)] = e
			}
		}
	}
	values := map[string][]byte{}
	for k, e := range newest {
		if e.Type == sst.Value {
			values[k] = e.Value
		}
	}
	return values
}

func TestClosedStoresHoldWhatRocksDBFound(t *testing.T) {
	t.Parallel()
	for _, version := range versions {
		inventory := fixture.Inventory(t, version)
		for _, name := range []string{"closed-clean", "closed-eos", "corrupt-base-alos"} {
			content, ok := inventory[name]
			if !ok || len(content.Stores) == 0 {
				t.Fatalf("%s has no inventory of %s", version, name)
			}
			t.Run(version+"/"+name, func(t *testing.T) {
				t.Parallel()
				files := tables(t, version, name)
				for store, want := range content.Stores {
					families := map[string][][]byte{}
					for file, data := range files {
						if path.Dir(file) != store || path.Base(file) == "LOG" {
							continue
						}
						f := openBytes(t, data).Properties().ColumnFamily
						families[f] = append(families[f], data)
					}
					got := fixture.Store{Families: map[string]int64{}}
					for f := range want.Families {
						values := live(t, families[f])
						got.Families[f] = int64(len(values))
						if f == "offsets" {
							readOffsets(t, values, &got)
						}
						delete(families, f)
					}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("%s (-RocksDB, +sst):\n%s", store, diff)
					}
					for f := range families {
						t.Errorf("%s: tables of a family %q that RocksDB does not know", store, f)
					}
				}
			})
		}
	}
}

// readOffsets decodes the column family that Kafka Streams 4.3 keeps its offsets in.
func readOffsets(t *testing.T, values map[string][]byte, s *fixture.Store) {
	t.Helper()
	for k, v := range values {
		if k == "position" {
			continue
		}
		if len(v) != 8 {
			t.Errorf("value of %q has %d bytes", k, len(v))
			continue
		}
		n := int64(binary.BigEndian.Uint64(v))
		if k == "status" {
			s.Status = &n
			continue
		}
		if s.Offsets == nil {
			s.Offsets = map[string]int64{}
		}
		s.Offsets[k] = n
	}
}

func TestGetReadsTheOffsetsFamily(t *testing.T) {
	t.Parallel()
	found := 0
	for file, data := range tables(t, "4.4.0", "corrupt-base-alos") {
		if path.Dir(file) != "calos440/0_0/rocksdb/kv" || path.Base(file) == "LOG" {
			continue
		}
		table := openBytes(t, data)
		if table.Properties().ColumnFamily != "offsets" {
			continue
		}
		found++
		e, ok, err := table.Get([]byte("calos440-kv-changelog-0"))
		if err != nil || !ok || e.Type != sst.Value || binary.BigEndian.Uint64(e.Value) != 2999 {
			t.Errorf("offset: %+v, %v, %v", e, ok, err)
		}
		for _, absent := range []string{"", "a", "calos440-kv-changelog-", "calos440-kv-changelog-00", "statut", "statuss", "z"} {
			if e, ok, err := table.Get([]byte(absent)); err != nil || ok {
				t.Errorf("Get(%q) = %+v, %v, %v", absent, e, ok, err)
			}
		}
	}
	if found != 1 {
		t.Errorf("%d tables of the family", found)
	}
}

// The words of RocksDB 6 and later, and of 5.18, which names the numbers the
// other way round.
var (
	mismatch    = regexp.MustCompile(`block checksum mismatch: stored(?:\(context removed\))? = (\d+), computed = (\d+)`)
	oldMismatch = regexp.MustCompile(`block checksum mismatch: expected (\d+), got (\d+)`)
	badMagic    = regexp.MustCompile(`Bad table magic number: expected (\d+), found (\d+)`)
	where       = regexp.MustCompile(` offset (\d+)(?: size (\d+))?`)
)

// rocksDBError is what RocksDB said of a table, as far as the text goes.
func rocksDBError(text string) (e sst.Error, ok bool) {
	if m := mismatch.FindStringSubmatch(text); m != nil {
		e = sst.Error{Kind: sst.BlockChecksum, Expected: m[1], Found: m[2]}
	} else if m := oldMismatch.FindStringSubmatch(text); m != nil {
		e = sst.Error{Kind: sst.BlockChecksum, Expected: m[2], Found: m[1]}
	} else if m := badMagic.FindStringSubmatch(text); m != nil {
		return sst.Error{Kind: sst.BadMagic, Part: "footer", Expected: m[1], Found: m[2]}, true
	} else {
		return e, false
	}
	e.Part, e.Offset = "data block", -1
	if m := where.FindStringSubmatch(text); m != nil {
		e.Offset, _ = strconv.ParseInt(m[1], 10, 64)
		e.Size, _ = strconv.ParseInt(m[2], 10, 64)
	}
	return e, true
}

func TestDamagedTablesAreNamedAsRocksDBNamesThem(t *testing.T) {
	t.Parallel()
	compared := 0
	for _, n := range fixture.Names() {
		if !damaged.MatchString(n.Case) {
			continue
		}
		compared++
		said := ""
		for store, s := range fixture.Inventory(t, n.Version)[n.Case].Stores {
			if strings.HasSuffix(store, "/kv") {
				said = s.OpenFails
			}
		}
		t.Run(n.String(), func(t *testing.T) {
			t.Parallel()
			files := tables(t, n.Version, n.Case)
			var bad string
			for file, data := range files {
				if path.Base(path.Dir(file)) == "kv" && path.Base(file) != "LOG" && firstError(data) != nil {
					if bad != "" {
						t.Fatalf("two damaged tables: %s, %s", bad, file)
					}
					bad = file
				}
			}
			if bad == "" {
				t.Fatal("no damaged table found")
			}
			data := files[bad]
			got := *firstError(data)
			if log := files[path.Join(path.Dir(bad), "LOG")]; mismatch.Match(log) {
				said = string(log)
			}
			want, ok := rocksDBError(said)
			switch {
			case ok:
			case strings.HasSuffix(n.Case, "-zero"): // RocksDB compares sizes first
				want = sst.Error{Kind: sst.TooShort, Part: "footer", Expected: "at least 48 bytes", Found: "0"}
			case strings.HasSuffix(n.Case, "-truncated"):
				want = sst.Error{Kind: sst.BadMagic, Part: "footer", Expected: "9863518390377041911", Found: got.Found}
			default:
				t.Fatalf("nothing to compare with in %q", said)
			}
			if want.Kind == sst.BadMagic {
				want.Offset = int64(len(data)) - 8
			}
			if want.Offset < 0 {
				want.Offset = got.Offset
			}
			if want.Size == 0 {
				want.Size = got.Size
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-RocksDB, +sst):\n%s", bad, diff)
			}
			// The middle byte, or byte 200, was inverted: it must lie in the block that is named.
			flipped := int64(len(data) / 2)
			if strings.HasSuffix(n.Case, "-first") {
				flipped = 200
			}
			if got.Kind == sst.BlockChecksum && (flipped < got.Offset || flipped >= got.Offset+got.Size+5) {
				t.Errorf("byte %d is damaged, not the block at %d", flipped, got.Offset)
			}
		})
	}
	if compared < 10 {
		t.Errorf("only %d damaged cases", compared)
	}
}

// firstError reads all of a table.
func firstError(data []byte) *sst.Error {
	table, err := sst.Open(bytes.NewReader(data), int64(len(data)))
	if err == nil {
		err = table.Each(func(sst.Entry) error { return nil })
	}
	e, _ := errors.AsType[*sst.Error](err)
	return e
}

// counted counts the reads of a source.
type counted struct {
	io.ReaderAt
	reads, bytes int
}

func (c *counted) ReadAt(p []byte, off int64) (int, error) {
	c.reads++
	c.bytes += len(p)
	return c.ReaderAt.ReadAt(p, off)
}

func TestOpenReadsTheTailOnce(t *testing.T) {
	t.Parallel()
	for _, version := range versions {
		for file, data := range tables(t, version, "closed-clean") {
			if path.Base(file) == "LOG" {
				continue
			}
			src := &counted{ReaderAt: bytes.NewReader(data)}
			if _, err := sst.Open(src, int64(len(data))); err != nil {
				t.Fatal(err)
			}
			if src.reads != 1 || src.bytes > 4096 {
				t.Errorf("%s: %d reads, %d bytes", file, src.reads, src.bytes)
			}
		}
	}
}
