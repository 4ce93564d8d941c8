package sst

import (
	"fmt"
	"strings"
)

// Kind sorts the errors of this package by what they mean for the judgement
// of a file.
type Kind uint8

// The kinds of an [Error].
const (
	// TooShort: the file ends before the part that must be there.
	TooShort Kind = iota + 1
	// BadMagic: the last eight bytes are not those of a table file.
	BadMagic
	// FooterChecksum: the footer is not what was written (format_version 6 and later).
	FooterChecksum
	// BlockChecksum: a block is not what was written.
	BlockChecksum
	// Unsupported: the file is of a newer format, or uses a feature or an algorithm, that this package does not read.
	Unsupported
	// Codec: the block is compressed with an algorithm that this package does not have.
	Codec
	// TooLarge: the block lies within the file but is larger than this package reads, as it is or
	// decompressed (64 MiB).
	TooLarge
	// Malformed: the bytes contradict the format, although no checksum says so.
	Malformed
)

func (k Kind) String() string {
	switch k {
	case TooShort:
		return "too short"
	case BadMagic:
		return "bad magic number"
	case FooterChecksum:
		return "footer checksum mismatch"
	case BlockChecksum:
		return "block checksum mismatch"
	case Unsupported:
		return "unsupported"
	case Codec:
		return "compressed with an unknown algorithm"
	case TooLarge:
		return "too large"
	case Malformed:
		return "malformed"
	default:
		return "unknown"
	}
}

// Error is every error of this package except what the source of the bytes
// itself answered, which is passed on as it is.
type Error struct {
	Kind Kind
	// Part names what was read: "footer", "metaindex block", "properties
	// block", "index block", "index partition", "data block", "range deletion
	// block", "compression dictionary", "filter
	// block", "filter index", "meta block".
	Part string
	// Offset of the part in the file, bytes; at most the file's size.
	Offset int64
	// Size of the block without its trailer, bytes, as RocksDB's own messages
	// have it; 0 where the part is no block.
	Size int64
	// Expected and Found are the evidence. Magic numbers and checksums are
	// the decimal numbers that RocksDB prints: Expected the stored one (the
	// context removed, crc32c unmasked), Found the computed one.
	Expected, Found string
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s at offset %d", e.Part, e.Offset)
	if e.Size > 0 {
		fmt.Fprintf(&b, ", size %d", e.Size)
	}
	b.WriteString(": " + e.Kind.String())
	if e.Expected != "" {
		b.WriteString(", expected " + e.Expected)
	}
	if e.Found != "" {
		b.WriteString(", found " + e.Found)
	}
	return b.String()
}

// complaint is what a decoder says of bytes whose place it does not know.
type complaint struct {
	kind            Kind
	expected, found string
}

func (c *complaint) Error() string { return c.kind.String() + ": " + c.found }

func malformed(expected, found string) error { return &complaint{Malformed, expected, found} }
