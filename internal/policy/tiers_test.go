package policy

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPackagesImportOnlyLowerTiers(t *testing.T) {
	t.Parallel()
	const page = "docs/architecture.md"
	text, err := os.ReadFile(filepath.Join(moduleRoot, page))
	if err != nil {
		t.Fatal(err)
	}
	tiers, err := parseTiers(string(text))
	if err != nil {
		t.Fatalf("%s: %v", page, err)
	}
	report(t, checkTiers(tiers, module(t)))
}

// parseTiers reads the fenced block "tiers" of a page: one tier on a line, its
// number first, then its rooms, which are the directories of internal/.
func parseTiers(markdown string) (map[string]int, error) {
	const fence = "```"
	tiers := map[string]int{}
	inside, blocks := false, 0
	lines := bufio.NewScanner(strings.NewReader(markdown))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		switch {
		case line == fence+"tiers":
			inside = true
			blocks++
			continue
		case line == fence:
			inside = false
		}
		if !inside || line == "" {
			continue
		}
		fields := strings.Fields(line)
		tier, err := strconv.Atoi(fields[0])
		if err != nil || tier < 0 || len(fields) < 2 {
			return nil, fmt.Errorf("%q is not a tier's number and its rooms", line)
		}
		for _, room := range fields[1:] {
			if _, twice := tiers[room]; twice {
				return nil, fmt.Errorf("room %s has two tiers", room)
			}
			tiers[room] = tier
		}
	}
	switch {
	case inside:
		return nil, errors.New("the block of tiers has no end")
	case blocks != 1:
		return nil, fmt.Errorf("%d blocks of tiers instead of one", blocks)
	}
	return tiers, lines.Err()
}

// place is where a package stands.
type place struct {
	command string // cmd/<command>
	room    string // internal/<room>
	support bool   // only for tests: test/…, internal/policy, internal/<room>/…test
}

func placeOf(dir string) (place, bool) {
	parts := strings.Split(dir, "/")
	switch {
	case parts[0] == "test":
		return place{support: true}, true
	case len(parts) < 2:
		return place{}, false
	case parts[0] == "cmd":
		return place{command: parts[1]}, true
	case parts[0] != "internal":
		return place{}, false
	case parts[1] == "policy":
		return place{support: true}, true
	}
	isTest := func(part string) bool { return strings.HasSuffix(part, "test") }
	return place{room: parts[1], support: slices.ContainsFunc(parts[2:], isTest)}, true
}

// checkTiers compares the files with the rules of CONTRIBUTING.md and says
// what breaks them. Tests keep to the tiers as well, but may use test support.
func checkTiers(tiers map[string]int, sources []source) []string {
	var out []string
	rooms := map[string]bool{}
	for _, s := range sources {
		from, ok := placeOf(s.dir())
		if !ok {
			out = append(out, fmt.Sprintf("%s: Go code has its place in cmd, internal/<room> and test", s.path))
			continue
		}
		if from.room != "" && !from.support && !s.isTest() {
			rooms[from.room] = true
		}
		for _, imported := range slices.Sorted(maps.Values(s.imports())) {
			dir, ours := strings.CutPrefix(imported, modulePath+"/")
			if !ours {
				continue
			}
			if why := mayImport(tiers, from, s.isTest(), dir); why != "" {
				out = append(out, fmt.Sprintf("%s imports %s: %s", s.path, dir, why))
			}
		}
	}
	for room := range rooms {
		if _, ok := tiers[room]; !ok {
			out = append(out, fmt.Sprintf("internal/%s has no tier", room))
		}
	}
	for room, tier := range tiers {
		if !rooms[room] {
			out = append(out, fmt.Sprintf("tier %d names %s, and there is no code in internal/%s", tier, room, room))
		}
	}
	slices.Sort(out)
	return out
}

// mayImport says why not, or nothing.
func mayImport(tiers map[string]int, from place, test bool, dir string) string {
	to, ok := placeOf(dir)
	switch {
	case !ok:
		return "it has no place among the packages"
	case to.command != "":
		if from.command == to.command {
			return ""
		}
		return "nothing imports a command"
	case to.support:
		if test || from.support {
			return ""
		}
		return "it is test support, which only tests import"
	case from.room == "" || from.room == to.room: // commands and tests of the whole import any room
		return ""
	}
	higher, ok1 := tiers[from.room]
	lower, ok2 := tiers[to.room]
	if ok1 && ok2 && lower >= higher {
		return fmt.Sprintf("tier %d is not below tier %d", lower, higher)
	}
	return "" // a room without tier is reported for itself
}

func TestTierRule(t *testing.T) {
	t.Parallel()
	tiers := map[string]int{"low": 0, "other": 0, "mid": 1, "high": 2}
	// Enough for every tier to have its room.
	base := map[string][]string{
		"internal/low/a.go":         nil,
		"internal/other/a.go":       nil,
		"internal/mid/a.go":         {"internal/low"},
		"internal/mid/part/a.go":    {"internal/mid", "internal/other"},
		"internal/high/a.go":        {"internal/low", "internal/mid/part"},
		"internal/low/lowtest/a.go": {"internal/low"},
		"test/lab/a.go":             {"internal/high", "internal/low/lowtest"},
		"cmd/tool/main.go":          {"internal/high", "internal/low", "cmd/tool/command"},
		"internal/mid/a_test.go":    {"test/lab", "internal/low/lowtest", "internal/mid/part"},
		"internal/policy/doc.go":    nil,
	}
	for _, tc := range []struct {
		name    string
		path    string
		imports []string
		want    []string
	}{
		{name: "all is well"},
		{"same tier", "internal/low/b.go", []string{"internal/other"},
			[]string{"internal/low/b.go imports internal/other: tier 0 is not below tier 0"}},
		{"higher tier", "internal/low/b.go", []string{"internal/mid/part"},
			[]string{"internal/low/b.go imports internal/mid/part: tier 1 is not below tier 0"}},
		{"higher tier in a test", "internal/low/b_test.go", []string{"internal/high"},
			[]string{"internal/low/b_test.go imports internal/high: tier 2 is not below tier 0"}},
		{"higher tier in a room's test support", "internal/low/lowtest/b.go", []string{"internal/mid"},
			[]string{"internal/low/lowtest/b.go imports internal/mid: tier 1 is not below tier 0"}},
		{"test support in a room", "internal/mid/b.go", []string{"internal/low/lowtest"},
			[]string{"internal/mid/b.go imports internal/low/lowtest: it is test support, which only tests import"}},
		{"test support in a command", "cmd/tool/b.go", []string{"test/lab"},
			[]string{"cmd/tool/b.go imports test/lab: it is test support, which only tests import"}},
		{"policy in a room", "internal/mid/b.go", []string{"internal/policy"},
			[]string{"internal/mid/b.go imports internal/policy: it is test support, which only tests import"}},
		{"command in a room", "internal/high/b.go", []string{"cmd/tool"},
			[]string{"internal/high/b.go imports cmd/tool: nothing imports a command"}},
		{"command in another command", "cmd/gadget/main.go", []string{"cmd/tool/command"},
			[]string{"cmd/gadget/main.go imports cmd/tool/command: nothing imports a command"}},
		{"command in a test", "test/lab/a_test.go", []string{"cmd/tool"},
			[]string{"test/lab/a_test.go imports cmd/tool: nothing imports a command"}},
		{"room without tier", "internal/new/a.go", []string{"internal/high"},
			[]string{"internal/new has no tier"}},
		{"test support with a room's name", "internal/newtest/a.go", nil,
			[]string{"internal/newtest has no tier"}},
		{"code outside the places", "tools/a.go", nil,
			[]string{"tools/a.go: Go code has its place in cmd, internal/<room> and test"}},
		{"code in the root", "a.go", nil,
			[]string{"a.go: Go code has its place in cmd, internal/<room> and test"}},
		{"import from outside the places", "internal/high/b.go", []string{"tools"},
			[]string{"internal/high/b.go imports tools: it has no place among the packages"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			files := maps.Clone(base)
			if tc.path != "" {
				files[tc.path] = tc.imports
			}
			var sources []source
			for p, imports := range files {
				sources = append(sources, importing(t, p, imports))
			}
			if diff := cmp.Diff(tc.want, checkTiers(tiers, sources)); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("tier without room", func(t *testing.T) {
		t.Parallel()
		got := checkTiers(map[string]int{"gone": 3}, []source{importing(t, "internal/gone/a_test.go", nil)})
		want := []string{"tier 3 names gone, and there is no code in internal/gone"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("violations (-want +got):\n%s", diff)
		}
	})
}

func importing(t *testing.T, name string, dirs []string) source {
	t.Helper()
	text := "package p\n"
	for _, d := range dirs {
		text += fmt.Sprintf("import %q\n", modulePath+"/"+d)
	}
	s, err := parse(name, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestParseTiers(t *testing.T) {
	t.Parallel()
	got, err := parseTiers("text\n\n```\n7 prose\n```\n\n```tiers\n0 volume  event\n\n1 statedir\n```\n2 prose\n")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"volume": 0, "event": 0, "statedir": 1}, got); diff != "" {
		t.Errorf("tiers (-want +got):\n%s", diff)
	}
	for name, page := range map[string]string{
		"no block":      "0 volume\n",
		"no end":        "```tiers\n0 volume\n",
		"two blocks":    "```tiers\n0 volume\n```\n```tiers\n1 event\n```\n",
		"no number":     "```tiers\nvolume event\n```\n",
		"below zero":    "```tiers\n-1 volume\n```\n",
		"no room":       "```tiers\n0\n```\n",
		"room twice":    "```tiers\n0 volume\n1 volume\n```\n",
		"room repeated": "```tiers\n0 volume volume\n```\n",
	} {
		if got, err := parseTiers(page); err == nil {
			t.Errorf("%s: no error but %v", name, got)
		}
	}
}
