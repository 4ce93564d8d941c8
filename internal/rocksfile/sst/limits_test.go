package sst

import (
	"bytes"
	"errors"
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
	for _, depth := range []Depth{Checksums, Entries} {
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
	limit, size, multiple, buffers := 250*time.Millisecond, 1<<20, 8, 1
	if RaceDetector { // which also throws away half of what goes back to a pool
		limit, size, multiple, buffers = time.Second, 1<<17, 16, 2
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
				most += 450 << 10 * (2*p.DataBlocks + 10)
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
