package inspect

import (
	"errors"
	"time"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/rocksfile/manifest"
	"streams-sidecar/internal/rocksfile/options"
	"streams-sidecar/internal/rocksfile/sst"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
)

// Database is one RocksDB directory of a store.
type Database struct {
	Path           string    `json:"path"`
	RocksDBVersion string    `json:"rocksdb_version,omitempty"`
	InUse          *bool     `json:"in_use,omitempty"`
	HolderPID      int       `json:"holder_pid,omitempty"`
	Manifest       *Manifest `json:"manifest,omitempty"`
}

// Manifest is one MANIFEST and the state that it tells.
type Manifest struct {
	File           string   `json:"file"`
	SizeBytes      int64    `json:"size_bytes"`
	AllocatedBytes int64    `json:"allocated_bytes"`
	ParsedBytes    int64    `json:"parsed_bytes"`
	Edits          int      `json:"edits"`
	LastSequence   uint64   `json:"last_sequence"`
	NextFile       uint64   `json:"next_file"`
	MinLogToKeep   uint64   `json:"min_log_to_keep,omitempty"`
	DBID           string   `json:"db_id,omitempty"`
	Events         Events   `json:"events"`
	Families       []Family `json:"column_families"`
}

// Events are those since this MANIFEST was begun.
type Events struct {
	Flushes                uint64 `json:"flushes"`
	FlushedBytes           uint64 `json:"flushed_bytes"`
	Compactions            uint64 `json:"compactions"`
	CompactionReadBytes    uint64 `json:"compaction_read_bytes"`
	CompactionWrittenBytes uint64 `json:"compaction_written_bytes"`
	TrivialMoves           uint64 `json:"trivial_moves"`
}

// Family is a column family in a MANIFEST.
type Family struct {
	ID         uint32 `json:"id"`
	Name       string `json:"name"`
	Comparator string `json:"comparator,omitempty"`
	LogNumber  uint64 `json:"log_number"`
	Tables     []File `json:"tables"`
}

// File is a live table as the MANIFEST has it.
type File struct {
	Number      uint64     `json:"number"`
	Level       int        `json:"level"`
	SizeBytes   uint64     `json:"size_bytes"`
	SmallestSeq uint64     `json:"smallest_sequence"`
	LargestSeq  uint64     `json:"largest_sequence"`
	Created     *time.Time `json:"created,omitempty"`
	Entries     *uint64    `json:"entries,omitempty"` // with a value
}

func database(db *store.Database) Database {
	out := Database{Path: volume.Text(db.Path), RocksDBVersion: volume.Text(db.RocksDBVersion), InUse: db.InUse, HolderPID: db.HolderPID}
	if st, info, ok := db.Manifest(); ok {
		out.Manifest = newManifest(st, info)
		for i := range out.Manifest.Families {
			tables := out.Manifest.Families[i].Tables
			for j := range tables {
				if n, ok := db.TableValues(tables[j].Number); ok {
					tables[j].Entries = &n
				}
			}
		}
	}
	return out
}

func newManifest(st *manifest.State, info volume.Info) *Manifest {
	c := st.Counts
	out := &Manifest{
		File: volume.Text(info.Name), SizeBytes: info.Size, AllocatedBytes: info.Allocated,
		ParsedBytes: st.Size, Edits: st.Edits,
		LastSequence: st.LastSequence, NextFile: st.NextFile, MinLogToKeep: st.MinLogToKeep,
		DBID: volume.Text(st.DBID),
		Events: Events{c.Flushes, c.FlushedBytes, c.Compactions, c.CompactionReadBytes,
			c.CompactionWrittenBytes, c.TrivialMoves},
		Families: []Family{},
	}
	for i := range st.Families {
		f := &st.Families[i]
		fam := Family{ID: f.ID, Name: volume.Text(f.Name), Comparator: volume.Text(f.Comparator), LogNumber: f.LogNumber, Tables: []File{}}
		for j := range f.Files {
			t := &f.Files[j]
			fam.Tables = append(fam.Tables, File{Number: t.Number, Level: t.Level, SizeBytes: t.Size,
				SmallestSeq: t.SmallestSeq, LargestSeq: t.LargestSeq, Created: unixTime(t.CreationTime)})
		}
		out.Families = append(out.Families, fam)
	}
	return out
}

func unixTime(seconds uint64) *time.Time {
	const farFuture = 1 << 40 // beyond it the field holds something else
	if seconds == 0 || seconds > farFuture {
		return nil
	}
	t := time.Unix(int64(seconds), 0).UTC()
	return &t
}

func (r *Result) manifest(v *volume.Volume, path string) error {
	type loaded struct {
		st   *manifest.State
		info volume.Info
		err  error // of the content
	}
	l, err := volume.Do(v, path, func(fs volume.FS) (loaded, error) {
		f, err := fs.Open(path)
		if err != nil {
			return loaded{}, err
		}
		defer func() { _ = f.Close() }()
		st, err := manifest.Load(f, f.Info().Size)
		if _, content := errors.AsType[*manifest.Error](err); err != nil && !content {
			return loaded{}, err
		}
		return loaded{st, f.Info(), err}, nil
	})
	if err != nil {
		return err
	}
	r.Kind = KindManifest
	if l.st != nil {
		r.Manifest = newManifest(l.st, l.info)
	}
	if me, ok := errors.AsType[*manifest.Error](l.err); ok {
		r.add(store.ManifestFinding(me, path))
	}
	return nil
}

// Table is one table file. Times that its writer did not know are absent.
type Table struct {
	FormatVersion  uint32  `json:"format_version"`
	Checksum       string  `json:"checksum"`
	ColumnFamily   string  `json:"column_family,omitempty"`
	Entries        uint64  `json:"entries"` // tombstones included
	Deletions      uint64  `json:"deletions"`
	RangeDeletions uint64  `json:"range_deletions"`
	MergeOperands  uint64  `json:"merge_operands"`
	DataBytes      uint64  `json:"data_bytes"`
	DataBlocks     uint64  `json:"data_blocks"`
	IndexBytes     uint64  `json:"index_bytes"`
	FilterBytes    uint64  `json:"filter_bytes"`
	RawKeyBytes    uint64  `json:"raw_key_bytes"`
	RawValueBytes  uint64  `json:"raw_value_bytes"`
	Comparator     string  `json:"comparator"`
	Compression    string  `json:"compression"`
	SmallestSeq    *uint64 `json:"smallest_sequence,omitempty"`
	LargestSeq     *uint64 `json:"largest_sequence,omitempty"`

	Created   *time.Time `json:"created,omitempty"`
	OldestKey *time.Time `json:"oldest_key,omitempty"`
	DBID      string     `json:"db_id,omitempty"`
	Session   string     `json:"db_session_id,omitempty"`
	Host      string     `json:"db_host_id,omitempty"`
	// Offsets are shown for a table of the column family offsets.
	Offsets []Key `json:"offsets,omitempty"`
}

// Key is one entry of a table of the family offsets.
type Key struct {
	Key      string  `json:"key"`
	Sequence uint64  `json:"sequence"`
	Type     string  `json:"type"`
	Value    *uint64 `json:"value,omitempty"` // of 8 bytes
	Bytes    int     `json:"value_bytes"`
}

// maxKeys bounds how many entries of a table are shown.
const maxKeys = 1000

func (r *Result) table(v *volume.Volume, path string) error {
	type read struct {
		t        *Table
		problems []*sst.Error
	}
	got, err := volume.Do(v, path, func(fs volume.FS) (read, error) {
		f, err := fs.Open(path)
		if err != nil {
			return read{}, err
		}
		defer func() { _ = f.Close() }()
		tab, err := sst.Open(f, f.Info().Size)
		if te, ok := errors.AsType[*sst.Error](err); ok {
			return read{problems: []*sst.Error{te}}, nil
		}
		if err != nil {
			return read{}, err
		}
		out := read{t: newTable(tab)}
		if out.t.ColumnFamily == "offsets" {
			err = tab.Each(func(e sst.Entry) error {
				if len(out.t.Offsets) < maxKeys {
					out.t.Offsets = append(out.t.Offsets, newKey(e))
				}
				return nil
			})
			if te, ok := errors.AsType[*sst.Error](err); ok {
				out.problems, err = append(out.problems, te), nil
			}
		}
		return out, err
	})
	if err != nil {
		return err
	}
	r.Kind, r.Table = KindTable, got.t
	for _, te := range got.problems {
		r.add(store.TableFinding(te, path, finding.SSTUnparseable))
	}
	return nil
}

func newTable(tab *sst.Table) *Table {
	p := tab.Properties()
	out := &Table{
		FormatVersion: tab.FormatVersion(), Checksum: tab.ChecksumType().String(),
		ColumnFamily: volume.Text(p.ColumnFamily),
		Entries:      p.Entries, Deletions: p.Deletions, RangeDeletions: p.RangeDeletions, MergeOperands: p.MergeOperands,
		DataBytes: p.DataSize, DataBlocks: p.DataBlocks, IndexBytes: p.IndexSize, FilterBytes: p.FilterSize,
		RawKeyBytes: p.RawKeySize, RawValueBytes: p.RawValueSize,
		Comparator: volume.Text(p.Comparator), Compression: volume.Text(p.Compression),
		Created: unixTime(p.FileCreationTime), OldestKey: unixTime(p.OldestKeyTime),
		DBID: volume.Text(p.DBID), Session: volume.Text(p.SessionID), Host: volume.Text(p.HostID),
	}
	if p.SmallestSequenceKnown {
		out.SmallestSeq = &p.SmallestSequence
	}
	if p.LargestSequenceKnown {
		out.LargestSeq = &p.LargestSequence
	}
	return out
}

func newKey(e sst.Entry) Key {
	k := Key{Key: volume.Text(string(e.Key)), Sequence: e.Sequence, Type: e.Type.String(), Bytes: len(e.Value)}
	if len(e.Value) == 8 {
		var n uint64
		for _, b := range e.Value {
			n = n<<8 | uint64(b)
		}
		k.Value = &n
	}
	return k
}

// Options is one OPTIONS file.
type Options struct {
	RocksDBVersion string            `json:"rocksdb_version,omitempty"`
	DB             map[string]string `json:"db"`
	Families       []FamilyOptions   `json:"column_families"`
}

// FamilyOptions are the options of one column family and of its tables.
type FamilyOptions struct {
	Name    string            `json:"name"`
	Options map[string]string `json:"options"`
	Table   map[string]string `json:"table"`
}

func newOptions(o *options.Options) *Options {
	out := &Options{RocksDBVersion: volume.Text(o.RocksDBVersion), DB: texts(o.DB), Families: []FamilyOptions{}}
	for i := range o.Families {
		f := &o.Families[i]
		out.Families = append(out.Families, FamilyOptions{volume.Text(f.Name), texts(f.Options), texts(f.Table)})
	}
	return out
}

func texts(m map[string]string) map[string]string {
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[volume.Text(k)] = volume.Text(v)
	}
	return out
}
