package options

import (
	_ "embed"
	"strings"
)

// knownSettings are the names that RocksDB 5.18.4 to 11.8.1 write, one in a
// line: those in the OPTIONS files of eleven releases, among them all that a
// Kafka Streams from 2.8 to 4.4 comes with.
//
//go:embed known.txt
var knownSettings string

var known = func() map[string]bool {
	m := map[string]bool{}
	for name := range strings.FieldsSeq(knownSettings) {
		m[name] = true
	}
	return m
}()

// FirstStrange gives the first line that is neither a section nor a setting
// that any RocksDB up to 11.8 writes: the line that a RocksDB of another version
// might refuse, or that a person has put there. ok is false if there is none.
func FirstStrange(data []byte) (first Line, ok bool) {
	var in section
	for l := (lines{data: data}); l.next(); {
		line := data[l.from:l.to]
		if line[0] == '[' {
			if s, isSection := parseSection(string(line)); isSection {
				in = s
				if s.kind != unknown {
					continue
				}
				return strange(line, &l), true
			}
		}
		name, _, isSetting := strings.Cut(string(line), "=")
		if !isSetting || in.kind == unknown || !known[trim(name)] {
			return strange(line, &l), true
		}
	}
	return Line{}, false
}

func strange(line []byte, l *lines) Line {
	return Line{l.number, int64(l.start), string(line[:min(len(line), maxText)])}
}
