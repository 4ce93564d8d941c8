package infolog_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"streams-sidecar/internal/rocksfile/infolog"
	"streams-sidecar/test/rockswriter"
)

// TestMadeInAnotherZone has RocksDB compact a damaged table while its process
// is nine hours ahead of UTC, as in Tokyo, or five and three quarters behind:
// the log at level ERROR holds nothing but that error, and its time must be
// the one at which that happened.
func TestMadeInAnotherZone(t *testing.T) {
	for _, tc := range []struct {
		zone   string // as POSIX has it, which needs no data of zones
		offset time.Duration
		level  string
	}{
		{"JST-9", 9 * time.Hour, "ERROR"},
		{"XXX5:45", -(5*time.Hour + 45*time.Minute), "ERROR"},
		{"JST-9", 9 * time.Hour, "INFO"},
	} {
		t.Run(tc.zone+"/"+tc.level, func(t *testing.T) {
			t.Setenv("TZ", tc.zone) // RocksDB's process inherits it; that of the test has read its own already
			dir := filepath.Join(t.TempDir(), "db")
			recipe := rockswriter.Recipe{
				Options: "info_log_level=" + tc.level + "_LEVEL;compression=kNoCompression",
				Steps:   []rockswriter.Step{{Do: rockswriter.Put, Keys: 500, Size: 200}, {Do: rockswriter.Flush}},
			}
			rockswriter.Write(t, dir, recipe)
			flip(t, dir)

			before := time.Now()
			recipe.Steps = append(recipe.Steps, rockswriter.Step{Do: rockswriter.Compact})
			rockswriter.Write(t, dir, recipe)
			after := time.Now()

			path := filepath.Join(dir, "LOG")
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			got := infolog.Parse(data[max(0, len(data)-tailSize):], info.ModTime())
			if len(got.Errors) != 1 || got.Errors[0].Kind != infolog.Corruption {
				t.Fatalf("%+v in\n%s", got, data)
			}
			l := got.Errors[0]
			if l.Time.Before(before.Add(-time.Millisecond)) || l.Time.After(after) || l.Time.Add(tc.offset).Format(layout) != l.Stamp {
				t.Errorf("%+v; it was between %v and %v", l, before, after)
			}
		})
	}
}

// flip inverts a byte in the data of the one table.
func flip(t *testing.T, dir string) {
	t.Helper()
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) != 1 {
		t.Fatalf("tables %v, %v", tables, err)
	}
	data, err := os.ReadFile(tables[0])
	if err != nil {
		t.Fatal(err)
	}
	data[5000] ^= 0xff
	if err := os.WriteFile(tables[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
}
