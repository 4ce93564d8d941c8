package sst

import (
	"bytes"
	"compress/bzip2"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Compression types in the trailer of a block (RocksDB
// include/rocksdb/compression_type.h).
const (
	noCompression = 0x00
	snappyType    = 0x01
	zlibType      = 0x02
	bzip2Type     = 0x03
	lz4Type       = 0x04
	lz4hcType     = 0x05
	xpressType    = 0x06
	zstdType      = 0x07
	// Written by RocksDB 4.3 to 5 before zstd's format was final; the bytes
	// are the same.
	zstdNotFinalType = 0x40
	// customType is the first of those that an application may define
	// (include/rocksdb/compression_type.h, kCustomCompression80).
	customType = 0x80
)

// sizedVersion is the format_version from which on zlib, bzip2 and lz4 blocks
// begin with their uncompressed size as a varint32. Before, lz4 had it in 8
// bytes and the other two not at all. Snappy's own format has it always, and
// RocksDB always wrote it for zstd.
const sizedVersion = 2

// unknownSize is the uncompressed size of a block that does not tell it.
const unknownSize = -1

// codec decompresses blocks, one after the other. Its buffers and decoders
// are kept for the next one.
type codec struct {
	out      []byte
	src      bytes.Reader
	inflate  io.ReadCloser
	zstd     *zstd.Decoder
	dict     []byte // of the table, empty if it has none
	zstdDict *zstd.Decoder
}

// usesDictionary says whether blocks of a compression type are compressed
// with the dictionary of their table. The others ignore it.
func usesDictionary(kind byte) bool {
	switch kind {
	case zlibType, lz4Type, lz4hcType, zstdType, zstdNotFinalType:
		return true
	}
	return false
}

// decompress returns the contents of a block, at most maxBlock bytes of them,
// in c.out. Whatever goes wrong is a complaint. dictionary says whether the
// table's is to be used, if it has one.
func (c *codec) decompress(kind byte, block []byte, version uint32, dictionary bool) (contents []byte, err error) {
	defer func() {
		// The decoders are libraries; what they make of hostile bytes is not ours to promise.
		if r := recover(); r != nil {
			c.inflate, c.zstd, c.zstdDict = nil, nil, nil
			contents, err = nil, malformed("", fmt.Sprintf("%s that stops its decoder: %v", compressionType(kind), r))
		}
	}()
	size, block, err := uncompressedSize(kind, block, version)
	if err != nil {
		return nil, err
	}
	if size > maxBlock {
		return nil, tooLarge(strconv.Itoa(size))
	}
	if n := max(size, 0); cap(c.out) < n {
		c.out = make([]byte, n, max(n, 8<<10))
	}
	var dict []byte
	if dictionary {
		dict = c.dict
	}
	if err = c.decode(kind, block, size, dict); err != nil {
		if _, ok := errors.AsType[*complaint](err); ok {
			return nil, err
		}
		return nil, malformed("", compressionType(kind)+": "+err.Error())
	}
	if size != unknownSize && len(c.out) != size {
		return nil, malformed(strconv.Itoa(size)+" bytes of "+compressionType(kind), strconv.Itoa(len(c.out)))
	}
	return c.out, nil
}

func tooLarge(found string) error {
	return &complaint{TooLarge, "at most " + strconv.Itoa(maxBlock) + " bytes when decompressed", found}
}

// uncompressedSize reads what a block claims, and cuts it off.
func uncompressedSize(kind byte, block []byte, version uint32) (size int, rest []byte, err error) {
	switch kind {
	case snappyType:
		// Part of the format: it stays.
		size, err = snappy.DecodedLen(block)
		if err != nil {
			return 0, nil, malformed("", compressionType(kind)+": "+err.Error())
		}
		return size, block, nil
	case zlibType, bzip2Type:
		if version < sizedVersion {
			return unknownSize, block, nil
		}
	case lz4Type, lz4hcType:
		if version < sizedVersion {
			if len(block) < 8 {
				return 0, nil, malformed("", "LZ4 block without its size")
			}
			// RocksDB wrote the 8 bytes of a size_t, and reads 4.
			return int(binary.LittleEndian.Uint32(block)), block[8:], nil
		}
	case zstdType, zstdNotFinalType:
	default:
		// XPRESS is one of Windows alone; 0x80 and up are an application's own.
		if kind == xpressType || kind >= customType {
			return 0, nil, &complaint{Codec, "", compressionType(kind)}
		}
		return 0, nil, &complaint{Unsupported, "", compressionType(kind)}
	}
	v, n := binary.Uvarint(block)
	if n <= 0 || v > math.MaxUint32 {
		return 0, nil, malformed("", compressionType(kind)+" block without its size")
	}
	return int(v), block[n:], nil
}

// decode sets c.out to what block becomes. If size is known, c.out has room
// for it.
func (c *codec) decode(kind byte, block []byte, size int, dict []byte) (err error) {
	switch kind {
	case snappyType:
		// Not the fast decoder: that takes what only Snappy's extension S2 allows.
		c.out, err = snappy.DecodeStrict(c.out[:size], block)
		return err
	case zlibType:
		// Without a header, as RocksDB writes it (raw deflate).
		c.src.Reset(block)
		if c.inflate == nil {
			c.inflate = flate.NewReaderDict(&c.src, dict)
		} else if err := c.inflate.(flate.Resetter).Reset(&c.src, dict); err != nil {
			return err
		}
		return c.drain(c.inflate, size)
	case bzip2Type:
		c.src.Reset(block)
		return c.drain(bzip2.NewReader(&c.src), size)
	case lz4Type, lz4hcType:
		n, err := lz4.UncompressBlockWithDict(block, c.out[:size], dict)
		c.out = c.out[:n]
		return err
	default:
		z, err := c.zstdDecoder(dict)
		if err != nil {
			return err
		}
		out, err := z.DecodeAll(block, c.out[:0])
		if errors.Is(err, zstd.ErrDecoderSizeExceeded) {
			return malformed(strconv.Itoa(size)+" bytes of "+compressionType(kind), "more")
		}
		if err == nil {
			c.out = out
		}
		return err
	}
}

// zstdDecoder gives the decoder for a dictionary, or for none.
func (c *codec) zstdDecoder(dict []byte) (*zstd.Decoder, error) {
	to := &c.zstd
	if len(dict) > 0 {
		to = &c.zstdDict
	}
	if *to != nil {
		return *to, nil
	}
	options := []zstd.DOption{
		zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(maxBlock), zstd.WithDecodeAllCapLimit(true),
	}
	if len(dict) > 0 {
		// A trained one has a header, one of mere samples is only its bytes.
		if bytes.HasPrefix(dict, []byte{0x37, 0xa4, 0x30, 0xec}) {
			options = append(options, zstd.WithDecoderDicts(dict))
		} else {
			options = append(options, zstd.WithDecoderDictRaw(0, dict))
		}
	}
	z, err := zstd.NewReader(nil, options...)
	if err != nil {
		return nil, fmt.Errorf("compression dictionary: %w", err)
	}
	*to = z
	return z, nil
}

// drain reads r to its end into c.out: size bytes, or, if that is unknown, as
// many as there are.
func (c *codec) drain(r io.Reader, size int) error {
	if size != unknownSize {
		n, err := io.ReadFull(r, c.out[:size])
		c.out = c.out[:n]
		if err != nil {
			return err
		}
		var more [1]byte
		n, err = io.ReadFull(r, more[:])
		if n > 0 {
			return malformed(strconv.Itoa(size)+" bytes", "more")
		}
		if !errors.Is(err, io.EOF) {
			return err
		}
		return nil
	}
	c.out = c.out[:0]
	for {
		if len(c.out) == cap(c.out) {
			if len(c.out) >= maxBlock {
				return tooLarge("more")
			}
			larger := make([]byte, len(c.out), min(maxBlock+1, max(8<<10, 2*cap(c.out))))
			copy(larger, c.out)
			c.out = larger
		}
		n, err := r.Read(c.out[len(c.out):cap(c.out)])
		c.out = c.out[:len(c.out)+n]
		if errors.Is(err, io.EOF) {
			if len(c.out) > maxBlock {
				return tooLarge("more")
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// forget drops what belongs to one table, and what an unusual file made large.
func (c *codec) forget(most int) {
	c.src.Reset(nil)
	c.zstdDict, c.dict = nil, nil
	if cap(c.out) > most {
		c.out = nil
	}
}
