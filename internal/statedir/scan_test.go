package statedir

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/volume"
	"streams-sidecar/internal/volume/volumetest"
)

func TestLayout(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, tree, want string }{
		{
			name: "an empty state directory",
		},
		{
			name: "up to 2.8",
			tree: `
				app/.lock
				app/kafka-streams-process-metadata = {"processId":"ff72cccf-4ecc-42fb-a3b7-3bf72ac220ff"}
				app/0_1/.lock
				app/0_1/.checkpoint = 0\n1\napp-kv-changelog 1 17\n
				app/0_1/rocksdb/kv/CURRENT
				app/0_1/win/win.1000/CURRENT
				app/0_1/win/win.900/CURRENT
				app/global/.lock
				app/global/.checkpoint = 0\n1\nin 0 5\n
				app/global/rocksdb/g/CURRENT`,
			want: `
				application app
				  task 0_1
				    checkpoint [{app-kv-changelog 1 17}]
				    store kv
				    store win segmented
				      segment win.900 from 900
				      segment win.1000 from 1000
				  task global
				    checkpoint [{in 0 5}]
				    store g`,
		},
		{
			name: "3.2 to 4.2",
			tree: `
				app/.lock
				app/0_0/.checkpoint = 0\n1\napp-kv-changelog 0 -4\n
				app/0_0/.checkpoint.tmp = half
				app/0_0/kv.position = 0\n1\nin 0 7\n
				app/0_0/kv.position.tmp = half
				app/0_0/win.position = 0\n1\nin 0 8\n
				app/0_0/rocksdb/kv/CURRENT
				app/0_0/win/win.900/CURRENT`,
			want: `
				application app
				  task 0_0
				    checkpoint [{app-kv-changelog 0 -4}]
				    store kv position [{in 0 7}]
				    store win segmented position [{in 0 8}]
				      segment win.900 from 900`,
		},
		{
			name: "from 4.3, with a store that does not manage its offsets",
			tree: `
				app/.lock
				app/0_0/.checkpoint_custom = 0\n1\napp-custom-changelog 0 3\n
				app/0_0/.checkpoint_custom.tmp = half
				app/0_0/.checkpoint_a_b = 0\n0\n
				app/0_0/rocksdb/kv/CURRENT`,
			want: `
				application app
				  task 0_0
				    checkpoint of a_b []
				    checkpoint of custom [{app-custom-changelog 0 3}]
				    store kv`,
		},
		{
			name: "leftovers that are no damage",
			tree: `
				app/0_2/
				app/0_3/.lock
				app/0_4/rocksdb/
				app/0_5/rocksdb/s/
				app/0_6/win/`,
			want: `
				application app
				  task 0_2
				  task 0_3
				  task 0_4
				  task 0_5
				    store s empty
				  task 0_6
				    store win segmented empty`,
		},
		{
			name: "tasks and applications in order",
			tree: `
				b/.lock
				b/10_0/
				b/2_0/
				b/0_10/
				b/0_2/
				b/global/
				b/__t__/1_0/
				b/__t__/0_0/rocksdb/kv/CURRENT
				b/__s__/0_0/
				a/.lock`,
			want: `
				application a
				application b
				  task 0_2
				  task 0_10
				  task 2_0
				  task 10_0
				  task __s__/0_0
				  task __t__/0_0
				    store kv
				  task __t__/1_0
				  task global`,
		},
		{
			name: "what makes an application",
			tree: `
				lock/.lock
				process/kafka-streams-process-metadata = {"processId":"ff72cccf-4ecc-42fb-a3b7-3bf72ac220ff"}
				task/0_0/
				topology/__t__/0_0/
				global/global/rocksdb/g/x
				windows/global/win/win.5/x`,
			want: `
				application global
				  task global
				    store g
				application lock
				application process
				application task
				  task 0_0
				application topology
				  task __t__/0_0
				application windows
				  task global
				    store win segmented
				      segment win.5 from 5`,
		},
		{
			name: "what does not",
			tree: `
				.streams-sidecar/0_0/x
				.snapshot/x
				lost+found/
				file
				empty/
				deeper/app/.lock
				deeper/app/0_0/
				names/.lock/
				names/kafka-streams-process-metadata/
				names/0_0
				names/0_0.quarantine/0_0/
				names/global/
				names/__t__/x/
				names/____/0_0/
				barren/global/rocksdb
				barren/global/empty/
				barren/global/full/x`,
		},
		{
			name: "beside an application, Streams ignores",
			tree: `
				app/.lock
				app/0_0.quarantine/rocksdb/kv/000008.sst = 12345
				app/0_0.quarantine/.checkpoint = 1
				app/lost+found/
				app/.streams-sidecar/x
				app/notes.txt
				app/__t__/0_0/
				app/__t__/other/x = 12
				app/__t__/global/
				app/____/`,
			want: `
				application app
				  task __t__/0_0
				  ! foreign-directory /app/0_0.quarantine found 6 bytes
				  ! foreign-directory /app/____ found 0 bytes
				  ! foreign-directory /app/__t__/global found 0 bytes
				  ! foreign-directory /app/__t__/other found 2 bytes
				  ! foreign-directory /app/lost+found found 0 bytes`,
		},
		{
			name: "in a task, Streams ignores",
			tree: `
				app/0_0/win/win.5/x
				app/0_0/win.bak/win.5/x = 1
				app/0_0/gone.old/
				app/0_0/single/CURRENT = 12
				app/0_0/named.corrupt/named.corrupt.5/x
				app/0_0/other/win.5/x = 123
				app/0_0/x.tmp
				app/0_0/file`,
			want: `
				application app
				  task 0_0
				    store named.corrupt segmented set-aside
				      segment named.corrupt.5 from 5
				    store win segmented
				      segment win.5 from 5
				    ! foreign-directory /app/0_0/gone.old found 0 bytes
				    ! foreign-directory /app/0_0/other found 3 bytes
				    ! foreign-directory /app/0_0/single found 2 bytes
				    ! foreign-directory /app/0_0/win.bak found 1 bytes`,
		},
		{
			name: "stores that look set aside",
			tree: `
				app/0_0/rocksdb/kv/CURRENT
				app/0_0/rocksdb/kv.corrupt/CURRENT
				app/0_0/rocksdb/kv.quarantine-1/
				app/0_0/rocksdb/kv.store/CURRENT`,
			want: `
				application app
				  task 0_0
				    store kv
				    store kv.corrupt set-aside
				    store kv.quarantine-1 empty set-aside
				    store kv.store`,
		},
		{
			name: "segments of all ages, and what is none",
			tree: `
				app/0_0/win/win.3000000/x
				app/0_0/win/win:2000000/x
				app/0_0/win/win-197001010016/x
				app/0_0/win/win-197013010016/x
				app/0_0/win/win.5.corrupt/x
				app/0_0/win/other.5/x
				app/0_0/win/.tool-lock
				app/0_0/win/CURRENT
				app/0_0/win/win.7`,
			want: `
				application app
				  task 0_0
				    store win segmented
				      segment win-197013010016
				      segment win-197001010016 from 960000
				      segment win:2000000 from 2000000
				      segment win.3000000 from 3000000
				      ! wrong-kind /app/0_0/win/win.7 expected a directory found a file
				      ! foreign-in-segments /app/0_0/win/.tool-lock expected segments of win found a file
				      ! foreign-in-segments /app/0_0/win/CURRENT expected segments of win found a file
				      ! foreign-in-segments /app/0_0/win/other.5 expected segments of win found a directory
				      ! foreign-in-segments /app/0_0/win/win.5.corrupt expected segments of win found a directory`,
		},
		{
			name: "files where directories belong",
			tree: `
				app/.lock
				app/0_0
				app/global
				app/__t__
				app/__s__/0_1
				app/1_0/rocksdb
				app/1_1/rocksdb/kv
				app/1_1/rocksdb/.nfs0001
				app/1_2/.checkpoint = 0\n1\napp-win-changelog 2 5\n
				app/1_2/win
				app/1_2/sess.position = 0\n0\n
				app/1_2/sess
				app/1_2/notes`,
			want: `
				application app
				  task 1_0
				    ! wrong-kind /app/1_0/rocksdb expected a directory found a file
				  task 1_1
				    ! wrong-kind /app/1_1/rocksdb/kv expected a directory found a file
				  task 1_2
				    checkpoint [{app-win-changelog 2 5}]
				    ! wrong-kind /app/1_2/sess expected a directory found a file
				    ! wrong-kind /app/1_2/win expected a directory found a file
				  ! wrong-kind /app/0_0 expected a directory found a file
				  ! wrong-kind /app/__s__/0_1 expected a directory found a file
				  ! wrong-kind /app/global expected a directory found a file`,
		},
		{
			name: "directories where files belong",
			tree: `
				app/0_0/.lock/
				app/0_0/.checkpoint/
				app/0_0/.checkpoint_kv/
				app/0_0/kv.position/
				app/0_0/rocksdb/kv/x
				app/.lock/
				app/kafka-streams-process-metadata/`,
			want: `
				application app
				  task 0_0
				    store kv
				    store kv.position segmented empty
				    ! wrong-kind /app/0_0/.checkpoint found open /app/0_0/.checkpoint: is a directory, not a file
				    ! wrong-kind /app/0_0/.checkpoint_kv found open /app/0_0/.checkpoint_kv: is a directory, not a file
				    ! wrong-kind /app/0_0/.lock found open /app/0_0/.lock: is a directory, not a file
				  ! wrong-kind /app/.lock found open /app/.lock: is a directory, not a file
				  ! wrong-kind /app/kafka-streams-process-metadata found open /app/kafka-streams-process-metadata: is a directory, not a file`,
		},
		{
			name: "task numbers that Streams cannot parse",
			tree: `app/0_2147483648/`,
			want: `
				application app
				  ! wrong-kind /app/0_2147483648 expected the name of a task, with numbers below 2147483648 found 0_2147483648`,
		},
		{
			name: "malformed files hide no store",
			tree: `
				app/kafka-streams-process-metadata = hello
				app/0_0/.checkpoint = hello\n
				app/0_0/.checkpoint_custom
				app/0_0/kv.position = 0\n1\nin 0 x\n
				app/0_0/gone.position = 0\n2\nin 0 5\n
				app/0_0/rocksdb/kv/x`,
			want: `
				application app
				  task 0_0
				    store kv
				      ! position-malformed /app/0_0/kv.position @9 expected line 3: an offset found "x"
				    ! checkpoint-malformed /app/0_0/.checkpoint @0 expected line 1: format version 0 found "hello"
				    ! checkpoint-empty /app/0_0/.checkpoint_custom @0 expected line 1: format version 0 found the end of the file
				    ! position-malformed /app/0_0/gone.position @2 expected line 2: 2 entries found 1
				  ! process-id-malformed /app/kafka-streams-process-metadata expected {"processId":"<uuid>"} found 5 bytes: invalid character 'h' looking for beginning of value`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			root := tempDir(t)
			grow(t, root, c.tree)
			expect(t, scan(root), c.want)
		})
	}
}

func TestFields(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	grow(t, root, `
		app/.lock
		app/kafka-streams-process-metadata = {"processId":"FF72CCCF-4ecc-42fb-a3b7-3bf72ac220ff"}
		app/0_7/.lock
		app/0_7/.checkpoint = 0\n1\na 7 5\n
		app/0_7/rocksdb/kv/CURRENT
		app/0_7/win/win.5/CURRENT
		app/__t__/1_2/
		app/global/
	`)
	info := func(path string) volume.Info {
		i, err := volume.OS().Stat(filepath.Join(root, path))
		must(t, err)
		return i
	}
	d := scan(root)
	if d.Path != root || d.Resolved != root || d.ID != info("").ID() || d.Missing || d.Usage == nil || d.Usage.Size <= 0 {
		t.Errorf("state directory: %+v", d)
	}
	a := d.Applications[0]
	app := info("app")
	if a.ID != "app" || a.Path != filepath.Join(root, "app") || a.DirID != app.ID() || a.UID != app.UID || a.GID != app.GID ||
		!a.LockFile || a.Running == nil || *a.Running || a.HolderPID != 0 || a.ProcessID != "ff72cccf-4ecc-42fb-a3b7-3bf72ac220ff" {
		t.Errorf("application: %+v", a)
	}
	k := a.Tasks[0]
	task := info("app/0_7")
	if k.Path != filepath.Join(root, "app/0_7") || k.DirID != task.ID() || k.ModNanos != task.ModNanos || k.Topology != "" ||
		k.Subtopology != 0 || k.Partition != 7 || k.Global || !k.LockFile || k.Locked == nil || *k.Locked {
		t.Errorf("task: %+v", k)
	}
	file := info("app/0_7/.checkpoint")
	want := &Checkpoint{Path: filepath.Join(root, "app/0_7/.checkpoint"), ModNanos: file.ModNanos, Dev: file.Dev, Ino: file.Ino,
		Size: file.Size, Entries: []Offset{{"a", 7, 5}}}
	if diff := cmp.Diff(want, k.Checkpoint); diff != "" {
		t.Errorf("checkpoint (-want +got):\n%s", diff)
	}
	kv, win := k.Stores[0], k.Stores[1]
	if kv.Path != filepath.Join(root, "app/0_7/rocksdb/kv") || kv.DirID != info("app/0_7/rocksdb/kv").ID() || kv.Segments != nil {
		t.Errorf("store: %+v", kv)
	}
	if win.Path != filepath.Join(root, "app/0_7/win") || win.DirID != info("app/0_7/win").ID() {
		t.Errorf("store: %+v", win)
	}
	if g := win.Segments[0]; g.Path != filepath.Join(root, "app/0_7/win/win.5") || g.DirID != info("app/0_7/win/win.5").ID() {
		t.Errorf("segment: %+v", g)
	}
	if k := a.Tasks[1]; k.Topology != "t" || k.Subtopology != 1 || k.Partition != 2 || k.Path != filepath.Join(root, "app/__t__/1_2") ||
		k.LockFile || k.Locked != nil || k.Checkpoint != nil {
		t.Errorf("task of a topology: %+v", k)
	}
	if k := a.Tasks[2]; !k.Global || k.Subtopology != -1 || k.Partition != -1 {
		t.Errorf("global task: %+v", k)
	}
}

func TestStateDirThatIsAnApplication(t *testing.T) {
	t.Parallel()
	for name, tree := range map[string]string{
		"with a task":           `0_0/rocksdb/kv/x`,
		"with a process id":     `kafka-streams-process-metadata = {}`,
		"with a linked task":    "0_0 -> elsewhere\nelsewhere/",
		"with an app beside it": "app/.lock\n0_0/",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := filepath.Join(tempDir(t), "app")
			grow(t, root, tree)
			d := scan(root)
			if len(d.Applications) != 0 || len(d.Findings) != 1 {
				t.Fatalf("%d applications, findings %v", len(d.Applications), d.Findings)
			}
			want := finding.New(finding.StateDirIsApplication, root,
				finding.Expected("the state directory, which may be %s", filepath.Dir(root)))
			if diff := cmp.Diff(want, d.Findings[0]); diff != "" {
				t.Errorf("finding (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStateDirThatIsNone(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	grow(t, root, `
		file
		dangling -> nothing
		loop -> loop
	`)
	for name, c := range map[string]struct {
		missing bool
		code    finding.Code
	}{
		"nothing":      {true, finding.StateDirMissing},
		"dangling":     {true, finding.StateDirMissing},
		"file":         {false, finding.WrongKind},
		"file/inside":  {false, finding.WrongKind},
		"loop":         {false, finding.WrongKind},
		"nothing/here": {true, finding.StateDirMissing},
	} {
		d := scan(filepath.Join(root, name))
		if d.Missing != c.missing || len(d.Findings) != 1 || d.Findings[0].Code != c.code || d.ID != (volume.ID{}) || d.Applications != nil {
			t.Errorf("%s: missing %v, id %v, findings %v", name, d.Missing, d.ID, d.Findings)
		}
	}
}

func TestStateDirThatComesAndGoes(t *testing.T) {
	t.Parallel()
	root := filepath.Join(tempDir(t), "state")
	v := volume.New(volume.OS())
	d := Scan(v, root, nil)
	if !d.Missing {
		t.Fatalf("not missing: %+v", d)
	}
	grow(t, root, "app/0_0/.checkpoint = 0\\n0\\n")
	if d = Scan(v, root, d); d.Missing || len(d.Applications) != 1 {
		t.Errorf("after it came: missing %v, %d applications", d.Missing, len(d.Applications))
	}
	must(t, os.RemoveAll(root))
	if d = Scan(v, root, d); !d.Missing || len(d.Applications) != 0 {
		t.Errorf("after it went: missing %v, %d applications", d.Missing, len(d.Applications))
	}
}

// It goes between the moment it is found and its listing.
func TestStateDirThatGoesMeanwhile(t *testing.T) {
	t.Parallel()
	root := filepath.Join(tempDir(t), "state")
	grow(t, root, "app/0_0/")
	fs := volumetest.New(t, volume.OS())
	fs.After(volumetest.Resolve, root, func() { must(t, os.RemoveAll(root)) })
	if d := Scan(volume.New(fs), root, nil); !d.Missing {
		t.Errorf("not missing: %s", describe(d))
	}
}

func TestRelativePath(t *testing.T) {
	root := tempDir(t)
	grow(t, root, "state/app/0_0/")
	t.Chdir(root)
	d := scan("state")
	if d.Path != "state" || d.Resolved != filepath.Join(root, "state") {
		t.Errorf("path %q, resolved %q", d.Path, d.Resolved)
	}
	if got, want := d.Applications[0].Tasks[0].Path, filepath.Join(root, "state/app/0_0"); got != want {
		t.Errorf("task %q, want %q", got, want)
	}
}

func TestSpecialFilesInEveryPlace(t *testing.T) {
	t.Parallel()
	for kind, mode := range map[string]uint32{"fifo": syscall.S_IFIFO, "socket": syscall.S_IFSOCK} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			root := tempDir(t)
			grow(t, root, `
				app/0_0/rocksdb/real/x
				app/0_0/win/win.5/x
			`)
			for _, p := range []string{
				"x", "app/x", "app/.lock", "app/kafka-streams-process-metadata", "app/0_1", "app/global", "app/__t__",
				"app/0_0/x", "app/0_0/.lock", "app/0_0/.checkpoint", "app/0_0/.checkpoint_kv", "app/0_0/real.position",
				"app/0_0/rocksdb/kv", "app/0_0/win/win.6", "app/0_0/win/x", "app/1_0/rocksdb",
			} {
				special(t, filepath.Join(root, p), mode)
			}
			const notAFile = ": is a special file, not a file"
			expect(t, scan(root), `
				application app
				  task 0_0
				    store real
				      ! wrong-kind /app/0_0/real.position found open /app/0_0/real.position`+notAFile+`
				    store win segmented
				      segment win.5 from 5
				      ! wrong-kind /app/0_0/win/win.6 expected a directory found a special file
				      ! foreign-in-segments /app/0_0/win/x expected segments of win found a special file
				    ! wrong-kind /app/0_0/.checkpoint found open /app/0_0/.checkpoint`+notAFile+`
				    ! wrong-kind /app/0_0/.checkpoint_kv found open /app/0_0/.checkpoint_kv`+notAFile+`
				    ! wrong-kind /app/0_0/.lock found open /app/0_0/.lock`+notAFile+`
				    ! wrong-kind /app/0_0/rocksdb/kv expected a directory found a special file
				  task 1_0
				    ! wrong-kind /app/1_0/rocksdb expected a directory found a special file
				  ! wrong-kind /app/.lock found open /app/.lock`+notAFile+`
				  ! wrong-kind /app/0_1 expected a directory found a special file
				  ! wrong-kind /app/global expected a directory found a special file
				  ! wrong-kind /app/kafka-streams-process-metadata found open /app/kafka-streams-process-metadata`+notAFile)
		})
	}
}

// Names are bytes; none may be lost or taken for another.
func TestStrangeNames(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	names := []string{"a b", "a\nb", `a"b`, `a\nb`, "a\xffb", "a\xfeb", "\u202ea", "é", "%s%d", "-rf", "*", "a'b"}
	for _, n := range names {
		grow := func(parts ...string) { put(t, filepath.Join(append([]string{root, n}, parts...)...), "") }
		grow(".lock")
		grow("0_0", "rocksdb", n, "x")
		grow("0_0", n+"w", n+"w.5", "x")
		grow("0_0", n+"w", n, "x")
		grow("__"+n+"__", "1_0", "x")
		put(t, filepath.Join(root, n, "0_0", n+".position"), "0\n0\n")
		put(t, filepath.Join(root, n, "0_0", ".checkpoint_"+n), "0\n0\n")
	}
	d := scan(root)
	if len(d.Applications) != len(names) || len(d.Findings) != 0 {
		t.Fatalf("%d applications of %d, findings %v", len(d.Applications), len(names), d.Findings)
	}
	apps := map[string]*Application{}
	for _, a := range d.Applications {
		apps[a.ID] = a
	}
	files := map[string]bool{}
	for _, n := range names {
		a := apps[n]
		if a == nil || len(a.Tasks) != 2 {
			t.Errorf("%q: application %+v", n, a)
			continue
		}
		if k := a.Tasks[1]; k.Topology != n || k.ID != "__"+n+"__/1_0" {
			t.Errorf("%q: topology %q, task %q", n, k.Topology, k.ID)
		}
		k := a.Tasks[0]
		if len(k.Stores) != 2 || k.Stores[0].Name != n || k.Stores[0].Position == nil || k.StoreCheckpoints[n] == nil {
			t.Errorf("%q: task %s", n, describe(d))
			continue
		}
		w := k.Stores[1]
		if w.Name != n+"w" || len(w.Segments) != 1 || w.Segments[0].Name != n+"w.5" || len(w.Findings) != 1 {
			t.Errorf("%q: store %+v", n, w)
			continue
		}
		f := w.Findings[0].File
		if files[f] || f != volume.Text(filepath.Join(root, n, "0_0", n+"w", n)) {
			t.Errorf("%q: finding about %q", n, f)
		}
		files[f] = true
	}
}

func TestManyFindingsAreBounded(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	grow(t, root, "app/0_0/win/win.5/\napp/0_0/win/win.6")
	for i := range maxFindings + 20 {
		put(t, filepath.Join(root, "app/0_0/win", "stray"+string(rune('a'+i%26))+string(rune('a'+i/26))), "")
	}
	fs := scan(root).Applications[0].Tasks[0].Stores[0].Findings
	if len(fs) != maxFindings+1 {
		t.Fatalf("%d findings", len(fs))
	}
	if fs[0].Code != finding.WrongKind {
		t.Errorf("the worst is not first: %v", fs[0])
	}
	want := finding.New(finding.ForeignInSegments, filepath.Join(root, "app/0_0/win"), finding.Found("21 more findings of this and other kinds"))
	if diff := cmp.Diff(want, fs[maxFindings]); diff != "" {
		t.Errorf("last finding (-want +got):\n%s", diff)
	}
}

// The database's own reader lists it: here a look at its first entry is enough.
func TestDatabasesAreNotListed(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	grow(t, root, `
		app/0_0/rocksdb/kv/a
		app/0_0/rocksdb/kv/b
		app/0_0/rocksdb/kv/c
		app/0_0/win/win.5/a
		.streams-sidecar/a
		app/.streams-sidecar/a
	`)
	fs := volumetest.New(t, volume.OS())
	Scan(volume.New(fs), root, nil)
	for path, most := range map[string]int{
		"app/0_0/rocksdb/kv": 1, "app/0_0/win/win.5": 0, ".streams-sidecar": 0, "app/.streams-sidecar": 0,
	} {
		path = filepath.Join(root, path)
		if n := fs.Count(volumetest.Entry, path+"/...") - fs.Count(volumetest.Entry, path); n > most {
			t.Errorf("%s: %d entries were looked at", path, n)
		}
		if n := fs.Count(volumetest.List, path); n > most {
			t.Errorf("%s: listed %d times", path, n)
		}
	}
}

func TestCheckpointPresent(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	grow(t, root, `
		app/0_0/rocksdb/kv/x
		app/0_1/.checkpoint = 0\n0\n
		app/0_2/.checkpoint = hello
		app/0_3/.checkpoint -> nothing
		app/0_4/.checkpoint = 0\n0\n
		app/0_4/x
		app/0_5/.checkpoint = 0\n0\n
		app/0_5/x
		app/0_6/.checkpoint_kv = 0\n0\n
		app/0_7/.checkpoint = 0\n0\n
	`)
	fs := volumetest.New(t, volume.OS())
	fs.Fail(volumetest.Entry, filepath.Join(root, "app/0_4/x"), syscall.EIO)
	fs.Fail(volumetest.Entry, filepath.Join(root, "app/0_5/.checkpoint"), syscall.EIO)
	fs.Fail(volumetest.Open, filepath.Join(root, "app/0_7/.checkpoint"), syscall.EACCES)
	got := map[string]string{}
	for _, k := range Scan(volume.New(fs), root, nil).Applications[0].Tasks {
		got[k.ID] = "unknown"
		if p := k.CheckpointPresent; p != nil {
			got[k.ID] = map[bool]string{true: "yes", false: "no"}[*p]
		}
	}
	want := map[string]string{
		"0_0": "no", "0_1": "yes", "0_2": "yes", "0_3": "no", "0_4": "yes", "0_5": "unknown", "0_6": "no", "0_7": "yes",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("present (-want +got):\n%s", diff)
	}
}
