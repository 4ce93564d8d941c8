//go:build rocksdb && cgo

package main

/*
#define _GNU_SOURCE
#include <dlfcn.h>
#include "rocksdb/c.h"

// RocksDB's C interface does not tell its version. The build for Java has a
// function for it that uses neither of its arguments (java/rocksjni/rocksjni.cc):
// major << 16 | minor << 8 | patch.
static int library_version(void) {
	int (*version)(void *, void *) = (int (*)(void *, void *))dlsym(RTLD_DEFAULT, "Java_org_rocksdb_RocksDB_version");
	return version ? version(0, 0) : 0;
}
*/
import "C"

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/linxGnu/grocksdb"

	"streams-sidecar/internal/engine/wire"
)

// libraryVersion of the RocksDB that is loaded, "" if it does not tell.
func libraryVersion() string {
	v := uint32(C.library_version())
	if v == 0 {
		return ""
	}
	return fmt.Sprintf("%d.%d.%d", v>>16&0xff, v>>8&0xff, v&0xff)
}

type liveFile struct {
	family string
	table  wire.Table
}

// liveFiles is grocksdb's GetLiveFilesMetaData with the sequence numbers that
// it leaves out, and without the keys.
func liveFiles(db *grocksdb.DB) []liveFile {
	// grocksdb keeps the C handle to itself. A field of another name makes this
	// panic at the first database, in every test.
	c := (*C.rocksdb_t)(reflect.ValueOf(db).Elem().FieldByName("c").UnsafePointer())
	files := C.rocksdb_livefiles(c)
	defer C.rocksdb_livefiles_destroy(files)
	out := make([]liveFile, C.rocksdb_livefiles_count(files))
	for i := range out {
		n := C.int(i)
		name := strings.TrimSuffix(strings.TrimPrefix(C.GoString(C.rocksdb_livefiles_name(files, n)), "/"), ".sst")
		number, _ := strconv.ParseUint(name, 10, 64) // RocksDB makes it from a number
		out[i] = liveFile{
			family: C.GoString(C.rocksdb_livefiles_column_family_name(files, n)),
			table: wire.Table{
				Number:      number,
				Level:       int(C.rocksdb_livefiles_level(files, n)),
				Size:        uint64(C.rocksdb_livefiles_size(files, n)),
				SmallestSeq: uint64(C.rocksdb_livefiles_smallest_seqno(files, n)),
				LargestSeq:  uint64(C.rocksdb_livefiles_largest_seqno(files, n)),
			},
		}
	}
	return out
}
