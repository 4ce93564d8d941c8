package server_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"streams-sidecar/internal/event"
	"streams-sidecar/internal/server"
)

// Passwords and their bcrypt hashes, of the lowest cost.
const (
	password1, hash1 = "first password", "$2a$04$LqFl6iMA8ItP1c2X6/jOveX7fIEksdgciW8ZNtxBbQYYFAyWsmDxW"
	password2, hash2 = "second password", "$2a$04$OrzB9pttZ0z/LXadoM1C.eJCdXoWxcm5Tp9KgIlOT9mcsY.iz4Awa"
)

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// newCertificate writes cert.pem and key.pem for 127.0.0.1 and gives the pool
// that trusts it.
func newCertificate(t *testing.T, dir string, serial int64) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "test"}, IsCA: true,
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	writeFile(t, filepath.Join(dir, "cert.pem"), string(cert))
	writeFile(t, filepath.Join(dir, "key.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs})))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	return pool
}

func webConfig(hash string) string {
	return "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\nbasic_auth_users:\n  prometheus: " + hash + "\n"
}

// troubles keeps the kinds of trouble that a listener had.
type troubles struct {
	mu  sync.Mutex
	all []event.ServerTrouble
}

func (s *troubles) Emit(e event.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, e.(event.ServerTrouble))
}

func (s *troubles) kinds() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]int{}
	for _, t := range s.all {
		out[t.Kind]++
	}
	return out
}

// serve runs a listener until the end of the test.
func serve(t *testing.T, cfg server.Config) *server.Listener {
	t.Helper()
	cfg.Name, cfg.Flag = "metrics", "--listen"
	if cfg.Address == "" {
		cfg.Address = "127.0.0.1:0"
	}
	if cfg.Connections == 0 {
		cfg.Connections = server.Connections
	}
	if cfg.Events == nil {
		cfg.Events = event.Discard
	}
	l, err := server.Listen(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- l.Serve() }()
	t.Cleanup(func() {
		l.Stop(0)
		if err := <-ended; err != nil {
			t.Errorf("the listener ended with %v", err)
		}
	})
	return l
}

// TestWebConfig: TLS and basic authentication for real, changed while it runs.
func TestWebConfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "web.yml")
	pool := newCertificate(t, dir, 1)
	writeFile(t, file, webConfig(hash1))
	if err := server.CheckWebConfig(file); err != nil {
		t.Fatal(err)
	}
	var log troubles
	l := serve(t, server.Config{WebConfig: file, Events: &log, Handler: server.Metrics(http.NotFoundHandler())})
	url := l.URL("/")
	if !strings.HasPrefix(url, "https://127.0.0.1:") {
		t.Fatalf("URL %s", url)
	}
	// ask gives the status and the serial number of the certificate.
	ask := func(pool *x509.CertPool, password string) (status int, serial int64) {
		t.Helper()
		c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}}
		req, err := http.NewRequest(http.MethodGet, url, nil) //nolint:noctx // bounded by the test
		if err != nil {
			t.Fatal(err)
		}
		if password != "" {
			req.SetBasicAuth("prometheus", password)
		}
		resp, err := c.Do(req)
		if err != nil {
			return 0, 0
		}
		_ = resp.Body.Close()
		return resp.StatusCode, resp.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	expect := func(what string, pool *x509.CertPool, password string, wantStatus int, wantSerial int64) {
		t.Helper()
		if status, serial := ask(pool, password); status != wantStatus || serial != wantSerial {
			t.Errorf("%s: status %d, certificate %d; want %d, %d", what, status, serial, wantStatus, wantSerial)
		}
	}
	expect("the right password", pool, password1, 200, 1)
	expect("a wrong password", pool, password2, 401, 1)
	expect("no password", pool, "", 401, 1)
	expect("a stranger's certificate", x509.NewCertPool(), password1, 0, 0)
	resp, err := http.Get("http://" + l.Addr() + "/") //nolint:noctx // bounded by the test
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("plain HTTP on the TLS port: %d", resp.StatusCode)
	}

	writeFile(t, file, webConfig(hash2))
	expect("the new password", pool, password2, 200, 1)
	expect("the old password", pool, password1, 401, 1)
	pool = newCertificate(t, dir, 2)
	expect("a new certificate", pool, password2, 200, 2)
	if got := log.kinds(); got["web-config"] != 0 {
		t.Errorf("trouble: %v", got)
	}
	writeFile(t, file, "nonsense: [\n")
	expect("a broken file", pool, password2, 0, 0)
	if got := log.kinds(); got["tls"] == 0 {
		t.Errorf("a broken file is not told of: %v", got)
	}
	writeFile(t, file, webConfig(hash2))
	expect("after the repair", pool, password2, 200, 2)
}

// TestWebConfigWithoutTLS: only basic authentication, and a file that breaks.
func TestWebConfigWithoutTLS(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "web.yml")
	writeFile(t, file, "basic_auth_users:\n  prometheus: "+hash1+"\n")
	var log troubles
	l := serve(t, server.Config{WebConfig: file, Events: &log, Handler: server.Metrics(http.NotFoundHandler())})
	if got := l.URL("/x"); got != "http://"+l.Addr()+"/x" {
		t.Errorf("URL %s", got)
	}
	expect := func(password string, want int) {
		t.Helper()
		req, err := http.NewRequest(http.MethodGet, l.URL("/"), nil) //nolint:noctx // bounded by the test
		if err != nil {
			t.Fatal(err)
		}
		req.SetBasicAuth("prometheus", password)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("password %q: %d, want %d", password, resp.StatusCode, want)
		}
	}
	expect(password1, 200)
	expect(password2, 401)
	writeFile(t, file, "basic_auth_users: 7\n")
	expect(password1, 500) // never open because the file is broken
	if got := log.kinds(); got["web-config"] != 1 {
		t.Errorf("trouble: %v", got)
	}
}

// TestCheckWebConfig: what is wrong, in one line with the name of the file.
func TestCheckWebConfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	newCertificate(t, dir, 1)
	file := filepath.Join(dir, "web.yml")
	for text, says := range map[string]string{
		"": "", webConfig(hash1): "", "http_server_config:\n  http2: false\n": "",
		"tls_server_config: 7\n":                                                                 "unmarshal",
		"no_such_key: 1\nanother: 2\n":                                                           "no_such_key",
		"tls_server_config:\n  cert_file: cert.pem\n":                                            "key",
		"tls_server_config:\n  cert_file: cert.pem\n  key_file: cert.pem\n":                      "private key",
		"tls_server_config:\n  cert_file: missing.pem\n  key_file: key.pem\n":                    "missing.pem",
		"basic_auth_users:\n  prometheus: clear text\n":                                          "bcrypt",
		"http_server_config:\n  headers:\n    X-Content-Type-Options: other\n":                   "X-Content-Type-Options",
		"tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n  min_version: TLS99\n": "TLS99",
	} {
		writeFile(t, file, text)
		err := server.CheckWebConfig(file)
		if says == "" {
			if err != nil {
				t.Errorf("%q: %v", text, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), file) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want one line with %s and %q", text, err, file, says)
		}
	}
	if err := server.CheckWebConfig(filepath.Join(dir, "none")); err == nil {
		t.Error("a file that is not there is accepted")
	}
	if err := server.CheckWebConfig(""); err != nil {
		t.Errorf("no file: %v", err)
	}
}

// TestPanicIsTold: a handler that panics costs its request, and one line.
func TestPanicIsTold(t *testing.T) {
	t.Parallel()
	var log troubles
	l := serve(t, server.Config{Events: &log, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/panic" {
			panic("for the test")
		}
		w.WriteHeader(http.StatusNoContent)
	})})
	if resp, err := http.Get(l.URL("/panic")); err == nil { //nolint:noctx // bounded by the test
		_ = resp.Body.Close()
		t.Errorf("the handler that panics answered %d", resp.StatusCode)
	}
	resp, err := http.Get(l.URL("/")) //nolint:noctx // bounded by the test
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if got := log.kinds(); got["panic"] != 1 || resp.StatusCode != http.StatusNoContent {
		t.Errorf("trouble %v, then status %d", got, resp.StatusCode)
	}
}

// TestAllAddresses: without a host a listener is there for IPv4 and IPv6.
func TestAllAddresses(t *testing.T) {
	t.Parallel()
	l := serve(t, server.Config{Address: ":0", Handler: server.Metrics(http.NotFoundHandler())})
	if l.Loopback() {
		t.Errorf("%s is said to be a loopback address", l.Addr())
	}
	_, port, err := net.SplitHostPort(l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	hosts := []string{"127.0.0.1"}
	if six, err := net.Listen("tcp6", "[::1]:0"); err == nil {
		_ = six.Close()
		hosts = append(hosts, "::1")
	}
	for _, host := range hosts {
		resp, err := http.Get("http://" + net.JoinHostPort(host, port) + "/") //nolint:noctx // bounded by the test
		if err != nil {
			t.Error(err)
			continue
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %d", host, resp.StatusCode)
		}
	}
	if l := serve(t, server.Config{Handler: http.NotFoundHandler()}); !l.Loopback() {
		t.Errorf("%s is not said to be a loopback address", l.Addr())
	}
}

// TestStopWithoutServe: a port that was opened and never served is free again.
func TestStopWithoutServe(t *testing.T) {
	t.Parallel()
	cfg := server.Config{Name: "hook", Flag: "--hook-listen", Address: "127.0.0.1:0", Connections: 1, Handler: http.NotFoundHandler(), Events: event.Discard}
	l, err := server.Listen(cfg)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Address = l.Addr()
	if _, err := server.Listen(cfg); err == nil || !strings.Contains(err.Error(), "hook listener") || !strings.Contains(err.Error(), "--hook-listen") {
		t.Errorf("a port in use: %v", err)
	}
	l.Stop(0)
	if err := l.Serve(); err != nil {
		t.Errorf("served after its end: %v", err)
	}
	again, err := server.Listen(cfg)
	if err != nil {
		t.Fatalf("the port is not free: %v", err)
	}
	again.Stop(0)
}
