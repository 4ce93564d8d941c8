package engine_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"streams-sidecar/internal/engine"
	"streams-sidecar/internal/rocksfile/rockstest"
	"streams-sidecar/internal/rocksfile/sst"
	"streams-sidecar/test/rockswriter"
)

// hostile is a database that does harm to whoever opens it, the smallest of its
// kind; docs/engine.md has them in words.
type hostile struct {
	name string
	make func(t *testing.T, dir string)
	// notFit: our reader would not let RocksDB near it, which is asked all the
	// same.
	notFit bool
	// kind of the end of the child; "" if it answers.
	kind engine.Kind
	// says is in its last words, or in the answer.
	says string
}

var hostiles = []hostile{
	{"bytes behind a WAL", func(t *testing.T, dir string) {
		rockswriter.Write(t, dir, abandoned("", mixed(unflushed)...)[0])
		grow(t, dir, "*.log")
	}, false, engine.Hung, ""},
	{"bytes behind a MANIFEST", func(t *testing.T, dir string) {
		rockswriter.Write(t, dir, session("", mixed()...))
		grow(t, dir, "MANIFEST-*")
	}, true, engine.Hung, ""},

	// Without checksums one byte is enough.
	{"wild restart point", func(t *testing.T, dir string) {
		rockswriter.Write(t, dir, session(blocks("checksum=kNoChecksum;format_version=5"), mixed()...))
		wildRestart(t, dir)
	}, false, engine.Died, "SIGSEGV"},

	{"small block that becomes 60 MiB", func(t *testing.T, dir string) { bomb(t, dir, 60) }, true, "", "not Kafka Streams'"},
	{"small block that becomes 100 MiB", func(t *testing.T, dir string) { bomb(t, dir, 100) }, true, engine.Died, "alloc"},
	{"small WAL that becomes 40 MiB", func(t *testing.T, dir string) {
		rockswriter.Write(t, dir, abandoned("wal_compression=kZSTD",
			rockswriter.Step{Do: rockswriter.Put, Keys: 1, Size: 40 << 20})[0])
	}, false, engine.Died, "alloc"},
	{"thousands of column families", func(t *testing.T, dir string) {
		const n = 3000
		edits := []rockstest.Edit{first}
		for id := range uint32(n) {
			edits = append(edits, rockstest.Edit{}.AddFamily(id+1, fmt.Sprint(id)).Comparator(sst.Bytewise).LogNumber(4))
		}
		writeManifest(t, dir, append(edits, rockstest.Edit{}.MaxFamily(n))...)
	}, false, engine.Died, "alloc"},
	{"huge MANIFEST", func(t *testing.T, dir string) {
		var edit rockstest.Edit
		for n := range uint64(200_000) {
			edit = edit.AddBlob(100+n, 1, 100)
		}
		writeManifest(t, dir, first, edit)
	}, false, engine.Died, "alloc"},
}

// first is what a MANIFEST has to say to be whole.
var first = rockstest.Edit{}.Comparator(sst.Bytewise).LogNumber(4).NextFile(1_000_000).LastSequence(0)

func writeManifest(t *testing.T, dir string, edits ...rockstest.Edit) {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"CURRENT": []byte("MANIFEST-000005\n"), "MANIFEST-000005": rockstest.Manifest(edits...)} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// bomb puts one value among the offsets that takes ten thousand times less when
// it is compressed.
func bomb(t *testing.T, dir string, mebibytes int) {
	t.Helper()
	rockswriter.Write(t, dir, session("compression=kZSTD;write_buffer_size=1000000000",
		rockswriter.Step{Do: rockswriter.Put, Family: familyOffsets, Key: []byte("t-0"), Size: mebibytes << 20, NoWAL: true},
		rockswriter.Step{Do: rockswriter.Flush, Family: familyOffsets}))
}

// edit changes the one file of that pattern that has bytes.
func edit(t *testing.T, dir, pattern string, change func([]byte) []byte) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) == 0 {
			continue
		}
		if err := os.WriteFile(name, change(data), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("no %s with bytes", pattern)
}

// grow appends a header of no sense whose type is a recycled record's, as one
// in fifty random headers is.
func grow(t *testing.T, dir, pattern string) {
	t.Helper()
	edit(t, dir, pattern, func(data []byte) []byte { return append(data, 1, 2, 3, 4, 0, 0, 5, 6, 7, 8, 9) })
}

// wildRestart makes the only restart point of a metaindex block one far outside
// of it. The block is the last one before the footer of 53 bytes, and ends with
// that point, the number of points, and a trailer of 5 bytes.
func wildRestart(t *testing.T, dir string) {
	t.Helper()
	edit(t, dir, "*.sst", func(data []byte) []byte {
		at := len(data) - 53 - 5 - 8
		if !bytes.Equal(data[at+4:at+8], []byte{1, 0, 0, 0}) {
			t.Fatalf("restart points % x", data[at:at+8])
		}
		binary.LittleEndian.PutUint32(data[at:], 0xf0000000)
		return data
	})
}

// TestHostileDatabases: whatever a database does to RocksDB, its process stays
// in its bounds, and others are answered after it.
func TestHostileDatabases(t *testing.T) {
	t.Parallel()
	for _, h := range hostiles {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			o := engine.Options{} // with a long deadline
			if h.kind == engine.Hung {
				o.Deadline = 8 * time.Second // also for the one after it, on a busy machine
			}
			c := realEngine(t, o)
			tmp := t.TempDir()
			good, bad := filepath.Join(tmp, "good"), filepath.Join(tmp, "bad")
			rockswriter.Write(t, good, session("", mixed()...))
			h.make(t, bad)
			if why := engine.Fit(alone(bad)); (why != "") != h.notFit {
				t.Errorf("fit: %q", why)
			}
			if _, err := c.Version(ctx); err != nil {
				t.Fatal(err)
			}
			peak := watchMemory(engine.Pid(c))
			a, err := engine.AskAnyway(ctx, c, bad, 0, everything)
			kib := peak()
			t.Logf("at most %d KiB resident: %v", kib, err)
			if kib == 0 || kib > 128<<10 {
				t.Errorf("%d KiB resident", kib)
			}
			ended := uint64(0)
			if h.kind == "" {
				if err != nil || !strings.Contains(a.OffsetsLeftOut, h.says) {
					t.Errorf("%+v, %v", a, err)
				}
			} else {
				ended = 1
				if e := asError(t, err); e.Kind != h.kind || !strings.Contains(e.Detail, h.says) {
					t.Errorf("%v, want %s: %s", err, h.kind, h.says)
				}
			}
			db := alone(good)
			a, err = c.Ask(ctx, db, everything)
			if err != nil {
				t.Fatal(err)
			}
			if diff := engine.Compare(db, a, everything); len(diff) > 0 {
				t.Errorf("after it: %+v", diff)
			}
			if n := c.Restarts(); n != ended {
				t.Errorf("%d restarts, want %d", n, ended)
			}
		})
	}
}

var mostResident = regexp.MustCompile(`(?m)^VmHWM:\s+(\d+)`)

// watchMemory looks at a process again and again until it ends or the result is
// called, which gives the most KiB that it has had in memory. (What the kernel
// tells of a process that has ended counts the one that has started it too.)
func watchMemory(pid int) (peak func() int) {
	var most atomic.Int64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			if err != nil {
				return
			}
			if m := mostResident.FindSubmatch(text); m != nil {
				if n, err := strconv.ParseInt(string(m[1]), 10, 64); err == nil {
					most.Store(max(most.Load(), n))
				}
			}
			select {
			case <-stop:
				return
			case <-time.After(500 * time.Microsecond):
			}
		}
	}()
	return func() int {
		close(stop)
		<-stopped
		return int(most.Load())
	}
}
