//go:build rocksdb && cgo

package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/linxGnu/grocksdb"

	"streams-sidecar/internal/engine/wire"
)

// Everything that the engine holds is small, and shared by the databases that
// it opens one after the other.
const (
	cacheBytes  = 4 << 20
	writeBuffer = 256 << 10 // of it, an eighth is allocated for each family at the open
	openFiles   = 64
)

// Bounds of what is read from the family offsets: Kafka Streams keeps one key
// for each changelog partition there, and two more.
const (
	familyOffsets = "offsets"
	offsetsKeys   = 10_000
	offsetsBytes  = 1 << 20
)

const statsBytes = 64 << 10 // of one family; real ones have 5 KiB

// properties are those that are derived from the MANIFEST and the tables alone,
// so that a reader's are the application's last flushed state. The others are
// counters, memtables and caches of whoever has the database open, or depend on
// the opener's options (RocksDB db/internal_stats.cc, ppt_name_to_info).
var properties = []string{
	"estimate-num-keys", // counts a replayed WAL too
	"estimate-live-data-size",
	"live-sst-files-size",
	"base-level",
	"min-log-number-to-keep",
	"num-blob-files",
	"total-blob-file-size",
	"live-blob-file-size",
	"live-blob-file-garbage-size",
}

type reader struct {
	opts *grocksdb.Options
	read *grocksdb.ReadOptions
}

func engine() (func(*wire.Request) wire.Answer, wire.Hello) {
	tables := grocksdb.NewDefaultBlockBasedTableOptions()
	tables.SetBlockCache(grocksdb.NewLRUCache(cacheBytes))
	// So that indexes and filters, which can be megabytes for a table, are bounded too.
	tables.SetCacheIndexAndFilterBlocks(true)

	o := grocksdb.NewDefaultOptions()
	o.SetCreateIfMissing(false)
	o.SetBlockBasedTableFactory(tables)
	o.SetWriteBufferSize(writeBuffer)
	o.SetMaxOpenFiles(openFiles)
	o.SetMaxFileOpeningThreads(1)
	o.SetMaxBackgroundJobs(1)
	o.SetTableCacheNumshardbits(0)
	// No timer threads that would count for statistics which nobody reads.
	o.SetStatsDumpPeriodSec(0)
	o.SetStatsPersistPeriodSec(0)
	// Kafka Streams' own choice is RocksDB's default too (point in time).
	o.SetWALRecoveryMode(grocksdb.PointInTimeRecovery)
	// Without it, a read-only open of a database that tracks its logs crashes at
	// a null pointer (RocksDB 10.10.1 db/db_impl/db_impl_open.cc, DBImpl::Recover).
	// Of one that does not, it changes nothing.
	o.ToggleTrackAndVerifyWALsInManifestFlag(true)

	r := grocksdb.NewDefaultReadOptions()
	r.SetVerifyChecksums(true)
	r.SetFillCache(false)
	e := &reader{opts: o, read: r}
	return e.answer, wire.Hello{RocksDB: libraryVersion()}
}

// answer opens the database and closes it again, so that no file that the
// application deletes stays on the volume longer than one request takes.
func (e *reader) answer(r *wire.Request) wire.Answer {
	path := string(r.Path)
	if path == "" || strings.ContainsRune(path, 0) {
		return wire.Answer{Error: "not a path"}
	}
	a, err := e.look(path, r)
	if err != nil {
		return wire.Answer{Error: err.Error()}
	}
	return a
}

func (e *reader) look(path string, r *wire.Request) (a wire.Answer, err error) {
	names, err := grocksdb.ListColumnFamilies(e.opts, path)
	if err != nil {
		return a, err
	}
	if len(names) == 0 {
		return a, fmt.Errorf("no column family")
	}
	opts := make([]*grocksdb.Options, len(names))
	for i := range opts {
		opts[i] = e.opts
	}
	db, handles, err := grocksdb.OpenDbForReadOnlyColumnFamilies(e.opts, path, names, opts, false)
	if err != nil {
		return a, err
	}
	defer db.Close()
	defer func() { // handles before their database
		for _, h := range handles {
			h.Destroy()
		}
	}()
	a.LastSequence = db.GetLatestSequenceNumber()
	live := liveFiles(db)
	for i, name := range names {
		f := wire.Family{Name: []byte(name), Files: []wire.Table{}, Properties: map[string]uint64{}}
		for _, l := range live {
			if l.family == name {
				f.Files = append(f.Files, l.table)
			}
		}
		for _, p := range properties {
			if v, ok := db.GetIntPropertyCF("rocksdb."+p, handles[i]); ok {
				f.Properties[p] = v
			}
		}
		all := db.GetPropertyCF("rocksdb.aggregated-table-properties", handles[i])
		f.Entries, f.Deletions = count(all, "# entries="), count(all, "# deletions=")
		if r.Stats {
			f.Stats = text(db.GetPropertyCF("rocksdb.stats", handles[i]), statsBytes)
		}
		if r.Offsets && name == familyOffsets {
			if a.Offsets, a.OffsetsLeftOut, err = e.offsets(db, handles[i]); err != nil {
				return wire.Answer{}, err
			}
		}
		a.Families = append(a.Families, f)
	}
	return a, nil
}

func (e *reader) offsets(db *grocksdb.DB, cf *grocksdb.ColumnFamilyHandle) (pairs []wire.KeyValue, leftOut string, err error) {
	it := db.NewIteratorCF(e.read, cf)
	defer it.Close()
	out, bytes := []wire.KeyValue{}, 0
	for it.SeekToFirst(); it.Valid(); it.Next() {
		k, v := it.Key(), it.Value() // RocksDB's own memory, until the next one
		bytes += k.Size() + v.Size()
		if len(out) == offsetsKeys || bytes > offsetsBytes {
			return nil, fmt.Sprintf("more than %d keys or %d bytes, so not Kafka Streams'", offsetsKeys, offsetsBytes), nil
		}
		out = append(out, wire.KeyValue{Key: slices.Clone(k.Data()), Value: slices.Clone(v.Data())})
	}
	if err := it.Err(); err != nil {
		if strings.HasPrefix(err.Error(), "Invalid argument: merge_operator") {
			return nil, err.Error(), nil
		}
		return nil, "", fmt.Errorf("family offsets: %w", err)
	}
	return out, "", nil
}

// count takes a number out of TableProperties::ToString (RocksDB
// table/table_properties.cc): "# data blocks=1; # entries=2; …".
func count(text, name string) *uint64 {
	_, rest, ok := strings.Cut(text, name)
	if !ok {
		return nil
	}
	digits, _, _ := strings.Cut(rest, ";")
	n, err := strconv.ParseUint(strings.TrimSpace(digits), 10, 64)
	if err != nil {
		return nil
	}
	return &n
}

// text cuts at the last whole line within limit.
func text(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return s[:strings.LastIndexByte(s[:limit], '\n')+1]
}
