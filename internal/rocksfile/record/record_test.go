package record_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"streams-sidecar/internal/rocksfile/record"
	"streams-sidecar/internal/rocksfile/rockstest"
	"streams-sidecar/test/fixture"
)

const block = record.BlockSize

// read is everything that one reader returned.
type read struct {
	records []string
	starts  []int64
	offsets []int64 // the reader's Offset at the beginning and after each record
	err     error   // io.EOF or what else it ended with
}

func (r read) clean() bool { return errors.Is(r.err, io.EOF) }

func drain(t testing.TB, r *record.Reader) read {
	t.Helper()
	out := read{offsets: []int64{r.Offset()}}
	for {
		rec, err := r.Next()
		if err != nil {
			if _, again := r.Next(); !errors.Is(again, err) {
				t.Fatalf("Next returned %v, then %v", err, again)
			}
			out.err = err
			return out
		}
		out.records = append(out.records, string(rec))
		out.starts = append(out.starts, r.Start())
		out.offsets = append(out.offsets, r.Offset())
	}
}

func readAll(t testing.TB, log []byte) read {
	t.Helper()
	return drain(t, record.NewReader(bytes.NewReader(log), 0, int64(len(log))))
}

func defect(t testing.TB, err error) *record.Error {
	t.Helper()
	e, ok := errors.AsType[*record.Error](err)
	if !ok {
		t.Fatalf("got error %v, want a *record.Error", err)
	}
	return e
}

// write makes a log of records with these sizes and returns it with them.
func write(sizes ...int) (log []byte, records []string) {
	for i, n := range sizes {
		rec := strings.Repeat(string(rune('a'+i%26)), n)
		records = append(records, rec)
		log = rockstest.AppendRecord(log, []byte(rec))
	}
	return log, records
}

// layouts are record sizes that meet the edges of blocks.
var layouts = map[string][]int{
	"no record":                    nil,
	"one":                          {10},
	"empty ones":                   {0, 0, 5, 0},
	"fills the block":              {block - 7, 3},
	"leaves a trailer":             {block - 7 - 3, 3},
	"leaves the longest trailer":   {block - 7 - 6, 3},
	"leaves room for a header":     {block - 7 - 7, 3},
	"empty one in the last header": {block - 7 - 7, 0, 3},
	"crosses one block":            {100, block, 100},
	"crosses three blocks":         {100, 3*block + 5, 100},
	"ends with a block":            {100, block - 7 - 107},
	"many small ones":              slices.Repeat([]int{11}, 4000),
}

func TestReadsWhatWasWritten(t *testing.T) {
	t.Parallel()
	for name, sizes := range layouts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log, want := write(sizes...)
			got := readAll(t, log)
			if !got.clean() {
				t.Fatalf("ended with %v", got.err)
			}
			if diff := cmp.Diff(want, got.records); diff != "" {
				t.Errorf("records (-written +read):\n%s", diff)
			}
			if last := got.offsets[len(got.offsets)-1]; last != int64(len(log)) {
				t.Errorf("Offset at the end is %d, the log has %d bytes", last, len(log))
			}
		})
	}
}

func TestResumesAtEveryOffset(t *testing.T) {
	t.Parallel()
	for name, sizes := range layouts {
		if len(sizes) > 100 {
			sizes = sizes[:100]
		}
		log, _ := write(sizes...)
		whole := readAll(t, log)
		for i, at := range whole.offsets {
			got := drain(t, record.NewReader(bytes.NewReader(log), at, int64(len(log))))
			if !got.clean() || !slices.Equal(got.records, whole.records[i:]) || !slices.Equal(got.starts, whole.starts[i:]) {
				t.Errorf("%s: resumed at %d: %d records from %v, %v; want %d from %v", name, at,
					len(got.records), got.starts, got.err, len(whole.records)-i, whole.starts[i:])
			}
		}
	}
}

// A log that grows by any steps and is read on from Offset each time gives the
// same records as one that is read at once.
func TestFollowsAGrowingLog(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		var sizes []int
		for range 1 + rng.IntN(8) {
			sizes = append(sizes, rng.IntN(40)*rng.IntN(2000))
		}
		log, want := write(sizes...)
		var got []string
		at := int64(0)
		for end := 0; ; end = min(len(log), end+1+rng.IntN(40000)) {
			r := record.NewReader(bytes.NewReader(log[:end]), at, int64(end))
			part := drain(t, r)
			if !part.clean() && !defect(t, part.err).Tail() {
				t.Fatalf("sizes %v, read %d to %d: %v", sizes, at, end, part.err)
			}
			got = append(got, part.records...)
			at = r.Offset()
			if end == len(log) {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("sizes %v: followed %d records, wrote %d", sizes, len(got), len(want))
		}
	}
}

// A cut anywhere leaves a clean end or a tail, and exactly the whole records.
func TestCutAtEveryLength(t *testing.T) {
	t.Parallel()
	for _, sizes := range [][]int{{0, 10, 300, 5}, {block - 7 - 7 - 4, 20, 30}, {block - 30, 0, 60, 0}} {
		log, _ := write(sizes...)
		whole := readAll(t, log)
		from := max(0, len(log)-600)
		for n := from; n <= len(log); n++ {
			got := readAll(t, log[:n])
			last := got.offsets[len(got.offsets)-1]
			if !slices.Equal(got.records, whole.records[:len(got.records)]) || last > int64(n) ||
				len(got.records) < len(whole.records) && whole.offsets[len(got.records)+1] <= int64(n) {
				t.Fatalf("sizes %v cut at %d: %d records up to %d", sizes, n, len(got.records), last)
			}
			switch {
			case got.clean() && last == int64(n):
			case got.clean() && n%block == 0: // behind a whole trailer
			case !got.clean() && defect(t, got.err).Tail():
			default:
				t.Fatalf("sizes %v cut at %d: %v after %d", sizes, n, got.err, last)
			}
		}
	}
}

// A flipped byte is noticed, or it is one that carries nothing: of a trailer.
func TestEveryFlipIsNoticed(t *testing.T) {
	t.Parallel()
	log, _ := write(0, 40, block-7-7-47-7-4, 0, 30) // the first block ends with a trailer of 4 bytes
	whole := readAll(t, log)
	trailer := int64(block - 4)
	for i := range log {
		if i > 200 && int64(i) < trailer-50 {
			continue // the inside of the long record
		}
		for _, mask := range []byte{0x01, 0x80, 0xff} {
			log[i] ^= mask
			got := readAll(t, log)
			log[i] ^= mask
			switch {
			case got.clean() && slices.Equal(got.records, whole.records) && int64(i) >= trailer && i < block:
			case got.clean():
				t.Fatalf("byte %d ^ %#x: not noticed", i, mask)
			default:
				e := defect(t, got.err)
				if e.Tail() {
					t.Fatalf("byte %d ^ %#x: taken for a tail: %v", i, mask, e)
				}
				if !slices.Equal(got.records, whole.records[:len(got.records)]) {
					t.Fatalf("byte %d ^ %#x: other records before %v", i, mask, e)
				}
				if int64(i) < e.Offset || e.Offset < got.offsets[len(got.offsets)-1] {
					t.Fatalf("byte %d ^ %#x: %v is the wrong place", i, mask, e)
				}
			}
		}
	}
}

func TestDefects(t *testing.T) {
	t.Parallel()
	type want struct {
		Records                int
		Kind                   record.Kind
		Offset, Record, Resume int64
		LastBlock, Tail        bool
	}
	frag := rockstest.AppendFragment
	ab := func() []byte { return frag(nil, rockstest.Full, []byte("ab")) } // 9 bytes
	full := func(log []byte) []byte {                                      // fills the rest of the block
		return frag(log, rockstest.Full, make([]byte, block-len(log)%block-7))
	}
	tests := map[string]struct {
		log  []byte
		want want
	}{
		"header cut": {append(ab(), 1, 2, 3), want{1, record.TruncatedHeader, 9, 9, 12, true, true}},
		"header cut where a trailer would be": {
			append(frag(nil, rockstest.Full, make([]byte, block-7-5)), 0, 0),
			want{1, record.TruncatedHeader, block - 5, block - 5, block - 3, true, true}},
		"body cut":   {frag(ab(), rockstest.Full, []byte("cdef"))[:18], want{1, record.TruncatedBody, 9, 9, 18, true, true}},
		"First only": {frag(ab(), rockstest.First, []byte("cd")), want{1, record.TruncatedRecord, 18, 9, 18, true, true}},
		"First only, at the end of a block": {
			frag(ab(), rockstest.First, make([]byte, block-9-7)),
			want{1, record.TruncatedRecord, block, 9, block, true, true}},
		"header cut inside a record": {
			append(frag(nil, rockstest.First, []byte("cd")), 7),
			want{0, record.TruncatedHeader, 9, 0, 10, true, true}},
		"length beyond the block": {
			// 7 bytes of header and 65535 more do not fit into any block.
			full(append(ab(), 0, 0, 0, 0, 0xff, 0xff, 1)),
			want{1, record.BadLength, 9, 9, block, false, false}},
		"length beyond the last block": {
			append(ab(), 0, 0, 0, 0, 0xff, 0xff, 1, 2, 3),
			want{1, record.BadLength, 9, 9, 18, true, false}},
		"length too large by a bit, more records behind it": {
			func() []byte {
				log := frag(frag(ab(), rockstest.Full, []byte("cdef")), rockstest.Full, []byte("g"))
				log[9+5] |= 0x40
				return log
			}(),
			want{1, record.BadLength, 9, 9, 28, true, false}},
		"length too large by a bit, in the last record": {
			func() []byte {
				log := frag(ab(), rockstest.Full, []byte("cdef"))
				log[9+4] |= 0x10
				return log
			}(),
			want{1, record.BadLength, 9, 9, 20, true, false}},
		"checksum": {
			frag(append(ab(), 1, 0, 0, 0, 1, 0, 1, 'x'), rockstest.Full, []byte("y")),
			want{1, record.Checksum, 9, 9, 25, true, false}},
		"checksum inside a record": {
			append(frag(ab(), rockstest.First, []byte("x")), 1, 0, 0, 0, 1, 0, 4, 'x'),
			want{1, record.Checksum, 17, 9, 25, true, false}},
		"Last without First":   {frag(ab(), rockstest.Last, []byte("x")), want{1, record.UnexpectedType, 9, 9, 17, true, false}},
		"Middle without First": {frag(ab(), rockstest.Middle, []byte("x")), want{1, record.UnexpectedType, 9, 9, 17, true, false}},
		"Full inside a record": {
			frag(frag(ab(), rockstest.First, []byte("x")), rockstest.Full, []byte("y")),
			want{1, record.UnexpectedType, 17, 9, 17, true, false}},
		"First inside a record": {
			frag(frag(ab(), rockstest.First, []byte("x")), rockstest.First, []byte("y")),
			want{1, record.UnexpectedType, 17, 9, 17, true, false}},
		"unknown type":          {frag(ab(), 12, []byte("x")), want{1, record.UnknownType, 9, 9, 17, true, false}},
		"type zero with length": {frag(ab(), rockstest.Zero, []byte("x")), want{1, record.UnknownType, 9, 9, 17, true, false}},
		"ignorable type inside a record": {
			frag(frag(ab(), rockstest.First, []byte("x")), 200, nil),
			want{1, record.UnexpectedType, 17, 9, 24, true, false}},
		"compressed":      {frag(nil, rockstest.SetCompression, []byte{7, 0, 0, 0}), want{0, record.Compressed, 0, 0, 11, true, false}},
		"bad timestamps":  {frag(nil, rockstest.TimestampSize, []byte("12345")), want{0, record.BadMeta, 0, 0, 12, true, false}},
		"bad predecessor": {frag(nil, rockstest.PredecessorWAL, []byte("12345")), want{0, record.BadMeta, 0, 0, 12, true, false}},
		"predecessor inside a record": {
			frag(frag(nil, rockstest.First, []byte("x")), rockstest.PredecessorWAL, make([]byte, 24)),
			want{0, record.UnexpectedType, 8, 0, 39, true, false}},
		"zeros inside a record, to the end of the file": {
			append(frag(ab(), rockstest.First, []byte("x")), make([]byte, 50)...),
			want{1, record.ZerosInRecord, 17, 9, 67, true, false}},
		"zeroed block inside a record": {
			frag(append(frag(ab(), rockstest.First, make([]byte, block-9-7)), make([]byte, block)...), rockstest.Last, []byte("z")),
			want{1, record.ZerosInRecord, block, 9, 2 * block, false, false}},
		"a record hidden behind a zero header": {
			frag(append(ab(), make([]byte, 7)...), rockstest.Full, []byte("x")),
			want{1, record.DirtyPadding, 9, 9, 24, true, false}},
		"an empty record whose type became zero": {
			frag(append(ab(), 1, 2, 3, 4, 0, 0, 0), rockstest.Full, []byte("x")),
			want{1, record.DirtyPadding, 9, 9, 24, true, false}},
		"recycled type first":  {rockstest.AppendRecycled(nil, 0, []byte("x")), want{0, record.RecyclableInPlain, 0, 0, 0, true, false}},
		"recycled type second": {rockstest.AppendRecycled(ab(), 0, []byte("x")), want{1, record.RecyclableInPlain, 9, 9, 9, true, false}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := readAll(t, test.log)
			e := defect(t, got.err)
			have := want{len(got.records), e.Kind, e.Offset, e.Record, e.Resume, e.LastBlock, e.Tail()}
			if diff := cmp.Diff(test.want, have); diff != "" {
				t.Errorf("%v (-want +got):\n%s", e, diff)
			}
			if e.Expected == "" || e.Found == "" || strings.HasPrefix(e.Kind.String(), "kind ") {
				t.Errorf("says too little: %q", e)
			}
		})
	}
}

// What RocksDB passes over without a word, and rightly so.
func TestPassesOver(t *testing.T) {
	t.Parallel()
	frag := rockstest.AppendFragment
	x := func(log []byte) []byte { return frag(log, rockstest.Full, []byte("x")) }
	block1 := func(log []byte) []byte { return append(log, make([]byte, block-len(log)%block)...) }
	tests := map[string]struct {
		log  []byte
		want int // records
	}{
		"zeros to the end of the file":      {append(x(nil), make([]byte, 3000)...), 1},
		"whole blocks of zeros":             {append(x(nil), make([]byte, 3*block)...), 1},
		"a record in the block after zeros": {x(block1(x(nil))), 2},
		"a file of zeros":                   {make([]byte, 100000), 0},
		"timestamp sizes":                   {x(frag(nil, rockstest.TimestampSize, make([]byte, 12))), 1},
		"predecessor":                       {x(frag(nil, rockstest.PredecessorWAL, make([]byte, 24))), 1},
		"an ignorable type of the future":   {x(frag(x(nil), 200, []byte("future"))), 2},
		"a First without payload, then the record anew": {
			x(frag(nil, rockstest.First, nil)), 1},
		"a First without payload, twice": {
			frag(frag(frag(nil, rockstest.First, nil), rockstest.First, []byte("a")), rockstest.Last, []byte("b")), 1},
	}
	for name, test := range tests {
		if got := readAll(t, test.log); !got.clean() || len(got.records) != test.want {
			t.Errorf("%s: %d records, %v", name, len(got.records), got.err)
		}
	}
}

// Zeros behind the last record may be filled in later: the place to resume
// stays before them.
func TestOffsetStaysBeforeUnusedSpace(t *testing.T) {
	t.Parallel()
	log, _ := write(10)
	r := record.NewReader(bytes.NewReader(append(log, make([]byte, 100)...)), 0, int64(len(log))+100)
	if got := drain(t, r); !got.clean() || r.Offset() != int64(len(log)) {
		t.Errorf("Offset is %d, want %d (%v)", r.Offset(), len(log), got.err)
	}
}

func TestTypeByteTrapEndsAtOnce(t *testing.T) {
	t.Parallel()
	log, want := write(0, 5, 50, block, 7)
	starts := readAll(t, log).starts
	for i, at := range starts {
		for _, trap := range []byte{5, 6, 7, 8, 11, 131} {
			bad := bytes.Clone(log)
			bad[at+6] = trap
			got := readAll(t, bad)
			if e := defect(t, got.err); e.Kind != record.RecyclableInPlain || e.Offset != at || !slices.Equal(got.records, want[:i]) {
				t.Errorf("type %d in record %d: %v after %d records", trap, i, e, len(got.records))
			}
		}
	}
}

func TestRecycledLog(t *testing.T) {
	t.Parallel()
	const number = 7
	open := func(log []byte, at int64, resumed bool) *record.Reader {
		r := record.NewReader(bytes.NewReader(log), at, int64(len(log)))
		r.AllowRecycled(number, resumed)
		return r
	}
	var log []byte
	var want []string
	for i, n := range []int{0, 20, 2*block + 3, block - 150, 9, 40} {
		rec := strings.Repeat(string(rune('a'+i)), n)
		want = append(want, rec)
		log = rockstest.AppendRecycled(log, number, []byte(rec))
	}
	end := int64(len(log))
	whole := drain(t, open(log, 0, false))
	if !whole.clean() || !slices.Equal(whole.records, want) {
		t.Fatalf("read %d of %d records, %v", len(whole.records), len(want), whole.err)
	}
	for i, at := range whole.offsets {
		if got := drain(t, open(log, at, at > 0)); !got.clean() || !slices.Equal(got.records, want[i:]) {
			t.Errorf("resumed at %d: %d records, %v", at, len(got.records), got.err)
		}
	}

	// What is left of the file's former life is its end.
	old := rockstest.AppendRecycled(bytes.Clone(log), number-1, []byte("old"))
	r := open(old, 0, false)
	got := drain(t, r)
	if e := defect(t, got.err); e.Kind != record.OldRecord || e.Offset != end || !e.Tail() || !r.Recycled() || r.Offset() != end {
		t.Errorf("old record: %v", e)
	}

	// Records of both forms in one file: only a log that began recycled may
	// have them.
	plainFirst := rockstest.AppendRecycled(rockstest.AppendRecord(nil, []byte("a")), number, []byte("b"))
	if e := defect(t, drain(t, open(plainFirst, 0, false)).err); e.Kind != record.RecyclableInPlain || e.Offset != 8 {
		t.Errorf("recycled after plain: %v", e)
	}
	if e := defect(t, drain(t, open(plainFirst, 8, false)).err); e.Kind != record.RecyclableInPlain || e.Offset != 8 {
		t.Errorf("recycled after plain, resumed: %v", e)
	}
	recycledFirst := rockstest.AppendRecord(rockstest.AppendRecycled(nil, number, []byte("a")), []byte("b"))
	if got := drain(t, open(recycledFirst, 0, false)); !got.clean() || len(got.records) != 2 {
		t.Errorf("plain after recycled: %d records, %v", len(got.records), got.err)
	}

	// Its meta records have the longer header too.
	meta := rockstest.AppendRecycledFragment(nil, rockstest.RecycledTSSize, number, make([]byte, 6))
	meta = rockstest.AppendRecycledFragment(meta, rockstest.RecycledPredWAL, number, make([]byte, 24))
	meta = rockstest.AppendRecycled(meta, number, []byte("a"))
	if got := drain(t, open(meta, 0, false)); !got.clean() || !slices.Equal(got.records, []string{"a"}) {
		t.Errorf("meta records: %q, %v", got.records, got.err)
	}

	for n := range end {
		if got := drain(t, open(log[:n], 0, false)); !got.clean() && !defect(t, got.err).Tail() {
			t.Fatalf("cut at %d: %v", n, got.err)
		}
		if n == 60 { // the inside of the long record says nothing new
			break
		}
	}
}

// The logs of real stores, with their own writers: MANIFESTs of five versions
// and write-ahead logs, which a custom store can have, over several blocks.
func TestRealLogs(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		version, name  string
		logs, fragment int // write-ahead logs that are not empty, and those with a record over two blocks
		garbage        bool
	}{
		{version: "2.8.2", name: "wal-on-killed9", logs: 4, fragment: 4},
		{version: "3.9.1", name: "wal-on-killed9-rotating", logs: 1, fragment: 1},
		{version: "3.9.1", name: "corrupt-alos-wal-garbage", logs: 1, garbage: true},
		{version: "4.2.2", name: "killed9-eos-uncommitted-flushed"},
		{version: "4.4.0", name: "wal-on-killed9", logs: 4, fragment: 4},
		{version: "4.4.0", name: "closed-clean"},
	} {
		logs, fragmented, manifests := 0, 0, 0
		err := filepath.WalkDir(fixture.Unpack(t, test.version, test.name), func(path string, d fs.DirEntry, err error) error {
			wal, manifest := filepath.Ext(path) == ".log", strings.HasPrefix(d.Name(), "MANIFEST-")
			if err != nil || !wal && !manifest {
				return err
			}
			log, err := os.ReadFile(path)
			if err != nil || len(log) == 0 {
				return err
			}
			got := readAll(t, log)
			if manifest {
				manifests++
			} else {
				logs++
			}
			last := got.offsets[len(got.offsets)-1]
			if wal && test.garbage {
				if e := defect(t, got.err); e.Offset != 0 { // what it looks like is chance
					t.Errorf("%s: garbage ends with %v", path, e)
				}
			} else if !got.clean() || last != int64(len(log)) || len(got.records) == 0 {
				t.Errorf("%s: %d records to %d of %d, %v", path, len(got.records), last, len(log), got.err)
			}
			for i, start := range got.starts {
				if wal && start/block != (got.offsets[i+1]-1)/block {
					fragmented++
					break
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if logs != test.logs || fragmented != test.fragment || manifests == 0 {
			t.Errorf("%s/%s: %d logs, %d fragmented, %d MANIFESTs", test.version, test.name, logs, fragmented, manifests)
		}
	}
}

// source counts what is asked of it, and can fail.
type source struct {
	data   []byte
	reads  []string
	failAt int64 // offset from which on it fails; 0 for never
}

var errDisk = errors.New("the disk is gone")

func (s *source) ReadAt(p []byte, off int64) (int, error) {
	s.reads = append(s.reads, fmt.Sprintf("%d+%d", off, len(p)))
	if s.failAt > 0 && off >= s.failAt {
		return 0, errDisk
	}
	n := copy(p, s.data[min(int(off), len(s.data)):])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func TestReadsEachBlockOnceAndNothingBehindSize(t *testing.T) {
	t.Parallel()
	log, _ := write(100, 2*block, 100)
	size := int64(len(log))
	for _, test := range []struct {
		start, size int64
		want        []string
	}{
		{0, size, []string{"0+32768", "32768+32768", fmt.Sprintf("65536+%d", size-65536)}},
		{107, size, []string{"107+32661", "32768+32768", fmt.Sprintf("65536+%d", size-65536)}},
		{0, 50, []string{"0+50"}},
		{0, 0, nil},
		{size, size, nil},
		{size, size - 10, nil},
	} {
		src := &source{data: log}
		drain(t, record.NewReader(src, test.start, test.size))
		if diff := cmp.Diff(test.want, src.reads); diff != "" {
			t.Errorf("from %d, size %d (-want +got):\n%s", test.start, test.size, diff)
		}
	}
}

func TestErrorsOfTheFileAreNoDefects(t *testing.T) {
	t.Parallel()
	log, want := write(100, block, 100)
	got := drain(t, record.NewReader(&source{data: log, failAt: block}, 0, int64(len(log))))
	if _, typed := errors.AsType[*record.Error](got.err); typed || !errors.Is(got.err, errDisk) || !strings.Contains(got.err.Error(), "32768") {
		t.Errorf("got %v", got.err)
	}
	if !slices.Equal(got.records, want[:1]) {
		t.Errorf("%d records before it", len(got.records))
	}
}

func TestAFileThatShrankEndsWhereItEnds(t *testing.T) {
	t.Parallel()
	log, want := write(100, 100, 100)
	got := drain(t, record.NewReader(bytes.NewReader(log[:250]), 0, int64(len(log))))
	if e := defect(t, got.err); e.Kind != record.TruncatedBody || !slices.Equal(got.records, want[:2]) {
		t.Errorf("%d records, then %v", len(got.records), e)
	}
}

// endless is a log with one record that never ends.
type endless struct{ first, middle []byte }

func (e endless) ReadAt(p []byte, off int64) (int, error) {
	if off == 0 {
		return copy(p, e.first), nil
	}
	return copy(p, e.middle), nil
}

func TestARecordHasABound(t *testing.T) {
	t.Parallel()
	payload := make([]byte, block-7)
	src := endless{rockstest.AppendFragment(nil, rockstest.First, payload), rockstest.AppendFragment(nil, rockstest.Middle, payload)}
	const bound = 20 * (block - 7)
	r := record.NewReader(src, 0, 1<<40)
	r.SetMaxRecord(bound)
	_, err := r.Next()
	e := defect(t, err)
	if e.Kind != record.TooLong || e.Tail() || e.Record != 0 || e.Offset != 20*block {
		t.Errorf("got %v", e)
	}
}
