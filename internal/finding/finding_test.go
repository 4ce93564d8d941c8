package finding

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"streams-sidecar/internal/volume"
)

func TestNew(t *testing.T) {
	t.Parallel()
	got := New(SSTMissing, "/v/kv/0000\n10.sst", At(0), Expected("%d bytes", 12), Found("no such file"))
	zero := int64(0)
	want := Finding{
		Code: "sst-missing", Severity: Damage, File: `/v/kv/0000\n10.sst`, Offset: &zero,
		Expected: "12 bytes", Found: "no such file", Text: catalog[SSTMissing].Meaning,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("finding (-want +got):\n%s", diff)
	}
	js, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(js), `{"code":"sst-missing","severity":"damage","file":"/v/kv/0000\\n10.sst","offset":0,"expected":"12 bytes","found":"no such file","text":"The MANIFEST`) {
		t.Errorf("JSON is %s", js)
	}
	js, err = json.Marshal(New(SymlinkBroken, ""))
	if err != nil || strings.Contains(string(js), "offset") || strings.Contains(string(js), `"file"`) {
		t.Errorf("what is not known is in the JSON: %s, %v", js, err)
	}
}

func TestNewPanicsOnAnUnknownCode(t *testing.T) {
	t.Parallel()
	defer func() {
		if got := fmt.Sprint(recover()); !strings.Contains(got, "no-such-thing") {
			t.Errorf("panic is %q", got)
		}
	}()
	New("no-such-thing", "/v")
}

func TestEvidenceCanBePrinted(t *testing.T) {
	t.Parallel()
	for evidence, want := range map[string]string{
		"":                        "",
		`MANIFEST-000005`:         `MANIFEST-000005`,
		`"a\nb" and C:\x`:         `"a\nb" and C:\x`, // made with %q, or by volume.Text
		"a\nb":                    `a\nb`,
		"\x1b]0;title\a":          `\x1b]0;title\a`,
		"half \xe5\xba and \xff":  `half \xe5\xba and \xff`,
		"ünï 店 �":                 "ünï 店 �",
		"\u202eevil":              `\u202eevil`,
		strings.Repeat("\x00", 3): `\x00\x00\x00`,
	} {
		f := New(CurrentMalformed, "/v", Found("%s", evidence), Expected("%s", evidence))
		if f.Found != want || f.Expected != want {
			t.Errorf("evidence %q is found %q, expected %q; want %q", evidence, f.Found, f.Expected, want)
		}
		if !utf8.ValidString(f.Found) || strings.ContainsFunc(f.Found, func(r rune) bool { return !strconv.IsPrint(r) }) {
			t.Errorf("evidence %q cannot be printed: %q", evidence, f.Found)
		}
	}
}

func TestFromError(t *testing.T) {
	t.Parallel()
	codes := map[volume.Class]Code{
		volume.Unclassified: Unread, volume.Gone: Unread, volume.Full: Unread, volume.TooMany: Unread,
		volume.Denied: PermissionDenied, volume.IO: IOError, volume.Stuck: VolumeStuck, volume.WrongKind: WrongKind,
		volume.NoLocks: LockUnsupported, volume.TooLarge: FileTooLarge,
	}
	for class := volume.Unclassified; class <= volume.TooLarge; class++ {
		want, ok := codes[class]
		if !ok {
			t.Errorf("class %v is not tested", class)
		}
		err := fmt.Errorf("look: %w", &volume.Error{Op: "read", Path: "/v/\xff", Class: class, Err: errors.New("reason")})
		got := FromError(err, "/v/f")
		if got.Code != want || got.File != "/v/f" || got.Found != `look: read /v/\xff: reason` {
			t.Errorf("class %v becomes %+v, want code %s", class, got, want)
		}
		if got.Severity != Unreadable {
			t.Errorf("class %v has severity %s: what could not be read must not pass as a warning", class, got.Severity)
		}
	}
	for err, want := range map[error]Code{syscall.EACCES: PermissionDenied, syscall.EIO: IOError, io.ErrUnexpectedEOF: Unread} {
		if got := FromError(err, "/v"); got.Code != want {
			t.Errorf("%v becomes %s, want %s", err, got.Code, want)
		}
	}
}

func TestEveryCodeIsInTheCatalog(t *testing.T) {
	t.Parallel()
	f, err := parser.ParseFile(token.NewFileSet(), "catalog.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var declared []Code
	ast.Inspect(f, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if typ, ok := v.Type.(*ast.Ident); ok && typ.Name == "Code" {
			for _, x := range v.Values {
				code, err := strconv.Unquote(x.(*ast.BasicLit).Value)
				if err != nil {
					t.Error(err)
				}
				declared = append(declared, Code(code))
			}
		}
		return true
	})
	slices.Sort(declared)
	if diff := cmp.Diff(declared, Codes()); diff != "" || len(declared) == 0 {
		t.Errorf("catalog against the declared codes (-want +got):\n%s", diff)
	}
}

func TestEveryCodeIsExplained(t *testing.T) {
	t.Parallel()
	kebab := regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	twoSentences := regexp.MustCompile(`[.!?] +[A-Z]`)
	texts := map[string]Code{}
	for _, c := range Codes() {
		k, ok := Explain(c)
		if !ok || !kebab.MatchString(string(c)) {
			t.Errorf("%q is not a code", c)
		}
		if k.Severity.Rank() < 0 {
			t.Errorf("%s has severity %q", c, k.Severity)
		}
		for name, text := range map[string]string{"meaning": k.Meaning, "advice": k.Advice} {
			switch {
			case len(text) < 10 || !strings.HasSuffix(text, ".") || strings.HasSuffix(text, ".."):
				t.Errorf("%s of %s is no sentence: %q", name, c, text)
			case strings.Join(strings.Fields(text), " ") != text:
				t.Errorf("%s of %s has stray white space: %q", name, c, text)
			case twoSentences.MatchString(text):
				t.Errorf("%s of %s is more than one sentence: %q", name, c, text)
			case printable(text) != text:
				t.Errorf("%s of %s cannot be printed: %q", name, c, text)
			}
			if name == "meaning" {
				if other, ok := texts[text]; ok {
					t.Errorf("%s and %s mean the same", c, other)
				}
				texts[text] = c
			}
		}
	}
	if _, ok := Explain("no-such-thing"); ok {
		t.Error("an unknown code is explained")
	}
}

// docs/findings.md is written by hand around the texts of the catalog.
func TestEveryCodeHasItsSectionInTheDocs(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../docs/findings.md")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split("\n"+string(data), "\n## ")
	if head := strings.Fields(parts[0]); len(head) < 20 || head[0] != "#" {
		t.Errorf("the page begins with %q", parts[0])
	}
	var codes []Code
	for _, part := range parts[1:] {
		title, body, _ := strings.Cut(part, "\n")
		codes = append(codes, Code(title))
		k, ok := Explain(Code(title))
		if !ok {
			continue // the comparison below tells
		}
		// Lines may be broken anywhere.
		paragraphs := strings.Split(strings.TrimSpace(body), "\n\n")
		for i, p := range paragraphs {
			paragraphs[i] = strings.Join(strings.Fields(p), " ")
		}
		want := []string{"Severity: " + string(k.Severity), k.Meaning, "What to do: " + k.Advice}
		if diff := cmp.Diff(want, paragraphs[:min(3, len(paragraphs))]); diff != "" {
			t.Errorf("section %s (-want +got):\n%s", title, diff)
		}
		if more := paragraphs[min(3, len(paragraphs)):]; len(more) == 0 || len(strings.Fields(strings.Join(more, " "))) < 8 {
			t.Errorf("section %s says nothing of how it comes about", title)
		}
	}
	if diff := cmp.Diff(Codes(), codes); diff != "" {
		t.Errorf("sections of docs/findings.md (-want +got):\n%s", diff)
	}
}
