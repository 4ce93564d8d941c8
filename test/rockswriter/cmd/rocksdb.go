//go:build rocksdb && cgo

package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/linxGnu/grocksdb"

	"streams-sidecar/test/rockswriter"
)

const defaultFamily = "default"

// writeBuffer instead of 64 MiB, because RocksDB preallocates a little more for
// each log, and tests keep them in memory.
const writeBuffer = 1 << 20

// session is an open database.
type session struct {
	db      *grocksdb.DB
	handles map[string]*grocksdb.ColumnFamilyHandle
}

func write(dir string, r *rockswriter.Recipe) error {
	s, err := open(dir, r)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	for i := range r.Steps {
		if err := s.step(&r.Steps[i]); err != nil {
			return fmt.Errorf("step %d, %s: %w", i, r.Steps[i].Do, err)
		}
	}
	if r.Abandon {
		return nil // and the process ends, without any destructor
	}
	s.close()
	return nil
}

func (s *session) close() {
	for _, h := range s.handles {
		h.Destroy()
	}
	s.db.Close()
}

func open(dir string, r *rockswriter.Recipe) (*session, error) {
	families := r.Families
	if !slices.ContainsFunc(families, func(f rockswriter.Family) bool { return f.Name == defaultFamily }) {
		families = append([]rockswriter.Family{{Name: defaultFamily}}, families...)
	}
	base := grocksdb.NewDefaultOptions()
	base.SetCreateIfMissing(true)
	base.SetCreateIfMissingColumnFamilies(true)
	base.SetWriteBufferSize(writeBuffer)
	all, err := grocksdb.GetOptionsFromString(base, r.Options)
	if err != nil {
		return nil, fmt.Errorf("options %q: %w", r.Options, err)
	}
	names, opts := make([]string, len(families)), make([]*grocksdb.Options, len(families))
	for i, f := range families {
		names[i] = f.Name
		if opts[i], err = grocksdb.GetOptionsFromString(all, f.Options); err != nil {
			return nil, fmt.Errorf("options %q of family %s: %w", f.Options, f.Name, err)
		}
		if f.Comparator != "" {
			opts[i].SetComparator(grocksdb.NewComparator(f.Comparator, bytes.Compare))
		}
	}
	db, handles, err := grocksdb.OpenDbColumnFamilies(all, dir, names, opts)
	if err != nil {
		return nil, err
	}
	s := &session{db, map[string]*grocksdb.ColumnFamilyHandle{}}
	for i, name := range names {
		s.handles[name] = handles[i]
	}
	return s, nil
}

func (s *session) step(step *rockswriter.Step) error {
	name := step.Family
	if name == "" {
		name = defaultFamily
	}
	cf, ok := s.handles[name]
	if !ok {
		return fmt.Errorf("no family %s", name)
	}
	switch step.Do {
	case rockswriter.Flush:
		return s.db.FlushCF(cf, grocksdb.NewDefaultFlushOptions())
	case rockswriter.Compact:
		s.db.CompactRangeCF(cf, grocksdb.Range{})
		return nil
	case rockswriter.FlushWAL:
		return s.db.FlushWAL(false)
	case rockswriter.Drop:
		err := s.db.DropColumnFamily(cf)
		cf.Destroy()
		delete(s.handles, name)
		return err
	case rockswriter.DeleteRange:
		all := keys(step)
		if len(all) < 2 {
			return fmt.Errorf("%d keys", len(all))
		}
		batch := grocksdb.NewWriteBatch()
		batch.DeleteRangeCF(cf, all[0], all[len(all)-1])
		return s.db.Write(options(step), batch)
	}
	return s.entries(cf, step)
}

func (s *session) entries(cf *grocksdb.ColumnFamilyHandle, step *rockswriter.Step) error {
	opts := options(step)
	for some := range slices.Chunk(keys(step), max(1, step.Batch)) {
		batch := grocksdb.NewWriteBatch()
		for _, key := range some {
			switch step.Do {
			case rockswriter.Put:
				batch.PutCF(cf, key, value(step, key))
			case rockswriter.Merge:
				batch.MergeCF(cf, key, value(step, key))
			case rockswriter.Delete:
				batch.DeleteCF(cf, key)
			case rockswriter.SingleDelete:
				batch.SingleDeleteCF(cf, key)
			default:
				return fmt.Errorf("no such verb")
			}
		}
		err := s.db.Write(opts, batch)
		batch.Destroy()
		if err != nil {
			return err
		}
	}
	return nil
}

func options(step *rockswriter.Step) *grocksdb.WriteOptions {
	o := grocksdb.NewDefaultWriteOptions()
	o.DisableWAL(step.NoWAL)
	o.SetSync(step.Sync)
	return o
}

func keys(step *rockswriter.Step) [][]byte {
	if step.Key != nil {
		return [][]byte{step.Key}
	}
	random := rand.New(rand.NewPCG(step.Seed, 0))
	out := make([][]byte, step.Keys)
	for i := range out {
		if step.Seed == 0 {
			out[i] = fmt.Appendf(nil, "key%08d", step.First+i)
		} else {
			out[i] = fmt.Appendf(nil, "key%016x", random.Uint64())
		}
	}
	return out
}

func value(step *rockswriter.Step, key []byte) []byte {
	if step.Value != nil {
		return step.Value
	}
	return bytes.Repeat(key, step.Size/len(key)+1)[:step.Size]
}
