// Package options reads RocksDB's OPTIONS-NNNNNN files: which RocksDB wrote
// the database, its column families, and every setting as text.
//
// It is lenient where RocksDB is strict: a file that another version or a
// person has written must not keep anyone from looking at a database. Nothing
// is interpreted beyond the escapes, unknown names are kept, and a line that
// makes no sense is set aside. It must never judge a database: RocksDB opens
// one without any OPTIONS file.
//
// The package imports no other package of this module; everything above it
// may import it.
package options

import (
	"bytes"
	"strings"
)

// Bounds of what a hostile file can make of Options. RocksDB writes about 100
// settings for the database and 150 for each column family.
const (
	maxSettings = 1 << 16
	maxFamilies = 1 << 12
	maxUnparsed = 100
	maxText     = 200
)

// Options is what an OPTIONS file says.
type Options struct {
	// RocksDBVersion is the version that wrote the file, such as "10.1.3";
	// empty if the file does not say.
	RocksDBVersion string
	FileVersion    string            // of the file's own format, such as "1.1"
	DB             map[string]string // settings of the database
	Families       []Family          // in the order of the file
	// Unparsed are the first 100 lines that belong nowhere: neither section
	// nor setting, a section that is not known and what stands in it, or what
	// is beyond the bounds of this package (65,536 settings, 4,096 families).
	Unparsed []Line
	// Dropped counts further lines of that sort.
	Dropped int
}

// Family is one column family. Where a name occurs twice in a section, the
// first value counts, as in RocksDB. A value is the text after the equals
// sign without RocksDB's escapes; a nested one is kept whole, "{a=1;b=2;}".
type Family struct {
	Name         string
	Options      map[string]string
	Table        map[string]string // settings of the table factory
	TableFactory string            // such as "BlockBasedTable"; empty if the file does not say
}

// Line is a line that was set aside.
type Line struct {
	Number int    // from 1
	Offset int64  // of its first byte in the file
	Text   string // trimmed, without comment, at most 200 bytes
}

// Family returns the column family of a name.
func (o *Options) Family(name string) (*Family, bool) {
	for i := range o.Families {
		if o.Families[i].Name == name {
			return &o.Families[i], true
		}
	}
	return nil, false
}

// Parse reads a whole OPTIONS file. It never fails: what it cannot use is in
// Unparsed. Names and values share one copy of data.
func Parse(data []byte) *Options {
	o := &Options{}
	p := parser{options: o, byName: map[string]int{}}
	text := string(data)
	for l := (lines{data: data}); l.next(); {
		p.line(text[l.from:l.to], &l)
	}
	return o
}

// Summary reads no more than the version of RocksDB that wrote the file,
// empty if there is none, and the names of the column families, in the order
// and as often as their sections are in the file. It keeps nothing of data.
func Summary(data []byte) (rocksDBVersion string, families []string) {
	var in section
	for l := (lines{data: data}); l.next(); {
		line := string(data[l.from:l.to])
		if s, ok := parseSection(line); ok {
			if in = s; s.kind == family {
				families = append(families, s.name)
			}
		} else if in.kind == version && rocksDBVersion == "" {
			if name, value, ok := parseSetting(line); ok && name == versionName {
				rocksDBVersion = value
			}
		}
		if in.kind != version || rocksDBVersion != "" {
			l.skipSettings()
		}
	}
	return rocksDBVersion, families
}

// WALDir is the setting wal_dir of the database, "" if there is none: the
// directory of the write-ahead logs where that is not the database's own. It is
// what [Parse] gives, and keeps nothing of data.
func WALDir(data []byte) string {
	const name = "wal_dir"
	var in section
	for l := (lines{data: data}); l.next(); {
		line := data[l.from:l.to]
		if line[0] == '[' {
			if s, ok := parseSection(string(line)); ok {
				if in = s; in.kind != database {
					l.skipSettings()
				}
				continue
			}
		}
		if in.kind == database && bytes.HasPrefix(line, []byte(name)) {
			if n, value, ok := parseSetting(string(line)); ok && n == name {
				return value
			}
		}
	}
	return ""
}

const versionName = "rocksdb_version"

type kind uint8

const (
	unknown kind = iota
	version
	database
	family
	table
)

// section is a line like [CFOptions "default"].
type section struct {
	kind    kind
	name    string // of the column family
	factory string // of the table
}

// parseSection follows RocksDB options/options_parser.cc,
// RocksDBOptionsParser::ParseSection.
func parseSection(line string) (section, bool) {
	if len(line) < 2 || line[0] != '[' || line[len(line)-1] != ']' {
		return section{}, false
	}
	title, name := line[1:len(line)-1], ""
	if from, to := strings.IndexByte(line, '"'), strings.LastIndexByte(line, '"'); from < to {
		title, name = line[1:from], unescape(line[from+1:to])
	}
	title = trim(title)
	switch title {
	case "Version":
		return section{kind: version}, true
	case "DBOptions":
		return section{kind: database}, true
	case "CFOptions":
		return section{kind: family, name: name}, true
	}
	if factory, ok := strings.CutPrefix(title, "TableOptions/"); ok && factory != "" {
		return section{kind: table, name: name, factory: factory}, true
	}
	return section{}, true
}

func parseSetting(line string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(line, "=")
	name = trim(name)
	return name, unescape(trim(value)), ok && name != ""
}

type parser struct {
	options  *Options
	byName   map[string]int // index into options.Families
	in       section
	to       map[string]string // where the settings of database, family and table go
	settings int
}

func (p *parser) line(line string, l *lines) {
	o := p.options
	if s, ok := parseSection(line); ok {
		p.in = s
		if !p.enter(s) {
			p.in.kind = unknown
			p.setAside(line, l)
		}
		return
	}
	name, value, ok := parseSetting(line)
	switch {
	case !ok || p.in.kind == unknown || p.settings >= maxSettings:
		p.setAside(line, l)
	case p.in.kind == version && name == versionName && o.RocksDBVersion == "":
		o.RocksDBVersion = value
	case p.in.kind == version && name == "options_file_version" && o.FileVersion == "":
		o.FileVersion = value
	case p.in.kind == version:
		p.setAside(line, l)
	default:
		p.settings++
		if _, twice := p.to[name]; !twice {
			p.to[name] = value
		}
	}
}

// enter prepares for the settings of a section.
func (p *parser) enter(s section) bool {
	o := p.options
	if s.kind == database {
		p.to = made(&o.DB)
	}
	if s.kind != family && s.kind != table {
		return s.kind != unknown
	}
	i, ok := p.byName[s.name]
	if !ok {
		// RocksDB writes the family before its table; without it, there is
		// nothing that the table belongs to.
		if s.kind == table || len(o.Families) >= maxFamilies {
			return false
		}
		i = len(o.Families)
		p.byName[s.name] = i
		o.Families = append(o.Families, Family{Name: s.name})
	}
	f := &o.Families[i]
	if s.kind == family {
		p.to = made(&f.Options)
		return true
	}
	if f.TableFactory == "" {
		f.TableFactory = s.factory
	}
	p.to = made(&f.Table)
	return true
}

func made(m *map[string]string) map[string]string {
	if *m == nil {
		*m = map[string]string{}
	}
	return *m
}

func (p *parser) setAside(line string, l *lines) {
	o := p.options
	if len(o.Unparsed) >= maxUnparsed {
		o.Dropped++
		return
	}
	o.Unparsed = append(o.Unparsed, Line{l.number, int64(l.start), line[:min(len(line), maxText)]})
}

// lines walks the lines of a file that are not blank and not only comment.
type lines struct {
	data     []byte
	rest     int // offset of the next line
	start    int // offset of the current one
	number   int // of the current one, from 1
	from, to int // the current one, trimmed and without comment
}

func (l *lines) next() bool {
	for l.rest < len(l.data) {
		l.start = l.rest
		l.number++
		line := l.data[l.start:]
		if end := bytes.IndexByte(line, '\n'); end >= 0 {
			line = line[:end]
		}
		l.rest = l.start + len(line) + 1
		l.from, l.to = l.start, l.start+len(cutComment(line))
		for l.from < l.to && isSpace(l.data[l.from]) {
			l.from++
		}
		for l.from < l.to && isSpace(l.data[l.to-1]) {
			l.to--
		}
		if l.from < l.to {
			return true
		}
	}
	return false
}

// skipSettings moves on to the next line that begins with a bracket, which is
// much faster than to look at each. Line numbers are lost.
func (l *lines) skipSettings() {
	for at := l.rest; at < len(l.data); at++ {
		i := bytes.IndexByte(l.data[at:], '[')
		if i < 0 {
			break
		}
		at += i
		begin := at
		for begin > l.rest && l.data[begin-1] != '\n' && isSpace(l.data[begin-1]) {
			begin--
		}
		if begin <= l.rest || l.data[begin-1] == '\n' {
			l.rest = begin
			return
		}
	}
	l.rest = len(l.data)
}

// cutComment cuts at the first '#' that has no backslash before it. RocksDB
// does not count backslashes: an escaped one hides the '#' too.
func cutComment(line []byte) []byte {
	for from := 0; ; {
		i := bytes.IndexByte(line[from:], '#')
		if i < 0 {
			return line
		}
		if i += from; i == 0 || line[i-1] != '\\' {
			return line[:i]
		}
		from = i + 1
	}
}

// isSpace is isspace(3) in the C locale.
func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

func trim(s string) string { return strings.Trim(s, " \t\n\v\f\r") }

// unescape takes the backslashes of RocksDB's EscapeOptionString away
// (util/string_util.cc).
func unescape(s string) string {
	i := strings.IndexByte(s, '\\')
	if i < 0 {
		return s
	}
	b := append(make([]byte, 0, len(s)), s[:i]...)
	for ; i < len(s); i++ {
		c := s[i]
		if c == '\\' {
			if i++; i == len(s) {
				break
			}
			switch c = s[i]; c {
			case 'n':
				c = '\n'
			case 'r':
				c = '\r'
			}
		}
		b = append(b, c)
	}
	return string(b)
}
