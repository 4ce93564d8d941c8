package metrics

import (
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/scrub"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/verify"
)

// verified mirrors what the background verification has counted.
type verified struct {
	scrubber             *scrub.Scrubber
	runs, bytes, retries *prometheus.Desc
}

func newVerified(s *scrub.Scrubber) *verified {
	return &verified{scrubber: s,
		runs: prometheus.NewDesc("kstreams_sidecar_verifications_total",
			"Verifications of a database in the background, by depth.", []string{"depth"}, nil),
		bytes: prometheus.NewDesc("kstreams_sidecar_verified_bytes_total",
			"Bytes of tables that were read to verify them.", nil, nil),
		retries: prometheus.NewDesc("kstreams_sidecar_verify_retries_total",
			"Second looks at what looked like damage, or at a database of which a table had gone.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (v *verified) Describe(ch chan<- *prometheus.Desc) {
	ch <- v.runs
	ch <- v.bytes
	ch <- v.retries
}

// Collect implements prometheus.Collector.
func (v *verified) Collect(ch chan<- prometheus.Metric) {
	t := v.scrubber.Totals()
	ch <- prometheus.MustNewConstMetric(v.runs, prometheus.CounterValue, float64(t.Quick), string(verify.Quick))
	ch <- prometheus.MustNewConstMetric(v.runs, prometheus.CounterValue, float64(t.Deep), string(verify.Deep))
	ch <- prometheus.MustNewConstMetric(v.bytes, prometheus.CounterValue, float64(t.Bytes))
	ch <- prometheus.MustNewConstMetric(v.retries, prometheus.CounterValue, float64(t.Retries))
}

// judged is what there is to say of a store, with what RocksDB itself says.
func (p *page) judged(s *store.Store) verify.Judged {
	j := p.snap.Judgement.Store(s)
	if p.rocks == nil {
		return j
	}
	for _, db := range s.Databases {
		if o, ok := p.rocks.Opinion(db); ok {
			j = j.With(o.Findings(db.Path))
		}
	}
	return j
}

// findings writes how many there are of each code, in the order of the codes.
func (p *page) findings(at *place, fs []finding.Finding) {
	if len(fs) == 0 {
		return
	}
	type kind struct {
		code     finding.Code
		severity finding.Severity
	}
	counts := map[kind]int64{}
	for i := range fs {
		counts[kind{fs[i].Code, fs[i].Severity}]++
	}
	for _, k := range slices.SortedFunc(maps.Keys(counts), func(a, b kind) int {
		if a.code != b.code {
			if a.code < b.code {
				return -1
			}
			return 1
		}
		return a.severity.Rank() - b.severity.Rank()
	}) {
		p.sample(at.before + "," + label("code", string(k.code)) + "," + label("severity", string(k.severity)) + at.after).int(counts[k])
	}
}

// verifiedAt is when the tables of all of a store's databases were verified at a
// depth, at the latest.
func (p *page) verifiedAt(s *store.Store, d verify.Depth) (at time.Time, ok bool) {
	if p.verified == nil {
		return at, false
	}
	for _, db := range s.Databases {
		if db.IsEmpty() {
			continue
		}
		found := false
		for _, r := range p.verified.Results(db) {
			if r.Depth == d {
				found = true
				if at.IsZero() || r.At.Before(at) {
					at = r.At
				}
			}
		}
		if !found {
			return at, false
		}
	}
	return at, !at.IsZero()
}
