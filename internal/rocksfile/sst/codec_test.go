package sst

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// pack compresses as RocksDB does, from format_version 2 on. What RocksDB's own
// bytes mean is tested with tables that it wrote; this is for sizes that those
// do not have.
func pack(t testing.TB, kind byte, contents []byte) []byte {
	t.Helper()
	sized := binary.AppendUvarint(nil, uint64(len(contents)))
	switch kind {
	case snappyType:
		return snappy.Encode(nil, contents)
	case zlibType:
		var b bytes.Buffer
		b.Write(sized)
		w, err := flate.NewWriter(&b, 6)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(contents); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	case lz4Type:
		out := make([]byte, lz4.CompressBlockBound(len(contents)))
		var c lz4.Compressor
		n, err := c.CompressBlock(contents, out)
		if err != nil {
			t.Fatal(err)
		}
		return append(sized, out[:n]...)
	case zstdType:
		w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		return w.EncodeAll(contents, sized)
	}
	t.Fatalf("type %d", kind)
	return nil
}

func TestDecompressedSizeIsBounded(t *testing.T) {
	cut := func(block []byte) []byte { // without its size
		_, n := binary.Uvarint(block)
		return block[n:]
	}
	claim := func(size uint64, block []byte) []byte { return append(binary.AppendUvarint(nil, size), cut(block)...) }
	// allocated by f, bytes.
	allocated := func(f func()) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	refused := func(c *codec, kind byte, block []byte, version uint32, want Kind) {
		t.Helper()
		e, ok := errors.AsType[*complaint](second(c.decompress(kind, block, version, false)))
		if !ok || e.kind != want {
			t.Errorf("%s: %v, want %v", compressionType(kind), e, want)
		}
	}
	large := make([]byte, 2<<20)
	for _, kind := range []byte{snappyType, zlibType, lz4Type, zstdType} {
		var c codec
		block := pack(t, kind, large)
		tooMuch, most, lie := claim(maxBlock+1, block), claim(math.MaxUint32, block), claim(1000, block)
		if n := allocated(func() {
			refused(&c, kind, tooMuch, 5, TooLarge)
			refused(&c, kind, most, 5, TooLarge)
		}); n > 1<<20 {
			t.Errorf("%s: %d bytes allocated for what is too large", compressionType(kind), n)
		}
		if n := allocated(func() { refused(&c, kind, lie, 5, Malformed) }); n > 1<<20 {
			t.Errorf("%s: %d bytes allocated for a claim of 1000", compressionType(kind), n)
		}
	}
	if RaceDetector {
		return // the rest is only slow with it
	}
	var c codec
	if got, err := c.decompress(zstdType, pack(t, zstdType, make([]byte, maxBlock)), 5, false); err != nil || len(got) != maxBlock {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	// Before format_version 2 zlib says nothing of its size.
	c = codec{}
	more := cut(pack(t, zlibType, make([]byte, maxBlock+1)))
	if n := allocated(func() { refused(&c, zlibType, more, 1, TooLarge) }); n > 3*maxBlock {
		t.Errorf("zlib without a size: %d bytes allocated", n)
	}
}

func second(_ []byte, err error) error { return err }

func TestDecompressorsWithoutAWriter(t *testing.T) {
	t.Parallel()
	contents := bytes.Repeat([]byte("some text that repeats. "), 40)
	// Of no version that could be had; RocksDB 7 still decodes the two types alike.
	var notFinal codec
	if got, err := notFinal.decompress(zstdNotFinalType, pack(t, zstdType, contents), 2, true); err != nil || !bytes.Equal(got, contents) {
		t.Errorf("zstd before its format was final: %v", err)
	}
	for _, c := range []struct {
		name    string
		kind    byte
		version uint32
		block   []byte
		want    Kind
		found   string
	}{
		{"XPRESS", 6, 5, []byte{1, 2, 3}, Codec, "Xpress"},
		{"type of an application", 0x80, 7, []byte{1, 2, 3}, Codec, "compression type 128"},
		{"type of nobody", 8, 7, []byte{1, 2, 3}, Unsupported, "compression type 8"},
		{"Snappy without a size", snappyType, 5, nil, Malformed, "Snappy"},
		{"S2, not Snappy", snappyType, 5, []byte{8, 0, 'a', 0x01 | 3<<2, 0}, Malformed, "Snappy"},
		{"zlib without a size", zlibType, 2, nil, Malformed, "Zlib block without its size"},
		{"zlib with a size of more than 32 bits", zlibType, 2, binary.AppendUvarint(nil, 1<<32), Malformed, "Zlib block without its size"},
		{"old zlib, empty", zlibType, 1, nil, Malformed, "EOF"},
		{"old bzip2, empty", bzip2Type, 1, nil, Malformed, "EOF"},
		{"old LZ4 without a size", lz4Type, 1, make([]byte, 7), Malformed, "LZ4 block without its size"},
		{"zstd of another magic number", zstdType, 5, []byte{4, 1, 2, 3, 4}, Malformed, "ZSTD: "},
		{"zstd, cut", zstdType, 5, pack(t, zstdType, contents)[:20], Malformed, "ZSTD: "},
		{"zlib, cut", zlibType, 5, pack(t, zlibType, contents)[:20], Malformed, "EOF"},
		{"LZ4, cut", lz4Type, 5, pack(t, lz4Type, contents)[:20], Malformed, ""},
		{"Snappy, cut", snappyType, 5, pack(t, snappyType, contents)[:20], Malformed, "Snappy"},
	} {
		var d codec
		e, ok := errors.AsType[*complaint](second(d.decompress(c.kind, c.block, c.version, false)))
		if !ok || e.kind != c.want || !strings.Contains(e.found, c.found) {
			t.Errorf("%s: %v", c.name, e)
		}
	}
}

// TestDecoderThatPanics: a library's panic is an error of the block.
func TestDecoderThatPanics(t *testing.T) {
	t.Parallel()
	c := codec{inflate: stops{}}
	e, ok := errors.AsType[*complaint](second(c.decompress(zlibType, pack(t, zlibType, []byte("text")), 5, false)))
	if !ok || e.kind != Malformed || !strings.Contains(e.found, "Zlib that stops its decoder: here") {
		t.Errorf("%v", e)
	}
	if got, err := c.decompress(zlibType, pack(t, zlibType, []byte("text")), 5, false); err != nil || string(got) != "text" {
		t.Errorf("afterwards: %q, %v", got, err)
	}
}

type stops struct{}

func (stops) Read([]byte) (int, error)      { panic("here") }
func (stops) Close() error                  { return nil }
func (stops) Reset(io.Reader, []byte) error { return nil }

// FuzzDecompress: whatever a block is, it becomes at most 64 MiB or an error.
func FuzzDecompress(f *testing.F) {
	text := bytes.Repeat([]byte("some text that repeats. "), 10)
	for _, kind := range []byte{snappyType, zlibType, lz4Type, zstdType} {
		f.Add(kind, uint8(5), []byte(nil), pack(f, kind, text))
		f.Add(kind, uint8(1), text[:50], pack(f, kind, text))
	}
	for _, file := range seeds(f, 2000) {
		// The data blocks of real tables, with their dictionaries.
		t, err := Open(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			continue
		}
		s := getScratch()
		if t.dict.size > 0 {
			if err := t.readDictionary(s); err != nil {
				f.Fatal(err)
			}
		}
		dict, n := bytes.Clone(s.codec.dict), 0
		_ = t.walkIndex(s, nil, func(h handle) error {
			if b := file[h.offset : h.end()-trailerLen+1]; b[h.size] != 0 && n < 2 {
				f.Add(b[h.size], uint8(t.foot.version), dict, b[:h.size])
				n++
			}
			return nil
		})
		s.put()
	}
	f.Fuzz(func(t *testing.T, kind, version uint8, dict, block []byte) {
		c := codec{dict: dict}
		for range 2 { // what the first leaves behind does not matter
			got, err := c.decompress(kind, block, uint32(version), len(dict) > 0 && usesDictionary(kind))
			if len(got) > maxBlock || cap(c.out) > 2*maxBlock {
				t.Errorf("%d bytes in a buffer of %d", len(got), cap(c.out))
			}
			if e, ok := errors.AsType[*complaint](err); err != nil && (!ok || e.kind != Malformed && e.kind != TooLarge && e.kind != Unsupported && e.kind != Codec) {
				t.Errorf("%v", err)
			}
		}
	})
}

func TestForeignCompressionManager(t *testing.T) {
	t.Parallel()
	data := readMade(t, "v7-zstd.sst")
	for name, want := range map[string]Kind{"BuiltinV2": 0, "BuiltinV9": Codec} {
		changed := bytes.Replace(data, []byte("BuiltinV2"), []byte(name), 1)
		table, err := open(bytes.NewReader(changed), int64(len(changed)), false)
		if err != nil {
			t.Fatal(err)
		}
		if got := table.Properties().CompressionManager; got != name {
			t.Errorf("manager %q, want %q", got, name)
		}
		err = table.Each(func(Entry) error { return nil })
		if kindOf(err) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
