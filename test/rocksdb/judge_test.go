package rocksdb_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"streams-sidecar/internal/finding"
	"streams-sidecar/test/rocksdb"
)

// judgement is what we say of a database: a word, and the codes of the findings.
type judgement struct {
	word  string
	codes []string
}

// ranks orders the words by what they demand of the reader. incompatible and
// unreadable say that it cannot be told.
var ranks = map[string]int{"ok": 0, "empty": 1, "unclean": 2, "incompatible": 3, "unreadable": 3, "damaged": 4}

// The outcomes of RocksDB.
const (
	same      = "same"       // opens, and all is there
	other     = "other"      // opens, and without a word has less or something else
	readError = "read-error" // opens, and something cannot be read or verified
	refuses   = "refuses"
	newer     = "not-supported" // refuses, for it does not know what it is
	doubts    = "doubts"        // refuses, and does not know whether it is damaged or newer
)

// outcome compares an answer with the one about the unharmed database.
func outcome(unharmed, a rocksdb.Answer) (word, text string) {
	switch {
	case a.End != "":
		return string(a.End), a.Last
	case strings.HasPrefix(a.OpenError, "Not implemented"):
		return newer, a.OpenError
	case strings.Contains(a.OpenError, "Corrupt or unsupported"): // table/format.cc:368 and 383
		return doubts, a.OpenError
	case a.OpenError != "":
		return refuses, a.OpenError
	}
	if text := trouble(a); text != "" {
		return readError, text
	}
	var lost []string
	for name, was := range unharmed.Families {
		if is := a.Families[name]; is.Digest != was.Digest || is.Lost != was.Lost {
			lost = append(lost, fmt.Sprintf("%s: %d entries instead of %d, %d not found", name, is.Entries, was.Entries, is.Lost))
		}
	}
	if lost != nil {
		slices.Sort(lost)
		return other, strings.Join(lost, "; ")
	}
	return same, ""
}

// trouble of an open database, "" if there is none.
func trouble(a rocksdb.Answer) string {
	for _, name := range slices.Sorted(maps.Keys(a.Families)) {
		if err := a.Families[name].Error; err != "" {
			return name + ": " + err
		}
	}
	if a.VerifyError != "" {
		return "verify: " + a.VerifyError
	}
	return ""
}

// least and most are the mildest and the strictest word that agree with an
// outcome; damaged where there is none.
var (
	least = map[string]string{same: "ok", newer: "incompatible", doubts: "incompatible"}
	most  = map[string]string{same: "ok", newer: "incompatible"}
)

func rank(of map[string]string, outcome string) int { return ranks[cmp.Or(of[outcome], "damaged")] }

// result is a case after both have spoken.
type result struct {
	name string
	mutation
	judgement
	outcome, text string // of RocksDB
	was           string // our word on the unharmed database
}

// milder says that we say less than what happened, stricter that we say more
// than what RocksDB showed, and than what we said before the damage.
func (r result) milder() bool { return ranks[r.word] < rank(least, r.outcome) }
func (r result) stricter() bool {
	return ranks[r.word] > rank(most, r.outcome) && ranks[r.word] > ranks[r.was]
}

// class is a kind of difference between our word and RocksDB's that is meant.
type class struct {
	name string
	// why our word stays, and source: where RocksDB 10.10.1 does what it does.
	why, source string
	holds       func(r result) bool // of a difference
}

const mostClasses = 5

// classes of all differences. In none but the first two, of which Kafka Streams
// writes neither, is our word milder than what happened.
var classes = []class{
	{
		"no checksum",
		"no checksum tells that bytes of a table are wrong which was written without any, as Kafka Streams never does; others may be as good",
		"table/format.cc:627: it counts as 0, and so does the one that is computed",
		func(r result) bool { return r.unchecked && (r.kind == "flip" || r.kind == "zero") },
	},
	{
		"another's table without ids",
		"a table of another database with the same number and size, whose place in the MANIFEST has no unique id, as RocksDB before 7.3 writes none; a restored backup has tables of another database too, so that theirs proves nothing",
		"table/block_based/block_based_table_reader.cc:880-899, which compares only what the MANIFEST has",
		func(r result) bool {
			return r.milder() && r.kind == "foreign" && r.outcome == other && strings.Contains(r.name, "/without-ids/")
		},
	},
	{
		"hidden by newer tables",
		"blocks of a table have changed places; nobody reads them there, for newer tables have all of their keys",
		"table/merging_iterator.cc:36-60, where of several entries of a key only the newest is shown",
		func(r result) bool { return r.stricter() && r.kind == "swap-blocks" && r.outcome == same },
	},
	{
		"lost records of the MANIFEST",
		"RocksDB takes a record beyond the end of the file, or one of zeros, for one whose writer died, and what it said for nothing, and misses no record that is gone; here that was nothing, or only what later writes hide, but only the lost bytes could tell",
		"db/log_reader.cc:253-271, 309-320 and 614-621, with the mode of db/log_reader.h:87",
		func(r result) bool {
			return r.stricter() && r.target == "MANIFEST" &&
				slices.ContainsFunc(r.codes, func(code string) bool {
					return strings.HasPrefix(code, "manifest-") || code == string(finding.SSTUnreferenced)
				})
		},
	},
}
