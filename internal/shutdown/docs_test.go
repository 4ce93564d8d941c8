package shutdown

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDocsReasons: docs/shutdown.md explains every reason, in a row that quotes
// its text.
func TestDocsReasons(t *testing.T) {
	t.Parallel()
	documented := map[string]string{}
	for _, row := range rows(t, "### Reasons") {
		documented[strings.Trim(row[0], "`")] = row[1]
	}
	want := map[string]string{}
	for _, r := range constants(t, "record.go", "Reason") {
		want[r] = reasonTexts[Reason(r)]
	}
	if diff := cmp.Diff(want, documented); diff != "" {
		t.Errorf("reasons (-code +page):\n%s", diff)
	}
}

// TestDocsOutcomes: it explains every outcome, and [Outcomes] lists them all.
func TestDocsOutcomes(t *testing.T) {
	t.Parallel()
	var documented, listed []string
	for _, row := range rows(t, "## The answer") {
		documented = append(documented, strings.Trim(row[0], "`"))
	}
	for _, o := range Outcomes() {
		listed = append(listed, string(o))
	}
	want := constants(t, "gate.go", "Outcome")
	slices.Sort(want)
	slices.Sort(documented)
	slices.Sort(listed)
	if diff := cmp.Diff(want, documented); diff != "" {
		t.Errorf("outcomes (-code +page):\n%s", diff)
	}
	if diff := cmp.Diff(want, listed); diff != "" {
		t.Errorf("outcomes (-code +listed):\n%s", diff)
	}
}

var (
	verb     = regexp.MustCompile(`%[.0-9]*[a-z]`)
	emphasis = regexp.MustCompile(`\*[a-z]\*`)
)

// TestDocsExplanations: it has every sentence with which an end is explained,
// numbers written as *n*.
func TestDocsExplanations(t *testing.T) {
	t.Parallel()
	var page []string
	for _, row := range rows(t, "### Explanations") {
		page = append(page, emphasis.ReplaceAllString(row[0], "*"))
	}
	all := strings.Join(page, "\n")
	sentences := 0
	ast.Inspect(source(t, "explain.go"), func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			text := verb.ReplaceAllString(unquote(t, lit), "*")
			if strings.Contains(text, " ") {
				sentences++
				if !strings.Contains(all, text) {
					t.Errorf("not in the page: %s", text)
				}
			}
		}
		return true
	})
	if sentences < 10 {
		t.Errorf("only %d sentences were found in the code", sentences)
	}
	for _, text := range []string{explainObserved, explainEnding} {
		if !slices.Contains(page, text) {
			t.Errorf("not in the page: %s", text)
		}
	}
}

// rows gives the cells of the first table after a heading of the page, without
// its head.
func rows(t *testing.T, heading string) (out [][]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "shutdown.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(text), "\n"+heading+"\n")
	if !ok {
		t.Fatalf("the page has no %q", heading)
	}
	for line := range strings.Lines(after) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			if out != nil || strings.HasPrefix(line, "#") {
				break
			}
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		out = append(out, cells)
	}
	if len(out) < 3 {
		t.Fatalf("the page has no table after %q", heading)
	}
	return out[2:]
}

// constants gives the values of all constants of a type that a file declares,
// so that one that was forgotten everywhere else is missed.
func constants(t *testing.T, file, kind string) []string {
	t.Helper()
	values := map[string]bool{}
	ast.Inspect(source(t, file), func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if name, ok := v.Type.(*ast.Ident); ok && name.Name == kind {
			for _, value := range v.Values {
				if lit, ok := value.(*ast.BasicLit); ok {
					values[unquote(t, lit)] = true
				}
			}
		}
		return true
	})
	if len(values) == 0 {
		t.Fatalf("%s declares no %s", file, kind)
	}
	return slices.Sorted(maps.Keys(values))
}

func source(t *testing.T, file string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func unquote(t *testing.T, lit *ast.BasicLit) string {
	t.Helper()
	text, err := strconv.Unquote(lit.Value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
