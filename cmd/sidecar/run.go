package main

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"time"

	"github.com/oklog/run"

	"streams-sidecar/internal/event"
	"streams-sidecar/internal/metrics"
	"streams-sidecar/internal/probe"
	"streams-sidecar/internal/server"
	"streams-sidecar/internal/shutdown"
	"streams-sidecar/internal/volume"
)

// runCmd is the agent.
type runCmd struct {
	stateDirs
	logging
	Listen                 string        `default:":9877" env:"SIDECAR_LISTEN" placeholder:"ADDR" help:"Where Prometheus scrapes (${default})."`
	AdminListen            string        `default:"127.0.0.1:9878" env:"SIDECAR_ADMIN_LISTEN" placeholder:"ADDR" help:"Status page, JSON API, pprof (${default})."`
	HookListen             string        `default:":9879" env:"SIDECAR_HOOK_LISTEN" placeholder:"ADDR" help:"The kubelet's: /prestop and the probes (${default})."`
	RescanInterval         time.Duration `default:"30s" env:"SIDECAR_RESCAN_INTERVAL" help:"How often everything is looked at, events or not (${default})."`
	PrestopTimeout         time.Duration `env:"SIDECAR_PRESTOP_TIMEOUT" placeholder:"TIME" help:"How long a preStop call may wait. Without it the grace period less 5s."`
	TerminationGracePeriod time.Duration `env:"SIDECAR_TERMINATION_GRACE_PERIOD" placeholder:"TIME" help:"The pod's terminationGracePeriodSeconds; 20s if not given."`
}

// closeGrace is how long running requests may take to end.
const closeGrace = time.Second

// logHold is how long a repeated log line is held back.
const logHold = time.Minute

// Run watches and answers until it is told to stop. The ways out: SIGTERM or
// Ctrl-C (no error), a listener that cannot be opened or that fails (an error).
func (c *runCmd) Run(s *streams) error {
	if err := c.check(); err != nil {
		return err
	}
	var events event.Stream
	events.Listen(event.Log(c.logger(s.stderr), logHold, time.Now))

	paths := c.paths()
	vs := volumes(paths, volume.Notify(func(ch volume.Change) { events.Emit(volumeEvent(ch)) }))
	watch := probe.New(probe.Config{StateDirs: paths, Volumes: vs, Events: &events, Rescan: c.RescanInterval})
	gate := shutdown.NewGate(shutdown.Config{
		StateDirs: paths, Volumes: vs, Snapshot: watch.Snapshot, Events: &events,
		Budget: shutdown.Budget(c.PrestopTimeout, c.TerminationGracePeriod),
	})
	scrape := metrics.Handler(metrics.Config{
		Version: version, GoVersion: runtime.Version(), StateDirs: len(paths),
		Source: watch.Snapshot, Prestop: func() metrics.Prestop { return prestopNumbers(gate) },
	})

	listeners, err := open([]listen{
		{"metrics", "--listen", c.Listen, server.Metrics(scrape)},
		{"admin", "--admin-listen", c.AdminListen, server.Admin(watch)},
		{"hook", "--hook-listen", c.HookListen, server.Hook(watch, gate)},
	})
	if err != nil {
		return err
	}
	events.Emit(event.Started{Version: version, StateDirs: paths})
	for i, path := range []string{"/metrics", "/", "/prestop"} {
		l := listeners[i]
		events.Emit(event.Listening{Name: l.Name, Address: l.Addr()})
		if _, err := fmt.Fprintf(s.stdout, "%-8s http://%s%s\n", l.Name, l.Addr(), path); err != nil {
			return fmt.Errorf("write the addresses: %w", err)
		}
	}
	err = c.serve(s.ctx, watch, listeners)
	events.Emit(event.Stopping{Reason: reason(err)})
	return err
}

func (c *runCmd) check() error {
	if c.RescanInterval < time.Second {
		return usageError(fmt.Sprintf("--rescan-interval=%v: at least 1s", c.RescanInterval))
	}
	if c.PrestopTimeout < 0 || c.TerminationGracePeriod < 0 {
		return usageError("--prestop-timeout and --termination-grace-period cannot be negative")
	}
	return nil
}

// serve runs the parts as one group: the first that ends stops all others.
func (c *runCmd) serve(ctx context.Context, watch *probe.Probe, listeners []*server.Listener) error {
	var g run.Group
	stopped, stop := context.WithCancel(ctx)
	defer stop()
	g.Add(func() error { <-stopped.Done(); return nil }, func(error) { stop() })
	g.Add(func() error { return watch.Run(stopped) }, func(error) { stop() })
	for _, l := range listeners {
		g.Add(l.Serve, func(error) { l.Close(closeGrace) })
	}
	return g.Run()
}

func reason(err error) string {
	if err != nil {
		return err.Error()
	}
	return "told to stop"
}

type listen struct {
	name, flag, address string
	handler             http.Handler
}

// open opens all listeners or none.
func open(ls []listen) ([]*server.Listener, error) {
	var out []*server.Listener
	for _, l := range ls {
		o, err := server.Listen(l.name, l.flag, l.address, l.handler)
		if err != nil {
			for _, o := range out {
				o.Close(0)
			}
			return nil, err
		}
		out = append(out, o)
	}
	return out, nil
}

func volumeEvent(c volume.Change) event.Event {
	if c.Answered {
		return event.VolumeAnswered{Path: c.Path, Op: c.Op, Hung: time.Since(c.Since)}
	}
	return event.VolumeStuck{Path: c.Path, Op: c.Op, Since: c.Since}
}

func prestopNumbers(g *shutdown.Gate) metrics.Prestop {
	st := g.Stats()
	p := metrics.Prestop{Requests: map[string]uint64{}, Waited: st.Waited, Any: st.Any}
	for _, o := range shutdown.Outcomes() {
		p.Requests[string(o)] = st.Requests[o]
	}
	return p
}
