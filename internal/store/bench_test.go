package store_test

import (
	"crypto/sha256"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
	"streams-sidecar/test/manystores"
)

const benchStores = 1000

// cpu is the user and system time of this process so far.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// measure reports CPU time per store, and by how much the heap grows while the
// result of the last round is held.
func measure(b *testing.B, round func() any) {
	b.Helper()
	round() // page cache warm, code in memory
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	begun := cpu(b)
	b.ResetTimer()
	var last any
	for range b.N {
		last = round()
	}
	b.StopTimer()
	b.ReportMetric(float64(cpu(b)-begun)/float64(b.N)/benchStores/1e6, "ms-cpu/store")
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric((float64(after.HeapAlloc)-float64(before.HeapAlloc))/(1<<20), "MiB-held")
	runtime.KeepAlive(last)
}

// BenchmarkScan reads 1,000 stores with 5,000 tables for the first time: every
// directory entry, every MANIFEST, OPTIONS and lock, and the properties of
// every table.
func BenchmarkScan(b *testing.B) {
	dir := manystores.Make(b, benchStores)
	v := volume.New(volume.OS())
	measure(b, func() any { return store.Scan(v, dir, nil) })
}

// BenchmarkRescanIdle looks again when nothing has changed.
func BenchmarkRescanIdle(b *testing.B) {
	dir := manystores.Make(b, benchStores)
	v := volume.New(volume.OS())
	s := store.Scan(v, dir, nil)
	measure(b, func() any { s = store.Scan(v, dir, s); return s })
}

// BenchmarkReadAndHash is the yardstick for BenchmarkScan: it reads and hashes
// the bytes that a scan has to read, and does nothing with them: CURRENT,
// MANIFEST and OPTIONS whole, and the last 4 KiB of every table.
func BenchmarkReadAndHash(b *testing.B) {
	dir := manystores.Make(b, benchStores)
	measure(b, func() any { return readAndHash(b, dir) })
}

func readAndHash(b *testing.B, dir string) [32]byte {
	b.Helper()
	h := sha256.New()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		name := d.Name()
		table := strings.HasSuffix(name, ".sst")
		if err != nil || !table && name != "CURRENT" && !strings.HasPrefix(name, "MANIFEST") && !strings.HasPrefix(name, "OPTIONS") {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		if table {
			info, err := f.Stat()
			if err != nil {
				return err
			}
			if _, err := f.Seek(max(0, info.Size()-4096), io.SeekStart); err != nil {
				return err
			}
		}
		_, err = io.Copy(h, f)
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return [32]byte(h.Sum(nil))
}

// BenchmarkListAndStat is the yardstick for BenchmarkRescanIdle: directory
// entries and stats by the standard library, and nothing else.
func BenchmarkListAndStat(b *testing.B) {
	dir := manystores.Make(b, benchStores)
	measure(b, func() any {
		n := int64(0)
		err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err == nil {
				n += info.Size()
			}
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
		return n
	})
}
