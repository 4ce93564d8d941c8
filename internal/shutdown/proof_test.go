package shutdown_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"streams-sidecar/internal/rocksfile/manifest"
	"streams-sidecar/internal/rocksfile/rockstest"
	"streams-sidecar/internal/shutdown"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
	"streams-sidecar/internal/volume/volumetest"
	"streams-sidecar/test/fixture"
	"streams-sidecar/test/holder"
)

const (
	checkpointMissing      = shutdown.CheckpointMissing
	checkpointNotReplaced  = shutdown.CheckpointNotReplaced
	checkpointUnreadable   = shutdown.CheckpointUnreadable
	flushedAfterCheckpoint = shutdown.FlushedAfterCheckpoint
	notClosed              = shutdown.NotClosed
	offsetsNotWritten      = shutdown.OffsetsNotWritten
	statusOpen             = shutdown.StatusOpen
	offsetBehindData       = shutdown.OffsetBehindData
	manifestUnparseable    = shutdown.ManifestUnparseable
	taskGone               = shutdown.TaskGone
	storeGone              = shutdown.StoreGone
	unreadable             = shutdown.Unreadable
	notProvableHere        = shutdown.NotProvableHere
	lockHeld               = shutdown.LockHeld
)

// verdict is how many stores have which reason; "" are the clean ones.
type verdict map[shutdown.Reason]int

// ending is one way in which an application ends.
type ending struct {
	name    string
	of      fixture.Name
	flat    bool                // the file system does not preallocate
	noCall  bool                // no preStop call precedes it
	arrange func(*client)       // at rest, before the start; nothing is held yet
	once    bool                // 4.3 and later: it was opened at the start only
	running func(*client)       // before the call; the picture is older
	end     func(*client, gate) // until the last lock is free; nil: it is killed
	want    verdict
}

type gate = *shutdown.Gate

func base(version string) fixture.Name {
	return fixture.Name{Version: version, Case: "corrupt-base-alos"}
}
func full(version string) fixture.Name { return fixture.Name{Version: version, Case: "closed-clean"} }
func with(version, name string) fixture.Name {
	return fixture.Name{Version: version, Case: name}
}

func clean(c *client, _ gate) { c.close() }

// kv and x00 are the databases of corrupt-base-alos.
func (c *client) kv() string  { return c.path("0_0", "rocksdb", "kv") }
func (c *client) x00() string { return c.path("0_0", "rocksdb", "x00") }

// withoutCheckpoint is a task of unlogged stores only, or one under
// exactly-once that runs (2.8, 4.2).
func withoutCheckpoint(c *client) { must(c.t, os.Remove(c.path("0_0", ".checkpoint"))) }

// at sets the times of a database's tables and of its MANIFEST, in seconds from
// an hour ago.
func (c *client) at(db string, tables, manifest int) {
	c.t.Helper()
	zero := time.Now().Add(-time.Hour)
	for _, p := range c.tables(db) {
		touch(c.t, p, zero.Add(time.Duration(tables)*time.Second))
	}
	touch(c.t, manifestOf(c.t, db), zero.Add(time.Duration(manifest)*time.Second))
}

// spread sets the times of a close: in seconds, when the .checkpoint of the one
// task was written, when the tables of the other one and its .checkpoint, and
// when the databases were closed.
func (c *client) spread(first, tables, second, closed int) {
	c.t.Helper()
	zero := time.Now().Add(-time.Minute)
	at := func(seconds int) time.Time { return zero.Add(time.Duration(seconds) * time.Second) }
	for _, lock := range c.dbs {
		db := filepath.Dir(lock)
		for _, p := range c.tables(db) {
			if strings.Contains(db, "/1_1/") {
				touch(c.t, p, at(tables))
			}
		}
		touch(c.t, manifestOf(c.t, db), at(closed))
	}
	touch(c.t, c.path("1_0", ".checkpoint"), at(first))
	touch(c.t, c.path("1_1", ".checkpoint"), at(second))
}

// edit appends an edit to the MANIFEST of a database.
func (c *client) edit(db string, make func(*store.Database) rockstest.Edit) {
	c.t.Helper()
	path := manifestOf(c.t, db)
	var of *store.Database
	store.Scan(volume.New(volume.OS()), c.dir, nil).Stores(func(_ *store.Application, _ *store.Task, s *store.Store) {
		for _, d := range s.Databases {
			if d.Path == db {
				of = d
			}
		}
	})
	log, err := os.ReadFile(path)
	must(c.t, err)
	tail := rockstest.AppendRecord(slices.Clone(log), make(of))[len(log):]
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	must(c.t, err)
	_, err = f.Write(tail)
	must(c.t, err)
	must(c.t, f.Close())
}

// copyTable gives a table another number.
func (c *client) copyTable(db string, from, to uint64) (size uint64) {
	c.t.Helper()
	data, err := os.ReadFile(filepath.Join(db, fmt.Sprintf("%06d.sst", from)))
	must(c.t, err)
	must(c.t, os.WriteFile(filepath.Join(db, fmt.Sprintf("%06d.sst", to)), data, 0o644))
	return uint64(len(data))
}

// data gives the family with tables that is not offsets, and its newest table.
func data(d *store.Database) (family uint32, level int, number, seq uint64) {
	state, _, _ := d.Manifest()
	for i := range state.Families {
		f := &state.Families[i]
		if f.Name == "offsets" {
			continue
		}
		for _, file := range f.Files {
			if file.Number > number {
				family, level, number, seq = f.ID, file.Level, file.Number, file.LargestSeq
			}
		}
	}
	return
}

// only leaves the locks of one task to the client: the other tasks are left over.
func only(task string) func(*client) {
	return func(c *client) {
		c.dbs = slices.DeleteFunc(c.dbs, func(p string) bool { return !strings.Contains(p, "/"+task+"/") })
	}
}

// eraseOffset deletes the key <topic>-<partition>: the store is not logged.
func eraseOffset(t testing.TB, db string) {
	patchKey(t, db, "-changelog-", func(trailer []byte) { trailer[0] = 0 })
}

// zeroSequence is what a compaction to the last level does.
func zeroSequence(t testing.TB, db string) {
	patchKey(t, db, "-changelog-", func(trailer []byte) { clear(trailer[1:]) })
}

// eraseStatus makes a transactional store.
func eraseStatus(t testing.TB, db string) {
	patchKey(t, db, "status", func(trailer []byte) { trailer[0] = 0 })
}

// patchKey changes the 8 bytes behind a key of the offsets: type and sequence
// number.
func patchKey(t testing.TB, db, key string, change func(trailer []byte)) {
	t.Helper()
	patchOffsets(t, db, func(block []byte) {
		i := strings.Index(string(block), key)
		if i < 0 {
			t.Fatalf("no key %s in %q", key, block)
		}
		for i += len(key); key != "status" && block[i] != 1; i++ { // the partition
		}
		change(block[i : i+8])
	})
}

func everyDB(do func(testing.TB, string)) func(*client) {
	return func(c *client) {
		for _, lock := range c.dbs {
			do(c.t, filepath.Dir(lock))
		}
	}
}

var endings = []ending{
	// Killed in the close, 3.9.1.
	{name: "killed when .checkpoint was written and no store closed", of: base("3.9.1"), want: verdict{notClosed: 2},
		end: func(c *client, _ gate) { c.commit(); c.Kill() }},
	{name: "the same without preallocation", of: base("3.9.1"), flat: true, want: verdict{notProvableHere: 2},
		end: func(c *client, _ gate) { c.commit(); c.Kill() }},
	{name: "killed when .checkpoint was written and one store closed", of: base("3.9.1"), want: verdict{"": 2},
		end: func(c *client, _ gate) { c.commit(); c.shut(c.kv()); c.Kill() }},
	{name: "killed when one store was closed, and .checkpoint was not written", of: base("3.9.1"), want: verdict{checkpointNotReplaced: 2},
		end: func(c *client, _ gate) { c.shut(c.kv()); c.Kill() }},
	{name: "the same without a call", of: base("3.9.1"), noCall: true, want: verdict{notClosed: 2},
		end: func(c *client, _ gate) { c.shut(c.kv()); c.Kill() }},
	{name: "killed in a close that nobody called for, one store closed", of: base("3.9.1"), noCall: true, want: verdict{notClosed: 2},
		end: func(c *client, _ gate) { c.commit(); c.shut(c.kv()); c.Kill() }},

	// The .checkpoint.
	{name: "flushed after .checkpoint", of: base("3.9.1"), want: verdict{flushedAfterCheckpoint: 2},
		end: func(c *client, _ gate) {
			c.commit()
			c.shut()
			for _, p := range c.tables(c.kv()) {
				touch(c.t, p, time.Now().Add(time.Second))
			}
			c.unlock()
		}},
	{name: "an exception: the old .checkpoint, a younger table", of: base("4.2.2"), noCall: true, want: verdict{flushedAfterCheckpoint: 2},
		end: func(c *client, _ gate) { c.at(c.x00(), 400, 401); c.shut(); c.unlock() }},
	{name: "an exception, and nothing was flushed", of: base("4.2.2"), want: verdict{checkpointNotReplaced: 2},
		end: func(c *client, _ gate) { c.shut(); c.unlock() }},
	{name: "the same without a call", of: base("4.2.2"), noCall: true, want: verdict{checkpointNotReplaced: 2},
		end: func(c *client, _ gate) { c.shut(); c.unlock() }},
	{name: "the call came when .checkpoint was written and a store closed", of: base("3.9.1"), want: verdict{"": 2},
		running: func(c *client) { c.commit(); c.shut(c.kv()) },
		end:     func(c *client, _ gate) { c.shut(c.x00()); c.unlock() }},
	{name: "the same, and it was killed then", of: base("3.9.1"), want: verdict{notClosed: 2},
		running: func(c *client) { c.commit(); c.shut(c.kv()) }},
	{name: "the call came when a store was closed by an exception", of: base("3.9.1"), want: verdict{checkpointNotReplaced: 2},
		running: func(c *client) { c.shut(c.kv()) },
		end:     func(c *client, _ gate) { c.shut(c.x00()); c.unlock() }},
	{name: "a slow close that nobody called for", of: full("3.9.1"), noCall: true, want: verdict{"": 9},
		end: func(c *client, _ gate) {
			c.shut()
			c.spread(0, 3, 6, 9)
			c.unlock()
		}},
	{name: "nothing happened between .checkpoint and the close", of: full("3.9.1"), noCall: true, want: verdict{"": 5, checkpointNotReplaced: 4},
		end: func(c *client, _ gate) {
			c.shut()
			c.spread(0, 3, 9, 12)
			c.unlock()
		}},
	{name: "tables, MANIFESTs and .checkpoint of the same moment", of: base("3.9.1"), want: verdict{"": 2},
		end: func(c *client, _ gate) {
			c.close()
			for _, p := range append(c.tables(c.kv()), manifestOf(c.t, c.kv()), manifestOf(c.t, c.x00())) {
				touch(c.t, p, modified(c.t, c.path("0_0", ".checkpoint")))
			}
		}},
	{name: "a MANIFEST that is older than .checkpoint", of: base("3.9.1"), want: verdict{notClosed: 2},
		end: func(c *client, _ gate) {
			c.commit()
			for _, db := range []string{c.kv(), c.x00()} {
				c.trim(db)
				touch(c.t, manifestOf(c.t, db), modified(c.t, c.path("0_0", ".checkpoint")).Add(-time.Millisecond))
			}
			c.Kill()
		}},
	{name: "a compaction that ended after .checkpoint", of: base("3.9.1"), want: verdict{"": 2},
		end: func(c *client, _ gate) {
			c.commit()
			c.edit(c.kv(), func(d *store.Database) rockstest.Edit {
				family, level, n, seq := data(d)
				size := c.copyTable(d.Path, n, 90)
				touch(c.t, filepath.Join(d.Path, "000090.sst"), time.Now().Add(time.Second))
				return rockstest.Edit{}.Family(family).NextFile(91).Delete(level, n).Add(rockstest.File{Level: level, Number: 90, Size: size, LargestSeq: seq})
			})
			c.shut()
			touch(c.t, manifestOf(c.t, c.kv()), time.Now().Add(2*time.Second))
			c.unlock()
		}},
	{name: "a flush that ended after .checkpoint", of: base("3.9.1"), want: verdict{flushedAfterCheckpoint: 2},
		end: func(c *client, _ gate) {
			c.commit()
			c.edit(c.kv(), func(d *store.Database) rockstest.Edit {
				family, _, n, seq := data(d)
				size := c.copyTable(d.Path, n, 90)
				touch(c.t, filepath.Join(d.Path, "000090.sst"), time.Now().Add(time.Second))
				return rockstest.Edit{}.Family(family).LogNumber(4).PrevLog(0).NextFile(91).LastSequence(seq + 1).
					Add(rockstest.File{Number: 90, Size: size, SmallestSeq: seq + 1, LargestSeq: seq + 1})
			})
			c.shut()
			touch(c.t, manifestOf(c.t, c.kv()), time.Now().Add(2*time.Second))
			c.unlock()
		}},
	{name: ".checkpoint gone", of: base("3.9.1"), want: verdict{checkpointMissing: 2},
		end: func(c *client, _ gate) { withoutCheckpoint(c); c.shut(); c.unlock() }},
	{name: ".checkpoint of garbage", of: base("3.9.1"), want: verdict{checkpointUnreadable: 2},
		end: func(c *client, _ gate) {
			replace(c.t, c.path("0_0", ".checkpoint"), []byte("hello\n"))
			c.shut()
			c.unlock()
		}},
	{name: ".checkpoint empty", of: base("2.8.2"), want: verdict{checkpointUnreadable: 2},
		end: func(c *client, _ gate) {
			replace(c.t, c.path("0_0", ".checkpoint"), []byte{})
			c.shut()
			c.unlock()
		}},
	{name: ".checkpoint that cannot be read", of: base("3.9.1"), want: verdict{checkpointUnreadable: 2},
		end: func(c *client, _ gate) {
			c.fake.Fail(volumetest.Open, c.path("0_0", ".checkpoint"), syscall.EIO)
			c.close()
		}},
	{name: ".checkpoint written anew with the old inode", of: base("4.2.2"), want: verdict{"": 2},
		end: func(c *client, _ gate) {
			touch(c.t, c.path("0_0", ".checkpoint"), time.Now())
			c.shut()
			c.unlock()
		}},
	{name: ".checkpoint written anew with the old time", of: base("4.2.2"), want: verdict{"": 2},
		end: func(c *client, _ gate) {
			old := modified(c.t, c.path("0_0", ".checkpoint"))
			c.commit()
			touch(c.t, c.path("0_0", ".checkpoint"), old)
			c.shut()
			c.unlock()
		}},
	{name: "no .checkpoint while it ran, one after the close", of: base("2.8.2"), arrange: withoutCheckpoint, want: verdict{"": 2},
		end: func(c *client, _ gate) {
			replace(c.t, c.path("0_0", ".checkpoint"), []byte("0\n1\ncalos282-kv-changelog 0 2999\n"))
			c.shut()
			c.unlock()
		}},

	// No .checkpoint.
	{name: "unlogged only, closed", of: base("3.9.1"), arrange: withoutCheckpoint, want: verdict{"": 2}, end: clean},
	{name: "unlogged only, closed without a call", of: base("4.2.2"), arrange: withoutCheckpoint, noCall: true, want: verdict{"": 2}, end: clean},
	{name: "unlogged only, or exactly-once, killed", of: base("4.2.2"), arrange: withoutCheckpoint, want: verdict{notClosed: 2}},
	{name: "the same without preallocation", of: base("4.2.2"), arrange: withoutCheckpoint, flat: true, want: verdict{checkpointMissing: 2},
		end: func(c *client, _ gate) { c.at(c.kv(), 10, 10); c.at(c.x00(), 11, 11); c.Kill() }},
	{name: "2.8.2, one after the other flushed and closed", of: base("2.8.2"), arrange: withoutCheckpoint, want: verdict{checkpointMissing: 2},
		end: func(c *client, _ gate) { c.shut(); c.at(c.kv(), 10, 11); c.at(c.x00(), 12, 13); c.unlock() }},
	{name: "2.8.2, first all flushed and then all closed", of: base("2.8.2"), arrange: withoutCheckpoint, want: verdict{"": 2},
		end: func(c *client, _ gate) { c.shut(); c.at(c.kv(), 10, 12); c.at(c.x00(), 11, 13); c.unlock() }},
	{name: "2.8.2, a single store", of: base("2.8.2"), want: verdict{notProvableHere: 1},
		arrange: func(c *client) {
			withoutCheckpoint(c)
			must(c.t, os.RemoveAll(c.x00()))
			c.dbs = slices.DeleteFunc(c.dbs, func(p string) bool { return strings.Contains(p, "x00") })
		}, end: clean},
	{name: "2.8.2, no table yet", of: with("2.8.2", "live-quiet"), noCall: true, want: verdict{notProvableHere: 6, "": 1},
		end: func(c *client, _ gate) {
			for _, lock := range c.dbs {
				c.trim(filepath.Dir(lock))
			}
			c.Kill()
		}},

	// Left-over tasks, global and segmented stores.
	{name: "only one task was open", of: full("3.9.1"), arrange: only("1_0"), want: verdict{"": 4},
		end: func(c *client, _ gate) { c.commit("1_0"); c.shut(); c.unlock() }},
	{name: "one of two tasks was not committed", of: full("3.9.1"), want: verdict{"": 5, checkpointNotReplaced: 4},
		end: func(c *client, _ gate) {
			c.commit("1_0")
			c.shut()
			preallocate(c.t, manifestOf(c.t, c.path("1_1", "rocksdb", "kv"))) // and killed in the middle
			c.Kill()
		}},
	{name: "only the global store was killed", of: full("3.9.1"), want: verdict{"": 8, notClosed: 1},
		end: func(c *client, _ gate) {
			c.commit()
			for _, lock := range c.dbs {
				if !strings.Contains(lock, "/global/") {
					c.shut(filepath.Dir(lock))
				}
			}
			c.Kill()
		}},
	{name: "a segment has expired", of: full("3.9.1"), want: verdict{"": 9},
		end: func(c *client, _ gate) {
			c.commit()
			c.shut()
			must(c.t, os.RemoveAll(glob(c.t, c.path("1_0", "sess", "sess.*"))[0]))
			c.unlock()
		}},
	{name: "every segment has expired", of: full("4.4.0"), want: verdict{"": 9},
		end: func(c *client, _ gate) {
			c.shut()
			for _, p := range glob(c.t, c.path("1_0", "sess", "sess.*")) {
				must(c.t, os.RemoveAll(p))
			}
			c.unlock()
		}},

	// What is gone or cannot be read, in each era.
	{name: "a task is gone", of: full("3.9.1"), want: verdict{"": 5, taskGone: 4},
		end: func(c *client, _ gate) { c.commit(); c.shut(); must(c.t, os.RemoveAll(c.path("1_1"))); c.unlock() }},
	{name: "a task is gone, 4.4", of: full("4.4.0"), want: verdict{"": 5, taskGone: 4},
		end: func(c *client, _ gate) { c.shut(); must(c.t, os.RemoveAll(c.path("1_1"))); c.unlock() }},
	{name: "a store is gone", of: base("3.9.1"), want: verdict{"": 1, storeGone: 1},
		end: func(c *client, _ gate) { c.commit(); c.shut(); must(c.t, os.RemoveAll(c.x00())); c.unlock() }},
	{name: "a store is empty", of: base("4.3.1"), want: verdict{"": 1, storeGone: 1},
		end: func(c *client, _ gate) {
			c.shut()
			for _, p := range glob(c.t, filepath.Join(c.x00(), "*")) {
				must(c.t, os.Remove(p))
			}
			c.unlock()
		}},
	{name: "everything is gone", of: base("4.3.1"), want: verdict{taskGone: 2},
		end: func(c *client, _ gate) { must(c.t, os.RemoveAll(c.path())); c.unlock() }},
	{name: "a store cannot be listed", of: base("3.9.1"), want: verdict{"": 1, unreadable: 1},
		end: func(c *client, _ gate) { c.fake.Fail(volumetest.List, c.x00(), syscall.EIO); c.close() }},
	{name: "a table of offsets cannot be read", of: base("4.4.0"), want: verdict{"": 1, unreadable: 1},
		end: func(c *client, _ gate) {
			c.shut()
			for _, p := range c.tables(c.x00()) {
				touch(c.t, p, time.Now()) // or it is not read again
			}
			c.fake.Fail(volumetest.Read, c.x00()+"/...", syscall.EIO)
			c.unlock()
		}},
	{name: "a task cannot be listed", of: base("3.9.1"), want: verdict{unreadable: 2},
		end: func(c *client, _ gate) { c.fake.Fail(volumetest.List, c.path("0_0"), syscall.EIO); c.close() }},
	{name: "the stores of a task cannot be listed", of: base("3.9.1"), want: verdict{unreadable: 2},
		end: func(c *client, _ gate) {
			c.fake.Fail(volumetest.List, c.path("0_0", "rocksdb"), syscall.EIO)
			c.close()
		}},
	{name: "the application cannot be listed", of: base("4.4.0"), want: verdict{unreadable: 2},
		end: func(c *client, _ gate) { c.fake.Fail(volumetest.List, c.path(), syscall.EIO); c.close() }},
	{name: "the application cannot be listed, without a call", of: base("4.4.0"), noCall: true, want: verdict{unreadable: 2},
		end: func(c *client, _ gate) { c.fake.Fail(volumetest.List, c.path(), syscall.EIO); c.close() }},
	{name: "the state directory cannot be listed", of: base("4.3.1"), want: verdict{unreadable: 2},
		end: func(c *client, _ gate) { c.fake.Fail(volumetest.List, c.dir, syscall.EIO); c.close() }},
	{name: "a torn MANIFEST", of: base("3.9.1"), want: verdict{"": 1, manifestUnparseable: 1},
		end: func(c *client, _ gate) { c.commit(); c.shut(); c.cut(c.x00(), 5); c.unlock() }},
	{name: "a torn MANIFEST, 4.4", of: base("4.4.0"), want: verdict{"": 1, manifestUnparseable: 1},
		end: func(c *client, _ gate) { c.shut(); c.cut(c.x00(), 5); c.unlock() }},
	{name: "a MANIFEST with a flipped bit", of: with("3.9.1", "corrupt-alos-manifest-flip"), want: verdict{"": 1, manifestUnparseable: 1}, end: clean},
	{name: "an empty MANIFEST", of: base("4.2.2"), want: verdict{"": 1, manifestUnparseable: 1},
		end: func(c *client, _ gate) { c.commit(); c.shut(); c.cut(c.x00(), 0); c.unlock() }},
	{name: "somebody else has taken a LOCK", of: base("3.9.1"), noCall: true, want: verdict{"": 1, lockHeld: 1},
		end: func(c *client, _ gate) {
			c.commit()
			c.shut()
			c.look()
			holder.Hold(c.t, filepath.Join(c.x00(), "LOCK"))
			c.unlock()
		}},

	// The clock was set, which is harmless only where .checkpoint tells enough.
	{name: "the clock was set back in the close", of: base("3.9.1"), want: verdict{"": 2},
		end: func(c *client, g gate) {
			g.StepClock(-time.Hour)
			c.commit()
			for _, db := range []string{c.kv(), c.x00()} {
				c.trim(db)
				c.at(db, 0, -100)
			}
			c.Kill()
		}},
	{name: "the clock was set forward in the close", of: base("3.9.1"), want: verdict{"": 2},
		end: func(c *client, g gate) {
			g.StepClock(time.Hour)
			c.commit()
			c.shut()
			c.at(c.kv(), 7200, 7201)
			c.unlock()
		}},
	{name: "the clock was set, and .checkpoint not written", of: base("3.9.1"), want: verdict{checkpointNotReplaced: 2},
		end: func(c *client, g gate) { g.StepClock(time.Hour); c.shut(); c.unlock() }},
	{name: "the clock was set, and nobody called", of: base("3.9.1"), noCall: true, want: verdict{notProvableHere: 2},
		end: func(c *client, g gate) { g.StepClock(time.Hour); c.shut(); c.unlock() }},
	{name: "the clock was set, and it was killed", of: base("3.9.1"), want: verdict{notClosed: 2},
		end: func(c *client, g gate) { g.StepClock(time.Hour); c.commit(); c.Kill() }},
	{name: "the clock was set by NTP, a little", of: base("3.9.1"), want: verdict{flushedAfterCheckpoint: 2},
		end: func(c *client, g gate) {
			g.StepClock(900 * time.Millisecond)
			c.shut()
			c.at(c.kv(), 10, 11)
			c.unlock()
		}},

	// 4.3 and later.
	{name: "data that is younger than its offset", of: base("4.4.0"), want: verdict{"": 1, offsetBehindData: 1},
		end: func(c *client, _ gate) { c.late(c.kv()); c.shut(); c.unlock() }},
	{name: "offsets whose sequence numbers a compaction in the close has zeroed", of: base("4.4.0"), arrange: everyDB(zeroSequence), want: verdict{"": 2}, end: clean},
	{name: "the same after an exception", of: base("4.4.0"), arrange: everyDB(zeroSequence), want: verdict{"": 1, offsetBehindData: 1},
		end: func(c *client, _ gate) { c.late(c.kv()); c.shut(); c.unlock() }},
	{name: "zeroed, and the MANIFEST does not have them", of: base("4.4.0"), want: verdict{notProvableHere: 2}, end: clean,
		arrange: func(c *client) {
			for _, db := range []string{c.kv(), c.x00()} {
				zeroSequence(c.t, db)
				c.forget(db, compacted)
			}
		}},
	{name: "unlogged, 4.4", of: base("4.4.0"), arrange: everyDB(eraseOffset), want: verdict{"": 2}, end: clean},
	{name: "transactional, closed without a trigger", of: base("4.4.0"), arrange: everyDB(eraseStatus), want: verdict{notProvableHere: 2}, end: clean},
	{name: "transactional, killed", of: base("4.4.0"), arrange: everyDB(eraseStatus), want: verdict{notClosed: 2}},
	{name: "transactional without preallocation", of: base("4.4.0"), arrange: everyDB(eraseStatus), flat: true, want: verdict{notProvableHere: 2}, end: clean},
	{name: "opened at the start only", of: base("4.3.1"), once: true, want: verdict{notProvableHere: 2},
		end: func(c *client, _ gate) {
			c.forget(c.kv(), flushed)
			c.forget(c.x00(), flushed)
			c.close()
		}},
	{name: "opened once, and it has flushed data since", of: base("4.3.1"), once: true, want: verdict{"": 2}, end: clean},
	{name: "killed with everything flushed, exactly-once", of: with("4.4.0", "killed9-eos-uncommitted-flushed"), want: verdict{statusOpen: 2}},
	{name: "SIGTERM without a close", of: with("4.4.0", "sigterm-no-hook"), want: verdict{offsetsNotWritten: 2}},
}

// late flushes data after the newest offset.
func (c *client) late(db string) {
	c.t.Helper()
	c.edit(db, func(d *store.Database) rockstest.Edit {
		family, _, n, seq := data(d)
		size := c.copyTable(db, n, 90)
		return rockstest.Edit{}.Family(family).LogNumber(4).PrevLog(0).NextFile(91).LastSequence(seq + 100).
			Add(rockstest.File{Number: 90, Size: size, SmallestSeq: seq + 100, LargestSeq: seq + 100})
	})
}

// forget begins the MANIFEST of a database anew, as an open does: without the
// history of its tables. Then the table of offsets is written once more.
func (c *client) forget(db string, how func(file rockstest.File, old *manifest.File, family uint32) rockstest.Edit) {
	c.t.Helper()
	edits := []rockstest.Edit{rockstest.Edit{}.Comparator("leveldb.BytewiseComparator").LogNumber(4).NextFile(90).LastSequence(5000)}
	c.edit(db, func(d *store.Database) rockstest.Edit { // only to look at it
		state, _, _ := d.Manifest()
		for i := range state.Families {
			f := &state.Families[i]
			if f.ID > 0 {
				edits = append(edits, rockstest.Edit{}.AddFamily(f.ID, f.Name).Comparator("leveldb.BytewiseComparator"))
			}
			for j := range f.Files {
				x := &f.Files[j]
				file := rockstest.File{Level: x.Level, Number: x.Number, Size: x.Size, SmallestSeq: x.SmallestSeq, LargestSeq: x.LargestSeq}
				edits = append(edits, rockstest.Edit{}.Family(f.ID).LogNumber(4).Add(file))
				if f.Name == "offsets" {
					file.Number, file.Size = 90, c.copyTable(db, x.Number, 90)
					edits = append(edits, how(file, x, f.ID))
				}
			}
		}
		return rockstest.Edit{}
	})
	path := manifestOf(c.t, db)
	f, err := os.OpenFile(path, os.O_WRONLY, 0) // what is preallocated stays
	must(c.t, err)
	data := rockstest.Manifest(edits...)
	_, err = f.Write(data)
	must(c.t, err)
	must(c.t, f.Close())
	must(c.t, os.Truncate(path, int64(len(data))))
}

// compacted writes the table of offsets by a compaction to the last level.
func compacted(file rockstest.File, old *manifest.File, family uint32) rockstest.Edit {
	file.Level, file.SmallestSeq, file.LargestSeq = 6, 0, 0
	return rockstest.Edit{}.Family(family).NextFile(91).Delete(old.Level, old.Number).Add(file)
}

// flushed writes it by a flush, which is all that a start writes.
func flushed(file rockstest.File, _ *manifest.File, family uint32) rockstest.Edit {
	return rockstest.Edit{}.Family(family).LogNumber(4).PrevLog(0).NextFile(91).LastSequence(5000).Add(file)
}

// cut makes the MANIFEST of a database shorter: by so many bytes, or empty if 0.
func (c *client) cut(db string, by int64) {
	c.t.Helper()
	path := manifestOf(c.t, db)
	fi, err := os.Stat(path)
	must(c.t, err)
	size := fi.Size() - by
	if by == 0 {
		size = 0
	}
	must(c.t, os.Truncate(path, size))
}

// everywhere are the endings of every version: closed cleanly and killed, with a
// call and without, with and without preallocation.
func everywhere() (out []ending) {
	for _, version := range []string{"2.8.2", "3.9.1", "4.2.2", "4.3.1", "4.4.0"} {
		legacy := version < "4.3"
		for _, flat := range []bool{false, true} {
			for _, noCall := range []bool{false, true} {
				closed, killed := verdict{"": 2}, verdict{notClosed: 2}
				switch {
				case !legacy:
					killed = verdict{offsetsNotWritten: 9}
				case flat && noCall:
					closed, killed = verdict{notProvableHere: 2}, verdict{notProvableHere: 2}
				case flat:
					killed = verdict{checkpointNotReplaced: 2}
				}
				how := fmt.Sprintf("%s, preallocated %v, call %v", version, !flat, !noCall)
				of := base(version)
				out = append(out, ending{name: "closed, " + how, of: of, flat: flat, noCall: noCall, end: clean, want: closed})
				if !legacy && flat != noCall { // the others tell nothing new
					continue
				}
				if !legacy {
					of = with(version, "killed9-alos-load")
				}
				out = append(out, ending{name: "killed, " + how, of: of, flat: flat, noCall: noCall, want: killed})
			}
		}
		all := verdict{"": 9}
		if version == "2.8.2" { // without versioned stores
			all[""] = 7
		}
		out = append(out, ending{name: "every kind of store, " + version, of: full(version), end: clean, want: all})
		if version == "3.9.1" || version == "4.4.0" {
			out = append(out, ending{name: "every kind of store, exactly-once, " + version, of: with(version, "closed-eos"), noCall: true, end: clean, want: all})
		}
		if !legacy {
			out = append(out, ending{name: "killed under exactly-once, " + version, of: with(version, "killed9-eos-load"), want: verdict{offsetsNotWritten: 9}})
		}
	}
	return out
}

// TestProof: how each application has ended is told right, by a gate that has
// followed it.
func TestProof(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	met := map[shutdown.Reason]bool{}
	names := map[string]bool{}
	all := newCrowd(t)
	t.Run("endings", func(t *testing.T) {
		for _, e := range append(slices.Clone(endings), everywhere()...) {
			name := e.name
			for i := 2; names[name]; i++ {
				name = fmt.Sprintf("%s (%d)", e.name, i)
			}
			names[name] = true
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				got := e.run(t, all.rig(t, e.of))
				if diff := cmp.Diff(e.want, got); diff != "" {
					t.Errorf("stores by reason (-want +got):\n%s", diff)
				}
				mu.Lock()
				defer mu.Unlock()
				for r := range got {
					met[r] = true
				}
			})
		}
	})
	if t.Failed() || len(met) < 2 { // or only some were asked for
		return
	}
	for _, r := range append(shutdown.AllReasons(), "") {
		if !met[r] {
			t.Errorf("no ending has the reason %s", r)
		}
	}
}

func (e *ending) run(t *testing.T, r *rig) verdict {
	if e.arrange != nil {
		e.arrange(&client{rig: r})
		age(t, r.dir)
		r.look()
	}
	g := r.gate(time.Minute)
	g.Follow() // at rest
	c := r.startOn(e.flat)
	g.Follow()
	if !e.once {
		c.reopen()
		g.Follow()
	}
	end := e.end
	if end == nil {
		end = func(c *client, _ gate) { c.Kill() }
	}
	var ans *shutdown.Answer
	if e.noCall {
		end(c, g)
		g.Follow()
	} else {
		if e.running != nil {
			e.running(c)
		}
		d := r.drain(g, shutdown.Call{Wait: true})
		end(c, g)
		ans = answer(t, d)
	}
	last := g.State().Last
	if len(last) != 1 {
		t.Fatalf("the ends that are known: %+v", last)
	}
	s := last[0]
	got := verdict{}
	for _, ev := range s.Evidence {
		got[ev.Reason]++
		if ev.Clean != (ev.Reason == "") || ev.Clean != (ev.Text == "") || ev.Task == "" || ev.Store == "" {
			t.Errorf("evidence %+v", ev)
		}
	}
	want := shutdown.ClosedUnclean
	if len(got) == 1 && got[""] > 0 {
		want = shutdown.ClosedClean
	}
	if s.Outcome != want || s.Stores != len(s.Evidence) || s.Ended == nil || (s.Explanation == "") != (want == shutdown.ClosedClean) {
		t.Errorf("%+v, want %s with an explanation unless clean", s.Shutdown, want)
	}
	if ans != nil && (ans.Outcome != s.Outcome || ans.Stores != s.Stores || len(ans.Missing)+ans.MissingMore != s.Stores-got[""] ||
		s.Hook != shutdown.Called || s.HookOutcome != s.Outcome || s.CloseSeconds == nil) {
		t.Errorf("the answer %+v differs from the end %+v", ans, s.Shutdown)
	}
	if ans == nil && (s.Hook != shutdown.NotCalled || s.CloseSeconds != nil || s.Began != nil) {
		t.Errorf("without a call: %+v", s.Shutdown)
	}
	return got
}
