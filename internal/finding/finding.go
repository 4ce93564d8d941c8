// Package finding is the vocabulary of what the sidecar has to say about a
// state directory: stable codes with a severity, a meaning and an advice, and
// the evidence of one case.
//
// A code is never renamed; docs/findings.md has one section for each, and a
// test holds the two together. The package judges nothing and reads nothing:
// readers make findings. It imports only volume (for the text form of names).
package finding

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"streams-sidecar/internal/volume"
)

// Severity of a finding.
type Severity string

// The severities, in ascending order. Info is worth knowing and changes no exit
// code. Warning means that something is not as it should be. Unreadable means
// that something which was asked for could not be judged: it could not be read,
// or is of a format that this version does not know. Damage means that what was
// written is lost or not what was written.
const (
	Info       Severity = "info"
	Warning    Severity = "warning"
	Unreadable Severity = "unreadable"
	Damage     Severity = "damage"
)

// Rank of a severity: 0 for info to 3 for damage.
func (s Severity) Rank() int {
	return slices.Index([]Severity{Info, Warning, Unreadable, Damage}, s)
}

// Judgeable is false for what could not be judged and for damage.
func (s Severity) Judgeable() bool { return s.Rank() < Unreadable.Rank() }

// Code names a kind of finding.
type Code string

// Finding is one thing found, in the shape of docs/json.md.
type Finding struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	// File is the path it is about, made readable by [volume.Text].
	File string `json:"file,omitempty"`
	// Offset in the file, bytes, where one is known.
	Offset *int64 `json:"offset,omitempty"`
	// Expected and Found are the evidence, in words or numbers. What cannot
	// be printed is escaped, since it may come out of a damaged file.
	Expected string `json:"expected,omitempty"`
	Found    string `json:"found,omitempty"`
	// Text is one sentence on what it means.
	Text string `json:"text"`
}

// Detail adds evidence to a finding under construction.
type Detail func(*Finding)

// At sets the byte offset.
func At(offset int64) Detail { return func(f *Finding) { f.Offset = &offset } }

// Expected and Found set the evidence.
func Expected(format string, args ...any) Detail {
	return func(f *Finding) { f.Expected = fmt.Sprintf(format, args...) }
}

// Found sets what was there instead.
func Found(format string, args ...any) Detail {
	return func(f *Finding) { f.Found = fmt.Sprintf(format, args...) }
}

// New makes a finding of a code about a path of the volume. The text is the
// code's meaning. It panics on a code that is not in the catalog.
func New(code Code, path string, details ...Detail) Finding {
	k, ok := catalog[code]
	if !ok {
		panic("finding: no such code: " + string(code))
	}
	f := Finding{Code: code, Severity: k.Severity, File: volume.Text(path), Text: k.Meaning}
	for _, d := range details {
		d(&f)
	}
	f.Expected, f.Found = printable(f.Expected), printable(f.Found)
	return f
}

// printable escapes what is not UTF-8 or cannot be printed. Unlike
// [volume.Text] it leaves backslashes alone, for evidence is often made with
// %q or Text already.
func printable(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return s
	}
	b := make([]byte, 0, len(s)+16)
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if strconv.IsPrint(r) && (r != utf8.RuneError || n > 1) {
			b = append(b, s[:n]...)
		} else {
			quoted := strconv.Quote(s[:n])
			b = append(b, quoted[1:len(quoted)-1]...)
		}
		s = s[n:]
	}
	return string(b)
}

// FromError makes a finding of an error of the volume, which must not be nil.
// What is gone, or what this process lacks, has no code of its own and becomes
// Unread: whoever can tell more should do so before.
func FromError(err error, path string) Finding {
	code := codeOfClass(volume.ClassOf(err))
	return New(code, path, Found("%v", err))
}

func codeOfClass(c volume.Class) Code {
	switch c {
	case volume.Denied:
		return PermissionDenied
	case volume.IO:
		return IOError
	case volume.Stuck:
		return VolumeStuck
	case volume.WrongKind:
		return WrongKind
	case volume.NoLocks:
		return LockUnsupported
	case volume.TooLarge:
		return FileTooLarge
	default:
		return Unread
	}
}

// Most bounds a list of findings about one thing: a hostile file must not make
// any number of them.
const Most = 100

// Bounded gives a list with no more findings than [Most], the last of which says how
// many were left out beside those.
func Bounded(fs []Finding, left int) []Finding {
	if left == 0 || len(fs) == 0 {
		return fs
	}
	last := fs[len(fs)-1]
	last.File, last.Offset, last.Expected = filepath.Dir(last.File), nil, ""
	last.Found = fmt.Sprintf("%d more findings of this and other kinds", left)
	return append(slices.Clip(fs), last)
}

// Kind is what is known of a code beforehand.
type Kind struct {
	Severity Severity
	Meaning  string // one sentence
	Advice   string // one sentence
}

// Explain gives the severity, meaning and advice of a code.
func Explain(c Code) (Kind, bool) {
	k, ok := catalog[c]
	return k, ok
}

// Codes lists every code in alphabetical order.
func Codes() []Code {
	return slices.Sorted(maps.Keys(catalog))
}
