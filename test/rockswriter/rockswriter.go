// Package rockswriter gives tests databases that RocksDB itself has written, of
// kinds that no Kafka Streams leaves behind: any option, any comparator, logs
// that were never replayed. A [Recipe] says what to write.
//
// RocksDB does it in a process of its own, test/rockswriter/cmd: the only code
// of this module that opens a database for writing, and never part of what is
// shipped. Only tests may import this package.
package rockswriter

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Recipe is one session with a database: RocksDB opens it, or makes it if there
// is none, takes the steps one after the other, and closes it. What is already
// there goes on, so that several sessions with different options make one
// database.
type Recipe struct {
	// Options are RocksDB's own, in the form of its GetOptionsFromString, such
	// as "compression=kZSTD;block_based_table_factory={format_version=5}". They
	// hold for the database and for each of its families.
	Options string `json:"options,omitempty"`
	// Families beside default. A session names all that the database has; those
	// that it does not have are made. With the name default, it gives that
	// family options of its own.
	Families []Family `json:"families,omitempty"`
	Steps    []Step   `json:"steps,omitempty"`
	// Abandon ends the process without closing the database, as SIGKILL does.
	Abandon bool `json:"abandon,omitempty"`
}

// Family is a column family.
type Family struct {
	Name    string `json:"name"`
	Options string `json:"options,omitempty"` // beyond those of the Recipe
	// Comparator is the name of one that RocksDB does not know. It orders by
	// bytes. One that RocksDB knows goes into Options.
	Comparator string `json:"comparator,omitempty"`
}

// Verb is what a Step does.
type Verb string

// The verbs. The first five write keys, the others take no keys.
const (
	Put          Verb = "put"
	Delete       Verb = "delete"
	SingleDelete Verb = "single-delete"
	DeleteRange  Verb = "delete-range" // from the first key up to, and without, the last one
	Merge        Verb = "merge"        // the family needs a merge operator in its options

	Flush    Verb = "flush"     // the family's memtable becomes a table
	Compact  Verb = "compact"   // all tables of the family
	FlushWAL Verb = "flush-wal" // for the option manual_wal_flush
	Drop     Verb = "drop"      // the family
)

// Step is one thing to do. Of the fields, the last group is for the verbs that
// write.
type Step struct {
	Do     Verb   `json:"do"`
	Family string `json:"family,omitempty"` // "" is default

	// Key alone is written if it is set, otherwise Keys of them: key00000000
	// and so on from First, or, with a Seed, pseudo-random ones that only the
	// seed decides.
	Key   []byte `json:"key,omitempty"`
	Keys  int    `json:"keys,omitempty"`
	First int    `json:"first,omitempty"`
	Seed  uint64 `json:"seed,omitempty"`
	// Value is written if it is set, otherwise the key, again and again, up to
	// Size bytes.
	Value []byte `json:"value,omitempty"`
	Size  int    `json:"size,omitempty"`
	Batch int    `json:"batch,omitempty"` // entries in one write; 0 is 1
	NoWAL bool   `json:"no_wal,omitempty"`
	Sync  bool   `json:"sync,omitempty"` // the WAL, after each write
}

// EngineEnv names the variable that says where sidecar-engine is; the writer is
// built together with it and lies in the folder test beside it.
const EngineEnv = "SIDECAR_TEST_ENGINE"

// Program is the writer. The test is skipped where RocksDB could not be had.
func Program(t testing.TB) string {
	t.Helper()
	engine := os.Getenv(EngineEnv)
	if engine == "" {
		t.Skip(EngineEnv + " is not set: scripts/test sets it, where RocksDB can be had")
	}
	program := filepath.Join(filepath.Dir(engine), "test", "rockswriter")
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("%v; run scripts/build-engine test", err)
	}
	return program
}

// Write runs a session with the database in dir, which it makes if need be.
func Write(t testing.TB, dir string, r Recipe) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), Program(t), dir)
	recipe, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin = bytes.NewReader(recipe)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("write %s: %v\n%s", recipe, err, out)
	}
}
