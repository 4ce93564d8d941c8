package statedir

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"

	"streams-sidecar/internal/volume"
)

// manyStores makes 1,000 stores in 250 tasks, with or without the files that
// versions up to 4.2 keep beside them.
func manyStores(tb testing.TB, files bool) string {
	tb.Helper()
	root := tempDir(tb)
	app := filepath.Join(root, "app")
	put(tb, filepath.Join(app, lockName), "")
	put(tb, filepath.Join(app, processName), `{"processId":"ff72cccf-4ecc-42fb-a3b7-3bf72ac220ff"}`)
	for i := range 250 {
		task := filepath.Join(app, fmt.Sprintf("%d_%d", i/50, i%50))
		if files {
			put(tb, filepath.Join(task, checkpointName), fmt.Sprintf("0\n2\napp-a-changelog %d 17\napp-b-changelog %d 18\n", i%50, i%50))
		}
		for _, s := range []string{"a", "b", "c", "d"} {
			if files {
				put(tb, filepath.Join(task, s+positionSuffix), fmt.Sprintf("0\n1\nin %d 99\n", i%50))
			}
			put(tb, filepath.Join(task, rocksdbName, s, "CURRENT"), "")
			put(tb, filepath.Join(task, rocksdbName, s, "MANIFEST-000005"), "")
		}
	}
	return root
}

func BenchmarkScanIdle(b *testing.B) {
	for _, c := range []struct {
		name  string
		files bool
	}{{"up-to-4.2", true}, {"from-4.3", false}} {
		b.Run(c.name, func(b *testing.B) {
			v := volume.New(volume.OS())
			root := manyStores(b, c.files)
			d := Scan(v, root, nil)
			b.ReportAllocs()
			before := cpu(b)
			for b.Loop() {
				d = Scan(v, root, d)
			}
			b.ReportMetric((cpu(b)-before)*1000/float64(b.N), "cpu-ms/op")
		})
	}
}

// cpu is what this process has used so far, seconds.
func cpu(b *testing.B) float64 {
	b.Helper()
	var r syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &r))
	return float64(r.Utime.Nano()+r.Stime.Nano()) / 1e9
}
