// Package verify judges: what is wrong with a store, a task, an application,
// and how sure that is. It has two parts.
//
// [Judge] draws conclusions from one picture of the state directories, and
// reads nothing: what a checkpoint claims against what the store holds, how a
// store was closed, whether a version of Kafka Streams can read it. [Check]
// reads tables again: quick, every part that RocksDB reads when it opens one;
// deep, every byte. [Run] is the two together, for a command.
//
// It says "damage" only after a second look: what Judge concludes must be true
// of two pictures in a row, what Check finds must be found again in a database
// that was read anew. A file that vanished, a volume that fails, a permission
// and a newer format are never damage.
//
// It takes no lock, keeps no file open longer than it reads it, and lets go of
// one that was deleted meanwhile. It forecasts nothing and repairs nothing.
package verify

import (
	"slices"

	"streams-sidecar/internal/finding"
)

// Verdict on a store, or the worst of those in a task or an application.
type Verdict string

// The verdicts, in ascending order.
const (
	Empty        Verdict = "empty"        // there is nothing in it
	OK           Verdict = "ok"           // nothing is wrong, as far as was looked
	Unclean      Verdict = "unclean"      // usable, but not closed cleanly
	Incompatible Verdict = "incompatible" // of a format that this version, or the one that is to start, cannot read
	Unreadable   Verdict = "unreadable"   // could not be read
	Damaged      Verdict = "damaged"      // what was written is lost, or not what was written
)

// Verdicts are all of them, in ascending order.
func Verdicts() []Verdict {
	return []Verdict{Empty, OK, Unclean, Incompatible, Unreadable, Damaged}
}

// Worse of two verdicts.
func Worse(a, b Verdict) Verdict {
	if slices.Index(Verdicts(), a) < slices.Index(Verdicts(), b) {
		return b
	}
	return a
}

// of is the verdict that a finding alone calls for.
func of(f *finding.Finding) Verdict {
	switch {
	case f.Severity == finding.Damage:
		return Damaged
	case f.Code == finding.FormatNewer || f.Code == finding.VersionCannotRead || f.Code == finding.Encrypted:
		return Incompatible
	case f.Severity == finding.Unreadable:
		return Unreadable
	}
	switch f.Code {
	case finding.UncleanEnd, finding.StatusOpen, finding.ManifestTailCut, finding.CheckpointLeftBehind:
		return Unclean
	}
	return OK
}

// Worst is the verdict that findings alone call for, Empty if there are none.
func Worst(fs []finding.Finding) Verdict {
	v := Empty
	for i := range fs {
		v = Worse(v, of(&fs[i]))
	}
	return v
}

// Guarantee is the processing guarantee of an application.
type Guarantee string

// The guarantees. Auto is the one that the files show, mostly none.
const (
	Auto        Guarantee = "auto"
	AtLeastOnce Guarantee = "at-least-once"
	ExactlyOnce Guarantee = "exactly-once"
)

// Question is what the answer depends on and the files do not tell.
type Question struct {
	Guarantee Guarantee
	// Streams is the version that will start next; nil for whichever wrote the
	// files.
	Streams *Version
}

// Judged is what there is to say of a store, a task or an application.
type Judged struct {
	Verdict Verdict
	// Findings of its own: those of its parts are theirs.
	Findings []finding.Finding

	// concluded counts what was concluded of it, left what of that was too much.
	concluded, left int
}

func (j *Judged) add(f finding.Finding) { j.Findings = merge(j.Findings, f) }

// merge adds a finding to a list that may belong to a picture, unless the list
// has one of the same code about the same place.
func merge(fs []finding.Finding, f finding.Finding) []finding.Finding {
	for i := range fs {
		if sameFinding(&fs[i], &f) {
			return fs
		}
	}
	return append(slices.Clip(fs), f)
}

func sameFinding(a, b *finding.Finding) bool {
	return a.Code == b.Code && a.File == b.File && (a.Offset == nil) == (b.Offset == nil) && (a.Offset == nil || *a.Offset == *b.Offset)
}
