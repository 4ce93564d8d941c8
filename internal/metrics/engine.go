package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"streams-sidecar/internal/consult"
)

// engine mirrors how asking RocksDB itself goes.
type engine struct {
	source *consult.Consultant

	up, info, restarts, requests *prometheus.Desc
}

func newEngine(source *consult.Consultant) *engine {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &engine{
		source:   source,
		up:       desc("kstreams_sidecar_engine_up", "1 if RocksDB itself can be asked, 0 if not; absent before the first attempt."),
		info:     desc("kstreams_sidecar_engine_info", "Always 1; the label is the version of the RocksDB that is asked.", "rocksdb_version"),
		restarts: desc("kstreams_sidecar_engine_restarts_total", "Processes with RocksDB that have replaced an earlier one, which hung, died or was killed."),
		requests: desc("kstreams_sidecar_engine_requests_total", "Databases that RocksDB was to be asked about, by outcome.", "outcome"),
	}
}

// Describe implements prometheus.Collector.
func (e *engine) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{e.up, e.info, e.restarts, e.requests} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (e *engine) Collect(ch chan<- prometheus.Metric) {
	s := e.source.State()
	if s.Asked {
		ch <- prometheus.MustNewConstMetric(e.up, prometheus.GaugeValue, truth(s.Err == nil))
	}
	if s.Version != "" {
		ch <- prometheus.MustNewConstMetric(e.info, prometheus.GaugeValue, 1, s.Version)
	}
	ch <- prometheus.MustNewConstMetric(e.restarts, prometheus.CounterValue, float64(s.Restarts))
	for outcome, n := range s.Requests {
		ch <- prometheus.MustNewConstMetric(e.requests, prometheus.CounterValue, float64(n), outcome)
	}
}
