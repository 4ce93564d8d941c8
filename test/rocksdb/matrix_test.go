package rocksdb_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	"streams-sidecar/test/rocksdb"
)

var (
	every = flag.Bool("every", false, "every mutation of every database, instead of a sample")
	seed  = flag.Uint64("seed", 1, "decides the mutations")
	cases = flag.String("cases", "", "a `file` that gets one line for each case")
)

const (
	leastCases = 2000 // with -every
	// A sample is some mutations of some databases; both strides have no
	// divisor in common with the numbers of kinds, so that all come.
	sampleBases, sampleCases = 5, 11
)

// TestMatrix damages databases in thousands of ways and holds our word against
// what RocksDB does with the same bytes.
//
// A case is the same for the same seed, but for the random names that RocksDB
// gives a database that it makes; with -artifacts the bytes of a failed one are
// kept.
func TestMatrix(t *testing.T) {
	rocksdb.Program(t)
	if n := len(classes); n > mostClasses {
		t.Errorf("%d classes of differences, and at most %d are allowed", n, mostClasses)
	}
	var mu sync.Mutex
	var results []result
	ran, generated := 0, 0
	for i, b := range bases {
		if !*every && i%sampleBases != 0 {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			b.load(t)
			ran++
			numbers := map[string]int{}
			for j, m := range mutations(t, b, *seed) {
				generated++
				group := m.kind + "/" + strings.ReplaceAll(m.target, " ", "-")
				numbers[group]++
				name := fmt.Sprintf("%s/%d", group, numbers[group])
				if !*every && j%sampleCases != i%sampleCases {
					continue
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					r := try(t, b, m)
					mu.Lock()
					defer mu.Unlock()
					results = append(results, r)
				})
			}
		})
	}
	slices.SortFunc(results, func(a, b result) int { return cmp.Compare(a.name, b.name) })
	t.Log("\n" + tables(results))
	if *cases != "" {
		writeList(t, results)
	}
	if !*every || ran < len(bases) {
		return
	}
	if generated < leastCases {
		t.Errorf("%d mutations, and at least %d are wanted", generated, leastCases)
	}
	if len(results) < generated {
		return // -run has chosen some
	}
	for _, c := range classes {
		if !slices.ContainsFunc(results, func(r result) bool { return r.different() && c.holds(r) }) {
			t.Errorf("no case is of the class %q any more", c.name)
		}
	}
}

// try puts one damaged copy to us and then to RocksDB, which changes it.
func try(t *testing.T, b *base, m mutation) result {
	t.Helper()
	files := maps.Clone(b.files)
	m.apply(files)
	dir := filepath.Join(t.TempDir(), "db")
	write(t, dir, files)
	r := result{name: t.Name(), mutation: m, was: b.word, judgement: judge(dir)}
	r.outcome, r.text = outcome(b.answer, rocksdb.Ask(t, dir, b.families))
	if r.different() && r.class() == "" {
		t.Errorf("%s, %s\nwe say %s %q, RocksDB: %s %s\nagain: scripts/test-rocksdb -seed=%d -artifacts -run='^%s$'",
			m.kind, m.what, r.word, r.codes, r.outcome, r.text, *seed, strings.ReplaceAll(t.Name(), "/", "$/^"))
		write(t, t.ArtifactDir(), files)
	}
	// Otherwise thousands of them wait for the end in memory.
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
	return r
}

func (r result) different() bool { return r.milder() || r.stricter() }

// class of a difference, "" if it is of none.
func (r result) class() string {
	for _, c := range classes {
		if r.different() && c.holds(r) {
			return c.name
		}
	}
	return ""
}

// tables are what was counted, for people.
func tables(results []result) string {
	outcomes := []string{same, other, readError, refuses, newer, doubts, string(rocksdb.Hangs), string(rocksdb.Dies)}
	words := slices.SortedFunc(maps.Keys(ranks), func(a, b string) int { return cmp.Or(ranks[a]-ranks[b], cmp.Compare(a, b)) })
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(cells ...string) { _, _ = fmt.Fprintln(w, strings.Join(cells, "\t")+"\t") }

	counts, pairs, perClass := map[string]map[string]int{}, map[string]int{}, map[string]int{}
	for _, r := range results {
		key := r.kind + " of " + r.target
		if counts[key] == nil {
			counts[key] = map[string]int{}
		}
		pair := r.word + ":" + r.outcome
		counts[key][pair]++
		pairs[pair]++
		if r.different() {
			perClass[cmp.Or(r.class(), "of no class")]++
		}
	}
	var columns []string
	head := []string{fmt.Sprintf("%d cases, our word:RocksDB", len(results))}
	for _, word := range words {
		for _, o := range outcomes {
			if pair := word + ":" + o; pairs[pair] > 0 {
				columns, head = append(columns, pair), append(head, pair)
			}
		}
	}
	row(head...)
	line := func(name string, of map[string]int) {
		cells := []string{name}
		for _, c := range columns {
			cell := "."
			if of[c] > 0 {
				cell = fmt.Sprint(of[c])
			}
			cells = append(cells, cell)
		}
		row(cells...)
	}
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		line(key, counts[key])
	}
	line("all", pairs)
	_ = w.Flush()
	out.WriteString("\nwhere we differ:\n")
	for _, c := range classes {
		_, _ = fmt.Fprintf(&out, "%6d  %s: %s (%s)\n", perClass[c.name], c.name, c.why, c.source)
	}
	_, _ = fmt.Fprintf(&out, "%6d  of no class\n", perClass["of no class"])
	return out.String()
}

func writeList(t *testing.T, results []result) {
	t.Helper()
	var out strings.Builder
	for _, r := range results {
		sign := "="
		switch {
		case r.milder():
			sign = "milder"
		case r.stricter():
			sign = "stricter"
		}
		_, _ = fmt.Fprintf(&out, "%s\t%s\t%s\t%s\t%s\t%s\t%q\t%s\n", r.name, sign, r.class(), r.word, r.outcome, r.what, r.codes, r.text)
	}
	if err := os.WriteFile(*cases, []byte(out.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}
