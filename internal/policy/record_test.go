package policy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"streams-sidecar/internal/finding"
)

// TestTrackRecordNamesWhatThereIs: every test that docs/track-record.md names is
// in the package that it names, and every code is one.
func TestTrackRecordNamesWhatThereIs(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(moduleRoot, "docs", "track-record.md"))
	if err != nil {
		t.Fatal(err)
	}
	sources := map[string]string{} // of tests, by package
	in := func(dir string) string {
		if text, ok := sources[dir]; ok {
			return text
		}
		files, err := filepath.Glob(filepath.Join(moduleRoot, dir, "*_test.go"))
		if err != nil || len(files) == 0 {
			t.Errorf("%s: no tests, %v", dir, err)
		}
		var all strings.Builder
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(text)
		}
		sources[dir] = all.String()
		return sources[dir]
	}
	place := regexp.MustCompile("`((?:internal|cmd|test)/[a-z/]+)`|\\b(Test[A-Z]\\w+)|`([a-z]+(?:-[a-z]+)+)`")
	tests, codes := 0, 0
	for _, line := range strings.Split(string(page), "\n") {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		dir, held := "", false
		for _, m := range place.FindAllStringSubmatch(line, -1) {
			switch {
			case m[1] != "":
				dir = m[1]
			case m[2] != "":
				tests++
				held = true
				if dir == "" || !strings.Contains(in(dir), "func "+m[2]+"(") {
					t.Errorf("no test %s in %q: %s", m[2], dir, line)
				}
			default:
				codes++
				if _, ok := finding.Explain(finding.Code(m[3])); !ok {
					t.Errorf("no finding %s: %s", m[3], line)
				}
			}
		}
		if !held && !strings.Contains(line, "held by") {
			t.Errorf("held by no test: %s", line)
		}
	}
	if tests < 60 || codes < 50 {
		t.Errorf("%d tests and %d codes are named", tests, codes)
	}
}
