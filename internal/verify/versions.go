package verify

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"streams-sidecar/internal/rocksfile/sst"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
)

// Version is one of Kafka Streams.
type Version struct{ Major, Minor, Patch int }

// ParseVersion reads "3.9.1"; the patch may be missing, and what follows a dash
// ("4.1.0-rc1") is left out.
func ParseVersion(s string) (Version, error) {
	bare, _, _ := strings.Cut(s, "-")
	parts := strings.Split(bare, ".")
	if len(parts) < 2 || len(parts) > 3 {
		return Version{}, fmt.Errorf("%q is not a version like 3.9.1", s)
	}
	var n [3]int
	for i, p := range parts {
		v, err := strconv.ParseUint(p, 10, 16)
		if err != nil {
			return Version{}, fmt.Errorf("%q is not a version like 3.9.1", s)
		}
		n[i] = int(v)
	}
	v := Version{n[0], n[1], n[2]}
	if v.compare(libraries[0].since) < 0 {
		return Version{}, fmt.Errorf("%s: the oldest version that is known here is %s", s, libraries[0].since)
	}
	return v, nil
}

func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

func (v Version) compare(o Version) int {
	return cmp.Or(v.Major-o.Major, v.Minor-o.Minor, v.Patch-o.Patch)
}

// library is the RocksDB that versions of Kafka Streams from one on bring along
// (the POMs of kafka-streams), and what it reads (RocksDB table/format.h and
// include/rocksdb/table.h at these versions; that 7.9.2 refuses format_version 6
// was seen).
type library struct {
	since    Version
	rocksDB  string
	format   uint32 // newest format_version
	checksum sst.ChecksumType
}

var libraries = []library{
	{Version{2, 8, 0}, "5.18.4", 4, sst.XXHash64},
	{Version{3, 0, 0}, "6.19.3", 5, sst.XXHash64},
	{Version{3, 1, 0}, "6.22.1", 5, sst.XXHash64},
	{Version{3, 2, 0}, "6.29.4", 5, sst.XXH3},
	{Version{3, 4, 0}, "7.1.2", 5, sst.XXH3},
	{Version{3, 6, 0}, "7.9.2", 5, sst.XXH3},
	{Version{4, 0, 0}, "9.7.3", 6, sst.XXH3},
	{Version{4, 2, 0}, "10.1.3", 6, sst.XXH3},
}

// library is that of the version, or of the newest one that is known.
func (v Version) library() library {
	l := libraries[0]
	for _, x := range libraries {
		if x.since.compare(v) <= 0 {
			l = x
		}
	}
	return l
}

// offsetsSince is the version from which on each store has a family offsets
// (KIP-1035). Earlier ones open only the families that they know, and RocksDB
// refuses a database of which not all are opened (`Column families not opened:
// offsets`, seen with 3.9.2 on a store of 4.3.1).
var offsetsSince = Version{4, 3, 0}

var laterFamilies = []string{"offsets", "keyValueWithTimestampAndHeaders", "windowKeyValueWithHeaders", "sessionKeyValueWithHeaders"}

// familyRefused gives a family of the database that the version does not open,
// "" if there is none.
func (v Version) familyRefused(db *store.Database) string {
	if v.compare(offsetsSince) >= 0 {
		return ""
	}
	for _, f := range db.Families() {
		if slices.Contains(laterFamilies, f.Name) {
			return "family " + volume.Text(f.Name) + ", of 4.3 and later"
		}
	}
	return ""
}

// tableRefused says which tables the version does not read; found is "" if it
// reads them.
func (v Version) tableRefused(f store.Format) (expected, found string) {
	l := v.library()
	switch {
	case f.Version > l.format:
		return fmt.Sprintf("format_version up to %d, for RocksDB %s in Kafka Streams %s", l.format, l.rocksDB, v), fmt.Sprintf("format_version %d", f.Version)
	case f.Checksum > l.checksum:
		return fmt.Sprintf("checksums up to %s, for RocksDB %s in Kafka Streams %s", l.checksum, l.rocksDB, v), f.Checksum.String()
	}
	return "", ""
}
