package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Listener is one open port with its handler.
type Listener struct {
	Name string
	srv  *http.Server
	ln   net.Listener
}

// Bounds of a request. There is no timeout on the whole of it: a preStop call
// may wait for its budget, and net/http cancels the context of a request whose
// read deadline passes while its handler runs.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	headerLimit   = 16 << 10
)

// Listen opens a port. The address is host:port; port 0 takes a free one. The
// error says which listener it was and what to do.
func Listen(name, flag, address string, h http.Handler) (*Listener, error) {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("open the %s listener: %w (choose another address with %s)", name, err, flag)
	}
	return &Listener{Name: name, ln: ln, srv: &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerLimit,
	}}, nil
}

// Addr is the address as bound.
func (l *Listener) Addr() string { return l.ln.Addr().String() }

// Serve answers until Close. It returns nil then.
func (l *Listener) Serve() error {
	if err := l.srv.Serve(l.ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("%s listener: %w", l.Name, err)
	}
	return nil
}

// Close lets running requests end for at most grace, then cuts them off.
func (l *Listener) Close(grace time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if err := l.srv.Shutdown(ctx); err != nil {
		_ = l.srv.Close()
	}
}
