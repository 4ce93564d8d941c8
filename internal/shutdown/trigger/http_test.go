package trigger_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"streams-sidecar/internal/shutdown/trigger"
)

// The tests of this file run on synctest's clock against servers on pipes:
// times are exact, and a goroutine that does not end fails the test.

const timeout = 7 * time.Second

// secretive is a configuration full of what nothing may show.
var secretive = trigger.HTTPConfig{
	URL:     "http://user-secret:pass-secret@app.example/close%20it?token=query-secret",
	Headers: []string{"X-Key: header-secret", "Host: host-secret"},
	Body:    "body-secret",
	Timeout: timeout,
}

const shown = "POST http://app.example/close%20it"

func showsSecret(text string) bool {
	auth := base64.StdEncoding.EncodeToString([]byte("user-secret:pass-secret"))
	return strings.Contains(text, "secret") || strings.Contains(text, auth)
}

// server serves one connection.
type server func(c net.Conn)

// reads takes a request, and closes the connection afterwards.
func reads(then server) server {
	return func(c net.Conn) {
		defer func() { _ = c.Close() }()
		req, err := http.ReadRequest(bufio.NewReader(c))
		if err == nil {
			_, err = io.Copy(io.Discard, req.Body)
		}
		if err == nil {
			then(c)
		}
	}
}

// says answers with some text, and holds the connection until the client closes.
func says(text string) server {
	return reads(func(c net.Conn) {
		_, _ = io.WriteString(c, text)
		_, _ = io.Copy(io.Discard, c)
	})
}

// floods answers with some text and then with another one without end.
func floods(text, more string) server {
	return reads(func(c net.Conn) {
		_, err := io.WriteString(c, text)
		for err == nil {
			_, err = io.WriteString(c, more)
		}
	})
}

func closes(net.Conn) {}

// readsNothing blocks in a pipe until the client closes, since that one writes first.
func readsNothing(c net.Conn) { _, _ = c.Write([]byte{0}) }

func newHTTP(t *testing.T, cfg trigger.HTTPConfig) *trigger.HTTP {
	t.Helper()
	h, err := trigger.NewHTTP(cfg)
	must(t, err)
	return h
}

// serve lets each attempt meet the next server, the last one again and again.
func serve(h *trigger.HTTP, servers ...server) {
	h.Dial(func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go servers[0](theirs)
		if len(servers) > 1 {
			servers = servers[1:]
		}
		return ours, nil
	})
}

func never() bool  { return false }
func always() bool { return true }

// TestAttempt is about one attempt: how it ends, and when.
func TestAttempt(t *testing.T) {
	t.Parallel()
	const head = "HTTP/1.1 200 OK\r\n"
	for _, c := range []struct {
		name   string
		status int
		server server
		says   string        // the end of the error, "" if it is taken
		after  time.Duration // when the outcome is known
		done   time.Duration // when the attempt ends
	}{
		{"taken", 0, says(head + "Content-Length: 2\r\n\r\nok"), "", 0, 0},
		{"taken without a body", 0, says("HTTP/1.1 204 No Content\r\n\r\n"), "", 0, 0},
		{"taken by HTTP/1.0", 0, reads(func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\nok") }), "", 0, 0},
		{"taken after interim answers", 0, says("HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + head + "Content-Length: 0\r\n\r\n"), "", 0, 0},
		{"taken, and the connection breaks in the body", 0, reads(func(c net.Conn) { _, _ = io.WriteString(c, head+"Content-Length: 100\r\n\r\nclosing") }), "", 0, 0},
		{"taken, and the body never ends", 0, floods(head+"\r\n", "closing…"), "", 0, 0},
		{"taken, and the chunked body never ends", 0, floods(head+"Transfer-Encoding: chunked\r\n\r\n", "4\r\nmore\r\n"), "", 0, 0},
		{"taken, and the body hangs", 0, says(head + "Content-Length: 100\r\n\r\nclosing"), "", 0, timeout},
		{"the status that is expected", 302, says("HTTP/1.1 302 Found\r\nLocation: /bye\r\nContent-Length: 0\r\n\r\n"), "", 0, 0},

		{"another status than expected", 202, says(head + "Content-Length: 0\r\n\r\n"), "the answer is 200 OK, expected is 202", 0, 0},
		{"500", 0, says("HTTP/1.1 500 Oh query-secret\r\nContent-Length: 0\r\n\r\n"), "the answer is 500 Internal Server Error, expected is 2xx", 0, 0},
		{"500, and the body never ends", 0, floods("HTTP/1.1 500 Oh\r\nTransfer-Encoding: chunked\r\n\r\n", "4\r\nmore\r\n"), "the answer is 500 Internal Server Error, expected is 2xx", 0, 0},
		{"500, and the body hangs", 0, says("HTTP/1.1 500 Oh\r\nContent-Length: 9\r\n\r\n"), "the answer is 500 Internal Server Error, expected is 2xx", 0, 0},
		{"a status of nobody", 0, says("HTTP/1.1 799 body-secret\r\nContent-Length: 0\r\n\r\n"), "the answer is 799, expected is 2xx", 0, 0},
		{"not modified", 0, says("HTTP/1.1 304 Not Modified\r\n\r\n"), "the answer is 304 Not Modified, expected is 2xx", 0, 0},
		{"another protocol", 0, says("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"), "the answer is 101 Switching Protocols, expected is 2xx", 0, 0},
		{"refused before the request was read", 0, func(c net.Conn) {
			_, _ = c.Read(make([]byte, 1))
			go func() { _, _ = io.Copy(io.Discard, c) }()
			_, _ = io.WriteString(c, "HTTP/1.1 413 Too large\r\nContent-Length: 0\r\n\r\n")
			_ = c.Close()
		}, "the answer is 413 Request Entity Too Large, expected is 2xx", 0, 0},

		{"redirect to a page to log in", 0, says("HTTP/1.1 302 Found\r\nLocation: /login?next=query-secret\r\n\r\n"), "the answer is 302 Found, a redirect to another path, and none is followed: the URL must be that of the endpoint itself", 0, 0},
		{"redirect to https", 0, says("HTTP/1.1 308 Permanent Redirect\r\nLocation: https://app.example/close%20it\r\n\r\n"), "a redirect to https, and none is followed: the URL must be that of the endpoint itself", 0, 0},
		{"redirect to another host", 0, says("HTTP/1.1 301 Moved\r\nLocation: //header-secret.example/\r\n\r\n"), "a redirect to another host, and none is followed: the URL must be that of the endpoint itself", 0, 0},
		{"redirect to another port", 0, says("HTTP/1.1 307 Moved\r\nLocation: http://app.example:8080/\r\n\r\n"), "a redirect to another port, and none is followed: the URL must be that of the endpoint itself", 0, 0},
		{"redirect to another scheme", 0, says("HTTP/1.1 307 Moved\r\nLocation: body-secret://app.example/\r\n\r\n"), "a redirect to another scheme, and none is followed: the URL must be that of the endpoint itself", 0, 0},
		{"redirect in a circle", 0, says("HTTP/1.1 307 Moved\r\nLocation: http://app.example/close%20it\r\n\r\n"), "a redirect to the same path, and none is followed: the URL must be that of the endpoint itself", 0, 0},
		{"redirect to nonsense", 0, says("HTTP/1.1 307 Moved\r\nLocation: http://[query-secret\r\n\r\n"), "a redirect to what is no URL, and none is followed: the URL must be that of the endpoint itself", 0, 0},

		{"closed at once", 0, reads(closes), "the connection was closed before the answer", 0, 0},
		{"closed in the status line", 0, reads(func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 20") }), "(does the port speak https, or HTTP/2 only?)", 0, 0},
		{"closed in the header", 0, reads(func(c net.Conn) { _, _ = io.WriteString(c, head+"Content-Le") }), "(does the port speak https, or HTTP/2 only?)", 0, 0},
		{"no HTTP", 0, says("220 mail.example ESMTP\r\n"), "what came is no HTTP/1.1 answer (does the port speak https, or HTTP/2 only?)", 0, 0},
		{"the request comes back", 0, func(c net.Conn) { _, _ = io.CopyBuffer(c, struct{ io.Reader }{c}, make([]byte, 1<<20)) }, "(does the port speak https, or HTTP/2 only?)", 0, 0},
		{"a header that is none", 0, says(head + "header-secret\r\n\r\n"), "(does the port speak https, or HTTP/2 only?)", 0, 0},
		{"bytes", 0, floods("\x15\x03\x01\x00\x02\x02\x46", strings.Repeat("\x00\xff", 500)), "the answer's header is larger than 64 KiB", 0, 0},
		{"a header without end", 0, floods(head, strings.Repeat("X-More: body-secret\r\n", 50)), "the answer's header is larger than 64 KiB", 0, 0},
		{"interim answers without end", 0, floods("", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 50)), "the answer's header is larger than 64 KiB", 0, 0},

		{"nothing is read", 0, readsNothing, "no answer within 7s", timeout, timeout},
		{"no answer", 0, says(""), "no answer within 7s", timeout, timeout},
		{"a slow header", 0, reads(func(c net.Conn) {
			var err error
			for i := 0; err == nil; i++ {
				time.Sleep(time.Second)
				_, err = io.WriteString(c, (head + strings.Repeat("X: y\r\n", 10))[i:i+1])
			}
		}), "no answer within 7s", timeout, timeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cfg := secretive
				cfg.Status = c.status
				h := newHTTP(t, cfg)
				serve(h, c.server)
				begun := time.Now()
				r := h.Start(t.Context(), always)
				time.Sleep(c.after)
				synctest.Wait()
				got := r.Report()
				if c.says == "" {
					if diff := cmp.Diff(trigger.Report{Attempts: 1, Taken: true}, got); diff != "" {
						t.Errorf("(-want +got):\n%s", diff)
					}
				} else if got.Taken || !strings.HasPrefix(got.Err, shown+": ") || !strings.HasSuffix(got.Err, c.says) {
					t.Errorf("got %+v, want %q", got, c.says)
				}
				if showsSecret(got.Err) {
					t.Errorf("it shows a secret: %s", got.Err)
				}
				<-r.Done()
				took := time.Since(begun)
				if c.says != "" { // and then one pause, after which it is asked whether it is closing
					took -= 200 * time.Millisecond
					if took < c.done-40*time.Millisecond || took > c.done+40*time.Millisecond {
						t.Errorf("done after %v, want %v", took, c.done)
					}
					got.Closing = true
				} else if took != c.done {
					t.Errorf("done after %v, want %v", took, c.done)
				}
				if diff := cmp.Diff(got, r.Report()); diff != "" {
					t.Errorf("at the end (-before +then):\n%s", diff)
				}
				time.Sleep(time.Second) // until the slow server notices
			})
		})
	}
}

func TestLittleOfTheBodyIsRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHTTP(t, secretive)
		sent := 0
		serve(h, reads(func(c net.Conn) {
			var err error
			for more := "HTTP/1.1 200 OK\r\n\r\n"; err == nil; more = "closing…" {
				_, err = io.WriteString(c, more)
				sent += len(more)
			}
		}))
		r := h.Start(t.Context(), never)
		<-r.Done()
		synctest.Wait()
		if !r.Report().Taken || sent < 4<<10 || sent > 9<<10 { // up to a buffer more
			t.Errorf("%d bytes were read (%+v)", sent, r.Report())
		}
	})
}

// TestAttemptWithoutConnection: the same for what comes before the request.
func TestAttemptWithoutConnection(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, url string
		dial      func(ctx context.Context, network, address string) (net.Conn, error)
		says      string
		after     time.Duration
	}{
		{"refused", "http://app.example:81/", func(_ context.Context, network, address string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: network, Err: fmt.Errorf("%s: %w", address, syscall.ECONNREFUSED)}
		}, "dial tcp: app.example:81: connection refused", 0},
		{"the standard port", "https://[::1]/", func(_ context.Context, network, address string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New(address)}
		}, "dial tcp: [::1]:443", 0},
		{"nobody answers", "http://app.example/", func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, "no connection within 7s", timeout},
		{"nobody answers, and the dialler is ahead of its deadline", "http://app.example/", func(ctx context.Context, _, _ string) (net.Conn, error) {
			time.Sleep(timeout - 1)
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: context.DeadlineExceeded}
		}, "no connection within 7s", timeout - 1},
		{"TLS that hangs", "https://app.example/", pipe(func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }), "no TLS connection within 7s", timeout},
		{"TLS that is http", "https://app.example/", pipe(func(c net.Conn) {
			_, _ = c.Read(make([]byte, 1<<16))
			_, _ = io.WriteString(c, "HTTP/1.0 400 Bad Request\r\n\r\n")
			_, _ = io.Copy(io.Discard, c)
		}), "the server speaks http, not https", 0},
		{"TLS that is closed", "https://app.example/", pipe(func(c net.Conn) {
			_, _ = c.Read(make([]byte, 1<<16))
			_ = c.Close()
		}), "the connection was closed before the answer", 0},
		{"TLS that is nonsense", "https://app.example/", pipe(func(c net.Conn) {
			_, _ = c.Read(make([]byte, 1<<16))
			_, _ = io.WriteString(c, "220 mail.example ESMTP\r\n")
			_, _ = io.Copy(io.Discard, c)
		}), "tls: first record does not look like a TLS handshake", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := newHTTP(t, trigger.HTTPConfig{URL: c.url, Timeout: timeout})
				h.Dial(c.dial)
				r := h.Start(t.Context(), always)
				time.Sleep(c.after)
				synctest.Wait()
				if got := r.Report(); got.Attempts != 1 || got.Taken || got.Err != "POST "+c.url+": "+c.says {
					t.Errorf("got %+v, want %q", got, c.says)
				}
				<-r.Done()
			})
		})
	}
}

func pipe(s server) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go s(theirs)
		return ours, nil
	}
}

func TestTheNetworksErrorIsClipped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHTTP(t, trigger.HTTPConfig{URL: "http://app.example/"})
		h.Dial(func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: errors.New("a\nb" + strings.Repeat("ü", 1000))}
		})
		r := h.Start(t.Context(), always)
		<-r.Done()
		got := r.Report().Err
		if len(got) > 512 || len(got) < 500 || !strings.Contains(got, `a\nbüü`) || !strings.HasSuffix(got, "ü…") {
			t.Errorf("%d bytes: %q", len(got), got)
		}
	})
}

// TestPauses: from 0.2 s, twice as long each time, up to 5 s, each a little
// different; until the context ends, and then at once.
func TestPauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHTTP(t, trigger.HTTPConfig{URL: "http://app.example/"})
		var times []time.Time
		h.Dial(func(context.Context, string, string) (net.Conn, error) {
			times = append(times, time.Now())
			return nil, syscall.ECONNREFUSED
		})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		begun := time.Now()
		r := h.Start(ctx, never)
		<-r.Done()
		if took := time.Since(begun); took != 2*time.Minute {
			t.Errorf("it ended after %v", took)
		}
		if got := r.Report(); got.Attempts != len(times) || got.Taken || got.Closing || got.Err != "POST http://app.example/: connection refused" {
			t.Errorf("after %d attempts: %+v", len(times), got)
		}
		exact := 0
		for i := 1; i < len(times); i++ {
			got, want := times[i].Sub(times[i-1]).Seconds(), min(0.2*math.Pow(2, float64(i-1)), 5)
			if got < 0.79*want || got > 1.21*want {
				t.Errorf("pause %d is %v s, want about %v", i, got, want)
			}
			if math.Abs(got-want) < 1e-9 {
				exact++
			}
		}
		if len(times) < 20 || exact == len(times)-1 {
			t.Errorf("%d attempts, %d pauses without any chance in them", len(times), exact)
		}
	})
}

func TestAskedUntilTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHTTP(t, secretive)
		fails := says("HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n")
		serve(h, fails, says(""), reads(closes), says("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"), fails)
		asked := 0
		r := h.Start(t.Context(), func() bool { asked++; return false })
		var texts []string
		for last := ""; ; time.Sleep(time.Millisecond) {
			if got := r.Report(); got.Err != last {
				last = got.Err
				texts = append(texts, fmt.Sprint(got.Attempts, last[min(len(shown), len(last)):]))
			}
			select {
			case <-r.Done():
			default:
				continue
			}
			break
		}
		want := []string{
			"1: the answer is 500 Internal Server Error, expected is 2xx",
			"2: no answer within 7s",
			"3: the connection was closed before the answer",
			"4",
		}
		if diff := cmp.Diff(want, texts); diff != "" {
			t.Errorf("said (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(trigger.Report{Attempts: 4, Taken: true}, r.Report()); diff != "" || asked != 3 {
			t.Errorf("asked %d times whether it is closing (-want +got):\n%s", asked, diff)
		}
	})
}

// TestNoFurtherAttemptOnceClosing: an endpoint that closes before it answers
// does not answer in time; by then the stores are being closed.
func TestNoFurtherAttemptOnceClosing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHTTP(t, secretive)
		serve(h, says(""))
		begun := time.Now()
		r := h.Start(t.Context(), func() bool { return time.Since(begun) > 10*time.Second })
		<-r.Done()
		want := trigger.Report{Attempts: 2, Closing: true, Err: shown + ": no answer within 7s"}
		if diff := cmp.Diff(want, r.Report()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestEndsWithItsContext: wherever it is, and without an error for that.
func TestEndsWithItsContext(t *testing.T) {
	t.Parallel()
	hangs := func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for _, c := range []struct {
		name, url string
		dial      func(context.Context, string, string) (net.Conn, error)
		want      trigger.Report
	}{
		{"while it connects", "http://app.example/", hangs, trigger.Report{Attempts: 1}},
		{"while it shakes hands", "https://app.example/", pipe(func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }), trigger.Report{Attempts: 1}},
		{"while it writes", "http://app.example/", pipe(readsNothing), trigger.Report{Attempts: 1}},
		{"while it waits for the answer", "http://app.example/", pipe(says("")), trigger.Report{Attempts: 1}},
		{"while it reads the rest", "http://app.example/", pipe(says("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")), trigger.Report{Attempts: 1, Taken: true}},
		{"in a pause", "http://app.example/", func(context.Context, string, string) (net.Conn, error) { return nil, syscall.ECONNREFUSED },
			trigger.Report{Attempts: 4, Err: "POST http://app.example/: connection refused"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := newHTTP(t, trigger.HTTPConfig{URL: c.url})
				h.Dial(c.dial)
				ctx, cancel := context.WithCancel(t.Context())
				r := h.Start(ctx, never)
				time.Sleep(2 * time.Second) // the pauses end at 0.2, 0.6, 1.4 and 3 s, each a fifth earlier or later
				cancel()
				begun := time.Now()
				<-r.Done()
				if took := time.Since(begun); took != 0 {
					t.Errorf("it went on for %v", took)
				}
				if diff := cmp.Diff(c.want, r.Report()); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		h := newHTTP(t, trigger.HTTPConfig{URL: "http://app.example/"})
		h.Dial(hangs)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r := h.Start(ctx, never)
		<-r.Done()
		if diff := cmp.Diff(trigger.Report{}, r.Report()); diff != "" {
			t.Errorf("of a context that has ended (-want +got):\n%s", diff)
		}
	})
}

// TestDefaultTimeout is about one attempt, of ten seconds.
func TestDefaultTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHTTP(t, trigger.HTTPConfig{URL: "http://app.example/"})
		serve(h, says(""))
		begun := time.Now()
		r := h.Start(t.Context(), always)
		<-r.Done()
		if took := time.Since(begun); took < 10*time.Second || took > 11*time.Second {
			t.Errorf("one attempt took %v", took)
		}
	})
}
