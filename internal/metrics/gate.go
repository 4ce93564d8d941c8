package metrics

import "github.com/prometheus/client_golang/prometheus"

// gate mirrors the numbers of the preStop gate.
type gate struct {
	source         func() Prestop
	requests, wait *prometheus.Desc
}

func newGate(source func() Prestop) *gate {
	return &gate{
		source: source,
		requests: prometheus.NewDesc("kstreams_prestop_requests_total",
			"preStop calls that were answered, by outcome.", []string{"outcome"}, nil),
		wait: prometheus.NewDesc("kstreams_prestop_wait_seconds",
			"How long the running preStop call has waited so far, else how long the last one did; absent before the first.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (g *gate) Describe(ch chan<- *prometheus.Desc) {
	ch <- g.requests
	ch <- g.wait
}

// Collect implements prometheus.Collector.
func (g *gate) Collect(ch chan<- prometheus.Metric) {
	p := g.source()
	for outcome, n := range p.Requests {
		ch <- prometheus.MustNewConstMetric(g.requests, prometheus.CounterValue, float64(n), outcome)
	}
	if p.Any {
		ch <- prometheus.MustNewConstMetric(g.wait, prometheus.GaugeValue, p.Waited.Seconds())
	}
}
