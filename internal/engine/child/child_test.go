package child_test

import (
	"io"
	"strings"
	"testing"

	"streams-sidecar/internal/engine/child"
	"streams-sidecar/internal/engine/wire"
)

// serve runs Serve with an end of two pipes, and gives its result when done.
func serve(t *testing.T, answer func(*wire.Request) wire.Answer) (in *io.PipeWriter, out io.Reader, done <-chan error) {
	t.Helper()
	theirs, in := io.Pipe()
	out, to := io.Pipe()
	result := make(chan error, 1)
	go func() { result <- child.Serve(theirs, to, wire.Hello{RocksDB: "10.10.1"}, answer) }()
	var hello wire.Hello
	if err := wire.Read(out, &hello, wire.MaxReply); err != nil || hello.Protocol != wire.Protocol || hello.RocksDB != "10.10.1" {
		t.Fatalf("%+v, %v", hello, err)
	}
	return in, out, result
}

func write(t *testing.T, in io.Writer, id uint64) {
	t.Helper()
	if err := wire.Write(in, &wire.Request{ID: id, Path: []byte("/x")}, wire.MaxRequest); err != nil {
		t.Fatal(err)
	}
}

func TestServe(t *testing.T) {
	t.Parallel()
	in, out, done := serve(t, func(r *wire.Request) wire.Answer { return wire.Answer{LastSequence: r.ID * 10} })
	for id := range uint64(5) {
		write(t, in, id)
		var r wire.Reply
		if err := wire.Read(out, &r, wire.MaxReply); err != nil || r.ID != id || r.Answer.LastSequence != id*10 {
			t.Errorf("%+v, %v", r, err)
		}
	}
	_ = in.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestServeEnds: with its input, even in the middle of an answer that never
// comes, and at anything that is no request.
func TestServeEnds(t *testing.T) {
	t.Parallel()
	never := make(chan struct{})
	t.Cleanup(func() { close(never) })
	ask := func(in io.Writer, id uint64) {
		_ = wire.Write(in, &wire.Request{ID: id, Path: []byte("/x")}, wire.MaxRequest)
	}
	hang := func(*wire.Request) wire.Answer { <-never; return wire.Answer{} }
	for _, c := range []struct {
		name string
		send func(*io.PipeWriter)
		says string // "" for no error
	}{
		{"input ends", func(in *io.PipeWriter) { _ = in.Close() }, ""},
		{"input ends while it answers", func(in *io.PipeWriter) { ask(in, 1); _ = in.Close() }, ""},
		{"input ends within a request", func(in *io.PipeWriter) { _, _ = in.Write([]byte{0, 0, 0, 9, '{'}); _ = in.Close() }, "read message"},
		{"no request", func(in *io.PipeWriter) { _, _ = in.Write([]byte("status\n")) }, "too large"},
		{"asked while it answers", func(in *io.PipeWriter) {
			for id := range uint64(3) { // the first is being answered, the second may wait
				ask(in, id)
			}
		}, "asked twice"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			in, _, done := serve(t, hang)
			t.Cleanup(func() { _ = in.Close() })
			go c.send(in) // it may not read all of it
			if err := <-done; (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
}
