//go:build rocksdb && cgo

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/linxGnu/grocksdb"
	"golang.org/x/sys/unix"

	"streams-sidecar/test/rockswriter"
)

const (
	offsetsFamily = "offsets"
	statusKey     = "status"

	keySpace      = 4000
	commitRecords = 40
	flushCommits  = 8 // those between a flush that somebody asked for and the next
	churnCommits  = 24

	segmentMillis  = 5 * 60 * 1000
	firstSegment   = 1_700_000_100_000
	segmentCommits = 60 // those between one new segment and the next
)

// writeRestless writes all stores of an application until the context ends.
func writeRestless(ctx context.Context, dir string, r *rockswriter.Restless) error {
	unlock, err := lockApplication(dir)
	if err != nil {
		return err
	}
	defer unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(r.Stores))
	var all sync.WaitGroup
	for i := range r.Stores {
		all.Go(func() {
			w := restless{ctx: ctx, app: filepath.Base(dir), task: filepath.Join(dir, r.Stores[i].Task), store: &r.Stores[i],
				session: time.Duration(r.Session) * time.Millisecond}
			if errs[i] = w.run(); errs[i] != nil {
				cancel()
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// lockApplication does what the constructor of KafkaStreams does.
func lockApplication(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	id := filepath.Join(dir, "kafka-streams-process-metadata")
	if err := os.WriteFile(id, []byte(`{"processId":"b9fdf5a4-1f0e-4d3c-8f5c-0c1d2e3f4a5b"}`), 0o644); err != nil {
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

// restless writes one store.
type restless struct {
	ctx       context.Context
	app, task string
	store     *rockswriter.RestlessStore
	session   time.Duration
	offset    uint64
}

func (w *restless) topic() string { return w.app + "-" + w.store.Name + "-changelog" }

// partition is the part of a task's name after its underscore.
func (w *restless) partition() string {
	_, p, _ := strings.Cut(w.store.Task, "_")
	return p
}

func (w *restless) run() error {
	if w.store.Segments > 0 {
		return w.segments(filepath.Join(w.task, w.store.Name))
	}
	dir := filepath.Join(w.task, "rocksdb", w.store.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for w.ctx.Err() == nil {
		if err := w.once(dir); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	return nil
}

// once opens a database, writes it for a while, and closes it.
func (w *restless) once(dir string) error {
	s, err := w.open(dir)
	if err != nil {
		return err
	}
	for n, until := 1, time.Now().Add(w.session); w.ctx.Err() == nil && time.Now().Before(until); n++ {
		if err := w.commit(s); err != nil {
			return err
		}
		if n%flushCommits == 0 {
			if err := w.flush(s); err != nil {
				return err
			}
		}
		if w.store.Churn != "" && n%churnCommits == 0 {
			if err := w.churn(s); err != nil {
				return err
			}
		}
	}
	return w.close(s)
}

func (w *restless) open(dir string) (*session, error) {
	r := rockswriter.Recipe{Options: w.store.Options}
	names := append([]string{defaultFamily}, w.store.Families...)
	if w.store.Offsets {
		names = append(names, offsetsFamily)
	}
	// One that is being churned may be there still after a kill.
	if there, err := grocksdb.ListColumnFamilies(grocksdb.NewDefaultOptions(), dir); err == nil && slices.Contains(there, w.store.Churn) {
		names = append(names, w.store.Churn)
	}
	for _, n := range names {
		r.Families = append(r.Families, rockswriter.Family{Name: n})
	}
	s, err := open(dir, &r)
	if err != nil {
		return nil, err
	}
	return s, w.status(s, 1)
}

// close does what Streams does: the mark, a flush of everything, the offsets, and
// only then RocksDB.
func (w *restless) close(s *session) error {
	if err := w.status(s, 0); err != nil {
		return err
	}
	// The offset again, also of a store that nobody has written to.
	batch := grocksdb.NewWriteBatch()
	defer batch.Destroy()
	w.claim(s, batch)
	if err := s.db.Write(withoutWAL, batch); err != nil {
		return err
	}
	if err := w.flush(s); err != nil {
		return err
	}
	s.close()
	return nil
}

// claim adds the offset of the last record, where a family has it.
func (w *restless) claim(s *session, batch *grocksdb.WriteBatch) {
	if w.store.Offsets {
		batch.PutCF(s.handles[offsetsFamily], []byte(w.topic()+"-"+w.partition()), binary.BigEndian.AppendUint64(nil, w.offset))
	}
}

var withoutWAL = options(&rockswriter.Step{NoWAL: true})

func (w *restless) status(s *session, status uint64) error {
	if !w.store.Offsets {
		return nil
	}
	return s.db.PutCF(withoutWAL, s.handles[offsetsFamily], []byte(statusKey), binary.BigEndian.AppendUint64(nil, status))
}

// commit writes some records and the offset of the last one, in one batch.
func (w *restless) commit(s *session) error {
	batch := grocksdb.NewWriteBatch()
	defer batch.Destroy()
	for name, cf := range s.handles {
		if name == offsetsFamily {
			continue
		}
		for range commitRecords {
			w.offset++
			key := fmt.Appendf(nil, "key%08d", rand.IntN(keySpace))
			if w.offset%16 == 0 {
				batch.DeleteCF(cf, key)
				continue
			}
			batch.PutCF(cf, key, value(&rockswriter.Step{Size: 100}, fmt.Appendf(key, "%d", w.offset)))
		}
	}
	w.claim(s, batch)
	return s.db.Write(withoutWAL, batch)
}

// flush returns when everything that was committed is in tables; then a
// .checkpoint may say so.
func (w *restless) flush(s *session) error {
	opts := grocksdb.NewDefaultFlushOptions()
	defer opts.Destroy()
	var all []*grocksdb.ColumnFamilyHandle
	for _, cf := range s.handles {
		all = append(all, cf)
	}
	if err := s.db.FlushCFs(all, opts); err != nil || w.store.Offsets {
		return err
	}
	temporary := filepath.Join(w.task, ".checkpoint.tmp")
	text := fmt.Sprintf("0\n1\n%s %s %d\n", w.topic(), w.partition(), w.offset)
	if err := os.WriteFile(temporary, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, filepath.Join(w.task, ".checkpoint"))
}

// churn makes a family, or drops it.
func (w *restless) churn(s *session) error {
	if cf, ok := s.handles[w.store.Churn]; ok {
		delete(s.handles, w.store.Churn)
		defer cf.Destroy()
		return s.db.DropColumnFamily(cf)
	}
	opts, err := grocksdb.GetOptionsFromString(grocksdb.NewDefaultOptions(), w.store.Options)
	if err != nil {
		return err
	}
	cf, err := s.db.CreateColumnFamily(opts, w.store.Churn)
	if err == nil {
		s.handles[w.store.Churn] = cf
	}
	return err
}

// segment is one database of a window store.
type segment struct {
	start int64
	dir   string
	open  *session
}

func (w *restless) segment(dir string, start int64) string {
	return filepath.Join(dir, fmt.Sprintf("%s.%d", w.store.Name, start))
}

// segments writes a window store: all its segments at a time. The oldest is
// closed and its directory deleted when there are too many.
func (w *restless) segments(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var starts []int64
	for _, e := range entries { // of an earlier process
		n, err := strconv.ParseInt(strings.TrimPrefix(e.Name(), w.store.Name+"."), 10, 64)
		if err != nil {
			return err
		}
		starts = append(starts, n)
	}
	if len(starts) == 0 {
		starts = []int64{firstSegment}
	}
	slices.Sort(starts)
	for len(starts) > w.store.Segments {
		if err := os.RemoveAll(w.segment(dir, starts[0])); err != nil {
			return err
		}
		starts = starts[1:]
	}
	var all []segment
	add := func(start int64) error {
		d := w.segment(dir, start)
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
		s, err := w.open(d)
		if err != nil {
			return fmt.Errorf("%s: %w", d, err)
		}
		all = append(all, segment{start, d, s})
		return nil
	}
	for _, start := range starts {
		if err := add(start); err != nil {
			return err
		}
	}
	for n := 1; w.ctx.Err() == nil; n++ {
		for _, s := range all {
			if err := w.commit(s.open); err != nil {
				return err
			}
			if n%flushCommits == 0 {
				if err := w.flush(s.open); err != nil {
					return err
				}
			}
		}
		if n%segmentCommits != 0 {
			continue
		}
		if err := add(all[len(all)-1].start + segmentMillis); err != nil {
			return err
		}
		for !w.store.Lasting && len(all) > w.store.Segments {
			all[0].open.close()
			if err := os.RemoveAll(all[0].dir); err != nil {
				return err
			}
			all = all[1:]
		}
	}
	for _, s := range all {
		err = errors.Join(err, w.close(s.open))
	}
	return err
}
