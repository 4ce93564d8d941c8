package journal_test

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"streams-sidecar/internal/journal"
	"streams-sidecar/internal/volume"
)

// old is what the document holds before a call that something happens to, and
// young what the call writes.
const old, young = 1, 2

// scene is a call whose steps are each got in the way of.
type scene struct {
	name  string
	fresh bool // neither folder nor document is there before
	call  func(*journal.Folder) error
	steps []string
}

const (
	openState, openFolder, closeFolder, closeState = "open the state directory", "open " + folderName,
		"close " + folderName, "close the state directory"
	syncFolder, syncState = "fsync " + folderName, "fsync the state directory"
	create                = "create a temporary file"
	removeOld             = "remove the old document"
	list                  = "list " + folderName
)

func write(f *journal.Folder) error { return f.Write(name, record{Number: young}) }
func put(f *journal.Folder) error   { return f.Put(name, record{Number: young}) }
func fsync(f *journal.Folder) error { return f.Sync(name) }
func read(f *journal.Folder) error  { return f.Read(name, new(record)) }

func remove(f *journal.Folder) error { return f.Remove(name) }

// The order of the steps is what makes a write safe: the data is durable before
// it gets its name, and the name before the call returns.
var scenes = []scene{
	{"write", false, write, []string{openState, openFolder, list, list, create, "write", "fsync", "close", "rename",
		syncFolder, syncState, closeFolder, closeState}},
	{"first write", true, write, []string{openState, openFolder, "make " + folderName, openFolder, list, list, create, "write", "fsync",
		"close", "rename", syncFolder, syncState, closeFolder, closeState}},
	{"put", false, put, []string{openState, openFolder, list, list, create, "write", "close", "stat", "exchange",
		removeOld, closeFolder, closeState}},
	{"first put", true, put, []string{openState, openFolder, "make " + folderName, openFolder, list, list, create, "write", "close",
		"stat", "rename", closeFolder, closeState}},
	{"sync", false, fsync, []string{openState, openFolder, "open", "stat", "fsync", syncFolder, syncState, "close", closeFolder, closeState}},
	{"read", false, read, []string{openState, openFolder, "open", "stat", "read", "close", closeFolder, closeState}},
	{"remove", false, remove, []string{openState, openFolder, "remove", closeFolder, closeState}},
}

// stage makes a state directory for a scene.
func (s scene) stage(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if !s.fresh {
		must(t, open(dir).Put(name, record{Number: old}))
	}
	return dir
}

// number is what the document holds; 0 if there is none.
func number(t testing.TB, dir string) int {
	t.Helper()
	var r record
	if err := open(dir).Read(name, &r); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("afterwards: %v", err)
	}
	return r.Number
}

// before is what the document holds before the scene.
func (s scene) before() int {
	if s.fresh {
		return 0
	}
	return old
}

// after is what it holds after a scene that ended at a step.
func (s scene) after(i int) int {
	switch {
	case s.name == "remove" && i > slices.Index(s.steps, "remove"):
		return 0
	case slices.ContainsFunc(s.steps[:i], names):
		return young
	}
	return s.before()
}

// names says that a step gives the new document its name.
func names(step string) bool { return step == "rename" || step == "exchange" }

func TestSteps(t *testing.T) {
	t.Parallel()
	for _, s := range scenes {
		dir := s.stage(t)
		var got []string
		must(t, s.call(open(dir, journal.Around(func(step string, sys func() error) error {
			got = append(got, step)
			return sys()
		}))))
		if diff := cmp.Diff(s.steps, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", s.name, diff)
		}
		if n := number(t, dir); n != s.after(len(s.steps)) {
			t.Errorf("after %s the document is %d", s.name, n)
		}
	}
}

// Not parallel: it counts the descriptors of the process.
func TestAnErrorInAnyStep(t *testing.T) {
	for _, s := range scenes {
		for i, failing := range s.steps {
			for _, errno := range []syscall.Errno{syscall.EIO, syscall.EDQUOT} {
				dir := s.stage(t)
				descriptors := openFiles(t)
				at := 0
				f := open(dir, journal.Around(func(step string, sys func() error) error {
					at++
					if at-1 != i {
						return sys()
					}
					if strings.HasPrefix(step, "close") { // as the kernel does
						_ = sys()
					}
					return errno
				}))
				err := s.call(f)
				what := fmt.Sprintf("%s, %s: %v", s.name, failing, errno)
				// What was only read is closed in any case, and what
				// was left behind by others is not ours to mind.
				writes := slices.Contains(s.steps, create)
				tolerated := failing == list || failing == closeFolder || failing == closeState || failing == removeOld ||
					failing == "exchange" || failing == "close" && !writes || failing == "stat" && writes
				after := s.after(i)
				if tolerated {
					after = s.after(len(s.steps))
				}
				if n := number(t, dir); n != after {
					t.Errorf("%s: the document is %d, want %d", what, n, after)
				}
				if open := openFiles(t); open != descriptors {
					t.Errorf("%s: %d descriptors became %d", what, descriptors, open)
				}
				if left := temporary(t, dir); len(left) > 1 || len(left) == 1 && failing != removeOld {
					t.Errorf("%s: it left %q", what, left)
				}
				if tolerated {
					if err != nil {
						t.Errorf("%s: %v", what, err)
					}
					continue
				}
				var e *journal.Error
				if !errors.As(err, &e) || !errors.Is(err, errno) || !strings.Contains(err.Error(), ": "+failing+": "+errno.Error()+"; ") {
					t.Errorf("%s: the error is %v", what, err)
				}
				if class := volume.ClassOf(errno); volume.ClassOf(err) != class {
					t.Errorf("%s: the class is %v, want %v", what, volume.ClassOf(err), class)
				}
				at = len(s.steps) // and once it is over
				must(t, s.call(f), "no such file")
			}
		}
	}
}

func openFiles(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(list)
}

func temporary(t testing.TB, dir string) (left []string) {
	t.Helper()
	for _, p := range paths(t, dir) {
		if journal.IsTemporary(filepath.Base(p)) {
			left = append(left, p)
		}
	}
	return left
}

func TestAnInterruptedStepIsRepeated(t *testing.T) {
	t.Parallel()
	for _, s := range scenes {
		if s.name == "remove" {
			s.call = func(f *journal.Folder) error { return f.Remove("nothing") }
		}
		for i, step := range s.steps {
			at := 0
			dir := s.stage(t)
			err := s.call(open(dir, journal.Around(func(_ string, sys func() error) error {
				if at++; at == i+1 {
					return syscall.EINTR
				}
				return sys()
			})))
			if err != nil {
				t.Errorf("%s, %s: %v", s.name, step, err)
			}
		}
	}
}

// A FUSE or network file system may not know how to fsync a directory.
func TestDirectoriesThatCannotBeSynced(t *testing.T) {
	t.Parallel()
	for _, errno := range []syscall.Errno{syscall.EINVAL, syscall.ENOSYS, syscall.EOPNOTSUPP} {
		for _, call := range []func(*journal.Folder) error{write, fsync} {
			dir := scenes[0].stage(t)
			must(t, call(open(dir, journal.Around(func(step string, sys func() error) error {
				if step == syncFolder || step == syncState {
					return errno
				}
				return sys()
			}))))
			err := call(open(dir, journal.Around(func(step string, sys func() error) error {
				if step == "fsync" { // of the document: that would be no durability at all
					return errno
				}
				return sys()
			})))
			if !errors.Is(err, errno) {
				t.Errorf("a file that cannot be synced gives %v, want %v", err, errno)
			}
		}
	}
}

// What cannot exchange is renamed, and what may have been exchanged is not
// exchanged again, which would undo it.
func TestWithoutExchange(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		done bool // all the same
		want []string
	}{
		{syscall.EINVAL, false, []string{"exchange", "rename"}},
		{syscall.ENOSYS, false, []string{"exchange", "rename"}},
		{syscall.EINTR, false, []string{"exchange", "exchange", removeOld}},
		{syscall.EINTR, true, []string{"exchange", "exchange", removeOld}},
	} {
		dir := scenes[0].stage(t)
		var got []string
		must(t, put(open(dir, journal.Around(func(step string, sys func() error) error {
			if step == removeOld || names(step) {
				got = append(got, step)
			}
			if len(got) == 1 && step == "exchange" {
				if c.done {
					must(t, sys())
				}
				return c.err
			}
			return sys()
		}))))
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%v, done %v (-want +got):\n%s", c.err, c.done, diff)
		}
		if n, left := number(t, dir), entries(t, dir); n != young || !slices.Equal(left, []string{name}) {
			t.Errorf("%v, done %v: the document is %d in %q", c.err, c.done, n, left)
		}
	}
}

func TestAnotherGetsInTheWayOfAWrite(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		before string
		do     func(t *testing.T, dir string)
	}{
		"a writer that starts takes the temporary file for a leftover": {"rename", func(t *testing.T, dir string) {
			must(t, open(dir).Put("another", record{}))
		}},
		"somebody removes the folder with the temporary file in it": {"rename", func(t *testing.T, dir string) {
			must(t, os.RemoveAll(filepath.Join(dir, folderName)))
		}},
		"somebody removes the old document": {"exchange", func(t *testing.T, dir string) {
			must(t, open(dir).Remove(name))
		}},
		"a writer that starts takes the file of a put for a leftover": {"exchange", func(t *testing.T, dir string) {
			must(t, open(dir).Put("another", record{}))
		}},
		"another puts the same first": {"exchange", func(t *testing.T, dir string) {
			must(t, open(dir).Put(name, record{}))
		}},
		"somebody removes the folder": {create, func(t *testing.T, dir string) {
			must(t, os.RemoveAll(filepath.Join(dir, folderName)))
		}},
		"another makes the folder first": {"make " + folderName, func(t *testing.T, dir string) {
			must(t, os.Mkdir(filepath.Join(dir, folderName), 0o750))
		}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir, call := t.TempDir(), write
			if c.before == "exchange" {
				must(t, open(dir).Put(name, record{Number: old}))
				call = put
			}
			var once sync.Once
			must(t, call(open(dir, journal.Around(func(step string, sys func() error) error {
				if step == c.before {
					once.Do(func() { c.do(t, dir) })
				}
				return sys()
			}))))
			if n := number(t, dir); n != young {
				t.Errorf("the document is %d", n)
			}
			if left := temporary(t, dir); left != nil {
				t.Errorf("it left %q", left)
			}
		})
	}
	t.Run("somebody does so again and again", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		tries := 0
		err := write(open(dir, journal.Around(func(step string, sys func() error) error {
			if step == "rename" {
				tries++
				must(t, os.RemoveAll(filepath.Join(dir, folderName)))
			}
			return sys()
		})))
		if !errors.Is(err, fs.ErrNotExist) || errors.Is(err, journal.ErrNoStateDir) || tries != 3 {
			t.Errorf("after %d tries: %v", tries, err)
		}
	})
	t.Run("the name is taken", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		tries := 0
		must(t, write(open(dir, journal.Around(func(step string, sys func() error) error {
			if step == create {
				if tries++; tries == 1 {
					return syscall.EEXIST
				}
			}
			return sys()
		}))))
		if n := number(t, dir); n != young || tries != 2 {
			t.Errorf("after %d tries the document is %d", tries, n)
		}
	})
}

// In the tests of time the clock is synctest's: what does not wait takes none.

const deadline = time.Second

func TestACallThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	for _, s := range scenes {
		for i, hanging := range s.steps {
			t.Run(fmt.Sprint(s.name, " ", i, " ", hanging), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					dir := s.stage(t)
					release := make(chan struct{})
					at, asked := 0, 0
					f := journal.Open(dir, journal.Deadline(deadline), journal.Around(func(_ string, sys func() error) error {
						asked++
						if at++; at == i+1 {
							<-release
						}
						return sys()
					}))
					begun := time.Now()
					err := s.call(f)
					if took := time.Since(begun); took != deadline {
						t.Errorf("it took %v, want %v", took, deadline)
					}
					var e *journal.Error
					if !errors.As(err, &e) || volume.ClassOf(err) != volume.Stuck || e.Path != filepath.Join(dir, folderName, name) ||
						!strings.HasSuffix(err.Error(), name+": "+hanging+": no answer from the volume since "+begun.UTC().Format(time.RFC3339)+"; "+volume.Stuck.Hint()) {
						t.Errorf("the error is %v", err)
					}
					synctest.Wait()
					calls := asked
					for _, other := range scenes {
						err := other.call(f)
						if volume.ClassOf(err) != volume.Stuck || !strings.Contains(err.Error(), ": "+hanging+": no answer") || time.Since(begun) != deadline {
							t.Errorf("%s meanwhile gives %v after %v", other.name, err, time.Since(begun)-deadline)
						}
					}
					if synctest.Wait(); asked != calls {
						t.Errorf("%d more system calls were made meanwhile", asked-calls)
					}
					if n, want := number(t, dir), s.after(i); n != want {
						t.Errorf("meanwhile the document is %d, want %d", n, want)
					}

					close(release)
					synctest.Wait()
					// The step that hung is done now, and none after it but
					// those that clean up.
					if n, want := number(t, dir), s.after(i+1); n != want {
						t.Errorf("then the document is %d, want %d", n, want)
					}
					if left := temporary(t, dir); left != nil {
						t.Errorf("it left %q", left)
					}
					if want := slices.Contains(s.steps[:i+1], "make "+folderName) || !s.fresh; want != (paths(t, dir) != nil) {
						t.Errorf("then there is %q", paths(t, dir))
					}
					must(t, s.call(f), "no such file")
				})
			})
		}
	}
}

func TestCallsTakeTurns(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		slow time.Duration // what the first call takes
		want string        // what comes of calls, and when
	}{
		"behind a slow one":           {deadline / 2, "500ms ok, 500ms ok, 500ms ok"},
		"behind one that is given up": {10 * deadline, "1s stuck, 1s stuck, 1s stuck"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				under, most := 0, 0 // system calls at the same time
				var mu sync.Mutex
				var once sync.Once
				f := journal.Open(dir, journal.Deadline(deadline), journal.Around(func(step string, sys func() error) error {
					mu.Lock()
					under++
					most = max(most, under)
					mu.Unlock()
					if step == "rename" {
						once.Do(func() { time.Sleep(c.slow) })
					}
					defer func() {
						mu.Lock()
						under--
						mu.Unlock()
					}()
					return sys()
				}))
				var got [3]string
				var calls sync.WaitGroup
				begun := time.Now()
				for i := range got {
					calls.Go(func() {
						time.Sleep(time.Duration(i) * 10 * time.Millisecond)
						said := "ok"
						err := f.Put(fmt.Sprint(i), record{})
						if volume.ClassOf(err) == volume.Stuck {
							said = "stuck"
							if names := strings.Contains(err.Error(), "put of 0: rename: no answer"); names != (i > 0) {
								t.Errorf("put of %d: %v", i, err)
							}
						} else if err != nil {
							said = err.Error()
						}
						got[i] = fmt.Sprint(time.Since(begun), " ", said)
					})
				}
				calls.Wait()
				if diff := cmp.Diff(c.want, strings.Join(got[:], ", ")); diff != "" {
					t.Errorf("the calls (-want +got):\n%s", diff)
				}
				time.Sleep(c.slow) // until what was given up has ended, too
				synctest.Wait()
				if most != 1 {
					t.Errorf("%d system calls at the same time", most)
				}
			})
		})
	}
	t.Run("waiting counts", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			f := journal.Open(t.TempDir(), journal.Deadline(deadline), journal.Around(func(step string, sys func() error) error {
				if step == create {
					time.Sleep(deadline * 3 / 4)
				}
				return sys()
			}))
			go func() { _ = put(f) }()
			synctest.Wait()
			begun := time.Now()
			if err := put(f); volume.ClassOf(err) != volume.Stuck || time.Since(begun) != deadline {
				t.Errorf("after %v the second gives %v", time.Since(begun), err)
			}
			time.Sleep(deadline) // until it has ended, too
			must(t, put(f))
		})
	})
}

// What follows needs a process of its own.

const childEnv = "SIDECAR_TEST_JOURNAL_CHILD"

func TestMain(m *testing.M) {
	if do, dir, ok := strings.Cut(os.Getenv(childEnv), ":"); ok {
		child(do, dir)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(do, dir string) {
	fail := func(err error) {
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	switch do {
	case "write": // numbers for ever
		f := open(dir)
		var r record
		fail(f.Read(name, &r))
		for i := r.Number + 1; ; i++ {
			call := f.Put
			if i%8 == 0 {
				call = f.Write
			}
			fail(call(name, long(i)))
			if i%4 == 0 {
				fmt.Println(i)
			}
		}
	case "slow": // until the input ends
		over := make(chan struct{})
		go func() {
			_, _ = os.Stdin.Read(make([]byte, 1))
			close(over)
		}()
		f := journal.Open(dir, journal.Deadline(stopped*2/3), journal.Around(func(step string, sys func() error) error {
			if step == create { // so that it is stopped in the middle of a call
				fmt.Println(step)
			}
			time.Sleep(5 * time.Millisecond)
			return sys()
		}))
		for {
			select {
			case <-over:
				return
			default:
			}
			fail(put(f))
		}
	default: // dies in front of a step
		call := write
		if strings.HasPrefix(do, "put") {
			call = put
		}
		step, err := strconv.Atoi(do[strings.LastIndex(do, " ")+1:])
		fail(err)
		f := open(dir, journal.Around(func(_ string, sys func() error) error {
			if step--; step < 0 {
				fail(syscall.Kill(os.Getpid(), syscall.SIGKILL))
				select {}
			}
			return sys()
		}))
		fail(call(f))
	}
}

// long is a document that is easily torn.
func long(number int) record {
	r := record{Number: number, Outcome: strings.Repeat(fmt.Sprint(number, " "), 2_000), Stores: map[string]string{}}
	for i := range 100 {
		r.Stores[fmt.Sprint(i)] = fmt.Sprint(number)
	}
	return r
}

func start(t *testing.T, do, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+do+":"+dir)
	cmd.Stderr = os.Stderr
	t.Cleanup(func() {
		if cmd.Process != nil {
			_ = cmd.Process.Kill() // it may have ended by itself
			_ = cmd.Wait()
		}
	})
	return cmd
}

func TestAProcessThatIsKilledInAnyStep(t *testing.T) {
	t.Parallel()
	for _, s := range scenes[:3] {
		for i, step := range s.steps {
			if i < slices.Index(s.steps, create) && s.name != "first write" {
				continue // as in another one
			}
			dir := s.stage(t)
			cmd := start(t, fmt.Sprint(s.name, " ", i), dir)
			err := cmd.Run()
			if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
				t.Fatalf("%s, %s: the child ended with %v", s.name, step, err)
			}
			if n, want := number(t, dir), s.after(i); n != want {
				t.Errorf("killed in front of %s, %s: the document is %d, want %d", s.name, step, n, want)
			}
			must(t, write(open(dir)))
			if n, left := number(t, dir), entries(t, dir); n != young || !slices.Equal(left, []string{name}) {
				t.Errorf("killed in front of %s, %s: after the next write the document is %d in %q", s.name, step, n, left)
			}
		}
	}
}

func TestAProcessThatIsKilledAnywhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, open(dir).Put(name, long(0)))
	var mu sync.Mutex
	last, reads := 0, 0
	look := func(atLeast int) {
		var r record
		err := open(dir).Read(name, &r)
		mu.Lock()
		defer mu.Unlock()
		reads++
		if err != nil {
			t.Errorf("read %d: %v", reads, err)
			return
		}
		if diff := cmp.Diff(long(r.Number), r); diff != "" {
			t.Errorf("read %d: not a whole document of one write: %s", reads, diff)
		}
		if r.Number < max(last, atLeast) {
			t.Errorf("read %d: %d after %d", reads, r.Number, max(last, atLeast))
		}
		last = r.Number
	}
	for round := range 12 {
		cmd := start(t, "write", dir)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		lines := bufio.NewScanner(out)
		said := 0
		for range round%2 + 1 { // at another moment each time
			if !lines.Scan() {
				t.Fatalf("the child said nothing more: %v", lines.Err())
			}
			if said, err = strconv.Atoi(lines.Text()); err != nil {
				t.Fatal(lines.Text())
			}
			look(said)
		}
		time.Sleep(time.Duration(round) * 300 * time.Microsecond)
		must(t, cmd.Process.Kill())
		_ = cmd.Wait() // "signal: killed"
		look(said)
	}
	must(t, write(open(dir)))
	if left := entries(t, dir); !slices.Equal(left, []string{name}) {
		t.Errorf("in the end there is %q", left)
	}
}

// stopped is for how long a process is stopped, longer than its deadline.
const stopped = 1500 * time.Millisecond

// Time that the process itself did not run is not the volume's.
func TestAProcessThatIsStopped(t *testing.T) {
	t.Parallel()
	cmd := start(t, "slow", t.TempDir())
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for range 3 {
		if !lines.Scan() {
			t.Fatal("the child said nothing")
		}
	}
	must(t, cmd.Process.Signal(syscall.SIGSTOP))
	time.Sleep(stopped)
	must(t, cmd.Process.Signal(syscall.SIGCONT))
	for range 3 {
		if !lines.Scan() {
			t.Fatal("the child ended after it had been stopped")
		}
		if lines.Text() != create {
			t.Fatal(lines.Text())
		}
	}
	must(t, in.Close())
	must(t, cmd.Wait())
}
