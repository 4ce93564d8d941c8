package manystores_test

import (
	"testing"

	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
	"streams-sidecar/test/manystores"
)

// TestMake: what the benchmarks run on is what they say it is.
func TestMake(t *testing.T) {
	t.Parallel()
	const stores = 10
	s := store.Scan(volume.New(volume.OS()), manystores.Make(t, stores), nil)
	n := 0
	s.Stores(func(_ *store.Application, _ *store.Task, st *store.Store) {
		n++
		files := 0
		for _, f := range st.Families {
			files += f.Files
		}
		state, _, ok := st.Databases[0].Manifest()
		if !ok || state.Edits < 20 || state.Edits != manystores.Edits || len(st.Families) != 3 || files != manystores.TablesPerStore {
			t.Errorf("%s: %d edits, %d families, %d tables", st.Name, state.Edits, len(st.Families), files)
		}
		if e := st.Families[1].Entries; e == nil || *e != manystores.DataTables*manystores.EntriesPerTable {
			t.Errorf("%s: entries %v", st.Name, e)
		}
		if len(st.Findings) > 0 || !st.Up || st.Counts.Compactions != 2 {
			t.Errorf("%s: %v, counts %+v", st.Name, st.Findings, st.Counts)
		}
	})
	if n != stores {
		t.Errorf("%d stores, want %d", n, stores)
	}
}
