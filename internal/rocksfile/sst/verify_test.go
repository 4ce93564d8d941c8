package sst_test

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"streams-sidecar/internal/rocksfile/sst"
	"streams-sidecar/test/fixture"
)

func verify(t testing.TB, table *sst.Table, depth sst.Depth) *sst.Verification {
	t.Helper()
	v, err := table.Verify(depth)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// checkVerified holds a healthy table's verification against its entries and
// its properties.
func checkVerified(t *testing.T, name string, data []byte) {
	t.Helper()
	table := openBytes(t, data)
	p := table.Properties()
	want := sst.Verification{DataBlocks: p.DataBlocks, IndexPartitions: p.IndexPartitions, SmallestSequence: math.MaxUint64}
	all := entries(t, table)
	for _, e := range all {
		want.RawKeySize += uint64(len(e.Key)) + 8
		want.RawValueSize += uint64(len(e.Value))
		want.SmallestSequence = min(want.SmallestSequence, e.Sequence)
		want.LargestSequence = max(want.LargestSequence, e.Sequence)
		if e.Type == sst.RangeDeletion {
			want.RangeDeletions++
			if want.SmallestRangeStart == nil {
				want.SmallestRangeStart = e.Key
			}
			if bytes.Compare(e.Value, want.LargestRangeEnd) > 0 {
				want.LargestRangeEnd = e.Value
			}
			continue
		}
		if want.Entries++; want.Entries == 1 {
			want.Smallest = e.Key
		}
		want.Largest = e.Key
		switch e.Type {
		case sst.Deletion, sst.SingleDeletion, sst.DeletionWithTimestamp:
			want.Deletions++
		case sst.Merge:
			want.MergeOperands++
		}
	}
	got := verify(t, table, sst.Entries)
	if table.HasDictionary() { // see Verify's comparison with the properties
		want.DataBlocks = got.DataBlocks
	}
	want.Blocks, want.Bytes = got.Blocks, got.Bytes
	if diff := cmp.Diff(&want, got); diff != "" {
		t.Errorf("%s: (-Each, +Verify)\n%s", name, diff)
	}
	// All bytes but the footer and the padding are in blocks.
	if foot := uint64(len(data)) - got.Bytes; foot != 48 && foot != 53 {
		t.Errorf("%s: %d of %d bytes in blocks", name, got.Bytes, len(data))
	}
	shallow := verify(t, table, sst.Checksums)
	if diff := cmp.Diff(&sst.Verification{Blocks: got.Blocks, Bytes: got.Bytes, DataBlocks: got.DataBlocks,
		IndexPartitions: got.IndexPartitions}, shallow); diff != "" {
		t.Errorf("%s: checksums alone: %s", name, diff)
	}
}

func TestVerifyOfHealthyTables(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob(filepath.Join("testdata", "*", "*.sst"))
	if err != nil || len(names) < 30 {
		t.Fatal(names, err)
	}
	for _, n := range names {
		data, err := os.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		checkVerified(t, filepath.Base(n), data)
	}
	for _, n := range fixture.Names() {
		if n.Case != "corrupt-base-alos" && n.Case != "closed-eos" || sst.RaceDetector && n.Version != "4.4.0" {
			continue
		}
		for file, data := range tables(t, n.Version, n.Case) {
			if path.Ext(file) == ".sst" {
				checkVerified(t, n.String()+" "+file, data)
			}
		}
	}
}

// mutations are files that a flip, a cut, a zeroing or a swap makes of a table
// with checksums, by the range of bytes that is no longer what it was. Only
// bytes of blocks are changed.
func mutations(t testing.TB, data []byte, visit func(what string, changed []byte, from, to int)) {
	t.Helper()
	table := openBytes(t, data)
	end := len(data) - table.FooterSize()
	work := bytes.Clone(data)
	try := func(what string, from, to int) {
		if !bytes.Equal(work, data) {
			visit(what, work, from, to)
		}
		copy(work, data)
	}
	steps := 250
	if sst.RaceDetector {
		steps = 8
	}
	step := max(1, end/steps)
	for i := 0; i < end; i += step {
		work[i] ^= 1 << (i / step % 8)
		try("flip", i, i+1)
		to := min(end, i+37)
		clear(work[i:to])
		try("zero", i, to)
	}
	for i := 0; i < len(data); i += 2 * step {
		visit("cut", data[:i], i, len(data))
	}
	blocks := table.DataBlocks(t)
	for i := 0; i < len(blocks); i += max(1, len(blocks)/steps) {
		for j := i + 1; j < len(blocks) && j < i+4; j++ {
			a, b := blocks[i], blocks[j]
			if a[1]-a[0] == b[1]-b[0] {
				copy(work[a[0]:a[1]], data[b[0]:b[1]])
				copy(work[b[0]:b[1]], data[a[0]:a[1]])
				try("swap", int(a[0]), int(b[1]))
			}
		}
	}
}

// checkMutations wants each to be found, and the block that is named to be the
// one that was changed.
func checkMutations(t *testing.T, name string, data []byte) (tried int) {
	t.Helper()
	bytewise := openBytes(t, data).Properties().Comparator == sst.Bytewise
	mutations(t, data, func(what string, changed []byte, from, to int) {
		tried++
		table, err := sst.Open(bytes.NewReader(changed), int64(len(changed)))
		if err != nil {
			if e, ok := errors.AsType[*sst.Error](err); !ok || e.Offset < 0 || e.Offset > int64(len(changed)) {
				t.Errorf("%s: %s at %d: %v", name, what, from, err)
			}
			return
		}
		if what == "cut" {
			t.Errorf("%s: cut at %d: opens", name, from)
			return
		}
		depths := []sst.Depth{sst.Checksums, sst.Entries}
		if what == "swap" && table.FormatVersion() < 6 {
			// The checksums know no place: the order of the keys does.
			if !bytewise {
				return
			}
		}
		for _, depth := range depths {
			v := verify(t, table, depth)
			if len(v.Errors) == 0 {
				t.Errorf("%s: %s from %d to %d is not found at depth %d", name, what, from, to, depth)
				continue
			}
			for _, e := range v.Errors {
				if e.Offset < 0 || e.Offset > int64(len(changed)) || e.Part == "" {
					t.Errorf("%s: %s from %d to %d: %v", name, what, from, to, e)
				}
				if e.Kind == sst.BlockChecksum && (e.Offset >= int64(to) || e.Offset+e.Size+5 <= int64(from)) {
					t.Errorf("%s: %s from %d to %d: another block: %v", name, what, from, to, e)
				}
			}
		}
	})
	return tried
}

func TestVerifyFindsMutations(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"made/v1-xxhash32-rocksdb5", "made/v2-crc32c", "made/v3-xxhash64", "made/v4-delta-hash-rocksdb5",
		"made/v5-xxh3-partitioned", "made/v6-crc32c-firstkey", "made/v6-sizes", "made/v7-xxh3-mixed-partitioned",
		"made/v7-separated-rocksdb11", "made/reverse-v6", "compressed/v1-zlib", "compressed/v4-bzip2", "compressed/v5-lz4-samples",
		"compressed/v6-zstd-trained", "compressed/v7-lz4hc-first-key"} {
		if sst.RaceDetector && strings.Contains(name, "bzip2") {
			continue // slow
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(filepath.Join("testdata", name+".sst"))
			if err != nil {
				t.Fatal(err)
			}
			if n := checkMutations(t, name, data); n < 500 && !sst.RaceDetector {
				t.Errorf("%s: only %d mutations", name, n)
			}
		})
	}
}

func TestVerifyGoesOnBehindABadBlock(t *testing.T) {
	t.Parallel()
	data := made(t, "v5-xxh3-partitioned.sst")
	blocks := openBytes(t, data).DataBlocks(t)
	if len(blocks) < 5 {
		t.Fatal(blocks)
	}
	for i, b := range blocks {
		if i%2 == 1 {
			data[b[0]] ^= 1
		}
	}
	for _, depth := range []sst.Depth{sst.Checksums, sst.Entries} {
		v := verify(t, openBytes(t, data), depth)
		if len(v.Errors) != len(blocks)/2 || v.DataBlocks != uint64(len(blocks)) {
			t.Errorf("%d errors in %d blocks, want %d in %d", len(v.Errors), v.DataBlocks, len(blocks)/2, len(blocks))
		}
		for i, e := range v.Errors {
			if b := blocks[2*i+1]; e.Kind != sst.BlockChecksum || e.Part != "data block" || uint64(e.Offset) != b[0] || uint64(e.Size) != b[1]-b[0]-5 {
				t.Errorf("%v, want the block at %d", e, b[0])
			}
		}
	}
}

// TestVerifyBoundsWhatItKeeps: of a table that is bad all over.
func TestVerifyBoundsWhatItKeeps(t *testing.T) {
	t.Parallel()
	data, n := bytes.Clone(largestTable(t)), uint64(0)
	table := openBytes(t, data)
	for _, b := range table.DataBlocks(t) {
		data[b[0]+1] ^= 1
		n++
	}
	v := verify(t, table, sst.Checksums)
	if want := min(n, 100); uint64(len(v.Errors)) != want || v.MoreErrors != n-want {
		t.Errorf("%d errors and %d more of %d", len(v.Errors), v.MoreErrors, n)
	}
}

// largestTable of a fixture: not to be changed.
func largestTable(t testing.TB) (largest []byte) {
	t.Helper()
	for file, data := range tables(t, "4.4.0", "corrupt-base-alos") {
		if path.Ext(file) == ".sst" && len(data) > len(largest) {
			largest = data
		}
	}
	return largest
}

// TestVerifyPassesErrorsOfTheSourceOn at whatever read they come, with what was
// found before.
func TestVerifyPassesErrorsOfTheSourceOn(t *testing.T) {
	t.Parallel()
	eio := errors.New("input/output error")
	data := made(t, "v5-xxh3-partitioned.sst")
	for n := 1; ; n++ {
		src := &broken{ReaderAt: bytes.NewReader(data), n: math.MaxInt, err: eio}
		table, err := sst.Open(src, int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		src.n = n - 1
		v, err := table.Verify(sst.Entries)
		if err == nil && n > 3 {
			if len(v.Errors) > 0 {
				t.Error(v.Errors)
			}
			break
		}
		if err != eio || v == nil { //nolint:errorlint // as it is, is promised
			t.Fatalf("%v after %d reads", err, n)
		}
	}
	// It shrinks meanwhile: that is said once.
	src := &broken{ReaderAt: bytes.NewReader(data), n: math.MaxInt}
	table, err := sst.Open(src, int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	src.ReaderAt = bytes.NewReader(data[:100])
	v, err := table.Verify(sst.Entries)
	if err != nil || len(v.Errors) == 0 || v.Errors[0].Kind != sst.TooShort {
		t.Errorf("%+v, %v", v, err)
	}
}

// broken answers err for every read after the first n.
type broken struct {
	io.ReaderAt
	n   int
	err error
}

func (f *broken) ReadAt(p []byte, off int64) (int, error) {
	if f.n--; f.n < 0 {
		return 0, f.err
	}
	return f.ReaderAt.ReadAt(p, off)
}
