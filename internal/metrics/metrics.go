// Package metrics is what Prometheus sees of the picture that probe keeps, of
// the preStop gate, and of the agent itself. Nothing on the scrape path touches
// the volume; a value that is not known is absent, and what has vanished from
// the picture is gone from the next scrape.
//
// The series that mirror the picture are rendered by a small writer of its own
// (state.go): with 40,000 of them, client_golang's const metrics take a third
// of a second and hundreds of megabytes under a few scrapes at once. Everything
// else is client_golang.
package metrics

import (
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"

	"streams-sidecar/internal/consult"
	"streams-sidecar/internal/probe"
	"streams-sidecar/internal/scrub"
)

// Source gives the current picture, nil before the first look is done.
type Source func() *probe.Snapshot

// Config of the metrics.
type Config struct {
	Version, GoVersion string
	// StateDirs is how many there are. With several, every series of an
	// application carries a label state_dir: the same application id may be
	// in two of them.
	StateDirs int
	Source    Source
	Prestop   func() Prestop
	// RocksDB has what RocksDB itself says; nil if it is not asked.
	RocksDB *consult.Consultant
	// Verified has when and how deep the stores were last verified.
	Verified *scrub.Scrubber
}

// NewRegistry gives a registry with everything but the mirrored series.
func NewRegistry(cfg Config) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kstreams_sidecar_build_info",
		Help: "Always 1; the labels are the version of the sidecar and of Go.",
	}, []string{"version", "goversion"})
	build.WithLabelValues(cfg.Version, cfg.GoVersion).Set(1)
	reg.MustRegister(
		build,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		newGate(cfg.Prestop, cfg.StateDirs > 1),
	)
	if cfg.Verified != nil {
		reg.MustRegister(newVerified(cfg.Verified))
	}
	if cfg.RocksDB != nil {
		reg.MustRegister(newEngine(cfg.RocksDB))
	}
	return reg
}

// maxScrapes bounds how many scrapes are answered at the same time, and
// scrapeLimit how long one may take: a reader that stops reading must not keep
// its place.
const (
	maxScrapes  = 4
	scrapeLimit = time.Minute
)

// Handler answers scrapes in Prometheus' text format or in OpenMetrics,
// compressed where the scraper takes it. More than four at a time get 503.
func Handler(cfg Config) http.Handler {
	reg := NewRegistry(cfg)
	places := make(chan struct{}, maxScrapes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
		default:
			http.Error(w, "too many scrapes at the same time", http.StatusServiceUnavailable)
			return
		}
		families, err := reg.Gather()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		// Not every ResponseWriter has a deadline to set, httptest's has none.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(scrapeLimit))
		format := negotiate(r.Header)
		w.Header().Set("Content-Type", string(format))
		out := io.Writer(w)
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			w.Header().Set("Content-Encoding", "gzip")
			z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
			if err == nil { // the level is a right one
				defer func() { _ = z.Close() }() // the scraper may have hung up
				out = z
			}
		}
		enc := expfmt.NewEncoder(out, format)
		for _, f := range families {
			if enc.Encode(f) != nil {
				return // the scraper has hung up
			}
		}
		open := format.FormatType() == expfmt.TypeOpenMetrics
		if writeState(out, cfg.Source(), &cfg, open) != nil {
			return
		}
		if c, ok := enc.(expfmt.Closer); ok {
			_ = c.Close() // OpenMetrics' "# EOF"
		}
	})
}

// negotiate takes OpenMetrics where the scraper asks for it, text otherwise:
// the mirrored series have no protobuf form.
func negotiate(h http.Header) expfmt.Format {
	open, err := expfmt.NewOpenMetricsFormat(expfmt.OpenMetricsVersion_1_0_0)
	text := expfmt.NewFormat(expfmt.TypeTextPlain)
	if err != nil { // there is such a version
		return text
	}
	if f := expfmt.NegotiateAccept(h, text, open); f.FormatType() == expfmt.TypeOpenMetrics {
		return f
	}
	return text
}
