package statedir

import (
	"maps"
	"slices"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/volume"
)

// memory is what a scan leaves to the next one, by path. It is not changed once
// the scan has ended: looks that were given up may still read it.
type memory struct {
	offsets   map[fileName]*offsetsFile
	processes map[string]processFile // by application
	foreign   map[string]foreignDir
	filled    map[string]stamp // single databases that are not empty
}

// fileName is a path without the cost of making it one.
type fileName struct{ dir, name string }

// stamp changes with every writing of a file, and with every change of the
// entries of a directory.
type stamp struct {
	id        volume.ID
	size, mod int64
}

func stampOf(i volume.Info) stamp { return stamp{i.ID(), i.Size, i.ModNanos} }

// foreignDir is a directory that Streams ignores, and its size.
type foreignDir struct {
	stamp stamp
	bytes int64 // 0 for a link
	exact bool
}

func newMemory(before *memory) *memory {
	return &memory{
		offsets:   make(map[fileName]*offsetsFile, len(before.offsets)),
		processes: make(map[string]processFile, len(before.processes)),
		foreign:   make(map[string]foreignDir, len(before.foreign)),
		filled:    make(map[string]stamp, len(before.filled)),
	}
}

// reuse puts earlier values in the place of equal ones. Both lists are ordered
// by compare.
func reuse[T any](now, before []*T, compare func(a, b *T) int, same func(now, before *T) bool) {
	for i, j := 0, 0; i < len(now) && j < len(before); {
		switch c := compare(now[i], before[j]); {
		case c < 0:
			i++
		case c > 0:
			j++
		default:
			if same(now[i], before[j]) {
				now[i] = before[j]
			}
			i++
			j++
		}
	}
}

// The parts of the values below are compared by pointer where they have been
// through reuse, or the memory, themselves.

func sameApplication(a, b *Application) bool {
	reuse(a.Tasks, b.Tasks, compareTasks, sameTask)
	return a.ID == b.ID && a.Path == b.Path && a.DirID == b.DirID &&
		samePointed(a.Running, b.Running) && a.HolderPID == b.HolderPID && a.LockFile == b.LockFile &&
		a.ProcessID == b.ProcessID && a.UID == b.UID && a.GID == b.GID &&
		slices.Equal(a.Tasks, b.Tasks) && sameFindings(a.Findings, b.Findings)
}

func sameTask(a, b *Task) bool {
	reuse(a.Stores, b.Stores, compareStores, sameStore)
	return a.ID == b.ID && a.Path == b.Path && a.DirID == b.DirID && a.Topology == b.Topology &&
		a.Subtopology == b.Subtopology && a.Partition == b.Partition && a.Global == b.Global &&
		a.LockFile == b.LockFile && samePointed(a.Locked, b.Locked) &&
		samePointed(a.CheckpointPresent, b.CheckpointPresent) && a.Checkpoint == b.Checkpoint && maps.Equal(a.StoreCheckpoints, b.StoreCheckpoints) &&
		a.ModNanos == b.ModNanos &&
		slices.Equal(a.Stores, b.Stores) && sameFindings(a.Findings, b.Findings)
}

func sameStore(a, b *Store) bool {
	return a.Name == b.Name && a.Path == b.Path && a.DirID == b.DirID &&
		a.Segmented == b.Segmented && slices.Equal(a.Segments, b.Segments) &&
		a.Position == b.Position && a.SetAside == b.SetAside && a.Empty == b.Empty &&
		sameFindings(a.Findings, b.Findings)
}

func sameFindings(a, b []finding.Finding) bool {
	return slices.EqualFunc(a, b, func(x, y finding.Finding) bool {
		at, other := x.Offset, y.Offset
		x.Offset, y.Offset = nil, nil
		return x == y && samePointed(at, other)
	})
}

func samePointed[T comparable](a, b *T) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
