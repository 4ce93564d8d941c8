package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"streams-sidecar/internal/finding"
)

// width is how many columns the text form may take.
const width = 100

// WriteText writes the table that a person wants, at most 100 columns wide
// (paths in the findings may be longer), followed by the findings.
func (d *Document) WriteText(w io.Writer) error {
	p := &printer{w: w}
	for i := range d.StateDirs {
		if i > 0 {
			p.line("")
		}
		p.stateDir(&d.StateDirs[i])
	}
	p.engine(d)
	p.findings(d)
	p.verification(d.Verification)
	return p.err
}

type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = io.WriteString(p.w, strings.TrimRight(fmt.Sprintf(format, args...), " ")+"\n")
	}
}

func (p *printer) stateDir(s *StateDir) {
	about := ""
	if s.FileSystem != "" {
		about = fmt.Sprintf("  (%s, %s free of %s)", s.FileSystem, Bytes(*s.FreeBytes), Bytes(*s.SizeBytes))
	}
	p.line("%s%s", s.Path, about)
	if len(s.Applications) == 0 {
		p.line("  %s", nothing(s.Findings))
	}
	for i := range s.Applications {
		p.line("")
		p.application(&s.Applications[i])
	}
}

// nothing says why there is no application to show.
func nothing(fs []finding.Finding) string {
	for i := range fs {
		if !fs[i].Severity.Judgeable() {
			return "could not be read: see below"
		}
	}
	return "no Kafka Streams application in it"
}

var header = []string{"TASK", "STORE", "KIND", "SIZE", "TABLES", "LOCK", "OFFSET", "CLOSED", "VERDICT"}

func (p *printer) application(a *Application) {
	p.line("%s  %s", a.ID, Running(a.Running))
	rows := [][]string{header}
	for _, r := range a.Rows() {
		rows = append(rows, r.Cells)
	}
	p.columns(rows, []int{3, 4, 6})
	p.opinions(a)
}

// Row is one line of an application's table, for people. Store is nil for a
// task without stores.
type Row struct {
	Task  *Task
	Store *Store
	Cells []string // in the order of Columns
}

// Columns are the heads of an application's table.
func Columns() []string { return slices.Clone(header) }

// Rows gives the table of an application.
func (a *Application) Rows() []Row {
	var rows []Row
	for i := range a.Tasks {
		t := &a.Tasks[i]
		if len(t.Stores) == 0 {
			rows = append(rows, Row{t, nil, []string{t.ID, "-", "-", "-", "-", "-", "-", "-", t.Verdict}})
		}
		for j := range t.Stores {
			rows = append(rows, Row{t, &t.Stores[j], cells(t.ID, &t.Stores[j])})
		}
	}
	return rows
}

func cells(task string, s *Store) []string {
	files := 0
	for i := range s.Families {
		files += s.Families[i].Files
	}
	tables := strconv.Itoa(files)
	if len(s.Families) == 0 {
		tables = "-"
	}
	size := "-"
	if s.SizeBytes != nil {
		size = Bytes(*s.SizeBytes)
	}
	return []string{task, s.Name, dash(s.Kind), size, tables, Lock(s.InUse), offsetCell(s.Offsets),
		dash(s.Closed), s.Verdict}
}

func offsetCell(os []Offset) string {
	switch len(os) {
	case 0:
		return "-"
	case 1:
		return strconv.FormatInt(os[0].Offset, 10)
	default:
		return fmt.Sprintf("%d (+%d)", os[0].Offset, len(os)-1)
	}
}

// Running is the word for an application that may run.
func Running(r *bool) string {
	switch {
	case r == nil:
		return "running or not: unknown"
	case *r:
		return "running"
	default:
		return "not running"
	}
}

// Lock is the word for a LOCK that may be held, "-" if unknown.
func Lock(held *bool) string {
	switch {
	case held == nil:
		return "-"
	case *held:
		return "held"
	default:
		return "free"
	}
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// flexible are the columns that give way when a row is too wide.
var flexible = []int{1, 0}

// columns writes rows below each other, those of right aligned to the right. The
// first two are a task and a store.
func (p *printer) columns(rows [][]string, right []int) {
	const indent, gap = 2, 2
	widths := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, c := range r {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	total := indent - gap
	for _, n := range widths {
		total += n + gap
	}
	for _, i := range flexible {
		if over := total - width; over > 0 {
			cut := min(over, max(0, widths[i]-12))
			widths[i] -= cut
			total -= cut
		}
	}
	for _, r := range rows {
		var b strings.Builder
		b.WriteString(strings.Repeat(" ", indent))
		for i, c := range r {
			c = shorten(c, widths[i])
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c))
			if slices.Contains(right, i) {
				b.WriteString(pad + c)
			} else {
				b.WriteString(c + pad)
			}
			b.WriteString(strings.Repeat(" ", gap))
		}
		p.line("%s", b.String())
	}
}

// shorten cuts in the middle: the end of a store's name tells as much as its
// beginning.
func shorten(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	head := (n - 1) / 2
	return string(r[:head]) + "…" + string(r[len(r)-(n-1-head):])
}

// MaxPlaces is how many places of one code are shown to a person; the JSON has all.
const MaxPlaces = 20

// Group is a finding's code with every place where it was found.
type Group struct {
	Code     finding.Code
	Severity finding.Severity
	Text     string // what it means
	Advice   string
	Places   []Place
}

// Place is where one finding belongs: "app", "app 0_0" or "app 0_0 store", or
// a state directory.
type Place struct {
	Where   string
	Finding *finding.Finding
}

// Groups gives each code once, the worst first.
func (d *Document) Groups() []Group {
	var out []Group
	at := map[finding.Code]int{}
	d.each(func(where string, f *finding.Finding) {
		i, ok := at[f.Code]
		if !ok {
			i = len(out)
			at[f.Code] = i
			k, _ := finding.Explain(f.Code)
			out = append(out, Group{Code: f.Code, Severity: f.Severity, Text: f.Text, Advice: k.Advice})
		}
		out[i].Places = append(out[i].Places, Place{where, f})
	})
	slices.SortStableFunc(out, func(a, b Group) int { return b.Severity.Rank() - a.Severity.Rank() })
	return out
}

// findings shows each code once, with its places below, the worst first.
func (p *printer) findings(d *Document) {
	groups := d.Groups()
	if len(groups) == 0 {
		return
	}
	p.line("")
	p.line("FINDINGS")
	for i := range groups {
		g := &groups[i]
		writeCode(p, g.Places[0].Finding)
		for j, x := range g.Places {
			if j == MaxPlaces {
				p.line("    … and at %d more places (--output=json shows all)", len(g.Places)-j)
				break
			}
			writeEvidence(p, x.Where, x.Finding)
		}
	}
}

// WriteFinding writes one finding with its meaning, advice and evidence.
func WriteFinding(w io.StringWriter, f *finding.Finding) {
	writeCode(w, f)
	writeEvidence(w, "", f)
}

func line(w io.StringWriter, s string) { _, _ = w.WriteString(s + "\n") } // a printer keeps the error

func writeCode(w io.StringWriter, f *finding.Finding) {
	line(w, fmt.Sprintf("%s  %s", f.Severity, f.Code))
	wrap(w, "    ", f.Text)
	if k, ok := finding.Explain(f.Code); ok {
		wrap(w, "    → ", k.Advice)
	}
}

func writeEvidence(w io.StringWriter, where string, f *finding.Finding) {
	at := f.File
	if f.Offset != nil {
		at += fmt.Sprintf(" at byte %d", *f.Offset)
	}
	if where != "" && where != f.File {
		line(w, "    "+where)
	}
	if at != "" {
		line(w, "      "+at)
	}
	if f.Expected != "" {
		line(w, "      expected: "+f.Expected)
	}
	if f.Found != "" {
		line(w, "      found:    "+f.Found)
	}
}

// WriteString makes a printer an io.StringWriter.
func (p *printer) WriteString(s string) (int, error) {
	if p.err == nil {
		_, p.err = io.WriteString(p.w, s)
	}
	return len(s), p.err
}

func wrap(w io.StringWriter, indent, text string) {
	cur := indent
	used := utf8.RuneCountInString(indent)
	blank := strings.Repeat(" ", used)
	empty := true
	for word := range strings.FieldsSeq(text) {
		n := utf8.RuneCountInString(word)
		if !empty && used+1+n > width {
			line(w, cur)
			cur, used, empty = blank, utf8.RuneCountInString(blank), true
		}
		if !empty {
			cur += " "
			used++
		}
		cur += word
		used += n
		empty = false
	}
	line(w, cur)
}

// Bytes is a size for people, in powers of 1024.
func Bytes(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return strconv.FormatInt(n, 10) + " B"
	}
	v, i := float64(n)/1024, 0
	for v >= 1023.95 && i < len(units)-1 {
		v /= 1024
		i++
	}
	return strconv.FormatFloat(v, 'f', 1, 64) + " " + string(units[i]) + "iB"
}
