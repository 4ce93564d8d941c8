package journal_test

import (
	"slices"
	"testing"
	"time"

	"streams-sidecar/internal/journal"
)

// The tail is what matters: a caller waits once, while the application's close
// keeps the disk busy. TMPDIR says which disk.
func BenchmarkLatency(b *testing.B) {
	doc := record{Stores: map[string]string{}}
	for _, s := range []string{"orders-by-customer", "joined", "totals", "dedup"} {
		for _, task := range []string{"0_0", "0_1", "1_0", "1_1"} {
			doc.Stores[task+"/"+s] = "closed by the application, proved by its files"
		}
	}
	for how, call := range map[string]func(*journal.Folder, string, any) error{
		"put":   (*journal.Folder).Put,
		"write": (*journal.Folder).Write,
		"read":  func(f *journal.Folder, name string, _ any) error { return f.Read(name, new(record)) },
	} {
		b.Run(how, func(b *testing.B) {
			f := open(b.TempDir())
			must(b, f.Write(name, doc))
			var took []time.Duration
			for b.Loop() {
				begun := time.Now()
				must(b, call(f, name, doc))
				took = append(took, time.Since(begun))
				b.StopTimer()
				time.Sleep(5 * time.Millisecond) // one at a time, not a flood
				b.StartTimer()
			}
			slices.Sort(took)
			for unit, at := range map[string]int{"p50-µs": 50, "p99-µs": 99, "max-µs": 100} {
				i := min(len(took)*at/100, len(took)-1)
				b.ReportMetric(float64(took[i].Microseconds()), unit)
			}
		})
	}
}
