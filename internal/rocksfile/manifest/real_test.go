package manifest_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"streams-sidecar/internal/rocksfile/manifest"
	"streams-sidecar/internal/rocksfile/record"
	"streams-sidecar/internal/rocksfile/rockstest"
	"streams-sidecar/test/fixture"
)

// database is one RocksDB directory of a fixture.
type database struct {
	path    string
	current string // content of CURRENT
	tables  map[uint64]uint64
	data    []byte // of the MANIFEST that CURRENT names, if it can be told
	log     string // path of LOG
}

// databases finds every RocksDB directory below root.
func databases(t testing.TB, root string) (out []database) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "CURRENT" {
			return err
		}
		dir := filepath.Dir(path)
		rel, _ := filepath.Rel(root, dir)
		db := database{path: rel, tables: map[uint64]uint64{}, log: filepath.Join(dir, "LOG")}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		db.current = string(content)
		if name, _, err := manifest.ParseCurrent(content); err == nil {
			if db.data, err = os.ReadFile(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
		for _, table := range tables {
			number, perr := strconv.ParseUint(strings.TrimSuffix(filepath.Base(table), ".sst"), 10, 64)
			info, serr := os.Stat(table)
			if perr != nil || serr != nil {
				return errors.Join(perr, serr)
			}
			db.tables[number] = uint64(info.Size())
		}
		out = append(out, db)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// damaged says what the MANIFEST of store kv must be found to have in the
// cases that damage it, or the CURRENT before it.
var damaged = map[string]string{
	"manifest-truncated":    "partial tail",
	"manifest-tail-cut":     "partial tail",
	"manifest-flip":         "damaged record",
	"manifest-zero":         "incomplete",
	"manifest-deleted":      "no MANIFEST",
	"current-empty":         "it is empty",
	"current-no-newline":    "no newline",
	"current-deleted":       "no CURRENT",
	"store-dir-removed":     "no CURRENT",
	"store-dir-emptied":     "no CURRENT",
	"rocksdb-dir-removed":   "no CURRENT",
	"task-dir-moved":        "no CURRENT",
	"store-dir-renamed":     "no CURRENT",
	"ckpt-line-and-store-r": "no CURRENT",
}

// Every MANIFEST of every real directory says what is on disk, or why not.
func TestRealDirectories(t *testing.T) {
	t.Parallel()
	for _, name := range fixture.Names() {
		if rockstest.Race && !quick(name.Case) {
			continue // unpacking them all takes half a minute then, and nothing here is concurrent
		}
		t.Run(name.String(), func(t *testing.T) {
			t.Parallel()
			dbs := databases(t, fixture.Unpack(t, name.Version, name.Case))
			want := ""
			for damage, verdict := range damaged {
				if strings.Contains(name.Case, damage) {
					want = verdict
				}
			}
			found := want == "no CURRENT" || want == ""
			for _, db := range dbs {
				verdict := judge(t, db)
				switch {
				case verdict == "":
					checkTables(t, name.Case, db)
				case want != "" && strings.Contains(verdict, want) && filepath.Base(db.path) == "kv":
					found = true
				default:
					t.Errorf("%s: %s", db.path, verdict)
				}
			}
			if !found {
				t.Errorf("%q was not found", want)
			}
		})
	}
}

// quick are the cases for the race detector.
func quick(name string) bool {
	return strings.Contains(name, "-manifest-") || strings.Contains(name, "-current-") || name == "closed-clean"
}

func judge(t *testing.T, db database) string {
	if _, _, err := manifest.ParseCurrent([]byte(db.current)); err != nil {
		return err.Error()
	}
	if db.data == nil {
		return "no MANIFEST"
	}
	s, err := load(db.data)
	if err != nil {
		if e := defect(t, err); e.Partial() != strings.HasPrefix(err.Error(), "partial tail") {
			t.Errorf("%v: Partial is %v", e, e.Partial())
		}
		return err.Error()
	}
	if s.Size != int64(len(db.data)) || s.PendingGroup {
		t.Errorf("%s: read to %d of %d, pending group %v", db.path, s.Size, len(db.data), s.PendingGroup)
	}
	for _, f := range s.Families {
		if f.Comparator != bytewise && s.Edits > 1 {
			t.Errorf("%s: family %s has comparator %q", db.path, f.Name, f.Comparator)
		}
		for _, file := range f.Files {
			if file.LargestSeq > s.LastSequence || file.SmallestSeq > file.LargestSeq || file.Number >= s.NextFile {
				t.Errorf("%s: %+v with last sequence %d, next file %d", db.path, file, s.LastSequence, s.NextFile)
			}
		}
	}
	return ""
}

// checkTables compares the live tables with those on disk. In a directory that
// was closed they are the same; one that was not may have more on disk.
func checkTables(t *testing.T, name string, db database) {
	damage := strings.Contains(name, "-sst-") // a table was removed or shortened
	s := mustLoad(t, db.data)
	live := map[uint64]uint64{}
	for _, f := range s.Families {
		for _, file := range f.Files {
			live[file.Number] = file.Size
		}
	}
	if strings.HasPrefix(name, "closed-") {
		if diff := cmp.Diff(db.tables, live); diff != "" {
			t.Errorf("%s (-disk +live):\n%s", db.path, diff)
		}
	}
	for number, size := range live {
		if on, ok := db.tables[number]; !damage && (!ok || on != size) {
			t.Errorf("%s: table %d of %d bytes is on disk with %d (%v)", db.path, number, size, on, ok)
		}
	}
}

// logEvent is what RocksDB writes into its own log of an event.
type logEvent struct {
	Event         string `json:"event"`
	Job           int    `json:"job"`
	FamilyName    string `json:"cf_name"`
	FileNumber    uint64 `json:"file_number"`
	FileSize      uint64 `json:"file_size"`
	InputSize     uint64 `json:"input_data_size"`
	OutputSize    uint64 `json:"total_output_size"`
	OutputRecords uint64 `json:"num_output_records"`
}

// expectedCounts adds up what RocksDB says of itself.
func expectedCounts(events []logEvent) (c manifest.Counts) {
	compactions := map[int]bool{}
	for _, e := range events {
		switch e.Event {
		case "compaction_started":
			compactions[e.Job] = true
			c.CompactionReadBytes += e.InputSize
		case "compaction_finished":
			c.Compactions++
			// An output without records is thrown away at once, but RocksDB
			// counts its size.
			if e.OutputRecords > 0 {
				c.CompactionWrittenBytes += e.OutputSize
			}
		case "trivial_move":
			c.TrivialMoves++
		}
	}
	flushes := 0
	for _, e := range events {
		switch {
		case e.Event == "flush_finished":
			flushes++
		case e.Event == "table_file_creation" && !compactions[e.Job]:
			c.Flushes++ // by a flush, or by a recovery, which is no event of its own
			c.FlushedBytes += e.FileSize
		}
	}
	if uint64(flushes) > c.Flushes {
		c.Flushes = uint64(flushes)
	}
	return c
}

func parseEvents(t *testing.T, r io.Reader) (out []logEvent) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if i := strings.Index(line, "EVENT_LOG_v1 {"); i >= 0 {
			line = line[i+len("EVENT_LOG_v1 "):]
		}
		if !strings.HasPrefix(line, "{") {
			continue
		}
		var e logEvent
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		out = append(out, e)
	}
	return out
}

// What the MANIFEST tells of events is what RocksDB has logged at level INFO.
func TestCountsAreThoseOfTheInfoLog(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, version := range []string{"2.8.2", "3.9.1", "4.4.0"} {
		for _, db := range databases(t, fixture.Unpack(t, version, "closed-infolog")) {
			f, err := os.Open(db.log)
			if err != nil {
				t.Fatal(err)
			}
			want := expectedCounts(parseEvents(t, f))
			_ = f.Close()
			if diff := cmp.Diff(want, mustLoad(t, db.data).Counts); diff != "" {
				t.Errorf("%s %s (-log +MANIFEST):\n%s", version, db.path, diff)
			}
			seen += int(want.Flushes)
		}
	}
	if seen < 30 {
		t.Errorf("only %d flushes in all logs", seen)
	}
}

// The directories below testdata/truth were made by Truth.java with RocksDB
// 5.18.4 to 11.8.1: flushes, atomic ones, compactions, moves, an ingestion, a
// family that comes and goes; in the second of each, a recovery. They hold what
// RocksDB logged, and what it named as its live files.
func TestRocksDBSaysTheSame(t *testing.T) {
	t.Parallel()
	dirs, err := filepath.Glob("testdata/truth/*/[12]")
	if err != nil || len(dirs) != 10 {
		t.Fatalf("%d directories, %v", len(dirs), err)
	}
	for _, dir := range dirs {
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			s := mustLoad(t, read(t, dir, "MANIFEST"))
			want := expectedCounts(parseEvents(t, bytes.NewReader(read(t, dir, "events.jsonl"))))
			// RocksDB copies an ingested file and does not log its making
			// before 10.4; the program ingests one in each first run.
			if strings.HasSuffix(dir, "1") {
				want.IngestedFiles = 1
			}
			got := s.Counts
			got.IngestedBytes = 0
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("counts (-log +MANIFEST):\n%s", diff)
			}

			var live []string
			onDisk := map[string]bool{}
			for line := range strings.Lines(string(read(t, dir, "live.txt"))) {
				line = strings.TrimSpace(line)
				if strings.HasPrefix(line, "disk ") {
					onDisk[line] = true
				} else {
					live = append(live, line)
				}
			}
			var ours []string
			for _, f := range s.Families {
				for _, file := range f.Files {
					ours = append(ours, fmt.Sprintf("%s %d %06d %d %d %d", f.Name, file.Level, file.Number, file.Size, file.SmallestSeq, file.LargestSeq))
					if disk := fmt.Sprintf("disk %06d %d", file.Number, file.Size); len(live) == 0 && !onDisk[disk] {
						t.Errorf("%q is not on disk", disk)
					}
				}
			}
			slices.Sort(ours)
			if diff := cmp.Diff(live, ours); len(live) > 0 && diff != "" {
				t.Errorf("live files (-RocksDB +ours):\n%s", diff)
			}
			if len(live) == 0 && len(onDisk) == 0 || len(ours) == 0 {
				t.Error("nothing was compared")
			}
		})
	}
}

func read(t testing.TB, elem ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// real are MANIFESTs for tests that go through every byte.
func real(t testing.TB) map[string][]byte {
	out := map[string][]byte{
		"RocksDB 5.18.4, recovered": read(t, "testdata/truth/5.18.4-single/2/MANIFEST"),
		"RocksDB 11.8.1, recovered": read(t, "testdata/truth/11.8.1-atomic/2/MANIFEST"),
	}
	for version, name := range map[string]string{"4.2.2": "killed9-eos-uncommitted-flushed", "4.4.0": "closed-clean", "2.8.2": "closed-clean"} {
		for _, db := range databases(t, fixture.Unpack(t, version, name)) {
			if filepath.Base(db.path) == "kv" {
				out[version+" "+name] = db.data
			}
		}
	}
	if len(out) != 5 {
		t.Fatalf("%d MANIFESTs", len(out))
	}
	return out
}

// states gives, for each length up to which a MANIFEST may be read, the State
// of the last edit that is whole by then, and its end.
func states(t testing.TB, data []byte) (ends []int64, at map[int64]*manifest.State) {
	r := record.NewReader(bytes.NewReader(data), 0, int64(len(data)))
	at = map[int64]*manifest.State{}
	for end := int64(0); ; end = r.Offset() {
		s, err := load(data[:end])
		if err != nil && defect(t, err).Kind != manifest.Incomplete {
			t.Fatal(err)
		}
		ends, at[end] = append(ends, end), s
		if _, err := r.Next(); errors.Is(err, io.EOF) {
			return ends, at
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// Cut anywhere, a MANIFEST has a partial tail or is clean, and its State is
// that of the last whole record.
func TestCutAtEveryLength(t *testing.T) {
	t.Parallel()
	for name, data := range real(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ends, at := states(t, data)
			whole := 0
			for n := range int64(len(data)) + 1 {
				for whole+1 < len(ends) && ends[whole+1] <= n {
					whole++
				}
				got, err := load(data[:n])
				want := at[ends[whole]]
				if got.Size != want.Size || got.Edits != want.Edits || got.PendingGroup != want.PendingGroup || n%16 == 0 && same(want, got) != "" {
					t.Fatalf("cut at %d: %+v, want %+v", n, got, want)
				}
				switch clean := ends[whole] == n; {
				case err == nil:
					if !clean {
						t.Fatalf("cut at %d: not noticed", n)
					}
				case defect(t, err).Kind == manifest.Incomplete:
					if want.NextFile != 0 {
						t.Fatalf("cut at %d: %v", n, err)
					}
				case !defect(t, err).Partial() || clean:
					t.Fatalf("cut at %d: %v", n, err)
				}
			}
		})
	}
}

// A flipped byte is always noticed, never taken for a partial tail, and the
// State is that of an end before it.
func TestEveryFlipIsNoticed(t *testing.T) {
	t.Parallel()
	for name, data := range real(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, at := states(t, data)
			masks := []byte{0x01, 0x04, 0x40, 0xff}
			if rockstest.Race {
				masks = masks[:2]
			}
			bad := bytes.Clone(data)
			for i := range bad {
				for _, mask := range masks {
					bad[i] ^= mask
					got, err := load(bad)
					bad[i] ^= mask
					if e := defect(t, err); e.Partial() || e.Kind == manifest.Shrunk {
						t.Fatalf("byte %d ^ %#x: %v", i, mask, e)
					}
					want := at[got.Size]
					if want == nil || got.Size > int64(i) || got.Edits != want.Edits || i%16 == 0 && same(want, got) != "" && !got.PendingGroup {
						t.Fatalf("byte %d ^ %#x: State at %d: %+v", i, mask, got.Size, got)
					}
				}
			}
		})
	}
}

// The types at which RocksDB from 9.4 on never ends, in every record.
func TestTypeByteTrap(t *testing.T) {
	t.Parallel()
	for name, data := range real(t) {
		ends, at := states(t, data)
		for i, start := range ends[:len(ends)-1] {
			for _, kind := range []byte{5, 6, 7, 8, 11, 131} {
				bad := bytes.Clone(data)
				bad[start+6] = kind
				got, err := load(bad)
				re, ok := errors.AsType[*record.Error](err)
				if !ok || re.Kind != record.RecyclableInPlain || defect(t, err).Kind != manifest.Damaged || defect(t, err).Offset != start {
					t.Fatalf("%s: type %d in record %d: %v", name, kind, i, err)
				}
				if got.Size != at[start].Size {
					t.Fatalf("%s: type %d in record %d: read to %d, want %d", name, kind, i, got.Size, at[start].Size)
				}
			}
		}
	}
}

// An empty record, as RocksDB from 9 on writes one near the start, becomes
// "rest of the block unused" by one bit. RocksDB then opens without the rest.
func TestZeroedTypeOfAnEmptyRecord(t *testing.T) {
	t.Parallel()
	data := read(t, "testdata/truth/11.8.1-atomic/1/MANIFEST")
	at := 0
	r := record.NewReader(bytes.NewReader(data), 0, int64(len(data)))
	for {
		rec, err := r.Next()
		if err != nil {
			t.Fatal("there is no empty record")
		}
		if len(rec) == 0 {
			at = int(r.Start())
			break
		}
	}
	data[at+6] = 0
	_, err := load(data)
	re, ok := errors.AsType[*record.Error](err)
	if !ok || re.Kind != record.DirtyPadding || re.Offset != int64(at) {
		t.Errorf("got %v", err)
	}
}
