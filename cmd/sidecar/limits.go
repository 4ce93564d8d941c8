package main

import (
	"io/fs"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// limitMemory makes the garbage collector keep to the container's memory limit,
// which it does not look at by itself. $GOMEMLIMIT wins.
func limitMemory(cgroup fs.FS) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if limit := containerMemory(cgroup); limit > 0 {
		// The rest is for what the runtime does not count: stacks of threads,
		// page tables, the kernel's buffers.
		debug.SetMemoryLimit(limit / 10 * 9)
	}
}

// containerMemory reads the limit of the cgroup that a container sees as its
// root: version 2, else version 1. 0 means none.
func containerMemory(cgroup fs.FS) int64 {
	for _, name := range []string{"memory.max", "memory/memory.limit_in_bytes"} {
		data, err := fs.ReadFile(cgroup, name)
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
		// Without a limit, version 2 says "max" and version 1 a number near 2^63.
		const absurd = 1 << 50
		if err == nil && n > 0 && n < absurd {
			return n
		}
	}
	return 0
}
