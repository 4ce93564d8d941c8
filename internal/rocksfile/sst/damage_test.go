package sst

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func readMade(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "made", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// readAll opens a table and reads all of it.
func readAll(data []byte) error {
	t, err := Open(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return err
	}
	return t.Each(func(Entry) error { return nil })
}

func kindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return 0
}

func TestEveryFlippedBitIsNoticed(t *testing.T) {
	t.Parallel()
	// These have no block that is not read (a filter), so that no byte may change unseen.
	for _, name := range []string{"v7-xxh3-mixed.sst", "v6-crc32c-firstkey.sst", "v6-xxhash64-restart1.sst",
		"v7-xxh3-mixed-partitioned.sst"} {
		data := readMade(t, name)
		step := 1
		if RaceDetector {
			step = 7
		}
		for i := 0; i < len(data); i += step {
			data[i] ^= 1 << (i % 8)
			err := readAll(data)
			data[i] ^= 1 << (i % 8)
			if k := kindOf(err); k != BlockChecksum && k != FooterChecksum && k != BadMagic {
				t.Errorf("%s: byte %d of %d: %v", name, i, len(data), err)
			}
		}
	}
}

func TestFlippedFooterBits(t *testing.T) {
	t.Parallel()
	// Where the footer has a checksum, a flipped bit never looks like a newer format.
	data := readMade(t, "v7-xxh3-mixed.sst")
	for bit := range footerLen * 8 {
		i := len(data) - footerLen + bit/8
		data[i] ^= 1 << (bit % 8)
		err := readAll(data)
		data[i] ^= 1 << (bit % 8)
		want := FooterChecksum
		switch field := bit / 8; {
		case field >= footerLen-8:
			want = BadMagic
		case field == 41 && bit%8 < 3 && (7^(1<<(bit%8))) < contextVersion:
			want = BlockChecksum // formats 3 and 5 keep handles where 7 keeps its checksum
		}
		if kindOf(err) != want {
			t.Errorf("byte %d, bit %d: %v, want %v", bit/8, bit%8, err, want)
		}
	}
}

func TestFilesThatCannotBeOpened(t *testing.T) {
	t.Parallel()
	tail := func(data []byte, back int, b ...byte) []byte {
		c := bytes.Clone(data)
		copy(c[len(c)-back:], b)
		return c
	}
	v5, v6 := readMade(t, "v5-none.sst"), readMade(t, "v6-none-datahash.sst")
	magic := func(m uint64) []byte { return tail(v6, 8, binary.LittleEndian.AppendUint64(nil, m)...) }
	// What a RocksDB that is newer than this package would write: all sums fit.
	newer := func(version uint32, checksum ChecksumType, change func(footer []byte)) []byte {
		c := bytes.Clone(readMade(t, "v7-xxh3-mixed.sst"))
		raw := c[len(c)-footerLen:]
		binary.LittleEndian.PutUint32(raw[41:], version)
		raw[0] = byte(checksum)
		change(raw)
		f := footer{offset: uint64(len(c) - footerLen), checksum: checksum, base: binary.LittleEndian.Uint32(raw[9:])}
		binary.LittleEndian.PutUint32(raw[5:], f.sum(raw))
		return c
	}
	same := func([]byte) {}
	for _, c := range []struct {
		name  string
		data  []byte
		kind  Kind
		found string
	}{
		{"empty", nil, TooShort, "0"},
		{"47 bytes", v6[:47], TooShort, "47"},
		{"a footer of format 6 without its first byte", v6[len(v6)-52:], TooShort, "52"},
		{"a lone footer of format 6", v6[len(v6)-53:], FooterChecksum, ""},
		{"half a file", v6[:len(v6)/2], BadMagic, ""},
		{"zeros at the end", tail(v6, 60, make([]byte, 60)...), BadMagic, "0"},
		{"plain table", magic(0x8242229663bf9564), Unsupported, "plain table"},
		{"cuckoo table", magic(0x926789d0c5f17873), Unsupported, "cuckoo table"},
		{"format 8, no footer checksum to tell", tail(v5, 12, 8), Unsupported, "format_version 8"},
		{"format 8", newer(8, XXH3, same), Unsupported, "format_version 8"},
		{"checksum type 9", newer(7, 9, same), Unsupported, "checksum type 9"},
		{"reserved bytes used", newer(7, XXH3, func(f []byte) { f[40] = 1 }), Unsupported, "reserved"},
		{"no extended magic", newer(7, XXH3, func(f []byte) { f[1] = 0 }), Malformed, ""},
		{"no context", newer(7, XXH3, func(f []byte) { clear(f[9:13]) }), Malformed, ""},
		{"metaindex before the file", newer(7, XXH3, func(f []byte) { f[16] = 0xff }), Malformed, ""},
		{"format 6 that says 5", tail(v6, 12, 5), BlockChecksum, ""},
		{"metaindex handle beyond the footer", tail(v5, 52, 0xff, 0xff, 0x7f), Malformed, ""},
		{"metaindex handle that overflows", tail(v5, 52, bytes.Repeat([]byte{0xff}, 20)...), Malformed, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Open(bytes.NewReader(c.data), int64(len(c.data)))
			e, ok := errors.AsType[*Error](err)
			if !ok || e.Kind != c.kind || !strings.Contains(e.Found, c.found) {
				t.Fatalf("%v, want %v, found %q", err, c.kind, c.found)
			}
			if e.Offset < 0 || e.Offset > int64(len(c.data)) {
				t.Errorf("offset %d in a file of %d bytes", e.Offset, len(c.data))
			}
		})
	}
}

func TestDamagedLegacyFooter(t *testing.T) {
	t.Parallel()
	data := readMade(t, "v2-crc32c.sst")
	// Format 0 is format 2 without checksum type and version, as far as these blocks go.
	raw := data[len(data)-footerLen:]
	legacy := append(bytes.Clone(data[:len(data)-footerLen]), raw[1:41]...)
	legacy = binary.LittleEndian.AppendUint64(legacy, legacyMagicNumber)
	table, err := Open(bytes.NewReader(legacy), int64(len(legacy)))
	if err != nil || table.FormatVersion() != 0 || table.ChecksumType() != CRC32c {
		t.Fatalf("Open: %v", err)
	}
	copy(legacy[len(legacy)-48:], bytes.Repeat([]byte{0xff}, 40))
	if _, err := Open(bytes.NewReader(legacy), int64(len(legacy))); kindOf(err) != Malformed {
		t.Errorf("Open without handles: %v", err)
	}
}

func TestFileShorterThanSaid(t *testing.T) {
	t.Parallel()
	data := readMade(t, "v6-sizes.sst")
	_, err := Open(bytes.NewReader(data), int64(len(data))+1000)
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Kind != TooShort || e.Found != "6902" || e.Expected != "7902 bytes" {
		t.Errorf("Open: %v", err)
	}
	// It shrinks after it was opened.
	src := &cut{bytes.NewReader(data), int64(len(data))}
	table, err := Open(src, int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	src.size = 100
	if err := table.Each(func(Entry) error { return nil }); kindOf(err) != TooShort {
		t.Errorf("Each: %v", err)
	}
}

type cut struct {
	io.ReaderAt
	size int64
}

func (c *cut) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > c.size {
		return 0, io.EOF
	}
	return c.ReaderAt.ReadAt(p, off)
}

// failing answers err for every read after the first n.
type failing struct {
	io.ReaderAt
	n   int
	err error
}

func (f *failing) ReadAt(p []byte, off int64) (int, error) {
	if f.n--; f.n < 0 {
		return 0, f.err
	}
	return f.ReaderAt.ReadAt(p, off)
}

func TestErrorsOfTheSourceArePassedOn(t *testing.T) {
	t.Parallel()
	eio := errors.New("input/output error")
	data := readMade(t, "v7-xxh3-mixed-partitioned.sst")
	for n := range 12 {
		src := &failing{bytes.NewReader(data), n, eio}
		table, err := Open(src, int64(len(data)))
		if n == 0 {
			if err != eio { //nolint:errorlint // as it is, is promised
				t.Errorf("Open: %v", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := table.Each(func(Entry) error { return nil }); err != eio { //nolint:errorlint // as it is, is promised
			t.Errorf("Each after %d reads: %v", n, err)
		}
		src.n = n % 3
		if _, _, err := table.Get([]byte("versions")); err != eio { //nolint:errorlint // as it is, is promised
			t.Errorf("Get after %d reads: %v", n%3, err)
		}
	}
}

func TestVisitEndsTheWalk(t *testing.T) {
	t.Parallel()
	stop := &Error{Kind: Malformed} // the visitor's own, whatever it is
	data := readMade(t, "v7-xxh3-mixed.sst")
	table, err := Open(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	if err := table.Each(func(Entry) error { n++; return stop }); err != stop || n != 1 { //nolint:errorlint // as it is, is promised
		t.Errorf("Each: %v after %d entries", err, n)
	}
}

func TestDamagedIndexWithoutChecksum(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(index []byte) // the index block's contents
	}{
		{"first handle again", func(x []byte) {
			// key, offset 0 (1 byte), size (2 bytes); then the second entry.
			second := 3 + int(x[1]) + 2
			end := second + 2 + int(x[second+1])
			binary.PutUvarint(x[end:], 0)
		}},
		{"block beyond the file", func(x []byte) { copy(x[2+int(x[1]):], []byte{0x80, 0xff, 0x7f}) }},
		{"handle that never ends", func(x []byte) { copy(x[2+int(x[1]):], bytes.Repeat([]byte{0xff}, 12)) }},
		{"key longer than the block", func(x []byte) { x[1] = 0xff; x[2] = 0x7f }},
		{"too many restarts", func(x []byte) { x[len(x)-2] = 0xff }},
		{"future bit", func(x []byte) { x[len(x)-1] |= 0x40 }},
		{"values apart", func(x []byte) { x[len(x)-1] |= 0x10 }},
		{"hash index", func(x []byte) { x[len(x)-1] |= 0x80 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			data := readMade(t, "v5-none.sst")
			table, err := Open(bytes.NewReader(data), int64(len(data)))
			if err != nil {
				t.Fatal(err)
			}
			x := table.foot.index
			c.change(data[x.offset : x.offset+x.size])
			src := &failing{ReaderAt: bytes.NewReader(data), n: 1000}
			table.src = src
			err = table.Each(func(Entry) error { return nil })
			if k := kindOf(err); k != Malformed && k != Unsupported {
				t.Errorf("Each: %v", err)
			}
			if src.n < 1000-25 {
				t.Errorf("%d reads for 18 blocks", 1000-src.n)
			}
		})
	}
}

func TestBlockLargerThanTheBound(t *testing.T) {
	t.Parallel()
	data := readMade(t, "v5-none.sst")
	table, err := Open(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	table.foot.offset = 1 << 40 // as if the file were that large
	table.foot.index.size = maxBlock + 1
	if err := table.Each(func(Entry) error { return nil }); kindOf(err) != TooLarge {
		t.Errorf("Each: %v", err)
	}
}

func TestErrorText(t *testing.T) {
	t.Parallel()
	data := readMade(t, "v6-crc32c-firstkey.sst")
	data[300] ^= 1
	got := readAll(data).Error()
	const want = "data block at offset 249, size 245: block checksum mismatch, expected 932402385, found "
	if !strings.HasPrefix(got, want) {
		t.Errorf("%q", got)
	}
	for k := TooShort; k <= Malformed; k++ {
		if k.String() == "unknown" {
			t.Errorf("kind %d has no name", k)
		}
	}
}

func TestTableIsUsedByManyAtOnce(t *testing.T) {
	t.Parallel()
	data := readMade(t, "v7-xxh3-mixed-partitioned.sst")
	table, err := Open(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			n := 0
			err := table.Each(func(e Entry) error {
				// A look-up inside a walk uses buffers of its own.
				got, ok, err := table.Get(e.Key)
				if err == nil && e.Type != RangeDeletion && (!ok || !bytes.Equal(got.Key, e.Key)) {
					t.Errorf("Get(%q) = %q, %v", e.Key, got.Key, ok)
				}
				n++
				return err
			})
			if err != nil || n != 201 {
				t.Errorf("%d entries, %v", n, err)
			}
		})
	}
	wg.Wait()
}
