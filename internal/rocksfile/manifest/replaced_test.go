package manifest_test

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"streams-sidecar/internal/rocksfile/manifest"
	"streams-sidecar/internal/rocksfile/rockstest"
)

// TestReplaced: what edits have deleted, up to where they are applied.
func TestReplaced(t *testing.T) {
	t.Parallel()
	data := rockstest.Manifest(
		head(),
		event().Add(file{Number: 9, Size: 900}).LogNumber(6),
		event().Add(file{Number: 10, Size: 1000}).LogNumber(6),
		event().Delete(0, 9).Delete(0, 10).Add(file{Level: 1, Number: 11, Size: 1900}),
		event().Add(file{Number: 12, Size: 1200}).LogNumber(6),
		event().Delete(0, 12).Add(file{Level: 2, Number: 12, Size: 1200}), // moved
		// A group that is not complete is not applied.
		event().Delete(1, 11).Group(1),
	)
	s, err := manifest.Load(bytes.NewReader(data), int64(len(data)))
	if err != nil || !s.PendingGroup {
		t.Fatalf("%v, pending group %v", err, s.PendingGroup)
	}
	asked := map[uint64]bool{9: true, 10: true, 11: true, 12: true, 13: true}
	got, err := manifest.Replaced(bytes.NewReader(data), s.Size, asked)
	if err != nil {
		t.Fatal(err)
	}
	if n := slices.Sorted(maps.Keys(got)); !slices.Equal(n, []uint64{9, 10, 12}) {
		t.Errorf("replaced %v", n)
	}
	if got, err := manifest.Replaced(bytes.NewReader(data), s.Size, map[uint64]bool{13: true}); err != nil || len(got) > 0 {
		t.Errorf("replaced %v, %v", got, err)
	}
}
