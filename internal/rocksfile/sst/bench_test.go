package sst_test

import (
	"bytes"
	"os"
	"path"
	"path/filepath"
	"testing"

	"streams-sidecar/internal/rocksfile/sst"
)

// offsetsFile puts the table of a 4.4.0 store's family offsets on disk.
func offsetsFile(b *testing.B) (f *os.File, size int64) {
	b.Helper()
	for file, data := range tables(b, "4.4.0", "corrupt-base-alos") {
		if path.Ext(file) != ".sst" || openBytes(b, data).Properties().ColumnFamily != "offsets" {
			continue
		}
		name := filepath.Join(b.TempDir(), path.Base(file))
		if err := os.WriteFile(name, data, 0o600); err != nil {
			b.Fatal(err)
		}
		f, err := os.Open(name)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = f.Close() })
		return f, int64(len(data))
	}
	b.Fatal("no such table")
	return nil, 0
}

func BenchmarkOpen(b *testing.B) {
	f, size := offsetsFile(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := sst.Open(f, size); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpenInMemory is BenchmarkOpen without the system call.
func BenchmarkOpenInMemory(b *testing.B) {
	f, size := offsetsFile(b)
	data := make([]byte, size)
	if _, err := f.ReadAt(data, 0); err != nil {
		b.Fatal(err)
	}
	src := bytes.NewReader(data)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := sst.Open(src, size); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOffsets(b *testing.B) {
	f, size := offsetsFile(b)
	b.ReportAllocs()
	for b.Loop() {
		table, err := sst.Open(f, size)
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		if err := table.Each(func(sst.Entry) error { n++; return nil }); err != nil || n < 3 {
			b.Fatal(n, err)
		}
	}
}

// BenchmarkEach walks a table of 1,000 entries in 32 blocks.
func BenchmarkEach(b *testing.B) {
	for file, data := range tables(b, "4.4.0", "corrupt-base-alos") {
		if len(data) < 100_000 {
			continue
		}
		table := openBytes(b, data)
		b.Run(path.Base(path.Dir(file)), func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if err := table.Each(func(sst.Entry) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
