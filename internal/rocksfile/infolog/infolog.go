// Package infolog reads RocksDB's info log, the files LOG and LOG.old.MICROS:
// what it says of errors, when, and what well-known messages mean.
//
// It knows the text that RocksDB 5.18 to 11.8 writes on Linux, and reads the
// end of a log as well as a whole one. It fails on no input. It must never
// judge a database, least of all by what a log does not say: at Kafka
// Streams' level, ERROR, the log of a healthy database is empty, and on a
// full disk RocksDB drops what it cannot write and goes on, so that the very
// lines about it may be missing. It never guesses a time; see [Line].
//
// The package imports no other package of this module; everything above it
// may import it.
package infolog

import (
	"bytes"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// What Parse keeps.
const (
	MaxLines = 100     // of each sort, the newest
	MaxText  = 1 << 10 // bytes of a line's text
)

// Level is how grave RocksDB deems a line.
type Level uint8

// The levels, in RocksDB's order. A line without any is Info: RocksDB writes
// no name for that level, nor for its headers (Logger::Logv in env/env.cc).
const (
	Debug Level = iota
	Info
	Warn
	Error
	Fatal
)

var levelNames = [...]string{Debug: "DEBUG", Info: "INFO", Warn: "WARN", Error: "ERROR", Fatal: "FATAL"}

func (l Level) String() string {
	if int(l) < len(levelNames) {
		return levelNames[l]
	}
	return fmt.Sprintf("level %d", uint8(l))
}

// Tail is what the end of a log says.
type Tail struct {
	// Errors are the newest MaxLines lines of the levels ERROR and FATAL, and
	// Warnings those of WARN, in the order of the log.
	Errors, Warnings []Line
	// MoreErrors and MoreWarnings count the older ones that are in the data too.
	MoreErrors, MoreWarnings int
	// Skipped is how many bytes stand before the first line that begins in the
	// data: the rest of one that began earlier, or no log at all.
	Skipped int
}

// Line is one message. Lines that follow without a time of their own belong
// to it: RocksDB writes messages of several lines.
//
// RocksDB stamps with the local time of its process, without a zone. What the
// clocks there were ahead of UTC by is found where the log betrays it: by an
// event, which carries its time in UTC (EVENT_LOG_v1, a line of INFO), or
// by the file's last line, written when the file was last modified. That
// holds for what was written within 24 hours of it, and the nearest on either
// side counts. Else Time is zero.
//
// The clocks may change in between, to or from summer time. Where the two
// sides differ, Time is set if only one of them fits between both. Where
// stamps go back by 15 minutes or more, neither side holds beyond that
// place. A change that none of this shows is not seen, and Time is
// off by it, mostly an hour: one with a single known place, less than 24
// hours away, and, if the clocks went back, with no line shortly before it.
type Line struct {
	Level  Level
	Kind   Kind      // what the text means, told from all of it
	Time   time.Time // UTC, in microseconds; zero if not known
	Stamp  string    // the time as it is in the log, "2026/11/30-18:10:34.368008", in the zone of the process
	Source string    // the place in RocksDB's source, "/db_impl/db_impl.cc:712", often without its beginning; empty if none
	Text   string    // what follows, at most MaxText bytes, as they are in the log
	Cut    bool      // Text is not all: there was more of it, or the data ends, or turns to NUL bytes, in it
	Offset int       // of the line's first byte in the data
}

// Parse reads the end of a log, or all of it. The first line may be cut in the
// middle. The modification time must be that of the file when it ended with
// these bytes, or zero if that is not known. No Time is more than five seconds
// later. It must come from RocksDB's own writing. Another one, as a copy has,
// mostly tells no zone, but about one in 50 tells a wrong one by chance; where
// the last line is of WARN or above, one in 200.
func Parse(data []byte, modified time.Time) Tail {
	p := parser{data: data}
	for from := 0; from < len(data); {
		to := from
		for to < len(data) && !isEnd(data[to]) {
			to++
		}
		p.line(from, to)
		from = to + 1
	}
	p.finish()
	if !p.any {
		p.skipped = len(data)
	}
	z := p.zone(modified)
	return Tail{
		Errors:       p.lines(&p.errors, &z),
		Warnings:     p.lines(&p.warnings, &z),
		MoreErrors:   p.errors.dropped(),
		MoreWarnings: p.warnings.dropped(),
		Skipped:      p.skipped,
	}
}

// isEnd says whether a line ends here. No message of RocksDB contains a NUL
// byte, but what a file system lost in a crash may read as a run of them,
// with a new line directly behind it.
func isEnd(b byte) bool { return b == '\n' || b == 0 }

type parser struct {
	data     []byte
	message  message // the last one, which following lines may belong to
	any      bool    // there is a message
	open     bool    // the next line may belong to it
	skipped  int
	section  int
	events   []pairing
	errors   newest
	warnings newest
}

// message is a Line by its place in the data.
type message struct {
	head
	from, text, to int // offsets in the data
	section        int // up to the next place where stamps go back
	cut            bool
}

func (p *parser) line(from, to int) {
	line := p.data[from:to]
	last := to == len(p.data)
	zero := !last && p.data[to] == 0
	switch h, ok := parseHead(line); {
	case ok:
		p.start(h, from, to)
		p.message.cut = last || zero
	case p.open && !(last && startsStamp(line)):
		p.message.to = to
		p.message.cut = (last || zero) && len(line) > 0
	}
	p.open = p.open && !zero
}

func (p *parser) start(h head, from, to int) {
	if !p.any {
		p.skipped = from
	}
	if p.any && h.stamp < p.message.stamp-backwards {
		p.section++
	}
	p.finish()
	p.any, p.open = true, true
	p.message = message{head: h, from: from, text: from + h.size, to: to, section: p.section}
	if e, ok := h.pair(p.data[from+h.size : to]); ok {
		e.at, e.section = from, p.section
		p.events = append(p.events, e)
	}
}

// finish files the last message, which is whole now.
func (p *parser) finish() {
	switch m := p.message; {
	case !p.any:
	case m.level >= Error:
		p.errors.add(m)
	case m.level == Warn:
		p.warnings.add(m)
	}
}

func (p *parser) lines(n *newest, z *zone) []Line {
	var out []Line
	for _, m := range n.last() {
		text := bytes.TrimRight(p.data[m.text:m.to], " \r\n")
		l := Line{
			Level:  m.level,
			Kind:   Classify(string(text)),
			Time:   z.time(&m),
			Stamp:  string(p.data[m.from : m.from+stampSize]),
			Source: string(p.data[m.from+m.source : m.from+m.sourceEnd]),
			Cut:    m.cut,
			Offset: m.from,
		}
		if len(text) > MaxText {
			l.Cut = true
			text = wholeRunes(text, MaxText)
		}
		l.Text = string(text)
		out = append(out, l)
	}
	return out
}

// wholeRunes shortens a text to size bytes, less where that would split a
// character: error texts of the system may be in any language.
func wholeRunes(text []byte, size int) []byte {
	for n := size; n > size-utf8.UTFMax; n-- {
		if utf8.RuneStart(text[n]) {
			return text[:n]
		}
	}
	return text[:size]
}

// newest keeps the last MaxLines messages, and between two clean-ups as many more.
type newest struct {
	kept  []message
	total int
}

func (n *newest) add(m message) {
	if len(n.kept) == 2*MaxLines {
		n.kept = n.kept[:copy(n.kept, n.kept[MaxLines:])]
	}
	n.kept = append(n.kept, m)
	n.total++
}

func (n *newest) last() []message { return n.kept[max(0, len(n.kept)-MaxLines):] }

func (n *newest) dropped() int { return max(0, n.total-MaxLines) }

// head is what stands before a message's text:
//
//	2026/11/30-18:10:34.368008 139950569813696 [ERROR] [/flush_job.cc:12] text
//
// The number is the thread's, hexadecimal up to RocksDB 6 (env/posix_logger.h
// in 5.18, logging/env_logger.h in 11.8). The place is left out by headers and
// events, and loses its beginning by RocksDB's own arithmetic
// (RocksLogShorterFileName in logging/logging.h).
type head struct {
	stamp             int64 // microseconds since 1970, as if it were UTC
	level             Level
	source, sourceEnd int // in the line
	size              int
}

const (
	stampForm = "0000/00/00-00:00:00.000000 "
	stampSize = len(stampForm) - 1
	maxThread = 20 // digits of 64 bits
	maxSource = 256
)

func parseHead(line []byte) (h head, ok bool) {
	if h.stamp, ok = parseStamp(line); !ok {
		return head{}, false
	}
	at := len(stampForm)
	digits := 0
	for at+digits < len(line) && isHex(line[at+digits]) {
		digits++
	}
	if at += digits; digits == 0 || digits > maxThread || at == len(line) || line[at] != ' ' {
		return head{}, false
	}
	at++
	h.level = Info
	// A column family may be called ERROR, but its name never stands here: only
	// the lines that begin with a place, or with a level, name one.
	for l, name := range levelNames {
		if tag := "[" + name + "] "; bytes.HasPrefix(line[at:], []byte(tag)) {
			h.level = Level(l)
			at += len(tag)
			break
		}
	}
	if n := sizeOfSource(line[at:]); n > 0 {
		h.source, h.sourceEnd = at+1, at+n-1
		at = min(at+n+1, len(line))
	}
	h.size = at
	return h, true
}

// sizeOfSource is that of "[…/file.cc:123]" at the beginning of a text, or 0.
func sizeOfSource(text []byte) int {
	text = text[:min(len(text), maxSource)]
	end := bytes.IndexByte(text, ']')
	if end < 0 || text[0] != '[' || end+1 < len(text) && text[end+1] != ' ' {
		return 0
	}
	file, number, ok := bytes.Cut(text[1:end], []byte{':'})
	if !ok || len(number) == 0 || len(bytes.Trim(number, "0123456789")) > 0 ||
		!bytes.HasSuffix(file, []byte(".cc")) && !bytes.HasSuffix(file, []byte(".h")) {
		return 0
	}
	return end + 1
}

// parseStamp reads a time with a space behind it.
func parseStamp(line []byte) (micros int64, ok bool) {
	if len(line) < len(stampForm) || !startsStamp(line[:len(stampForm)]) {
		return 0, false
	}
	n := func(from, to int) (n int) {
		for _, b := range line[from:to] {
			n = 10*n + int(b-'0')
		}
		return n
	}
	year, month, day := n(0, 4), n(5, 7), n(8, 10)
	hour, minute, second := n(11, 13), n(14, 16), n(17, 19)
	t := time.Date(year, time.Month(month), day, hour, minute, second, 1000*n(20, 26), time.UTC)
	// Date makes a time of anything; a leap second of the zones "right/…" is one.
	if t.Month() != time.Month(month) && second != 60 || month < 1 || month > 12 || day < 1 || day > 31 ||
		hour > 23 || minute > 59 || second > 60 {
		return 0, false
	}
	return t.UnixMicro(), true
}

// startsStamp says whether a text looks like the beginning of a line, as far
// as it goes: what is written last may be cut anywhere.
func startsStamp(text []byte) bool {
	if len(text) > len(stampForm)+maxThread {
		return false
	}
	for i, b := range text {
		switch {
		case i >= len(stampForm):
			if !isHex(b) {
				return false
			}
		case stampForm[i] == '0':
			if b < '0' || b > '9' {
				return false
			}
		case b != stampForm[i]:
			return false
		}
	}
	return true
}

func isHex(b byte) bool { return strings.IndexByte("0123456789abcdef", b) >= 0 }
