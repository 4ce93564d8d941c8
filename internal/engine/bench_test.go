package engine_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"streams-sidecar/internal/engine"
	"streams-sidecar/test/fixture"
)

// BenchmarkAsk asks RocksDB about the databases of a real directory in turn, one
// for each iteration, and tells the CPU time of the child for one. (The stores
// of package manystores will not do: RocksDB sees that their tables are copies.)
func BenchmarkAsk(b *testing.B) {
	c := realEngine(b, engine.Options{})
	dbs := databases(b, fixture.Unpack(b, "4.4.0", "closed-clean"))
	if _, err := c.Version(ctx); err != nil {
		b.Fatal(err)
	}
	begun := ticks(b, c)
	b.ResetTimer()
	for i := range b.N {
		a, err := c.Ask(ctx, dbs[i%len(dbs)], engine.What{Stats: true})
		if err != nil || a.Error != "" {
			b.Fatal(a, err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(ticks(b, c)-begun)*10/float64(b.N), "ms-cpu/database")
	b.ReportMetric(float64(resident(b, c))/1024, "MiB-resident")
}

// ticks of CPU time of the child so far; Linux counts hundredths of a second
// for everybody (USER_HZ).
func ticks(b *testing.B, c *engine.Client) int {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", engine.Pid(c)))
	if err != nil {
		b.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(after) // from state, the third field of proc(5), on
	user, err := strconv.Atoi(fields[11])
	if err != nil {
		b.Fatal(err)
	}
	system, err := strconv.Atoi(fields[12])
	if err != nil {
		b.Fatal(err)
	}
	return user + system
}
