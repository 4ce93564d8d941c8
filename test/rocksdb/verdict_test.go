package rocksdb_test

import (
	"context"
	"slices"

	"streams-sidecar/internal/inspect"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/verify"
	"streams-sidecar/internal/volume"
)

// judge is our word on the database in dir: what `sidecar verify --deep` says of it.
func judge(dir string) judgement {
	v := volume.New(volume.OS())
	target := inspect.Find(v, dir)
	look := func(before []*store.StateDir) []*store.StateDir {
		return inspect.LookAll([]inspect.Target{target}, before)
	}
	r := verify.Picture(context.Background(), look([]*store.StateDir{nil}), []*volume.Volume{v}, verify.Question{},
		verify.Plan{Depth: verify.Deep, Workers: 1}, nil, look)
	var j judgement
	for _, a := range r.Dirs[0].Applications {
		for _, t := range a.Tasks {
			for _, s := range t.Stores {
				judged := r.Judgement.Store(s)
				j.word = string(judged.Verdict)
				for _, f := range judged.Findings {
					if code := string(f.Code); !slices.Contains(j.codes, code) {
						j.codes = append(j.codes, code)
					}
				}
			}
		}
	}
	if j.word == "" {
		j.word = string(verify.Empty) // there is nothing that is a database
	}
	return j
}
