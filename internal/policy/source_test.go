package policy

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const (
	modulePath = "streams-sidecar"
	moduleRoot = "../.."
)

// source is one Go file, whatever its build constraints: a rule that holds
// only on the platform of the test run is none.
type source struct {
	path string // from the module's root, with slashes
	text []byte
	fset *token.FileSet
	file *ast.File
}

func (s source) dir() string { return path.Dir(s.path) }

func (s source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

// imports gives the import paths of the file by the name that they have in it.
func (s source) imports() map[string]string {
	m := map[string]string{}
	for _, i := range s.file.Imports {
		p, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			continue // the parser has checked it
		}
		name := path.Base(p)
		if i.Name != nil {
			name = i.Name.Name
		}
		if name == "_" || name == "." {
			name += p // there can be many
		}
		m[name] = p
	}
	return m
}

func parse(name string, text []byte) (source, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	return source{path: name, text: text, fset: fset, file: f}, err
}

// module reads every Go file of the module, once for all tests.
func module(t *testing.T) []source {
	t.Helper()
	sources, err := readModule()
	if err != nil {
		t.Fatal(err)
	}
	return sources
}

var readModule = sync.OnceValues(func() ([]source, error) {
	var sources []source
	err := filepath.WalkDir(moduleRoot, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			if p != moduleRoot && (isSkipped(e.Name()) || exists(filepath.Join(p, "go.mod"))) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(moduleRoot, p)
		if err != nil {
			return err
		}
		s, err := parse(filepath.ToSlash(rel), text)
		if err != nil {
			return err
		}
		sources = append(sources, s)
		return nil
	})
	if err == nil && !slices.ContainsFunc(sources, func(s source) bool { return s.path == "internal/policy/doc.go" }) {
		err = fmt.Errorf("%s is not the module's root: this package is not below it", moduleRoot)
	}
	return sources, err
})

// isSkipped says what the go command does not look into either.
func isSkipped(dir string) bool {
	return dir == "testdata" || dir == "vendor" || strings.HasPrefix(dir, ".") || strings.HasPrefix(dir, "_")
}

func exists(p string) bool {
	_, err := os.Stat(p)
	return err == nil
}

// report fails the test with each violation.
func report(t *testing.T, violations []string) {
	t.Helper()
	for _, v := range violations {
		t.Error(v)
	}
}
