package store

import (
	"syscall"
	"testing"
	"time"

	"streams-sidecar/internal/volume"
	"streams-sidecar/test/manystores"
)

// BenchmarkScanManifests looks at 1,000 stores whose tables and OPTIONS are
// known and whose MANIFESTs are not: directory entries, sizes, locks, CURRENT,
// and every MANIFEST parsed from its beginning.
func BenchmarkScanManifests(b *testing.B) {
	const stores = 1000
	dir := manystores.Make(b, stores)
	v := volume.New(volume.OS())
	known := Scan(v, dir, nil)
	known.Stores(func(_ *Application, _ *Task, s *Store) {
		for i, db := range s.Databases {
			c := *db
			c.state, c.listing = nil, 0
			s.Databases[i] = &c
		}
	})
	cpu := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	begun := cpu()
	b.ResetTimer()
	for range b.N {
		edits := 0
		Scan(v, dir, known).Stores(func(_ *Application, _ *Task, s *Store) {
			state, _, _ := s.Databases[0].Manifest()
			edits += state.Edits
		})
		if edits != stores*manystores.Edits {
			b.Fatalf("%d edits, want %d", edits, stores*manystores.Edits)
		}
	}
	b.ReportMetric(float64(cpu()-begun)/float64(b.N)/stores/1e6, "ms-cpu/store")
}
