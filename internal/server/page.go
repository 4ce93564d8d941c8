package server

import (
	"embed"
	"fmt"
	"html/template"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/probe"
	"streams-sidecar/internal/report"
)

//go:embed pages/*.html
var pages embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"bytes":   bytesOf,
	"lock":    report.Lock,
	"running": report.Running,
	"time":    func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 MST") },
	"sst":     func(n uint64) string { return fmt.Sprintf("%06d.sst", n) },
	"known":   known,
	"plural":  plural,
	"age":     func(seconds float64) time.Duration { return time.Duration(seconds) * time.Second },
}).ParseFS(pages, "pages/*.html"))

// bytesOf is a size for people, of any of the types that reports have.
func bytesOf(n any) string {
	switch n := n.(type) {
	case int64:
		return report.Bytes(n)
	case *int64:
		if n != nil {
			return report.Bytes(*n)
		}
	case uint64:
		return report.Bytes(int64(min(n, 1<<63-1)))
	}
	return "-"
}

// plural is a number of things, of either type that reports have.
func plural(n any, what string) string {
	switch n := n.(type) {
	case int:
		return report.Plural(n, what)
	case *int:
		return report.Plural(*n, what)
	}
	return "-"
}

// known is a number that may be unknown.
func known(n *uint64) string {
	if n == nil {
		return "-"
	}
	return strconv.FormatUint(*n, 10)
}

// statusText is the text form of the status page.
func (a *admin) statusText(w io.Writer, snap *probe.Snapshot) error {
	if _, err := fmt.Fprintf(w, "streams-sidecar, as of %s\n\n", snap.At.UTC().Format(time.RFC3339)); err != nil {
		return err
	}
	doc := a.document(snap)
	if err := doc.WriteText(w); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n", strings.Join(a.gateLines(snap), "\n"))
	return err
}

func (a *admin) gateLines(snap *probe.Snapshot) []string {
	s := a.gate.State()
	v := newShutdownView(&s, snap)
	return v.lines()
}

// statusPage is what status.html shows.
type statusPage struct {
	AsOf     time.Time
	Mode     probe.Mode
	ScanTook time.Duration
	Columns  []string
	Dirs     []dirView
	Findings []groupView
	Gate     []string // sentences about the preStop gate
	RocksDB  string   // a sentence about RocksDB itself, "" if it is not asked
}

type dirView struct {
	report.StateDir
	UsedPercent string // "" if unknown
	Apps        []appView
}

type appView struct {
	report.Application
	PID  int // of the .lock's holder, 0 if not visible
	Rows []rowView
}

type rowView struct {
	Link     string // of the store, "" for a task without stores
	Cells    []string
	Findings int
}

// groupView is a finding's code with the places that are shown.
type groupView struct {
	report.Group
	More int // places that are not shown
}

// statusHTML renders the status page.
func (a *admin) statusHTML(w io.Writer, snap *probe.Snapshot) error {
	doc := a.document(snap)
	page := statusPage{AsOf: snap.At, Mode: snap.Mode, ScanTook: snap.ScanTook.Round(time.Millisecond), Columns: report.Columns()}
	for i := range doc.StateDirs {
		d := dirView{StateDir: doc.StateDirs[i], UsedPercent: used(doc.StateDirs[i].FreeBytes, doc.StateDirs[i].SizeBytes)}
		for j := range d.Applications {
			a := appView{Application: d.Applications[j], PID: snap.StateDirs[i].Applications[j].Layout.HolderPID}
			for _, r := range d.Applications[j].Rows() {
				a.Rows = append(a.Rows, newRow(d.Path, a.ID, r, len(doc.StateDirs) > 1))
			}
			d.Apps = append(d.Apps, a)
		}
		page.Dirs = append(page.Dirs, d)
	}
	page.Findings, page.Gate, page.RocksDB = newGroups(doc.Groups()), a.gateLines(snap), a.rocksLine(&doc)
	return templates.ExecuteTemplate(w, "status.html", page)
}

func newRow(dir, app string, r report.Row, several bool) rowView {
	out := rowView{Cells: r.Cells, Findings: len(r.Task.Findings)}
	if r.Store == nil {
		return out
	}
	out.Findings = len(r.Store.Findings)
	q := url.Values{}
	if several {
		q.Set("state_dir", dir)
	}
	out.Link = storeURL(storePages, app, r.Task.ID, r.Store.Name, q)
	return out
}

func used(free, size *int64) string {
	if free == nil || size == nil || *size <= 0 {
		return ""
	}
	return strconv.FormatFloat(100*(1-float64(*free)/float64(*size)), 'f', 0, 64) + " % used"
}

func newGroups(groups []report.Group) []groupView {
	out := make([]groupView, 0, len(groups))
	for _, g := range groups {
		v := groupView{Group: g}
		if n := len(g.Places); n > report.MaxPlaces {
			v.Places, v.More = g.Places[:report.MaxPlaces], n-report.MaxPlaces
		}
		out = append(out, v)
	}
	return out
}

// maxTables is how many tables of one store its page shows; the JSON has all.
const maxTables = 1000

// storePage is what store.html shows.
type storePage struct {
	report.StoreDetail
	JSON      string // link
	Stats     string // link to the page with the statistics, "" if RocksDB is not asked
	Databases []databaseView
	Findings  []groupView
	MoreSST   int // tables that are not shown
}

type databaseView struct {
	report.Database
	Families []report.ManifestFamily // with the tables that are shown
}

func newStorePage(d report.StoreDetail, u *url.URL, asked bool) storePage {
	page := storePage{StoreDetail: d, JSON: storeURL(storeAPI, d.Application, d.Task, d.Store.Name, u.Query())}
	if q := u.Query(); asked {
		q.Set(statsQuery, "1")
		page.Stats = storeURL(storePages, d.Application, d.Task, d.Store.Name, q)
	}
	left := maxTables
	for i := range d.Databases {
		v := databaseView{Database: d.Databases[i]}
		if m := v.Manifest; m != nil {
			for _, f := range m.Families {
				n := min(left, len(f.Tables))
				page.MoreSST += len(f.Tables) - n
				left -= n
				f.Tables = f.Tables[:n]
				v.Families = append(v.Families, f)
			}
		}
		page.Databases = append(page.Databases, v)
	}
	page.Findings = newGroups(groupsOf(d.Store.Findings))
	return page
}

// groupsOf groups the findings of one store.
func groupsOf(fs []finding.Finding) []report.Group {
	doc := report.Document{StateDirs: []report.StateDir{{Findings: fs}}}
	return doc.Groups()
}

// problemPage is what problem.html shows.
type problemPage struct {
	Error   string
	Choices []choiceView
}

type choiceView struct {
	choice
	Link string
}

func newProblemPage(u *url.URL, p *lookupProblem) problemPage {
	page := problemPage{Error: p.Error}
	application, task, name, _ := elements(strings.TrimPrefix(u.EscapedPath(), storePages))
	for _, c := range p.Choices {
		q := url.Values{"state_dir": {c.StateDir}, "path": {c.Path}}
		page.Choices = append(page.Choices, choiceView{c, storeURL(storePages, application, task, name, q)})
	}
	return page
}
