// Package metrics is what Prometheus sees: collectors over the picture that
// probe keeps. Nothing on the scrape path touches the volume; a value that is
// not known is absent, and what has vanished from the picture is gone from the
// next scrape.
package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"streams-sidecar/internal/probe"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
)

// Source gives the current picture, nil before the first look is done.
type Source func() *probe.Snapshot

// Prestop are the numbers of the preStop gate.
type Prestop struct {
	Requests map[string]uint64 // calls answered, by outcome; every outcome is there
	Waited   time.Duration     // of the running call so far, else of the last one
	Any      bool              // false before the first call
}

// NewRegistry gives a registry with the collectors of this process, of the
// picture and of the gate. With several state directories every series of an
// application carries a label state_dir: the same application id may be in two
// of them.
func NewRegistry(version, goVersion string, stateDirs int, source Source, prestop func() Prestop) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kstreams_sidecar_build_info",
		Help: "Always 1; the labels are the version of the sidecar and of Go.",
	}, []string{"version", "goversion"})
	build.WithLabelValues(version, goVersion).Set(1)
	reg.MustRegister(
		build,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		newState(source, stateDirs > 1),
		newGate(prestop),
	)
	return reg
}

// state mirrors the picture as const metrics.
type state struct {
	source Source
	byDir  bool

	volumeFree, volumeSize, volumeInodes *prometheus.Desc
	watcherMode, scanDuration            *prometheus.Desc

	appRunning                                 *prometheus.Desc
	checkpointPresent, checkpointTimestamp     *prometheus.Desc
	storeUp, storeOpen, storeSize, segments    *prometheus.Desc
	changelogOffset                            *prometheus.Desc
	liveFiles, liveBytes, filesAtLevel         *prometheus.Desc
	sequence                                   *prometheus.Desc
	flushes, flushedBytes                      *prometheus.Desc
	compactions, compactionRead, compactionOut *prometheus.Desc
	walFiles, walSize, walWritten, walEnabled  *prometheus.Desc
}

func newState(source Source, byDir bool) *state {
	s := &state{source: source, byDir: byDir}
	var app []string
	if byDir {
		app = append(app, "state_dir")
	}
	app = append(app, "application_id")
	task := append(app[:len(app):len(app)], "task_id")
	st := append(task[:len(task):len(task)], "store")
	desc := func(name, help string, labels []string, more ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append(labels[:len(labels):len(labels)], more...), nil)
	}
	dir := []string{"state_dir"}
	s.volumeFree = desc("kstreams_volume_free_bytes", "Bytes that the application may still write on the volume of this state directory.", dir)
	s.volumeSize = desc("kstreams_volume_size_bytes", "Size of the volume of this state directory.", dir)
	s.volumeInodes = desc("kstreams_volume_free_inodes", "Free inodes of the volume; absent on file systems that have no fixed number.", dir)
	s.watcherMode = desc("kstreams_sidecar_watcher_mode", "1 for the way in which changes of the files are noticed now, 0 for the other.", nil, "mode")
	s.scanDuration = desc("kstreams_sidecar_scan_duration_seconds", "How long the last full look at every state directory took.", nil)

	s.appRunning = desc("kstreams_app_running", "1 if a process holds the application's .lock, 0 if nobody does.", app)
	s.checkpointPresent = desc("kstreams_task_checkpoint_present", "1 if the task has a .checkpoint file.", task)
	s.checkpointTimestamp = desc("kstreams_task_checkpoint_timestamp_seconds", "When the task's .checkpoint was last replaced.", task)
	s.storeUp = desc("kstreams_store_up", "1 if the last look at this store read all that it needed.", st)
	s.storeOpen = desc("kstreams_store_open", "1 if a process holds a RocksDB LOCK of this store.", st)
	s.storeSize = desc("kstreams_store_size_bytes", "Bytes of the store's files, by kind of file.", st, "kind")
	s.segments = desc("kstreams_store_segments", "Segment databases of a window or session store.", st)
	s.changelogOffset = desc("kstreams_store_changelog_offset",
		"Durable changelog offset: of the last record applied, for global stores of the next one.", st, "topic", "partition")

	s.liveFiles = desc("rocksdb_live_sst_files", "Tables that the MANIFEST names.", st)
	s.liveBytes = desc("rocksdb_live_sst_files_size_bytes", "Bytes of the tables that the MANIFEST names.", st)
	s.filesAtLevel = desc("rocksdb_num_files_at_level", "Tables at this level, all column families together; levels without tables are absent.", st, "level")
	s.sequence = desc("rocksdb_latest_sequence_number", "Last sequence number of the flushed state, summed over segments.", st)
	s.flushes = desc("rocksdb_flushes_total", "Memtable flushes, one for each column family, counted from MANIFEST edits.", st)
	s.flushedBytes = desc("rocksdb_flushed_bytes_total", "Bytes of the tables written by flushes.", st)
	s.compactions = desc("rocksdb_compactions_total", "Compactions, counted from MANIFEST edits; moves without rewriting are none.", st)
	s.compactionRead = desc("rocksdb_compaction_read_bytes_total", "Bytes of the tables that compactions replaced.", st)
	s.compactionOut = desc("rocksdb_compaction_written_bytes_total", "Bytes of the tables that compactions wrote.", st)
	s.walFiles = desc("rocksdb_wal_files", "Write-ahead log files, empty ones too.", st)
	s.walSize = desc("rocksdb_wal_size_bytes", "Bytes in write-ahead log files; stock Kafka Streams writes none.", st)
	s.walWritten = desc("rocksdb_wal_last_write_timestamp_seconds", "When a write-ahead log with bytes was last written; absent if none has bytes.", st)
	s.walEnabled = desc("rocksdb_wal_enabled",
		"1 once bytes were seen in a write-ahead log, 0 after a flush during which it stayed empty, absent until then.", st)
	return s
}

// Describe implements prometheus.Collector.
func (s *state) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		s.volumeFree, s.volumeSize, s.volumeInodes, s.watcherMode, s.scanDuration, s.appRunning,
		s.checkpointPresent, s.checkpointTimestamp, s.storeUp, s.storeOpen, s.storeSize, s.segments,
		s.changelogOffset, s.liveFiles, s.liveBytes, s.filesAtLevel, s.sequence, s.flushes, s.flushedBytes,
		s.compactions, s.compactionRead, s.compactionOut, s.walFiles, s.walSize, s.walWritten, s.walEnabled,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s *state) Collect(ch chan<- prometheus.Metric) {
	snap := s.source()
	if snap == nil {
		return
	}
	e := emitter{ch}
	e.gauge(s.scanDuration, snap.ScanTook.Seconds())
	for _, m := range []probe.Mode{probe.Inotify, probe.Poll} {
		e.gauge(s.watcherMode, truth(m == snap.Mode), string(m))
	}
	for _, d := range snap.StateDirs {
		s.stateDir(e, d)
	}
}

func (s *state) stateDir(e emitter, d *store.StateDir) {
	dir := volume.Text(d.Layout.Path)
	if u := d.Layout.Usage; u != nil {
		e.gauge(s.volumeFree, float64(u.Free), dir)
		e.gauge(s.volumeSize, float64(u.Size), dir)
		if u.InodesKnown {
			e.gauge(s.volumeInodes, float64(u.FreeInodes), dir)
		}
	}
	for _, a := range d.Applications {
		var labels []string
		if s.byDir {
			labels = append(labels, dir)
		}
		labels = append(labels, volume.Text(a.Layout.ID))
		if r := a.Layout.Running; r != nil {
			e.gauge(s.appRunning, truth(*r), labels...)
		}
		for _, t := range a.Tasks {
			if t.Verdict != store.Empty {
				s.task(e, t, append(labels[:len(labels):len(labels)], volume.Text(t.Layout.ID)))
			}
		}
	}
}

func (s *state) task(e emitter, t *store.Task, labels []string) {
	if p := t.Layout.CheckpointPresent; p != nil {
		e.gauge(s.checkpointPresent, truth(*p), labels...)
	}
	if c := t.Layout.Checkpoint; c != nil {
		e.gauge(s.checkpointTimestamp, seconds(c.ModNanos), labels...)
	}
	for _, st := range t.Stores {
		// An empty directory is a leftover, not a store of size zero.
		if st.Verdict != store.Empty {
			s.store(e, st, append(labels[:len(labels):len(labels)], volume.Text(st.Name)))
		}
	}
}

func (s *state) store(e emitter, st *store.Store, labels []string) {
	with := func(more ...string) []string { return append(labels[:len(labels):len(labels)], more...) }
	e.gauge(s.storeUp, truth(st.Up), labels...)
	if st.InUse != nil {
		e.gauge(s.storeOpen, truth(*st.InUse), labels...)
	}
	if st.Layout.Segmented {
		e.gauge(s.segments, float64(st.Segments), labels...)
	}
	for _, o := range st.Offsets {
		e.gauge(s.changelogOffset, float64(o.Offset), with(volume.Text(o.Topic), strconv.Itoa(int(o.Partition)))...)
	}
	if st.Listed {
		for _, k := range []struct {
			kind  string
			bytes int64
		}{{"sst", st.Sizes.SST}, {"wal", st.Sizes.WAL}, {"log", st.Sizes.Log}, {"manifest", st.Sizes.Manifest}, {"other", st.Sizes.Other}} {
			e.gauge(s.storeSize, float64(k.bytes), with(k.kind)...)
		}
		e.gauge(s.walFiles, float64(st.WALFiles), labels...)
		e.gauge(s.walSize, float64(st.Sizes.WAL), labels...)
	}
	if st.WALWritten > 0 {
		e.gauge(s.walWritten, seconds(st.WALWritten), labels...)
	}
	if st.WALEnabled != nil {
		e.gauge(s.walEnabled, truth(*st.WALEnabled), labels...)
	}
	s.manifest(e, st, labels, with)
}

// manifest gives what the MANIFEST tells; nothing if one of the store's could
// not be parsed.
func (s *state) manifest(e emitter, st *store.Store, labels []string, with func(...string) []string) {
	if st.LastSequence == nil {
		return
	}
	files, bytes := 0, int64(0)
	levels := map[int]int{}
	for i := range st.Families {
		files += st.Families[i].Files
		bytes += st.Families[i].Bytes
		for _, l := range st.Families[i].Levels {
			levels[l.Level] += l.Files
		}
	}
	e.gauge(s.liveFiles, float64(files), labels...)
	e.gauge(s.liveBytes, float64(bytes), labels...)
	for l, n := range levels {
		e.gauge(s.filesAtLevel, float64(n), with(strconv.Itoa(l))...)
	}
	e.gauge(s.sequence, float64(*st.LastSequence), labels...)
	c := &st.Counts
	e.counter(s.flushes, c.Flushes, labels)
	e.counter(s.flushedBytes, c.FlushedBytes, labels)
	e.counter(s.compactions, c.Compactions, labels)
	e.counter(s.compactionRead, c.CompactionReadBytes, labels)
	e.counter(s.compactionOut, c.CompactionWrittenBytes, labels)
}

type emitter struct{ ch chan<- prometheus.Metric }

func (e emitter) gauge(d *prometheus.Desc, v float64, labels ...string) {
	e.ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (e emitter) counter(d *prometheus.Desc, v uint64, labels []string) {
	e.ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func seconds(nanos int64) float64 { return float64(nanos) / float64(time.Second) }
