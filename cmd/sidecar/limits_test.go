package main

import (
	"testing"
	"testing/fstest"

	"streams-sidecar/internal/engine"
)

func TestContainerMemory(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		files map[string]string
		want  int64
	}{
		{nil, 0},
		{map[string]string{"memory.max": "max\n"}, 0},
		{map[string]string{"memory.max": "67108864\n"}, 64 << 20},
		{map[string]string{"memory/memory.limit_in_bytes": "134217728\n"}, 128 << 20},
		{map[string]string{"memory/memory.limit_in_bytes": "9223372036854771712\n"}, 0},
		{map[string]string{"memory.max": "garbage"}, 0},
	} {
		root := fstest.MapFS{}
		for name, text := range c.files {
			root[name] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := containerMemory(root); got != c.want {
			t.Errorf("%v: %d, want %d", c.files, got, c.want)
		}
	}
}

// TestDivide: what the agent and RocksDB's process may have together stays
// within the container's limit.
func TestDivide(t *testing.T) {
	t.Parallel()
	if got := divide(0, true); got != (memory{}) {
		t.Errorf("without a limit: %+v", got)
	}
	for mib := int64(1); mib < 1024; mib++ {
		limit := mib << 20
		if got := divide(limit, false); got.engine != 0 || got.own != limit/10*9 {
			t.Errorf("%d MiB without an engine: %+v", mib, got)
		}
		got := divide(limit, true)
		resident := int64(0)
		if got.engine >= engine.LeastMemory {
			resident = int64(got.engine) - engine.Unused
		}
		if got.engine == 0 || got.own <= 0 || got.own+resident > limit {
			t.Errorf("%d MiB: %+v", mib, got)
		}
		if starts := resident > 0; starts != (mib >= 128) {
			t.Errorf("%d MiB: the engine starts: %v", mib, starts)
		}
		if mib >= 128 && got.own < 57<<20 || mib >= 160 && got.engine != engine.DefaultMemory {
			t.Errorf("%d MiB: %+v", mib, got)
		}
	}
}
