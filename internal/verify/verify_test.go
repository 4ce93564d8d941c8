package verify_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/rocksfile/record"
	"streams-sidecar/internal/rocksfile/rockstest"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/verify"
	"streams-sidecar/internal/volume"
	"streams-sidecar/internal/volume/volumetest"
	"streams-sidecar/test/fixture"
	"streams-sidecar/test/holder"
)

func TestMain(m *testing.M) { holder.Main(m) }

// said is everything that a verification says, one line for each finding and
// each verdict that is not ok.
func said(v *verify.Verification) (out []string) {
	add := func(where string, j verify.Judged) {
		if j.Verdict != verify.OK {
			out = append(out, where+" "+string(j.Verdict))
		}
		for _, f := range j.Findings {
			out = append(out, fmt.Sprintf("%s %s %s", where, f.Severity, f.Code))
		}
	}
	for _, d := range v.Dirs {
		for _, a := range d.Applications {
			add("app", v.Judgement.Application(a))
			for _, t := range a.Tasks {
				add(t.Layout.ID, v.Judgement.Task(t))
				for _, s := range t.Stores {
					add(t.Layout.ID+"/"+s.Name, v.Judgement.Store(s))
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

func run(t *testing.T, fs volume.FS, dir string, q verify.Question, depth verify.Depth) *verify.Verification {
	t.Helper()
	return verify.Run(context.Background(), []*volume.Volume{volume.New(fs)}, []string{dir}, q, verify.Plan{Depth: depth}, nil)
}

func expect(t *testing.T, v *verify.Verification, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := said(v); !slices.Equal(got, want) {
		t.Errorf("said\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) { must(t, os.WriteFile(path, []byte(text), 0o644)) }

// checkpoint writes one with the times that a close of the task's stores would
// have left: as old as the MANIFESTs.
func checkpoint(t *testing.T, task, text string) {
	t.Helper()
	path := filepath.Join(task, ".checkpoint")
	before, err := os.Stat(path)
	write(t, path, text)
	if err == nil {
		must(t, os.Chtimes(path, before.ModTime(), before.ModTime()))
	}
}

// TestClaims: what a .checkpoint says is held against what there is, and against
// nothing that it does not speak of.
func TestClaims(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, version, fixture string
		change                 func(t *testing.T, app string)
		q                      verify.Question
		want                   []string
	}{
		{"store gone", "3.9.1", "corrupt-base-alos", func(t *testing.T, app string) {
			must(t, os.RemoveAll(filepath.Join(app, "0_0/rocksdb/kv")))
		}, verify.Question{}, []string{"0_0 damage store-gone", "0_0 damaged", "app damaged"}},
		{"store gone, its offset unknown", "3.9.1", "corrupt-base-alos", func(t *testing.T, app string) {
			must(t, os.RemoveAll(filepath.Join(app, "0_0/rocksdb/kv")))
			checkpoint(t, filepath.Join(app, "0_0"), "0\n2\ncalos391-kv-changelog 0 -4\ncalos391-x00-changelog 0 2999\n")
		}, verify.Question{}, []string{"0_0 info checkpoint-offset-unknown"}},
		{"store gone, its line too", "3.9.1", "corrupt-base-alos", func(t *testing.T, app string) {
			must(t, os.RemoveAll(filepath.Join(app, "0_0/rocksdb/kv")))
			checkpoint(t, filepath.Join(app, "0_0"), "0\n1\ncalos391-x00-changelog 0 2999\n")
		}, verify.Question{}, nil},
		{"topics that are no changelog of this application", "3.9.1", "corrupt-base-alos", func(t *testing.T, app string) {
			// One of them may be what kv reads, and nobody knows where the other one's store is.
			checkpoint(t, filepath.Join(app, "0_0"), "0\n3\ncalos391-x00-changelog 0 2999\norders 0 7\nother-kv-changelog 0 7\n")
		}, verify.Question{}, nil},
		{"task that cannot be listed in full", "3.9.1", "corrupt-base-alos", func(t *testing.T, app string) {
			must(t, os.Rename(filepath.Join(app, "0_0/rocksdb/kv"), filepath.Join(app, "0_0/kv")))
			must(t, os.Symlink("../nowhere", filepath.Join(app, "0_0/rocksdb/kv")))
			must(t, os.RemoveAll(filepath.Join(app, "0_0/kv")))
		}, verify.Question{}, []string{"0_0 warning symlink-broken"}},
		{"store emptied", "3.9.1", "corrupt-base-eos", func(t *testing.T, app string) {
			must(t, os.RemoveAll(filepath.Join(app, "0_0/rocksdb/kv")))
			must(t, os.Mkdir(filepath.Join(app, "0_0/rocksdb/kv"), 0o755))
			write(t, filepath.Join(app, "0_0/rocksdb/kv/LOCK"), "")
		}, verify.Question{}, []string{"0_0 damaged", "0_0/kv damage store-empty", "0_0/kv damaged", "app damaged"}},
		{"store made anew", "4.2.2", "corrupt-base-alos", func(t *testing.T, app string) {
			anew(t, filepath.Join(app, "0_0/rocksdb/kv"), "default", "keyValueWithTimestamp")
		}, verify.Question{}, []string{"0_0 damaged", "0_0/kv damage checkpoint-ahead-of-data", "0_0/kv damaged", "app damaged"}},
		{"store of 4.4 made anew beside a .checkpoint from before", "4.4.0", "corrupt-base-alos", func(t *testing.T, app string) {
			anew(t, filepath.Join(app, "0_0/rocksdb/kv"), "default", "keyValueWithTimestamp", "offsets")
			write(t, filepath.Join(app, "0_0/.checkpoint"), "0\n1\ncalos440-kv-changelog 0 2999\n")
		}, verify.Question{}, []string{"0_0 damaged", "0_0/kv damage checkpoint-ahead-of-data", "0_0/kv damaged", "0_0/kv warning legacy-checkpoint",
			"0_0/kv warning unclean-end", "app damaged"}},
		{"store of 4.4 made anew", "4.4.0", "corrupt-base-alos", func(t *testing.T, app string) {
			anew(t, filepath.Join(app, "0_0/rocksdb/kv"), "default", "keyValueWithTimestamp", "offsets")
		}, verify.Question{}, []string{"0_0 unclean", "0_0/kv unclean", "0_0/kv warning unclean-end", "app unclean"}},
		{"window store without a segment", "3.9.1", "closed-clean", func(t *testing.T, app string) {
			old, err := filepath.Glob(filepath.Join(app, "1_0/win/*"))
			must(t, err)
			for _, o := range old {
				must(t, os.RemoveAll(o))
			}
		}, verify.Question{}, []string{"1_0/win empty"}},
		{"no .checkpoint", "3.9.1", "closed-eos", func(t *testing.T, app string) {
			must(t, os.Remove(filepath.Join(app, "1_1/.checkpoint")))
		}, verify.Question{}, []string{"1_1 warning checkpoint-missing"}},
		{"no .checkpoint of the global stores", "3.9.1", "closed-eos", func(t *testing.T, app string) {
			_ = os.Remove(filepath.Join(app, "global/.checkpoint"))
		}, verify.Question{}, nil},
		{"no .checkpoint, from 4.3 on", "4.4.0", "closed-eos", func(*testing.T, string) {}, verify.Question{}, nil},
		{"left behind", "3.9.1", "closed-eos", func(t *testing.T, app string) { leaveOpen(t, filepath.Join(app, "1_0/rocksdb/kv/MANIFEST-000005")) },
			verify.Question{Guarantee: verify.ExactlyOnce}, []string{"1_0 unclean", "1_0 warning checkpoint-left-behind", "1_0/kv unclean", "1_0/kv warning unclean-end", "app unclean"}},
		{"left open", "3.9.1", "closed-clean", func(t *testing.T, app string) { leaveOpen(t, filepath.Join(app, "1_0/rocksdb/kv/MANIFEST-000005")) },
			verify.Question{}, []string{"1_0 unclean", "1_0/kv unclean", "1_0/kv warning unclean-end", "app unclean"}},
		{"left open, at-least-once", "4.2.2", "closed-clean", func(t *testing.T, app string) { leaveOpen(t, filepath.Join(app, "1_0/rocksdb/kv/MANIFEST-000005")) },
			verify.Question{Guarantee: verify.AtLeastOnce}, []string{"1_0 unclean", "1_0/kv info unclean-end", "1_0/kv unclean", "app unclean"}},
		{"status open", "4.4.0", "killed9-eos-uncommitted-flushed", func(*testing.T, string) {}, verify.Question{Guarantee: verify.AtLeastOnce},
			[]string{"0_0 unclean", "0_0/kv info offsets-status-open", "0_0/kv unclean", "0_0/x00 info offsets-status-open", "0_0/x00 unclean", "app unclean"}},
		{"global store gone", "3.9.1", "closed-clean", func(t *testing.T, app string) {
			write(t, filepath.Join(app, "global/.checkpoint"), "0\n1\nglob 0 99\n")
			must(t, os.RemoveAll(filepath.Join(app, "global/rocksdb/gtab")))
		}, verify.Question{}, []string{"app damaged", "global damage store-gone", "global damaged"}},
		{"global store emptied", "2.8.2", "closed-clean", func(t *testing.T, app string) {
			write(t, filepath.Join(app, "global/.checkpoint"), "0\n1\nglob 0 99\n")
			must(t, os.RemoveAll(filepath.Join(app, "global/rocksdb/gtab")))
			must(t, os.Mkdir(filepath.Join(app, "global/rocksdb/gtab"), 0o755))
		}, verify.Question{}, []string{"app damaged", "global damaged", "global/gtab damage store-empty", "global/gtab damaged"}},
		{"global store that is there", "3.9.1", "closed-clean", func(t *testing.T, app string) {
			write(t, filepath.Join(app, "global/.checkpoint"), "0\n1\nglob 0 99\n")
		}, verify.Question{}, nil},
		{"store of a source topic made anew", "3.9.1", "corrupt-base-alos", func(t *testing.T, app string) {
			anew(t, filepath.Join(app, "0_0/rocksdb/kv"), "default", "keyValueWithTimestamp")
			checkpoint(t, filepath.Join(app, "0_0"), "0\n2\norders 0 2999\ncalos391-x00-changelog 0 2999\n")
		}, verify.Question{}, []string{"0_0 damaged", "0_0/kv damage checkpoint-ahead-of-data", "0_0/kv damaged", "app damaged"}},
		{"store of the application's own kind", "3.9.1", "corrupt-base-alos", func(t *testing.T, app string) {
			must(t, os.Mkdir(filepath.Join(app, "0_0/lucene"), 0o755))
			write(t, filepath.Join(app, "0_0/lucene/segments_1"), "x")
			must(t, os.Mkdir(filepath.Join(app, "0_0/rocksdb/other"), 0o755))
			write(t, filepath.Join(app, "0_0/rocksdb/other/data.bin"), "x")
			checkpoint(t, filepath.Join(app, "0_0"), "0\n4\ncalos391-kv-changelog 0 2999\ncalos391-x00-changelog 0 2999\ncalos391-lucene-changelog 0 7\ncalos391-other-changelog 0 7\n")
		}, verify.Question{}, []string{"0_0 info store-not-rocksdb", "0_0/other empty", "0_0/other info store-not-rocksdb"}},
		{"store of the application's own kind, from 4.3 on", "4.4.0", "corrupt-base-alos", func(t *testing.T, app string) {
			must(t, os.Mkdir(filepath.Join(app, "0_0/lucene"), 0o755))
			write(t, filepath.Join(app, "0_0/lucene/segments_1"), "x")
			write(t, filepath.Join(app, "0_0/.checkpoint_lucene"), "0\n1\ncalos440-lucene-changelog 0 7\n")
		}, verify.Question{}, []string{"0_0 info store-not-rocksdb"}},
		{"one wal_dir for two stores", "2.8.2", "closed-article-statedir", func(*testing.T, string) {}, verify.Question{},
			[]string{"0_0/x00 info options-unparsed", "0_0/x00 warning wal-dir-shared", "0_0/x01 warning wal-dir-shared", "0_1 empty"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := fixture.Unpack(t, c.version, c.fixture)
			app, err := filepath.Glob(filepath.Join(dir, "*", "*_*"))
			must(t, err)
			c.change(t, filepath.Dir(app[0]))
			expect(t, run(t, volume.OS(), dir, c.q, verify.Quick), c.want...)
		})
	}
}

// anew makes a database as RocksDB makes a new one, in the place of another.
func anew(t *testing.T, dir string, families ...string) {
	t.Helper()
	must(t, os.RemoveAll(dir))
	must(t, os.Mkdir(dir, 0o755))
	edits := []rockstest.Edit{rockstest.Edit{}.Comparator("leveldb.BytewiseComparator").LogNumber(4).NextFile(10).LastSequence(0)}
	for i, f := range families[1:] {
		edits = append(edits, rockstest.Edit{}.AddFamily(uint32(i+1), f).Comparator("leveldb.BytewiseComparator").LogNumber(4))
	}
	write(t, filepath.Join(dir, "MANIFEST-000005"), string(rockstest.Manifest(edits...)))
	write(t, filepath.Join(dir, "CURRENT"), "MANIFEST-000005\n")
	write(t, filepath.Join(dir, "IDENTITY"), "id")
	write(t, filepath.Join(dir, "OPTIONS-000007"), "[Version]\n  rocksdb_version=7.9.2\n")
}

// leaveOpen preallocates a MANIFEST as RocksDB does while it has it open.
func leaveOpen(t *testing.T, path string) {
	t.Helper()
	before, err := os.Stat(path)
	must(t, err)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer func() { _ = f.Close() }()
	must(t, unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, 4<<20))
	must(t, os.Chtimes(path, before.ModTime(), before.ModTime()))
}

// TestNothingIsSaidOfWhatRuns: a task without .checkpoint, a store that is left
// open and one that was never closed are as they must be while the application runs.
func TestNothingIsSaidOfWhatRuns(t *testing.T) {
	t.Parallel()
	for version, name := range map[string]string{"3.9.1": "live-quiet", "4.4.0": "live-quiet", "4.2.2": "live-eos"} {
		dir := fixture.Unpack(t, version, name)
		locks, err := filepath.Glob(filepath.Join(dir, "*", ".lock"))
		must(t, err)
		for _, p := range []string{"*/*_*/rocksdb/*/LOCK", "*/*_*/*/*/LOCK", "*/global/rocksdb/*/LOCK"} {
			more, err := filepath.Glob(filepath.Join(dir, p))
			must(t, err)
			locks = append(locks, more...)
		}
		holder.Hold(t, locks...)
		for _, line := range said(run(t, volume.OS(), dir, verify.Question{Guarantee: verify.ExactlyOnce}, verify.Deep)) {
			if !strings.HasSuffix(line, "info checkpoint-offset-unknown") && !strings.HasSuffix(line, " empty") {
				t.Errorf("%s/%s: %s", version, name, line)
			}
		}
	}
}

// TestVersions: the version that is to start is told from the one that wrote.
func TestVersions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		written, name, starts string
		refused               bool
	}{
		{"4.4.0", "closed-clean", "4.4.0", false}, {"4.4.0", "closed-clean", "4.3.0", false},
		{"4.4.0", "closed-clean", "4.2.2", true}, {"4.4.0", "closed-clean", "3.9.1", true},
		{"4.2.2", "closed-clean", "4.0.0", false}, {"4.2.2", "closed-clean", "3.9.1", true}, {"4.2.2", "closed-clean", "4.4.0", false},
		{"3.9.1", "closed-clean", "3.0.0", false}, {"3.9.1", "closed-clean", "2.8.2", true},
		{"2.8.2", "closed-clean", "2.8.2", false}, {"2.8.2", "closed-clean", "4.4.0", false},
	} {
		v, err := verify.ParseVersion(c.starts)
		must(t, err)
		r := run(t, volume.OS(), fixture.Unpack(t, c.written, c.name), verify.Question{Streams: &v}, verify.Quick)
		stores, refused := 0, 0
		r.Dirs[0].Stores(func(_ *store.Application, _ *store.Task, s *store.Store) {
			stores++
			j := r.Judgement.Store(s)
			if j.Verdict == verify.Incompatible && len(j.Findings) == 1 && j.Findings[0].Code == finding.VersionCannotRead {
				refused++
			} else if j.Verdict != verify.OK || len(j.Findings) > 0 {
				t.Errorf("%s by %s: %+v", c.written, c.starts, j)
			}
		})
		if stores < 7 || c.refused && refused != stores || !c.refused && refused > 0 {
			t.Errorf("%s by %s: %d of %d stores refused", c.written, c.starts, refused, stores)
		}
	}
	for text, want := range map[string]string{"3.9": "3.9.0", "4.1.0-rc1": "4.1.0", "5.0.0": "5.0.0"} {
		if v, err := verify.ParseVersion(text); err != nil || v.String() != want {
			t.Errorf("%s: %v, %v", text, v, err)
		}
	}
	for _, text := range []string{"", "3", "3.x", "3.9.1.1", "2.7.9", "-1.2.3", "3.9.99999999"} {
		if v, err := verify.ParseVersion(text); err == nil {
			t.Errorf("%q: %v", text, v)
		}
	}
}

// TestConclusionsWait: damage that is concluded counts when every picture of a while
// allows it, and only if everything was looked at anew; of an application that
// runs the while is longer, for it may be deleting the task.
func TestConclusionsWait(t *testing.T) {
	t.Parallel()
	for _, runs := range []bool{false, true} {
		dir := fixture.Unpack(t, "3.9.1", "corrupt-alos-store-dir-removed")
		if runs {
			holder.Hold(t, filepath.Join(dir, "calos391", ".lock"), filepath.Join(dir, "calos391/0_0/rocksdb/x00/LOCK"))
		}
		v := volume.New(volume.OS())
		look := func() []*store.StateDir { return []*store.StateDir{store.Scan(v, dir, nil)} }
		verdict := func(j *verify.Judgement, dirs []*store.StateDir) verify.Verdict {
			return j.Application(dirs[0].Applications[0]).Verdict
		}
		least, most := 100*time.Millisecond, 200*time.Millisecond
		if runs {
			least, most = 4*time.Second, 5*time.Second
		}
		one := look()
		first := verify.Judge(one, verify.Question{}, nil, nil, true)
		after, open := first.Unconfirmed()
		if verdict(first, one) != verify.OK || !open || after < least || after > most {
			t.Errorf("one look: %s, unconfirmed %v for %v", verdict(first, one), open, after)
		}
		two := look()
		if j := verify.Judge(two, verify.Question{}, nil, first, true); verdict(j, two) != verify.OK {
			t.Errorf("two looks at once: %s", verdict(j, two))
		}
		time.Sleep(after)
		if j := verify.Judge(one, verify.Question{}, nil, first, false); verdict(j, one) != verify.OK {
			t.Errorf("the same look again: %s", verdict(j, one))
		}
		two = look()
		second := verify.Judge(two, verify.Question{}, nil, first, true)
		if _, open := second.Unconfirmed(); verdict(second, two) != verify.Damaged || open {
			t.Errorf("two looks: %s, unconfirmed %v", verdict(second, two), open)
		}
		if j := verify.Judge(two, verify.Question{}, nil, second, false); verdict(j, two) != verify.Damaged {
			t.Errorf("what counts goes on to count: %s", verdict(j, two))
		}
		// It heals and comes again: it has to be confirmed again.
		task := filepath.Join(dir, "calos391", "0_0")
		whole, err := os.ReadFile(filepath.Join(task, ".checkpoint"))
		must(t, err)
		checkpoint(t, task, "0\n1\ncalos391-x00-changelog 0 2999\n")
		healed := verify.Judge(look(), verify.Question{}, nil, second, true)
		checkpoint(t, task, string(whole))
		three := look()
		if j := verify.Judge(three, verify.Question{}, nil, healed, true); verdict(j, three) != verify.OK {
			t.Errorf("after it has healed: %s", verdict(j, three))
		}
	}
}

const table = "alos391/1_0/rocksdb/kv/000010.sst"

// TestTroubleOfTheVolume: a volume that fails, a permission and a file that
// vanishes are not damage.
func TestTroubleOfTheVolume(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rule func(fs *volumetest.FS, path string)
		want []string
	}{
		"EIO":    {func(fs *volumetest.FS, p string) { fs.Fail(volumetest.Read, p, unix.EIO) }, []string{"1_0 unreadable", "1_0/kv unreadable", "1_0/kv unreadable io-error", "app unreadable"}},
		"denied": {func(fs *volumetest.FS, p string) { fs.Fail(volumetest.Open, p, unix.EACCES) }, []string{"1_0 unreadable", "1_0/kv unreadable", "1_0/kv unreadable permission-denied", "app unreadable"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := fixture.Unpack(t, "3.9.1", "closed-clean")
			fs := volumetest.New(t, volume.OS())
			c.rule(fs, filepath.Join(dir, table))
			for _, depth := range []verify.Depth{verify.Quick, verify.Deep} {
				expect(t, run(t, fs, dir, verify.Question{}, depth), c.want...)
			}
		})
	}
}

// flaky is a file system of which some reads of one file are wrong.
type flaky struct {
	volume.FS
	path  string
	opens int // so many are left that give a wrong byte or no file
	gone  bool
}

func (f *flaky) Open(path string) (volume.File, error) {
	file, err := f.FS.Open(path)
	if err != nil || path != f.path || f.opens == 0 {
		return file, err
	}
	f.opens--
	if f.gone {
		_ = file.Close()
		return nil, &volume.Error{Op: "open", Path: path, Class: volume.Gone, Err: unix.ENOENT}
	}
	return &flipped{file}, nil
}

type flipped struct{ volume.File }

func (f *flipped) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	if off == 0 && n > 500 {
		p[500] ^= 1
	}
	return n, err
}

func (f *flipped) ReadPast(p []byte, off int64) (int, error) { return f.ReadAt(p, off) }

// TestSecondLooks: what is wrong once is no finding, and is counted; what is
// wrong each time is one.
func TestSecondLooks(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	check := func(fs *flaky) *verify.Result {
		fs.FS, fs.path = volume.OS(), filepath.Join(dir, table)
		v := volume.New(fs)
		d := store.Scan(volume.New(volume.OS()), dir, nil)
		plan := verify.Plan{Depth: verify.Deep}
		for _, s := range plan.Subjects([]*volume.Volume{v}, []*store.StateDir{d}) {
			if s.Database.Path == filepath.Dir(fs.path) {
				return verify.Check(context.Background(), []verify.Subject{s}, plan)[0]
			}
		}
		t.Fatal("no such database")
		return nil
	}
	if r := check(&flaky{}); r.Retries != 0 || len(r.Findings) != 0 || r.Tables != 1 || r.Bytes == 0 || !r.Complete {
		t.Errorf("healthy: %+v", r)
	}
	if r := check(&flaky{opens: 1}); r.Retries != 1 || len(r.Findings) != 0 {
		t.Errorf("one wrong read: %+v", r)
	}
	if r := check(&flaky{opens: 100}); r.Retries == 0 || len(r.Findings) != 1 || r.Findings[0].Code != finding.SSTBlockChecksum {
		t.Errorf("wrong each time: %+v", r)
	}
	if r := check(&flaky{opens: 1, gone: true}); r.Passed != 1 || r.Tables != 0 || r.Retries != 1 || len(r.Findings) != 0 {
		t.Errorf("a table that vanished for a moment: %+v", r)
	}
}

// TestEnded: a verification that is ended says so and finds nothing.
func TestEnded(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	dir := fixture.Unpack(t, "3.9.1", "corrupt-alos-sst-data-flip")
	v := verify.Run(ctx, []*volume.Volume{volume.New(volume.OS())}, []string{dir}, verify.Question{}, verify.Plan{Depth: verify.Deep}, nil)
	if v.Complete || v.Tables > 0 {
		t.Errorf("%+v", v.Summary)
	}
	expect(t, v)
}

// records are the offsets at which the records of a MANIFEST end.
func records(t *testing.T, manifest []byte) (ends []int64) {
	t.Helper()
	r := record.NewReader(bytes.NewReader(manifest), 0, int64(len(manifest)))
	for {
		if _, err := r.Next(); err != nil {
			return ends
		}
		ends = append(ends, r.Offset())
	}
}

// TestStrays: a table that the MANIFEST does not name is what an interrupted flush
// or compaction has left, or what the MANIFEST has lost.
func TestStrays(t *testing.T) {
	t.Parallel()
	damaged := func(code string) []string {
		return []string{"0_0 damaged", "0_0/kv damage " + code, "0_0/kv damaged", "app damaged"}
	}
	lost := damaged("sst-unreferenced")
	orphan := []string{"0_0/kv info sst-orphan"}
	for name, c := range map[string]struct {
		version string
		change  func(t *testing.T, kv string)
		want    []string
	}{
		"a copy of a live one": {"3.9.1", func(t *testing.T, kv string) { copyFile(t, kv, "000010.sst", "000099.sst") }, orphan},
		"without an end": {"3.9.1", func(t *testing.T, kv string) {
			copyFile(t, kv, "000010.sst", "000099.sst")
			must(t, os.Truncate(filepath.Join(kv, "000099.sst"), 70000))
		}, orphan},
		"empty": {"4.4.0", func(t *testing.T, kv string) { write(t, filepath.Join(kv, "000099.sst"), "") }, orphan},
		// The .checkpoint was written after it: its flush had returned.
		"lost, older than the .checkpoint": {"3.9.1", func(t *testing.T, kv string) { loseFlush(t, kv, false) }, append(slices.Clone(lost), "0_0/kv damage checkpoint-ahead-of-data")},
		"lost, left open, older than the .checkpoint": {"3.9.1", func(t *testing.T, kv string) { loseFlush(t, kv, true) },
			append(slices.Clone(lost), "0_0/kv damage checkpoint-ahead-of-data", "0_0/kv warning unclean-end")},
		"flushed and killed": {"3.9.1", func(t *testing.T, kv string) {
			loseFlush(t, kv, true)
			checkpoint(t, filepath.Join(kv, "../.."), "0\n2\ncalos391-kv-changelog 0 -4\ncalos391-x00-changelog 0 -4\n")
		}, []string{"0_0 unclean", "0_0/kv unclean", "0_0/kv info sst-orphan", "0_0/kv warning unclean-end", "0_0/kv info checkpoint-offset-unknown",
			"0_0/x00 info checkpoint-offset-unknown", "app unclean"}},
		"lost, from 4.3 on": {"4.4.0", func(t *testing.T, kv string) { loseFlush(t, kv, false) }, append(slices.Clone(lost), "0_0/kv damage sst-unreferenced", "0_0/kv warning unclean-end")},
		"flushed and killed, from 4.3 on": {"4.4.0", func(t *testing.T, kv string) { loseFlush(t, kv, true) },
			[]string{"0_0 unclean", "0_0/kv unclean", "0_0/kv info sst-orphan", "0_0/kv info sst-orphan", "0_0/kv warning unclean-end", "app unclean"}},
		"replaced by a compaction": {"3.9.1", func(t *testing.T, kv string) {
			path := filepath.Join(kv, "MANIFEST-000005")
			data, err := os.ReadFile(path)
			must(t, err)
			before, err := os.Stat(path)
			must(t, err)
			copyFile(t, kv, "000010.sst", "000012.sst")
			info, err := os.Stat(filepath.Join(kv, "000012.sst"))
			must(t, err)
			edit := rockstest.Edit{}.Family(1).NextFile(13).LastSequence(3000).Delete(0, 10).
				AddOld(100, rockstest.File{Number: 12, Size: uint64(info.Size()), SmallestSeq: 2001, LargestSeq: 3000})
			must(t, os.WriteFile(path, rockstest.AppendRecord(data, edit), 0o644))
			must(t, os.Chtimes(path, before.ModTime(), before.ModTime()))
		}, damaged("sst-foreign")}, // and the table that it replaced is an orphan, see below
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := fixture.Unpack(t, c.version, "corrupt-base-alos")
			c.change(t, filepath.Join(dir, "calos"+strings.ReplaceAll(c.version, ".", ""), "0_0/rocksdb/kv"))
			want := slices.Clone(c.want)
			if name == "replaced by a compaction" {
				want = append(want, "0_0/kv info sst-orphan")
			}
			expect(t, run(t, volume.OS(), dir, verify.Question{}, verify.Quick), want...)
		})
	}
}

func copyFile(t *testing.T, dir, from, to string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, from))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, to), data, 0o644))
}

// loseFlush cuts the MANIFEST between two records, before those that add tables,
// and leaves its times; open leaves it preallocated.
func loseFlush(t *testing.T, kv string, open bool) {
	t.Helper()
	path := filepath.Join(kv, "MANIFEST-000005")
	before, err := os.Stat(path)
	must(t, err)
	data, err := os.ReadFile(path)
	must(t, err)
	for _, end := range slices.Backward(records(t, data)) {
		must(t, os.Truncate(path, end))
		if s := store.Alone(volume.New(volume.OS()), kv); s.Databases[0].Tables() == 0 {
			break
		}
	}
	must(t, os.Chtimes(path, before.ModTime(), before.ModTime()))
	if open {
		leaveOpen(t, path)
	}
}

// TestStoppedVolume: a verification of a volume that hangs ends.
func TestStoppedVolume(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "closed-clean")
	fs := volumetest.New(t, volume.OS())
	fs.Stall(volumetest.Read, filepath.Join(dir, table))
	began := time.Now()
	v := verify.Run(context.Background(), []*volume.Volume{volume.New(fs, volume.Deadline(100*time.Millisecond))}, []string{dir},
		verify.Question{}, verify.Plan{Depth: verify.Deep}, nil)
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
	for _, line := range said(v) {
		if strings.Contains(line, "damage") {
			t.Error(line)
		}
	}
	if !slices.Contains(said(v), "1_0/kv unreadable volume-stuck") {
		t.Errorf("%q", said(v))
	}
}

// TestFindingsAreBounded: a MANIFEST that names any number of tables that are not
// there, and a .checkpoint of any number of stores, give a hundred findings and a
// word about the others.
func TestFindingsAreBounded(t *testing.T) {
	t.Parallel()
	dir := fixture.Unpack(t, "3.9.1", "corrupt-base-alos")
	kv := filepath.Join(dir, "calos391/0_0/rocksdb/kv")
	path := filepath.Join(kv, "MANIFEST-000005")
	data, err := os.ReadFile(path)
	must(t, err)
	const many = 20_000
	edit := rockstest.Edit{}.Family(1).NextFile(many + 100).LastSequence(3000)
	for n := range uint64(many) {
		edit = edit.AddOld(100, rockstest.File{Number: 100 + n, Size: 1000, SmallestSeq: 1, LargestSeq: 2})
	}
	must(t, os.WriteFile(path, rockstest.AppendRecord(data, edit), 0o644))
	var lines strings.Builder
	fmt.Fprintf(&lines, "0\n%d\n", many)
	for n := range many {
		fmt.Fprintf(&lines, "calos391-gone%d-changelog 0 5\n", n)
	}
	checkpoint(t, filepath.Join(dir, "calos391/0_0"), lines.String())
	v := run(t, volume.OS(), dir, verify.Question{}, verify.Deep)
	app := v.Dirs[0].Applications[0]
	for where, fs := range map[string][]finding.Finding{"task": v.Judgement.Task(app.Tasks[0]).Findings, "store": v.Judgement.Store(app.Tasks[0].Stores[0]).Findings} {
		if n := len(fs); n < 90 || n > finding.Most+1 {
			t.Errorf("%s: %d findings", where, n)
		}
		if last := fs[len(fs)-1]; last.Severity != finding.Damage || !strings.Contains(last.Found, "more findings") {
			t.Errorf("%s: the last one is %+v", where, last)
		}
	}
	if j := v.Judgement.Store(app.Tasks[0].Stores[1]); j.Verdict != verify.OK || len(j.Findings) > 0 {
		t.Errorf("the neighbour: %+v", j)
	}
}
