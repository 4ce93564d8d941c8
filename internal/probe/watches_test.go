package probe

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"streams-sidecar/internal/volume"
)

// BenchmarkWatches asks the kernel for events of 3,000 directories, as an agent
// does at its start.
func BenchmarkWatches(b *testing.B) {
	const n = 3000
	root, v := b.TempDir(), volume.New(volume.OS())
	dirs, paths := map[string]volume.ID{}, []string{}
	for i := range n {
		dir := filepath.Join(root, fmt.Sprint(i))
		if err := os.Mkdir(dir, 0o755); err != nil {
			b.Fatal(err)
		}
		info, err := volume.OS().Stat(dir)
		if err != nil {
			b.Fatal(err)
		}
		dirs[dir], paths = info.ID(), append(paths, dir)
	}
	cpu := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	var used time.Duration
	for range b.N {
		w := newWatches(fsnotify.NewWatcher)
		begun := cpu()
		for some := range slices.Chunk(paths, watchesAtOnce) {
			if added, err := w.add(v, some, func(dir string) volume.ID { return dirs[dir] }); err != nil || added != len(some) {
				b.Fatal(added, err)
			}
		}
		used += cpu() - begun
		w.close()
	}
	b.ReportMetric(float64(used.Microseconds())/1e3/float64(b.N), "ms-cpu")
}
