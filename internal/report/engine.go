package report

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"streams-sidecar/internal/engine"
	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/verify"
	"streams-sidecar/internal/volume"
)

// Engine is about the process that asks RocksDB itself. Error is absent if it
// could be asked.
type Engine struct {
	RocksDB string `json:"rocksdb,omitempty"` // version of the library
	Reason  string `json:"reason,omitempty"`
	Error   string `json:"error,omitempty"`
	// Findings about the engine itself; those about a store are with it.
	Findings []finding.Finding `json:"findings"`
}

// Named is a name of RocksDB with the version of its library, if that is known.
func (e *Engine) Named(name string) string { return strings.TrimSpace(name + " " + e.RocksDB) }

// Opinion is what RocksDB itself says of a store. The figures are summed over
// segments as those of the store are, and absent unless every database was
// asked and opened.
type Opinion struct {
	AsOf         *time.Time        `json:"as_of,omitempty"` // the longest ago, of all databases
	Asked        int               `json:"asked"`           // databases
	LastSequence *uint64           `json:"last_sequence,omitempty"`
	Families     []EstimatedFamily `json:"column_families,omitempty"`
	Offsets      []CheckpointEntry `json:"offsets,omitempty"`
	Differences  []Difference      `json:"differences"`
	NotAsked     []Unasked         `json:"not_asked"`
}

// EstimatedFamily is a column family as RocksDB has it, with its estimates.
type EstimatedFamily struct {
	Family
	EstimatedKeys      *uint64 `json:"estimated_keys,omitempty"`
	EstimatedLiveBytes *uint64 `json:"estimated_live_bytes,omitempty"`
}

// Difference is one thing of which our readers and RocksDB say not the same.
type Difference struct {
	Path    string `json:"path"` // of the database
	Subject string `json:"subject"`
	Family  string `json:"column_family,omitempty"`
	Ours    string `json:"ours"`
	RocksDB string `json:"rocksdb"`
}

// Unasked is a database that RocksDB was not asked about, or gave no
// answer to.
type Unasked struct {
	Path   string `json:"path"`
	Reason string `json:"reason"` // a stable code, see docs/json.md
	Text   string `json:"text"`
}

// Opinions gives RocksDB's opinion of a database, if there is one.
type Opinions func(*store.Database) (engine.Opinion, bool)

// AddOpinions adds what RocksDB says, with the findings that follow from it:
// version of its library, or why the engine cannot be used at all, and the
// opinion of each database. dirs are those that the document was made from.
func (d *Document) AddOpinions(dirs []*store.StateDir, version string, err error, opinions Opinions) {
	d.Engine = &Engine{RocksDB: volume.Text(version), Findings: findings(engine.Trouble(err))}
	if err != nil {
		d.Engine.Reason, d.Engine.Error = reasonOf(err), err.Error()
	}
	for i, s := range dirs {
		for j, a := range s.Applications {
			for k, t := range a.Tasks {
				for l, st := range t.Stores {
					d.StateDirs[i].Applications[j].Tasks[k].Stores[l].addOpinion(st, opinions)
				}
			}
		}
	}
}

// notYet is the reason of a database that was not asked about.
const notYet = "not-yet"

func reasonOf(err error) string {
	if e, ok := errors.AsType[*engine.Error](err); ok {
		return string(e.Kind)
	}
	return "interrupted"
}

// addOpinion adds nothing to a store about which RocksDB was not to be asked yet.
func (out *Store) addOpinion(s *store.Store, opinions Opinions) {
	o, found := opinion(s, opinions)
	if o == nil {
		return
	}
	out.RocksDB = o
	judged := verify.Judged{Verdict: verify.Verdict(out.Verdict), Findings: out.Findings}.With(found)
	out.Verdict, out.Findings = string(judged.Verdict), judged.Findings
}

func opinion(s *store.Store, opinions Opinions) (*Opinion, []finding.Finding) {
	out := &Opinion{Differences: []Difference{}, NotAsked: []Unasked{}}
	var answers []*engine.Answer
	var found []finding.Finding
	databases, known := 0, 0
	for _, db := range s.Databases {
		if db.IsEmpty() {
			continue
		}
		databases++
		path := volume.Text(db.Path)
		o, ok := opinions(db)
		if !ok {
			out.NotAsked = append(out.NotAsked, Unasked{path, notYet, path + ": RocksDB was not asked yet, or too long ago"})
			continue
		}
		known++
		found = append(found, o.Findings(db.Path)...)
		if !o.At.IsZero() && (out.AsOf == nil || o.At.Before(*out.AsOf)) {
			at := o.At.UTC()
			out.AsOf = &at
		}
		if o.Err != nil {
			out.NotAsked = append(out.NotAsked, Unasked{path, reasonOf(o.Err), o.Err.Error()})
			continue
		}
		out.Asked++
		for _, x := range o.Differences {
			out.Differences = append(out.Differences, Difference{path, string(x.Subject), x.Family, x.Ours, x.RocksDB})
		}
		if o.Answer.Error == "" {
			answers = append(answers, o.Answer)
		}
	}
	if known == 0 {
		return nil, nil
	}
	if len(answers) == databases {
		out.sum(answers)
	}
	return out, found
}

func (o *Opinion) sum(answers []*engine.Answer) {
	var sequence uint64
	for _, a := range answers {
		sequence += a.LastSequence
		for i := range a.Families {
			o.addFamily(&a.Families[i])
		}
	}
	o.LastSequence = &sequence
	// As Kafka Streams does: the offset of the newest segment that has one.
	for _, a := range slices.Backward(answers) {
		for _, p := range a.Offsets {
			o.addOffset(&p)
		}
	}
	slices.SortFunc(o.Offsets, func(a, b CheckpointEntry) int {
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return int(a.Partition) - int(b.Partition)
	})
}

func (o *Opinion) addFamily(f *engine.Family) {
	name := volume.Text(string(f.Name))
	i := slices.IndexFunc(o.Families, func(x EstimatedFamily) bool { return x.Name == name })
	if i < 0 {
		i = len(o.Families)
		o.Families = append(o.Families, EstimatedFamily{Family: Family{Name: name, Entries: new(uint64), Levels: []Level{}},
			EstimatedKeys: new(uint64), EstimatedLiveBytes: new(uint64)})
	}
	x := &o.Families[i]
	x.EstimatedKeys = plus(x.EstimatedKeys, f.Property("estimate-num-keys"))
	x.EstimatedLiveBytes = plus(x.EstimatedLiveBytes, f.Property("estimate-live-data-size"))
	x.Entries = plus(x.Entries, f.Values())
	for j := range f.Files {
		t := f.Files[j]
		t.Size = min(t.Size, math.MaxInt64/uint64(len(f.Files))) // whatever a child says
		x.Files++
		x.SizeBytes += int64(t.Size)
		at, found := slices.BinarySearchFunc(x.Levels, t.Level, func(l Level, n int) int { return l.Level - n })
		if !found {
			x.Levels = slices.Insert(x.Levels, at, Level{Level: t.Level})
		}
		x.Levels[at].Files++
		x.Levels[at].SizeBytes += int64(t.Size)
	}
}

// plus is nil if one of the two is unknown.
func plus(a, b *uint64) *uint64 {
	if a == nil || b == nil {
		return nil
	}
	sum := *a + *b
	return &sum
}

func (o *Opinion) addOffset(p *engine.KeyValue) {
	topic, partition, ok := store.SplitOffsetKey(string(p.Key))
	if !ok || len(p.Value) != 8 {
		return
	}
	e := CheckpointEntry{volume.Text(topic), partition, int64(binary.BigEndian.Uint64(p.Value))}
	if !slices.ContainsFunc(o.Offsets, func(x CheckpointEntry) bool { return x.Topic == e.Topic && x.Partition == e.Partition }) {
		o.Offsets = append(o.Offsets, e)
	}
}

// unasked says that something could not be asked that should have been. What
// our own readers do not vouch for should not: it has a finding of theirs.
func (d *Document) unasked() bool {
	if d.Engine == nil {
		return false
	}
	if d.Engine.Error != "" {
		return true
	}
	found := false
	d.eachOpinion(func(_ string, o *Opinion) {
		for i := range o.NotAsked {
			found = found || o.NotAsked[i].Reason != string(engine.NotFit)
		}
	})
	return found
}

func (d *Document) eachOpinion(f func(where string, o *Opinion)) {
	for i := range d.StateDirs {
		for j := range d.StateDirs[i].Applications {
			a := &d.StateDirs[i].Applications[j]
			for k := range a.Tasks {
				for l := range a.Tasks[k].Stores {
					if s := &a.Tasks[k].Stores[l]; s.RocksDB != nil {
						f(a.ID+" "+a.Tasks[k].ID+" "+s.Name, s.RocksDB)
					}
				}
			}
		}
	}
}

var opinionHeader = []string{"TASK", "STORE", "TABLES", "SIZE", "LEVELS", "KEYS", "SEQUENCE", "OFFSET", "ROCKSDB"}

// opinions writes what RocksDB says of an application's stores, one row each.
func (p *printer) opinions(a *Application) {
	rows := [][]string{opinionHeader}
	for i := range a.Tasks {
		for j := range a.Tasks[i].Stores {
			if s := &a.Tasks[i].Stores[j]; s.RocksDB != nil {
				rows = append(rows, opinionCells(a.Tasks[i].ID, s))
			}
		}
	}
	if len(rows) > 1 {
		p.line("")
		p.columns(rows, []int{2, 3, 5, 6, 7})
	}
}

func opinionCells(task string, s *Store) []string {
	o := s.RocksDB
	says := "agrees"
	switch {
	case len(o.Differences) > 0:
		says = "differs"
	case o.Asked == 0:
		says = "not asked"
	case len(o.NotAsked) > 0:
		says = "not all asked"
	}
	row := []string{task, s.Name, "-", "-", "-", "-", "-", "-", says}
	if o.LastSequence == nil {
		return row
	}
	files, bytes, keys := 0, int64(0), new(uint64)
	var levels []string
	perLevel := map[int]int{}
	for i := range o.Families {
		f := &o.Families[i]
		files += f.Files
		bytes += f.SizeBytes
		if f.Name != "offsets" { // bookkeeping, no keys of the application
			keys = plus(keys, f.EstimatedKeys)
		}
		for _, l := range f.Levels {
			perLevel[l.Level] += l.Files
		}
	}
	for level := range 64 {
		if n := perLevel[level]; n > 0 {
			levels = append(levels, "L"+strconv.Itoa(level)+":"+strconv.Itoa(n))
		}
	}
	copy(row[2:], []string{strconv.Itoa(files), Bytes(bytes), dash(strings.Join(levels, " ")), about(keys),
		strconv.FormatUint(*o.LastSequence, 10)})
	switch len(o.Offsets) {
	case 0:
	case 1:
		row[7] = strconv.FormatInt(o.Offsets[0].Offset, 10)
	default:
		row[7] = strconv.FormatInt(o.Offsets[0].Offset, 10) + " (+" + strconv.Itoa(len(o.Offsets)-1) + ")"
	}
	return row
}

func about(n *uint64) string {
	if n == nil {
		return "-"
	}
	return "~" + strconv.FormatUint(*n, 10)
}

// engine writes what there is to say below the tables: why RocksDB could not be
// asked, and every difference.
func (p *printer) engine(d *Document) {
	if d.Engine == nil {
		return
	}
	p.line("")
	if d.Engine.Error != "" {
		p.line("ROCKSDB could not be asked (%s)", d.Engine.Reason)
		if len(d.Engine.Findings) == 0 { // else they tell more
			wrap(p, "    ", d.Engine.Error)
		}
		return
	}
	differences, unasked := 0, 0
	d.eachOpinion(func(_ string, o *Opinion) {
		differences += len(o.Differences)
		unasked += len(o.NotAsked)
	})
	p.line("%s, as a reader of its own: %s, %s", d.Engine.Named("ROCKSDB"), Plural(differences, "difference"), Plural(unasked, "database")+" not asked")
	d.eachOpinion(func(where string, o *Opinion) {
		if len(o.Differences) > 0 || len(o.NotAsked) > 0 {
			p.line("    %s", where)
		}
		for i := range o.Differences {
			if i == MaxPlaces {
				p.line("      … and %d more (--output=json shows all)", len(o.Differences)-i)
				break
			}
			x := &o.Differences[i]
			what := x.Subject
			if x.Family != "" {
				what += " of family " + x.Family
			}
			p.line("      %s", x.Path)
			p.line("        %s", what)
			p.line("          the files: %s", x.Ours)
			p.line("          RocksDB:   %s", x.RocksDB)
		}
		for i := range o.NotAsked {
			p.line("      not asked (%s)", o.NotAsked[i].Reason)
			wrap(p, "        ", o.NotAsked[i].Text)
		}
	})
}

// Plural is a number of things, in words that fit it.
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// OpinionCount is how many of the stores RocksDB has given an opinion of, and
// of how many of these it differs.
type OpinionCount struct{ Stores, Of, Differing int }

// Opinions counts. Stores without a database do not count.
func (d *Document) Opinions() (n OpinionCount) {
	for i := range d.StateDirs {
		for j := range d.StateDirs[i].Applications {
			for k := range d.StateDirs[i].Applications[j].Tasks {
				for _, s := range d.StateDirs[i].Applications[j].Tasks[k].Stores {
					if s.Verdict != string(verify.Empty) {
						n.Of++
					}
				}
			}
		}
	}
	d.eachOpinion(func(_ string, o *Opinion) {
		if o.LastSequence != nil {
			n.Stores++
		}
		if len(o.Differences) > 0 {
			n.Differing++
		}
	})
	return n
}
