package rocksdb_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/rocksfile/sst"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
)

// judge is our word on the database in dir: what one look at the store finds,
// and every checksum of its live tables.
func judge(dir string) judgement {
	s := store.Alone(volume.New(volume.OS()), dir)
	j := judgement{word: "ok"}
	say := func(word, code string) {
		if !slices.Contains(j.codes, code) {
			j.codes = append(j.codes, code)
		}
		if ranks[word] > ranks[j.word] {
			j.word = word
		}
	}
	findings := slices.Clone(s.Findings)
	for _, d := range s.Databases {
		findings = append(findings, d.Findings...)
		if d.IsEmpty() {
			say("empty", "empty")
		}
		state, _, ok := d.Manifest()
		if !ok {
			continue
		}
		for _, family := range state.Families {
			for _, f := range family.Files {
				for _, e := range checksums(filepath.Join(dir, fmt.Sprintf("%06d.sst", f.Number))) {
					word := "damaged"
					if e.Kind == sst.Unsupported {
						word = "incompatible"
					}
					say(word, e.Part+" "+e.Kind.String())
				}
			}
		}
	}
	if s.Closed == store.Unclean {
		say("unclean", "unclean")
	}
	for _, f := range findings {
		switch {
		case f.Code == finding.FormatNewer:
			say("incompatible", string(f.Code))
		case f.Code == finding.ManifestTailPartial:
			say("unclean", string(f.Code))
		case f.Severity == finding.Unreadable:
			say("damaged", string(f.Code))
		}
	}
	return j
}

// checksums gives what is wrong with a table; that it is missing, the look at
// the store has found.
func checksums(path string) []*sst.Error {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	table, err := sst.Open(bytes.NewReader(data), int64(len(data)))
	if err == nil {
		var v *sst.Verification
		if v, err = table.Verify(sst.Checksums); err == nil {
			return v.Errors
		}
	}
	if e, ok := errors.AsType[*sst.Error](err); ok {
		return []*sst.Error{e}
	}
	return nil
}

// standInMisses are differences in which this judge is milder than what
// happened: what a real one has to see.
var standInMisses = []class{
	{
		"other size",
		"the MANIFEST has the size of each table",
		"table/format.cc:505",
		func(r result) bool { return r.milder() && strings.Contains(r.text, "Sst file size mismatch") },
	},
	{
		"other unique ID",
		"the MANIFEST has the unique ID of each table, which is made of its properties db_id, db_session_id and original file number",
		"table/block_based/block_based_table_reader.cc:880-899",
		func(r result) bool { return r.milder() && strings.Contains(r.text, "Mismatch in unique ID") },
	},
	{
		"another's table",
		"without unique IDs in the MANIFEST only the table's own properties and keys tell that it is another one",
		"table/block_based/block_based_table_reader.cc:881",
		func(r result) bool {
			return r.milder() && (strings.HasPrefix(r.target, "SST") || r.kind == "foreign") && r.outcome == other
		},
	},
	{
		"last sequence",
		"the last edit has a lower last sequence than a table; RocksDB hides the entries above it",
		"db/version_edit_handler.cc:635-641, where only an assertion minds",
		func(r result) bool { return r.milder() && r.kind == "swap-records" && r.outcome == other },
	},
	{
		"lost edits",
		"tables lie in the directory that no edit names, as new as the MANIFEST or newer; RocksDB deletes them",
		"db/version_edit_handler.cc:33-65, db/db_impl/db_impl_files.cc:577-579",
		func(r result) bool { return r.milder() && r.target == "MANIFEST" && r.outcome == other },
	},
}
