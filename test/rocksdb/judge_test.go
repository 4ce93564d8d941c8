package rocksdb_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

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
)

// outcome compares an answer with the one about the unharmed database.
func outcome(unharmed, a rocksdb.Answer) (word, text string) {
	switch {
	case a.End != "":
		return string(a.End), a.Last
	case strings.HasPrefix(a.OpenError, "Not implemented"):
		return newer, a.OpenError
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

// demand is the mildest word that an outcome allows.
var demand = map[string]string{same: "ok", newer: "incompatible", other: "damaged", readError: "damaged", refuses: "damaged",
	string(rocksdb.Hangs): "damaged", string(rocksdb.Dies): "damaged"}

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
func (r result) milder() bool { return ranks[r.word] < ranks[demand[r.outcome]] }
func (r result) stricter() bool {
	return ranks[r.word] > ranks[demand[r.outcome]] && ranks[r.word] > ranks[r.was]
}

func (r result) has(code string) bool { return slices.Contains(r.codes, code) }

// class is a kind of difference between our word and RocksDB's that is meant.
type class struct {
	name string
	// why our word stays, and source: where RocksDB 10.10.1 does what it does.
	why, source string
	holds       func(r result) bool // of a difference
}

const mostClasses = 5

// classes of all differences. In none but the first is our word milder than
// what happened.
var classes = append([]class{
	{
		"no checksum",
		"a table that was written without checksums, which Kafka Streams never does, has wrong bytes that are as good as others; nothing in the file tells",
		"table/format.cc:627, ComputeBuiltinChecksum gives 0 for it",
		func(r result) bool { return r.milder() && r.unchecked },
	},
	{
		"end of the MANIFEST",
		"RocksDB takes a record that goes beyond the end of the file for one whose writer died, and what it would have said for nothing; here that was nothing, but only the lost bytes could tell",
		"db/log_reader.cc:309-320 and 253-271, with the mode of db/log_reader.h:87",
		func(r result) bool {
			return r.stricter() && r.target == "MANIFEST" && strings.HasPrefix(r.codes[0], "manifest-")
		},
	},
}, standInMisses...)
