package statedir

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTaskName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"0_0": true, "12_345": true, "00_01": true, "99999999999_0": true,
		"0_": false, "_0": false, "_": false, "0": false, "": false, "0_0_0": false, "0_0.quarantine": false,
		" 0_0": false, "0_0\n": false, "-1_0": false, "0_+1": false, "٠_٠": false, "a_0": false,
	} {
		if got := IsTaskName(name); got != want {
			t.Errorf("%q is a task: %v, want %v", name, got, want)
		}
	}
}

func TestTaskNumbers(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		subtopology, partition int32
		ok                     bool
	}{
		"0_0":          {0, 0, true},
		"3_10":         {3, 10, true},
		"00_01":        {0, 1, true},
		"0_2147483647": {0, 2147483647, true},
		"2147483648_0": {},
		"0_2147483648": {},
	} {
		s, p, ok := taskNumbers(name)
		if ok != want.ok || ok && (s != want.subtopology || p != want.partition) {
			t.Errorf("%q is %d, %d, %v", name, s, p, ok)
		}
	}
}

func TestTopologyName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"__a__": "a", "__a_b__": "a_b", "_____": "_", "__ __": " ",
		"____": "", "__": "", "___": "", "_a_": "", "__a": "", "a__": "", "__a_": "",
	} {
		got, ok := topologyOf(name)
		if got != want || ok != (want != "") {
			t.Errorf("%q is of topology %q, %v, want %q", name, got, ok, want)
		}
	}
}

func TestSegmentName(t *testing.T) {
	t.Parallel()
	date := time.Date(2026, 11, 30, 20, 5, 0, 0, time.UTC).UnixMilli()
	for _, c := range []struct {
		name      string
		start     int64
		known, ok bool
	}{
		{"win.1796060700000", 1796060700000, true, true},
		{"win:1796060700000", 1796060700000, true, true},
		{"win.0", 0, true, true},
		{"win.9223372036854775807", 9223372036854775807, true, true},
		{"win-202611302005", date, true, true},
		{"win-202613302005", 0, false, true}, // month 13: Streams makes it January
		{"win.9223372036854775808", 0, false, false},
		{"win.007", 0, false, false},
		{"win.-300000", 0, false, false},
		{"win.+300000", 0, false, false},
		{"win.", 0, false, false},
		{"win", 0, false, false},
		{"win.1796060700000.corrupt", 0, false, false},
		{"win.x", 0, false, false},
		{"win_1796060700000", 0, false, false},
		{"win1796060700000", 0, false, false},
		{"won.1796060700000", 0, false, false},
		{"win2.1796060700000", 0, false, false},
		{"win-20261130200", 0, false, false},
		{"win-2026113020055", 0, false, false},
		{"", 0, false, false},
		{".1796060700000", 0, false, false},
	} {
		start, known, ok := segmentStart("win", c.name)
		if ok != c.ok || known && ok != c.known || ok && known && start != c.start {
			t.Errorf("%q begins at %d (%v), is a segment: %v", c.name, start, known, ok)
		}
	}
	if _, _, ok := segmentStart("a.5", "a.5.6"); !ok {
		t.Error("a store's name may itself look like that of a segment")
	}
}

func FuzzSegmentName(f *testing.F) {
	f.Add("win", "win.1796060700000")
	f.Add("win", "win:0")
	f.Add("win", "win-202611302005")
	f.Add("win", "win-202613302005")
	f.Add("", ".5")
	f.Add("a\xff", "a\xff.9223372036854775808")
	f.Fuzz(func(t *testing.T, store, name string) {
		start, known, ok := segmentStart(store, name)
		if !ok {
			if known {
				t.Errorf("known start %d of no segment", start)
			}
			return
		}
		rest, found := strings.CutPrefix(name, store)
		if !found || len(rest) < 2 || !strings.ContainsRune(".:-", rune(rest[0])) {
			t.Errorf("%q is no segment of %q", name, store)
		}
		if start < 0 && rest[0] != '-' {
			t.Errorf("%q begins at %d", name, start)
		}
	})
}

func TestSetAsideName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"kv.corrupt": true, "kv.bak": true, "kv.BAK": true, "kv.old": true, "kv.old.2": true, "kv.bak1": true,
		"kv.quarantine-20261130": true, "kv.quarantined_by_me": true, "kv~": true, "a.b.deleted": true,
		"kv": false, "kv.older": false, "old": false, "backup": false, "old.kv": false, "orders-backup": false,
		"my.store": false, "kv.oldest.first": false, "kv.": false, "": false,
	} {
		if got := looksSetAside(name); got != want {
			t.Errorf("%q looks set aside: %v, want %v", name, got, want)
		}
	}
}

func TestOrder(t *testing.T) {
	t.Parallel()
	tasks := []*Task{
		{ID: "global", Global: true, Subtopology: -1, Partition: -1},
		{ID: "__b__/0_0", Topology: "b"},
		{ID: "__a__/1_0", Topology: "a", Subtopology: 1},
		{ID: "__a__/0_3", Topology: "a", Partition: 3},
		{ID: "10_0", Subtopology: 10},
		{ID: "2_0", Subtopology: 2},
		{ID: "0_10", Partition: 10},
		{ID: "0_2", Partition: 2},
		{ID: "00_2", Partition: 2},
	}
	slices.SortFunc(tasks, compareTasks)
	var got []string
	for _, k := range tasks {
		got = append(got, k.ID)
	}
	want := []string{"00_2", "0_2", "0_10", "2_0", "10_0", "__a__/0_3", "__a__/1_0", "__b__/0_0", "global"}
	if !slices.Equal(got, want) {
		t.Errorf("tasks are ordered %q, want %q", got, want)
	}
	segments := []Segment{{Name: "w.5", StartMillis: 5, StartKnown: true}, {Name: "w:3", StartMillis: 3, StartKnown: true},
		{Name: "w-x"}, {Name: "w.3", StartMillis: 3, StartKnown: true}, {Name: "w-before-1970", StartMillis: -5, StartKnown: true}}
	slices.SortFunc(segments, compareSegments)
	got = nil
	for _, s := range segments {
		got = append(got, s.Name)
	}
	if want := []string{"w-x", "w-before-1970", "w.3", "w:3", "w.5"}; !slices.Equal(got, want) {
		t.Errorf("segments are ordered %q, want %q", got, want)
	}
}

func TestChangelogTopic(t *testing.T) {
	t.Parallel()
	for want, task := range map[string]*Task{
		"app-kv-changelog":      {},
		"app-topo-kv-changelog": {Topology: "topo"},
	} {
		if got := task.ChangelogTopic("app", "kv"); got != want {
			t.Errorf("topic %q, want %q", got, want)
		}
	}
}

func TestWithin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		dir, path string
		want      bool
	}{
		{"/a", "/a", true}, {"/a", "/a/b", true}, {"/", "/a", true}, {"/", "/", true},
		{"/a", "/ab", false}, {"/a", "/b", false}, {"/a/b", "/a", false},
	} {
		if got := within(c.dir, c.path); got != c.want {
			t.Errorf("%q within %q: %v", c.path, c.dir, got)
		}
	}
}
