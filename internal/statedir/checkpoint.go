package statedir

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/volume"
)

// OffsetUnknown is the offset that Streams writes for a changelog whose
// position it does not know, mostly right after a first start
// (OffsetCheckpoint.OFFSET_UNKNOWN).
const OffsetUnknown = -4

// maxOffsetsFile bounds .checkpoint and .position files, in bytes. A real one
// has a line for each store or source partition of one task.
const maxOffsetsFile = 16 << 20

// Checkpoint is one file in Streams' format of offsets: .checkpoint,
// .checkpoint_<store> or <store>.position.
type Checkpoint struct {
	Path     string
	ModNanos int64  // st_mtim, nanoseconds since the epoch
	Dev, Ino uint64 // together the identity of this writing of it: Streams replaces the file by a rename
	Size     int64  // bytes
	Entries  []Offset
}

// Offset is one line of a [Checkpoint], as it stands in the file. In a
// .checkpoint it is the changelog offset of the last record applied, in that
// of the global task the offset of the next one to read; [OffsetUnknown] is
// kept. In a .position it is the input offset of the last record processed.
type Offset struct {
	Topic     string // may be any bytes; Streams does not check it
	Partition int32
	Offset    int64
}

// ParseError says where and why Streams cannot parse a file of offsets.
type ParseError struct {
	Line     int   // the first is 1; one past the last where the file ends too early
	Offset   int64 // of the offending part, bytes from the start of the file
	Expected string
	Found    string
	// WrongCount says that every line can be parsed and their number is not
	// what the second one promises.
	WrongCount bool
}

// CheckpointCode is the code of the finding for a .checkpoint of size bytes that
// cannot be parsed.
func (e *ParseError) CheckpointCode(size int64) finding.Code {
	switch {
	case size == 0:
		return finding.CheckpointEmpty
	case e.WrongCount:
		return finding.CheckpointWrongCount
	default:
		return finding.CheckpointMalformed
	}
}

func (e *ParseError) Error() string {
	return fmt.Sprintf("line %d, byte %d: expected %s, found %s", e.Line, e.Offset, e.Expected, e.Found)
}

// ParseCheckpoint reads the text that OffsetCheckpoint of Kafka Streams writes
// (the same from 2.8 to 4.4): a line "0" (the version), a line with the number
// of entries, and for each entry "topic partition offset". It accepts exactly
// what that class's read accepts, oddities included, because what matters is
// whether Streams will start: spaces before a number of the first two lines
// are an error, a plus sign is not; fields may be parted and followed by any
// white space; a topic may be empty; of a partition that is listed twice the
// last offset counts, as one entry; an entry with a negative offset other than
// -4 is dropped and the number of entries that the second line promises is
// lowered by one. The error is a *[ParseError].
func ParseCheckpoint(data []byte) ([]Offset, error) {
	p := parser{text: string(data)}
	if err := p.header("format version 0", func(n int64) bool { return n == 0 }); err != nil {
		return nil, err
	}
	var count int64
	countAt := p.next
	if err := p.header("the number of entries", func(n int64) bool { count = n; return true }); err != nil {
		return nil, err
	}
	entries := make([]Offset, 0, p.maxEntries())
	dropped := int64(0)
	for p.advance() {
		e, err := p.entry()
		if err != nil {
			return nil, err
		}
		if e.Offset < 0 && e.Offset != OffsetUnknown {
			dropped++
			continue
		}
		entries = append(entries, e)
	}
	entries = lastOfEach(entries)
	if int64(len(entries)) != count-dropped {
		found := fmt.Sprintf("%d", len(entries))
		if dropped > 0 {
			found = fmt.Sprintf("%d, and %d with a negative offset", len(entries), dropped)
		}
		return nil, &ParseError{Line: 2, Offset: int64(countAt), Expected: fmt.Sprintf("%d entries", count), Found: found, WrongCount: true}
	}
	return entries, nil
}

// parser goes through the lines as Java's BufferedReader.readLine does: they
// end with \n, \r or \r\n, and the last one may end with the file.
type parser struct {
	text   string
	line   string
	at     int // where line begins
	next   int // where the next one begins
	number int // of line
}

func (p *parser) advance() bool {
	p.at, p.number = p.next, p.number+1
	rest := p.text[p.at:]
	if rest == "" {
		p.line = ""
		return false
	}
	end := strings.IndexAny(rest, "\n\r")
	if end < 0 {
		p.line, p.next = rest, len(p.text)
		return true
	}
	p.line, p.next = rest[:end], p.at+end+1
	if strings.HasPrefix(rest[end:], "\r\n") {
		p.next++
	}
	return true
}

// maxEntries bounds how many entries can follow. The shortest line is five
// bytes long (an empty topic), so that a file of line ends alone costs no more
// than a real one of its size.
func (p *parser) maxEntries() int {
	rest := p.text[p.next:]
	return min(strings.Count(rest, "\n")+strings.Count(rest, "\r")+1, len(rest)/5+1)
}

// header reads one of the first two lines.
func (p *parser) header(expected string, accept func(int64) bool) error {
	if !p.advance() {
		return &ParseError{Line: p.number, Offset: int64(p.at), Expected: expected, Found: "the end of the file"}
	}
	n, ok := javaInt(p.line, 32)
	if !ok || !accept(n) {
		return p.failure(p.line, 0, expected)
	}
	return nil
}

// blanks is what \s means to a Java regular expression, without line ends.
const blanks = " \t\v\f"

func (p *parser) entry() (Offset, error) {
	// The decoder of the reader refuses what is not UTF-8.
	if !utf8.ValidString(p.line) {
		return Offset{}, p.failure(p.line, 0, "UTF-8")
	}
	line := strings.TrimRight(p.line, blanks)
	topic, rest, ok := cutBlanks(line)
	partitionAt := len(line) - len(rest)
	partitionText, offsetText, ok2 := cutBlanks(rest)
	if !ok || !ok2 || strings.ContainsAny(offsetText, blanks) {
		return Offset{}, p.failure(p.line, 0, "topic, partition and offset")
	}
	partition, ok := javaInt(partitionText, 32)
	if !ok {
		return Offset{}, p.failure(partitionText, partitionAt, "a partition number")
	}
	offset, ok := javaInt(offsetText, 64)
	if !ok {
		return Offset{}, p.failure(offsetText, len(line)-len(offsetText), "an offset")
	}
	return Offset{topic, int32(partition), offset}, nil
}

func cutBlanks(s string) (before, after string, ok bool) {
	i := strings.IndexAny(s, blanks)
	if i < 0 {
		return s, "", false
	}
	return s[:i], strings.TrimLeft(s[i:], blanks), true
}

// failure is about a part of the line that begins at a byte of it.
func (p *parser) failure(part string, begin int, expected string) error {
	const longest = 64
	found := strconv.Quote(part[:min(len(part), longest)])
	if len(part) > longest {
		found += fmt.Sprintf("… (%d bytes)", len(part))
	}
	return &ParseError{Line: p.number, Offset: int64(p.at + begin), Expected: expected, Found: found}
}

// javaInt is Integer.parseInt and Long.parseLong.
func javaInt(s string, bits int) (int64, bool) {
	// Java takes the decimal digits of every script, if they are one UTF-16
	// unit long.
	if strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) {
		s = strings.Map(asciiDigit, s)
	}
	n, err := strconv.ParseInt(s, 10, bits)
	return n, err == nil
}

func asciiDigit(r rune) rune {
	if r < utf8.RuneSelf {
		return r
	}
	for _, x := range unicode.Nd.R16 { // each range is one script's 0 to 9
		if rune(x.Lo) <= r && r <= rune(x.Hi) {
			return '0' + (r-rune(x.Lo))%10
		}
	}
	return utf8.RuneError
}

// lastOfEach leaves one entry for each partition: where the first was, with
// the offset of the last.
func lastOfEach(entries []Offset) []Offset {
	order := make([]int32, len(entries))
	for i := range order {
		order[i] = int32(i)
	}
	// A sorted list of indices, because a map would cost several times the
	// file.
	partition := func(i, j int32) int {
		a, b := &entries[i], &entries[j]
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), strings.Compare(a.Topic, b.Topic))
	}
	slices.SortFunc(order, func(i, j int32) int { return cmp.Or(partition(i, j), cmp.Compare(i, j)) })
	const gone = -1
	distinct := 0
	for i := 0; i < len(order); distinct++ {
		first := order[i]
		for i++; i < len(order) && partition(first, order[i]) == 0; i++ {
			entries[first].Offset = entries[order[i]].Offset
			entries[order[i]].Offset = gone
		}
	}
	if distinct == len(entries) {
		return entries
	}
	return slices.DeleteFunc(entries, func(e Offset) bool { return e.Offset == gone })
}

// offsetsFile is what a look found in one file of offsets: either the parsed
// file, the error that Streams will fail with, or the error of the volume. It
// is not changed any more once the look has ended.
type offsetsFile struct {
	fileName
	stamp  stamp
	parsed *Checkpoint
	broken *ParseError
	err    error
}

// readOffsets reads the file e of a directory, unless the memory already knows it.
func readOffsets(fsys volume.FS, dir string, e *volume.Info, mem *memory) *offsetsFile {
	f := &offsetsFile{fileName: fileName{dir, e.Name}}
	info, err := regular(fsys, dir, e)
	if err != nil {
		f.err = err
		return f
	}
	if known, ok := mem.offsets[f.fileName]; ok && known.stamp == stampOf(info) {
		return known
	}
	path := join(dir, e.Name)
	data, info, err := readFile(fsys, path, info, maxOffsetsFile)
	if err != nil {
		f.err = err
		return f
	}
	f.stamp = stampOf(info)
	entries, err := ParseCheckpoint(data)
	if broken, ok := errors.AsType[*ParseError](err); ok {
		f.broken = broken
		return f
	}
	f.parsed = &Checkpoint{
		Path: path, ModNanos: info.ModNanos, Dev: info.Dev, Ino: info.Ino, Size: info.Size, Entries: entries,
	}
	return f
}

// LookCheckpoint reads the task's .checkpoint anew. It gives [Task.Checkpoint]
// itself as long as the file is the same one. Of a file that cannot be parsed c
// has no entries; where there is none, c is nil. The error is one of the volume.
func (t *Task) LookCheckpoint(v *volume.Volume) (c *Checkpoint, err error) {
	path := join(t.Path, checkpointName)
	c, err = volume.Do(v, t.Path, func(fs volume.FS) (*Checkpoint, error) {
		info, err := fs.Stat(path)
		if k := t.Checkpoint; err != nil || k != nil && k.Ino == info.Ino && k.Dev == info.Dev && k.ModNanos == info.ModNanos && k.Size == info.Size {
			return k, err
		}
		data, info, err := volume.ReadFile(fs, path, maxOffsetsFile)
		if err != nil {
			return nil, err
		}
		c := &Checkpoint{Path: path, ModNanos: info.ModNanos, Dev: info.Dev, Ino: info.Ino, Size: info.Size}
		if entries, err := ParseCheckpoint(data); err == nil {
			c.Entries = entries
		}
		return c, nil
	})
	if err != nil {
		c = nil
		if volume.IsGone(err) {
			err = nil
		}
	}
	return c, err
}

// problem is the finding of a file that could not be read or parsed, if there
// is one. code is that of a malformed file.
func (f *offsetsFile) problem(code finding.Code) (finding.Finding, bool) {
	if f.broken == nil && f.err == nil {
		return finding.Finding{}, false
	}
	path := join(f.dir, f.name)
	if f.broken != nil {
		if code == finding.CheckpointMalformed {
			code = f.broken.CheckpointCode(f.stamp.size)
		}
		return finding.New(code, path, finding.At(f.broken.Offset),
			finding.Expected("line %d: %s", f.broken.Line, f.broken.Expected),
			finding.Found("%s", f.broken.Found)), true
	}
	return problem(f.err, path)
}
