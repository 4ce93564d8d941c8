package manifest_test

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"streams-sidecar/internal/rocksfile/manifest"
	"streams-sidecar/internal/rocksfile/rockstest"
)

// seeds of the fuzzers, beside the real ones in testdata/fuzz.
func seeds() [][]byte {
	return [][]byte{
		nil,
		rockstest.Manifest(head()),
		rockstest.Manifest(rockstest.History(3, 2)...),
		rockstest.Manifest(head(), event().Group(1), event().Delete(0, 9).Group(0)),
		rockstest.Manifest(head(), event().AddWAL(5, 10).DeleteWALsBefore(4), event().AddBlob(7, 1, 1).BlobGarbage(7, 1, 1)),
		rockstest.Manifest(head(), event().AddOld(7, file{Number: 9}).AddOld(100, file{Number: 10}).AddOld(102, file{Number: 11}), event().Delete(0, 9)),
		rockstest.Manifest(head(), event().AddFamily(1, "a"), event().DropFamily(1), event().Field(9000, "x")),
	}
}

// check says what must hold of every answer.
func check(t *testing.T, s *manifest.State, err error, size int) {
	t.Helper()
	if s == nil {
		t.Fatal("no State")
	}
	if s.Size < 0 || s.Size > int64(size) || len(s.Families) == 0 || s.Families[0].ID != 0 {
		t.Fatalf("%+v of %d bytes", s, size)
	}
	for i, f := range s.Families {
		if i > 0 && f.ID <= s.Families[i-1].ID {
			t.Fatalf("families not in order: %+v", s.Families)
		}
		for j, file := range f.Files {
			if file.Level < 0 || file.PathID > 3 || j > 0 && (file.Level < f.Files[j-1].Level ||
				file.Level == f.Files[j-1].Level && file.Number <= f.Files[j-1].Number) {
				t.Fatalf("files not in order: %+v", f.Files)
			}
		}
	}
	if err == nil {
		return
	}
	e, ok := errors.AsType[*manifest.Error](err)
	if !ok || e.Offset < 0 || e.Offset > int64(size) || strings.HasPrefix(e.Kind.String(), "kind ") || e.Expected == "" || e.Found == "" {
		t.Fatalf("%v", err)
	}
}

// checkReplaced: whatever the bytes are, the answer is about what was asked.
func checkReplaced(t *testing.T, data []byte, s *manifest.State) {
	t.Helper()
	numbers := map[uint64]bool{}
	for n := range uint64(64) {
		numbers[n] = true
	}
	got, err := manifest.Replaced(bytes.NewReader(data), s.Size, numbers)
	if err != nil {
		t.Fatal(err)
	}
	for n := range got {
		if !numbers[n] {
			t.Fatalf("table %d, which was not asked for", n)
		}
	}
}

func FuzzLoad(f *testing.F) {
	for _, s := range seeds() {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := load(data)
		check(t, s, err, len(data))
		checkReplaced(t, data, s)
		// What is in the State is whole: read to there, it is the same.
		again, err := load(data[:s.Size])
		if err != nil && defect(t, err).Kind != manifest.Incomplete {
			t.Fatalf("read to %d of %d: %v", s.Size, len(data), err)
		}
		pending := *s
		pending.PendingGroup = false
		if diff := same(&pending, again); diff != "" {
			t.Fatalf("read to %d of %d (-all +again):\n%s", s.Size, len(data), diff)
		}
	})
}

// FuzzEdits lets the fuzzer work on the edits themselves, which it could not
// change without breaking their checksums.
func FuzzEdits(f *testing.F) {
	for i := range 8 {
		e := rockstest.History(3, 4)
		f.Add([]byte(e[i%len(e)]), []byte(e[(i*3)%len(e)]), []byte(event().Delete(0, 8).Group(1)))
	}
	f.Fuzz(func(t *testing.T, a, b, c []byte) {
		base := []edit{head(), event().AddFamily(1, "x"), event().LogNumber(4).Add(file{Number: 8, Size: 1})}
		data := rockstest.Manifest(append(base, a, b, c, b)...)
		s, err := load(data)
		check(t, s, err, len(data))
		followAll(t, data, []int{len(data) / 3, len(data) / 2, len(data) * 3 / 4})
	})
}

func FuzzFollow(f *testing.F) {
	for i, s := range seeds() {
		f.Add(s, uint16(i*37), uint16(i*91))
	}
	f.Fuzz(func(t *testing.T, data []byte, x, y uint16) {
		x, y = min(x, y), max(x, y)
		followAll(t, data, []int{min(int(x), len(data)), min(int(y), len(data))})
	})
}

// followAll reads data in steps and compares each with a Load. Once a step has
// met damage there is nothing more to follow.
func followAll(t *testing.T, data []byte, steps []int) {
	t.Helper()
	s, _ := load(nil)
	for _, end := range append(steps, len(data)) {
		before := *s
		want, wantErr := load(data[:end])
		next, err := s.Follow(bytes.NewReader(data[:end]), int64(end))
		if !reflect.DeepEqual(&before, s) {
			t.Fatalf("Follow to %d changed the State", end)
		}
		check(t, next, err, end)
		if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
			t.Fatalf("to %d: followed %v, loaded %v", end, err, wantErr)
		}
		if diff := same(want, next); diff != "" {
			t.Fatalf("to %d (-loaded +followed):\n%s", end, diff)
		}
		s = next
	}
}

func FuzzParseCurrent(f *testing.F) {
	for _, s := range []string{"MANIFEST-000005\n", "", "\x00\x00", "MANIFEST-000005", "MANIFEST-99999999999999999999\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		name, number, err := manifest.ParseCurrent(data)
		if err != nil {
			if name != "" || err.Error() == "" || len(err.Error()) > 300 {
				t.Fatalf("%q, %v", name, err)
			}
			return
		}
		if name+"\n" != string(data) || number < 1e6 && len(name) == len("MANIFEST-000000") && name != manifest.Name(number) {
			t.Fatalf("%q, %d from %q", name, number, data)
		}
	})
}

// worstCases are MANIFESTs of up to 1 MiB (less under the race detector) that
// cost as much as one can.
func worstCases() map[string][]byte {
	size := 1 << 20
	if rockstest.Race {
		size = 1 << 16
	}
	// fill makes edits as long as they fit.
	fill := func(make func(i int) edit) []byte {
		data := rockstest.Manifest(head())
		for i := 0; ; i++ {
			next := rockstest.AppendRecord(data, make(i))
			if len(next) > size {
				return data
			}
			data = next
		}
	}
	// one makes a single edit of many parts.
	one := func(first, e edit, part func(e edit, i int) edit) []byte {
		for i := 0; len(first)+len(e) < size-size/4000-100; i++ {
			e = part(e, i)
		}
		return rockstest.Manifest(head(), first, e)
	}
	tiny := func(level int, number uint64) file {
		return file{Level: level, Number: number, Smallest: "a", Largest: "a"}
	}
	scattered := func(i int) uint64 { return uint64(i)*2654435761%(1<<21) + 1 }
	var some edit
	for i := range size / 100 {
		some = some.AddOld(7, tiny(0, uint64(i+1)))
	}
	return map[string][]byte{
		"empty edits":     fill(func(int) edit { return edit{} }),
		"tables upwards":  fill(func(i int) edit { return edit{}.AddOld(7, tiny(0, uint64(i+1))) }),
		"tables downward": fill(func(i int) edit { return edit{}.AddOld(7, tiny(0, 1<<20-uint64(i))) }),
		"tables in one edit": one(nil, nil, func(e edit, i int) edit {
			return e.AddOld(7, tiny(i%50000, scattered(i)))
		}),
		"tables that come and go": fill(func(i int) edit {
			if i%2 == 0 {
				return edit{}.AddOld(7, tiny(0, 1000))
			}
			return edit{}.Delete(0, 1000)
		}),
		"tables that move": fill(func(i int) edit {
			if i == 0 {
				return edit{}.AddOld(7, tiny(0, 1000))
			}
			return event().Delete(i-1, 1000).AddOld(7, tiny(i, 1000))
		}),
		"deletions, all the same": one(edit{}.AddOld(7, tiny(0, 5)), nil, func(e edit, i int) edit { return e.Delete(0, 5) }),
		"deletions backwards": one(some, nil, func(e edit, i int) edit {
			return e.Delete(0, uint64(size/100-i%(size/100)))
		}),
		"families":            fill(func(i int) edit { return edit{}.AddFamily(uint32(i+1), "") }),
		"families downwards":  fill(func(i int) edit { return edit{}.AddFamily(uint32(1<<20-i), "") }),
		"families with names": fill(func(i int) edit { return edit{}.AddFamily(uint32(i+1), fmt.Sprint(i)).Comparator(fmt.Sprint(i)) }),
		"families with a table each": fill(func(i int) edit {
			if i%2 == 0 {
				return edit{}.AddFamily(uint32(i+1), "")
			}
			return edit{}.AddOld(7, tiny(0, 1)).Family(uint32(i))
		}),
		"families that come and go": fill(func(i int) edit {
			if i%2 == 0 {
				return edit{}.AddFamily(7, "")
			}
			return edit{}.DropFamily(7)
		}),
		"many families that come and go": func() []byte {
			n := size / 30
			return fill(func(i int) edit {
				if i < n {
					return edit{}.AddFamily(uint32(i+1), "")
				}
				return edit{}.DropFamily(uint32(2*n - i))
			})
		}(),
		"a group that never ends": fill(func(i int) edit { return edit{}.Group(uint32(1<<30 - i)) }),
		"a group with an error at its end": func() []byte {
			n := size / 40
			return fill(func(i int) edit {
				if i < n {
					return edit{}.AddOld(7, tiny(0, scattered(i))).Group(uint32(n - i))
				}
				return edit{}.Delete(0, 1<<40).Group(0)
			})
		}(),
		"logs":              fill(func(i int) edit { return edit{}.AddWAL(scattered(i), -1) }),
		"logs in one edit":  one(nil, nil, func(e edit, i int) edit { return e.AddWAL(scattered(i), -1) }),
		"logs and the end":  fill(func(i int) edit { return edit{}.AddWAL(uint64(1<<30+i), -1).DeleteWALsBefore(uint64(i)) }),
		"blobs":             fill(func(i int) edit { return edit{}.AddBlob(scattered(i), 9, 9) }),
		"blobs and garbage": one(edit{}.AddBlob(5, 1<<40, 1<<40), nil, func(e edit, i int) edit { return e.BlobGarbage(5, 1, 1) }),
		"cursors":           one(nil, nil, func(e edit, i int) edit { return e.CompactCursor(1, "") }),
		"fields": one(nil, edit{}.BeginFile(tiny(0, 5)), func(e edit, i int) edit {
			return e.FileField(40, "")
		}),
		"ids":         fill(func(i int) edit { return edit{}.DBID(strings.Repeat("x", 100)) }),
		"real life":   rockstest.Manifest(rockstest.History(3, size/400)...),
		"every error": append(rockstest.Manifest(rockstest.History(3, size/400)...), 1, 2, 3, 4, 5, 6, 7, 8),
	}
}

// No MANIFEST of 1 MiB takes much more than 100 ms on the machine where this was
// written. So that a slower or a busy one passes too, the measure is an ordinary
// MANIFEST of that size, which takes 5 ms; what grows with the square of the
// size would take hundreds of times that.
func TestCostIsBounded(t *testing.T) {
	const limit = 100 * time.Millisecond
	cases := worstCases()
	for name, data := range cases {
		half, _ := load(data[:len(data)/2])
		ordinary, _ := rockstest.Cost(0, func() { _, _ = load(cases["real life"]) })
		for how, read := range map[string]func(){
			"load":   func() { _, _ = load(data) },
			"follow": func() { _, _ = half.Follow(bytes.NewReader(data), int64(len(data))) },
		} {
			spent, allocated := rockstest.Cost(limit/2, read)
			t.Logf("%-34s %-6s %8d bytes: %6.2f ms, %4.1f times an ordinary one, %5.1f times the memory", name, how, len(data),
				float64(spent)/1e6, float64(spent)/float64(ordinary), float64(allocated)/float64(len(data)))
			if spent > max(limit, 30*ordinary) {
				t.Errorf("%s, %s: %d bytes took %v, an ordinary one %v", name, how, len(data), spent, ordinary)
			}
			if allocated > uint64(48*len(data)+64<<10) {
				t.Errorf("%s, %s: %d bytes allocated for %d", name, how, allocated, len(data))
			}
		}
	}
}

// typical is a MANIFEST of three column families and twenty edits.
func typical() []byte {
	return rockstest.Manifest(rockstest.History(3, 20)[:20]...)
}

func BenchmarkLoad(b *testing.B) {
	data := typical()
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	r := bytes.NewReader(data)
	for b.Loop() {
		if s, err := manifest.Load(r, int64(len(data))); err != nil || s.Edits != 20 || len(s.Families) != 3 {
			b.Fatal(s, err)
		}
	}
}

// BenchmarkFollow reads one flush behind a MANIFEST with 10,000 live tables.
func BenchmarkFollow(b *testing.B) {
	edits := []edit{head(), event().AddFamily(1, "big")}
	for i := range 10000 {
		edits = append(edits, event().Add(file{Level: 1 + i/2000, Number: uint64(i + 10), Size: 1000}).Family(1))
	}
	s := mustLoad(b, rockstest.Manifest(edits...))
	data := rockstest.Manifest(append(edits, event().LogNumber(4).Add(file{Number: 20000, Size: 1000}).Family(1))...)
	r := bytes.NewReader(data)
	b.ReportAllocs()
	for b.Loop() {
		if next, err := s.Follow(r, int64(len(data))); err != nil || next.Counts.Flushes != 1 {
			b.Fatal(err)
		}
	}
}
