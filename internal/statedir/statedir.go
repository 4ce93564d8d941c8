// Package statedir knows Kafka Streams' state directory: which applications,
// tasks, stores and segments lie in it, what the .checkpoint and .position
// files and the process id say, and who holds which .lock. The layout is that
// of Kafka Streams 2.8 to 4.4.
//
// It knows nothing of what RocksDB writes, judges nothing and forecasts
// nothing. It reads only through volume, each directory as a unit of its own,
// so that one that hangs does not hide the others; it never writes, takes no
// lock and keeps no file open. It imports volume and finding, and every package
// of a higher tier may import it.
//
// # Identity
//
// A directory is what its device and inode say, whatever its name. Links are
// followed as Streams follows them, but what is reached under two names, by a
// symbolic link or a bind mount, is counted once, under its real name; the
// other name is a finding. Two state directories of the same [Dir.ID] are one;
// Dir.Resolved says where it really is.
package statedir

import (
	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/volume"
)

// Dir is a state directory (Streams' state.dir) at one moment. It and all
// below it is immutable.
type Dir struct {
	Path string // as given
	// Resolved is the absolute path with all links followed, and where every
	// path below begins; "" if it could not be resolved, and those paths
	// then begin with Path.
	Resolved string
	// ID is the same for two names of one directory; zero if unknown.
	ID volume.ID
	// Missing means that it does not exist, yet or any more.
	Missing      bool
	Usage        *volume.Usage  // of the file system; nil if unknown
	Applications []*Application // by ID
	Findings     []finding.Finding

	memory *memory
}

// Application is the directory of one application id.
type Application struct {
	ID, Path string
	DirID    volume.ID
	// Running says that .lock is held: false also where there is no such
	// file, nil if it could not be asked.
	Running *bool
	// HolderPID is the process that holds .lock; 0 if there is none or it is
	// not visible from here (another pid namespace).
	HolderPID int
	LockFile  bool // .lock exists, which says nothing about whether it is held
	// ProcessID is the UUID in kafka-streams-process-metadata, in lower
	// case; "" if there is none or it could not be read.
	ProcessID string
	UID, GID  uint32  // owner of the directory
	Tasks     []*Task // by number; those of named topologies after the others, global last
	Findings  []finding.Finding
}

// AskLock asks anew whether .lock is held; a file that is not there is not.
// The error is one of the volume.
func (a *Application) AskLock(v *volume.Volume) (held bool, err error) {
	path := join(a.Path, lockName)
	l, err := volume.Do(v, a.Path, func(fs volume.FS) (volume.Lock, error) { return fs.Lock(path) })
	if volume.IsGone(err) {
		return false, nil
	}
	return l.Held, err
}

// Task is one task's directory, active or standby, or that of the global stores.
type Task struct {
	// ID is the path below the application: "0_0", "__topology__/0_0", "global".
	ID, Path string
	DirID    volume.ID
	// Topology is the name of a named topology (without the underscores of
	// its folder), otherwise "".
	Topology string
	// Subtopology and Partition are the two numbers of the task, -1 for global.
	Subtopology, Partition int32
	Global                 bool
	// LockFile says that <task>/.lock exists: 2.8 made it, and 3.0 and later
	// remove it only when they next need the directory.
	LockFile bool
	// Locked says that it is held; nil if there is none or it could not be asked.
	Locked *bool
	// CheckpointPresent says whether there is a .checkpoint, parsed or not;
	// nil if the directory could not be listed.
	CheckpointPresent *bool
	// Checkpoint is nil if there is none, or it could not be read or parsed;
	// then a finding says so.
	Checkpoint *Checkpoint
	// StoreCheckpoints are the files .checkpoint_<store> by store (≥ 4.3).
	StoreCheckpoints map[string]*Checkpoint
	// ModNanos is st_mtim of the directory, nanoseconds since the epoch: by it
	// Streams decides which tasks are obsolete.
	ModNanos int64
	Stores   []*Store // by name
	Findings []finding.Finding
}

// Store is the directory of one store: a single database in rocksdb/, or a
// folder of segment databases.
type Store struct {
	Name, Path string
	DirID      volume.ID
	// Segmented means a window or session store, one database per segment.
	Segmented bool
	Segments  []Segment // by start, then name; nil unless Segmented
	// Position is <store>.position (3.2 to 4.2), nil if there is none or it
	// could not be read or parsed; then a finding says so.
	Position *Checkpoint
	// SetAside means that the name looks like that of something put aside
	// (kv.corrupt, kv.bak): whether it is a store can be told by an offset
	// that names it, and only there.
	SetAside bool
	// Empty means that the directory holds nothing at all.
	Empty    bool
	Findings []finding.Finding
}

// Segment is one database of a segmented store.
type Segment struct {
	Name, Path string
	DirID      volume.ID
	// StartMillis is when the segment begins, milliseconds since the epoch,
	// from its name; it counts only if StartKnown.
	StartMillis int64
	StartKnown  bool
}
