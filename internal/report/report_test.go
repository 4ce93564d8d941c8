package report_test

import (
	"bytes"
	"context"
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
	"streams-sidecar/internal/verify"
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
		depth := []verify.Depth{verify.Quick, verify.Deep}[stores%2]
		r := verify.Run(context.Background(), []*volume.Volume{volume.New(volume.OS())}, []string{fixture.Unpack(t, n.Version, n.Case)},
			verify.Question{}, verify.Plan{Depth: depth}, nil)
		whole := report.NewVerified(r)
		validate(t, n.String(), s, whole)
		if whole.Verification.Tables > 0 && len(whole.StateDirs[0].Applications[0].Tasks) == 0 {
			t.Errorf("%s: %+v", n, whole.Verification)
		}
		d := r.Dirs[0]
		d.Stores(func(a *store.Application, task *store.Task, st *store.Store) {
			stores++
			detail := report.NewStoreDetail(time.Unix(0, 0), d, a, task, st, r.Judgement.Store(st))
			detail.Store.AddChecks(st, time.Now(), func(db *store.Database) []*verify.Result {
				if x := r.Results[db.Path]; x != nil {
					return []*verify.Result{x}
				}
				return nil
			})
			if n := len(detail.Store.Checks); n != 1 && !st.Empty {
				t.Errorf("%s: %d checks", st.Layout.Path, n)
			}
			validate(t, n.String(), alone, detail)
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
