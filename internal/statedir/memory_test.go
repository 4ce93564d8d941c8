package statedir

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/volume"
	"streams-sidecar/internal/volume/volumetest"
)

const everything = `
	app/.lock
	app/kafka-streams-process-metadata = {"processId":"ff72cccf-4ecc-42fb-a3b7-3bf72ac220ff"}
	app/0_0.quarantine/rocksdb/kv/000008.sst = 12345
	app/0_0/.lock
	app/0_0/.checkpoint = 0\n1\napp-kv-changelog 0 17\n
	app/0_0/.checkpoint_custom = 0\n0\n
	app/0_0/kv.position = 0\n1\nin 0 7\n
	app/0_0/bad.position = hello
	app/0_0/rocksdb/kv/CURRENT
	app/0_0/rocksdb/bad/CURRENT
	app/0_0/rocksdb/broken/CURRENT
	app/0_0/rocksdb/void/
	app/0_0/win/win.5/CURRENT
	app/0_0/win/stray
	app/0_0/win.bak/win.5/CURRENT
	app/0_1/.checkpoint = hello
	app/global/.checkpoint = 0\n0\n
	other/kafka-streams-process-metadata = hello
	other/0_0/rocksdb/kv/CURRENT
`

// pointers are all values of a result.
func pointers(d *Dir) map[string]any {
	all := map[string]any{}
	for _, a := range d.Applications {
		all[a.Path] = a
		for _, k := range a.Tasks {
			all[k.Path] = k
			if k.Checkpoint != nil {
				all[k.Checkpoint.Path] = k.Checkpoint
			}
			for _, s := range k.Stores {
				all[s.Path] = s
				if s.Position != nil {
					all[s.Position.Path] = s.Position
				}
			}
		}
	}
	return all
}

// changed are the paths whose values differ, without the root.
func changed(before, after *Dir) []string {
	var out []string
	old := pointers(before)
	for path, p := range pointers(after) {
		if old[path] != p {
			out = append(out, strings.TrimPrefix(path, after.Resolved))
		}
		delete(old, path)
	}
	for path := range old {
		out = append(out, "-"+strings.TrimPrefix(path, after.Resolved))
	}
	slices.Sort(out)
	return out
}

func TestIdleScanReadsNothing(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	grow(t, root, everything)
	fs := volumetest.New(t, volume.OS())
	fs.Fail(volumetest.List, filepath.Join(root, "app/0_0/rocksdb/broken"), syscall.EIO)
	v := volume.New(fs)
	first := Scan(v, root, nil)
	opened := fs.Count(volumetest.Open, "...")
	if opened == 0 {
		t.Fatal("the first scan opened no file")
	}
	listed := func() (n int) {
		for _, p := range []string{"app/0_0.quarantine", "app/0_0/win.bak", "app/0_0/rocksdb/kv"} {
			n += fs.Count(volumetest.List, filepath.Join(root, p)+"/...")
		}
		return n
	}
	lists := listed()
	asked := fs.Count(volumetest.Lock, "...")
	second := Scan(v, root, first)
	third := Scan(v, root, second)
	if n := fs.Count(volumetest.Open, "...") - opened; n != 0 {
		t.Errorf("%d files were opened again", n)
	}
	if n := listed() - lists; n != 0 {
		t.Errorf("%d directories were listed again whose size and emptiness is known", n)
	}
	if n := fs.Count(volumetest.Lock, "...") - asked; n != 2*asked {
		t.Errorf("%d questions for %d locks in two scans", n, asked)
	}
	for _, d := range []*Dir{second, third} {
		if diff := diffText(describe(first), describe(d)); diff != "" {
			t.Errorf("an idle scan says something else (-first +later):\n%s", diff)
		}
		if paths := changed(first, d); len(paths) != 0 {
			t.Errorf("new values for what did not change: %q", paths)
		}
	}
}

func TestScanSeesEveryChange(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		change  func(t *testing.T, path func(string) string)
		changed []string
		wants   string // in the description afterwards
	}{
		{"checkpoint is replaced", func(t *testing.T, path func(string) string) {
			put(t, path("app/0_0/.checkpoint.tmp"), "0\n1\napp-kv-changelog 0 18\n")
			must(t, os.Rename(path("app/0_0/.checkpoint.tmp"), path("app/0_0/.checkpoint")))
		}, []string{"/app", "/app/0_0", "/app/0_0/.checkpoint"}, "checkpoint [{app-kv-changelog 0 18}]"},
		{"checkpoint is written over, with the same size", func(t *testing.T, path func(string) string) {
			put(t, path("app/0_0/.checkpoint"), "0\n1\napp-kv-changelog 0 18\n")
			later := time.Now().Add(time.Hour)
			must(t, os.Chtimes(path("app/0_0/.checkpoint"), later, later))
		}, []string{"/app", "/app/0_0", "/app/0_0/.checkpoint"}, "checkpoint [{app-kv-changelog 0 18}]"},
		{"checkpoint is repaired", func(t *testing.T, path func(string) string) {
			put(t, path("app/0_1/.checkpoint"), "0\n0\n")
		}, []string{"/app", "/app/0_1", "/app/0_1/.checkpoint"}, "  task 0_1\n    checkpoint []\n"},
		{"position changes", func(t *testing.T, path func(string) string) {
			put(t, path("app/0_0/kv.position"), "0\n1\nin 0 12345\n")
		}, []string{"/app", "/app/0_0", "/app/0_0/kv.position", "/app/0_0/rocksdb/kv"}, "store kv position [{in 0 12345}]"},
		{"process id is repaired", func(t *testing.T, path func(string) string) {
			put(t, path("other/kafka-streams-process-metadata"), `{"processId":"ff72cccf-4ecc-42fb-a3b7-3bf72ac220ff"}`)
		}, []string{"/other"}, "application other\n  task 0_0\n"},
		{"a store is emptied", func(t *testing.T, path func(string) string) {
			must(t, os.Remove(path("app/0_0/rocksdb/kv/CURRENT")))
		}, []string{"/app", "/app/0_0", "/app/0_0/rocksdb/kv"}, "store kv empty"},
		{"a segment comes", func(t *testing.T, path func(string) string) {
			put(t, path("app/0_0/win/win.6")+"/", "")
		}, []string{"/app", "/app/0_0", "/app/0_0/win"}, "segment win.6 from 6"},
		{"a foreign directory grows", func(t *testing.T, path func(string) string) {
			put(t, path("app/0_0.quarantine/more"), "678")
		}, []string{"/app"}, "foreign-directory /app/0_0.quarantine found 8 bytes"},
		{"a foreign directory becomes a store", func(t *testing.T, path func(string) string) {
			must(t, os.RemoveAll(path("app/0_0/win")))
			must(t, os.Rename(path("app/0_0/win.bak"), path("app/0_0/win")))
		}, []string{"/app", "/app/0_0", "/app/0_0/win"}, "store win segmented\n      segment win.5 from 5\n"},
		{"a task goes", func(t *testing.T, path func(string) string) {
			must(t, os.RemoveAll(path("app/global")))
		}, []string{"-/app/global", "-/app/global/.checkpoint", "/app"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			root := tempDir(t)
			grow(t, root, everything)
			// All times in the past, so that those of the change differ on
			// a file system with coarse times too.
			past := time.Now().Add(-time.Hour)
			must(t, filepath.WalkDir(root, func(p string, _ os.DirEntry, err error) error {
				if err != nil {
					return err
				}
				return os.Chtimes(p, past, past)
			}))
			v := volume.New(volume.OS())
			before := Scan(v, root, nil)
			told := describe(before)
			c.change(t, func(p string) string { return filepath.Join(root, p) })
			after := Scan(v, root, before)
			if got := changed(before, after); !slices.Equal(got, c.changed) {
				t.Errorf("changed %q, want %q", got, c.changed)
			}
			if !strings.Contains(describe(after), c.wants) {
				t.Errorf("does not say %q:\n%s", c.wants, describe(after))
			}
			if diff := diffText(describe(scan(root)), describe(after)); diff != "" {
				t.Errorf("memory makes a difference (-without +with):\n%s", diff)
			}
			if diff := diffText(told, describe(before)); diff != "" {
				t.Errorf("the earlier result has changed (-before +now):\n%s", diff)
			}
		})
	}
}

// What is remembered of a file is also of its name: another directory may come
// in the place of one, with files that are linked or copied from it.
func TestRenamedTask(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	grow(t, root, everything)
	v := volume.New(volume.OS())
	before := Scan(v, root, nil)
	must(t, os.Rename(filepath.Join(root, "app/0_0"), filepath.Join(root, "app/0_5")))
	k := Scan(v, root, before).Applications[0].Tasks[1]
	if want := filepath.Join(root, "app/0_5/.checkpoint"); k.ID != "0_5" || k.Checkpoint == nil || k.Checkpoint.Path != want {
		t.Errorf("task %+v", k)
	}
	if f := k.Stores[0].Findings[0]; f.Code != finding.PositionMalformed || f.File != filepath.Join(root, "app/0_5/bad.position") {
		t.Errorf("finding about %s", f.File)
	}
}

// While the state directory does not answer, nothing is forgotten.
func TestMemoryOutlivesAnUnreadableVolume(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	grow(t, root, everything)
	fs := volumetest.New(t, volume.OS())
	v := volume.New(fs)
	d := Scan(v, root, nil)
	broken := fs.Fail(volumetest.List, root, syscall.EIO)
	d = Scan(v, root, d)
	if len(d.Applications) != 0 {
		t.Fatalf("%d applications of what cannot be listed", len(d.Applications))
	}
	broken.Release()
	opened := fs.Count(volumetest.Open, "...")
	if d = Scan(v, root, d); len(d.Applications) != 2 {
		t.Errorf("%d applications", len(d.Applications))
	}
	if n := fs.Count(volumetest.Open, "...") - opened; n != 0 {
		t.Errorf("%d files were opened again", n)
	}
}

// The budget is for one scan: what was not counted is counted by a later one.
func TestForeignBudget(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	for _, n := range []string{"a", "b"} {
		put(t, filepath.Join(root, "app/0_0", n+".bak", "x"), "12345")
		put(t, filepath.Join(root, "app/0_0", n+".bak", "y"), "12345")
	}
	s := func(before *memory, budget int) (fs []finding.Finding, after *memory) {
		s := &scanner{v: volume.New(volume.OS()), dir: &Dir{}, before: before, budget: budget}
		s.dir.memory = newMemory(before)
		for _, n := range []string{"a.bak", "b.bak"} {
			path := filepath.Join(root, "app/0_0", n)
			s.foreign(&place{name: n, path: path, info: mustStat(t, path)}, &fs)
		}
		return fs, s.dir.memory
	}
	first, memory := s(&memory{}, 2)
	if first[0].Found != "10 bytes" || first[1].Found != "at least 0 bytes" {
		t.Errorf("first: %v", first)
	}
	if second, _ := s(memory, 2); second[0].Found != "10 bytes" || second[1].Found != "10 bytes" {
		t.Errorf("second: %v", second)
	}
}

// same… must look at every field that there is.
func TestSameLooksAtEveryField(t *testing.T) {
	t.Parallel()
	everyField(t, sameApplication)
	everyField(t, sameTask)
	everyField(t, sameStore)
}

func everyField[T any](t *testing.T, same func(a, b *T) bool) {
	t.Helper()
	if !same(new(T), new(T)) {
		t.Errorf("two empty %T differ", *new(T))
	}
	for i := range reflect.TypeFor[T]().NumField() {
		a, b := new(T), new(T)
		f := reflect.ValueOf(b).Elem().Field(i)
		name := reflect.TypeFor[T]().Field(i).Name
		switch f.Kind() {
		case reflect.String:
			f.SetString("x")
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Int, reflect.Int32, reflect.Int64:
			f.SetInt(1)
		case reflect.Uint32:
			f.SetUint(1)
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		case reflect.Map:
			f.Set(reflect.MakeMap(f.Type()))
			f.SetMapIndex(reflect.ValueOf("x"), reflect.New(f.Type().Elem().Elem()))
		case reflect.Slice:
			e := reflect.New(f.Type().Elem()).Elem()
			if e.Kind() == reflect.Pointer {
				e.Set(reflect.New(e.Type().Elem()))
			}
			f.Set(reflect.Append(f, e))
		case reflect.Struct:
			f.Field(0).SetUint(1) // volume.ID
		default:
			t.Fatalf("field %s of %T is a %s", name, *a, f.Kind())
		}
		if same(a, b) || same(b, a) {
			t.Errorf("field %s of %T makes no difference", name, *a)
		}
	}
}

func TestSameFindings(t *testing.T) {
	t.Parallel()
	at := func(n int64) []finding.Finding {
		return []finding.Finding{finding.New(finding.CheckpointMalformed, "/x", finding.At(n))}
	}
	if !sameFindings(at(5), at(5)) || sameFindings(at(5), at(6)) || sameFindings(at(5), nil) {
		t.Error("findings are compared by the value of their offset")
	}
}
