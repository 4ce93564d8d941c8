package statedir

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/volume"
)

// holdVariable makes the test binary hold the lock of the file that it names:
// a process does not see its own locks.
const holdVariable = "STATEDIR_TEST_HOLD"

func TestMain(m *testing.M) {
	path := os.Getenv(holdVariable)
	if path == "" {
		os.Exit(m.Run())
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err == nil {
		err = syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: syscall.F_WRLCK})
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("held")
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent closes it
}

// hold has another process hold the lock of a file; it gives its pid and a
// function that ends it.
func hold(t *testing.T, path string) (pid int, release func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holdVariable+"="+path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	release = sync.OnceFunc(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("lock holder: %v", err)
		}
	})
	t.Cleanup(release)
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatalf("lock holder says %q", line)
	}
	return cmd.Process.Pid, release
}

// tempDir is t.TempDir by its real name.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	return dir
}

// grow makes files below a directory. Each line is "path" (an empty file),
// "path/" (a directory), "path = text" (a file; \n is a line end) or
// "path -> target" (a symbolic link).
func grow(t testing.TB, root, lines string) {
	t.Helper()
	for line := range strings.SplitSeq(lines, "\n") {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if name, target, ok := strings.Cut(line, " -> "); ok {
			path := filepath.Join(root, name)
			must(t, os.MkdirAll(filepath.Dir(path), 0o755))
			must(t, os.Symlink(target, path))
			continue
		}
		name, text, _ := strings.Cut(line, " = ")
		put(t, filepath.Join(root, name)+strings.Repeat("/", len(name)-len(strings.TrimSuffix(name, "/"))),
			strings.ReplaceAll(text, `\n`, "\n"))
	}
}

// put makes a file, or a directory if the path ends with a slash.
func put(t testing.TB, path, text string) {
	t.Helper()
	if strings.HasSuffix(path, "/") {
		must(t, os.MkdirAll(path, 0o755))
		return
	}
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(text), 0o644))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func scan(root string) *Dir { return Scan(volume.New(volume.OS()), root, nil) }

// describe writes a result as text: a line for each thing, indented below what
// it belongs to, with its findings last. The root in paths is left out, and
// ROOT by itself.
func describe(d *Dir) string {
	var b strings.Builder
	root := d.Resolved
	if root == "" {
		root = d.Path
	}
	short := strings.NewReplacer(volume.Text(root)+"/", "/", volume.Text(root), "ROOT").Replace
	findings := func(indent string, fs []finding.Finding) {
		for _, f := range fs {
			fmt.Fprintf(&b, "%s! %s %s", indent, f.Code, short(f.File))
			if f.Offset != nil {
				fmt.Fprintf(&b, " @%d", *f.Offset)
			}
			if f.Expected != "" {
				fmt.Fprintf(&b, " expected %s", short(f.Expected))
			}
			if f.Found != "" {
				fmt.Fprintf(&b, " found %s", short(f.Found))
			}
			b.WriteByte('\n')
		}
	}
	for _, a := range d.Applications {
		fmt.Fprintf(&b, "application %s\n", volume.Text(a.ID))
		for _, k := range a.Tasks {
			fmt.Fprintf(&b, "  task %s\n", volume.Text(k.ID))
			if k.Checkpoint != nil {
				fmt.Fprintf(&b, "    checkpoint %v\n", k.Checkpoint.Entries)
			}
			for _, name := range sortedKeys(k.StoreCheckpoints) {
				fmt.Fprintf(&b, "    checkpoint of %s %v\n", name, k.StoreCheckpoints[name].Entries)
			}
			for _, s := range k.Stores {
				fmt.Fprintf(&b, "    store %s", volume.Text(s.Name))
				for _, x := range []struct {
					is   bool
					word string
				}{{s.Segmented, "segmented"}, {s.Empty, "empty"}, {s.SetAside, "set-aside"}} {
					if x.is {
						b.WriteString(" " + x.word)
					}
				}
				if s.Position != nil {
					fmt.Fprintf(&b, " position %v", s.Position.Entries)
				}
				b.WriteByte('\n')
				for _, g := range s.Segments {
					fmt.Fprintf(&b, "      segment %s", volume.Text(g.Name))
					if g.StartKnown {
						fmt.Fprintf(&b, " from %d", g.StartMillis)
					}
					b.WriteByte('\n')
				}
				findings("      ", s.Findings)
			}
			findings("    ", k.Findings)
		}
		findings("  ", a.Findings)
	}
	findings("", d.Findings)
	return b.String()
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// expect compares a result with its description, which may be indented.
func expect(t *testing.T, d *Dir, want string) {
	t.Helper()
	lines := strings.Split(strings.Trim(want, "\n\t "), "\n")
	first, _, _ := strings.Cut(strings.TrimLeft(want, "\n"), strings.TrimLeft(lines[0], "\t"))
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], first)
	}
	if diff := diffText(strings.Join(lines, "\n"), strings.TrimSuffix(describe(d), "\n")); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
}

func diffText(want, got string) string {
	return cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n"))
}

// special makes a FIFO or a socket.
func special(t testing.TB, path string, kind uint32) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, unix.Mknod(path, kind|0o644, 0))
}
