package policy

import (
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// allowed are exceptions to the rules about imports and names, as
// "<file> <import path>.<name>", each with its reason.
var allowed = map[string]string{
	"internal/journal/files.go golang.org/x/sys/unix.Mkdirat":      "makes its own folder",
	"internal/journal/files.go golang.org/x/sys/unix.O_CREAT":      "makes a temporary file in it",
	"internal/journal/files.go golang.org/x/sys/unix.O_WRONLY":     "writes that file",
	"internal/journal/files.go golang.org/x/sys/unix.Write":        "writes that file",
	"internal/journal/files.go golang.org/x/sys/unix.Renameat":     "gives that file its name",
	"internal/journal/files.go golang.org/x/sys/unix.Renameat2":    "gives that file its name without waiting for the disk",
	"internal/journal/files.go golang.org/x/sys/unix.Unlinkat":     "removes its documents, and temporary files that a crash left",
	"internal/volume/past.go golang.org/x/sys/unix.Syscall":        "asks by mincore what is cached, for which there is no function",
	"internal/engine/child/child.go os.WriteFile":                  "tells the kernel whom to kill first",
	"cmd/sidecar-engine/rocksdb.go github.com/linxGnu/grocksdb":    "opens databases read-only, in a child process",
	"cmd/sidecar-engine/library.go github.com/linxGnu/grocksdb":    "asks for what the binding leaves out",
	"test/rockswriter/cmd/rocksdb.go github.com/linxGnu/grocksdb":  "writes databases for tests, in a process of its own",
	"test/rockswriter/cmd/restless.go github.com/linxGnu/grocksdb": "writes databases for tests without pause, in the same process",
	"test/rocksdb/cmd/rocksdb.go github.com/linxGnu/grocksdb":      "opens copies of damaged databases for tests, in a process of its own",
}

// rule forbids names of one imported package, or, with an empty pattern, the
// import itself. Any mention counts, not only a call: a function value writes
// as well.
type rule struct {
	imported string
	names    string // regular expression of the whole name
	why      string
}

const (
	whyWrite   = "only journal writes to a volume"
	whyDefault = "registries and muxes are made and handed on, never global"
	whyLog     = "log/slog is the log"
	whyServe   = "a server has timeouts and can be shut down"
	whyIoutil  = "io and os have what it had"
	whyRocksDB = "only cmd/sidecar-engine links RocksDB, and what writes or opens databases for tests"
)

var rules = []rule{
	{"os", `Create(Temp)?|WriteFile|OpenFile|OpenRoot|Remove(All)?|Rename|Mkdir(All|Temp)?|L?[Cc]hown|Chmod|Chtimes|Link|Symlink|Truncate|CopyFS`, whyWrite},
	{"golang.org/x/sys/unix", systemCalls, whyWrite},
	{"syscall", systemCalls, whyWrite},
	{"io/ioutil", "", whyIoutil},

	{"github.com/prometheus/client_golang/prometheus", `MustRegister|Register|Unregister|DefaultRegisterer|DefaultGatherer`, whyDefault},
	{"github.com/prometheus/client_golang/prometheus/promauto", `New.*`, whyDefault},
	{"github.com/prometheus/client_golang/prometheus/promhttp", `Handler`, whyDefault},
	{"net/http", `Handle|HandleFunc|DefaultServeMux`, whyDefault},
	{"net/http", `ListenAndServe(TLS)?|Serve(TLS)?`, whyServe},
	{"expvar", "", whyDefault},
	{"log", "", whyLog},

	{"github.com/linxGnu/grocksdb", "", whyRocksDB},
}

// systemCalls are those that change a file, its names or its attributes, take
// a lock or a lease, or hide all that behind a number; and the flags that open
// a file for it. F_GETLK and O_RDONLY are what is left.
const systemCalls = `Creat|Mkdir(at)?|Mknod(at)?|Mkfifo(at)?|Unlink(at)?|Rmdir|Rename(at2?)?|Link(at)?|Symlink(at)?` +
	`|Truncate|Ftruncate|Fallocate|L?[Cc]h(mod|own)|Fchmod(at2?)?|Fchown(at)?` +
	`|Utimes?(Nano)?(At)?|Futimes(at)?|Lutimes|P?[Ww]ritev?|Pwritev2|Sendfile|Splice|Tee|Vmsplice|CopyFileRange|IoctlFile.*` +
	`|[LF]?[Ss]etxattr|[LF]?[Rr]emovexattr|Flock|Mount|Unmount|(Raw)?Syscall.*` +
	`|O_(CREAT|RDWR|WRONLY|TRUNC|APPEND|TMPFILE)|F_(OFD_)?SETLKW?(64)?|F_SETLEASE|LOCK_(EX|SH)`

func TestForbiddenNamesAndImports(t *testing.T) {
	t.Parallel()
	var found []string
	used := map[string]bool{}
	for _, s := range module(t) {
		p, ok := placeOf(s.dir())
		if !ok {
			continue
		}
		for _, v := range forbidden(s) {
			if v.why != whyRocksDB && (p.support || s.isTest()) {
				continue // tests write, but none opens a database by itself
			}
			key := s.path + " " + v.what
			if _, ok := allowed[key]; ok {
				used[key] = true
				continue
			}
			found = append(found, fmt.Sprintf("%s: %s: %s", v.where, v.what, v.why))
		}
	}
	report(t, found)
	for key, reason := range allowed {
		if !used[key] {
			t.Errorf("the exception %q (%s) is not needed any more", key, reason)
		}
	}
}

type violation struct{ where, what, why string }

// forbidden looks at names as they are written; without types it cannot see a
// local variable that hides a package, and then complains too much.
func forbidden(s source) []violation {
	var out []violation
	imports := s.imports()
	at := func(n ast.Node) string { return s.fset.Position(n.Pos()).String() }
	for _, i := range s.file.Imports {
		p := strings.Trim(i.Path.Value, "`\"")
		blank := i.Name != nil && i.Name.Name == "_"
		if p == "net/http/pprof" && blank {
			out = append(out, violation{at(i), p, whyDefault})
		}
		for _, r := range rules {
			if r.imported != p {
				continue
			}
			if r.names == "" {
				out = append(out, violation{at(i), p, r.why})
			} else if i.Name != nil && i.Name.Name == "." {
				out = append(out, violation{at(i), p, "its names cannot be told from others"})
				break
			}
		}
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := sel.X.(*ast.Ident)
		if !ok {
			return true
		}
		p, ok := imports[x.Name]
		if !ok {
			return true
		}
		for i, r := range rules {
			if r.imported == p && r.names != "" && patterns[i].MatchString(sel.Sel.Name) {
				out = append(out, violation{at(sel), p + "." + sel.Sel.Name, r.why})
			}
		}
		return true
	})
	return out
}

var patterns = func() []*regexp.Regexp {
	out := make([]*regexp.Regexp, len(rules))
	for i, r := range rules {
		out[i] = regexp.MustCompile(`^(` + r.names + `)$`)
	}
	return out
}()

func TestForbiddenIsFound(t *testing.T) {
	t.Parallel()
	const (
		unix = `import "golang.org/x/sys/unix"; `
		prom = "github.com/prometheus/client_golang/prometheus"
	)
	for _, tc := range []struct {
		text string
		want []string
	}{
		{`import "os"; func f() { os.ReadFile("x"); os.Open("x"); os.Stdout.Write(nil); os.Getenv("x") }`, nil},
		{`import "os"; func f() { os.Create("x") }`, []string{"os.Create"}},
		{`import "os"; var f = os.WriteFile`, []string{"os.WriteFile"}},
		{`import x "os"; func f() { x.RemoveAll("x"); x.Mkdir("x", 0) }`, []string{"os.RemoveAll", "os.Mkdir"}},
		{`import . "os"`, []string{"os"}},
		{`import "os"; func f() { os.Rename("x", "y"); os.Chtimes("x", a, a); os.OpenFile("x", 0, 0) }`,
			[]string{"os.Rename", "os.Chtimes", "os.OpenFile"}},
		{unix + `func f() { unix.Open("x", unix.O_RDONLY|unix.O_CLOEXEC, 0); unix.FcntlFlock(0, unix.F_GETLK, &unix.Flock_t{}); unix.Pread(0, nil, 0) }`, nil},
		{unix + `func f() { unix.Open("x", unix.O_RDWR|unix.O_CREAT, 0) }`,
			[]string{"golang.org/x/sys/unix.O_RDWR", "golang.org/x/sys/unix.O_CREAT"}},
		{unix + `func f() { unix.FcntlFlock(0, unix.F_OFD_SETLK, nil); unix.Flock(0, unix.LOCK_EX) }`,
			[]string{"golang.org/x/sys/unix.F_OFD_SETLK", "golang.org/x/sys/unix.Flock", "golang.org/x/sys/unix.LOCK_EX"}},
		{unix + `func f() { unix.Ftruncate(0, 0); unix.Unlinkat(0, "x", 0); unix.Renameat2(0, "x", 0, "y", 0); unix.UtimesNanoAt(0, "x", nil, 0) }`,
			[]string{"golang.org/x/sys/unix.Ftruncate", "golang.org/x/sys/unix.Unlinkat", "golang.org/x/sys/unix.Renameat2", "golang.org/x/sys/unix.UtimesNanoAt"}},
		{`import "syscall"; func f() { syscall.Syscall6(0, 0, 0, 0, 0, 0, 0); syscall.Pwrite(0, nil, 0) }`,
			[]string{"syscall.Syscall6", "syscall.Pwrite"}},
		{`import "syscall"; var x = syscall.ENOENT; type t = syscall.Stat_t`, nil},
		{`import "io/ioutil"`, []string{"io/ioutil"}},
		{`import "` + prom + `"; func f() { prometheus.NewRegistry().MustRegister(c) }`, nil},
		{`import "` + prom + `"; func f() { prometheus.MustRegister(c); _ = prometheus.DefaultGatherer }`,
			[]string{prom + ".MustRegister", prom + ".DefaultGatherer"}},
		{`import "` + prom + `/promauto"; func f() { promauto.With(r).NewCounter(o); promauto.NewCounter(o) }`,
			[]string{prom + "/promauto.NewCounter"}},
		{`import "` + prom + `/promhttp"; func f() { promhttp.HandlerFor(r, o); promhttp.Handler() }`,
			[]string{prom + "/promhttp.Handler"}},
		{`import "net/http"; func f(m *http.ServeMux, s *http.Server) { m.Handle("/", h); s.ListenAndServe(); http.NewServeMux() }`, nil},
		{`import "net/http"; func f() { http.HandleFunc("/", h); http.ListenAndServe(":0", nil) }`,
			[]string{"net/http.HandleFunc", "net/http.ListenAndServe"}},
		{`import "net/http/pprof"; var x = pprof.Index`, nil},
		{`import _ "net/http/pprof"`, []string{"net/http/pprof"}},
		{`import "expvar"`, []string{"expvar"}},
		{`import "log/slog"`, nil},
		{`import "log"`, []string{"log"}},
		{`import rocks "github.com/linxGnu/grocksdb"`, []string{"github.com/linxGnu/grocksdb"}},
	} {
		s, err := parse("a.go", []byte("package p; "+tc.text))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, v := range forbidden(s) {
			got = append(got, v.what)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.text, diff)
		}
	}
}

// Written in pieces, so that this file does not contain them.
var (
	unfinished  = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`)
	privatePath = regexp.MustCompile(`(^|[^A-Za-z0-9.~}])/(ho` + `me|Us` + `ers|ro` + `ot)/[A-Za-z]|[A-Z]:\\+Us` + `ers`)
)

func TestNothingUnfinished(t *testing.T) {
	t.Parallel()
	for _, s := range module(t) {
		report(t, matches(unfinished, s.path, string(s.text)))
	}
}

func TestNoPathOfSomeonesMachine(t *testing.T) {
	t.Parallel()
	for _, s := range module(t) {
		report(t, matches(privatePath, s.path, string(s.text)))
	}
	scripts, err := filepath.Glob(filepath.Join(moduleRoot, "scripts", "*"))
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts (%v)", err)
	}
	for _, p := range append(scripts, filepath.Join(moduleRoot, "Makefile"), filepath.Join(moduleRoot, ".ci", "run")) {
		text, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		report(t, matches(privatePath, p, string(text)))
	}
}

func matches(re *regexp.Regexp, name, text string) []string {
	var out []string
	n := 0
	for line := range strings.Lines(text) {
		n++
		if m := re.FindString(line); m != "" {
			out = append(out, fmt.Sprintf("%s:%d: %q", name, n, m))
		}
	}
	return out
}

func TestTextRulesFind(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		re   *regexp.Regexp
		text string
		want bool
	}{
		{unfinished, "// TO" + "DO: later", true},
		{unfinished, "ctx := context.TO" + "DO()", true},
		{unfinished, "// FIX" + "ME", true},
		{unfinished, "the TO" + "DOs of others", false},
		{privatePath, `"/ho` + `me/ann/src"`, true},
		{privatePath, "/ro" + "ot/go", true},
		{privatePath, `C:\Us` + `ers\ann`, true},
		{privatePath, "$HO" + "ME/.cache", false},
		{privatePath, "https://example.org/ho" + "me/page", false},
		{privatePath, "/var/lib/kafka-streams", false},
	} {
		if got := len(matches(tc.re, "a", tc.text)) > 0; got != tc.want {
			t.Errorf("%q: found %v, want %v", tc.text, got, tc.want)
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	t.Parallel()
	report(t, undocumented(module(t)))
}

// undocumented lists the directories without a package comment.
func undocumented(sources []source) []string {
	documented := map[string]bool{}
	for _, s := range sources {
		d := s.dir()
		name := s.file.Name.Name
		doc := s.file.Doc.Text()
		ok := !s.isTest() && (strings.HasPrefix(doc, "Package "+name+" ") || name == "main" && doc != "")
		documented[d] = documented[d] || ok
	}
	var out []string
	for d, ok := range documented {
		if !ok {
			out = append(out, fmt.Sprintf("%s has no package comment", d))
		}
	}
	slices.Sort(out)
	return out
}

func TestUndocumentedIsFound(t *testing.T) {
	t.Parallel()
	var sources []source
	for name, text := range map[string]string{
		"internal/a/a.go":      "package a",
		"internal/a/doc.go":    "// Package a is documented.\npackage a",
		"internal/b/b.go":      "// package b almost.\npackage b",
		"internal/c/c_test.go": "// Package c is only tests.\npackage c",
		"cmd/d/main.go":        "// Command d is documented.\npackage main",
		"cmd/e/main.go":        "package main",
		"internal/f/f.go":      "// Package f is too far away.\n\npackage f",
	} {
		s, err := parse(name, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, s)
	}
	want := []string{
		"cmd/e has no package comment",
		"internal/b has no package comment",
		"internal/c has no package comment",
		"internal/f has no package comment",
	}
	if diff := cmp.Diff(want, undocumented(sources)); diff != "" {
		t.Errorf("undocumented (-want +got):\n%s", diff)
	}
}
