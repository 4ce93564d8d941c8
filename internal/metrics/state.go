package metrics

import (
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"streams-sidecar/internal/consult"
	"streams-sidecar/internal/probe"
	"streams-sidecar/internal/scrub"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/verify"
	"streams-sidecar/internal/volume"
)

// family is one mirrored metric: what it is and how a picture is turned into
// its samples.
type family struct {
	name    string
	counter bool
	help    string
	write   func(*page)
}

// families of the mirrored series, in the order of the output.
var families = []family{
	{"kstreams_sidecar_scan_duration_seconds", false, "How long the last full look at every state directory took.",
		func(p *page) { p.sample("").float(p.snap.ScanTook.Seconds()) }},
	{"kstreams_sidecar_watcher_mode", false, "1 for the way in which changes of the files are noticed now, 0 for the other.",
		func(p *page) {
			for _, m := range []probe.Mode{probe.Inotify, probe.Poll} {
				p.sample(label("mode", string(m))).truth(m == p.snap.Mode)
			}
		}},
	{"kstreams_volume_free_bytes", false, "Bytes that the application may still write on the volume of this state directory.",
		usage(func(p *page, u *volume.Usage) { p.int(u.Free) })},
	{"kstreams_volume_size_bytes", false, "Size of the volume of this state directory.",
		usage(func(p *page, u *volume.Usage) { p.int(u.Size) })},
	{"kstreams_volume_free_inodes", false, "Free inodes of the volume; absent on file systems that have no fixed number.",
		usage(func(p *page, u *volume.Usage) {
			if u.InodesKnown {
				p.uint(u.FreeInodes)
			}
		})},
	{"kstreams_volume_read_only", false, "1 if the file system of this state directory is mounted read-only.",
		usage(func(p *page, u *volume.Usage) { p.truth(u.ReadOnly) })},
	{"kstreams_state_dir_info", false, "Always 1; the label is the type of the file system.",
		func(p *page) {
			for _, d := range p.snap.StateDirs {
				if u := d.Layout.Usage; u != nil {
					p.sample(label("file_system", u.Type) + "," + label("state_dir", volume.Text(d.Layout.Path))).int(1)
				}
			}
		}},
	{"kstreams_state_dir_present", false, "1 if the state directory exists; absent if that could not be asked.",
		func(p *page) {
			for _, d := range p.snap.StateDirs {
				if d.Layout.Missing || d.Layout.ID != (volume.ID{}) {
					p.sample(label("state_dir", volume.Text(d.Layout.Path))).truth(!d.Layout.Missing)
				}
			}
		}},
	{"kstreams_sidecar_muted_directories", false, "Directories that are polled for a while because they raise too many file events.",
		func(p *page) { p.sample("").int(int64(p.snap.Muted)) }},

	{"kstreams_app_running", false, "1 if a process holds the application's .lock, 0 if nobody does.",
		func(p *page) {
			for i := range p.apps {
				if r := p.apps[i].app.Running; r != nil {
					p.at(&p.apps[i].place).truth(*r)
				}
			}
		}},
	{"kstreams_task_checkpoint_present", false, "1 if the task has a .checkpoint file.",
		func(p *page) {
			for i := range p.tasks {
				if c := p.tasks[i].task.Layout.CheckpointPresent; c != nil {
					p.at(&p.tasks[i].place).truth(*c)
				}
			}
		}},
	{"kstreams_task_checkpoint_timestamp_seconds", false, "When the task's .checkpoint was last replaced.",
		func(p *page) {
			for i := range p.tasks {
				if c := p.tasks[i].task.Layout.Checkpoint; c != nil {
					p.at(&p.tasks[i].place).nanos(c.ModNanos)
				}
			}
		}},

	{"kstreams_store_up", false, "1 if the last look at this store read all that it needed.",
		stores(func(p *page, s *store.Store) { p.truth(s.Up) })},
	{"kstreams_store_verdict", false, "1 for the verdict on the store, 0 for the others.",
		func(p *page) {
			for i := range p.stores {
				s := &p.stores[i]
				for _, v := range verify.Verdicts() {
					p.behind(&s.place, "verdict", string(v)).truth(v == s.judged.Verdict)
				}
			}
		}},
	{"kstreams_store_finding", false, "How many findings of this code and severity there are about the store.",
		func(p *page) {
			for i := range p.stores {
				p.findings(&p.stores[i].place, p.stores[i].judged.Findings)
			}
		}},
	{"kstreams_task_finding", false, "How many findings of this code and severity there are about the task itself.",
		func(p *page) {
			for i := range p.tasks {
				p.findings(&p.tasks[i].place, p.tasks[i].judged.Findings)
			}
		}},
	{"kstreams_app_finding", false, "How many findings of this code and severity there are about the application itself.",
		func(p *page) {
			for i := range p.apps {
				p.findings(&p.apps[i].place, p.apps[i].judged.Findings)
			}
		}},
	{"kstreams_store_verified_timestamp_seconds", false, "When the store's tables were last verified at this depth, of several segments the longest ago; absent as long as one of them was not.",
		func(p *page) {
			for i := range p.stores {
				for _, d := range []verify.Depth{verify.Deep, verify.Quick} {
					if at, ok := p.verifiedAt(p.stores[i].store, d); ok {
						p.between(&p.stores[i].place, "depth", string(d)).nanos(at.UnixNano())
					}
				}
			}
		}},
	{"kstreams_store_open", false, "1 if a process holds a RocksDB LOCK of this store.",
		stores(func(p *page, s *store.Store) { p.maybe(s.InUse) })},
	{"kstreams_store_size_bytes", false, "Bytes of the store's files, by kind of file.",
		func(p *page) {
			for i := range p.stores {
				s := p.stores[i].store
				if !s.Listed {
					continue
				}
				for _, k := range []struct {
					kind  string
					bytes int64
				}{{"sst", s.Sizes.SST}, {"wal", s.Sizes.WAL}, {"log", s.Sizes.Log}, {"manifest", s.Sizes.Manifest}, {"other", s.Sizes.Other}} {
					p.between(&p.stores[i].place, "kind", k.kind).int(k.bytes)
				}
			}
		}},
	{"kstreams_store_segments", false, "Segment databases of a window or session store.",
		stores(func(p *page, s *store.Store) {
			if s.Layout.Segmented {
				p.int(int64(s.Segments))
			}
		})},
	{"kstreams_store_changelog_offset", false, "Durable changelog offset: of the last record applied, for global stores of the next one.",
		func(p *page) {
			for i := range p.stores {
				for _, o := range p.stores[i].store.Offsets {
					p.offset(&p.stores[i].place, o)
				}
			}
		}},

	{"rocksdb_live_sst_files", false, "Tables that the MANIFEST names.",
		manifests(func(p *page, s *store.Store) {
			n := 0
			for i := range s.Families {
				n += s.Families[i].Files
			}
			p.int(int64(n))
		})},
	{"rocksdb_live_sst_files_size_bytes", false, "Bytes of the tables that the MANIFEST names.",
		manifests(func(p *page, s *store.Store) {
			var n int64
			for i := range s.Families {
				n += s.Families[i].Bytes
			}
			p.int(n)
		})},
	{"rocksdb_num_files_at_level", false, "Tables at this level, all column families together; levels without tables are absent.",
		func(p *page) {
			for i := range p.stores {
				p.levels(&p.stores[i])
			}
		}},
	{"kstreams_store_manifest_lag_seconds", false, "How much younger the youngest table file is than the MANIFEST; 0 if it is not. Tables that are written for long without a word in the MANIFEST would be lost.",
		stores(func(p *page, s *store.Store) {
			if lag, ok := s.ManifestLag(); ok {
				p.float(lag)
			}
		})},
	{"rocksdb_latest_sequence_number", false, "Last sequence number of the flushed state, summed over segments.",
		manifests(func(p *page, s *store.Store) { p.uint(*s.LastSequence) })},
	{"rocksdb_flushes_total", true, "Memtable flushes, one for each column family and table, counted from MANIFEST edits.",
		manifests(func(p *page, s *store.Store) { p.uint(s.Counts.Flushes) })},
	{"rocksdb_flushed_bytes_total", true, "Bytes of the tables written by flushes.",
		manifests(func(p *page, s *store.Store) { p.uint(s.Counts.FlushedBytes) })},
	{"rocksdb_compactions_total", true, "Compactions, counted from MANIFEST edits; moves without rewriting are none.",
		manifests(func(p *page, s *store.Store) { p.uint(s.Counts.Compactions) })},
	{"rocksdb_compaction_read_bytes_total", true, "Bytes of the tables that compactions replaced.",
		manifests(func(p *page, s *store.Store) { p.uint(s.Counts.CompactionReadBytes) })},
	{"rocksdb_compaction_written_bytes_total", true, "Bytes of the tables that compactions wrote.",
		manifests(func(p *page, s *store.Store) { p.uint(s.Counts.CompactionWrittenBytes) })},

	{"rocksdb_wal_files", false, "Write-ahead log files, empty ones too.",
		stores(func(p *page, s *store.Store) {
			if s.Listed {
				p.int(int64(s.WALFiles))
			}
		})},
	{"rocksdb_wal_size_bytes", false, "Bytes in write-ahead log files; stock Kafka Streams writes none.",
		stores(func(p *page, s *store.Store) {
			if s.Listed {
				p.int(s.Sizes.WAL)
			}
		})},
	{"rocksdb_wal_last_write_timestamp_seconds", false, "When a write-ahead log with bytes was last written; absent if none has bytes.",
		stores(func(p *page, s *store.Store) {
			if s.WALWritten > 0 {
				p.nanos(s.WALWritten)
			}
		})},
	{"rocksdb_wal_enabled", false, "1 once bytes were seen in a write-ahead log, 0 after a flush during which it stayed empty, absent until then.",
		stores(func(p *page, s *store.Store) { p.maybe(s.WALEnabled) })},

	{"rocksdb_estimate_num_keys", false, "Keys, as RocksDB itself estimates them from the flushed state, all column families together.",
		opinions(func(p *page, t *consult.Total) { p.known(t.EstimateNumKeys) })},
	{"rocksdb_estimate_live_data_size_bytes", false, "Bytes of live data, as RocksDB itself estimates them from the flushed state.",
		opinions(func(p *page, t *consult.Total) { p.known(t.EstimateLiveDataSize) })},
	{"rocksdb_table_entries", false, "Entries in the live tables with their tombstones, from RocksDB itself.",
		opinions(func(p *page, t *consult.Total) { p.known(t.Entries) })},
	{"rocksdb_table_deletions", false, "Tombstones in the live tables, from RocksDB itself.",
		opinions(func(p *page, t *consult.Total) { p.known(t.Deletions) })},
	{"rocksdb_num_blob_files", false, "Live blob files, from RocksDB itself; stock Kafka Streams has none.",
		opinions(func(p *page, t *consult.Total) { p.known(t.BlobFiles) })},
	{"rocksdb_live_blob_file_size_bytes", false, "Bytes of live blob files, from RocksDB itself.",
		opinions(func(p *page, t *consult.Total) { p.known(t.LiveBlobSize) })},
	{"rocksdb_live_blob_file_garbage_size_bytes", false, "Bytes of garbage in live blob files, from RocksDB itself.",
		opinions(func(p *page, t *consult.Total) { p.known(t.LiveBlobGarbage) })},
	{"kstreams_store_rocksdb_timestamp_seconds", false, "When RocksDB itself was asked about this store, of several segments the longest ago; absent as long as there is no answer.",
		opinions(func(p *page, t *consult.Total) { p.nanos(t.At.UnixNano()) })},
}

// usage, stores and manifests give the write function of a metric that has one
// sample for each volume, store, or store whose MANIFESTs could be parsed.
// value writes the sample's value, or nothing if there is none.
func usage(value func(*page, *volume.Usage)) func(*page) {
	return func(p *page) {
		for _, d := range p.snap.StateDirs {
			if d.Layout.Usage != nil {
				p.sample(label("state_dir", volume.Text(d.Layout.Path)))
				value(p, d.Layout.Usage)
			}
		}
	}
}

func stores(value func(*page, *store.Store)) func(*page) {
	return func(p *page) {
		for i := range p.stores {
			p.at(&p.stores[i].place)
			value(p, p.stores[i].store)
		}
	}
}

func manifests(value func(*page, *store.Store)) func(*page) {
	return func(p *page) {
		for i := range p.stores {
			if p.stores[i].store.Whole {
				p.at(&p.stores[i].place)
				value(p, p.stores[i].store)
			}
		}
	}
}

func opinions(value func(*page, *consult.Total)) func(*page) {
	return func(p *page) {
		for i := range p.stores {
			if t := p.stores[i].total; t != nil {
				p.at(&p.stores[i].place)
				value(p, t)
			}
		}
	}
}

// place is the labels of an application, task or store, rendered once: before
// is application_id, after is what sorts behind labels such as kind and level.
type place struct{ before, after string }

type (
	appRow struct {
		place
		app    *store.Application
		judged verify.Judged
	}
	taskRow struct {
		place
		task   *store.Task
		judged verify.Judged
	}
	storeRow struct {
		place
		store  *store.Store
		judged verify.Judged
		total  *consult.Total // nil if RocksDB has given no answer
	}
)

// page is one scrape under way. Lines are gathered in buf and handed on in
// blocks, so that a scrape takes little memory however many series there are.
type page struct {
	out  io.Writer
	err  error
	buf  []byte
	name string // of the current family's samples

	// pending is where the sample under construction begins, -1 for none.
	pending int
	samples int // of the current family

	snap  *probe.Snapshot
	rocks *consult.Consultant // nil if RocksDB is not asked
	// verified is nil if nothing is verified.
	verified *scrub.Scrubber
	apps     []appRow
	tasks    []taskRow
	stores   []storeRow
}

const block = 32 << 10

// writeState renders the picture; nothing if there is none yet.
func writeState(out io.Writer, snap *probe.Snapshot, cfg *Config, openMetrics bool) error {
	if snap == nil {
		return nil
	}
	p := &page{out: out, buf: make([]byte, 0, block+4<<10), snap: snap, rocks: cfg.RocksDB, verified: cfg.Verified}
	p.rows(cfg.StateDirs > 1)
	for i := range families {
		p.family(&families[i], openMetrics)
	}
	p.flush()
	return p.err
}

func (p *page) rows(byDir bool) {
	for _, d := range p.snap.StateDirs {
		dir := ""
		if byDir {
			dir = "," + label("state_dir", volume.Text(d.Layout.Path))
		}
		for _, a := range d.Applications {
			before := label("application_id", volume.Text(a.Layout.ID))
			p.apps = append(p.apps, appRow{place{before, dir}, a, p.snap.Judgement.Application(a)})
			for _, t := range a.Tasks {
				// An empty directory is a leftover, not a store of size zero.
				if t.Empty {
					continue
				}
				task := "," + label("task_id", volume.Text(t.Layout.ID))
				p.tasks = append(p.tasks, taskRow{place{before, dir + task}, t, p.snap.Judgement.Task(t)})
				for i, s := range t.Stores {
					// Of two stores of one name the first is exported; there is
					// a finding.
					twice := slices.ContainsFunc(t.Stores[:i], func(o *store.Store) bool { return o.Name == s.Name })
					if !s.Empty && !twice {
						p.stores = append(p.stores, storeRow{place{before, dir + "," + label("store", volume.Text(s.Name)) + task}, s, p.judged(s), p.total(s)})
					}
				}
			}
		}
	}
}

func (p *page) total(s *store.Store) *consult.Total {
	if p.rocks == nil {
		return nil
	}
	return p.rocks.Total(s)
}

func (p *page) family(f *family, openMetrics bool) {
	head := f.name
	if openMetrics {
		head = strings.TrimSuffix(head, "_total")
	}
	begin := len(p.buf)
	p.buf = append(p.buf, "# HELP "+head+" "+f.help+"\n# TYPE "+head...)
	if f.counter {
		p.buf = append(p.buf, " counter\n"...)
	} else {
		p.buf = append(p.buf, " gauge\n"...)
	}
	p.name, p.pending, p.samples = f.name, -1, 0
	f.write(p)
	p.drop()
	if p.samples == 0 { // then nothing was handed on either
		p.buf = p.buf[:begin]
	}
}

// A sample is begun with its labels and ends with its value; one that gets no
// value is taken back by the next.

func (p *page) drop() {
	if p.pending >= 0 {
		p.buf = p.buf[:p.pending]
		p.pending = -1
	}
}

func (p *page) begin() {
	p.drop()
	p.pending = len(p.buf)
	p.buf = append(p.buf, p.name...)
}

func (p *page) sample(labels string) *page {
	p.begin()
	if labels != "" {
		p.buf = append(append(append(p.buf, '{'), labels...), '}')
	}
	return p
}

func (p *page) at(l *place) *page {
	p.begin()
	p.buf = append(append(append(append(p.buf, '{'), l.before...), l.after...), '}')
	return p
}

func (p *page) between(l *place, name, value string) *page {
	p.begin()
	p.buf = append(append(append(p.buf, '{'), l.before...), ',')
	p.buf = append(append(append(append(p.buf, name...), `="`...), value...), '"')
	p.buf = append(append(p.buf, l.after...), '}')
	return p
}

func (p *page) behind(l *place, name, value string) *page {
	p.begin()
	p.buf = append(append(append(append(p.buf, '{'), l.before...), l.after...), ',')
	p.buf = append(append(append(append(p.buf, name...), `="`...), value...), '"', '}')
	return p
}

func (p *page) offset(l *place, o store.Offset) {
	p.begin()
	p.buf = append(append(p.buf, '{'), l.before...)
	p.buf = append(strconv.AppendInt(append(p.buf, `,partition="`...), int64(o.Partition), 10), '"')
	p.buf = append(append(p.buf, l.after...), ',')
	p.buf = append(append(p.buf, label("topic", volume.Text(o.Topic))...), '}')
	p.int(o.Offset)
}

func (p *page) levels(r *storeRow) {
	if !r.store.Whole {
		return
	}
	// Levels are few; RocksDB's default is seven.
	var counts [64]int
	for i := range r.store.Families {
		for _, l := range r.store.Families[i].Levels {
			counts[min(max(l.Level, 0), len(counts)-1)] += l.Files
		}
	}
	for level, n := range counts {
		if n > 0 {
			p.between(&r.place, "level", strconv.Itoa(level)).int(int64(n))
		}
	}
}

func (p *page) int(v int64)   { p.value(strconv.AppendInt(append(p.buf, ' '), v, 10)) }
func (p *page) uint(v uint64) { p.value(strconv.AppendUint(append(p.buf, ' '), v, 10)) }

func (p *page) float(v float64) { p.value(strconv.AppendFloat(append(p.buf, ' '), v, 'g', -1, 64)) }

func (p *page) nanos(v int64) { p.float(float64(v) / float64(time.Second)) }

func (p *page) truth(b bool) {
	if b {
		p.int(1)
	} else {
		p.int(0)
	}
}

func (p *page) maybe(b *bool) {
	if b != nil {
		p.truth(*b)
	}
}

func (p *page) known(v *uint64) {
	if v != nil {
		p.uint(*v)
	}
}

func (p *page) value(buf []byte) {
	p.buf = append(buf, '\n')
	p.pending = -1
	p.samples++
	if len(p.buf) >= block {
		p.flush()
	}
}

func (p *page) flush() {
	if p.err == nil {
		_, p.err = p.out.Write(p.buf)
	}
	p.buf = p.buf[:0]
}

var labelEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// label renders name="value" as the text formats want it.
func label(name, value string) string { return name + `="` + labelEscapes.Replace(value) + `"` }
