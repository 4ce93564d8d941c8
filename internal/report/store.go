package report

import (
	"time"

	"streams-sidecar/internal/engine"
	"streams-sidecar/internal/rocksfile/manifest"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/verify"
	"streams-sidecar/internal/volume"
)

// StoreDetail is one store with its databases: the answer of /api/v1/stores/….
type StoreDetail struct {
	AsOf        time.Time  `json:"as_of"` // when the look was finished
	StateDir    string     `json:"state_dir"`
	Application string     `json:"application"`
	Running     *bool      `json:"running,omitempty"`
	Task        string     `json:"task"`
	Path        string     `json:"path"`
	Store       Store      `json:"store"`
	Databases   []Database `json:"databases"`
}

// NewStoreDetail gives the form of one store of an application's task.
func NewStoreDetail(asOf time.Time, d *store.StateDir, a *store.Application, t *store.Task, s *store.Store, judged verify.Judged) StoreDetail {
	return StoreDetail{
		AsOf: asOf.UTC(), StateDir: volume.Text(d.Layout.Path), Application: volume.Text(a.Layout.ID), Running: a.Running,
		Task: volume.Text(t.Layout.ID), Path: volume.Text(s.Layout.Path), Store: NewStore(s, judged), Databases: NewDatabases(s),
	}
}

// Database is one RocksDB directory of a store.
type Database struct {
	Path           string    `json:"path"`
	RocksDBVersion string    `json:"rocksdb_version,omitempty"`
	InUse          *bool     `json:"in_use,omitempty"`
	HolderPID      int       `json:"holder_pid,omitempty"`
	Manifest       *Manifest `json:"manifest,omitempty"`
	// RocksDB is what RocksDB itself said of it; absent if it was not asked.
	RocksDB *DatabaseOpinion `json:"rocksdb,omitempty"`
}

// DatabaseOpinion is what RocksDB itself says of one database. Reason and Error
// say why there is nothing else.
type DatabaseOpinion struct {
	AsOf         *time.Time      `json:"as_of,omitempty"`
	Reason       string          `json:"reason,omitempty"`
	Error        string          `json:"error,omitempty"`
	LastSequence *uint64         `json:"last_sequence,omitempty"`
	Families     []FamilyOpinion `json:"column_families,omitempty"`
}

// FamilyOpinion is one column family of a DatabaseOpinion. Properties are by
// their names without "rocksdb.", each in its own unit. Stats is the text of
// rocksdb.stats; every counter in it is that of the reader.
type FamilyOpinion struct {
	Name       string            `json:"name"`
	Entries    *uint64           `json:"entries,omitempty"`
	Deletions  *uint64           `json:"deletions,omitempty"`
	Properties map[string]uint64 `json:"properties"`
	Stats      string            `json:"stats,omitempty"`
}

// AddOpinions adds what RocksDB says of the store and of each of its databases.
func (d *StoreDetail) AddOpinions(s *store.Store, opinions Opinions) {
	d.Store.addOpinion(s, opinions)
	for i, db := range s.Databases {
		if o, ok := opinions(db); ok {
			d.Databases[i].RocksDB = databaseOpinion(&o)
		}
	}
}

func databaseOpinion(o *engine.Opinion) *DatabaseOpinion {
	out := &DatabaseOpinion{}
	if !o.At.IsZero() {
		at := o.At.UTC()
		out.AsOf = &at
	}
	switch {
	case o.Err != nil:
		out.Reason, out.Error = reasonOf(o.Err), o.Err.Error()
	case o.Answer.Error != "":
		out.Reason, out.Error = "refused", volume.Text(o.Answer.Error)
	default:
		out.LastSequence = &o.Answer.LastSequence
		for i := range o.Answer.Families {
			f := &o.Answer.Families[i]
			out.Families = append(out.Families, FamilyOpinion{volume.Text(string(f.Name)), f.Entries, f.Deletions, f.Properties, f.Stats})
		}
	}
	return out
}

// Manifest is one MANIFEST and the state that it tells.
type Manifest struct {
	File           string           `json:"file"`
	SizeBytes      int64            `json:"size_bytes"`
	AllocatedBytes int64            `json:"allocated_bytes"`
	ParsedBytes    int64            `json:"parsed_bytes"`
	Edits          int              `json:"edits"`
	LastSequence   uint64           `json:"last_sequence"`
	NextFile       uint64           `json:"next_file"`
	MinLogToKeep   uint64           `json:"min_log_to_keep,omitempty"`
	DBID           string           `json:"db_id,omitempty"`
	Events         ManifestEvents   `json:"events"`
	Families       []ManifestFamily `json:"column_families"`
}

// ManifestEvents are those since this MANIFEST was begun.
type ManifestEvents struct {
	Flushes                uint64 `json:"flushes"`
	FlushedBytes           uint64 `json:"flushed_bytes"`
	Compactions            uint64 `json:"compactions"`
	CompactionReadBytes    uint64 `json:"compaction_read_bytes"`
	CompactionWrittenBytes uint64 `json:"compaction_written_bytes"`
	TrivialMoves           uint64 `json:"trivial_moves"`
}

// ManifestFamily is a column family in a MANIFEST.
type ManifestFamily struct {
	ID         uint32          `json:"id"`
	Name       string          `json:"name"`
	Comparator string          `json:"comparator,omitempty"`
	LogNumber  uint64          `json:"log_number"`
	Tables     []ManifestTable `json:"tables"`
}

// ManifestTable is a live table as the MANIFEST has it. Entries are those with
// a value; they come from the table itself and are known only for a store.
type ManifestTable struct {
	Number      uint64     `json:"number"`
	Level       int        `json:"level"`
	SizeBytes   uint64     `json:"size_bytes"`
	SmallestSeq uint64     `json:"smallest_sequence"`
	LargestSeq  uint64     `json:"largest_sequence"`
	Created     *time.Time `json:"created,omitempty"`
	Entries     *uint64    `json:"entries,omitempty"`
}

// NewDatabases gives the form of a store's databases.
func NewDatabases(s *store.Store) []Database {
	out := make([]Database, 0, len(s.Databases))
	for _, db := range s.Databases {
		out = append(out, newDatabase(db))
	}
	return out
}

func newDatabase(db *store.Database) Database {
	out := Database{Path: volume.Text(db.Path), RocksDBVersion: volume.Text(db.RocksDBVersion), InUse: db.InUse, HolderPID: db.HolderPID}
	if st, info, ok := db.Manifest(); ok {
		out.Manifest = NewManifest(st, info)
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

// NewManifest gives the form of one MANIFEST.
func NewManifest(st *manifest.State, info volume.Info) *Manifest {
	c := st.Counts
	out := &Manifest{
		File: volume.Text(info.Name), SizeBytes: info.Size, AllocatedBytes: info.Allocated,
		ParsedBytes: st.Size, Edits: st.Edits,
		LastSequence: st.LastSequence, NextFile: st.NextFile, MinLogToKeep: st.MinLogToKeep,
		DBID: volume.Text(st.DBID),
		Events: ManifestEvents{c.Flushes, c.FlushedBytes, c.Compactions, c.CompactionReadBytes,
			c.CompactionWrittenBytes, c.TrivialMoves},
		Families: make([]ManifestFamily, 0, len(st.Families)),
	}
	for i := range st.Families {
		f := &st.Families[i]
		fam := ManifestFamily{ID: f.ID, Name: volume.Text(f.Name), Comparator: volume.Text(f.Comparator), LogNumber: f.LogNumber,
			Tables: make([]ManifestTable, 0, len(f.Files))}
		for j := range f.Files {
			t := &f.Files[j]
			fam.Tables = append(fam.Tables, ManifestTable{Number: t.Number, Level: t.Level, SizeBytes: t.Size,
				SmallestSeq: t.SmallestSeq, LargestSeq: t.LargestSeq, Created: UnixTime(t.CreationTime)})
		}
		out.Families = append(out.Families, fam)
	}
	return out
}

// UnixTime gives a time that RocksDB keeps in seconds since the epoch; nil for
// 0 and for what is no such time.
func UnixTime(seconds uint64) *time.Time {
	const farFuture = 1 << 40 // beyond it the field holds something else
	if seconds == 0 || seconds > farFuture {
		return nil
	}
	t := time.Unix(int64(seconds), 0).UTC()
	return &t
}
