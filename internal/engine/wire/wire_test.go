package wire_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"streams-sidecar/internal/engine/wire"
)

func frame(n uint32, text string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, n), text...)
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	one := uint64(1)
	want := wire.Reply{ID: 7, Answer: wire.Answer{LastSequence: 1 << 56, Families: []wire.Family{{
		Name: []byte("\xff\x00"), Files: []wire.Table{{Number: 10, Level: 6, Size: 1 << 40, SmallestSeq: 1, LargestSeq: 2}},
		Properties: map[string]uint64{"estimate-num-keys": 1<<64 - 1}, Entries: &one, Stats: "** Compaction Stats [default] **\n"}},
		Offsets: []wire.KeyValue{{Key: []byte("a-0"), Value: []byte{0, 0xff}}}}}
	var b bytes.Buffer
	if err := wire.Write(&b, &want, wire.MaxReply); err != nil {
		t.Fatal(err)
	}
	if err := wire.Write(&b, &wire.Reply{ID: 8}, wire.MaxReply); err != nil {
		t.Fatal(err)
	}
	r := iotest.OneByteReader(&b)
	var got, next wire.Reply
	if err := errors.Join(wire.Read(r, &got, wire.MaxReply), wire.Read(r, &next, wire.MaxReply)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" || next.ID != 8 {
		t.Errorf("%d, (-want +got):\n%s", next.ID, diff)
	}
	if err := wire.Read(r, &next, wire.MaxReply); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := wire.Write(&b, &wire.Answer{Error: strings.Repeat("x", 100)}, 99); !errors.Is(err, wire.ErrTooLarge) || b.Len() > 0 {
		t.Errorf("wrote %d bytes, %v", b.Len(), err)
	}
	for name, in := range map[string][]byte{
		"too large":         frame(1<<31, "{}"),
		"one byte too many": frame(101, strings.Repeat(" ", 101)),
		"cut length":        {0, 0},
		"cut":               frame(10, "{}"),
		"no JSON":           frame(2, "{{"),
		"more than JSON":    frame(4, "{}{}"),
		"empty":             frame(0, ""),
		"another type":      frame(2, "[]"),
	} {
		var a wire.Answer
		if err := wire.Read(bytes.NewReader(in), &a, 100); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzRead: whatever a child writes is a message or an error, and costs no more
// than what it has really written.
func FuzzRead(f *testing.F) {
	f.Add(frame(2, "{}"))
	f.Add(frame(wire.MaxReply, "{"))
	f.Add(frame(30, `{"id":1,"answer":{"error":"x"}}`))
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, in []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var r wire.Reply
		err := wire.Read(bytes.NewReader(in), &r, wire.MaxReply)
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20+200*uint64(len(in)) {
			t.Errorf("%d bytes allocated for %d", got, len(in))
		}
		if err == nil {
			var b bytes.Buffer
			if err := wire.Write(&b, &r, 1<<30); err != nil {
				t.Errorf("cannot be written again: %v", err)
			}
		}
	})
}
