package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/exporter-toolkit/web"
	"go.yaml.in/yaml/v2"

	"streams-sidecar/internal/event"
)

// Config of a Listener.
type Config struct {
	Name    string // "metrics", "admin" or "hook"
	Flag    string // the flag that sets Address
	Address string // host:port; port 0 takes a free one, no host all addresses, IPv4 and IPv6
	Handler http.Handler
	// Connections is how many there may be at a time.
	Connections int
	// Idle is how long a connection may wait for its next request; two
	// minutes if 0.
	Idle time.Duration
	// WebConfig is the path of a web configuration file of
	// prometheus/exporter-toolkit: TLS, basic authentication, headers. It is
	// read again for every connection and request. Without it plain HTTP.
	WebConfig string
	// Events gets a ServerTrouble for what net/http or the toolkit would log.
	Events event.Sink
}

// Listener is one open port with its handler.
type Listener struct {
	Name   string
	srv    *http.Server
	ln     net.Listener
	web    string
	tls    bool
	logger *slog.Logger

	stop    sync.Once
	stopped chan struct{}
}

// CheckWebConfig says in one line what is wrong with a web configuration file,
// certificates included. An empty path is none, and right.
func CheckWebConfig(path string) error {
	if err := web.Validate(path); err != nil {
		// YAML's errors have several lines. The class of a file error is of
		// no use here: the file is on no volume of ours.
		return fmt.Errorf("web config file %s: %s", path, strings.Join(strings.Fields(err.Error()), " "))
	}
	return nil
}

// Listen opens a port. The error says which listener it was and what to do.
func Listen(cfg Config) (*Listener, error) {
	tls, err := usesTLS(cfg.WebConfig)
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", cfg.Address)
	if err != nil {
		return nil, fmt.Errorf("open the %s listener: %w (choose another address with %s)", cfg.Name, err, cfg.Flag)
	}
	log := troubleLog{cfg.Name, cfg.Events}
	return &Listener{
		Name: cfg.Name, ln: limit(ln, cfg.Connections), web: cfg.WebConfig, tls: tls, logger: slog.New(log),
		stopped: make(chan struct{}),
		srv: &http.Server{
			Handler:           cfg.Handler,
			ReadHeaderTimeout: headerTimeout,
			IdleTimeout:       cmp.Or(cfg.Idle, idleTimeout),
			MaxHeaderBytes:    headerLimit,
			HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
			ErrorLog:          slog.NewLogLogger(log, slog.LevelError),
		},
	}, nil
}

// usesTLS says whether a web configuration asks for TLS, which the toolkit
// decides once at the start.
func usesTLS(path string) (bool, error) {
	if path == "" {
		return false, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return false, fmt.Errorf("web config file: %w", err)
	}
	var c web.Config
	if err := yaml.Unmarshal(data, &c); err != nil {
		return false, fmt.Errorf("web config file %s: %w", path, err)
	}
	return c.TLSConfig.IsEnabled(), nil
}

// Addr is the address as bound.
func (l *Listener) Addr() string { return l.ln.Addr().String() }

// URL is that of a path on this listener.
func (l *Listener) URL(path string) string {
	scheme := "http"
	if l.tls {
		scheme = "https"
	}
	return scheme + "://" + l.Addr() + path
}

// Loopback says that only this network namespace reaches the listener.
func (l *Listener) Loopback() bool {
	a, ok := l.ln.Addr().(*net.TCPAddr)
	return ok && a.IP.IsLoopback()
}

// Serve answers until Stop, and returns nil when that is done.
func (l *Listener) Serve() error {
	none := []string{}
	err := web.Serve(l.ln, l.srv, &web.FlagConfig{WebListenAddresses: &none, WebConfigFile: &l.web}, l.logger)
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("%s listener: %w", l.Name, err)
	}
	<-l.stopped
	return nil
}

// Stop takes no more requests and lets the running ones end for at most grace,
// then cuts them off. It does not wait for that: Serve does.
func (l *Listener) Stop(grace time.Duration) {
	l.stop.Do(func() {
		go func() {
			defer close(l.stopped)
			ctx, cancel := context.WithTimeout(context.Background(), grace)
			defer cancel()
			if err := l.srv.Shutdown(ctx); err != nil {
				_ = l.srv.Close()
			}
			_ = l.ln.Close() // in case that it was never served
		}()
	})
}

// troubleLog makes events of what net/http and the toolkit log as errors; the
// rest of what they say ("TLS is enabled.") is dropped.
type troubleLog struct {
	listener string
	events   event.Sink
}

// Enabled implements slog.Handler.
func (troubleLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelError }

// Handle implements slog.Handler.
func (t troubleLog) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += ": " + a.Value.String()
		return true
	})
	// Kinds are few, since a line is held back by its kind: what comes from
	// outside must not be able to flood the log.
	kind := "other"
	switch {
	case strings.Contains(text, "TLS handshake"):
		kind = "tls"
	case strings.Contains(text, "panic"):
		kind = "panic"
	case strings.Contains(text, "parse configuration"):
		kind = "web-config"
	}
	t.events.Emit(event.ServerTrouble{Listener: t.listener, Kind: kind, Text: strings.TrimSpace(text)})
	return nil
}

// WithAttrs implements slog.Handler; no attributes are given beforehand.
func (t troubleLog) WithAttrs([]slog.Attr) slog.Handler { return t }

// WithGroup implements slog.Handler; no groups are used.
func (t troubleLog) WithGroup(string) slog.Handler { return t }
