package trigger

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// HTTPConfig says how an application's own shutdown endpoint is asked.
type HTTPConfig struct {
	URL     string   // http or https; user:password@ in it becomes a header of basic authentication
	Method  string   // POST if ""
	Headers []string // each "Name: value"; Host may be one
	Body    string   // none if ""
	Status  int      // expected, 200 to 599, even a redirect's; 0 = any 2xx

	// For https, PEM files. They are read again for each run.
	CAFile             string // authorities of the server; those of the system if ""
	CertFile, KeyFile  string // to show to the server; both or neither
	InsecureSkipVerify bool   // take any certificate from the server

	Timeout time.Duration // of one attempt, from the connection to the end of the answer; 10 s if 0
}

// NewHTTP checks a configuration and reads its files. The error names
// everything that is wrong, in one line for people, without what may be secret.
func NewHTTP(cfg HTTPConfig) (*HTTP, error) {
	h := &HTTP{
		body: cfg.Body, status: cfg.Status, timeout: cfg.Timeout,
		dial: new(net.Dialer).DialContext,
	}
	if h.timeout == 0 {
		h.timeout = defaultTimeout
	}
	var wrongs []string
	check := func(err error) {
		if err != nil {
			wrongs = append(wrongs, err.Error())
		}
	}
	check(h.setURL(cfg.URL))
	check(h.setMethod(cfg.Method))
	check(h.setHeaders(cfg.Headers))
	if cfg.Status != 0 && (cfg.Status < 200 || cfg.Status > 599) {
		check(fmt.Errorf("the expected status %d is none of 200 to 599", cfg.Status))
	}
	if cfg.Timeout < 0 {
		check(fmt.Errorf("the timeout %v is negative", cfg.Timeout))
	}
	check(h.setTLS(cfg))
	if len(wrongs) > 0 {
		return nil, errors.New(strings.Join(wrongs, "; "))
	}
	return h, nil
}

func (h *HTTP) setURL(text string) error {
	if text == "" {
		return errors.New("no URL is given")
	}
	u, err := url.Parse(text)
	if err != nil {
		// The error of the parser quotes the URL, with a password in it.
		return errors.New("the URL cannot be parsed: expected is http://host:port/path, and what is special in its parts written as %XX")
	}
	port := u.Port()
	switch n, err := strconv.Atoi(port); {
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("the URL must begin with http:// or https://")
	case u.Hostname() == "":
		return errors.New("the URL names no host")
	case strings.ContainsFunc(u.Host, func(r rune) bool { return r > unicode.MaxASCII }):
		return errors.New("the host of the URL must be written in ASCII (xn--…)")
	case port != "" && (err != nil || n < 1 || n > 65535):
		return errors.New("the port of the URL is none of 1 to 65535")
	case strings.Contains(text, "#"):
		return errors.New("the URL has a #, and what follows it is never sent: within a query it is written as %23")
	}
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	h.url, h.host, h.address = u, u.Host, net.JoinHostPort(u.Hostname(), port)
	h.target = (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
	return nil
}

func (h *HTTP) setMethod(method string) error {
	h.method = strings.ToUpper(method)
	switch {
	case method == "":
		h.method = http.MethodPost
	case !isToken(method):
		return errors.New("the method is not a word")
	case h.method == http.MethodConnect:
		return errors.New("the method CONNECT is for proxies")
	}
	return nil
}

// ownHeaders are the headers that follow from the way in which a request is sent.
var ownHeaders = map[string]bool{
	"Connection": true, "Content-Length": true, "Expect": true, "Keep-Alive": true, "Proxy-Connection": true,
	"Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
}

func (h *HTTP) setHeaders(headers []string) error {
	h.header = http.Header{}
	for i, text := range headers {
		name, value, ok := strings.Cut(text, ":")
		value = strings.Trim(value, " \t")
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !ok:
			return fmt.Errorf("header %d has no colon: expected is \"Name: value\"", i+1)
		case !isToken(name):
			return fmt.Errorf("the name of header %d is not a word: expected is \"Name: value\"", i+1)
		case ownHeaders[canonical]:
			return fmt.Errorf("the header %s is the sidecar's own", canonical)
		case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
			return fmt.Errorf("the value of the header %s holds a control character", canonical)
		case canonical == "Host" && (!isHost(value) || h.header.Get("Host") != ""):
			return errors.New("the header Host must be there once, and hold host or host:port")
		}
		h.header.Add(canonical, value)
	}
	if host := h.header.Get("Host"); host != "" {
		h.host = host // which is written in its place
	}
	if h.header.Get("User-Agent") == "" {
		h.header.Set("User-Agent", "streams-sidecar")
	}
	if h.url == nil || h.url.User == nil {
		return nil
	}
	if h.header.Get("Authorization") != "" {
		return errors.New("the URL has a user, and there is a header Authorization: one of them is too much")
	}
	password, _ := h.url.User.Password()
	auth := http.Request{Header: h.header}
	auth.SetBasicAuth(h.url.User.Username(), password)
	return nil
}

func (h *HTTP) setTLS(cfg HTTPConfig) error {
	switch {
	case (cfg.CertFile == "") != (cfg.KeyFile == ""):
		return errors.New("a certificate file and its key file must be given together")
	case cfg.CAFile != "" && cfg.InsecureSkipVerify:
		return errors.New("a CA file has no effect where any certificate is taken: give one of the two")
	case h.url == nil:
		return nil
	case h.url.Scheme == "http" && (cfg.CAFile != "" || cfg.CertFile != "" || cfg.InsecureSkipVerify):
		return errors.New("certificates have no effect on a URL with http: it must be https")
	case h.url.Scheme == "http":
		return nil
	}
	h.tls = &tlsFiles{
		ca: cfg.CAFile, cert: cfg.CertFile, key: cfg.KeyFile, insecure: cfg.InsecureSkipVerify,
		server: h.url.Hostname(), files: newFiles(),
	}
	_, err := h.tls.reload()
	return err
}

// isHost says whether a text is host or host:port: what else is in it would be
// cut off when the request is written.
func isHost(text string) bool {
	u, err := url.Parse("//" + text)
	return err == nil && text != "" && u.Host == text
}

// isToken says whether a text is a token of RFC 9110, section 5.6.2, as names
// of methods and headers are.
func isToken(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}
