package verify_test

import (
	"testing"

	"streams-sidecar/internal/store"
	"streams-sidecar/internal/verify"
	"streams-sidecar/internal/volume"
	"streams-sidecar/test/manystores"
)

// BenchmarkJudge judges a picture of 1,000 stores, as the agent does with each.
func BenchmarkJudge(b *testing.B) {
	dirs := []*store.StateDir{store.Scan(volume.New(volume.OS()), manystores.Make(b, 1000), nil)}
	var j *verify.Judgement
	b.ReportAllocs()
	for b.Loop() {
		j = verify.Judge(dirs, verify.Question{}, nil, j, true)
	}
}
