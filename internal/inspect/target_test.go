package inspect_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"streams-sidecar/internal/inspect"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
	"streams-sidecar/test/fixture"
)

// TestFind: what a path is about, whatever kind of path it is.
func TestFind(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "4.4.0", "closed-clean")
	app := filepath.Join(dir, "alos440")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.CopyFS(filepath.Join(app, "__topo__", "3_0"), os.DirFS(filepath.Join(app, "1_0"))))
	must(os.CopyFS(filepath.Join(app, "1_1/rocksdb/kv.corrupt"), os.DirFS(filepath.Join(app, "1_1/rocksdb/kv"))))
	copied := filepath.Join(t.TempDir(), "copy")
	must(os.CopyFS(copied, os.DirFS(filepath.Join(app, "1_0/rocksdb/ver"))))
	link := filepath.Join(t.TempDir(), "link")
	must(os.Symlink(filepath.Join(app, "1_0/rocksdb/kv"), link))
	must(os.WriteFile(filepath.Join(dir, "000010.sst"), nil, 0o600)) // makes no database of a state directory
	all := []string{"1_0/kv", "1_0/sess", "1_0/ver", "1_0/win", "1_1/kv", "1_1/sess", "1_1/ver", "1_1/win",
		"__topo__/3_0/kv", "__topo__/3_0/sess", "__topo__/3_0/ver", "__topo__/3_0/win", "global/gtab"}
	for path, want := range map[string][]string{
		dir:                                all,
		dir + "/":                          all,
		app:                                all,
		app + "/__topo__":                  all[8:12],
		app + "/__topo__/3_0/rocksdb/kv":   {"__topo__/3_0/kv"},
		app + "/1_0":                       all[:4],
		app + "/1_0/rocksdb":               {"1_0/kv", "1_0/ver"},
		app + "/1_0/rocksdb/kv":            {"1_0/kv"},
		app + "/1_0/win":                   {"1_0/win"},
		app + "/1_0/win/win.1796062800000": {"1_0/win"},
		app + "/global":                    {"global/gtab"},
		app + "/1_1/rocksdb/kv.corrupt":    {"-/kv.corrupt"},
		copied:                             {"-/copy"},
		link:                               {"1_0/kv"},
		t.TempDir():                        nil,
		dir + "/nowhere":                   nil,
	} {
		targets := []inspect.Target{inspect.Find(volume.New(volume.OS()), path)}
		var got []string
		inspect.LookAll(targets, []*store.StateDir{nil})[0].Stores(func(_ *store.Application, task *store.Task, s *store.Store) {
			if targets[0].Covers(s.Layout.Path) {
				got = append(got, task.Layout.ID+"/"+s.Name)
			}
		})
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}
