package server

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"streams-sidecar/internal/probe"
)

// TestRenderedOnce: however many ask, a picture is rendered once, and never an
// older one after a newer one.
func TestRenderedOnce(t *testing.T) {
	t.Parallel()
	var r rendered
	made := 0
	form := func(w io.Writer, s *probe.Snapshot) error {
		made++
		_, err := io.WriteString(w, strings.Repeat("x", int(s.Seq)))
		return err
	}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if b, err := r.of(&probe.Snapshot{Seq: 1}, form); err != nil || string(b) != "x" {
				t.Errorf("%q %v", b, err)
			}
		})
	}
	wg.Wait()
	if made != 1 {
		t.Errorf("made %d times, want once", made)
	}
	for _, c := range []struct {
		seq  uint64
		want string
		made int
	}{{3, "xxx", 2}, {3, "xxx", 2}, {2, "xxx", 2}, {4, "xxxx", 3}} {
		if b, err := r.of(&probe.Snapshot{Seq: c.seq}, form); err != nil || string(b) != c.want || made != c.made {
			t.Errorf("picture %d: %q %v, made %d times", c.seq, b, err, made)
		}
	}
	broken := errors.New("broken")
	if _, err := r.of(&probe.Snapshot{Seq: 5}, func(io.Writer, *probe.Snapshot) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
	if b, err := r.of(&probe.Snapshot{Seq: 5}, form); err != nil || string(b) != "xxxxx" {
		t.Errorf("after a failure: %q %v", b, err)
	}
}

// TestAtMost: the one too many waits for its turn, and is told when it does not
// come.
func TestAtMost(t *testing.T) {
	t.Parallel()
	inside, leave := make(chan bool, 3), make(chan bool)
	handler := func(wait time.Duration) http.Handler {
		return atMost(2, wait, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })(
			http.HandlerFunc(func(http.ResponseWriter, *http.Request) { inside <- true; <-leave }))
	}
	ask := func(h http.Handler) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		return w
	}
	var wg sync.WaitGroup
	short := handler(10 * time.Millisecond)
	wg.Go(func() { ask(short) })
	wg.Go(func() { ask(short) })
	<-inside
	<-inside
	if w := ask(short); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("the third: %d %v", w.Code, w.Header())
	}
	leave <- true
	leave <- true
	wg.Wait()
	long := handler(time.Hour)
	for range 3 {
		wg.Go(func() {
			if w := ask(long); w.Code != http.StatusOK {
				t.Errorf("one that waited: %d", w.Code)
			}
		})
	}
	for range 3 {
		leave <- true
	}
	wg.Wait()
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func dial(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestLimit: a full listener takes the next connection when one has ended, and
// can be closed while it is full.
func TestLimit(t *testing.T) {
	t.Parallel()
	l := limit(listen(t), 2)
	accepted := make(chan net.Conn)
	ended := make(chan error, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				ended <- err
				return
			}
			accepted <- c
		}
	}()
	for range 3 {
		dial(t, l)
	}
	first := <-accepted
	<-accepted
	select {
	case <-accepted:
		t.Fatal("a third connection was taken")
	case <-time.After(50 * time.Millisecond):
	}
	for range 2 { // closing twice gives one place
		_ = first.Close()
	}
	<-accepted
	dial(t, l)
	select {
	case <-accepted:
		t.Fatal("a third connection was taken after one had ended")
	case <-time.After(50 * time.Millisecond):
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v, want %v", err, net.ErrClosed)
	}
}

// TestAnswerWithin: a reader that stops reading is cut off, and one that takes
// its time before the first byte is not.
func TestAnswerWithin(t *testing.T) {
	t.Parallel()
	const within = 100 * time.Millisecond
	wrote := make(chan error, 1)
	slow := make(chan bool)
	srv := httptest.NewServer(answerWithin(within)(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/wait" {
			<-slow
			writeText(w, http.StatusOK, "at last\n")
			return
		}
		var err error
		for block := make([]byte, 1<<20); err == nil; {
			_, err = w.Write(block)
		}
		wrote <- err
	})))
	defer srv.Close()
	c := dial(t, srv.Listener)
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-wrote:
		if ne, ok := errors.AsType[net.Error](err); !ok || !ne.Timeout() {
			t.Errorf("writing ended with %v, want a timeout", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("an answer that nobody reads is still being written")
	}
	time.AfterFunc(3*within, func() { close(slow) })
	// A body that never comes does not keep the answer.
	c = dial(t, srv.Listener)
	if _, err := io.WriteString(c, "GET /wait HTTP/1.1\r\nHost: x\r\nContent-Length: 7\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if text := string(got); err != nil || !strings.HasPrefix(text, "HTTP/1.1 200 OK\r\n") || !strings.HasSuffix(text, "at last\n") ||
		!strings.Contains(text, "Connection: close\r\n") {
		t.Errorf("%q %v", text, err)
	}
}
