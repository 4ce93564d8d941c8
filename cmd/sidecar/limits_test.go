package main

import (
	"testing"
	"testing/fstest"
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
