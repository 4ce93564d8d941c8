package engine_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"streams-sidecar/internal/engine"
	"streams-sidecar/internal/store"
)

var ctx = context.Background()

// clock is a time that only a test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// fake gives a client of a child that starts as kind says.
func fake(t *testing.T, kind string, set ...func(*engine.Options)) *engine.Client {
	t.Helper()
	o := engine.Options{Program: self(), Deadline: 30 * time.Second}
	o.Fake(fakeEnv + "=" + kind)
	o.NoPause()
	for _, f := range set {
		f(&o)
	}
	c := engine.New(o)
	t.Cleanup(c.Close)
	return c
}

func ask(t *testing.T, c *engine.Client, path string) (*engine.Answer, *engine.Error) {
	t.Helper()
	return askAs(t, c, path, 0)
}

func askAs(t *testing.T, c *engine.Client, path string, fingerprint uint64) (*engine.Answer, *engine.Error) {
	t.Helper()
	a, err := engine.AskAnyway(ctx, c, path, fingerprint, engine.What{})
	if err == nil {
		return a, nil
	}
	e, ok := errors.AsType[*engine.Error](err)
	if !ok {
		t.Fatalf("%s: %v is no *Error", path, err)
	}
	return nil, e
}

func well(t *testing.T, c *engine.Client, path string) {
	t.Helper()
	a, err := ask(t, c, path)
	if err != nil {
		t.Errorf("%s: %v", path, err)
	} else if a.LastSequence != 42 || len(a.Families) != 1 || string(a.Families[0].Name) != filepath.Base(path) {
		t.Errorf("%s: %+v", path, a)
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	c := fake(t, "good")
	if v, err := c.Version(ctx); v != "10.10.1" || err != nil {
		t.Errorf("version %q, %v", v, err)
	}
	well(t, c, "/state/a")
	well(t, c, "/state/not utf-8 \xff\xfe\n")
	if n := c.Restarts(); n != 0 {
		t.Errorf("%d restarts", n)
	}
}

// TestOneAtATime: many ask at once, and the child, which refuses a second
// request before it has answered, does not notice.
func TestOneAtATime(t *testing.T) {
	t.Parallel()
	c := fake(t, "good")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 5 {
				well(t, c, fmt.Sprintf("/state/%d-%d", i, j))
			}
		})
	}
	wg.Wait()
	if n := c.Restarts(); n != 0 {
		t.Errorf("%d restarts", n)
	}
}

// TestBadDatabase: whatever a database does to the child, it is told, that
// database is not asked again, and the next one is answered by a new child.
func TestBadDatabase(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		kind engine.Kind
		says string
		fast bool // with a short deadline
	}{
		{"hangs", engine.Hung, "after", true},
		{"spins", engine.Hung, "after", true},
		{"floods-slowly", engine.Hung, "after", true},
		{"crashes", engine.Died, "signal: killed: " + fakeWhy, false},
		{"exits", engine.Died, "ended by itself", false},
		{"closes", engine.Died, "does not end", false},
		{"babbles", engine.Garbage, "too large", false},
		{"floods", engine.Garbage, "too large", false},
		{"lies", engine.Garbage, "answer 2 to request 1", false},
		{"no-json", engine.Garbage, "decode", false},
		{"eats", engine.Died, "exit status 2", false}, // a thread or a page is what it lacks
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if tc.name == "eats" && raceDetector {
				t.Skip("the race detector takes more memory than any bound; the real engine is tested with it")
			}
			o := func(o *engine.Options) {}
			if tc.fast {
				// Also the next child must answer within it, on a loaded machine.
				o = func(o *engine.Options) { o.Deadline = 2 * time.Second }
			}
			c := fake(t, "good", o)
			if tc.name != "lies" {
				well(t, c, "/state/first")
			}
			_, err := ask(t, c, "/state/"+tc.name)
			if err == nil || err.Kind != tc.kind || !strings.Contains(err.Error(), tc.says) || err.Path != "/state/"+tc.name || err.AboutEngine() {
				t.Fatalf("%+v, want %s with %q", err, tc.kind, tc.says)
			}
			if _, err := ask(t, c, "/state/"+tc.name); err == nil || err.Kind != engine.SetAside || !strings.Contains(err.Error(), string(tc.kind)) {
				t.Errorf("asked again: %v", err)
			}
			if n := c.Restarts(); n != 0 {
				t.Errorf("%d restarts before there was something to ask", n)
			}
			well(t, c, "/state/next")
			if n := c.Restarts(); n != 1 {
				t.Errorf("%d restarts, want 1", n)
			}
		})
	}
}

// TestLongAnswer: a child that has more to say than may be said says that, goes
// on, and is no worse for it.
func TestLongAnswer(t *testing.T) {
	t.Parallel()
	c := fake(t, "good")
	for range 3 {
		if a, err := ask(t, c, "/state/long"); err == nil || err.Kind != engine.TooLarge || err.Times != 0 {
			t.Errorf("%+v, %v", a, err)
		}
	}
	well(t, c, "/state/next")
	if n := c.Restarts(); n != 0 {
		t.Errorf("%d restarts", n)
	}
}

// TestSetAside: for an hour, or until the database changes, but never sooner
// than after a minute.
func TestSetAside(t *testing.T) {
	t.Parallel()
	clock := &clock{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	c := fake(t, "good", func(o *engine.Options) { o.Clock(clock.Now) })
	times := 0
	kind := func(fingerprint uint64) engine.Kind {
		t.Helper()
		_, err := askAs(t, c, "/state/exits", fingerprint)
		if err == nil {
			t.Fatal("it was answered")
		}
		times = err.Times
		return err.Kind
	}
	for i, step := range []struct {
		later       time.Duration
		fingerprint uint64
		want        engine.Kind
		times       int
	}{
		{0, 1, engine.Died, 1},
		{0, 1, engine.SetAside, 1},
		{59 * time.Second, 2, engine.SetAside, 1},
		{time.Second, 1, engine.Died, 2}, // once may be a slow volume's
		{59 * time.Second, 2, engine.SetAside, 2},
		{time.Second, 1, engine.SetAside, 2},
		{0, 2, engine.Died, 3},
		{59 * time.Minute, 2, engine.SetAside, 3},
		{time.Minute, 2, engine.Died, 4},
	} {
		clock.Add(step.later)
		if got := kind(step.fingerprint); got != step.want || times != step.times {
			t.Errorf("step %d: %s, %d times, want %s, %d times", i, got, times, step.want, step.times)
		}
	}
	well(t, c, "/state/other")
}

// TestBadStart: an engine that does not start is told for what it lacks, and
// tried again only after a pause.
func TestBadStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	notProgram := filepath.Join(dir, "text")
	if err := os.WriteFile(notProgram, []byte("no program\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	closed := filepath.Join(dir, "closed")
	if err := os.WriteFile(closed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, program string
		kind          engine.Kind
		says          string
	}{
		{"missing", filepath.Join(dir, "nothing"), engine.Missing, "no such program"},
		{"no permission", closed, engine.Broken, "permission denied"},
		{"of another machine", notProgram, engine.Broken, "exec format error"},
		{"lacks-library", "", engine.Broken, "librocksdb.so"},
		{"talks", "", engine.Broken, "nothing that sidecar-engine says"},
		{"wordy", "", engine.Incompatible, "1048583 bytes"},
		{"without", "", engine.Incompatible, "without the tag rocksdb"},
		{"old", "", engine.Incompatible, "7.8.3"},
		{"other-protocol", "", engine.Incompatible, "protocol 99"},
		{"too little memory", "", engine.NoMemory, "it may have 95 MiB and needs 96"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			clock := &clock{now: time.Now()}
			c := fake(t, tc.name, func(o *engine.Options) {
				o.Clock(clock.Now)
				if tc.program != "" {
					o.Program = tc.program
				}
				if tc.kind == engine.NoMemory {
					o.Memory = engine.LeastMemory - 1
				}
				*o = withPause(*o)
			})
			_, err := c.Version(ctx)
			e, ok := errors.AsType[*engine.Error](err)
			if !ok || e.Kind != tc.kind || !strings.Contains(err.Error(), tc.says) || !e.AboutEngine() {
				t.Fatalf("%v, want %s with %q", err, tc.kind, tc.says)
			}
			if _, again := ask(t, c, "/state/a"); again != e {
				t.Errorf("tried again at once: %v", again)
			}
			clock.Add(time.Minute)
			if _, again := ask(t, c, "/state/a"); again == e || again == nil || again.Kind != tc.kind {
				t.Errorf("not tried again after a minute: %v", again)
			}
		})
	}
}

// withPause has the pauses of a real client.
func withPause(o engine.Options) engine.Options {
	o.Pause(engine.PauseAfter)
	return o
}

func TestPauses(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]time.Duration{0: 0, 1: 0, 2: 250 * time.Millisecond, 3: 500 * time.Millisecond, 4: time.Second, 9: 32 * time.Second, 10: time.Minute, 1 << 40: time.Minute} {
		if got := engine.PauseAfter(n); got != want {
			t.Errorf("after %d failures %v, want %v", n, got, want)
		}
	}
}

// TestCallerGivesUp: that is no fault of the database.
func TestCallerGivesUp(t *testing.T) {
	t.Parallel()
	c := fake(t, "good")
	well(t, c, "/state/a")
	for range 2 {
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		_, err := engine.AskAnyway(short, c, "/state/hangs", 0, engine.What{})
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	}
	well(t, c, "/state/b")
}

// TestStuckProcess: as long as one does not end, none other is started.
func TestStuckProcess(t *testing.T) {
	t.Parallel()
	c := fake(t, "good")
	release := engine.Haunt(c)
	for range 2 {
		if _, err := ask(t, c, "/state/a"); err == nil || err.Kind != engine.Stuck || !strings.Contains(err.Error(), "4711") || !err.AboutEngine() {
			t.Errorf("%v", err)
		}
	}
	if engine.Pid(c) != 0 {
		t.Error("another one was started")
	}
	release()
	well(t, c, "/state/a")
}

func TestClose(t *testing.T) {
	t.Parallel()
	c := fake(t, "good")
	well(t, c, "/state/a")
	pid := engine.Pid(c)
	c.Close()
	c.Close()
	if lives(t, pid) {
		t.Error("the child lives on")
	}
	if _, err := ask(t, c, "/state/a"); err == nil || err.Kind != engine.Closed {
		t.Errorf("%v", err)
	}
}

// TestDiesBetweenRequests: the next one does not notice.
func TestDiesBetweenRequests(t *testing.T) {
	t.Parallel()
	c := fake(t, "good")
	well(t, c, "/state/a")
	pid := engine.Pid(c)
	p, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); lives(t, pid) && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	// It may have ended so recently that its end is not noticed: then the
	// database of the next request is blamed for it, and the one after it is well.
	if _, err := ask(t, c, "/state/b"); err != nil && err.Kind != engine.Died && err.Kind != engine.Garbage {
		t.Error(err)
	}
	well(t, c, "/state/c")
	if n := c.Restarts(); n != 1 {
		t.Errorf("%d restarts, want 1", n)
	}
}

// TestEndsByItself: a child that ends although nobody asks is replaced once, and
// then no faster than one that does not start.
func TestEndsByItself(t *testing.T) {
	t.Parallel()
	clock := &clock{now: time.Now()}
	c := fake(t, "leaves", func(o *engine.Options) {
		o.Clock(clock.Now)
		*o = withPause(*o)
	})
	ended := func() { // until the client knows of it
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); !engine.Ended(c); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("it does not end")
			}
		}
	}
	for i := range 2 {
		if _, err := c.Version(ctx); err != nil {
			t.Fatalf("start %d: %v", i, err)
		}
		ended()
	}
	var starts []time.Duration
	for begun := clock.Now(); clock.Now().Sub(begun) < 10*time.Minute; clock.Add(time.Second) {
		_, err := c.Version(ctx)
		if err == nil {
			starts = append(starts, clock.Now().Sub(begun))
			ended()
			continue
		}
		if e, ok := errors.AsType[*engine.Error](err); !ok || e.Kind != engine.Broken || !strings.Contains(err.Error(), "it ends by itself: exit status 3: somebody needs me elsewhere") {
			t.Fatalf("%v", err)
		}
	}
	if n := len(starts); n < 9 || n > 20 || starts[n-1]-starts[n-2] < 55*time.Second {
		t.Errorf("started again after %v", starts)
	}
}

// TestCalledOff: a request that is over starts and kills nothing.
func TestCalledOff(t *testing.T) {
	t.Parallel()
	c := fake(t, "good")
	well(t, c, "/state/a")
	over, cancel := context.WithCancel(ctx)
	cancel()
	for range 100 {
		if _, err := engine.AskAnyway(over, c, "/state/b", 0, engine.What{}); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	if n := c.Restarts(); n != 0 {
		t.Errorf("%d restarts", n)
	}
}

// TestRowOfBadDatabases: they do not make the next one wait longer and longer.
func TestRowOfBadDatabases(t *testing.T) {
	t.Parallel()
	longest := 0
	c := fake(t, "good", func(o *engine.Options) {
		o.Pause(func(n int) time.Duration {
			longest = max(longest, n)
			return 0
		})
	})
	for i := range 20 {
		if _, err := ask(t, c, fmt.Sprintf("/state/%d/exits", i)); err == nil || err.Kind != engine.Died {
			t.Fatal(err)
		}
	}
	well(t, c, "/state/a")
	if pause := engine.PauseAfter(longest); pause != 2*time.Second {
		t.Errorf("a pause of %v", pause)
	}
}

// TestParentIsKilled: a child ends with the sidecar, also in the middle of an
// answer that never comes.
func TestParentIsKilled(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"/state/hangs", "/state/spins"} {
		t.Run(filepath.Base(what), func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(self())
			cmd.Env = append(os.Environ(), parentEnv+"="+what)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			pid, err := strconv.Atoi(strings.TrimSpace(line))
			if err != nil {
				t.Fatal(err)
			}
			if !lives(t, pid) {
				t.Fatal("there is no child")
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // killed
			for deadline := time.Now().Add(30 * time.Second); lives(t, pid); {
				if time.Now().After(deadline) {
					t.Fatal("the child has outlived its parent")
				}
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
}

// lives says that a process runs; a zombie does not.
func lives(t *testing.T, pid int) bool {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z") && !strings.HasPrefix(after, "X")
}

// TestNotFit: nothing but what our own reader has read whole is put to RocksDB.
func TestNotFit(t *testing.T) {
	t.Parallel()
	c := fake(t, "good")
	_, err := c.Ask(ctx, &store.Database{Path: "/state/never read"}, engine.What{})
	if e, ok := errors.AsType[*engine.Error](err); !ok || e.Kind != engine.NotFit {
		t.Errorf("%v", err)
	}
	if engine.Pid(c) != 0 {
		t.Error("a child was started for it")
	}
}

// TestBounds: what the child is under.
func TestBounds(t *testing.T) {
	t.Parallel()
	// A descriptor that is passed on to every child, as a shell's may be.
	inherited, err := os.Create(filepath.Join(t.TempDir(), "inherited"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = inherited.Close() })
	if _, err := unix.FcntlInt(inherited.Fd(), unix.F_SETFD, 0); err != nil {
		t.Fatal(err)
	}
	c := fake(t, "good")
	well(t, c, "/state/a")
	proc := fmt.Sprintf("/proc/%d/", engine.Pid(c))
	limits, err := os.ReadFile(proc + "limits")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"Max file size": "0", "Max core file size": "0", "Max open files": "256"}
	if !raceDetector {
		want["Max data size"] = strconv.Itoa(engine.DefaultMemory)
	}
	for name, value := range want {
		_, rest, ok := strings.Cut(string(limits), name)
		if fields := strings.Fields(rest); !ok || fields[0] != value || fields[1] != value {
			t.Errorf("%s: want %s in\n%s", name, value, limits)
		}
	}
	env, err := os.ReadFile(proc + "environ")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(env), "PATH=") {
		t.Errorf("the child got our environment: %q", env)
	}
	status, err := os.ReadFile(proc + "status")
	if err != nil || !strings.Contains(string(status), "NoNewPrivs:\t1") {
		t.Errorf("%v, no NoNewPrivs in\n%s", err, status)
	}
	if score, err := os.ReadFile(proc + "oom_score_adj"); err != nil || string(score) != "1000\n" {
		t.Errorf("not the first to be killed: %q, %v", score, err)
	}
	fds, err := filepath.Glob(proc + "fd/*")
	if err != nil || len(fds) < 3 {
		t.Fatal(fds, err)
	}
	for _, fd := range fds {
		if name, err := os.Readlink(fd); err == nil && name == inherited.Name() {
			t.Errorf("the child has inherited %s", name)
		}
	}
	if cwd, err := os.Readlink(proc + "cwd"); cwd != "/" {
		t.Errorf("works in %s, %v", cwd, err)
	}
}
