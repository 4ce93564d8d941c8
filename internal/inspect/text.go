package inspect

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"streams-sidecar/internal/report"
)

// WriteText writes the result for a person.
func (r *Result) WriteText(w io.Writer) error {
	p := &printer{w: w}
	p.line("%s", r.Path)
	p.field("kind", string(r.Kind))
	if r.Bytes != nil {
		p.field("size", report.Bytes(*r.Bytes))
	}
	if r.Note != "" {
		p.field("note", r.Note)
	}
	switch {
	case r.Store != nil:
		p.store(r.Store, r.Databases)
	case r.Task != nil:
		p.task(r.Task)
	case r.Manifest != nil:
		p.manifest(r.Manifest, "")
	case r.Table != nil:
		p.table(r.Table)
	case r.Options != nil:
		p.options(r.Options)
	case r.Points != "":
		p.field("points to", r.Points)
	case r.ProcessID != "":
		p.field("process id", r.ProcessID)
	case r.Checkpoint != nil:
		p.entries(r.Checkpoint)
	}
	for i := range r.Findings {
		p.line("")
		report.WriteFinding(p, &r.Findings[i])
	}
	return p.err
}

type printer struct {
	w   io.Writer
	err error
}

// WriteString implements io.StringWriter and remembers the first error.
func (p *printer) WriteString(s string) (int, error) {
	if p.err == nil {
		_, p.err = io.WriteString(p.w, s)
	}
	return len(s), p.err
}

func (p *printer) line(format string, args ...any) {
	_, _ = p.WriteString(strings.TrimRight(fmt.Sprintf(format, args...), " ") + "\n") // p keeps the error
}

// field writes "  name  value" for what is known.
func (p *printer) field(name, value string) {
	if value != "" {
		p.line("  %-16s %s", name, value)
	}
}

func (p *printer) store(s *report.Store, dbs []report.Database) {
	p.field("store", s.Name)
	p.field("store kind", s.Kind)
	p.field("era", s.Era)
	p.field("verdict", s.Verdict)
	p.field("lock", report.Lock(s.InUse))
	p.field("status", s.Status)
	p.field("closed", s.Closed)
	if s.SizeBytes != nil {
		p.field("size", report.Bytes(*s.SizeBytes))
		p.field("wal", fmt.Sprintf("%s, %s", report.Plural(*s.WAL.Files, "file"), report.Bytes(*s.WAL.SizeBytes)))
	}
	for _, o := range s.Offsets {
		p.field("offset", fmt.Sprintf("%s-%d = %d (%s)", o.Topic, o.Partition, o.Offset, o.Meaning))
	}
	for i := range s.Families {
		f := &s.Families[i]
		entries := "entries unknown"
		if f.Entries != nil {
			entries = fmt.Sprintf("%d entries", *f.Entries)
		}
		p.field("column family", fmt.Sprintf("%s: %d tables, %s, %s", f.Name, f.Files, report.Bytes(f.SizeBytes), entries))
	}
	for i := range dbs {
		p.line("")
		p.line("  %s", dbs[i].Path)
		p.field("written by", version(dbs[i].RocksDBVersion))
		if dbs[i].HolderPID != 0 {
			p.field("held by", fmt.Sprintf("process %d", dbs[i].HolderPID))
		}
		if m := dbs[i].Manifest; m != nil {
			p.manifest(m, "  ")
		}
	}
}

func version(v string) string {
	if v == "" {
		return ""
	}
	return "RocksDB " + v
}

func (p *printer) task(t *report.Task) {
	p.field("task", t.ID)
	p.field("era", t.Era)
	p.field("verdict", t.Verdict)
	switch c := t.Checkpoint; {
	case c.Present == nil:
		p.field(".checkpoint", "unknown")
	case !*c.Present:
		p.field(".checkpoint", "none")
	case c.MTime != nil:
		p.field(".checkpoint", fmt.Sprintf("%d entries, of %s", len(c.Entries), c.MTime.Format("2006-01-02 15:04:05 MST")))
	default:
		p.field(".checkpoint", "cannot be parsed")
	}
	p.entries(t.Checkpoint.Entries)
	for i := range t.Stores {
		s := &t.Stores[i]
		size := "size unknown"
		if s.SizeBytes != nil {
			size = report.Bytes(*s.SizeBytes)
		}
		p.field("store", strings.Join(slices.DeleteFunc([]string{s.Name, s.Kind, size, s.Verdict, s.Closed},
			func(x string) bool { return x == "" }), ", "))
	}
}

func (p *printer) entries(es []report.CheckpointEntry) {
	for _, e := range es {
		note := ""
		if e.Offset < 0 {
			note = " (unknown)"
		}
		p.field("offset", fmt.Sprintf("%s-%d = %d%s", e.Topic, e.Partition, e.Offset, note))
	}
}

func (p *printer) manifest(m *report.Manifest, indent string) {
	line := func(format string, args ...any) { p.line("%s  "+format, append([]any{indent}, args...)...) }
	line("%s: %s, %s allocated, %d edits in %d bytes", m.File, report.Bytes(m.SizeBytes), report.Bytes(m.AllocatedBytes), m.Edits, m.ParsedBytes)
	line("last sequence %d, next file %d", m.LastSequence, m.NextFile)
	e := m.Events
	line("since it was begun: %d flushes (%s), %d compactions (%s read, %s written), %d moves", e.Flushes,
		report.Bytes(int64(e.FlushedBytes)), e.Compactions, report.Bytes(int64(e.CompactionReadBytes)),
		report.Bytes(int64(e.CompactionWrittenBytes)), e.TrivialMoves)
	for i := range m.Families {
		f := &m.Families[i]
		line("column family %d %s, log number %d", f.ID, f.Name, f.LogNumber)
		for _, t := range f.Tables {
			entries := ""
			if t.Entries != nil {
				entries = fmt.Sprintf(", %d entries", *t.Entries)
			}
			line("  L%d  %06d.sst  %10s  sequences %d–%d%s", t.Level, t.Number, report.Bytes(int64(t.SizeBytes)), t.SmallestSeq, t.LargestSeq, entries)
		}
	}
}

func (p *printer) table(t *Table) {
	p.field("format", fmt.Sprintf("version %d, checksum %s", t.FormatVersion, t.Checksum))
	p.field("column family", t.ColumnFamily)
	p.field("entries", fmt.Sprintf("%d, of them %d deletions", t.Entries, t.Deletions))
	p.field("data", fmt.Sprintf("%s in %d blocks", report.Bytes(int64(t.DataBytes)), t.DataBlocks))
	p.field("index, filter", fmt.Sprintf("%s, %s", report.Bytes(int64(t.IndexBytes)), report.Bytes(int64(t.FilterBytes))))
	p.field("comparator", t.Comparator)
	p.field("compression", t.Compression)
	if t.Created != nil {
		p.field("created", t.Created.Format("2006-01-02 15:04:05 MST"))
	}
	p.field("host", t.Host)
	for _, k := range t.Offsets {
		value := fmt.Sprintf("%d bytes", k.Bytes)
		if k.Value != nil {
			value = fmt.Sprintf("%d", int64(*k.Value))
		}
		p.field("key", fmt.Sprintf("%s = %s (%s, sequence %d)", k.Key, value, k.Type, k.Sequence))
	}
}

func (p *printer) options(o *Options) {
	p.field("written by", version(o.RocksDBVersion))
	p.group("database", o.DB)
	for i := range o.Families {
		p.group("column family "+o.Families[i].Name, o.Families[i].Options)
		p.group("tables of "+o.Families[i].Name, o.Families[i].Table)
	}
}

func (p *printer) group(title string, m map[string]string) {
	p.line("")
	p.line("  %s", title)
	for _, k := range slices.Sorted(maps.Keys(m)) {
		p.line("    %s=%s", k, m[k])
	}
}
