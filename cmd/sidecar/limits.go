package main

import (
	"io/fs"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"streams-sidecar/internal/engine"
)

// ownMemory is what the agent itself is left with at least where the engine
// shares its container: it takes some 30 MiB with 1,000 stores.
const ownMemory = 64 << 20

// memory is how a container's limit is divided, bytes.
type memory struct {
	own    int64  // limit of the agent's heap, 0 for none
	engine uint64 // bound of RocksDB's process, 0 for its own default
}

// divide divides the container's limit, 0 for none. If the engine went beyond
// it, the kubelet's cgroup would be killed as a whole, the agent with it.
func divide(limit int64, withEngine bool) memory {
	if limit <= 0 {
		return memory{}
	}
	m := memory{own: limit}
	if withEngine {
		m.engine = uint64(min(max(limit-ownMemory+engine.Unused, 1), engine.DefaultMemory))
		if m.engine >= engine.LeastMemory { // else it is not started
			m.own -= int64(m.engine) - engine.Unused
		}
	}
	// The rest is for what the runtime does not count: stacks of threads, page
	// tables, the kernel's buffers.
	m.own = m.own / 10 * 9
	return m
}

// limitMemory makes the garbage collector keep to a limit, of which it knows
// nothing by itself. $GOMEMLIMIT wins.
func limitMemory(own int64) {
	if own > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(own)
	}
}

// cgroupRoot is where a container sees its own limits.
const cgroupRoot = "/sys/fs/cgroup"

// beside is what an engine may have that is started beside an agent with one of
// its own, as by kubectl exec: what the container's limit leaves now, 0 for the
// engine's own default. What the kernel can drop is not counted as used.
func beside(cgroup fs.FS) uint64 {
	limit := containerMemory(cgroup)
	if limit == 0 {
		return 0
	}
	used := firstNumber(cgroup, "memory.current", "memory/memory.usage_in_bytes") -
		droppable(cgroup)
	return uint64(min(max(limit-max(used, 0)-reserve+engine.Unused, 1), engine.DefaultMemory))
}

// reserve is what stays free for everybody else, bytes.
const reserve = 16 << 20

// droppable reads how many bytes of files the kernel keeps in memory that nobody
// has used lately.
func droppable(cgroup fs.FS) int64 {
	for name, key := range map[string]string{"memory.stat": "inactive_file ", "memory/memory.stat": "total_inactive_file "} {
		data, err := fs.ReadFile(cgroup, name)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(data)) {
			if text, ok := strings.CutPrefix(line, key); ok {
				n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
				if err == nil {
					return n
				}
			}
		}
	}
	return 0
}

// containerMemory reads the limit of the cgroup that a container sees as its
// root: version 2, else version 1. 0 means none.
func containerMemory(cgroup fs.FS) int64 {
	// Without a limit, version 2 says "max" and version 1 a number near 2^63.
	const absurd = 1 << 50
	if n := firstNumber(cgroup, "memory.max", "memory/memory.limit_in_bytes"); n > 0 && n < absurd {
		return n
	}
	return 0
}

// firstNumber reads the first of some files that there is, 0 if it holds no number.
func firstNumber(cgroup fs.FS, names ...string) int64 {
	for _, name := range names {
		data, err := fs.ReadFile(cgroup, name)
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
		if err != nil {
			return 0
		}
		return n
	}
	return 0
}
