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

// TestBeside: a second engine takes what is left, and none if that is too little.
func TestBeside(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for _, c := range []struct {
		files map[string]string
		want  uint64
	}{
		{map[string]string{}, 0},
		{map[string]string{"memory.max": "max\n", "memory.current": "1\n"}, 0},
		{map[string]string{"memory.max": "134217728\n", "memory.current": "62914560\n", "memory.stat": "anon 5\ninactive_file 10485760\n"}, (128 - 50 - 16 + 32) * mib},
		{map[string]string{"memory.max": "134217728\n", "memory.current": "134217728\n"}, 16 * mib},
		{map[string]string{"memory.max": "67108864\n", "memory.current": "134217728\n"}, 1},
		{map[string]string{"memory/memory.limit_in_bytes": "1073741824\n", "memory/memory.usage_in_bytes": "62914560\n",
			"memory/memory.stat": "inactive_file 1\ntotal_inactive_file 3\n"}, engine.DefaultMemory},
	} {
		root := fstest.MapFS{}
		for name, text := range c.files {
			root[name] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := beside(root); got != c.want {
			t.Errorf("%v: %d, want %d", c.files, got, c.want)
		}
	}
}
