package sst

import "testing"

// FuzzOpen reads files as they are: most changes end at a checksum.
func FuzzOpen(f *testing.F) { fuzz(f, true) }

// FuzzUnverified ignores the checksums, so that every byte reaches the
// decoders of blocks, handles and properties.
func FuzzUnverified(f *testing.F) { fuzz(f, false) }

func fuzz(f *testing.F, verify bool) {
	for _, data := range seeds(f, 2000) {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := exercise(data, verify); err != nil {
			t.Error(err)
		}
	})
}
