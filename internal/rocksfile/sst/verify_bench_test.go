package sst_test

import (
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/zeebo/xxh3"

	"streams-sidecar/internal/rocksfile/sst"
	"streams-sidecar/test/rockswriter"
)

// largeTable lets RocksDB write a table of entries with values of that size.
func largeTable(b *testing.B, options string, keys, size int) (*os.File, int64) {
	b.Helper()
	dir := filepath.Join(b.TempDir(), "db")
	rockswriter.Write(b, dir, rockswriter.Recipe{
		Options: "info_log_level=ERROR_LEVEL;write_buffer_size=1000000000;" + options,
		Steps: []rockswriter.Step{
			{Do: rockswriter.Put, Seed: 1, Keys: keys, Size: size, Batch: 1000, NoWAL: true},
			{Do: rockswriter.Flush},
		}})
	names, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(names) != 1 {
		b.Fatal(names, err)
	}
	f, err := os.Open(names[0])
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = f.Close() })
	i, err := f.Stat()
	if err != nil {
		b.Fatal(err)
	}
	return f, i.Size()
}

// hashOnly is the least that a verification can cost: a loop that reads the
// file and hashes its blocks, which end at these offsets.
func hashOnly(b *testing.B, f *os.File, size int64, ends []int64, kind sst.ChecksumType, buf []byte) (sum uint64) {
	b.Helper()
	table := crc32.MakeTable(crc32.Castagnoli)
	for off := int64(0); off < size; {
		n := min(size-off, int64(len(buf)))
		if _, err := f.ReadAt(buf[:n], off); err != nil {
			b.Fatal(err)
		}
		for at := int64(0); at < n; {
			end := n
			if len(ends) > 0 && ends[0]-off < n {
				end, ends = ends[0]-off, ends[1:]
			}
			if p := buf[at:end]; kind == sst.CRC32c {
				sum += uint64(crc32.Checksum(p, table))
			} else {
				sum += xxh3.Hash(p)
			}
			at = end
		}
		off += n
	}
	return sum
}

func usage(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkVerify measures the two depths beside a loop that only reads and
// hashes the same bytes, in turns, in processor time.
func BenchmarkVerify(b *testing.B) {
	for _, c := range []struct {
		format      int
		checksum    sst.ChecksumType
		compression string
		keys, size  int
	}{
		{5, sst.CRC32c, "kNoCompression", 200_000, 90},
		{6, sst.XXH3, "kNoCompression", 200_000, 90},
		{5, sst.CRC32c, "kLZ4Compression", 600_000, 38},
		{6, sst.XXH3, "kZSTD", 900_000, 38},
	} {
		b.Run(fmt.Sprintf("v%d-%s-%s", c.format, c.checksum, c.compression), func(b *testing.B) {
			f, size := largeTable(b, fmt.Sprintf("compression=%s;block_based_table_factory={format_version=%d;checksum=%s}",
				c.compression, c.format, checksums[c.checksum]), c.keys, c.size)
			table, err := sst.Open(f, size)
			if err != nil {
				b.Fatal(err)
			}
			if table.ChecksumType() != c.checksum {
				b.Fatal(table.ChecksumType())
			}
			var ends []int64
			for _, block := range table.DataBlocks(b) {
				ends = append(ends, int64(block[1]))
			}
			buf := make([]byte, 256<<10)
			var loop, shallow, deep time.Duration
			timed := func(to *time.Duration, f func()) {
				start := usage(b)
				f()
				*to += usage(b) - start
			}
			check := func(depth sst.Depth) func() {
				return func() {
					v, err := table.Verify(depth)
					if err != nil || len(v.Errors) > 0 {
						b.Fatal(v, err)
					}
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				timed(&loop, func() { hashOnly(b, f, size, ends, c.checksum, buf) })
				timed(&shallow, check(sst.Checksums))
				timed(&deep, check(sst.Entries))
			}
			rate := func(d time.Duration) float64 { return float64(size) * float64(b.N) / 1e6 / d.Seconds() }
			b.ReportMetric(float64(size)/(1<<20), "MiB")
			b.ReportMetric(rate(loop), "loop-MB/s")
			b.ReportMetric(float64(shallow)/float64(loop), "checksums/loop")
			b.ReportMetric(float64(deep)/float64(loop), "entries/loop")
		})
	}
}
