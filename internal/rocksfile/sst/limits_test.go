package sst

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// seeds are the files that fuzzing starts from: real ones, and hostile ones of
// about size bytes.
func seeds(t testing.TB, size int) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("testdata", "*", "*.sst"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no tables: %v", err)
	}
	all := hostile(size)
	for _, n := range names {
		data, err := os.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(n)] = data
	}
	return all
}

// exercise opens, walks and searches a file as far as it goes, and says what
// is wrong with the answers.
func exercise(data []byte, verify bool) error {
	check := func(err error) error {
		if err == nil {
			return nil
		}
		e, ok := errors.AsType[*Error](err)
		if !ok {
			return errors.New("an error of another type: " + err.Error())
		}
		if e.Kind < TooShort || e.Kind > Malformed || e.Part == "" {
			return errors.New("an error without kind or part: " + err.Error())
		}
		if e.Offset < 0 || e.Offset > int64(len(data)) {
			return errors.New("an error outside the file: " + err.Error())
		}
		return nil
	}
	t, err := open(bytes.NewReader(data), int64(len(data)), verify)
	if err != nil {
		return check(err)
	}
	n, size := 0, 0
	var key []byte
	err = t.Each(func(e Entry) error {
		if n++; n == 3 {
			key = bytes.Clone(e.Key)
		}
		if e.Type != RangeDeletion {
			size += len(e.Value)
		}
		return nil
	})
	if err := check(err); err != nil {
		return err
	}
	if n > len(data) {
		return errors.New("more entries than bytes")
	}
	for _, depth := range []Depth{Structure, Checksums, Entries} {
		v, err := t.Verify(depth)
		if err != nil {
			return errors.New("an error of the source: " + err.Error())
		}
		for _, e := range v.Errors {
			if err := check(e); err != nil {
				return err
			}
		}
		if len(v.Errors) > maxErrors || v.Bytes > 6*uint64(len(data)) {
			return errors.New("more than there can be")
		}
	}
	for _, k := range [][]byte{nil, []byte("status"), key[:min(len(key), 64)]} {
		e, ok, err := t.Get(k)
		if err := check(err); err != nil {
			return err
		}
		if ok && !bytes.Equal(e.Key, k) {
			return errors.New("Get found another key")
		}
	}
	return nil
}

// cpu is the processor time that this thread has used: what other tests and
// other processes do does not count.
func cpu(t *testing.T) time.Duration {
	const thread = 1 // RUSAGE_THREAD
	var u syscall.Rusage
	if err := syscall.Getrusage(thread, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestCostIsBoundedByTheSize(t *testing.T) {
	limit, size, multiple, buffers := 250*time.Millisecond, 1<<20, 12, 1
	if RaceDetector { // which also throws away some of what goes back to a pool, of which there are four uses
		limit, size, multiple, buffers = time.Second, 1<<17, 24, 4
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	made := map[string]Properties{}
	for name, data := range seeds(t, size) {
		if x, err := Open(bytes.NewReader(data), int64(len(data))); err == nil {
			made[name] = x.Properties()
		}
		for _, verify := range []bool{true, false} {
			// Empty the pool of buffers, so that this file pays for its own.
			runtime.GC()
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := cpu(t)
			err := exercise(data, verify)
			took := cpu(t) - start
			runtime.ReadMemStats(&after)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if took > limit {
				t.Errorf("%s: %v for %d bytes", name, took, len(data))
			}
			most := uint64(multiple*len(data) + buffers*readSize + 64<<10)
			switch p := made[name]; {
			case strings.Contains(p.Compression, "BZip2"): // its decoder has no second use
				most += 450 << 10 * (3*p.DataBlocks + 10)
			case p.Compression != "" && p.Compression != compressions[0]:
				most += 512 << 10
			}
			if got := after.TotalAlloc - before.TotalAlloc; got > most {
				t.Errorf("%s: %d bytes allocated for %d", name, got, len(data))
			}
			t.Logf("%-45s %8d bytes %10v %9d allocated", name, len(data), took, after.TotalAlloc-before.TotalAlloc)
		}
	}
}

// repeated is a file whose first bytes are one block again and again.
type repeated struct {
	block []byte
	n     int64 // bytes that are blocks
	rest  []byte
}

func (r *repeated) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		from := r.rest
		if at := off + int64(n); at < r.n {
			from = r.block[at%int64(len(r.block)):]
		} else if from = from[min(at-r.n, int64(len(from))):]; len(from) == 0 {
			return n, io.EOF
		}
		n += copy(p[n:], from)
	}
	return n, nil
}

// TestVerifyHoldsLittle of a table of 256 MiB: what is read at once, and the index.
func TestVerifyHoldsLittle(t *testing.T) {
	blocks := 1 << 28 / 4096
	if RaceDetector {
		blocks /= 16
	}
	var entries []byte
	for len(entries) < 4000 {
		entries = appendEntry(entries, 0, value("key"), "value")
	}
	block := append(restart(entries), make([]byte, trailerLen)...)
	c := &crafted{properties: [][2]string{
		{"rocksdb.comparator", "another"}, // the keys are always the same
		{"rocksdb.index.key.is.user.key", "\x01"},
		{"rocksdb.index.value.is.delta.encoded", "\x01"},
		{"rocksdb.num.entries", string(binary.AppendUvarint(nil, uint64(blocks*(len(entries)/19))))},
	}}
	r := &repeated{block: block, n: int64(blocks) * int64(len(block))}
	index := append([]byte{0, 1, 'k'}, handle{0, uint64(len(block) - trailerLen)}.encode()...)
	for range blocks - 1 {
		index = append(index, 1, 0, 0)
	}
	c.base = uint64(r.n)
	r.rest = c.finish(c.add(restart(index)))
	table, err := Open(r, r.n+int64(len(r.rest)))
	if err != nil {
		t.Fatal(err)
	}
	for _, depth := range []Depth{Structure, Checksums, Entries} {
		runtime.GC()
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		v, err := table.Verify(depth)
		runtime.ReadMemStats(&after)
		if err != nil || len(v.Errors) > 0 || v.DataBlocks != uint64(blocks) {
			t.Errorf("%+v, %v", v, err)
		}
		if got, most := after.TotalAlloc-before.TotalAlloc, uint64(2*len(index)+readSize+64<<10); got > most {
			t.Errorf("depth %d: %d bytes allocated", depth, got)
		}
	}
}
