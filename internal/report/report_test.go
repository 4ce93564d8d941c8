package report_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"streams-sidecar/internal/report"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
	"streams-sidecar/test/fixture"
	"streams-sidecar/test/judge"
)

func document(dir string) report.Document {
	return verified(store.Scan(volume.New(volume.OS()), dir, nil))
}

func schema(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	s, err := c.Compile(filepath.Join("..", "..", "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func validate(t *testing.T, name string, s *jsonschema.Schema, doc any) {
	t.Helper()
	data, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(v); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

// TestSchema: every real directory, and some that are none, answer in the
// shape of the contract, and so does each store by itself.
func TestSchema(t *testing.T) {
	t.Parallel()
	s := schema(t, "state.schema.json")
	alone, stores := schema(t, "store.schema.json"), 0
	for _, n := range fixture.Names() {
		d := store.Scan(volume.New(volume.OS()), fixture.Unpack(t, n.Version, n.Case), nil)
		validate(t, n.String(), s, verified(d))
		d.Stores(func(a *store.Application, task *store.Task, st *store.Store) {
			stores++
			validate(t, n.String(), alone, report.NewStoreDetail(time.Unix(0, 0), d, a, task, st, judge.Picture([]*store.StateDir{d}).Store(st)))
		})
	}
	if stores < 100 {
		t.Errorf("only %d stores", stores)
	}
	validate(t, "missing", s, document(filepath.Join(t.TempDir(), "missing")))
	validate(t, "empty", s, document(t.TempDir()))
}

// TestSchemaRefuses: the schema is not one that takes anything.
func TestSchemaRefuses(t *testing.T) {
	t.Parallel()
	s := schema(t, "state.schema.json")
	for _, text := range []string{`{}`, `{"state_dirs":[{"path":"/x"}]}`, `{"state_dirs":[],"more":1}`,
		`{"state_dirs":[{"path":"/x","findings":[{"code":"A","severity":"info","text":""}],"applications":[]}]}`} {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if s.Validate(v) == nil {
			t.Errorf("accepted %s", text)
		}
	}
}

// TestText: the table fits 100 columns, whatever the names, and shows each store.
func TestText(t *testing.T) {
	t.Parallel()
	src := fixture.Unpack(t, "4.4.0", "closed-clean")
	dir := t.TempDir()
	app := filepath.Join(dir, "orders\nand "+strings.Repeat("more", 30))
	if err := os.CopyFS(app, os.DirFS(filepath.Join(src, "alos440"))); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("long-name-", 20) + "end"
	if err := os.Rename(filepath.Join(app, "1_0", "rocksdb", "kv"), filepath.Join(app, "1_0", "rocksdb", long)); err != nil {
		t.Fatal(err)
	}
	doc := document(dir)
	var b strings.Builder
	if err := doc.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for i, line := range strings.Split(text, "\n") {
		if i > 2 && utf8.RuneCountInString(line) > 100 {
			t.Errorf("line %d has %d columns: %s", i, utf8.RuneCountInString(line), line)
		}
	}
	for _, want := range []string{"not running", "gtab", "timestamped", "segmented", "1063", "clean", "long-", "-end", `orders\nand`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestBytes(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB",
		1<<20 - 1: "1.0 MiB", 1 << 30: "1.0 GiB", 1<<63 - 1: "8.0 EiB"} {
		if got := report.Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %q, want %q", n, got, want)
		}
	}
}

func verified(d *store.StateDir) report.Document {
	dirs := []*store.StateDir{d}
	return report.New(dirs, judge.Picture(dirs))
}
