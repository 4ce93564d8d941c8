package manifest

import (
	"errors"
	"fmt"
	"io"

	"streams-sidecar/internal/rocksfile/record"
)

// Replaced says which of the tables of these numbers the first size bytes of a
// MANIFEST delete, size being what was applied of it ([State.Size]): a table that
// is not live and was deleted by an edit is one that a compaction has replaced.
// It keeps nothing but the answer. A record that cannot be read ends the search
// like the end of the file; the error is that of src.
func Replaced(src io.ReaderAt, size int64, numbers map[uint64]bool) (map[uint64]bool, error) {
	out := map[uint64]bool{}
	r := record.NewReader(src, 0, size)
	var e edit
	for len(out) < len(numbers) {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			if _, ours := errors.AsType[*record.Error](err); ours {
				break
			}
			return out, fmt.Errorf("read MANIFEST: %w", err)
		}
		if e.decode(rec) != nil {
			break
		}
		for _, d := range e.deleted {
			if numbers[d.number] {
				out[d.number] = true
			}
		}
	}
	return out, nil
}
