//go:build streams

package streams_test

import (
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"streams-sidecar/internal/statedir"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
	"streams-sidecar/test/streams"
)

// eachVersion runs a test once per version, a few of them at a time.
func eachVersion(t *testing.T, test func(t *testing.T, lab *streams.Lab, version string)) {
	t.Helper()
	t.Parallel()
	lab := streams.Start(t)
	for _, v := range streams.Versions {
		t.Run(v, func(t *testing.T) {
			t.Parallel()
			test(t, lab, v)
		})
	}
}

// TestCleanRestart: whatever the guarantee, an application that was closed has
// all its content on disk, in the layout of its version, and restores nothing.
func TestCleanRestart(t *testing.T) {
	for name, exactlyOnce := range map[string]bool{"AtLeastOnce": false, "ExactlyOnce": true} {
		t.Run(name, func(t *testing.T) {
			eachVersion(t, func(t *testing.T, lab *streams.Lab, version string) {
				app := lab.App(t, version, streams.Options{
					Stores: streams.Full(version), ExactlyOnce: exactlyOnce, Spread: streams.Retention * 4 / 5,
				})
				app.ProduceGlobal(100)
				app.Produce(1000)
				app.Open()
				app.WaitRunning()
				app.WaitCommitted()
				checkContent(t, app)
				checkOpen(t, app)

				app.CloseClean()
				checkClosed(t, app, version)

				app.Open()
				app.WaitRunning()
				for store, n := range app.Restored() {
					if n != 0 && store != "gtab" { // see checkGlobalCheckpoint
						t.Errorf("%s restored %d records", store, n)
					}
				}
				checkContent(t, app)
			})
		})
	}
}

// checkContent compares every store with what was produced: 1000 records of
// 500 keys, and 100 of the global topic.
func checkContent(t *testing.T, app *streams.App) {
	t.Helper()
	truth := app.Truth()
	if truth.Entries != 500 {
		t.Errorf("the input topic has %d keys, want 500", truth.Entries)
	}
	for name, kind := range app.Options.Stores {
		got := app.Content(name)
		switch kind {
		case streams.Window, streams.Session: // one entry for each record, because no two of a key have the same timestamp
			if got.Entries != 1000 {
				t.Errorf("%s has %d entries, want 1000", name, got.Entries)
			}
		case streams.Global:
			if got.Entries != 100 {
				t.Errorf("%s has %d entries, want 100", name, got.Entries)
			}
		default:
			if got != truth {
				t.Errorf("%s holds %+v, want %+v", name, got, truth)
			}
		}
	}
}

func scan(t *testing.T, app *streams.App) *store.Application {
	t.Helper()
	s := store.Scan(volume.New(volume.OS()), app.Dir, nil)
	if len(s.Applications) != 1 || s.Applications[0].Layout.ID != app.ID {
		t.Fatalf("%d applications in %s, want %s alone", len(s.Applications), app.Dir, app.ID)
	}
	return s.Applications[0]
}

func checkOpen(t *testing.T, app *streams.App) {
	t.Helper()
	a := scan(t, app)
	if r := a.Layout.Running; r == nil || !*r || a.Layout.HolderPID != app.PID() {
		t.Errorf(".lock is not held by %d but by %d", app.PID(), a.Layout.HolderPID)
	}
	for _, task := range a.Tasks {
		for _, st := range task.Stores {
			if st.InUse == nil || !*st.InUse {
				t.Errorf("%s of %s: LOCK is not held", st.Name, task.Layout.ID)
			}
		}
	}
}

// kinds are what the files prove of each kind of store.
var kinds = map[streams.Kind]store.Kind{
	streams.Plain:       store.KeyValue,
	streams.Unlogged:    store.KeyValue,
	streams.Versioned:   store.KeyValue,
	streams.Timestamped: store.Timestamped,
	streams.Global:      store.Timestamped,
	streams.Window:      store.Segmented,
	streams.Session:     store.Segmented,
}

func era(version string) store.Era {
	switch {
	case streams.AtLeast(version, 4, 3):
		return store.OffsetsCF
	case streams.AtLeast(version, 3, 0):
		return store.Checkpoint
	default:
		return store.TaskLock
	}
}

func checkClosed(t *testing.T, app *streams.App, version string) {
	t.Helper()
	a := scan(t, app)
	if r := a.Layout.Running; r == nil || *r || a.Layout.ProcessID == "" {
		t.Errorf("running is %v and the process id %q after the close", r, a.Layout.ProcessID)
	}
	checkFiles(t, app, version)
	ends := app.Ends()
	seen := map[string]int{} // how many tasks each store is in
	for _, task := range a.Tasks {
		if task.Era != era(version) {
			t.Errorf("task %s: era %q, want %q", task.Layout.ID, task.Era, era(version))
		}
		if task.Layout.Global {
			checkGlobalCheckpoint(t, task, version, app, ends)
		}
		for _, st := range task.Stores {
			seen[st.Name]++
			where := task.Layout.ID + "/" + st.Name
			kind := app.Options.Stores[st.Name]
			if st.Kind != kinds[kind] || st.Era != era(version) || st.InUse == nil || *st.InUse || !st.Up {
				t.Errorf("%s: kind %q, era %q, in use %v, up %v", where, st.Kind, st.Era, st.InUse, st.Up)
			}
			if kinds[kind] == store.Segmented && st.Segments < 2 {
				t.Errorf("%s: %d segments for eight minutes", where, st.Segments)
			}
			checkStatus(t, where, st)
			checkOffsets(t, where, task, st, app, ends)
		}
	}
	want := map[string]int{}
	for name, kind := range app.Options.Stores {
		want[name] = 2
		if kind == streams.Global {
			want[name] = 1
		}
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("tasks of each store (-want +got):\n%s", diff)
	}
}

func checkStatus(t *testing.T, where string, st *store.Store) {
	t.Helper()
	wantStatus, wantClosed := store.Status(""), store.Closed("")
	if st.Era == store.OffsetsCF {
		wantStatus, wantClosed = store.StatusClosed, store.Clean
	}
	if st.Status != wantStatus || st.Closed != wantClosed {
		t.Errorf("%s: status %q, closed %q, want %q, %q", where, st.Status, st.Closed, wantStatus, wantClosed)
	}
}

// checkOffsets compares what the store has on disk with the end of its
// changelog, of which the last record of a transaction is its commit marker.
func checkOffsets(t *testing.T, where string, task *store.Task, st *store.Store, app *streams.App, ends map[string]int64) {
	t.Helper()
	got := map[string]int64{}
	for _, o := range st.Offsets {
		got[fmt.Sprintf("%s-%d %s", o.Topic, o.Partition, o.Meaning)] = o.Offset
	}
	want := map[string]int64{}
	switch app.Options.Stores[st.Name] {
	case streams.Unlogged:
	case streams.Global:
		if st.Era == store.OffsetsCF {
			want[app.ID+"-global-0 next"] = ends[app.ID+"-global-0"]
		}
	default:
		changelog := fmt.Sprintf("%s-%s-changelog-%d", app.ID, st.Name, task.Layout.Partition)
		last := ends[changelog] - 1
		if app.Options.ExactlyOnce {
			last--
		}
		want[changelog+" last-applied"] = last
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: offsets (-want +got):\n%s", where, diff)
	}
}

// checkGlobalCheckpoint looks at the offset of the global store up to 4.2. It
// stands under the name of the source topic, so that nothing on disk says which
// store it belongs to. 3.9 and 4.0 write it only after 10 000 records.
func checkGlobalCheckpoint(t *testing.T, task *store.Task, version string, app *streams.App, ends map[string]int64) {
	t.Helper()
	var want []statedir.Offset
	if !streams.AtLeast(version, 3, 9) || streams.AtLeast(version, 4, 1) && !streams.AtLeast(version, 4, 3) {
		want = []statedir.Offset{{Topic: app.ID + "-global", Offset: ends[app.ID+"-global-0"]}}
	}
	var got []statedir.Offset
	if c := task.Layout.Checkpoint; c != nil {
		got = c.Entries
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("checkpoint of the global store (-want +got):\n%s", diff)
	}
}

// checkFiles looks for the files by which the versions differ.
func checkFiles(t *testing.T, app *streams.App, version string) {
	t.Helper()
	got := map[string]bool{}
	err := filepath.WalkDir(app.Dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch name := e.Name(); {
		case name == ".checkpoint" && !strings.Contains(p, "/global/"):
			got[".checkpoint"] = true
		case strings.HasSuffix(name, ".position"):
			got[".position"] = true
		case name == ".lock" && filepath.Dir(p) != filepath.Join(app.Dir, app.ID):
			got["<task>/.lock"] = true
		case strings.HasSuffix(name, ".log"):
			info, err := e.Info()
			if err != nil {
				return err
			}
			if info.Size() != 0 {
				t.Errorf("%s has %d bytes", p, info.Size())
			}
			got["*.log"] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{"*.log": true}
	switch era(version) {
	case store.TaskLock:
		want["<task>/.lock"], want[".checkpoint"] = true, true
	case store.Checkpoint:
		want[".position"], want[".checkpoint"] = true, true
	}
	if g, w := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(g, w) {
		t.Errorf("files %q, want %q", g, w)
	}
}

// TestKill: what was in memory only is restored, and right.
func TestKill(t *testing.T) {
	eachVersion(t, func(t *testing.T, lab *streams.Lab, version string) {
		app := lab.App(t, version, streams.Options{})
		app.Produce(1000)
		app.Open()
		app.WaitRunning()
		app.WaitCommitted()
		app.Kill()

		if r := scan(t, app).Layout.Running; r == nil || *r {
			t.Errorf("running is %v after the kill", r)
		}
		app.Open()
		app.WaitRunning()
		if got := app.Restored()["kv"]; got != 1000 {
			t.Errorf("kv restored %d records, want 1000", got)
		}
		if got, want := app.Content("kv"), app.Truth(); got != want {
			t.Errorf("kv holds %+v, want %+v", got, want)
		}
		app.CloseClean()
		app.Open()
		app.WaitRunning()
		if got := app.Restored()["kv"]; got != 0 {
			t.Errorf("kv restored %d records after a clean close", got)
		}
	})
}
