package statedir

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// The verdicts of this table are those of OffsetCheckpoint.read on Java 17.
func TestParseCheckpoint(t *testing.T) {
	t.Parallel()
	one := []Offset{{"a", 0, 5}}
	for _, c := range []struct {
		name, text string
		want       []Offset
		err        *ParseError
	}{
		{name: "as Streams writes it", text: "0\n2\nx-kv-changelog 0 2999\nx-x00-changelog 12 -4\n",
			want: []Offset{{"x-kv-changelog", 0, 2999}, {"x-x00-changelog", 12, OffsetUnknown}}},
		{name: "no entries", text: "0\n0\n", want: []Offset{}},
		{name: "no line end at the end", text: "0\n1\na 0 5", want: one},
		{name: "line ends of Windows", text: "0\r\n1\r\na 0 5\r\n", want: one},
		{name: "line ends of old Macs", text: "0\r1\ra 0 5\r", want: one},
		{name: "other white space", text: "0\n1\na\t 0 \v\f5 \t\n", want: one},
		{name: "signs and leading zeros", text: "+0\n+01\na +00 +05\n", want: one},
		{name: "negative zeros", text: "-0\n1\na -0 -0\n", want: []Offset{{"a", 0, 0}}},
		{name: "digits of other scripts", text: "٠\n１\na ० ٥\n", want: one},
		{name: "negative partition", text: "0\n1\na -7 5\n", want: []Offset{{"a", -7, 5}}},
		{name: "largest numbers", text: "0\n1\na 2147483647 9223372036854775807\n", want: []Offset{{"a", math.MaxInt32, math.MaxInt64}}},
		{name: "empty topic", text: "0\n1\n 0 5\n", want: []Offset{{"", 0, 5}}},
		{name: "topic in Unicode", text: "0\n1\né 0 5\n", want: []Offset{{"é", 0, 5}}},
		{name: "negative offset is dropped", text: "0\n2\nb 0 -1\na 0 5\n", want: one},
		{name: "smallest offset is dropped", text: "0\n2\na 0 5\nb 0 -9223372036854775808\n", want: one},
		{name: "the last of equal ones counts", text: "0\n2\na 0 1\nb 0 2\na 0 5\n", want: []Offset{{"a", 0, 5}, {"b", 0, 2}}},
		{name: "a dropped one does not replace", text: "0\n2\na 0 5\na 0 -1\n", want: one},

		{name: "empty file", text: "", err: &ParseError{Line: 1, Offset: 0, Expected: "format version 0", Found: "the end of the file"}},
		{name: "garbage", text: "hello\n", err: &ParseError{Line: 1, Offset: 0, Expected: "format version 0", Found: `"hello"`}},
		{name: "another version", text: "1\n0\n", err: &ParseError{Line: 1, Offset: 0, Expected: "format version 0", Found: `"1"`}},
		{name: "space before the version", text: " 0\n0\n", err: &ParseError{Line: 1, Offset: 0, Expected: "format version 0", Found: `" 0"`}},
		{name: "byte order mark", text: "\ufeff0\n0\n", err: &ParseError{Line: 1, Offset: 0, Expected: "format version 0", Found: `"\ufeff0"`}},
		{name: "digits outside the BMP", text: "𝟎\n0\n", err: &ParseError{Line: 1, Offset: 0, Expected: "format version 0", Found: `"𝟎"`}},
		{name: "only the version", text: "0\n", err: &ParseError{Line: 2, Offset: 2, Expected: "the number of entries", Found: "the end of the file"}},
		{name: "empty count", text: "0\n\n", err: &ParseError{Line: 2, Offset: 2, Expected: "the number of entries", Found: `""`}},
		{name: "count above int32", text: "0\n2147483648\n", err: &ParseError{Line: 2, Offset: 2, Expected: "the number of entries", Found: `"2147483648"`}},
		{name: "zero bytes", text: "\x00\x00\x00", err: &ParseError{Line: 1, Offset: 0, Expected: "format version 0", Found: `"\x00\x00\x00"`}},
		{name: "too few entries", text: "0\n9\na 0 5\nb 0 5\n", err: &ParseError{Line: 2, Offset: 2, Expected: "9 entries", Found: "2"}},
		{name: "too many entries", text: "0\n1\na 0 5\nb 0 5\n", err: &ParseError{Line: 2, Offset: 2, Expected: "1 entries", Found: "2"}},
		{name: "negative count", text: "0\n-1\n", err: &ParseError{Line: 2, Offset: 2, Expected: "-1 entries", Found: "0"}},
		{name: "count of equal ones", text: "0\n2\na 0 1\na 0 5\n", err: &ParseError{Line: 2, Offset: 2, Expected: "2 entries", Found: "1"}},
		{name: "count without the dropped", text: "0\n1\na 0 5\nb 0 -1\n", err: &ParseError{Line: 2, Offset: 2, Expected: "1 entries", Found: "1, and 1 with a negative offset"}},
		{name: "blank line at the end", text: "0\n1\na 0 5\n\n", err: &ParseError{Line: 4, Offset: 10, Expected: "topic, partition and offset", Found: `""`}},
		{name: "line of blanks", text: "0\n1\n   \n", err: &ParseError{Line: 3, Offset: 4, Expected: "topic, partition and offset", Found: `"   "`}},
		{name: "two fields", text: "0\n1\na 0\n", err: &ParseError{Line: 3, Offset: 4, Expected: "topic, partition and offset", Found: `"a 0"`}},
		{name: "four fields", text: "0\n1\na 0 5 6\n", err: &ParseError{Line: 3, Offset: 4, Expected: "topic, partition and offset", Found: `"a 0 5 6"`}},
		{name: "space before the topic", text: "0\n1\n a 0 5\n", err: &ParseError{Line: 3, Offset: 4, Expected: "topic, partition and offset", Found: `" a 0 5"`}},
		{name: "no-break space", text: "0\n1\na\u00a00\u00a05\n", err: &ParseError{Line: 3, Offset: 4, Expected: "topic, partition and offset", Found: `"a\u00a00\u00a05"`}},
		{name: "no partition number", text: "0\n1\nx  x 5\n", err: &ParseError{Line: 3, Offset: 7, Expected: "a partition number", Found: `"x"`}},
		{name: "partition above int32", text: "0\n1\na 2147483648 5\n", err: &ParseError{Line: 3, Offset: 6, Expected: "a partition number", Found: `"2147483648"`}},
		{name: "no offset", text: "0\n1\n5x 5  5x \n", err: &ParseError{Line: 3, Offset: 10, Expected: "an offset", Found: `"5x"`}},
		{name: "offset above int64", text: "0\n1\na 0 9223372036854775808\n", err: &ParseError{Line: 3, Offset: 8, Expected: "an offset", Found: `"9223372036854775808"`}},
		{name: "not UTF-8", text: "0\n1\n\xff 0 5\n", err: &ParseError{Line: 3, Offset: 4, Expected: "UTF-8", Found: `"\xff 0 5"`}},
		{name: "UTF-8 cut off by the end", text: "0\n1\na 0 5\n\xc3", err: &ParseError{Line: 4, Offset: 10, Expected: "UTF-8", Found: `"\xc3"`}},
		{name: "half a surrogate pair", text: "0\n1\n\xed\xa0\x80 0 5\n", err: &ParseError{Line: 3, Offset: 4, Expected: "UTF-8", Found: `"\xed\xa0\x80 0 5"`}},
		{name: "long line", text: strings.Repeat("x", 100), err: &ParseError{Line: 1, Offset: 0, Expected: "format version 0",
			Found: `"` + strings.Repeat("x", 64) + `"… (100 bytes)`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := ParseCheckpoint([]byte(c.text))
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
			var broken *ParseError
			if err != nil && !errors.As(err, &broken) {
				t.Fatalf("error is a %T", err)
			}
			if broken != nil && broken.WrongCount != (strings.HasSuffix(broken.Expected, " entries") && !strings.HasPrefix(broken.Expected, "the ")) {
				t.Errorf("wrong count: %v, of %v", broken.WrongCount, broken)
			}
			if diff := cmp.Diff(c.err, broken, cmpopts.IgnoreFields(ParseError{}, "WrongCount")); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseErrorText(t *testing.T) {
	t.Parallel()
	_, err := ParseCheckpoint([]byte("0\n1\na 0 x\n"))
	if want := `line 3, byte 8: expected an offset, found "x"`; err == nil || err.Error() != want {
		t.Errorf("error %q, want %q", err, want)
	}
}

func TestParseCheckpointKeepsNoReferenceToItsInput(t *testing.T) {
	t.Parallel()
	data := []byte("0\n1\nabc 0 5\n")
	got, err := ParseCheckpoint(data)
	if err != nil {
		t.Fatal(err)
	}
	clear(data)
	if got[0].Topic != "abc" {
		t.Errorf("topic became %q", got[0].Topic)
	}
}

// Files made to cost as much as possible: memory is a small multiple of the
// file, and a parser that took more than about linear time would be noticed.
func TestParseCheckpointCost(t *testing.T) {
	// Not parallel: allocations are counted.
	const size = 1 << 20
	for name, text := range map[string][]byte{
		"line ends":       bytes.Repeat([]byte("\n"), size),
		"shortest lines":  append([]byte("0\n1\n"), bytes.Repeat([]byte(" 0 0\n"), size/5-1)...),
		"one long number": append([]byte("0\n"), bytes.Repeat([]byte("9"), size-2)...),
		"one long line":   append([]byte("0\n1\n"), bytes.Repeat([]byte("a "), size/2-2)...),
		"other digits":    append([]byte("0\n"), bytes.Repeat([]byte("٩"), size/2-1)...),
		"distinct":        manyEntries(size),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := ParseCheckpoint(text)
		runtime.ReadMemStats(&after)
		if bytes := after.TotalAlloc - before.TotalAlloc; bytes > 10*size {
			t.Errorf("%s: %d bytes allocated for a file of %d (%v)", name, bytes, size, err)
		}
		if calls := after.Mallocs - before.Mallocs; calls > 1000 {
			t.Errorf("%s: %d allocations", name, calls)
		}
	}
}

func manyEntries(size int) []byte {
	var lines []byte
	n := 0
	for ; len(lines) < size-20; n++ {
		lines = fmt.Appendf(lines, "a %d 0\n", n)
	}
	return append(fmt.Appendf(nil, "0\n%d\n", n), lines...)
}

func FuzzParseCheckpoint(f *testing.F) {
	for _, s := range []string{
		"", "0\n0\n", "0\n2\nx-kv-changelog 0 2999\nx-x00-changelog 12 -4\n", "0\n2\na 0 1\na 0 2\n", "0\n2\na 0 5\nb 0 -1\n",
		"0\r1\r 0 5", "٠\n１\na ० ٥\n", "1\n", "hello\n", "0\n1\n\xff 0 5\n", "0\n-2147483648\na 0 -1\n", "0\n1\na 0 5\n\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := ParseCheckpoint(data)
		var broken *ParseError
		if err != nil {
			if !errors.As(err, &broken) || entries != nil {
				t.Fatalf("%v with error %v", entries, err)
			}
			if broken.Offset < 0 || broken.Offset > int64(len(data)) || broken.Line < 1 || broken.Line > bytes.Count(data, []byte("\n"))+bytes.Count(data, []byte("\r"))+2 {
				t.Errorf("error at line %d, byte %d of %d", broken.Line, broken.Offset, len(data))
			}
			return
		}
		// What was understood, written as Streams writes it, is understood alike.
		text := fmt.Appendf(nil, "0\n%d\n", len(entries))
		for _, e := range entries {
			if e.Offset < OffsetUnknown || e.Offset == -1 || strings.ContainsAny(e.Topic, " \t\n\v\f\r") {
				t.Errorf("entry %v", e)
			}
			text = fmt.Appendf(text, "%s %d %d\n", e.Topic, e.Partition, e.Offset)
		}
		again, err := ParseCheckpoint(text)
		if err != nil {
			t.Fatalf("again: %v", err)
		}
		if diff := cmp.Diff(entries, again); diff != "" {
			t.Errorf("again (-first +second):\n%s", diff)
		}
	})
}

func BenchmarkParseCheckpoint(b *testing.B) {
	for name, text := range map[string][]byte{
		"four": []byte("0\n4\napp-a-changelog 7 123456\napp-b-changelog 7 123456\napp-c-changelog 7 123456\napp-d-changelog 7 123456\n"),
		"full": manyEntries(maxOffsetsFile),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ParseCheckpoint(text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
