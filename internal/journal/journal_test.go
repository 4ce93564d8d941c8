package journal_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"streams-sidecar/internal/journal"
	"streams-sidecar/internal/volume"
)

const (
	// patience bounds how long something may take that takes no time on an
	// idle machine.
	patience = 30 * time.Second

	name       = "last-shutdown.json"
	folderName = ".streams-sidecar"
)

type record struct {
	Outcome string            `json:"outcome"`
	Number  int               `json:"number"`
	Stores  map[string]string `json:"stores,omitempty"`
}

// open gives a Folder with the patience that a busy machine needs.
func open(dir string, opts ...journal.Option) *journal.Folder {
	return journal.Open(dir, append([]journal.Option{journal.Deadline(patience)}, opts...)...)
}

// writers are the ways to write a document.
var writers = map[string]func(*journal.Folder, string, any) error{
	"write": (*journal.Folder).Write,
	"put":   (*journal.Folder).Put,
	"put and sync": func(f *journal.Folder, name string, doc any) error {
		if err := f.Put(name, doc); err != nil {
			return err
		}
		return f.Sync(name)
	},
}

func TestADocumentIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	for how, write := range writers {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			f := open(dir)
			for i, outcome := range []string{"closed-clean", "closed-unclean <&>", "", "Ünicode\nand \"quotes\""} {
				want := record{Outcome: outcome, Number: i, Stores: map[string]string{"b": "open", "a": "closed"}}
				must(t, write(f, name, want))
				must(t, write(f, "other", record{Number: -i}))
				for reader, r := range map[string]*journal.Folder{"writer": f, "another": open(dir)} {
					var got, other record
					must(t, r.Read(name, &got))
					must(t, r.Read("other", &other))
					if diff := cmp.Diff([]record{want, {Number: -i}}, []record{got, other}); diff != "" {
						t.Errorf("the %s reads (-want +got):\n%s", reader, diff)
					}
				}
			}
			if diff := cmp.Diff([]string{name, "other"}, entries(t, dir)); diff != "" {
				t.Errorf("in the folder (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAFileIsMadeForPeople(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, open(dir).Write(name, record{"timeout <1>", 7, map[string]string{"z": "1", "m": "2", "a": "3"}}))
	got, err := os.ReadFile(filepath.Join(dir, folderName, name))
	must(t, err)
	const want = `{
  "outcome": "timeout <1>",
  "number": 7,
  "stores": {
    "a": "3",
    "m": "2",
    "z": "1"
  }
}
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("the file (-want +got):\n%s", diff)
	}
	for path, most := range map[string]fs.FileMode{"": 0o750, name: 0o640} {
		fi, err := os.Stat(filepath.Join(dir, folderName, path))
		must(t, err)
		if p := fi.Mode().Perm(); p&^most != 0 || p&0o600 != 0o600 { // what the umask takes is not ours
			t.Errorf("%s/%s has mode %v, want %v less the umask", folderName, path, p, most)
		}
	}
}

func TestWhatIsMissing(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	for what, dir := range map[string]string{
		"document": filepath.Join(top, "a"), "folder": filepath.Join(top, "b"), "state directory": filepath.Join(top, "c"),
	} {
		f := open(dir)
		none := what == "state directory"
		if !none {
			must(t, os.Mkdir(dir, 0o755))
		}
		if what == "document" {
			must(t, f.Put("another", record{}))
		}
		var doc record
		for op, err := range map[string]error{"read": f.Read(name, &doc), "sync": f.Sync(name)} {
			if !errors.Is(err, fs.ErrNotExist) || errors.Is(err, journal.ErrNoStateDir) != none {
				t.Errorf("without a %s, %s gives %v", what, op, err)
			}
		}
		if err := f.Remove(name); err != nil {
			t.Errorf("without a %s, remove gives %v", what, err)
		}
	}
	for how, write := range writers {
		err := write(open(filepath.Join(top, "c")), name, record{})
		if !errors.Is(err, journal.ErrNoStateDir) || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("without a state directory, %s gives %v", how, err)
		}
	}
	if diff := cmp.Diff([]string{"a", "a/" + folderName, "a/" + folderName + "/another", "b"}, paths(t, top)); diff != "" {
		t.Errorf("afterwards there are (-want +got):\n%s", diff)
	}
}

func TestRemove(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := open(dir)
	must(t, f.Put(name, record{}))
	must(t, f.Put("other", record{}))
	must(t, f.Remove(name))
	if diff := cmp.Diff([]string{"other"}, entries(t, dir)); diff != "" {
		t.Errorf("in the folder (-want +got):\n%s", diff)
	}
	if err := f.Read(name, &record{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a removed document gives %v", err)
	}
}

func TestOnlyPlainNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := open(dir)
	for _, bad := range []string{
		"", ".", "..", "/", "a/b", "../a", "a/", "/etc/passwd", ".hidden", "a b", "a\x00b", "a\nb", "ä", "\xff", `a\b`, "*",
		strings.Repeat("n", journal.MaxName+1), journal.Temporary(name),
	} {
		for op, err := range map[string]error{
			"write": f.Write(bad, record{}), "put": f.Put(bad, record{}), "sync": f.Sync(bad),
			"read": f.Read(bad, &record{}), "remove": f.Remove(bad),
		} {
			var e *journal.Error
			if !errors.Is(err, fs.ErrInvalid) || !errors.As(err, &e) || e.Op != op {
				t.Errorf("%s of %q gives %v", op, bad, err)
			}
		}
	}
	if got := paths(t, dir); got != nil {
		t.Errorf("names that are none made %q", got)
	}
	for _, good := range []string{"a", "last-shutdown.json", "A_1", "a..b", "-", strings.Repeat("n", journal.MaxName)} {
		must(t, f.Write(good, record{Outcome: good}))
		var got record
		if must(t, f.Read(good, &got)); got.Outcome != good {
			t.Errorf("%q holds %q", good, got.Outcome)
		}
	}
}

func TestWhatIsNoDocument(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := open(dir)
	must(t, f.Put(name, record{"closed-clean", 12, map[string]string{"a": "b"}}))
	path := filepath.Join(dir, folderName, name)
	whole, err := os.ReadFile(path)
	must(t, err)

	contents := map[string]string{
		"zeros": strings.Repeat("\x00", len(whole)), "garbage": "\xff\xfe\x00", "text": "hello\n", "list": "[]",
		"number": "7", "other types": `{"number":"seven"}`, "two": string(whole) + string(whole),
		"a tail": string(whole) + "}", "deep": strings.Repeat("[", 1<<16),
	}
	for n := range len(whole) - 1 { // all but the newline
		contents[fmt.Sprintf("torn after %d bytes", n)] = string(whole[:n])
	}
	for what, content := range contents {
		must(t, os.WriteFile(path, []byte(content), 0o640))
		err := f.Read(name, &record{})
		var damaged *journal.Damaged
		if !errors.As(err, &damaged) || damaged.Size != len(content) || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if msg := err.Error(); strings.Contains(msg, "\n") || len(msg) > 1000 {
			t.Errorf("%s: no line for people: %q", what, msg)
		}
	}
	// It is not in the way of the next one.
	must(t, f.Write(name, record{Number: 1}))
	must(t, f.Read(name, &record{}))

	var e *json.InvalidUnmarshalError
	if err := f.Read(name, nil); !errors.As(err, &e) || errors.As(err, new(*journal.Damaged)) {
		t.Errorf("a mistake of the caller is told as %v", err)
	}
}

func TestSizeIsBounded(t *testing.T) {
	t.Parallel()
	const limit = 1000
	dir := t.TempDir()
	f := open(dir, journal.Limit(limit))
	most := strings.Repeat("x", limit-len("\"\"\n"))
	must(t, f.Put(name, most))
	for how, write := range writers {
		if err := write(f, name, most+"y"); volume.ClassOf(err) != volume.TooLarge || strings.Contains(err.Error(), "removed") {
			t.Errorf("%s of a byte too many gives %v", how, err)
		}
	}
	var got string
	if must(t, f.Read(name, &got)); got != most {
		t.Errorf("%d bytes became %d", len(most), len(got))
	}

	path := filepath.Join(dir, folderName, name)
	for limit, f := range map[int64]*journal.Folder{limit: f, journal.MaxSize: open(dir)} {
		must(t, os.Truncate(path, 0)) // or it is not all zeros
		for _, size := range []int64{1 << 40, limit + 1} {
			must(t, os.Truncate(path, size))
			if err := f.Read(name, &got); volume.ClassOf(err) != volume.TooLarge || !strings.Contains(err.Error(), "can be removed") {
				t.Errorf("a file of %d bytes gives %v", size, err)
			}
		}
		must(t, os.Truncate(path, limit))
		if err := f.Read(name, &got); !errors.As(err, new(*journal.Damaged)) {
			t.Errorf("a file of %d zeros gives %v", limit, err)
		}
	}
}

func TestAFileThatIsCutWhileItIsRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, open(dir).Put(name, record{Outcome: "closed-clean"}))
	err := open(dir, journal.Around(func(step string, sys func() error) error {
		if step == "read" {
			must(t, os.Truncate(filepath.Join(dir, folderName, name), 3))
		}
		return sys()
	})).Read(name, new(record))
	var damaged *journal.Damaged
	if !errors.As(err, &damaged) || damaged.Size != 3 {
		t.Errorf("it gives %v", err)
	}
}

func TestADocumentThatCannotBeEncodedChangesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := open(dir)
	for how, write := range writers {
		var e *journal.Error
		if err := write(f, name, func() {}); !errors.As(err, &e) || !strings.Contains(err.Error(), "encode") {
			t.Errorf("%s of a function gives %v", how, err)
		}
	}
	if got := paths(t, dir); got != nil {
		t.Errorf("it made %q", got)
	}
}

// state is a state directory as it may be, with something in the place of the
// folder.
func state(t *testing.T, folder func(dir, path string) error) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	for _, d := range []string{"app/0_0/rocksdb/kv", "lost+found"} {
		must(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	for _, f := range []string{"app/.lock", "app/0_0/.checkpoint", "app/0_0/" + name, "app/0_0/rocksdb/kv/CURRENT", "file"} {
		must(t, os.WriteFile(filepath.Join(dir, f), []byte("content of "+f), 0o644))
	}
	if folder != nil {
		must(t, folder(dir, filepath.Join(dir, folderName)))
	}
	return dir
}

func TestSomethingElseInThePlaceOfTheFolder(t *testing.T) {
	t.Parallel()
	link := func(to string) func(dir, path string) error {
		return func(_, path string) error { return os.Symlink(to, path) }
	}
	for what, c := range map[string]struct {
		make func(dir, path string) error
		says string
	}{
		"a link to a task":           {link("app/0_0"), "symbolic link"},
		"an absolute link":           {func(dir, path string) error { return os.Symlink(filepath.Join(dir, "app"), path) }, "symbolic link"},
		"a link to the directory":    {link("."), "symbolic link"},
		"a link to nothing":          {link("nowhere"), "symbolic link"},
		"a link to a file":           {link("file"), "symbolic link"},
		"a link to itself":           {link(folderName), "symbolic link"},
		"a file":                     {func(_, path string) error { return os.WriteFile(path, nil, 0o644) }, "is a file"},
		"a FIFO that nobody writes":  {func(_, path string) error { return unix.Mkfifo(path, 0o644) }, "special file"},
		"a socket nobody listens to": {func(_, path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o644, 0) }, "special file"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := state(t, c.make)
			before := tree(t, dir)
			f := open(dir)
			for op, err := range map[string]error{
				"write": f.Write(name, record{}), "put": f.Put(name, record{}), "sync": f.Sync(name),
				"read": f.Read(name, &record{}), "remove": f.Remove(name),
			} {
				if volume.ClassOf(err) != volume.WrongKind || errors.Is(err, journal.ErrNoStateDir) || errors.Is(err, fs.ErrNotExist) ||
					!strings.Contains(err.Error(), ": open "+folderName+": is a") || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%s gives %v", op, err)
				}
			}
			if diff := cmp.Diff(before, tree(t, dir)); diff != "" {
				t.Errorf("the state directory changed:\n%s", diff)
			}
		})
	}
}

func TestSomethingElseInThePlaceOfADocument(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		make     func(path string) error
		replaced bool // by a write, as anything is that is not a directory
	}{
		"a link to a file of the application": {func(p string) error { return os.Symlink("../app/0_0/.checkpoint", p) }, true},
		"a link to nothing":                   {func(p string) error { return os.Symlink("../app/new", p) }, true},
		"a link to itself":                    {func(p string) error { return os.Symlink(name, p) }, true},
		"a FIFO that nobody writes":           {func(p string) error { return unix.Mkfifo(p, 0o644) }, true},
		"a socket nobody listens to":          {func(p string) error { return unix.Mknod(p, unix.S_IFSOCK|0o644, 0) }, true},
		"a directory":                         {func(p string) error { return os.Mkdir(p, 0o755) }, false},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := state(t, func(_, path string) error {
				if err := os.Mkdir(path, 0o750); err != nil {
					return err
				}
				return c.make(filepath.Join(path, name))
			})
			before := tree(t, dir)
			f := open(dir)
			for op, err := range map[string]error{"read": f.Read(name, &record{}), "sync": f.Sync(name)} {
				if volume.ClassOf(err) != volume.WrongKind {
					t.Errorf("%s gives %v", op, err)
				}
			}
			for how, write := range writers {
				err := write(f, name, record{Number: 5})
				if (err == nil) != c.replaced || !c.replaced && volume.ClassOf(err) != volume.WrongKind {
					t.Errorf("%s gives %v", how, err)
				}
				if c.replaced {
					var got record
					if must(t, f.Read(name, &got)); got.Number != 5 {
						t.Errorf("%s, and read: %v", how, got)
					}
					must(t, f.Remove(name))
					must(t, c.make(filepath.Join(dir, folderName, name)))
				}
				if diff := cmp.Diff([]string{name}, entries(t, dir)); diff != "" {
					t.Errorf("%s leaves in the folder (-want +got):\n%s", how, diff)
				}
				if diff := cmp.Diff(outside(before), outside(tree(t, dir))); diff != "" {
					t.Errorf("%s changed the state directory:\n%s", how, diff)
				}
			}
		})
	}
}

func TestAStateDirectoryThatIsNone(t *testing.T) {
	t.Parallel()
	dir := state(t, nil)
	must(t, os.Symlink("loop", filepath.Join(dir, "loop")))
	before := tree(t, dir)
	for _, path := range []string{"file", "file/below", "loop", "nowhere", "app/.lock"} {
		f := open(filepath.Join(dir, path))
		for op, err := range map[string]error{"write": f.Write(name, record{}), "read": f.Read(name, &record{})} {
			if !errors.Is(err, journal.ErrNoStateDir) {
				t.Errorf("%s in %s gives %v", op, path, err)
			}
		}
	}
	if diff := cmp.Diff(before, tree(t, dir)); diff != "" {
		t.Errorf("the state directory changed:\n%s", diff)
	}

	// The way there may lead over a link: that is how it was given.
	must(t, os.Symlink(filepath.Base(dir), dir+"-link"))
	must(t, open(dir+"-link").Write(name, record{}))
	if diff := cmp.Diff([]string{name}, entries(t, dir)); diff != "" {
		t.Errorf("in the folder (-want +got):\n%s", diff)
	}
}

func TestNothingOutsideTheFolderChanges(t *testing.T) {
	t.Parallel()
	dir := state(t, nil)
	before := tree(t, dir)
	f := open(dir)
	must(t, f.Remove(name))
	if diff := cmp.Diff(before, tree(t, dir)); diff != "" {
		t.Errorf("a remove without a document changed:\n%s", diff)
	}
	for range 2 {
		for _, write := range writers {
			must(t, write(f, name, record{}))
		}
		must(t, f.Read(name, &record{}))
		must(t, f.Remove(name))
	}
	if diff := cmp.Diff(outside(before), outside(tree(t, dir))); diff != "" {
		t.Errorf("outside the folder changed:\n%s", diff)
	}
}

func TestWhatACrashLeftIsRemovedByTheNextWriter(t *testing.T) {
	t.Parallel()
	const left = 150 // more than fit one answer of the kernel
	others := []string{".hidden", ".last-shutdown.json.tmp", "last-shutdown.json.0123456789abcdef.tmp",
		".last-shutdown.json.0123456789abcdeF.tmp", "..0123456789abcdef.tmp", ".a b.0123456789abcdef.tmp", "else"}
	for how, write := range writers {
		dir := state(t, func(_, path string) error { return os.Mkdir(path, 0o750) })
		for range left {
			must(t, os.WriteFile(filepath.Join(dir, folderName, journal.Temporary(name)), []byte("{"), 0o640))
		}
		for _, o := range others {
			must(t, os.WriteFile(filepath.Join(dir, folderName, o), nil, 0o640))
		}
		inTheWay := journal.Temporary("directory")
		must(t, os.Mkdir(filepath.Join(dir, folderName, inTheWay), 0o750))
		must(t, open(dir).Read("else", new(any)), "empty") // only writers do
		if n := len(entries(t, dir)); n != left+len(others)+1 {
			t.Errorf("a reader leaves %d files", n)
		}
		must(t, write(open(dir), name, record{}))
		want := append([]string{name, inTheWay}, others...)
		if diff := cmp.Diff(sorted(want), entries(t, dir)); diff != "" {
			t.Errorf("%s leaves in the folder (-want +got):\n%s", how, diff)
		}
	}
}

func TestNamesOfTemporaryFiles(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 1000 {
		for _, n := range []string{"a", name, strings.Repeat("n", journal.MaxName)} {
			temp := journal.Temporary(n)
			if seen[temp] || !journal.IsTemporary(temp) || len(temp) > 255 {
				t.Fatalf("%q (seen before: %v)", temp, seen[temp])
			}
			seen[temp] = true
		}
	}
	for _, s := range []string{"", ".", ".tmp", ".a.tmp", ".0123456789abcdef.tmp", "a.0123456789abcdef.tmp",
		".a.0123456789abcdeg.tmp", ".a/b.0123456789abcdef.tmp", ".a-0123456789abcdef.tmp", ".a.0123456789abcdef.tm"} {
		if journal.IsTemporary(s) {
			t.Errorf("%q is taken for a temporary file", s)
		}
	}
}

func TestManyWritersAndReaders(t *testing.T) {
	t.Parallel()
	const rounds = 40
	dir := t.TempDir()
	// What each writes shows whether it is whole.
	type doc struct {
		Writer int
		Text   string
	}
	text := func(writer, round int) string { return strings.Repeat(fmt.Sprint(writer, "-", round, " "), 500+round) }
	folders := []*journal.Folder{open(dir), open(dir)}
	must(t, folders[0].Put(name, doc{}))
	var writing, reading sync.WaitGroup
	for w := range 4 {
		writing.Go(func() {
			f := folders[w%2]
			for i := range rounds {
				write := f.Put
				if i%10 == 0 {
					write = f.Write
				}
				if err := write(name, doc{w, text(w, i)}); err != nil {
					t.Errorf("writer %d: %v", w, err)
				}
			}
		})
	}
	stop := make(chan struct{})
	for _, f := range []*journal.Folder{folders[0], open(dir)} {
		reading.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				var d doc
				if err := f.Read(name, &d); err != nil {
					t.Errorf("reader: %v", err)
					return
				}
				if word, _, _ := strings.Cut(d.Text, " "); d.Text != "" && strings.Trim(strings.ReplaceAll(d.Text, word+" ", ""), " ") != "" {
					t.Errorf("a mix: %.100q", d.Text)
					return
				}
			}
		})
	}
	writing.Wait()
	close(stop)
	reading.Wait()
	var d doc
	must(t, open(dir).Read(name, &d))
	if d.Text != text(d.Writer, rounds-1) {
		t.Errorf("the last document is %.40q of writer %d", d.Text, d.Writer)
	}
	if diff := cmp.Diff([]string{name}, entries(t, dir)); diff != "" {
		t.Errorf("in the folder (-want +got):\n%s", diff)
	}
}

func TestErrorsAreLinesForPeople(t *testing.T) {
	t.Parallel()
	const path = "/state/.streams-sidecar/last.json"
	for want, e := range map[string]journal.Error{
		"write " + path + ": there is no state directory: no such file or directory; check its path and that the volume is mounted; the sidecar never makes it": {Op: "write",
			Err: fmt.Errorf("%w: %w", journal.ErrNoStateDir, syscall.ENOENT)},
		"put " + path + ": make .streams-sidecar: permission denied; " + volume.Denied.Hint(): {Op: "put", Err: fmt.Errorf("make .streams-sidecar: %w", syscall.EACCES)},
		"write " + path + ": fsync: disk quota exceeded; " + volume.Full.Hint():               {Op: "write", Err: fmt.Errorf("fsync: %w", syscall.EDQUOT)},
		"write " + path + ": fsync: operation not supported":                                  {Op: "write", Err: fmt.Errorf("fsync: %w", syscall.EOPNOTSUPP)},
		"remove " + path + ": remove: read-only file system; mount the volume into the sidecar's container without readOnly, and look whether the node has remounted it": {Op: "remove",
			Err: fmt.Errorf("remove: %w", syscall.EROFS)},
		"read " + path + ": the file is empty; it can be removed, and the next one replaces it": {Op: "read", Err: &journal.Damaged{}},
		"read " + path + ": its 3 bytes are no document of the sidecar: bad; it can be removed, and the next one replaces it": {Op: "read",
			Err: &journal.Damaged{Size: 3, Err: errors.New("bad")}},
	} {
		e.Path = path
		if diff := cmp.Diff(want, e.Error()); diff != "" {
			t.Errorf("the error says (-want +got):\n%s", diff)
		}
	}
	e := &journal.Error{Op: "read", Path: "/a\nb", Err: errors.New("x")}
	if got := e.Error(); got != `read /a\nb: x` {
		t.Errorf("a path with a newline becomes %q", got)
	}
}
