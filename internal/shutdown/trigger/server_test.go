package trigger_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"streams-sidecar/internal/shutdown/trigger"
)

// The tests of this file run against real servers on real connections.

// listen starts a server; with TLS if there is a configuration for it.
func listen(t *testing.T, cfg *tls.Config, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	if cfg != nil {
		s.TLS = cfg
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// ask makes one attempt, and does not wait for the pause after it.
func ask(t *testing.T, h *trigger.HTTP) trigger.Report {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := h.Start(ctx, always)
	for r.Report().Err == "" && !r.Report().Taken {
		time.Sleep(time.Millisecond)
	}
	got := r.Report()
	cancel()
	<-r.Done()
	return got
}

func TestWhatIsSent(t *testing.T) {
	t.Parallel()
	got := make(chan *http.Request, 1)
	body := make(chan string, 1)
	s := listen(t, nil, func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got <- r
		body <- string(text)
	})
	address := s.Listener.Addr().String()
	header := func(pairs ...string) http.Header {
		h := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			h.Add(pairs[i], pairs[i+1])
		}
		return h
	}
	for _, c := range []struct {
		cfg                     trigger.HTTPConfig
		method, uri, host, body string
		header                  http.Header
		length                  int64
	}{
		{
			trigger.HTTPConfig{URL: "http://" + address},
			"POST", "/", address, "", header("User-Agent", "streams-sidecar", "Connection", "close", "Content-Length", "0"), 0,
		},
		{
			trigger.HTTPConfig{
				URL: "http://ann:pw@" + address + "/actuator/a%2Fb?x=1&x=%2B", Method: "Put", Body: `{"close":true}`,
				Headers: []string{"content-type: application/json", "X-Two: a", "X-Two:b: c", "User-Agent: me", "Host: app.example", "X-Empty:"},
			},
			"PUT", "/actuator/a%2Fb?x=1&x=%2B", "app.example", `{"close":true}`,
			header("User-Agent", "me", "Connection", "close", "Content-Length", "14", "Content-Type", "application/json",
				"X-Two", "a", "X-Two", "b: c", "X-Empty", "", "Authorization", "Basic YW5uOnB3"), 14,
		},
		{
			trigger.HTTPConfig{URL: "http://" + address + "?x", Method: "GET"},
			"GET", "/?x", address, "", header("User-Agent", "streams-sidecar", "Connection", "close"), 0,
		},
	} {
		if report := ask(t, newHTTP(t, c.cfg)); !report.Taken {
			t.Fatalf("%+v: %+v", c.cfg, report)
		}
		r := <-got
		type sent struct {
			Method, URI, Host, Body string
			Header                  http.Header
			Length                  int64
		}
		want := sent{c.method, c.uri, c.host, c.body, c.header, c.length}
		if diff := cmp.Diff(want, sent{r.Method, r.RequestURI, r.Host, <-body, r.Header, r.ContentLength}); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", c.cfg, diff)
		}
	}
}

// TestNoProxy: a proxy of the environment would get the secrets of the request.
func TestNoProxy(t *testing.T) {
	for _, name := range []string{"http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(name, "http://proxy.example:3128")
	}
	h := newHTTP(t, trigger.HTTPConfig{URL: "http://app.example:8080/"})
	dialled := ""
	h.Dial(func(_ context.Context, _, address string) (net.Conn, error) {
		dialled = address
		return nil, io.EOF
	})
	_ = ask(t, h)
	if dialled != "app.example:8080" {
		t.Errorf("it connects to %q", dialled)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	s := listen(t, nil, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/close" {
			t.Errorf("%s was asked", r.URL)
		}
		http.Redirect(w, r, "/login", http.StatusFound)
	})
	got := ask(t, newHTTP(t, trigger.HTTPConfig{URL: s.URL + "/close", Method: "GET"}))
	want := trigger.Report{Attempts: 1, Err: "GET " + s.URL +
		"/close: the answer is 302 Found, a redirect to another path, and none is followed: the URL must be that of the endpoint itself"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFailsThenTakes(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	s := listen(t, nil, func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) == 1 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	r := newHTTP(t, trigger.HTTPConfig{URL: s.URL}).Start(t.Context(), never)
	<-r.Done()
	if diff := cmp.Diff(trigger.Report{Attempts: 2, Taken: true}, r.Report()); diff != "" || calls.Load() != 2 {
		t.Errorf("called %d times (-want +got):\n%s", calls.Load(), diff)
	}
}

func TestNobodyListens(t *testing.T) {
	t.Parallel()
	s := listen(t, nil, nil)
	s.Close()
	if got := ask(t, newHTTP(t, trigger.HTTPConfig{URL: s.URL})); got.Taken || !strings.HasSuffix(got.Err, "connect: connection refused") {
		t.Errorf("got %+v", got)
	}
}

// TestEndpointThatClosesBeforeItAnswers: the stores are closed within the call,
// and the connection breaks with the end of the process.
func TestEndpointThatClosesBeforeItAnswers(t *testing.T) {
	t.Parallel()
	var closing atomic.Bool
	s := listen(t, nil, func(w http.ResponseWriter, _ *http.Request) {
		closing.Store(true)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_ = conn.(*net.TCPConn).SetLinger(0) // a reset
		_ = conn.Close()
	})
	r := newHTTP(t, trigger.HTTPConfig{URL: s.URL}).Start(t.Context(), closing.Load)
	<-r.Done()
	if got := r.Report(); got.Attempts != 1 || got.Taken || !got.Closing || !strings.HasSuffix(got.Err, "connection reset by peer") {
		t.Errorf("got %+v", got)
	}
}

// TestTheServerSeesNoHangUp: what a server does for a request is cancelled in
// many frameworks when the client goes, also after the header was sent.
func TestTheServerSeesNoHangUp(t *testing.T) {
	t.Parallel()
	r := make(chan *trigger.Run, 1)
	hungUp := make(chan bool, 1)
	s := listen(t, nil, func(w http.ResponseWriter, req *http.Request) {
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		for run := <-r; !run.Report().Taken; time.Sleep(time.Millisecond) {
		}
		select {
		case <-req.Context().Done():
			hungUp <- true
		case <-time.After(50 * time.Millisecond):
			hungUp <- false
		}
		_, _ = io.WriteString(w, "closed")
	})
	run := newHTTP(t, trigger.HTTPConfig{URL: s.URL}).Start(t.Context(), never)
	r <- run
	if <-hungUp {
		t.Error("the client hung up once it had the header")
	}
	<-run.Done()
}

func TestTLS(t *testing.T) {
	t.Parallel()
	ours, theirs := newCA(t, "ours"), newCA(t, "theirs")
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	ours.issue(t, cert, key)
	strange, strangeKey := filepath.Join(dir, "strange.crt"), filepath.Join(dir, "strange.key")
	theirs.issue(t, strange, strangeKey)
	pair, err := tls.LoadX509KeyPair(cert, key)
	must(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(ours.cert)

	taken := func(http.ResponseWriter, *http.Request) {}
	open := listen(t, &tls.Config{Certificates: []tls.Certificate{pair}}, taken).URL
	closed := listen(t, &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}, taken).URL
	plain := listen(t, nil, taken).URL
	otherName := strings.Replace(open, "127.0.0.1", "localhost", 1)
	for _, c := range []struct {
		name string
		cfg  trigger.HTTPConfig
		says string // a part of the error, "" if it is taken
	}{
		{"the server's authority", trigger.HTTPConfig{URL: open, CAFile: ours.file(t)}, ""},
		{"another authority", trigger.HTTPConfig{URL: open, CAFile: theirs.file(t)}, "certificate signed by unknown authority"},
		{"the system's authorities", trigger.HTTPConfig{URL: open}, "certificate signed by unknown authority"},
		{"another name", trigger.HTTPConfig{URL: otherName, CAFile: ours.file(t)}, "certificate is not valid for any names, but wanted to match localhost"},
		{"any certificate", trigger.HTTPConfig{URL: otherName, InsecureSkipVerify: true}, ""},
		{"the header Host is not the certificate's name", trigger.HTTPConfig{URL: open, CAFile: ours.file(t), Headers: []string{"Host: localhost"}}, ""},
		{"a certificate of the client", trigger.HTTPConfig{URL: closed, CAFile: ours.file(t), CertFile: cert, KeyFile: key}, ""},
		{"none", trigger.HTTPConfig{URL: closed, CAFile: ours.file(t)}, "remote error: tls: certificate required"},
		{"one of another authority", trigger.HTTPConfig{URL: closed, CAFile: ours.file(t), CertFile: strange, KeyFile: strangeKey}, "remote error: tls: "},
		{"http where https is expected", trigger.HTTPConfig{URL: strings.Replace(plain, "http", "https", 1)}, "the server speaks http, not https"},
		{"https where http is expected", trigger.HTTPConfig{URL: strings.Replace(open, "https", "http", 1)}, "the answer is 400 Bad Request"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := ask(t, newHTTP(t, c.cfg)); got.Taken != (c.says == "") || !strings.Contains(got.Err, c.says) {
				t.Errorf("got %+v, want %q", got, c.says)
			}
		})
	}
}

// TestCertificatesAreReadAgain: they are rotated while the sidecar runs, and a
// rotation that went wrong does not take away what there was.
func TestCertificatesAreReadAgain(t *testing.T) {
	t.Parallel()
	before, after := newCA(t, "before"), newCA(t, "after")
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	after.issue(t, cert, key)
	pair, err := tls.LoadX509KeyPair(cert, key)
	must(t, err)
	s := listen(t, &tls.Config{Certificates: []tls.Certificate{pair}}, func(http.ResponseWriter, *http.Request) {})
	file := before.file(t)
	h := newHTTP(t, trigger.HTTPConfig{URL: s.URL, CAFile: file})
	const unknown = "unknown authority"
	if got := ask(t, h); got.Taken || !strings.HasSuffix(got.Err, unknown) {
		t.Errorf("before: %+v", got)
	}
	must(t, os.Remove(file))
	if got := ask(t, h); got.Taken || !strings.HasSuffix(got.Err, unknown+" (with the files read before: CA file: open "+file+": no such file or directory)") {
		t.Errorf("without the file: %+v", got)
	}
	must(t, os.Rename(after.file(t), file))
	if got := ask(t, h); !got.Taken {
		t.Errorf("after: %+v", got)
	}
	must(t, os.WriteFile(file, []byte("half a certifi"), 0o600))
	if got := ask(t, h); !got.Taken || got.Err != "" {
		t.Errorf("with a broken file: %+v", got)
	}
}

type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newCA(t *testing.T, name string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	cert, err := x509.ParseCertificate(der)
	must(t, err)
	return &authority{cert, key}
}

// file gives the authority's own certificate in a new file.
func (a *authority) file(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ca.crt")
	must(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}), 0o600))
	return path
}

// issue writes a certificate of 127.0.0.1, and its key.
func (a *authority) issue(t *testing.T, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "app"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	must(t, err)
	must(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	must(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), 0o600))
}
