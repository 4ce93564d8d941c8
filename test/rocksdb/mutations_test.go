package rocksdb_test

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"streams-sidecar/internal/rocksfile/record"
	"streams-sidecar/internal/rocksfile/rockstest"
	"streams-sidecar/internal/rocksfile/sst"
)

// mutation is one damage to a database.
type mutation struct {
	kind   string // flip, cut, …
	target string // kind of file, for a table with the region
	what   string // the damage in words
	apply  func(files map[string][]byte)
	// unchecked says that it is of a table that has no checksums.
	unchecked bool
}

// generator makes the mutations of one base, which only the seed and the base
// decide.
type generator struct {
	*rand.Rand
	t           *testing.T
	files, twin map[string][]byte
	out         []mutation
}

func mutations(t *testing.T, b *base, seed uint64) []mutation {
	t.Helper()
	h := fnv.New64()
	_, _ = io.WriteString(h, b.name)
	g := &generator{rand.New(rand.NewPCG(seed, h.Sum64())), t, b.files, b.twin, nil}
	names := slices.Sorted(maps.Keys(b.files))
	one := func(prefix string) string {
		i := slices.IndexFunc(names, func(n string) bool { return strings.HasPrefix(n, prefix) })
		if i < 0 {
			t.Fatalf("no %s in %q", prefix, names)
		}
		return names[i]
	}
	g.current()
	g.unread(one("IDENTITY"), "IDENTITY")
	g.unread(one("OPTIONS-"), "OPTIONS")
	g.manifest(manifestOf(t, b.files))
	g.tables(slices.DeleteFunc(names, func(n string) bool { return !strings.HasSuffix(n, ".sst") }))
	return g.out
}

func (g *generator) add(kind, target, what string, apply func(map[string][]byte)) {
	g.out = append(g.out, mutation{kind, target, what, apply, false})
}

// change adds a mutation that gives a file other bytes, if they are other ones.
func (g *generator) change(kind, target, name, what string, to []byte) {
	if !bytes.Equal(to, g.files[name]) {
		g.add(kind, target, name+": "+what, func(files map[string][]byte) { files[name] = to })
	}
}

func (g *generator) drop(target, name string) {
	g.add("drop", target, name, func(files map[string][]byte) { delete(files, name) })
}

// flip changes one bit, or one time in three the whole byte, in [from, to).
func (g *generator) flip(target, name string, from, to int) {
	at := from + g.IntN(to-from)
	mask := byte(1) << g.IntN(8)
	if g.IntN(3) == 0 {
		mask = byte(1 + g.IntN(255))
	}
	data := slices.Clone(g.files[name])
	data[at] ^= mask
	g.change("flip", target, name, fmt.Sprintf("byte %d becomes %#02x", at, data[at]), data)
}

func (g *generator) cut(kind, target, name string, at int) {
	g.change(kind, target, name, fmt.Sprintf("cut at %d of %d", at, len(g.files[name])), g.files[name][:at])
}

func (g *generator) zero(kind, target, name string, from, to int) {
	data := slices.Clone(g.files[name])
	clear(data[from:to])
	g.change(kind, target, name, fmt.Sprintf("zeros from %d to %d of %d", from, to, len(data)), data)
}

// zeroSome zeroes up to most bytes somewhere.
func (g *generator) zeroSome(target, name string, most int) {
	size := len(g.files[name])
	from := g.IntN(size)
	g.zero("zero", target, name, from, min(size, from+1+g.IntN(most)))
}

func (g *generator) grow(target, name string, more []byte) {
	g.change("append", target, name, fmt.Sprintf("% x behind its end", more), slices.Concat(g.files[name], more))
}

func (g *generator) random(size int) []byte {
	out := make([]byte, size)
	for i := range out {
		out[i] = byte(g.Uint32())
	}
	return out
}

// ofTwin replaces a file by the one of that kind of the other database.
func (g *generator) ofTwin(target, name, other string) {
	g.change("foreign", target, name, "that of another database", g.twin[other])
}

func (g *generator) current() {
	const name = "CURRENT"
	size := len(g.files[name])
	for range 4 {
		g.flip(name, name, 0, size)
	}
	g.cut("cut", name, name, 0)
	g.cut("cut", name, name, size-1)
	g.cut("cut", name, name, g.IntN(size))
	g.zero("zero", name, name, 0, size)
	g.zeroSome(name, name, 4)
	g.grow(name, name, []byte("\n"))
	g.grow(name, name, g.random(1+g.IntN(8)))
	g.drop(name, name)
	// With a log RocksDB refuses to make a new database in its place.
	g.add("drop", name, "CURRENT and all logs", func(files map[string][]byte) {
		maps.DeleteFunc(files, func(n string, _ []byte) bool { return n == name || strings.HasSuffix(n, ".log") })
	})
}

// unread is for files that RocksDB does not need.
func (g *generator) unread(name, target string) {
	g.flip(target, name, 0, len(g.files[name]))
	g.cut("cut", target, name, g.IntN(len(g.files[name])))
	g.zeroSome(target, name, 40)
	g.drop(target, name)
	if g.twin[name] != nil {
		g.ofTwin(target, name, name)
	}
}

func (g *generator) manifest(name string) {
	const target = "MANIFEST"
	data := g.files[name]
	records, bounds := g.records(data)
	for range 12 {
		g.flip(target, name, 0, len(data))
	}
	// One bit of a header's type, 1 to 5, makes a recycled record of it.
	at := bounds[1+g.IntN(len(bounds)-1)] + 6
	g.change("flip-type", target, name, fmt.Sprintf("byte %d, a record's type, becomes 5", at), slices.Concat(data[:at], []byte{5}, data[at+1:]))
	for range 7 {
		g.cut("cut", target, name, g.IntN(len(data)))
	}
	for _, i := range g.some(len(bounds), 4) {
		g.cut("cut-between", target, name, bounds[i])
	}
	for range 4 {
		g.zeroSome(target, name, 40)
	}
	for range 4 {
		g.zero("zero-tail", target, name, g.IntN(len(data)), len(data))
	}
	// From a record's header on, as a file system leaves a tail that was never written.
	for _, i := range g.some(len(bounds), 2) {
		g.zero("zero-tail", target, name, bounds[i], len(data))
	}
	g.grow(target, name, make([]byte, 1+g.IntN(100)))
	g.grow(target, name, g.random(1+g.IntN(6)))
	g.grow(target, name, g.random(7+g.IntN(40)))
	g.drop(target, name)
	for _, i := range g.some(len(records), 12) {
		g.change("drop-record", target, name, fmt.Sprintf("record %d of %d dropped", i, len(records)),
			manifestOfRecords(slices.Delete(slices.Clone(records), i, i+1)))
	}
	for range 5 {
		i, j := g.IntN(len(records)), g.IntN(len(records))
		swapped := slices.Clone(records)
		swapped[i], swapped[j] = records[j], records[i]
		g.change("swap-records", target, name, fmt.Sprintf("records %d and %d of %d swapped", i, j, len(records)), manifestOfRecords(swapped))
	}
	for _, i := range g.some(len(records), 2) {
		g.change("repeat-record", target, name, fmt.Sprintf("record %d of %d twice", i, len(records)),
			manifestOfRecords(slices.Insert(slices.Clone(records), i, records[i])))
	}
	g.ofTwin(target, name, manifestOf(g.t, g.twin))
}

// some picks at most n of the numbers below all.
func (g *generator) some(all, n int) []int {
	return slices.Sorted(slices.Values(g.Perm(all)[:min(all, n)]))
}

// records of a MANIFEST, and where each begins.
func (g *generator) records(data []byte) (records [][]byte, bounds []int) {
	g.t.Helper()
	r := record.NewReader(bytes.NewReader(data), 0, int64(len(data)))
	for {
		p, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			g.t.Fatal(err)
		}
		records, bounds = append(records, bytes.Clone(p)), append(bounds, int(r.Start()))
	}
	if !bytes.Equal(manifestOfRecords(records), data) {
		g.t.Fatal("the records do not make the MANIFEST")
	}
	return records, bounds
}

func manifestOfRecords(records [][]byte) (out []byte) {
	for _, r := range records {
		out = rockstest.AppendRecord(out, r)
	}
	return out
}

// region is a block of a table with its trailer, or the footer.
type region struct {
	part     string
	from, to int
}

const trailer = 5 // compression type and checksum

func open(t *testing.T, data []byte) *sst.Table {
	t.Helper()
	table, err := sst.Open(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// layout finds the regions of a table by what is wrong when a byte is.
func layout(t *testing.T, data []byte) []region {
	t.Helper()
	whole := open(t, data)
	footer := len(data) - 53
	if whole.FormatVersion() == 0 {
		footer = len(data) - 48
	}
	if whole.ChecksumType() == sst.NoChecksum {
		end := int(whole.Properties().DataSize)
		return []region{{"data", 0, end}, {"other", end, footer}, {"footer", footer, len(data)}}
	}
	var out []region
	for at := 0; at < footer; {
		broken := slices.Clone(data)
		broken[at] ^= 0xff
		e := firstError(broken)
		if e == nil || e.Offset > int64(at) || e.Offset+e.Size+trailer <= int64(at) {
			at++ // between two blocks
			continue
		}
		out = append(out, region{regions[e.Part], int(e.Offset), int(e.Offset+e.Size) + trailer})
		at = out[len(out)-1].to
	}
	return append(out, region{"footer", footer, len(data)})
}

var regions = map[string]string{"data block": "data", "index block": "index", "index partition": "index", "filter block": "filter",
	"filter index": "filter", "metaindex block": "metaindex", "properties block": "properties", "range deletion block": "range-del",
	"compression dictionary": "dictionary", "meta block": "other"}

// firstError of a table, nil if there is none.
func firstError(data []byte) *sst.Error {
	table, err := sst.Open(bytes.NewReader(data), int64(len(data)))
	if err == nil {
		var v *sst.Verification
		if v, err = table.Verify(sst.Checksums); err == nil && len(v.Errors) > 0 {
			return v.Errors[0]
		}
	}
	e, _ := errors.AsType[*sst.Error](err)
	return e
}

func (g *generator) tables(names []string) {
	g.t.Helper()
	// One of several in detail.
	name := names[g.IntN(len(names))]
	data := g.files[name]
	all := layout(g.t, data)
	first := len(g.out)
	defer func() {
		for i := range g.out[first:] {
			g.out[first+i].unchecked = open(g.t, data).ChecksumType() == sst.NoChecksum
		}
	}()
	byPart := map[string][]region{}
	for _, r := range all {
		byPart[r.part] = append(byPart[r.part], r)
	}
	if byPart["data"] == nil || byPart["footer"] == nil {
		g.t.Fatalf("%s: regions %v", name, all)
	}
	for _, part := range slices.Sorted(maps.Keys(byPart)) {
		for range 4 {
			r := byPart[part][g.IntN(len(byPart[part]))]
			g.flip("SST "+part, name, r.from, r.to)
		}
	}
	for range 4 {
		r := all[g.IntN(len(all)-1)] // the last is the footer
		g.flip("SST trailer", name, r.to-trailer, r.to)
	}
	for range 4 {
		g.cut("cut", "SST", name, g.IntN(len(data)))
	}
	g.cut("cut", "SST", name, 0)
	for _, i := range g.some(len(all), 3) {
		g.cut("cut-between", "SST", name, all[i].from)
	}
	g.swapBlocks(name, data, byPart["data"])
	for range 3 {
		g.zeroSome("SST", name, 200)
	}
	g.zero("zero-tail", "SST", name, g.IntN(len(data)), len(data))
	g.zero("zero-tail", "SST", name, max(0, len(data)-4096), len(data))
	r := all[g.IntN(len(all))]
	g.zero("zero", "SST "+r.part, name, r.from, r.to)
	g.grow("SST", name, g.random(1+g.IntN(50)))
	g.grow("SST", name, make([]byte, 1+g.IntN(50)))
	for _, i := range g.some(len(names), 2) {
		g.drop("SST", names[i])
	}
	g.swapTables(names)
	for _, i := range g.some(len(names), 3) {
		if g.twin[names[i]] != nil {
			g.ofTwin("SST", names[i], names[i])
		}
	}
}

// swapBlocks swaps at most three pairs of data blocks of one size, as writes to a
// wrong place do. Before format_version 6 no checksum minds.
func (g *generator) swapBlocks(name string, data []byte, blocks []region) {
	bySize := map[int][]region{}
	for _, b := range blocks {
		bySize[b.to-b.from] = append(bySize[b.to-b.from], b)
	}
	n := 0
	for _, size := range slices.Sorted(maps.Keys(bySize)) {
		same := bySize[size]
		if len(same) < 2 || n == 3 {
			continue
		}
		n++
		i := g.IntN(len(same) - 1)
		j := i + 1 + g.IntN(len(same)-i-1)
		swapped := slices.Clone(data)
		copy(swapped[same[i].from:same[i].to], data[same[j].from:same[j].to])
		copy(swapped[same[j].from:same[j].to], data[same[i].from:same[i].to])
		g.change("swap-blocks", "SST", name, fmt.Sprintf("the blocks at %d and %d swapped", same[i].from, same[j].from), swapped)
	}
}

// swapTables swaps at most two pairs of tables of one size and two of others.
func (g *generator) swapTables(names []string) {
	equal, unequal := 0, 0
	for _, i := range g.Perm(len(names) * len(names)) {
		a, b := names[i/len(names)], names[i%len(names)]
		kind, count := "swap", &unequal
		if len(g.files[a]) == len(g.files[b]) {
			kind, count = "swap-same-size", &equal
		}
		if a >= b || *count == 2 || bytes.Equal(g.files[a], g.files[b]) {
			continue
		}
		*count++
		g.add(kind, "SST", a+" and "+b, func(files map[string][]byte) { files[a], files[b] = files[b], files[a] })
	}
	// A copy in the place of another is the half of it.
	if len(names) > 1 {
		i := g.IntN(len(names) - 1)
		g.change("copy", "SST", names[i], "a copy of "+names[i+1], g.files[names[i+1]])
	}
}
