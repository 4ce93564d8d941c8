package trigger

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"streams-sidecar/internal/volume"
)

const (
	defaultTimeout = 10 * time.Second

	// The pause between two attempts doubles from first to most, each a
	// fifth longer or shorter by chance.
	firstPause = 200 * time.Millisecond
	mostPause  = 5 * time.Second

	maxHeader = 64 << 10 // of an answer, bytes
	maxBody   = 4 << 10  // of an answer, bytes that are read
	maxText   = 512      // of an error, bytes
)

// HTTP asks an application to close, through its own shutdown endpoint. It
// follows no redirect (a page to log in would look like success), uses no proxy
// and keeps neither cookies nor connections. It is safe for concurrent use.
type HTTP struct {
	method, body string
	url          *url.URL
	target       string // what errors call it: no userinfo, no query
	address      string
	host         string
	header       http.Header
	status       int
	timeout      time.Duration
	tls          *tlsFiles // nil without TLS
	dial         func(ctx context.Context, network, address string) (net.Conn, error)
}

// String is the method and the URL without what may be secret in it.
func (h *HTTP) String() string { return h.method + " " + h.target }

// Report is how far a [Run] has come.
type Report struct {
	// Attempts that have begun.
	Attempts int
	// Taken says that the application answered as expected: it has been
	// asked, which does not say that it closes.
	Taken bool
	// Closing says that the run has ended without such an answer, because the
	// application was closing already.
	Closing bool
	// Err is one line, of at most 512 bytes, about the last attempt that
	// failed; "" if none has, and once an answer was as expected. An attempt
	// that the end of the context cut short has not failed. It shows no
	// credential, query, header value or body, whatever the server answers.
	Err string
}

// Run is the asking of one drain: attempts, until one is taken.
type Run struct {
	h    *HTTP
	done chan struct{}

	mu     sync.Mutex
	report Report
}

// Start begins to ask the application to close. It is asked again until it
// has taken it, with pauses from 0.2 s doubling to 5 s, or until the context
// ends. Before each further attempt closing is asked, from the run's
// goroutine: when it says that the application is closing there is none,
// since an endpoint that closes before it answers may answer late or never,
// and its connection may break with the JVM.
//
// After an answer as expected the run stays connected for the rest of the
// answer, up to 4 KiB and to the attempt's timeout: a server that sees its
// client hang up may cancel what it has begun.
func (h *HTTP) Start(ctx context.Context, closing func() bool) *Run {
	r := &Run{h: h, done: make(chan struct{})}
	go r.run(ctx, closing)
	return r
}

// Report is how far the run has come by now.
func (r *Run) Report() Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.report
}

// Done is closed when the run has ended. Nothing changes afterwards.
func (r *Run) Done() <-chan struct{} { return r.done }

func (r *Run) note(change func(*Report)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.report)
}

func (r *Run) run(ctx context.Context, closing func() bool) {
	defer close(r.done)
	var cfg *tls.Config
	var stale error
	if r.h.tls != nil {
		cfg, stale = r.h.tls.reload()
	}
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, mostPause) {
		r.note(func(p *Report) { p.Attempts++ })
		err := r.h.ask(ctx, cfg, func() { r.note(func(p *Report) { p.Taken, p.Err = true, "" }) })
		if err == nil || ctx.Err() != nil {
			return
		}
		text := r.h.String() + ": " + err.Error()
		if stale != nil {
			text += " (with the files read before: " + stale.Error() + ")"
		}
		r.note(func(p *Report) { p.Err = clip(text) })
		if !sleep(ctx, jitter(pause)) {
			return
		}
		if closing() {
			r.note(func(p *Report) { p.Closing = true })
			return
		}
	}
}

func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}

// sleep says whether the context is still alive after it.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// ask is one attempt. It returns nil once the answer was as expected, of which
// taken is told as soon as its header is there.
//
// It is written on a connection of its own, without http.Client: a
// http.Transport goes on dialling after its request has ended, and here
// nothing may.
func (h *HTTP) ask(ctx context.Context, cfg *tls.Config, taken func()) error {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	raw, err := h.dial(ctx, "tcp", h.address)
	if err != nil {
		return h.explain(ctx, "connection", err)
	}
	conn := raw
	// Of the connection itself: closing TLS waits to send a farewell.
	defer context.AfterFunc(ctx, func() { _ = raw.Close() })()
	defer func() { _ = conn.Close() }()
	if cfg != nil {
		secured := tls.Client(raw, cfg)
		if err := secured.HandshakeContext(ctx); err != nil {
			return h.explain(ctx, "TLS connection", err)
		}
		conn = secured
	}
	req := h.request()
	// A server may refuse without having read everything, and then its answer
	// counts; where there is none, reading fails as well.
	_ = req.Write(conn)
	left := &io.LimitedReader{R: conn, N: maxHeader + maxBody}
	resp, err := readAnswer(bufio.NewReader(left), req)
	if err != nil {
		if left.N <= 0 {
			err = errHeaderTooLarge
		}
		return h.explain(ctx, "answer", err)
	}
	defer func() {
		_ = conn.Close() // first: closing the body would read it to its end
		_ = resp.Body.Close()
	}()
	if err := h.expected(resp); err != nil {
		return err
	}
	taken()
	// It has been taken, whatever becomes of the rest.
	_, _ = io.CopyN(io.Discard, resp.Body, maxBody)
	return nil
}

func (h *HTTP) request() *http.Request {
	req := &http.Request{Method: h.method, URL: h.url, Host: h.host, Header: h.header, Close: true}
	if h.body != "" {
		req.Body = io.NopCloser(strings.NewReader(h.body))
		req.ContentLength = int64(len(h.body))
	}
	return req
}

// readAnswer passes over interim answers, of which the reader's bound allows
// only so many.
func readAnswer(r *bufio.Reader, req *http.Request) (*http.Response, error) {
	for {
		resp, err := http.ReadResponse(r, req)
		if err != nil || resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols {
			return resp, err
		}
		_ = resp.Body.Close() // it has none
	}
}

// expected says what is wrong with an answer, in words of our own: a server may
// send back whatever it was sent.
func (h *HTTP) expected(resp *http.Response) error {
	got := fmt.Sprintf("the answer is %d", resp.StatusCode)
	if t := http.StatusText(resp.StatusCode); t != "" {
		got += " " + t
	}
	switch {
	case resp.StatusCode == h.status, h.status == 0 && resp.StatusCode/100 == 2:
		return nil
	case resp.StatusCode/100 == 3 && resp.Header.Get("Location") != "":
		return fmt.Errorf("%s, a redirect to %s, and none is followed: the URL must be that of the endpoint itself",
			got, h.relation(resp.Header.Get("Location")))
	case h.status == 0:
		return fmt.Errorf("%s, expected is 2xx", got)
	default:
		return fmt.Errorf("%s, expected is %d", got, h.status)
	}
}

// relation says in which way the target of a redirect differs.
func (h *HTTP) relation(location string) string {
	u, err := h.url.Parse(location)
	switch {
	case err != nil:
		return "what is no URL"
	case !strings.EqualFold(u.Hostname(), h.url.Hostname()):
		return "another host"
	case u.Scheme != h.url.Scheme && (u.Scheme == "http" || u.Scheme == "https"):
		return u.Scheme
	case u.Scheme != h.url.Scheme:
		return "another scheme"
	case u.Port() != h.url.Port():
		return "another port"
	case u.EscapedPath() != h.url.EscapedPath():
		return "another path"
	default:
		return "the same path"
	}
}

var (
	errHeaderTooLarge = fmt.Errorf("the answer's header is larger than %d KiB", maxHeader>>10)
	errNotHTTP        = errors.New("what came is no HTTP/1.1 answer (does the port speak https, or HTTP/2 only?)")
	errNotTLS         = errors.New("the server speaks http, not https")
	errClosed         = errors.New("the connection was closed before the answer")
)

// explain words why an attempt failed while it waited for something. What may
// hold bytes that the server sent is not shown, since they may be our own.
func (h *HTTP) explain(ctx context.Context, waited string, err error) error {
	// A dialler that was given the deadline can be a moment ahead of it.
	if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no %s within %v", waited, h.timeout)
	}
	if t, ok := errors.AsType[tls.RecordHeaderError](err); ok && string(t.RecordHeader[:]) == "HTTP/" {
		return errNotTLS
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errClosed
	case waited != "answer", errors.Is(err, errHeaderTooLarge):
		return err // of TLS, say: nothing was sent yet that could come back
	default:
		return errNotHTTP
	}
}

// clip makes one line of a text and bounds it.
func clip(text string) string {
	const mark = "…"
	text = volume.Text(text)
	if len(text) <= maxText {
		return text
	}
	end := 0
	for i := range text {
		if i > maxText-len(mark) {
			break
		}
		end = i
	}
	return text[:end] + mark
}

// tlsFiles are the certificates for a server that is asked by https.
type tlsFiles struct {
	ca, cert, key string
	insecure      bool
	server        string
	files         *volume.Volume

	mu   sync.Mutex
	good *tls.Config // of the last reading that succeeded
}

// maxPEM bounds a file of certificates: all public authorities take 0.3 MB.
const maxPEM = 4 << 20

// reload reads the files anew, since certificates are rotated while the
// sidecar runs. With an error it gives what they held before.
func (f *tlsFiles) reload() (*tls.Config, error) {
	cfg, err := f.load()
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		f.good = cfg
	}
	return f.good, err
}

func (f *tlsFiles) load() (*tls.Config, error) {
	cfg := &tls.Config{
		ServerName:         f.server,
		InsecureSkipVerify: f.insecure,
		NextProtos:         []string{"http/1.1"},
	}
	if f.ca != "" {
		pem, err := read(f.files, "CA file", f.ca, maxPEM)
		if err != nil {
			return nil, err
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("CA file: %s: no certificate in PEM form is in it", volume.Text(f.ca))
		}
	}
	if f.cert == "" {
		return cfg, nil
	}
	cert, err := read(f.files, "certificate file", f.cert, maxPEM)
	if err != nil {
		return nil, err
	}
	key, err := read(f.files, "key file", f.key, maxPEM)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("certificate file %s with key file %s: %w", volume.Text(f.cert), volume.Text(f.key), err)
	}
	cfg.Certificates = []tls.Certificate{pair}
	return cfg, nil
}
