package verify

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/rocksfile/manifest"
	"streams-sidecar/internal/rocksfile/record"
	"streams-sidecar/internal/rocksfile/sst"
	"streams-sidecar/internal/statedir"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
)

// maxStray is the largest table that is read to tell whether its content is
// anywhere else, bytes. A flush of Kafka Streams writes 16 MiB.
const maxStray = 256 << 20

// others checks what is in a database's directory beside its live tables.
func (c *checker) others(s *Subject, db *store.Database) (o outcome) {
	if c.ctx.Err() != nil {
		return outcome{aborted: true}
	}
	atRest := db.InUse != nil && !*db.InUse
	if strays, _ := db.Strays(); len(db.WALs())+len(db.Logs()) == 0 && (!atRest || len(strays) == 0) {
		return outcome{}
	}
	o, err := volume.Do(s.Volume, db.Path, func(fs volume.FS) (o outcome, err error) {
		for _, w := range db.WALs() {
			path := filepath.Join(db.Path, w.Name)
			o.volume(path, o.wal(fs, path))
		}
		for _, l := range db.Logs() {
			path := filepath.Join(db.Path, l.Name)
			o.volume(path, o.log(fs, path))
		}
		// In a database that is in use they are on their way in or out.
		if atRest {
			o.volume(db.Path, o.strays(c.ctx, fs, s, db))
		}
		return o, nil
	})
	if err != nil {
		o.findings = append(o.findings, finding.FromError(err, db.Path))
	}
	return o
}

// volume adds the finding for an error of the volume; what is gone is none.
func (o *outcome) volume(path string, err error) {
	if err != nil && !volume.IsGone(err) {
		o.findings = append(o.findings, finding.FromError(err, path))
	}
}

// wal tells a write-ahead log from other bytes by its first record. What it says
// is another matter.
func (o *outcome) wal(fs volume.FS, path string) error {
	f, err := fs.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if f.Info().Size == 0 {
		return nil
	}
	number, _ := walNumber(path)
	r := record.NewReader(f, 0, f.Info().Size)
	r.AllowRecycled(number, false)
	_, err = r.Next()
	e, ours := errors.AsType[*record.Error](err)
	switch {
	case err == nil, ours && (e.Kind == record.Compressed || e.Kind == record.TooLong || e.Tail() && begins(f)):
		o.findings = append(o.findings, finding.New(finding.WALNotEmpty, path, finding.Found("%d bytes", f.Info().Size)))
		return nil
	case ours:
		o.findings = append(o.findings, finding.New(finding.WALGarbage, path, finding.At(e.Offset), finding.Expected("a record"), finding.Found("%s", e.Found)))
		return nil
	case errors.Is(err, io.EOF): // nothing but zeros, which an interrupted write leaves
		return nil
	}
	return err
}

// begins says that a file begins with the header of a record, as a log whose
// first record was not written to its end does.
func begins(f volume.File) bool {
	var header [7]byte // checksum, length, type (RocksDB db/log_format.h)
	n, _ := f.ReadAt(header[:], 0)
	return n < len(header) || slices.Contains([]byte{1, 2, 5, 6, 9, 10, 11, 130, 131}, header[6])
}

// strays judges the tables that the MANIFEST does not name: the rest of a flush
// or compaction that was interrupted, or data that the MANIFEST has lost.
func (o *outcome) strays(ctx context.Context, fs volume.FS, s *Subject, db *store.Database) error {
	state, info, ok := db.Manifest()
	strays, more := db.Strays()
	// Where RocksDB refuses to open the database, no open deletes them.
	if !ok || len(strays) == 0 || !db.WholeManifest() && !db.PartialTail() {
		return nil
	}
	path := filepath.Join(db.Path, info.Name)
	numbers := map[uint64]bool{}
	for _, i := range strays {
		if n, ok := tableNumber(i.Name); ok {
			numbers[n] = true
		}
	}
	f, err := fs.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	replaced, err := manifest.Replaced(f, state.Size, numbers)
	if err != nil {
		return err
	}
	for _, i := range strays {
		if ctx.Err() != nil {
			o.aborted = true
			return nil
		}
		path := filepath.Join(db.Path, i.Name)
		n, _ := tableNumber(i.Name)
		what := "it was replaced by a compaction"
		if !replaced[n] {
			if what, err = content(fs, path, state); err != nil {
				o.volume(path, err)
				continue
			}
		}
		if what == "" {
			if lost, why := s.lost(db, i.ModNanos); lost {
				o.findings = append(o.findings, finding.New(finding.SSTUnreferenced, path,
					finding.Expected("a MANIFEST that names it: %s", why), finding.Found("%d bytes", i.Size)))
				continue
			}
			what = "it is complete, and nothing tells that its flush was"
		}
		o.findings = append(o.findings, finding.New(finding.SSTOrphan, path, finding.Found("%d bytes; %s", i.Size, what)))
	}
	if more > 0 {
		o.findings = append(o.findings, finding.New(finding.SSTOrphan, db.Path, finding.Found("%d more tables that the MANIFEST does not name, older ones, which were not looked at", more)))
	}
	return nil
}

// content says why nothing would be missed with a table that the MANIFEST does
// not name, "" if it holds what no live table does. Flushes of a family have
// sequence numbers of their own, and a compaction keeps them within its inputs'
// range.
func content(fs volume.FS, path string, state *manifest.State) (string, error) {
	f, err := fs.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	t, err := sst.Open(f, f.Info().Size)
	if err != nil {
		if _, ours := errors.AsType[*sst.Error](err); ours {
			return "it is not complete", nil
		}
		return "", err
	}
	if f.Info().Size > maxStray {
		return "", nil
	}
	v, err := t.Verify(sst.Entries)
	switch {
	case err != nil:
		return "", err
	case len(v.Errors) > 0 && v.Entries+v.RangeDeletions == 0:
		return "nothing in it can be read", nil
	case v.Entries+v.RangeDeletions == 0:
		return "it has no entries", nil
	case v.LargestSequence == 0:
		return "it is the output of a compaction, whose inputs are judged by themselves", nil
	}
	p := t.Properties()
	for i := range state.Families {
		if p.ColumnFamilyKnown && state.Families[i].ID != p.ColumnFamilyID {
			continue
		}
		if slices.ContainsFunc(state.Families[i].Files, func(l manifest.File) bool {
			return l.SmallestSeq <= v.LargestSequence && v.LargestSequence <= l.LargestSeq
		}) {
			return "live tables have what it holds", nil
		}
	}
	return "", nil
}

// lost says whether the flush that wrote a table at a time, nanoseconds, was
// completed, so that the MANIFEST must have named the table, and why that is known.
func (s *Subject) lost(db *store.Database, written int64) (bool, string) {
	if db.PartialTail() {
		return true, "its end is lost"
	}
	if t := s.Task; t != nil && t.Layout.Checkpoint != nil && s.Store.Era != store.OffsetsCF {
		// Kafka Streams writes the .checkpoint only when every flush has returned.
		c := t.Layout.Checkpoint
		if c.ModNanos >= written && slices.ContainsFunc(c.Entries, func(e statedir.Offset) bool { return e.Offset >= 0 }) {
			return true, "the .checkpoint was written after the table"
		}
	}
	// A close, clean or not, waits for flushes and cuts the MANIFEST. A copy has lost
	// what tells it; but one that keeps the times shows which of the two is older.
	l := s.Dir.Layout
	if u := l.Usage; !db.Preallocated() && db.ManifestWritten() >= written && u != nil && slices.Contains(preallocating, u.Type) &&
		(l.ID == volume.ID{} || l.ID.Dev == db.DirID.Dev) {
		return true, "RocksDB has closed the database after it"
	}
	return false, ""
}

// preallocating are the file systems on which RocksDB was seen to preallocate
// its MANIFEST (measured with 4.4.0).
var preallocating = []string{"ext4", "xfs", "btrfs", "tmpfs", "overlay"}

func tableNumber(name string) (uint64, bool) { return store.FileNumber(name, ".sst") }

func walNumber(path string) (uint64, bool) { return store.FileNumber(filepath.Base(path), ".log") }
