package statedir

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"streams-sidecar/internal/finding"
	"streams-sidecar/test/fixture"
)

// Every real state directory: what is found must be what its inventory says,
// which was made with RocksDB and a copy of the files alone.
func TestFixtures(t *testing.T) {
	t.Parallel()
	inventories := map[string]map[string]fixture.Content{}
	for _, n := range fixture.Names() {
		// Under the race detector unpacking takes ten times as long; what is
		// damaged in RocksDB's own files alone looks the same from here.
		if raceDetector && slices.ContainsFunc([]string{"-sst-", "-manifest-", "-current-", "-options-", "-identity-", "-wal-"},
			func(file string) bool { return strings.HasPrefix(n.Case, "corrupt-") && strings.Contains(n.Case, file) }) {
			continue
		}
		if inventories[n.Version] == nil {
			inventories[n.Version] = fixture.Inventory(t, n.Version)
		}
		content, ok := inventories[n.Version][n.Case]
		t.Run(n.String(), func(t *testing.T) {
			t.Parallel()
			if !ok {
				t.Fatal("no inventory")
			}
			checkFixture(t, n, content)
		})
	}
}

func checkFixture(t *testing.T, n fixture.Name, content fixture.Content) {
	dir := fixture.Unpack(t, n.Version, n.Case)
	in := "."
	if n.Case == "closed-article-statedir" { // the only one whose top folder is the state directory
		in = filepath.Base(dir)
	}
	d := scan(dir)
	path := func(p string) string { // as the inventory spells it
		rel, err := filepath.Rel(d.Resolved, p)
		must(t, err)
		return filepath.ToSlash(filepath.Join(in, rel))
	}

	// Left out of the comparison is what Streams ignores.
	foreign := map[string]bool{}
	each(d, func(f finding.Finding) {
		if f.Code != finding.ForeignDirectory {
			return
		}
		if f.File != filepath.Join(d.Resolved, filepath.Dir(f.File[len(d.Resolved):]), "0_0.quarantine") || !strings.HasSuffix(f.Found, " bytes") {
			t.Errorf("finding %v", f)
		}
		foreign[path(f.File)+"/"] = true
	})
	ignored := func(p string) bool {
		for dir := range foreign {
			if strings.HasPrefix(p, dir) {
				return true
			}
		}
		return false
	}
	if want := strings.Contains(n.Case, "moved-inside-app"); want != (len(foreign) == 1) {
		t.Errorf("foreign directories %v", foreign)
	}

	var stores, wantStores []string
	for p := range content.Stores {
		if !ignored(p) {
			wantStores = append(wantStores, p)
		}
	}
	checkpoints, wantCheckpoints := map[string][]Offset{}, map[string][]Offset{}
	var malformed, wantMalformed []string
	for p, text := range content.Checkpoints {
		if ignored(p) {
			continue
		}
		if entries, ok := entriesOf(text); ok {
			wantCheckpoints[p] = entries
		} else {
			wantMalformed = append(wantMalformed, p)
		}
	}
	for _, a := range d.Applications {
		if a.Running == nil || *a.Running || !a.LockFile {
			t.Errorf("application %s: running %v, lock file %v", a.ID, a.Running, a.LockFile)
		}
		if want := !strings.Contains(n.Case, "process-meta-removed"); want != isUUID(a.ProcessID) {
			t.Errorf("application %s: process id %q", a.ID, a.ProcessID)
		}
		for _, k := range a.Tasks {
			if want := n.Version == "2.8.2"; k.LockFile != want {
				t.Errorf("task %s: lock file %v", k.ID, k.LockFile)
			}
			if k.Checkpoint != nil {
				checkpoints[path(k.Checkpoint.Path)] = k.Checkpoint.Entries
			}
			for _, s := range k.Stores {
				if s.SetAside != (s.Name == "kv.corrupt") || s.Empty {
					t.Errorf("store %s: set aside %v, empty %v", s.Path, s.SetAside, s.Empty)
				}
				if want := slices.Contains([]string{"win", "sess"}, s.Name); s.Segmented != want {
					t.Errorf("store %s: segmented %v", s.Path, s.Segmented)
				}
				if !s.Segmented {
					stores = append(stores, path(s.Path))
				}
				for _, g := range s.Segments {
					if want := fmt.Sprintf("%s.%d", s.Name, g.StartMillis); !g.StartKnown || g.Name != want {
						t.Errorf("segment %s from %d", g.Path, g.StartMillis)
					}
					stores = append(stores, path(g.Path))
				}
			}
		}
	}
	each(d, func(f finding.Finding) {
		switch f.Code {
		case finding.ForeignDirectory:
		case finding.CheckpointMalformed, finding.CheckpointEmpty:
			malformed = append(malformed, path(f.File))
		default:
			t.Errorf("finding %v", f)
		}
	})
	slices.Sort(stores)
	slices.Sort(wantStores)
	if diff := cmp.Diff(wantStores, stores); diff != "" {
		t.Errorf("databases (-inventory +found):\n%s", diff)
	}
	if diff := cmp.Diff(wantCheckpoints, checkpoints); diff != "" {
		t.Errorf("checkpoints (-inventory +found):\n%s", diff)
	}
	if diff := cmp.Diff(wantMalformed, malformed); diff != "" {
		t.Errorf("malformed checkpoints (-inventory +found):\n%s", diff)
	}
}

// entriesOf reads a checkpoint without the package's parser.
func entriesOf(text []byte) ([]Offset, bool) {
	r := bytes.NewReader(text)
	var version, count int
	if n, _ := fmt.Fscan(r, &version, &count); n != 2 || version != 0 {
		return nil, false
	}
	entries := make([]Offset, count)
	for i := range entries {
		e := &entries[i]
		if n, _ := fmt.Fscan(r, &e.Topic, &e.Partition, &e.Offset); n != 3 {
			return nil, false
		}
	}
	return entries, true
}

// Positions are not in the inventories, but what they say is known.
func TestFixturePositions(t *testing.T) {
	t.Parallel()
	d := scan(fixture.Unpack(t, "3.9.1", "closed-clean"))
	for _, k := range d.Applications[0].Tasks {
		if k.Global {
			continue
		}
		for _, s := range k.Stores {
			want := map[string]int64{"1_0": 1135, "1_1": 1063}[k.ID]
			if s.Position == nil {
				t.Errorf("task %s, store %s has no position", k.ID, s.Name)
				continue
			}
			if diff := cmp.Diff([]Offset{{"in-alos391", k.Partition, want}}, s.Position.Entries); diff != "" {
				t.Errorf("task %s, store %s (-want +got):\n%s", k.ID, s.Name, diff)
			}
		}
	}
	if n := len(d.Applications[0].Tasks); n != 3 {
		t.Errorf("%d tasks", n)
	}
}

// The archive whose root is the state directory, given one level too deep.
func TestFixtureGivenAsApplication(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "closed-article-statedir")
	if d := scan(filepath.Join(dir, "art391")); len(d.Applications) != 0 || len(d.Findings) != 1 || d.Findings[0].Code != finding.StateDirIsApplication {
		t.Errorf("the application: %s", describe(d))
	}
	if d := scan(filepath.Dir(dir)); len(d.Applications) != 0 || len(d.Findings) != 0 {
		t.Errorf("the directory above: %s", describe(d))
	}
}
