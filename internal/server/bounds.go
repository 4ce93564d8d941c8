package server

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// Bounds of a request. There is no timeout on the whole of it: a preStop call
// may wait for its budget, and net/http cancels the context of a request whose
// read deadline passes while its handler runs.
const (
	headerTimeout = 10 * time.Second
	headerLimit   = 16 << 10
	idleTimeout   = 2 * time.Minute
	// bodyTimeout is how long the rest of a body that nobody asked for is
	// listened to.
	bodyTimeout = time.Second
	// answerTimeout is from the first byte of an answer to its last.
	answerTimeout = time.Minute
	// profileTimeout is the same for pprof, whose traces are written while
	// they are taken.
	profileTimeout = 10 * time.Minute
)

// Bounds of a listener. One that is full takes the next connection when
// another has ended; nobody is turned away. A connection that waits costs
// about 20 KiB.
const (
	// HookConnections leaves room for the probes beside 1,000 preStop calls.
	HookConnections = 1200
	// Connections is for the metrics and the admin listener each.
	Connections = 256
	// HookIdle is short: idle connections of strangers must not keep the
	// kubelet out.
	HookIdle = 5 * time.Second
	// maxStreams are the requests of one HTTP/2 connection.
	maxStreams = 16
)

// answerWithin gives an answer the time d, from its first byte: a reader that
// stops reading must not keep a connection and what is written to it. Nothing
// is bounded before that byte but the reading of a body, which no request needs.
func answerWithin(d time.Duration) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			// Not every ResponseWriter has a deadline to set, httptest's has none.
			rc := http.NewResponseController(w)
			if req.ContentLength != 0 {
				_ = rc.SetReadDeadline(time.Now().Add(bodyTimeout))
				w.Header().Set("Connection", "close")
			}
			next.ServeHTTP(&deadlineWriter{ResponseWriter: w, rc: rc, limit: d}, req)
		})
	}
}

// deadlineWriter sets the write deadline once, when writing begins.
type deadlineWriter struct {
	http.ResponseWriter
	rc    *http.ResponseController
	limit time.Duration
	begun bool
}

func (w *deadlineWriter) begin() {
	if !w.begun {
		w.begun = true
		_ = w.rc.SetWriteDeadline(time.Now().Add(w.limit))
	}
}

// WriteHeader implements http.ResponseWriter.
func (w *deadlineWriter) WriteHeader(status int) { w.begin(); w.ResponseWriter.WriteHeader(status) }

// Write implements http.ResponseWriter.
func (w *deadlineWriter) Write(b []byte) (int, error) { w.begin(); return w.ResponseWriter.Write(b) }

// Unwrap is for http.ResponseController.
func (w *deadlineWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// atMost lets n requests through at a time. Others wait for their turn, and
// are told to come back when it does not come within wait.
func atMost(n int, wait time.Duration, busy http.HandlerFunc) func(http.Handler) http.Handler {
	places := make(chan struct{}, n)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			t := time.NewTimer(wait)
			defer t.Stop()
			select {
			case places <- struct{}{}:
				defer func() { <-places }()
				next.ServeHTTP(w, req)
			case <-t.C:
				w.Header().Set("Retry-After", "1")
				busy(w, req)
			case <-req.Context().Done():
			}
		})
	}
}

// limited is a net.Listener with at most cap(places) open connections.
type limited struct {
	net.Listener
	places chan struct{}
	closed chan struct{}
	once   sync.Once
}

func limit(l net.Listener, n int) *limited {
	return &limited{Listener: l, places: make(chan struct{}, n), closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	return &limitedConn{Conn: c, places: l.places}, nil
}

// Close implements net.Listener.
func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn
	places chan struct{}
	once   sync.Once
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { <-c.places })
	return err
}
