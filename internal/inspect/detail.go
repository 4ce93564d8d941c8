package inspect

import (
	"errors"
	"time"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/report"
	"streams-sidecar/internal/rocksfile/manifest"
	"streams-sidecar/internal/rocksfile/options"
	"streams-sidecar/internal/rocksfile/sst"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
)

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
		r.Manifest = report.NewManifest(l.st, l.info)
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
		Created: report.UnixTime(p.FileCreationTime), OldestKey: report.UnixTime(p.OldestKeyTime),
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
