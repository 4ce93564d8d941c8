package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Prestop are the numbers of the preStop gate.
type Prestop struct {
	Requests map[string]uint64 // calls answered, by outcome; every outcome is there
	Waited   time.Duration     // of the running call so far, else of the last one
	Any      bool              // false before the first call
	Budget   time.Duration     // how long a call may wait

	Closing *Closing // nil unless a call waits for a close
	Clients []Client // every application that is known to run or to have run
	// JournalFailed says that the newest attempt to write something down failed.
	JournalFailed bool
}

// Closing is how far the close has come that a call waits for.
type Closing struct {
	Stores, Flushed, Closed int // Flushed and Closed are parts of Stores
	SSTBytesWritten         int64
	Remaining               time.Duration // 0 if unknown
}

// Client is one application as the gate knows it. Nil fields are unknown.
type Client struct {
	StateDir, Application string
	Dead                  *bool      // its client has died and its JVM lives on
	Clean                 *bool      // whether it was closed cleanly the last time
	Ended                 *time.Time // that last time
	CloseSeconds          *float64   // from the call to that end
}

// gate mirrors the numbers of the preStop gate.
type gate struct {
	source  func() Prestop
	several bool // state directories

	requests, wait, budget, draining, stores, written, remaining *prometheus.Desc
	clean, ended, took, dead, journal                            *prometheus.Desc
}

func newGate(source func() Prestop, several bool) *gate {
	plain := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	of := func(name, help string) *prometheus.Desc {
		if several {
			return plain(name, help, "application_id", "state_dir")
		}
		return plain(name, help, "application_id")
	}
	return &gate{
		source: source, several: several,
		requests:  plain("kstreams_prestop_requests_total", "preStop calls that were answered, by outcome.", "outcome"),
		wait:      plain("kstreams_prestop_wait_seconds", "How long the running preStop call has waited so far, else how long the last one did; absent before the first."),
		budget:    plain("kstreams_prestop_budget_seconds", "How long a preStop call may wait."),
		draining:  plain("kstreams_prestop_draining", "1 while a preStop call waits for a close."),
		stores:    plain("kstreams_prestop_stores", "Stores that a preStop call waits for: all that were open, those that have written a table since, and those that are closed; absent while none waits.", "state"),
		written:   plain("kstreams_prestop_sst_written_bytes", "Bytes of tables that flushes have written since the preStop call came; absent while none waits."),
		remaining: plain("kstreams_prestop_remaining_seconds", "Estimated time until all stores are closed, from the rate of this close; absent while none waits or nothing is done yet."),
		clean:     of("kstreams_last_shutdown_clean", "1 if the last end of the application was proven to be clean, 0 if something of the proof was missing; absent if nothing is known of it."),
		ended:     of("kstreams_last_shutdown_timestamp_seconds", "When the application ended last."),
		took:      of("kstreams_last_shutdown_close_seconds", "How long the last close took, from the preStop call to the release of .lock; absent where no call preceded it."),
		dead:      of("kstreams_app_dead", "1 if nobody has held .lock for more than a minute although the application ran and no preStop call came: its client has died. /appz tells the same to the kubelet."),
		journal:   plain("kstreams_sidecar_journal_failed", "1 if the newest attempt to write below .streams-sidecar has failed."),
	}
}

// Describe implements prometheus.Collector.
func (g *gate) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.requests, g.wait, g.budget, g.draining, g.stores, g.written, g.remaining,
		g.clean, g.ended, g.took, g.dead, g.journal} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (g *gate) Collect(ch chan<- prometheus.Metric) {
	p := g.source()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for outcome, n := range p.Requests {
		ch <- prometheus.MustNewConstMetric(g.requests, prometheus.CounterValue, float64(n), outcome)
	}
	if p.Any {
		gauge(g.wait, p.Waited.Seconds())
	}
	gauge(g.budget, p.Budget.Seconds())
	gauge(g.draining, truth(p.Closing != nil))
	gauge(g.journal, truth(p.JournalFailed))
	if c := p.Closing; c != nil {
		gauge(g.stores, float64(c.Stores), "open")
		gauge(g.stores, float64(c.Flushed), "flushed")
		gauge(g.stores, float64(c.Closed), "closed")
		gauge(g.written, float64(c.SSTBytesWritten))
		if c.Remaining > 0 {
			gauge(g.remaining, c.Remaining.Seconds())
		}
	}
	for i := range p.Clients {
		c := &p.Clients[i]
		labels := []string{c.Application}
		if g.several {
			labels = append(labels, c.StateDir)
		}
		if c.Dead != nil {
			gauge(g.dead, truth(*c.Dead), labels...)
		}
		if c.Clean != nil {
			gauge(g.clean, truth(*c.Clean), labels...)
		}
		if c.Ended != nil {
			gauge(g.ended, float64(c.Ended.UnixMilli())/1000, labels...)
		}
		if c.CloseSeconds != nil {
			gauge(g.took, *c.CloseSeconds, labels...)
		}
	}
}

func truth(ok bool) float64 {
	if ok {
		return 1
	}
	return 0
}
