package consult

import (
	"time"

	"streams-sidecar/internal/engine"
	"streams-sidecar/internal/store"
)

// Total is what RocksDB says of a store, summed over its column families and
// segments: the properties that mean the same whoever has the database open.
// They are bytes and counts; one that a database lacks is nil.
type Total struct {
	EstimateNumKeys, EstimateLiveDataSize    *uint64
	BlobFiles, LiveBlobSize, LiveBlobGarbage *uint64
	// Entries of the live tables with their tombstones, and the tombstones alone.
	Entries, Deletions *uint64
	At                 time.Time // of the oldest answer
}

// Total gives it, nil unless there is an answer about every database.
func (c *Consultant) Total(s *store.Store) *Total {
	var answers []*engine.Answer
	var oldest time.Time
	for _, db := range s.Databases {
		if db.IsEmpty() {
			continue
		}
		o, ok := c.Opinion(db)
		if !ok || o.Err != nil || o.Answer.Error != "" {
			return nil
		}
		answers = append(answers, o.Answer)
		if oldest.IsZero() || o.At.Before(oldest) {
			oldest = o.At
		}
	}
	if len(answers) == 0 {
		return nil
	}
	property := func(name string) *uint64 {
		return sum(answers, func(f *engine.Family) *uint64 { return f.Property(name) })
	}
	return &Total{
		EstimateNumKeys:      property("estimate-num-keys"),
		EstimateLiveDataSize: property("estimate-live-data-size"),
		BlobFiles:            property("num-blob-files"),
		LiveBlobSize:         property("live-blob-file-size"),
		LiveBlobGarbage:      property("live-blob-file-garbage-size"),
		Entries:              sum(answers, func(f *engine.Family) *uint64 { return f.Entries }),
		Deletions:            sum(answers, func(f *engine.Family) *uint64 { return f.Deletions }),
		At:                   oldest,
	}
}

// sum is nil if one family has no value.
func sum(answers []*engine.Answer, value func(*engine.Family) *uint64) *uint64 {
	total := uint64(0)
	for _, a := range answers {
		for i := range a.Families {
			v := value(&a.Families[i])
			if v == nil {
				return nil
			}
			total += *v
		}
	}
	return &total
}
