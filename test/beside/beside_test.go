package beside_test

import (
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/verify"
	"streams-sidecar/test/beside"
	"streams-sidecar/test/rockswriter"
)

const (
	// Few bytes everywhere, so that everything happens often.
	small     = "write_buffer_size=65536;max_manifest_file_size=16384;level0_file_num_compaction_trigger=2;"
	noCache   = "block_based_table_factory={no_block_cache=true;filter_policy=bloomfilter:10:false};"
	universal = small + noCache + "compaction_style=kCompactionStyleUniversal;info_log_level=ERROR_LEVEL;compression=kNoCompression;"
	level     = small + noCache + "compaction_style=kCompactionStyleLevel;target_file_size_base=32768;max_bytes_for_level_base=131072;compression=kLZ4Compression;"
	atomic    = "atomic_flush=true;"
)

func stores(lasting bool) []rockswriter.RestlessStore {
	timestamped := []string{"keyValueWithTimestamp"}
	return []rockswriter.RestlessStore{
		{Task: "0_0", Name: "kv", Options: universal + atomic, Families: timestamped, Offsets: true},
		{Task: "0_0", Name: "levels", Options: level + atomic, Families: timestamped, Offsets: true},
		{Task: "0_0", Name: "churned", Options: universal + atomic, Offsets: true, Churn: "keyValueWithTimestampAndHeaders"},
		{Task: "0_0", Name: "win", Options: universal + atomic, Offsets: true, Segments: 4, Lasting: lasting},
		{Task: "0_1", Name: "earlier", Options: universal, Families: timestamped},
	}
}

// TestRestlessWriters: two applications whose stores RocksDB writes, flushes,
// compacts, closes and opens without pause, and one of them is killed again and
// again. Whoever verifies says neither damaged nor unreadable, and once both are
// closed, that there is nothing to find.
func TestRestlessWriters(t *testing.T) {
	steady := rockswriter.Restless{Stores: stores(false), Session: 1500}
	killed := rockswriter.Restless{Stores: stores(true), Session: 400}
	rockswriter.Program(t)
	dir := t.TempDir()
	exe := beside.Build(t)
	a, b := steady.Start(t, filepath.Join(dir, "steady")), killed.Start(t, filepath.Join(dir, "killed"))
	agent := beside.StartAgent(t, exe, dir)
	w := beside.Start(t, exe, dir)
	kills := 0
	for begun := time.Now(); time.Since(begun) < beside.Duration(t, 15*time.Second); kills++ {
		time.Sleep(500*time.Millisecond + rand.N(2*time.Second))
		b.Kill()
		time.Sleep(rand.N(1500 * time.Millisecond))
		b = killed.Start(t, filepath.Join(dir, "killed"))
		agent.Look()
	}
	time.Sleep(time.Second) // so that the last one has opened everything
	w.Stop()
	agent.Stop()
	a.Close()
	b.Close()
	t.Logf("killed %d times", kills)
	doc := w.Command("verify", "--deep")
	seen := 0
	for _, p := range beside.Parts(doc) {
		if p.Store {
			seen++
			if p.Verdict != string(verify.OK) {
				t.Errorf("%s is said to be %s after a clean close", p.Name, p.Verdict)
			}
		}
		for _, f := range p.Findings {
			if f.Severity != finding.Info || f.Code == finding.SSTOrphan {
				t.Errorf("%s, after a clean close: %s %s %s", p.Name, f.Code, f.File, f.Found)
			}
		}
	}
	if want := len(steady.Stores) + len(killed.Stores); seen != want {
		t.Errorf("%d stores instead of %d", seen, want)
	}
}
