package volume_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"streams-sidecar/internal/volume"
	"streams-sidecar/internal/volume/volumetest"
)

// In these tests the clock is synctest's: what does not wait takes no time,
// and a test whose goroutines don't end fails.

const deadline = time.Second

// given is how long a call may take until Do gives up.
const given = deadline + deadline/8

type bench struct {
	*volume.Volume
	fs  *volumetest.FS
	dir string // holds the files "a" and "b"

	mu      sync.Mutex
	changes []volume.Change
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{fs: volumetest.New(t, volume.OS()), dir: t.TempDir()}
	write(t, b.path("a"), "content of a")
	write(t, b.path("b"), "content of b")
	b.Volume = volume.New(b.fs, volume.Deadline(deadline), volume.Notify(func(c volume.Change) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.changes = append(b.changes, c)
	}))
	return b
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

// said is what has been notified, as words.
func (b *bench) said() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for _, c := range b.changes {
		word := "stuck"
		if c.Answered {
			word = "answered"
		}
		out = append(out, fmt.Sprintf("%s %s %s", c.Op, filepath.Base(c.Path), word))
	}
	return out
}

func (b *bench) stat(unit, name string) error {
	_, err := volume.Do(b.Volume, unit, func(fs volume.FS) (volume.Info, error) { return fs.Stat(b.path(name)) })
	return err
}

func TestDoGivesTheResultOfTheLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		got, err := volume.Do(b.Volume, b.dir, func(fs volume.FS) (string, error) {
			var names []string
			err := fs.List(b.dir, func(i volume.Info) error {
				data, _, err := volume.ReadFile(fs, b.path(i.Name), 100)
				names = append(names, i.Name+"="+string(data))
				return err
			})
			return strings.Join(names, " "), err
		})
		must(t, err)
		if got != "a=content of a b=content of b" && got != "b=content of b a=content of a" {
			t.Errorf("got %q", got)
		}
		if err := b.stat(b.dir, "missing"); !volume.IsGone(err) {
			t.Errorf("error of the look became %v", err)
		}
		if _, err := volume.Do(b.Volume, b.dir, func(fs volume.FS) (int, error) { return 3, io.EOF }); !errors.Is(err, io.EOF) {
			t.Errorf("io.EOF became %v", err)
		}
		if n, open := b.fs.Count(volumetest.Close, "..."), b.fs.Count(volumetest.Open, "..."); n != open || n != 2 {
			t.Errorf("%d files were opened and %d closed", open, n)
		}
		if b.said() != nil {
			t.Errorf("notified %v", b.said())
		}
	})
}

// onA is a look that does something to the open file a.
func onA(do func(volume.File) error) func(*bench, volume.FS) error {
	return func(b *bench, fs volume.FS) error {
		f, err := fs.Open(b.path("a"))
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		return do(f)
	}
}

// stalls are looks at a unit that make one call each that can hang: what
// stalls, where, and what the error must say.
var stalls = []struct {
	name string
	op   volumetest.Op
	at   string
	says string // Op and base name
	look func(b *bench, fs volume.FS) error
}{
	{"list", volumetest.List, "", "list", func(b *bench, fs volume.FS) error {
		return fs.List(b.dir, func(volume.Info) error { return nil })
	}},
	{"entry in a list", volumetest.Entry, "b", "list", func(b *bench, fs volume.FS) error {
		return fs.List(b.dir, func(volume.Info) error { return nil })
	}},
	{"lstat", volumetest.Stat, "a", "stat a", func(b *bench, fs volume.FS) error { _, err := fs.Lstat(b.path("a")); return err }},
	{"stat", volumetest.Stat, "a", "stat a", func(b *bench, fs volume.FS) error { _, err := fs.Stat(b.path("a")); return err }},
	{"stat in a list", volumetest.Stat, "a", "stat a", func(b *bench, fs volume.FS) error {
		return fs.List(b.dir, func(volume.Info) error { _, err := fs.Stat(b.path("a")); return err })
	}},
	{"open", volumetest.Open, "a", "open a", func(b *bench, fs volume.FS) error { _, _, err := volume.ReadFile(fs, b.path("a"), 100); return err }},
	{"read", volumetest.Read, "a", "read a", func(b *bench, fs volume.FS) error { _, _, err := volume.ReadFile(fs, b.path("a"), 100); return err }},
	{"read past", volumetest.Read, "a", "read a", onA(func(f volume.File) error { _, err := f.ReadPast(make([]byte, 12), 0); return err })},
	{"deleted", volumetest.Stat, "a", "stat a", onA(func(f volume.File) error { _, err := f.Deleted(); return err })},
	{"close", volumetest.Close, "a", "close a", func(b *bench, fs volume.FS) error { _, _, err := volume.ReadFile(fs, b.path("a"), 100); return err }},
	{"lock", volumetest.Lock, "a", "lock a", func(b *bench, fs volume.FS) error { _, err := fs.Lock(b.path("a")); return err }},
	{"usage", volumetest.Usage, "", "statfs", func(b *bench, fs volume.FS) error { _, err := fs.Usage(b.dir); return err }},
	{"watch", volumetest.Watch, "a", "watch a", func(b *bench, fs volume.FS) error {
		return fs.Watch(b.path("a"), func(string) error { return nil })
	}},
	{"resolve", volumetest.Resolve, "a", "resolve a", func(b *bench, fs volume.FS) error { _, err := fs.Resolve(b.path("a")); return err }},
}

func TestACallThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	for _, c := range stalls {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				do := func() error {
					_, err := volume.Do(b.Volume, b.dir, func(fs volume.FS) (int, error) { return 0, c.look(b, fs) })
					return err
				}
				stall := b.fs.Stall(c.op, b.path(c.at))
				op, name, _ := strings.Cut(c.says, " ")
				begun := time.Now()
				err := do()
				if took := time.Since(begun); took != given {
					t.Errorf("Do took %v, want %v", took, given)
				}
				var e *volume.Error
				if !errors.As(err, &e) || e.Class != volume.Stuck || e.Op != op || e.Path != b.path(name) {
					t.Fatalf("error is %v (%v), want a stuck %s", err, volume.ClassOf(err), c.says)
				}
				if since, ok := volume.StuckSince(err); !ok || !since.Equal(begun) {
					t.Errorf("stuck since %v, want %v", since, begun)
				}

				asked := b.fs.Count(volumetest.Any, "...")
				if again := do(); again == nil || again.Error() != err.Error() || time.Since(begun) != given {
					t.Errorf("asked again it says %v after %v more", again, time.Since(begun)-given)
				}
				if n := b.fs.Count(volumetest.Any, "..."); n != asked {
					t.Errorf("a stuck place got %d more calls", n-asked)
				}
				if err := b.stat("a neighbour", "b"); err != nil {
					t.Errorf("the neighbour: %v", err)
				}
				if n := b.StuckUnits(); n != 1 {
					t.Errorf("%d places are stuck, want 1", n)
				}

				stall.Release()
				synctest.Wait()
				if n := b.StuckUnits(); n != 0 {
					t.Errorf("%d places are still stuck", n)
				}
				if err := do(); err != nil {
					t.Errorf("once it answers: %v", err)
				}
				where := op + " " + filepath.Base(b.path(name))
				if diff := cmp.Diff([]string{where + " stuck", where + " answered"}, b.said()); diff != "" {
					t.Errorf("notified (-want +got):\n%s", diff)
				}
				if open, closed := b.fs.Count(volumetest.Open, "..."), b.fs.Count(volumetest.Close, "..."); open != closed {
					t.Errorf("%d files were opened and %d closed", open, closed)
				}
			})
		})
	}
}

func TestAGivenUpLookEndsAtTheCallThatHung(t *testing.T) {
	t.Parallel()
	for _, op := range []volumetest.Op{volumetest.Stat, volumetest.Open, volumetest.List, volumetest.Read} {
		t.Run(string(op), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				where := b.path("a")
				if op == volumetest.List {
					where = b.dir
				}
				stall := b.fs.Stall(op, where)
				ended := make(chan error, 1)
				visited := 0
				_, err := volume.Do(b.Volume, b.dir, func(fs volume.FS) (res string, err error) {
					defer func() { ended <- err }()
					switch op {
					case volumetest.Stat:
						_, err = fs.Stat(b.path("a"))
					case volumetest.List:
						err = fs.List(b.dir, func(volume.Info) error { visited++; return nil })
					default:
						_, _, err = volume.ReadFile(fs, b.path("a"), 100)
					}
					if err == nil {
						t.Error("the call that was given up came back as if nothing had happened")
					}
					// A look that goes on regardless gets nowhere.
					if _, err := fs.Usage(b.dir); volume.ClassOf(err) != volume.Stuck {
						t.Errorf("the next call gives %v", err)
					}
					return "late", err
				})
				if volume.ClassOf(err) != volume.Stuck {
					t.Fatalf("error is %v", err)
				}
				stall.Release()
				if err := <-ended; volume.ClassOf(err) != volume.Stuck {
					t.Errorf("the look ended with %v", err)
				}
				if n := b.fs.Count(volumetest.Usage, "..."); n != 0 {
					t.Error("the file system was asked by a look that had been given up")
				}
				if visited > 0 {
					t.Errorf("%d entries were visited for nobody", visited)
				}
				if open, closed := b.fs.Count(volumetest.Open, "..."), b.fs.Count(volumetest.Close, "..."); open != closed {
					t.Errorf("%d files were opened and %d closed", open, closed)
				}
			})
		})
	}
}

func TestAPlaceIsStuckUntilItsLookHasClosedItsFile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		read := b.fs.Stall(volumetest.Read, b.path("a"))
		closing := b.fs.Stall(volumetest.Close, b.path("a"))
		_, err := volume.Do(b.Volume, b.dir, func(fs volume.FS) (int, error) {
			_, _, err := volume.ReadFile(fs, b.path("a"), 100)
			return 0, err
		})
		if volume.ClassOf(err) != volume.Stuck {
			t.Fatal(err)
		}
		read.Release()
		synctest.Wait()
		if closing.Blocked() != 1 || b.StuckUnits() != 1 {
			t.Errorf("%d closes hang and %d places are stuck, want 1 of each", closing.Blocked(), b.StuckUnits())
		}
		closing.Release()
		synctest.Wait()
		if b.StuckUnits() != 0 {
			t.Error("still stuck")
		}
	})
}

func TestAVolumeWithTooManyStuckPlacesIsNotAskedAtAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		stall := b.fs.Stall(volumetest.Stat, b.path("a"))
		for i := range volume.MaxStuck {
			if err := b.stat("neighbour", "b"); err != nil {
				t.Errorf("with %d places stuck, a neighbour: %v", i, err)
			}
			if err := b.stat(fmt.Sprint(i), "a"); volume.ClassOf(err) != volume.Stuck {
				t.Fatalf("place %d: %v", i, err)
			}
		}
		asked := b.fs.Count(volumetest.Any, "...")
		before := time.Now()
		err := b.stat("neighbour", "b")
		if volume.ClassOf(err) != volume.Stuck || time.Since(before) != 0 {
			t.Errorf("a neighbour of %d stuck places gives %v", volume.MaxStuck, err)
		}
		if since, _ := volume.StuckSince(err); !since.Equal(before.Add(-time.Duration(volume.MaxStuck) * given)) {
			t.Errorf("stuck since %v, want the oldest of all", since)
		}
		if n := b.fs.Count(volumetest.Any, "..."); n != asked {
			t.Errorf("the volume got %d more calls", n-asked)
		}
		if n := stall.Blocked(); n != volume.MaxStuck {
			t.Errorf("%d calls hang, want %d", n, volume.MaxStuck)
		}
		stall.Release()
		synctest.Wait()
		if err := b.stat("neighbour", "b"); err != nil {
			t.Errorf("once it answers: %v", err)
		}
	})
}

func TestTwoLooksAtOnePlaceAreToldOfOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		first, second := b.fs.Stall(volumetest.Stat, b.path("a")), b.fs.Stall(volumetest.Stat, b.path("b"))
		var wg sync.WaitGroup
		wg.Go(func() { _ = b.stat("unit", "a") })
		synctest.Wait()
		time.Sleep(time.Millisecond)
		wg.Go(func() {
			if err := b.stat("unit", "b"); volume.ClassOf(err) != volume.Stuck || !strings.Contains(err.Error(), b.path("b")) {
				t.Errorf("the second look gives %v", err)
			}
		})
		wg.Wait()
		first.Release()
		synctest.Wait()
		if n := b.StuckUnits(); n != 1 {
			t.Errorf("%d places are stuck while the second call hangs", n)
		}
		if err := b.stat("unit", "missing"); volume.ClassOf(err) != volume.Stuck {
			t.Errorf("the place was asked while the second call hangs: %v", err)
		}
		second.Release()
		synctest.Wait()
		if err := b.stat("unit", "a"); err != nil {
			t.Errorf("once both answer: %v", err)
		}
		if diff := cmp.Diff([]string{"stat a stuck", "stat a answered"}, b.said()); diff != "" {
			t.Errorf("notified (-want +got):\n%s", diff)
		}
	})
}

func TestALookMayTakeLongerThanItsCalls(t *testing.T) {
	t.Parallel()
	const each = deadline * 9 / 10
	largeRead := func(of func(volume.File) io.ReaderAt) func(*bench, volume.FS) error {
		return func(b *bench, fs volume.FS) error {
			f, err := fs.Open(b.path("large"))
			if err != nil {
				return err
			}
			defer func() { _ = f.Close() }()
			buf := make([]byte, 5<<20)
			if n, err := of(f).ReadAt(buf, 3); n != len(buf)-3 || err != io.EOF {
				return fmt.Errorf("read %d bytes: %w", n, err)
			}
			if string(buf[:3]) != "\x00\x00\x00" || string(buf[1<<20-3:1<<20]) != "\x00at" {
				return errors.New("the pieces do not fit together")
			}
			return nil
		}
	}
	for name, look := range map[string]func(b *bench, fs volume.FS) error{
		"calls": func(b *bench, fs volume.FS) error {
			for range 10 {
				if _, err := fs.Stat(b.path("a")); err != nil {
					return err
				}
			}
			return nil
		},
		"entries": func(b *bench, fs volume.FS) error {
			return fs.List(b.dir, func(volume.Info) error { return nil })
		},
		"calls while listing": func(b *bench, fs volume.FS) error {
			return fs.List(b.dir, func(i volume.Info) error { _, err := fs.Lstat(b.path(i.Name)); return err })
		},
		"thinking": func(b *bench, fs volume.FS) error {
			time.Sleep(10 * deadline)
			_, err := fs.Stat(b.path("a"))
			return err
		},
		"one large read":      largeRead(func(f volume.File) io.ReaderAt { return f }),
		"one large read past": largeRead(volume.Past),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				large := make([]byte, 5<<20)
				copy(large[1<<20+1:], "at the seam")
				must(t, os.WriteFile(b.path("large"), large, 0o600))
				for _, op := range []volumetest.Op{volumetest.Stat, volumetest.Entry, volumetest.Read} {
					b.fs.Before(op, "...", func() { time.Sleep(each) })
				}
				begun := time.Now()
				_, err := volume.Do(b.Volume, b.dir, func(fs volume.FS) (int, error) { return 0, look(b, fs) })
				if err != nil || b.said() != nil {
					t.Errorf("error %v, notified %v", err, b.said())
				}
				if took := time.Since(begun); took < 2*deadline {
					t.Errorf("it took only %v", took)
				}
			})
		})
	}
}

func TestACallThatComesBackInTheLastMomentIsNotStuck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.fs.Before(volumetest.Stat, b.path("a"), func() { time.Sleep(deadline + deadline/16) })
		if err := b.stat("unit", "a"); err != nil || b.said() != nil {
			t.Errorf("error %v, notified %v", err, b.said())
		}
		b.fs.Before(volumetest.Stat, b.path("b"), func() { time.Sleep(deadline + deadline/4) })
		if err := b.stat("unit", "b"); volume.ClassOf(err) != volume.Stuck {
			t.Errorf("a call that took a quarter more gives %v", err)
		}
		time.Sleep(deadline)
	})
}

func TestTheDeadlineHasADefault(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{0, -time.Second} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			b.Volume = volume.New(b.fs, volume.Deadline(d))
			b.fs.Stall(volumetest.Stat, b.path("a"))
			begun := time.Now()
			err := b.stat("unit", "a")
			if took := time.Since(begun); took != volume.DefaultDeadline*9/8 || volume.ClassOf(err) != volume.Stuck {
				t.Errorf("deadline %v: %v after %v", d, err, took)
			}
		})
	}
}

func TestALookThatPanicsIsAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		_, err := volume.Do(b.Volume, "/v/unit", func(volume.FS) (int, error) {
			malformed := make([]byte, len("malformed"[9:]))
			return int(malformed[5]), nil
		})
		var e *volume.Error
		if !errors.As(err, &e) || e.Class != volume.Unclassified || e.Path != "/v/unit" || e.Op != "look" {
			t.Fatalf("error is %v", err)
		}
		if want := "look /v/unit: panic: runtime error: index out of range [5] with length 0"; err.Error() != want {
			t.Errorf("text is %q, want %q", err, want)
		}
		var p *volume.Panic
		if !errors.As(err, &p) || !strings.Contains(string(p.Stack), "TestALookThatPanicsIsAnError") {
			t.Errorf("the stack does not lead to the look: %s", p.Stack)
		}
		if _, ok := p.Value.(runtime.Error); !ok {
			t.Errorf("value is %#v", p.Value)
		}

		_, err = volume.Do(b.Volume, "/v/unit", func(volume.FS) (int, error) {
			runtime.Goexit() // as t.Fatal does
			return 0, nil
		})
		if err == nil {
			t.Error("a look that ended its goroutine left no error")
		}
		_, err = volume.Do(b.Volume, "/v/unit", func(fs volume.FS) (int, error) {
			return 0, fs.List(b.dir, func(volume.Info) error { panic("in visit") })
		})
		if err == nil || !strings.HasSuffix(err.Error(), "panic: in visit") {
			t.Errorf("error is %v", err)
		}
		if err := b.stat("/v/unit", "a"); err != nil || b.said() != nil {
			t.Errorf("afterwards: error %v, notified %v", err, b.said())
		}
	})
}

func TestALookThatPanicsAfterItWasGivenUpDoesNoHarm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		stall := b.fs.Stall(volumetest.Stat, b.path("a"))
		_, err := volume.Do(b.Volume, "unit", func(fs volume.FS) (int, error) {
			_, err := fs.Stat(b.path("a"))
			panic(err)
		})
		if volume.ClassOf(err) != volume.Stuck {
			t.Fatal(err)
		}
		stall.Release()
		synctest.Wait()
		if err := b.stat("unit", "a"); err != nil || len(b.said()) != 2 {
			t.Errorf("afterwards: error %v, notified %v", err, b.said())
		}
	})
}

func TestWhatALookWasGivenIsOfNoUseOutside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var kept volume.FS
		f, err := volume.Do(b.Volume, "unit", func(fs volume.FS) (volume.File, error) {
			kept = fs
			return fs.Open(b.path("a"))
		})
		must(t, err)
		asked := b.fs.Count(volumetest.Any, "...")
		if _, err := kept.Stat(b.path("a")); err == nil || volume.ClassOf(err) != volume.Unclassified {
			t.Errorf("a call after the look gives %v", err)
		}
		if err := kept.List(b.dir, func(volume.Info) error { return nil }); err == nil {
			t.Error("a list after the look works")
		}
		if _, err := f.ReadAt(make([]byte, 1), 0); err == nil {
			t.Error("a read after the look works")
		}
		if n := b.fs.Count(volumetest.Any, "..."); n != asked {
			t.Errorf("%d calls reached the volume without a deadline", n-asked)
		}
		must(t, f.Close())
		if b.fs.Count(volumetest.Close, "...") != 1 {
			t.Error("the file was not closed")
		}

		stall := b.fs.Stall(volumetest.Stat, b.path("a"))
		_, err = volume.Do(b.Volume, "unit", func(fs volume.FS) (int, error) {
			var wg sync.WaitGroup
			wg.Go(func() { _, _ = fs.Stat(b.path("a")) })
			synctest.Wait()
			_, err := fs.Stat(b.path("b"))
			stall.Release()
			wg.Wait()
			return 0, err
		})
		if err == nil || volume.ClassOf(err) != volume.Unclassified {
			t.Errorf("a second call at once gives %v", err)
		}
	})
}

func TestNotificationsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	// In real time: synctest's clock stands still while somebody waits for a
	// mutex, and the second notification waits for the first.
	b := newBench(t)
	said := make(chan bool, 2)
	stall := b.fs.Stall(volumetest.Stat, b.path("a"))
	v := volume.New(b.fs, volume.Deadline(20*time.Millisecond), volume.Notify(func(c volume.Change) {
		if !c.Answered {
			stall.Release()
			time.Sleep(50 * time.Millisecond) // slow to take note, while the call comes back
		}
		said <- c.Answered
	}))
	_, err := volume.Do(v, "unit", func(fs volume.FS) (volume.Info, error) { return fs.Stat(b.path("a")) })
	if volume.ClassOf(err) != volume.Stuck {
		t.Fatal(err)
	}
	if <-said || !<-said {
		t.Error("told of the answer before the silence")
	}
}

func TestManyLooksAtOnceWithStallsHereAndThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const units, askers, rounds = 8, 3, 40
		b := newBench(t)
		for u := range units {
			must(t, os.Mkdir(b.path(fmt.Sprint(u)), 0o700))
			write(t, b.path(fmt.Sprintf("%d/file", u)), fmt.Sprint(u))
		}
		slow := func() {
			switch rand.IntN(12) {
			case 0: // hangs for a while
				time.Sleep(deadline * time.Duration(2+rand.IntN(5)))
			case 1: // about as long as it may
				time.Sleep(given + time.Duration(rand.IntN(3)-1))
			case 2:
				time.Sleep(deadline / 2)
			}
		}
		b.fs.Before(volumetest.Any, "...", slow)
		b.fs.Before(volumetest.Entry, "...", slow)

		var wg sync.WaitGroup
		var mu sync.Mutex
		results := map[string]int{}
		for u := range units {
			unit := b.path(fmt.Sprint(u))
			for range askers {
				wg.Go(func() {
					for range rounds {
						begun := time.Now()
						got, err := volume.Do(b.Volume, unit, func(fs volume.FS) (string, error) {
							var got string
							err := fs.List(unit, func(i volume.Info) error {
								data, _, err := volume.ReadFile(fs, filepath.Join(unit, i.Name), 10)
								got += string(data)
								return err
							})
							return got, err
						})
						result := "right"
						switch {
						case volume.ClassOf(err) == volume.Stuck:
							result = "stuck"
						case err != nil || got != fmt.Sprint(u):
							t.Errorf("unit %d: %q, %v", u, got, err)
						}
						// Open, read, close, two steps of the list.
						if took := time.Since(begun); took > 5*given {
							t.Errorf("unit %d took %v", u, took)
						}
						if n := b.StuckUnits(); n > units {
							t.Errorf("%d places are stuck", n)
						}
						mu.Lock()
						results[result]++
						mu.Unlock()
						time.Sleep(deadline)
					}
				})
			}
		}
		wg.Wait()
		time.Sleep(10 * deadline)
		if b.StuckUnits() != 0 {
			t.Errorf("%d places are stuck at the end", b.StuckUnits())
		}
		if results["right"] == 0 || results["stuck"] == 0 {
			t.Errorf("results are %v, want some of each", results)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		// Of each place: stuck, answered, stuck, answered…
		stuck := map[string]volume.Change{}
		for _, c := range b.changes {
			unit := strings.TrimSuffix(c.Path, "/file")
			was, is := stuck[unit]
			if c.Answered != is {
				t.Fatalf("%+v while stuck: %v", c, is)
			}
			if c.Answered {
				was.Answered = true
				if c != was {
					t.Errorf("answered as %+v, was stuck as %+v", c, was)
				}
				delete(stuck, unit)
			} else {
				stuck[unit] = c
			}
		}
		if len(stuck) > 0 {
			t.Errorf("never answered: %v", stuck)
		}
		if open, closed := b.fs.Count(volumetest.Open, "..."), b.fs.Count(volumetest.Close, "..."); open != closed {
			t.Errorf("%d files were opened and %d closed", open, closed)
		}
	})
}

func TestReadFile(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		rule  func(b *bench)
		limit int64
		want  string
		class volume.Class
		fails bool
	}{
		{"exactly the bound", func(*bench) {}, 12, "content of a", 0, false},
		{"one byte beyond the bound", func(*bench) {}, 11, "", volume.TooLarge, true},
		{"it shrinks meanwhile", func(b *bench) {
			b.fs.After(volumetest.Open, b.path("a"), func() { _ = os.Truncate(b.path("a"), 7) })
		}, 100, "content", 0, false},
		{"it grows meanwhile", func(b *bench) {
			b.fs.After(volumetest.Open, b.path("a"), func() { _ = os.WriteFile(b.path("a"), []byte("content of another"), 0o600) })
		}, 12, "content of a", 0, false},
		{"it is deleted meanwhile", func(b *bench) {
			b.fs.After(volumetest.Open, b.path("a"), func() { _ = os.Remove(b.path("a")) })
		}, 100, "content of a", 0, false},
		{"the device fails", func(b *bench) { b.fs.FailAfter(b.path("a"), 7, syscall.EIO) }, 100, "content", volume.IO, true},
		{"closing fails", func(b *bench) { b.fs.Fail(volumetest.Close, b.path("a"), syscall.EIO) }, 100, "content of a", volume.IO, true},
		{"it cannot be opened", func(b *bench) { b.fs.Fail(volumetest.Open, b.path("a"), syscall.EMFILE) }, 100, "", volume.TooMany, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			c.rule(b)
			data, info, err := volume.ReadFile(b.fs, b.path("a"), c.limit)
			if string(data) != c.want || (err != nil) != c.fails || volume.ClassOf(err) != c.class {
				t.Errorf("read %q, %v (%v); want %q and class %v", data, err, volume.ClassOf(err), c.want, c.class)
			}
			opened := c.class != volume.TooMany
			if (info.Size == 12) != opened {
				t.Errorf("info is %+v", info)
			}
			if n := b.fs.Count(volumetest.Close, "..."); (n == 1) != opened {
				t.Errorf("the file was closed %d times", n)
			}
			if n := b.fs.Count(volumetest.Read, "..."); c.class == volume.TooLarge && n != 0 {
				t.Errorf("%d reads of a file that is too large", n)
			}
		})
	}
}
