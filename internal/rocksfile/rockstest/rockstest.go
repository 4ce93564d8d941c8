// Package rockstest writes RocksDB's log and MANIFEST files for tests and
// benchmarks: sound ones, and ones that RocksDB would never write.
//
// It has its own idea of the formats and shares no code with the packages that
// read them, so that an error is not made twice. Only tests and generators of
// test data may import it.
package rockstest

import (
	"encoding/binary"
	"hash/crc32"
)

const (
	blockSize      = 32768
	plainHeader    = 7
	recycledHeader = 11
)

// Types of fragments, as RocksDB db/log_format.h has them.
const (
	Zero             byte = 0
	Full             byte = 1
	First            byte = 2
	Middle           byte = 3
	Last             byte = 4
	RecycledFull     byte = 5
	RecycledFirst    byte = 6
	RecycledMiddle   byte = 7
	RecycledLast     byte = 8
	SetCompression   byte = 9
	TimestampSize    byte = 10
	RecycledTSSize   byte = 11
	PredecessorWAL   byte = 130
	RecycledPredWAL  byte = 131
	recycledDistance      = RecycledFull - Full
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendRecord appends a logical record to a log, in as many fragments as it
// needs, and returns the longer log. A nil log begins a new one.
func AppendRecord(log, payload []byte) []byte {
	return appendRecord(log, payload, func(log []byte, kind byte, part []byte) []byte {
		return AppendFragment(log, kind, part)
	}, plainHeader)
}

// AppendRecycled is [AppendRecord] for a recycled log with this number.
func AppendRecycled(log []byte, number uint32, payload []byte) []byte {
	return appendRecord(log, payload, func(log []byte, kind byte, part []byte) []byte {
		return AppendRecycledFragment(log, kind+recycledDistance, number, part)
	}, recycledHeader)
}

func appendRecord(log, payload []byte, emit func([]byte, byte, []byte) []byte, header int) []byte {
	for first := true; ; first = false {
		room := blockSize - len(log)%blockSize
		if room < header {
			log = append(log, make([]byte, room)...)
			room = blockSize
		}
		n := min(len(payload), room-header)
		last := n == len(payload)
		kind := Middle
		switch {
		case first && last:
			kind = Full
		case first:
			kind = First
		case last:
			kind = Last
		}
		log = emit(log, kind, payload[:n])
		payload = payload[n:]
		if last {
			return log
		}
	}
}

// AppendFragment appends one fragment with a right checksum, wherever the log
// ends and whatever its type is. The payload must be shorter than 64 KiB.
func AppendFragment(log []byte, kind byte, payload []byte) []byte {
	at := len(log)
	log = append(log, 0, 0, 0, 0, byte(len(payload)), byte(len(payload)>>8), kind)
	log = append(log, payload...)
	Seal(log, at, plainHeader+len(payload))
	return log
}

// AppendRecycledFragment is [AppendFragment] with the longer header of a
// recycled log.
func AppendRecycledFragment(log []byte, kind byte, number uint32, payload []byte) []byte {
	at := len(log)
	log = append(log, 0, 0, 0, 0, byte(len(payload)), byte(len(payload)>>8), kind)
	log = binary.LittleEndian.AppendUint32(log, number)
	log = append(log, payload...)
	Seal(log, at, recycledHeader+len(payload))
	return log
}

// Seal sets the checksum of the fragment at this offset, of size bytes with its
// header.
func Seal(log []byte, at, size int) {
	sum := crc32.Checksum(log[at+6:at+size], castagnoli)
	binary.LittleEndian.PutUint32(log[at:], (sum>>15|sum<<17)+0xa282ead8)
}
