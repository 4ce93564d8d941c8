package infolog_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"streams-sidecar/internal/rocksfile/infolog"
	"streams-sidecar/internal/rocksfile/rockstest"
)

// FuzzParse checks what must hold for any bytes: what is given is in the data
// and in its order, and bounded, and no time is in the future.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"disk-full.txt", "clocks-forward.txt", "clocks-back.txt"} {
		data := testdata(f, name)
		f.Add(data, int64(1796104088138871))
		f.Add(data[len(data)/3:], int64(0))
	}
	f.Add([]byte("x\n\x002026/11/30-18:10:34.000001 7f4e910ff6c0 [ERROR] [/c.cc:1] x\r\n\n\x00y"), int64(1796062234000001))
	f.Fuzz(func(t *testing.T, data []byte, modified int64) {
		var at time.Time
		if modified != 0 {
			at = time.UnixMicro(modified)
		}
		tail := infolog.Parse(data, at)
		if tail.Skipped < 0 || tail.Skipped > len(data) {
			t.Fatalf("skipped %d of %d", tail.Skipped, len(data))
		}
		check := func(lines []infolog.Line, more int, levels ...infolog.Level) {
			if len(lines) > infolog.MaxLines || more < 0 || more > 0 && len(lines) < infolog.MaxLines {
				t.Fatalf("%d lines and %d more", len(lines), more)
			}
			end := tail.Skipped
			for _, l := range lines {
				if l.Offset < end || l.Offset >= len(data) {
					t.Fatalf("line at %d after %d of %d", l.Offset, end, len(data))
				}
				rest := data[l.Offset:]
				if !bytes.HasPrefix(rest, []byte(l.Stamp)) || !bytes.Contains(rest, []byte(l.Text)) || !bytes.Contains(rest, []byte(l.Source)) {
					t.Fatalf("%+v is not in the data", l)
				}
				end = l.Offset + len(l.Stamp) + len(l.Source) + len(l.Text)
				if l.Level < levels[0] || l.Level > levels[1] || len(l.Text) > infolog.MaxText || strings.Contains(l.Text, "\x00") {
					t.Fatalf("%+v", l)
				}
				if !l.Cut && l.Kind != infolog.Classify(l.Text) {
					t.Fatalf("%+v is %v", l, infolog.Classify(l.Text))
				}
				if !at.IsZero() && l.Time.After(at.Add(5*time.Second)) {
					t.Fatalf("%+v is later than %v", l, at)
				}
			}
		}
		check(tail.Errors, tail.MoreErrors, infolog.Error, infolog.Fatal)
		check(tail.Warnings, tail.MoreWarnings, infolog.Warn, infolog.Warn)
	})
}

// worstCases are of 1 MiB (less under the race detector), where a caller reads 64 KiB.
func worstCases() map[string][]byte {
	size := 1 << 20
	if rockstest.Race {
		size = 1 << 16
	}
	const head = "2026/11/30-18:10:34.000001 1 "
	fill := func(head, s string) []byte {
		return []byte((head + strings.Repeat(s, size/len(s)+1))[:size])
	}
	return map[string][]byte{
		"line ends":      fill("", "\n"),
		"NUL bytes":      fill("", "\x00"),
		"one text":       fill(head+"[ERROR] ", "x"),
		"one text, tags": fill(head+"[ERROR] ", "[x] "),
		"brackets":       fill(head+"[ERROR] ", "["),
		"further lines":  fill(head+"[ERROR] ", "x\n"),
		"errors":         fill("", head+"[ERROR] x\n"),
		"warnings":       fill("", head+"[WARN] MANIFEST write \n"),
		"events":         fill(head+"[ERROR] x\n", head+`EVENT_LOG_v1 {"time_micros": 1796062234000000`+"\n"),
		"events, errors": fill("", head+`EVENT_LOG_v1 {"time_micros": 1796062234000000`+"\n"+head+"[ERROR] x\n"),
		"clocks go back": fill("", "2026/11/30-19:10:34.000001 1 [ERROR] x\n2026/11/30-18:10:34.000001 1 [ERROR] x\n"),
		"stamps":         fill("", "2026/11/30-18:10:34.000001 "),
		"digits":         fill(head+"[WARN] x\n"+head, "1"),
		"spaces":         fill(head+"[ERROR] ", " "),
		"no space":       fill(head+"[ERROR] ", "No space left on devic"),
	}
}

func TestCostIsBounded(t *testing.T) {
	const limit = 100 * time.Millisecond
	for name, data := range worstCases() {
		spent, allocated := rockstest.Cost(limit/2, func() { infolog.Parse(data, time.UnixMicro(1796062234000001)) })
		if spent > limit {
			t.Errorf("%s: %d bytes took %v", name, len(data), spent)
		}
		if allocated > uint64(2*len(data)+256<<10) {
			t.Errorf("%s: %d bytes allocated for %d", name, allocated, len(data))
		}
	}
}

func BenchmarkParse(b *testing.B) {
	for _, f := range logs(b, "4.4.0", "closed-infolog")[:1] {
		b.SetBytes(int64(len(f.tail())))
		b.ReportAllocs()
		for b.Loop() {
			if tail := infolog.Parse(f.tail(), f.modified); len(tail.Errors) > 0 {
				b.Fatal(fmt.Sprint(tail.Errors))
			}
		}
	}
}
