package store_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
	"streams-sidecar/test/rockswriter"
)

// TestBlobFiles: that the blob files are there, and no smaller than the MANIFEST
// says, is judged; their content is not.
func TestBlobFiles(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "db")
	rockswriter.Write(t, dir, rockswriter.Recipe{Options: "enable_blob_files=true;compression=kNoCompression", Steps: []rockswriter.Step{
		{Do: rockswriter.Put, Keys: 100, Size: 60}, {Do: rockswriter.Flush}}})
	codes := func() (out []finding.Code) {
		for _, f := range store.Alone(volume.New(volume.OS()), dir).Findings {
			out = append(out, f.Code)
		}
		return out
	}
	expect := func(what string, want ...finding.Code) {
		t.Helper()
		got := codes()
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	expect("healthy", finding.BlobFiles)
	blobs, err := filepath.Glob(filepath.Join(dir, "*.blob"))
	if err != nil || len(blobs) != 1 {
		t.Fatalf("%v, %v", blobs, err)
	}
	data, err := os.ReadFile(blobs[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(blobs[0], int64(len(data)-1)); err != nil {
		t.Fatal(err)
	}
	expect("cut by a byte", finding.BlobFiles, finding.BlobSizeMismatch)
	if err := os.Remove(blobs[0]); err != nil {
		t.Fatal(err)
	}
	expect("gone", finding.BlobFiles, finding.BlobMissing)
	if err := os.WriteFile(blobs[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
	expect("back", finding.BlobFiles)
}
