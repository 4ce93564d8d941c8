package infolog_test

import (
	"strings"
	"testing"

	"streams-sidecar/internal/rocksfile/infolog"
)

// The texts are RocksDB's own, of 5.18 to 11.8, with shorter paths.
func TestClassify(t *testing.T) {
	t.Parallel()
	const accumulated = ", Accumulated background error counts: 1"
	for _, tc := range []struct {
		text string
		want infolog.Kind
	}{
		{"", infolog.Other},
		{"[", infolog.Other},
		{"[default] ", infolog.Other},
		{"OK", infolog.Other},
		{"NotFound: ", infolog.Other},
		{"[default] Stopping writes because we have 2 immutable memtables (waiting for flush)", infolog.Other},

		{"IO error: No space left on device: While appending to file: /s/000020.sst: No space left on device", infolog.NoSpace},
		{"IO error: No space left on device: While appending to file: /s/000020.sst: Auf dem Gerät ist kein Speicherplatz mehr verfügbar", infolog.NoSpace},
		{"IO error: No space left on device", infolog.NoSpace},
		{"While appending to file: /s/000020.sst: No space left on device", infolog.NoSpace},
		{"IO error: While appending to file: /s/000020.sst: Disk quota exceeded", infolog.NoSpace},
		{"[JOB 14] Waiting after background flush error: IO error: No space left on device: While appending to file: /s/000020.sst: デバイスに空き領域がありません" + accumulated, infolog.NoSpace},
		{"Waiting after background compaction error: IO error: No space left on device: While appending to file: /s/000020.sst: No space left on device" + accumulated, infolog.NoSpace},
		{"MANIFEST write IO error: No space left on device: While appending to file: /s/MANIFEST-000005: No space left on device", infolog.NoSpace},
		{"[kv] [JOB 3] OpenCompactionOutputFiles for table #12 fails at NewWritableFile with status IO error: No space left on device", infolog.NoSpace},
		{"free space [0 bytes] is less than required disk buffer [262144 bytes]", infolog.NoSpace},
		{"free space [0 bytes] is less than needed headroom [262144 bytes]", infolog.NoSpace},
		{"Cannot clear hard error", infolog.NoSpace},
		{"free space [9 bytes]", infolog.Other},

		{"Waiting after background compaction error: Corruption: block checksum mismatch: stored = 3472927012, computed = 391158775, type = 1  in /s/000011.sst offset 60510 size 4030" + accumulated, infolog.Corruption},
		{"[JOB 3] Waiting after background flush error: Corruption: Number of keys in flush output" + accumulated, infolog.Corruption},
		{"[default] [JOB 24] Compaction error: Corruption: block checksum mismatch", infolog.Corruption},
		{"Corruption: IO error: No such file or directory: While open a file for random read: /s/000009.sst: No such file or directory", infolog.Corruption},
		{"Corruption: Bad table magic number: expected 9863518390377041911, found 1 in /s/000009.sst", infolog.Corruption},
		{"/s/000004.log: dropping 7 bytes; Corruption: checksum mismatch", infolog.Other}, // usual after a crash
		{"Unable to load table properties for file 12 --- Corruption: x", infolog.Other},

		{"Background IO error IO error: While appending to file: /s/000012.sst: Input/output error, reason 5", infolog.IOError},
		{"[JOB 3] Waiting after background flush error: IO error: While appending to file: /s/000012.sst: Eingabe-/Ausgabefehler" + accumulated, infolog.IOError},
		{"WAL Sync error IO error: While fdatasync: /s/000004.log: Input/output error", infolog.IOError},
		{"IO error: Stale file handle", infolog.IOError},
		{"IO error: while open a file for lock: /s/LOCK: Permission denied", infolog.IOError},
		{"while open a file for lock: /s/LOCK: Read-only file system", infolog.IOError},
		{"While appending to file: /s/000020.sst: Auf dem Gerät ist kein Speicherplatz mehr verfügbar", infolog.IOError},
		{"[JOB 3] Failed to delete /s/000012.sst type=2 #12 -- IO error: x", infolog.Other},
		{"Compaction error: Shutdown in progress: ", infolog.Other},

		{"IO error: While lock file: /s/LOCK: Resource temporarily unavailable", infolog.LockHeld},
		{"While lock file: /s/LOCK: Resource temporarily unavailable", infolog.LockHeld},
		{"IO error: While lock file: /s/LOCK: No locks available", infolog.LockUnsupported},
		{"IO error: While lock file: /s/LOCK: Function not implemented", infolog.LockUnsupported},
		{"IO error: While lock file: /No locks available/LOCK: Resource temporarily unavailable\n", infolog.LockHeld},
		{"IO error: lock hold by current process, acquire time 1796062218 acquiring thread 139950569813696: /s/LOCK: No locks available", infolog.LockHeldHere},
		{"lock hold by current process, acquire time 1796062218 acquiring thread 139950569813696: /s/LOCK: Keine Sperren verfügbar", infolog.LockHeldHere},
		{"IO error: lock : /s/LOCK: No locks available", infolog.LockHeldHere}, // RocksDB 5
		{"IO error: lock : /s/LOCK: Keine Sperren verfügbar", infolog.LockHeldHere},
		{"IO error: While lock file: /s/LOCK: Die Ressource ist zur Zeit nicht verfügbar", infolog.LockRefused},
		{"IO error: While lock file: /s/LOCK: Keine Sperren verfügbar", infolog.LockRefused},
		{"IO error: While lock file: /s/LOCK: Input/output error", infolog.LockRefused},
		{"IO error: While lock file: ", infolog.LockRefused},

		{"Column family inconsistency: SST file contains data beyond the point of corruption.", infolog.AheadOfWAL},
		{"Corruption: SST file is ahead of WALs", infolog.AheadOfWAL}, // RocksDB 5
		{"Corruption: SST file is ahead of WALs in CF keyValueWithTimestamp", infolog.AheadOfWAL},
		{"SST file is ahead of WALs in CF offsets", infolog.AheadOfWAL},
		{"Corruption: Column family inconsistency: SST file contains data beyond the point of corruption in CF kv. WAL recovery stopped at corruption point, but SST files contain newer data.", infolog.AheadOfWAL},

		{"MANIFEST write IO error: While appending to file: /s/MANIFEST-000005: Input/output error", infolog.ManifestWrite},
		{"Error in committing version edit to MANIFEST: VersionEdit {\n  LogNumber: 4\n}", infolog.ManifestWrite},
		{"Unable to close MANIFEST with error -- IO error: While closing file after writing: Input/output error", infolog.ManifestWrite},
	} {
		if got := infolog.Classify(tc.text); got != tc.want {
			t.Errorf("%q is %v, want %v", tc.text, got, tc.want)
		}
		if got := infolog.Classify(strings.Repeat("[x] ", 3) + tc.text); got != tc.want {
			t.Errorf("with tags: %q is %v, want %v", tc.text, got, tc.want)
		}
	}
}
