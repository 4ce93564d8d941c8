package main

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/zeebo/xxh3"

	"streams-sidecar/internal/store"
	"streams-sidecar/internal/verify"
	"streams-sidecar/internal/volume"
	"streams-sidecar/test/manystores"
	"streams-sidecar/test/rocksdb"
	"streams-sidecar/test/rockswriter"
)

// verifiable lets RocksDB write a store of tables of 16 MiB each, uncompressed
// as those of Kafka Streams, and gives the state directory and the store.
func verifiable(b *testing.B, tables, format int, checksum string) (dir, db string) {
	b.Helper()
	dir = b.TempDir()
	db = filepath.Join(dir, "app", "0_0", "rocksdb", "kv")
	if err := os.MkdirAll(db, 0o755); err != nil {
		b.Fatal(err)
	}
	const keys, value = 16_000, 1000
	r := rockswriter.Recipe{Options: fmt.Sprintf("info_log_level=ERROR_LEVEL;compression=kNoCompression;write_buffer_size=100000000;"+
		"disable_auto_compactions=true;block_based_table_factory={format_version=%d;checksum=%s;filter_policy=bloomfilter:10:false}", format, checksum)}
	for i := range tables {
		r.Steps = append(r.Steps, rockswriter.Step{Do: rockswriter.Put, Keys: keys, First: i * keys, Size: value, Batch: 1000, NoWAL: true},
			rockswriter.Step{Do: rockswriter.Flush})
	}
	rockswriter.Write(b, db, r)
	return dir, db
}

// used gives the processor time of a function in this process.
func used(b *testing.B, f func()) time.Duration {
	b.Helper()
	now := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := now()
	f()
	return now() - before
}

// usedBy gives the times of a process, which may end with that exit code.
func usedBy(b *testing.B, code int, cmd *exec.Cmd) (wall, cpu time.Duration, rss int64) {
	b.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	begun := time.Now()
	err := cmd.Run()
	wall = time.Since(begun)
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() != code) {
		b.Fatalf("%v: %v\n%s", cmd.Args, err, out.Bytes())
	}
	return wall, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss
}

// hashAll is the least that a deep verification can cost: it reads every table
// of a database, 256 KiB at a time, and hashes what it has read in pieces of a
// block's size.
func hashAll(b *testing.B, tables []string, sum func([]byte)) (n int64) {
	b.Helper()
	buf := make([]byte, 256<<10)
	for _, name := range tables {
		f, err := os.Open(name)
		if err != nil {
			b.Fatal(err)
		}
		for {
			m, err := io.ReadFull(f, buf)
			for piece := range slices.Chunk(buf[:m], 4<<10) {
				sum(piece)
			}
			n += int64(m)
			if err != nil {
				break
			}
		}
		if err := f.Close(); err != nil {
			b.Fatal(err)
		}
	}
	return n
}

// deepCheck is what the command and the agent do, without the reading of the
// directory.
func deepCheck(b *testing.B, v *volume.Volume, d *store.StateDir, tables int) {
	b.Helper()
	plan := verify.Plan{Depth: verify.Deep}
	rs := verify.Check(b.Context(), plan.Subjects([]*volume.Volume{v}, []*store.StateDir{d}), plan)
	if len(rs) != 1 || rs[0].Tables != tables || !rs[0].Complete || len(rs[0].Findings) > 0 {
		b.Fatalf("%+v", rs)
	}
}

func median(xs []float64) float64 {
	slices.Sort(xs)
	return xs[len(xs)/2]
}

// BenchmarkVerifyDeep verifies 128 MiB of tables in every way, in turns, and
// gives the medians of the ratios of processor time: of the bare loop, of the
// command as a process, of Debian's sst_dump and of RocksDB's own
// DB::VerifyChecksum, each to verify.Check or the other way around.
func BenchmarkVerifyDeep(b *testing.B) {
	const tables = 8
	exe := built(b)
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	for _, c := range []struct {
		format   int
		checksum string
		sum      func([]byte)
	}{
		{5, "kCRC32c", func(p []byte) { crc32.Update(0, castagnoli, p) }},
		{6, "kXXH3", func(p []byte) { xxh3.Hash(p) }},
	} {
		b.Run(fmt.Sprintf("v%d-%s", c.format, c.checksum[1:]), func(b *testing.B) {
			dir, db := verifiable(b, tables, c.format, c.checksum)
			// RocksDB changes what it opens.
			theirs := filepath.Join(b.TempDir(), "copy")
			if err := os.CopyFS(theirs, os.DirFS(db)); err != nil {
				b.Fatal(err)
			}
			names, err := filepath.Glob(filepath.Join(db, "*.sst"))
			if err != nil || len(names) != tables {
				b.Fatal(names, err)
			}
			v := volume.New(volume.OS())
			picture := store.Scan(v, dir, nil)
			// Debian 12 has RocksDB 7.8, which does not read format_version 6.
			dump, err := exec.LookPath("sst_dump")
			dumps := err == nil && c.format < 6
			hashAll(b, names, c.sum)
			var size int64
			ratios := map[string][]float64{}
			for b.Loop() {
				var loop, check time.Duration
				loop = used(b, func() { size = hashAll(b, names, c.sum) })
				check = used(b, func() { deepCheck(b, v, picture, tables) })
				add := func(name string, n, of time.Duration) { ratios[name] = append(ratios[name], n.Seconds()/of.Seconds()) }
				add("check/loop", check, loop)
				_, process, _ := usedBy(b, 1, exec.Command(exe, "verify", "--deep", "--state-dir", dir))
				add("command/check", process, check)
				if dumps {
					_, cpu, _ := usedBy(b, 0, exec.Command(dump, "--file="+db, "--command=verify", "--verify_checksum"))
					add("sst_dump/check", cpu, check)
					add("sst_dump/command", cpu, process)
				}
				a := rocksdb.Verify(b, theirs)
				if a.End != "" || a.OpenError != "" || a.VerifyError != "" {
					b.Fatalf("%+v", a)
				}
				own := time.Duration(a.VerifyCPU * float64(time.Second))
				add("rocksdb/check", own, check)
				ratios["check-MB/s"] = append(ratios["check-MB/s"], float64(size)/1e6/check.Seconds())
				ratios["loop-MB/s"] = append(ratios["loop-MB/s"], float64(size)/1e6/loop.Seconds())
				ratios["rocksdb-MB/s"] = append(ratios["rocksdb-MB/s"], float64(size)/1e6/own.Seconds())
			}
			for name, xs := range ratios {
				b.ReportMetric(median(xs), name)
			}
			b.ReportMetric(float64(size)/(1<<20), "MiB")
		})
	}
}

// BenchmarkVerifyOnTwoProcessors compares the time that verify --deep takes over
// 32 tables with one processor and with two. Of a machine that does something
// else beside, only the best times tell.
func BenchmarkVerifyOnTwoProcessors(b *testing.B) {
	exe := built(b)
	dir, _ := verifiable(b, 32, 5, "kCRC32c")
	var best [2]time.Duration
	var cpu [2]time.Duration
	for b.Loop() {
		for i := range best {
			cmd := exec.Command(exe, "verify", "--deep", "--state-dir", dir)
			cmd.Env = append(os.Environ(), "GOMAXPROCS="+strconv.Itoa(i+1))
			wall, used, _ := usedBy(b, 1, cmd)
			if best[i] == 0 || wall < best[i] {
				best[i], cpu[i] = wall, used
			}
		}
	}
	b.ReportMetric(best[0].Seconds()/best[1].Seconds(), "one/two")
	b.ReportMetric(float64(best[1].Microseconds())/1e3, "ms-wall-two")
	b.ReportMetric(cpu[1].Seconds()/best[1].Seconds(), "cores-two")
}

// BenchmarkVerify1000Stores verifies 1,000 stores with 5,000 tables to the depth
// quick, in this process, and with the command from the start of the process to
// the finished report. The scan is included. On a machine that does something else beside,
// the best time tells, and the processor time.
func BenchmarkVerify1000Stores(b *testing.B) {
	const stores = 1000
	exe, dir := built(b), manystores.Make(b, stores)
	vs, paths := []*volume.Volume{volume.New(volume.OS())}, []string{dir}
	run := func() *verify.Verification {
		return verify.Run(b.Context(), vs, paths, verify.Question{}, verify.Plan{Depth: verify.Quick}, nil)
	}
	if v := run(); v.Tables != stores*manystores.TablesPerStore || v.Retries != 0 || !v.Complete {
		b.Fatalf("%+v", v.Summary)
	}
	report := func(b *testing.B, round func() (wall, cpu time.Duration)) {
		b.Helper()
		var best, all time.Duration
		for b.Loop() {
			wall, cpu := round()
			all += cpu
			if best == 0 || wall < best {
				best = wall
			}
		}
		b.ReportMetric(float64(best.Microseconds())/1e3, "ms-wall-best")
		b.ReportMetric(float64(all.Microseconds())/1e3/float64(b.N), "ms-cpu")
	}
	b.Run("process", func(b *testing.B) {
		rss := int64(0)
		report(b, func() (time.Duration, time.Duration) {
			// Each store has one warning.
			wall, cpu, most := usedBy(b, 1, exec.Command(exe, "verify", "--state-dir", dir))
			rss = max(rss, most)
			return wall, cpu
		})
		b.ReportMetric(float64(rss)/1024, "MiB-peak")
	})
	b.Run("in-process", func(b *testing.B) {
		report(b, func() (wall, cpu time.Duration) {
			begun := time.Now()
			cpu = used(b, func() { run() })
			return time.Since(begun), cpu
		})
	})
}
