package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/oklog/run"

	"streams-sidecar/internal/consult"
	"streams-sidecar/internal/event"
	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/metrics"
	"streams-sidecar/internal/probe"
	"streams-sidecar/internal/scrub"
	"streams-sidecar/internal/server"
	"streams-sidecar/internal/shutdown"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
)

// runCmd is the agent.
type runCmd struct {
	stateDirs
	logging
	Listen                 string        `default:":9877" env:"SIDECAR_LISTEN" placeholder:"ADDR" help:"Where Prometheus scrapes (${default})."`
	AdminListen            string        `default:"127.0.0.1:9878" env:"SIDECAR_ADMIN_LISTEN" placeholder:"ADDR" help:"Status page, JSON API, pprof (${default})."`
	HookListen             string        `default:":9879" env:"SIDECAR_HOOK_LISTEN" placeholder:"ADDR" help:"The kubelet's: /prestop and the probes (${default})."`
	WebConfigFile          string        `env:"SIDECAR_WEB_CONFIG_FILE" placeholder:"FILE" help:"TLS and basic authentication for the first two, as of prometheus/exporter-toolkit."`
	RescanInterval         time.Duration `default:"30s" env:"SIDECAR_RESCAN_INTERVAL" help:"How often everything is looked at, events or not (${default})."`
	PrestopTimeout         span          `env:"SIDECAR_PRESTOP_TIMEOUT" placeholder:"TIME" help:"How long a preStop call may wait. Without it the grace period less 5s."`
	TerminationGracePeriod span          `env:"SIDECAR_TERMINATION_GRACE_PERIOD" placeholder:"TIME" help:"The pod's terminationGracePeriodSeconds; 20s if not given."`
	PrestopStall           span          `default:"30s" env:"SIDECAR_PRESTOP_STALL" placeholder:"TIME" help:"A preStop call is answered when nothing has moved for so long (${default})."`
	PrestopTokenFile       string        `env:"SIDECAR_PRESTOP_TOKEN_FILE" placeholder:"FILE" help:"Holds the token that a preStop call must carry in X-Sidecar-Token to cause a close. Without it a call only observes."`
	triggers               `prefix:"prestop-" embed:""`
	question
	DeepInterval span     `env:"SIDECAR_DEEP_INTERVAL" placeholder:"TIME" help:"How often every byte of every table is verified, like 24h; 0 for never (${default})." default:"0"`
	VerifyRate   byteRate `default:"32M" env:"SIDECAR_VERIFY_RATE" placeholder:"BYTES" help:"Read at most so many bytes of tables a second to verify them; 0 for no bound (${default})."`
	engineFlags
	EngineInterval span `default:"1m" env:"SIDECAR_ENGINE_INTERVAL" placeholder:"TIME" help:"How often RocksDB itself is asked about a store that changes, in a process of its own; 0 for never (${default})."`
	StopTimeout    span `default:"30s" env:"SIDECAR_STOP_TIMEOUT" help:"How long to go on after SIGTERM while an application still runs (${default})."`
}

// closeGrace is how long running requests may take to end.
const closeGrace = time.Second

// logHold is how long a repeated log line is held back.
const logHold = time.Minute

// lastLook is how long the look at the end may take.
const lastLook = 500 * time.Millisecond

// Run watches and answers until it is told to stop. The ways out: SIGTERM or
// Ctrl-C and then no .lock is held or --stop-timeout is over (no error), a web
// config file that is wrong, a listener that cannot be opened or that fails (an
// error). A second signal ends the process at once, see main.
func (c *runCmd) Run(s *streams) error {
	if err := c.check(); err != nil {
		return err
	}
	// Before any listener is open: nothing must be reachable in a way that
	// was not meant.
	if err := server.CheckWebConfig(c.WebConfigFile); err != nil {
		return err
	}
	mem := divide(containerMemory(os.DirFS(cgroupRoot)), c.EngineInterval != 0)
	limitMemory(mem.own)
	var events event.Stream
	events.Listen(event.Log(c.logger(s.stderr), logHold, time.Now))

	paths := c.paths()
	vs := volumes(paths, volume.Notify(func(ch volume.Change) { events.Emit(volumeEvent(ch)) }))
	var verified *scrub.Scrubber // from the first look on
	watch := probe.New(probe.Config{StateDirs: paths, Volumes: vs, Events: &events, Rescan: c.RescanInterval, Question: c.ask(),
		More: func(db *store.Database) []finding.Finding { return verified.Findings(db) }})
	gateConfig, err := c.gate(paths)
	if err != nil {
		return err
	}
	gateConfig.Volumes, gateConfig.Snapshot, gateConfig.Events = vs, watch.Snapshot, &events
	gate := shutdown.NewGate(gateConfig)
	picture := func() []*store.StateDir {
		if s := watch.Snapshot(); s != nil {
			return s.StateDirs
		}
		return nil
	}
	verified = scrub.New(scrub.Config{Picture: picture, Volumes: vs, Paused: gate.Draining, Deep: time.Duration(c.DeepInterval),
		Pace: volume.NewPace(int64(c.VerifyRate)), Events: &events, Changed: watch.Rescan})
	rocks, endRocks, err := c.consultant(mem.engine, picture, vs, gate, &events)
	if err != nil {
		return err
	}
	defer endRocks()
	scrape := metrics.Handler(metrics.Config{
		Version: version, GoVersion: runtime.Version(), StateDirs: len(paths),
		Source: watch.Snapshot, Prestop: func() metrics.Prestop { return prestopNumbers(gate, paths) }, RocksDB: rocks, Verified: verified,
	})

	listeners, err := open([]server.Config{
		{Name: "metrics", Flag: "--listen", Address: c.Listen, Handler: server.Metrics(scrape),
			Connections: server.Connections, WebConfig: c.WebConfigFile, Events: &events},
		{Name: "admin", Flag: "--admin-listen", Address: c.AdminListen, Handler: admin(watch, gate, rocks, verified.Results),
			Connections: server.Connections, WebConfig: c.WebConfigFile, Events: &events},
		// Never with the web config: the kubelet can do neither well.
		{Name: "hook", Flag: "--hook-listen", Address: c.HookListen, Handler: server.Hook(watch, gate),
			Connections: server.HookConnections, Idle: server.HookIdle, Events: &events},
	})
	if err != nil {
		return err
	}
	events.Emit(event.Started{Version: version, StateDirs: paths})
	for i, path := range []string{"/metrics", "/", "/prestop"} {
		l := listeners[i]
		events.Emit(event.Listening{Name: l.Name, Address: l.Addr()})
		if _, err := fmt.Fprintf(s.stdout, "%-8s %s\n", l.Name, l.URL(path)); err != nil {
			return fmt.Errorf("write the addresses: %w", err)
		}
	}
	if hook := listeners[2]; hook.Loopback() {
		events.Emit(event.HookUnreachable{Address: hook.Addr()})
	}
	adviser := adviser{
		uid: os.Getuid(), snapshot: watch.Snapshot, to: &events, last: func() []shutdown.LastShutdown { return gate.State().Last },
		prestop: newPrestopAdvice(&gateConfig, c.PrestopTokenFile),
	}
	a := running{watch: watch, gate: gate, adviser: &adviser, rocks: rocks, verified: verified, listeners: listeners, events: &events, limit: time.Duration(c.StopTimeout)}
	err = a.serve(s.ctx)
	if err != nil {
		a.reason = err.Error()
	}
	events.Emit(event.Stopping{Reason: a.reason})
	return err
}

// Bounds of what can be asked for.
const (
	shortestStall    = 2 * time.Second
	shortestInterval = time.Second
	longestWait      = 7 * 24 * time.Hour
	shortestDeep     = time.Minute
	longestDeep      = 366 * 24 * time.Hour
)

func (c *runCmd) check() error {
	if c.RescanInterval < time.Second {
		return usageError(fmt.Sprintf("--rescan-interval=%v: at least 1s", c.RescanInterval))
	}
	if c.PrestopTimeout < 0 || c.TerminationGracePeriod < 0 {
		return usageError("--prestop-timeout and --termination-grace-period cannot be negative")
	}
	if time.Duration(c.PrestopStall) < shortestStall {
		return usageError(fmt.Sprintf("--prestop-stall=%v: at least %v, since progress is looked at once a second", time.Duration(c.PrestopStall), shortestStall))
	}
	if max(time.Duration(c.PrestopTimeout), time.Duration(c.TerminationGracePeriod)) > longestWait {
		return usageError(fmt.Sprintf("--prestop-timeout and --termination-grace-period can be at most %v", longestWait))
	}
	if d := time.Duration(c.EngineInterval); d != 0 && (d < shortestInterval || d > longestWait) {
		return usageError(fmt.Sprintf("--engine-interval=%v: from %v to %v, or 0 for never", d, shortestInterval, longestWait))
	}
	if d := time.Duration(c.DeepInterval); d != 0 && (d < shortestDeep || d > longestDeep) {
		return usageError(fmt.Sprintf("--deep-interval=%v: from %v to %v, or 0 for never", d, shortestDeep, longestDeep))
	}
	if c.StopTimeout < 0 {
		return usageError("--stop-timeout cannot be negative")
	}
	return nil
}

// running is the agent once its listeners are open.
type running struct {
	watch     *probe.Probe
	gate      *shutdown.Gate
	adviser   *adviser
	verified  *scrub.Scrubber
	rocks     *consult.Consultant // nil if RocksDB itself is not asked
	listeners []*server.Listener
	events    event.Sink
	limit     time.Duration // how long it goes on for an application
	reason    string        // why it was stopped
}

// serve runs the parts as one group: the first that ends stops all others.
func (r *running) serve(told context.Context) error {
	var g run.Group
	alive, end := context.WithCancel(context.Background())
	defer end()
	g.Add(func() error { r.reason = r.untilStopped(told, alive); return nil }, func(error) {
		r.gate.End() // calls that wait are answered before the listeners close
		end()
	})
	g.Add(func() error { return r.watch.Run(alive) }, func(error) { end() })
	g.Add(func() error { return r.gate.Run(alive) }, func(error) { end() })
	g.Add(func() error { return r.verified.Run(alive) }, func(error) { end() })
	g.Add(func() error { r.adviser.run(alive); return nil }, func(error) { end() })
	if r.rocks != nil {
		g.Add(func() error { return r.rocks.Run(alive) }, func(error) { end() })
	}
	for _, l := range r.listeners {
		g.Add(l.Serve, func(error) { l.Stop(closeGrace) })
	}
	return g.Run()
}

// untilStopped returns when the agent was told to stop and may: as a classic
// container it gets SIGTERM together with the application, and the preStop call
// and the last scrapes need it until the application has closed. It gives the
// reason in words.
func (r *running) untilStopped(told, alive context.Context) string {
	select {
	case <-told.Done():
	case <-alive.Done():
		return ""
	}
	begun := time.Now()
	// Only when it waits is there something to say.
	at := time.AfterFunc(lastLook, func() {
		if s := r.watch.Snapshot(); s != nil {
			r.events.Emit(event.StopDelayed{Limit: r.limit, Held: runningIn(s)})
		}
	})
	limit, cancel := context.WithTimeout(alive, r.limit)
	defer cancel()
	held, known := r.gate.Settle(limit)
	at.Stop()
	if known && len(held) == 0 {
		r.look(alive)
	}
	waited := time.Since(begun).Round(time.Millisecond)
	switch {
	case !known && len(held) == 0:
		return fmt.Sprintf("told to stop; after %v it cannot be told whether an application runs", waited)
	case len(held) > 0:
		return fmt.Sprintf("told to stop; after %v a .lock is still held: %s", waited, strings.Join(held, ", "))
	default:
		return fmt.Sprintf("told to stop; no application runs, seen after %v", waited)
	}
}

// look has everything looked at once more, so that the last picture and the
// last log lines tell how the application left its stores.
func (r *running) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lastLook)
	defer cancel()
	before := r.watch.Snapshot().Seq
	r.watch.Rescan()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for s := r.watch.Snapshot(); s.Seq == before || len(runningIn(s)) > 0; s = r.watch.Snapshot() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// runningIn gives the applications that a picture shows as running.
func runningIn(s *probe.Snapshot) []string {
	var out []string
	for _, d := range s.StateDirs {
		for _, a := range d.Applications {
			if held := a.Running; held != nil && *held {
				out = append(out, volume.Text(a.Layout.ID))
			}
		}
	}
	return out
}

// open opens all listeners or none.
func open(cfgs []server.Config) ([]*server.Listener, error) {
	var out []*server.Listener
	for _, cfg := range cfgs {
		l, err := server.Listen(cfg)
		if err != nil {
			for _, o := range out {
				o.Stop(0)
			}
			return nil, err
		}
		out = append(out, l)
	}
	return out, nil
}

func volumeEvent(c volume.Change) event.Event {
	if c.Answered {
		return event.VolumeAnswered{Path: c.Path, Op: c.Op, Hung: time.Since(c.Since)}
	}
	return event.VolumeStuck{Path: c.Path, Op: c.Op, Since: c.Since}
}
