package volume_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"streams-sidecar/internal/volume"
)

// asked notes how much each read asks for.
type asked struct {
	io.ReaderAt
	mu  sync.Mutex
	all []int
}

func (a *asked) ReadAt(p []byte, off int64) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, len(p))
	return a.ReaderAt.ReadAt(p, off)
}

func TestPace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name           string
		bytesPerSecond int64
		reads, size    int // of each reader
		readers        int
		want           time.Duration
	}{
		// The first tenth of a second is free.
		{"small reads", 1_000_000, 200, 10_000, 1, 1900 * time.Millisecond},
		{"of several goroutines", 1_000_000, 50, 10_000, 4, 1900 * time.Millisecond},
		{"one that is larger than a second's worth", 1_000_000, 1, 2_000_000, 1, 1900 * time.Millisecond},
		{"large ones of several goroutines", 1_000_000, 2, 250_000, 4, 1900 * time.Millisecond},
		{"a few bytes per second", 5, 1, 11, 1, 2 * time.Second},
		{"more than can be counted", math.MaxInt64, 100, 1_000_000, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				content := random(2_000_000)
				under := &asked{ReaderAt: bytes.NewReader(content)}
				pace := volume.NewPace(c.bytesPerSecond)
				begun := time.Now()
				var wg sync.WaitGroup
				for range c.readers {
					r := pace.Reader(t.Context(), under)
					wg.Go(func() {
						for i := range c.reads {
							buf := make([]byte, c.size)
							off := i * c.size % len(content)
							if n, err := r.ReadAt(buf, int64(off)); err != nil || !bytes.Equal(buf[:n], content[off:off+c.size]) {
								t.Errorf("%d bytes at %d: %d, %v", c.size, off, n, err)
							}
						}
					})
				}
				wg.Wait()
				if took := time.Since(begun); (took - c.want).Abs() > time.Millisecond {
					t.Errorf("it took %v, want %v", took, c.want)
				}
				if len(under.all) != c.readers*c.reads {
					t.Errorf("%d reads were made of %d", len(under.all), c.readers*c.reads)
				}
			})
		})
	}
}

func TestNoPaceChangesNothing(t *testing.T) {
	t.Parallel()
	r := bytes.NewReader(nil)
	for _, n := range []int64{0, -1, math.MinInt64} {
		if got := volume.NewPace(n).Reader(t.Context(), r); got != io.ReaderAt(r) {
			t.Errorf("%d bytes per second wrap the reader", n)
		}
	}
}

func TestPacePassesOnWhatTheReaderSays(t *testing.T) {
	t.Parallel()
	r := volume.NewPace(1000).Reader(t.Context(), bytes.NewReader([]byte("0123456789")))
	buf := make([]byte, 20)
	if n, err := r.ReadAt(buf, 4); string(buf[:n]) != "456789" || !errors.Is(err, io.EOF) {
		t.Errorf("%q, %v", buf[:n], err)
	}
}

func TestPaceEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		ctx  func(context.Context) (context.Context, context.CancelFunc)
		want error
		took time.Duration
	}{
		{"already", func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return ctx, cancel
		}, context.Canceled, 0},
		{"while it waits", func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(300*time.Millisecond, cancel)
			return ctx, cancel
		}, context.Canceled, 300 * time.Millisecond},
		// Waits of 100 ms each: the one that would end too late is not begun.
		{"at a deadline", func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 350*time.Millisecond)
		}, context.DeadlineExceeded, 300 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				under := &asked{ReaderAt: bytes.NewReader(make([]byte, 1000))}
				ctx, cancel := c.ctx(t.Context())
				defer cancel()
				r := volume.NewPace(1000).Reader(ctx, under)
				begun := time.Now()
				n, err := r.ReadAt(make([]byte, 1000), 0)
				if n != 0 || !errors.Is(err, c.want) || len(under.all) != 0 {
					t.Errorf("%d bytes, %v, after %d reads", n, err, len(under.all))
				}
				if took := time.Since(begun); (took - c.took).Abs() > time.Millisecond {
					t.Errorf("it took %v, want %v", took, c.took)
				}
			})
		})
	}
}
