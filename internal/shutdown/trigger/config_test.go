package trigger_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"streams-sidecar/internal/shutdown/trigger"
)

func TestConfigurationsThatAreWrong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := newCA(t, "ours")
	caFile, certFile, keyFile := ca.file(t), filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	ca.issue(t, certFile, keyFile)
	other, otherKey := filepath.Join(dir, "other.crt"), filepath.Join(dir, "other.key")
	ca.issue(t, other, otherKey)
	empty, fifo := filepath.Join(dir, "empty"), filepath.Join(dir, "fifo")
	must(t, os.WriteFile(empty, nil, 0o600))
	must(t, syscall.Mkfifo(fifo, 0o600))
	const url, https = "http://app.example/", "https://app.example/"
	for _, c := range []struct {
		cfg  trigger.HTTPConfig
		says string
	}{
		{trigger.HTTPConfig{}, "no URL is given"},
		{trigger.HTTPConfig{URL: "http://user:secret@app:port/"}, "the URL cannot be parsed"},
		{trigger.HTTPConfig{URL: "http://app/\nsecret"}, "the URL cannot be parsed"},
		{trigger.HTTPConfig{URL: "http://app/%se/cret"}, "the URL cannot be parsed"},
		{trigger.HTTPConfig{URL: "app.example:8080/secret"}, "the URL must begin with http:// or https://"},
		{trigger.HTTPConfig{URL: "/secret"}, "the URL must begin with http:// or https://"},
		{trigger.HTTPConfig{URL: "ftp://secret@app.example/"}, "the URL must begin with http:// or https://"},
		{trigger.HTTPConfig{URL: "http:secret"}, "the URL names no host"},
		{trigger.HTTPConfig{URL: "http://:8080/secret"}, "the URL names no host"},
		{trigger.HTTPConfig{URL: "http://müller.example/"}, "the host of the URL must be written in ASCII (xn--…)"},
		{trigger.HTTPConfig{URL: "http://app:0/"}, "the port of the URL is none of 1 to 65535"},
		{trigger.HTTPConfig{URL: "http://app:65536/"}, "the port of the URL is none of 1 to 65535"},
		{trigger.HTTPConfig{URL: "http://app:99999999999999999999/"}, "the port of the URL is none of 1 to 65535"},
		{trigger.HTTPConfig{URL: "http://app/?token=sec#ret"}, "the URL has a #, and what follows it is never sent: within a query it is written as %23"},

		{trigger.HTTPConfig{URL: url, Method: "GET /"}, "the method is not a word"},
		{trigger.HTTPConfig{URL: url, Method: "connect"}, "the method CONNECT is for proxies"},

		{trigger.HTTPConfig{URL: url, Headers: []string{"A: b", "secret"}}, `header 2 has no colon: expected is "Name: value"`},
		{trigger.HTTPConfig{URL: url, Headers: []string{": secret"}}, `the name of header 1 is not a word: expected is "Name: value"`},
		{trigger.HTTPConfig{URL: url, Headers: []string{"X Y: secret"}}, `the name of header 1 is not a word: expected is "Name: value"`},
		{trigger.HTTPConfig{URL: url, Headers: []string{"X-Ü: secret"}}, `the name of header 1 is not a word: expected is "Name: value"`},
		{trigger.HTTPConfig{URL: url, Headers: []string{"x-key: secret\r\nX-Other: secret"}}, "the value of the header X-Key holds a control character"},
		{trigger.HTTPConfig{URL: url, Headers: []string{"content-length: 3"}}, "the header Content-Length is the sidecar's own"},
		{trigger.HTTPConfig{URL: url, Headers: []string{"Transfer-Encoding: chunked"}}, "the header Transfer-Encoding is the sidecar's own"},
		{trigger.HTTPConfig{URL: url, Headers: []string{"Host: a", "host: b"}}, "the header Host must be there once, and hold host or host:port"},
		{trigger.HTTPConfig{URL: url, Headers: []string{"Host:"}}, "the header Host must be there once, and hold host or host:port"},
		{trigger.HTTPConfig{URL: url, Headers: []string{"Host: secret secret"}}, "the header Host must be there once, and hold host or host:port"},
		{trigger.HTTPConfig{URL: url, Headers: []string{"Host: app/secret"}}, "the header Host must be there once, and hold host or host:port"},
		{trigger.HTTPConfig{URL: "http://user:secret@app/", Headers: []string{"authorization: Bearer secret"}}, "the URL has a user, and there is a header Authorization: one of them is too much"},

		{trigger.HTTPConfig{URL: url, Status: 100}, "the expected status 100 is none of 200 to 599"},
		{trigger.HTTPConfig{URL: url, Status: -1}, "the expected status -1 is none of 200 to 599"},
		{trigger.HTTPConfig{URL: url, Status: 600}, "the expected status 600 is none of 200 to 599"},
		{trigger.HTTPConfig{URL: url, Timeout: -time.Second}, "the timeout -1s is negative"},

		{trigger.HTTPConfig{URL: https, CertFile: certFile}, "a certificate file and its key file must be given together"},
		{trigger.HTTPConfig{URL: https, KeyFile: keyFile}, "a certificate file and its key file must be given together"},
		{trigger.HTTPConfig{URL: https, CAFile: caFile, InsecureSkipVerify: true}, "a CA file has no effect where any certificate is taken: give one of the two"},
		{trigger.HTTPConfig{URL: url, CAFile: caFile}, "certificates have no effect on a URL with http: it must be https"},
		{trigger.HTTPConfig{URL: url, CertFile: certFile, KeyFile: keyFile}, "certificates have no effect on a URL with http: it must be https"},
		{trigger.HTTPConfig{URL: url, InsecureSkipVerify: true}, "certificates have no effect on a URL with http: it must be https"},
		{trigger.HTTPConfig{URL: https, CAFile: dir + "/missing\n"}, "CA file: open " + dir + `/missing\n: no such file or directory`},
		{trigger.HTTPConfig{URL: https, CAFile: fifo}, "CA file: open " + fifo + ": is a special file, not a file"},
		{trigger.HTTPConfig{URL: https, CAFile: empty}, "CA file: " + empty + ": no certificate in PEM form is in it"},
		{trigger.HTTPConfig{URL: https, CAFile: keyFile}, "CA file: " + keyFile + ": no certificate in PEM form is in it"},
		{trigger.HTTPConfig{URL: https, CertFile: dir, KeyFile: keyFile}, "certificate file: open " + dir + ": is a directory, not a file"},
		{trigger.HTTPConfig{URL: https, CertFile: certFile, KeyFile: dir + "/missing"}, "key file: open " + dir + "/missing: no such file or directory"},
		{trigger.HTTPConfig{URL: https, CertFile: certFile, KeyFile: otherKey}, "certificate file " + certFile + " with key file " + otherKey + ": tls: private key does not match public key"},
		{trigger.HTTPConfig{URL: https, CertFile: keyFile, KeyFile: certFile}, "certificate file " + keyFile + " with key file " + certFile + ": tls: "},

		{trigger.HTTPConfig{URL: "ftp://app", Method: "a b", Headers: []string{"x"}, Status: 1, Timeout: -1, CertFile: "x"},
			`the URL must begin with http:// or https://; the method is not a word; header 1 has no colon: expected is "Name: value"; ` +
				"the expected status 1 is none of 200 to 599; the timeout -1ns is negative; a certificate file and its key file must be given together"},
	} {
		_, err := trigger.NewHTTP(c.cfg)
		if err == nil || !strings.HasPrefix(err.Error(), c.says) {
			t.Errorf("%+v: %v, want %q", c.cfg, err, c.says)
			continue
		}
		if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: %q shows a secret or takes two lines", c.cfg, err)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	h := newHTTP(t, trigger.HTTPConfig{URL: "https://user:secret@App.example:8443/a%2Fb/c?secret", Method: "put"})
	if got, want := h.String(), "PUT https://App.example:8443/a%2Fb/c"; got != want {
		t.Errorf("String: %q, want %q", got, want)
	}
}
