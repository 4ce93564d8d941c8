//go:build rocksdb && cgo

package main

/*
#include <stdint.h>
#include "rocksdb/c.h"

// The C interface of RocksDB 10.10 has no VerifyChecksum, but the library has
// the C++ method. Status (include/rocksdb/status.h) is returned in memory of the
// caller, because it has a destructor; a structure of C is if it is large.
struct status {
	uint8_t code, subcode, severity, retryable, data_loss, scope;
	const char *text; // may be null
	char large[64];
};
extern struct status _ZN7rocksdb6DBImpl14VerifyChecksumERKNS_11ReadOptionsE(void *db, const void *options);

// Both structures of the C interface begin with what C++ knows (db/c.cc): the
// pointer to the database, and the options themselves.
static struct status verify_checksum(rocksdb_t *db, rocksdb_readoptions_t *options) {
	return _ZN7rocksdb6DBImpl14VerifyChecksumERKNS_11ReadOptionsE(*(void **)db, options);
}
*/
import "C"

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"reflect"
	"time"
	"unsafe"

	"github.com/linxGnu/grocksdb"
	"golang.org/x/sys/unix"

	"streams-sidecar/test/rocksdb"
)

const (
	// What Kafka Streams sets that matters here: it makes what is missing, and
	// has filters (RocksDBStore). Everything else is RocksDB's default. Without
	// compactions what is read is what was there.
	options = "create_if_missing=true;create_missing_column_families=true;info_log_level=ERROR_LEVEL;" +
		"write_buffer_size=1048576;disable_auto_compactions=true;block_based_table_factory={filter_policy=bloomfilter:10:false}"
	defaultFamily = "default"
)

// look reads and verifies a database; verifyOnly leaves the reading out, and
// measures the verification.
func look(dir string, families []string, verifyOnly bool) (*rocksdb.Answer, error) {
	opts, err := grocksdb.GetOptionsFromString(nil, options)
	if err != nil {
		return nil, fmt.Errorf("options: %w", err)
	}
	names := append([]string{defaultFamily}, families...)
	each := make([]*grocksdb.Options, len(names))
	for i := range each {
		each[i] = opts
	}
	db, handles, err := grocksdb.OpenDbColumnFamilies(opts, dir, names, each)
	if err != nil {
		return &rocksdb.Answer{OpenError: err.Error()}, nil
	}
	read := grocksdb.NewDefaultReadOptions()
	read.SetVerifyChecksums(true)
	read.SetFillCache(false)
	a := &rocksdb.Answer{Families: map[string]rocksdb.Family{}}
	if !verifyOnly {
		for i, name := range names {
			a.Families[name] = family(db, handles[i], read)
		}
	}
	before := processorTime()
	a.VerifyError = verify(db, read)
	a.VerifyCPU = (processorTime() - before).Seconds()
	for _, h := range handles {
		h.Destroy()
	}
	db.Close()
	return a, nil
}

func family(db *grocksdb.DB, cf *grocksdb.ColumnFamilyHandle, read *grocksdb.ReadOptions) (f rocksdb.Family) {
	digest := sha256.New()
	it := db.NewIteratorCF(read, cf)
	defer it.Close()
	for it.SeekToFirst(); it.Valid(); it.Next() {
		key, value := it.Key(), it.Value()
		add(digest, key.Data())
		add(digest, value.Data())
		f.Entries++
		// The iterator never looks at a filter.
		got, err := db.GetCF(read, cf, key.Data())
		switch {
		case err != nil && f.Error == "":
			f.Error = err.Error()
		case err == nil && (!got.Exists() || !bytes.Equal(got.Data(), value.Data())):
			f.Lost++
		}
		if err == nil {
			got.Free()
		}
		key.Free()
		value.Free()
	}
	if err := it.Err(); err != nil {
		f.Error = err.Error()
	}
	f.Digest = hex.EncodeToString(digest.Sum(nil))
	return f
}

func add(to hash.Hash, data []byte) {
	var size [8]byte
	binary.LittleEndian.PutUint64(size[:], uint64(len(data)))
	to.Write(size[:])
	to.Write(data)
}

// processorTime of this process, in user mode and in the kernel.
func processorTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// codes are RocksDB's own words for them (util/status.cc).
var codes = map[C.uint8_t]string{1: "NotFound", 2: "Corruption", 3: "Not implemented", 4: "Invalid argument", 5: "IO error"}

func verify(db *grocksdb.DB, read *grocksdb.ReadOptions) string {
	s := C.verify_checksum((*C.rocksdb_t)(handle(db)), (*C.rocksdb_readoptions_t)(handle(read)))
	if s.code == 0 {
		return ""
	}
	word := codes[s.code]
	if word == "" {
		word = fmt.Sprintf("code %d", s.code)
	}
	if s.text == nil {
		return word
	}
	return word + ": " + C.GoString(s.text)
}

// handle is the C object behind one of grocksdb's, which keeps it to itself. A
// field of another name makes this panic at the first database.
func handle(object any) unsafe.Pointer {
	return reflect.ValueOf(object).Elem().FieldByName("c").UnsafePointer()
}
