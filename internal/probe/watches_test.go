package probe

import (
	"fmt"
	"os"
	"path/filepath"
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
	dirs := map[string]place{}
	for i := range n {
		dir := filepath.Join(root, fmt.Sprint(i))
		if err := os.Mkdir(dir, 0o755); err != nil {
			b.Fatal(err)
		}
		info, err := volume.OS().Stat(dir)
		if err != nil {
			b.Fatal(err)
		}
		dirs[dir] = place{v, info.ID()}
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
		for dir, p := range dirs {
			if err := w.add(dir, p); err != nil {
				b.Fatal(err)
			}
		}
		used += cpu() - begun
		w.close()
	}
	b.ReportMetric(float64(used.Microseconds())/1e3/float64(b.N), "ms-cpu")
}
