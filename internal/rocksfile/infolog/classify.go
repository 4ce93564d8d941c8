package infolog

import (
	"fmt"
	"strings"
)

// Kind is what a message means.
type Kind uint8

// The kinds. What RocksDB does about an error in the background is in
// db/error_handler.cc.
const (
	Other Kind = iota
	// NoSpace: the volume, or a quota, is full. It goes before ManifestWrite
	// and IOError, whatever could not be written.
	NoSpace
	// Corruption: a flush, a compaction or a WAL met damaged data, or the text
	// is a Status of that code.
	Corruption
	// IOError: one of these could not read or write, or the text is a Status
	// of that code.
	IOError
	// LockHeld: another process has the database open.
	LockHeld
	// LockUnsupported: the file system cannot lock, as NFS without its lock
	// service.
	LockUnsupported
	// LockHeldHere: the same process has the database open already.
	LockHeldHere
	// LockRefused: the lock was refused for another reason, or for one that
	// is told in another language than English.
	LockRefused
	// AheadOfWAL: recovery stopped inside the write-ahead logs, and one column
	// family has newer data in its tables: RocksDB does not open the database.
	AheadOfWAL
	// ManifestWrite: the MANIFEST could not be written.
	ManifestWrite
)

var kindNames = [...]string{
	Other:           "other",
	NoSpace:         "no space",
	Corruption:      "corruption",
	IOError:         "I/O error",
	LockHeld:        "lock held by another process",
	LockUnsupported: "lock not supported",
	LockHeldHere:    "lock held by the same process",
	LockRefused:     "lock refused",
	AheadOfWAL:      "tables ahead of the WAL",
	ManifestWrite:   "MANIFEST not written",
}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Classify tells what a message of the log means, or the text of a RocksDB
// Status. Of the latter, an I/O error may lack its prefix "IO error: ", as in
// the exceptions of RocksDB's Java API.
//
// RocksDB's own words are English, what the system says (strerror) need not
// be. In another language
//
//   - NoSpace is told by RocksDB's word for the subcode, but is IOError in an
//     exception of the Java API, which lacks it, and for a quota;
//   - LockHeld and LockUnsupported differ by the system's words alone: both are
//     LockRefused;
//   - all other kinds stay what they are.
func Classify(text string) Kind {
	text = withoutTags(text)
	status := statusOf(text)
	message, isIOError := strings.CutPrefix(status, "IO error: ")
	isIOError = isIOError || beginsAny(message, "While ", "while ")
	switch {
	case strings.HasPrefix(strings.TrimPrefix(status, "Corruption: "), "SST file is ahead of WALs"), // up to 10
		strings.HasPrefix(strings.TrimPrefix(status, "Corruption: "), "Column family inconsistency: SST file"):
		return AheadOfWAL
	case strings.HasPrefix(status, "Corruption: "):
		return Corruption
	case beginsAny(message, "lock hold by current process", "lock : "): // the latter in RocksDB 5, env/env_posix.cc
		return LockHeldHere
	case strings.HasPrefix(message, "While lock file: "):
		return lockError(message)
	case containsAny(text, "No space left on device", "Disk quota exceeded"),
		strings.HasPrefix(text, "free space [") && strings.Contains(text, "is less than"),
		strings.HasPrefix(text, "Cannot clear hard error"): // file/sst_file_manager_impl.cc, for want of space alone
		return NoSpace
	case beginsAny(text, "MANIFEST write ", "Error in committing version edit to MANIFEST", "Unable to close MANIFEST"):
		return ManifestWrite
	case isIOError:
		return IOError
	}
	return Other
}

// lockError knows the words of glibc and musl for EAGAIN, and for ENOLCK,
// ENOTSUP and ENOSYS.
func lockError(message string) Kind {
	why := strings.TrimSpace(message[strings.LastIndex(message, ": ")+2:])
	switch why {
	case "Resource temporarily unavailable":
		return LockHeld
	case "No locks available", "Operation not supported", "Not supported", "Function not implemented":
		return LockUnsupported
	}
	return LockRefused
}

// withoutTags removes "[column family] [JOB 12] " from the beginning.
func withoutTags(text string) string {
	for strings.HasPrefix(text, "[") {
		_, rest, ok := strings.Cut(text, "] ")
		if !ok {
			break
		}
		text = rest
	}
	return text
}

// statusOf is the Status that a message is about, or all of it. Other messages
// that hold one are about less than the database, such as a file that could
// not be deleted, or about what is usual, such as the torn end of a WAL after
// a crash ("dropping 7 bytes; Corruption: …").
func statusOf(text string) string {
	for _, about := range []string{
		"Waiting after background flush error: ",      // db/db_impl/db_impl_compaction_flush.cc
		"Waiting after background compaction error: ", // there too, and the next
		"Compaction error: ",
		"Background IO error ", // db/error_handler.cc
		"WAL Sync error ",      // db/db_impl/db_impl.cc, and the next
		"WAL flush error ",
	} {
		if status, ok := strings.CutPrefix(text, about); ok {
			return status
		}
	}
	return text
}

func beginsAny(text string, words ...string) bool {
	for _, w := range words {
		if strings.HasPrefix(text, w) {
			return true
		}
	}
	return false
}

func containsAny(text string, words ...string) bool {
	for _, w := range words {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
}
