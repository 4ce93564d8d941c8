package record_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"streams-sidecar/internal/rocksfile/record"
	"streams-sidecar/internal/rocksfile/rockstest"
)

// FuzzReader checks what must hold for any bytes: the reader ends, at a place
// inside the file, and resuming at any of its offsets changes nothing.
func FuzzReader(f *testing.F) {
	for _, sizes := range [][]int{nil, {0}, {1, 2, 3}, {100, 0, 40}} {
		log, _ := write(sizes...)
		f.Add(log, false)
		f.Add(append(log, 0, 0, 0), true)
	}
	f.Fuzz(func(t *testing.T, log []byte, recycled bool) {
		open := func(at int64, resumed bool) *record.Reader {
			r := record.NewReader(bytes.NewReader(log), at, int64(len(log)))
			if recycled {
				r.AllowRecycled(0, resumed)
			}
			return r
		}
		r := open(0, false)
		whole := drain(t, r)
		total := 0
		for i, rec := range whole.records {
			total += len(rec)
			if whole.starts[i] < whole.offsets[i] || whole.offsets[i+1] < whole.starts[i]+7 {
				t.Fatalf("record %d starts at %d, offsets %v", i, whole.starts[i], whole.offsets[i:i+2])
			}
		}
		end := whole.offsets[len(whole.offsets)-1]
		if total > len(log) || end > int64(len(log)) {
			t.Fatalf("%d bytes of records up to %d in %d bytes", total, end, len(log))
		}
		if !whole.clean() {
			e := defect(t, whole.err)
			if e.Record < end || e.Offset < e.Record || e.Resume < e.Offset || e.Resume > int64(len(log)) {
				t.Fatalf("%#v after %d", e, end)
			}
			if e.Resume == e.Offset && e.Kind != record.RecyclableInPlain && e.Record == e.Offset {
				t.Fatalf("%#v: a reader that skips would never end", e)
			}
		}
		for i, at := range whole.offsets {
			got := drain(t, open(at, at > 0 && r.Recycled()))
			if !slices.Equal(got.records, whole.records[i:]) || !sameEnd(got.err, whole.err) {
				t.Fatalf("resumed at %d: %d records, %v; want %d, %v", at, len(got.records), got.err, len(whole.records)-i, whole.err)
			}
		}
	})
}

func sameEnd(a, b error) bool {
	x, ok := errors.AsType[*record.Error](a)
	y, ok2 := errors.AsType[*record.Error](b)
	return ok && ok2 && *x == *y || !ok && !ok2 && errors.Is(a, b)
}

// worstCases are logs of up to 1 MiB (less under the race detector) that cost as much as a log can.
func worstCases() map[string][]byte {
	size := 1 << 20
	if rockstest.Race {
		size = 1 << 16
	}
	fill := func(add func([]byte) []byte) []byte {
		var log []byte
		for {
			next := add(log)
			if len(next) > size {
				return log
			}
			log = next
		}
	}
	emptyMiddles := rockstest.AppendFragment(nil, rockstest.First, []byte("x"))
	for len(emptyMiddles)+7 <= size {
		if room := block - len(emptyMiddles)%block; room < 7 {
			emptyMiddles = append(emptyMiddles, make([]byte, room)...)
			continue
		}
		emptyMiddles = rockstest.AppendFragment(emptyMiddles, rockstest.Middle, nil)
	}
	one := rockstest.AppendRecord(nil, make([]byte, size-(size/block+1)*7))
	noise := make([]byte, size)
	for i := range noise {
		noise[i] = byte(i * i >> 3)
	}
	return map[string][]byte{
		"empty records":   fill(func(l []byte) []byte { return rockstest.AppendRecord(l, nil) }),
		"one record":      one,
		"a First anew":    fill(func(l []byte) []byte { return rockstest.AppendRecord(l, make([]byte, block)) }),
		"empty fragments": emptyMiddles,
		"skipped records": fill(func(l []byte) []byte {
			if room := block - len(l)%block; room < 7 {
				l = append(l, make([]byte, room)...)
			}
			return rockstest.AppendFragment(l, 200, nil)
		}),
		"zeros": make([]byte, size),
		"noise": noise,
	}
}

func TestCostIsBounded(t *testing.T) {
	const limit = 100 * time.Millisecond
	for name, log := range worstCases() {
		spent, allocated := rockstest.Cost(limit/2, func() {
			r := record.NewReader(bytes.NewReader(log), 0, int64(len(log)))
			for {
				if _, err := r.Next(); err != nil {
					return
				}
			}
		})
		if spent > limit {
			t.Errorf("%s: %d bytes took %v", name, len(log), spent)
		}
		if allocated > uint64(6*len(log)+64<<10) {
			t.Errorf("%s: %d bytes allocated for %d", name, allocated, len(log))
		}
	}
}

func BenchmarkReader(b *testing.B) {
	log, _ := write(slices.Repeat([]int{150}, 1000)...)
	b.SetBytes(int64(len(log)))
	b.ReportAllocs()
	for b.Loop() {
		r := record.NewReader(bytes.NewReader(log), 0, int64(len(log)))
		for {
			if _, err := r.Next(); err != nil {
				if !errors.Is(err, io.EOF) {
					b.Fatal(err)
				}
				break
			}
		}
	}
}
