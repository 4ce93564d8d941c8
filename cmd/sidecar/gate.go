package main

import (
	"fmt"
	"time"

	"streams-sidecar/internal/journal"
	"streams-sidecar/internal/metrics"
	"streams-sidecar/internal/shutdown"
	"streams-sidecar/internal/shutdown/trigger"
	"streams-sidecar/internal/volume"
)

// triggers are the flags for what a preStop call causes.
type triggers struct {
	Trigger string `default:"auto" enum:"auto,http,signal,none" env:"SIDECAR_PRESTOP_TRIGGER" help:"What makes the application close: auto, http, signal or none (${default}: http if there is a URL, else signal if the holder of .lock is visible, else none)."`

	HTTPURL      string   `name:"http-url" env:"SIDECAR_PRESTOP_HTTP_URL" placeholder:"URL" help:"The application's own shutdown endpoint."`
	HTTPMethod   string   `name:"http-method" default:"POST" env:"SIDECAR_PRESTOP_HTTP_METHOD" placeholder:"METHOD" help:"How it is asked (${default})."`
	HTTPHeader   []string `name:"http-header" sep:"none" env:"SIDECAR_PRESTOP_HTTP_HEADER" placeholder:"NAME:VALUE" help:"A header for it; may be given several times."`
	HTTPBody     string   `name:"http-body" env:"SIDECAR_PRESTOP_HTTP_BODY" placeholder:"TEXT" help:"A body for it."`
	HTTPStatus   int      `name:"http-status" env:"SIDECAR_PRESTOP_HTTP_STATUS" placeholder:"N" help:"The status that it answers with; any 2xx if not given."`
	HTTPTimeout  span     `name:"http-timeout" default:"10s" env:"SIDECAR_PRESTOP_HTTP_TIMEOUT" placeholder:"TIME" help:"How long one attempt may take (${default})."`
	HTTPCAFile   string   `name:"http-ca-file" env:"SIDECAR_PRESTOP_HTTP_CA_FILE" placeholder:"FILE" help:"Who signs its certificate; the system's authorities if not given."`
	HTTPCertFile string   `name:"http-cert-file" env:"SIDECAR_PRESTOP_HTTP_CERT_FILE" placeholder:"FILE" help:"A certificate to show to it."`
	HTTPKeyFile  string   `name:"http-key-file" env:"SIDECAR_PRESTOP_HTTP_KEY_FILE" placeholder:"FILE" help:"Its key."`
	HTTPSkip     bool     `name:"http-insecure-skip-verify" env:"SIDECAR_PRESTOP_HTTP_INSECURE_SKIP_VERIFY" help:"Take any certificate from it."`
}

// http gives nil if there is no URL.
func (t *triggers) http() (*trigger.HTTP, error) {
	if t.HTTPURL == "" {
		if t.Trigger == shutdown.TriggerHTTP {
			return nil, usageError("--prestop-trigger=http needs --prestop-http-url")
		}
		return nil, nil
	}
	h, err := trigger.NewHTTP(trigger.HTTPConfig{
		URL: t.HTTPURL, Method: t.HTTPMethod, Headers: t.HTTPHeader, Body: t.HTTPBody, Status: t.HTTPStatus,
		CAFile: t.HTTPCAFile, CertFile: t.HTTPCertFile, KeyFile: t.HTTPKeyFile, InsecureSkipVerify: t.HTTPSkip,
		Timeout: time.Duration(t.HTTPTimeout),
	})
	if err != nil {
		return nil, usageError(fmt.Sprintf("--prestop-http-…: %v", err))
	}
	return h, nil
}

// journalPatience is how long an answer may wait for its outcome to be written.
const journalPatience = 500 * time.Millisecond

// gate gives what the flags say about the preStop gate.
func (c *runCmd) gate(paths []string) (shutdown.Config, error) {
	cfg := shutdown.Config{
		Timeout: time.Duration(c.PrestopTimeout), Grace: time.Duration(c.TerminationGracePeriod),
		Stall: time.Duration(c.PrestopStall), Trigger: c.Trigger,
	}
	for _, path := range paths {
		cfg.Journals = append(cfg.Journals, journal.Open(path, journal.Deadline(journalPatience)))
	}
	var err error
	if cfg.HTTP, err = c.http(); err != nil {
		return cfg, err
	}
	if c.PrestopTokenFile != "" {
		if cfg.Token, err = trigger.NewToken(c.PrestopTokenFile); err != nil {
			return cfg, fmt.Errorf("--prestop-token-file: %w", err)
		}
	}
	return cfg, nil
}

// prestopNumbers is the gate's state as metrics.
func prestopNumbers(g *shutdown.Gate, paths []string) metrics.Prestop {
	s := g.State()
	p := metrics.Prestop{Requests: map[string]uint64{}, Waited: s.Waited, Any: s.Any, Budget: s.Budget, JournalFailed: s.JournalError != ""}
	for _, o := range shutdown.Outcomes() {
		p.Requests[string(o)] = s.Requests[o]
	}
	if c := s.Progress; c != nil {
		p.Closing = &metrics.Closing{Stores: c.Stores, Flushed: c.Flushed, Closed: c.Closed, SSTBytesWritten: c.SSTBytesWritten, Remaining: c.Remaining}
	}
	clients := map[shutdown.AppRef]*metrics.Client{}
	var order []shutdown.AppRef
	client := func(of shutdown.AppRef) *metrics.Client {
		if clients[of] == nil {
			clients[of] = &metrics.Client{StateDir: volume.Text(paths[of.Dir]), Application: of.Application}
			order = append(order, of)
		}
		return clients[of]
	}
	for _, of := range s.Known {
		client(of).Dead = new(bool)
	}
	for _, of := range s.Dead {
		*client(of).Dead = true
	}
	for i := range s.Last {
		l := &s.Last[i]
		c := client(shutdown.AppRef{Dir: l.Dir, Application: l.Application})
		if clean, known := l.Clean(); known {
			c.Clean, c.Ended, c.CloseSeconds = &clean, l.Ended, l.CloseSeconds
		}
	}
	for _, of := range order {
		p.Clients = append(p.Clients, *clients[of])
	}
	return p
}
