// Package manystores makes large state directories for benchmarks and tests
// of scale: copies of real tables below MANIFESTs of three column families and
// more than twenty edits, in the layout of Kafka Streams 4.4. Only tests may
// import it.
package manystores

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"streams-sidecar/internal/rocksfile/rockstest"
	"streams-sidecar/internal/rocksfile/sst"
	"streams-sidecar/test/fixture"
)

// Each store of a state directory has DataTables tables of data and one of
// offsets; StoresPerTask of them are in a task.
const (
	DataTables      = 4
	TablesPerStore  = DataTables + 1
	StoresPerTask   = 4
	EntriesPerTable = 259 // as the inventory of the copied table says
	Edits           = 3 + 2*2 + 2*flushes + 2
	flushes         = 8
	manifestNumber  = 5
	firstTable      = 10
)

// Make writes a state directory of one application with so many stores and
// returns its path. It is removed with the test.
func Make(t testing.TB, stores int) string {
	t.Helper()
	src := filepath.Join(fixture.Unpack(t, "4.4.0", "closed-clean"), "alos440", "1_0", "rocksdb", "kv")
	m := maker{t: t, dir: t.TempDir(), data: read(t, src, "000011.sst"), offsets: read(t, src, "000010.sst"),
		options: read(t, src, "OPTIONS-000009")}
	m.manifest = m.history()
	app := filepath.Join(m.dir, "many")
	m.write(filepath.Join(app, ".lock"), nil)
	m.write(filepath.Join(app, "kafka-streams-process-metadata"), []byte(`{"processId":"7f3f0e4a-0b0e-4d3c-9f0c-3f1d2e4b5a60"}`))
	for i := range stores {
		m.store(filepath.Join(app, fmt.Sprintf("0_%d", i/StoresPerTask), "rocksdb", fmt.Sprintf("store-%d", i)))
	}
	return m.dir
}

type maker struct {
	t                                testing.TB
	dir                              string
	data, offsets, options, manifest []byte
}

func read(t testing.TB, elem ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (m *maker) write(path string, data []byte) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		m.t.Fatal(err)
	}
}

// history flushes data and offsets flushes times, and compacts the oldest data
// tables and all offsets tables but the last, so that DataTables and one stay.
func (m *maker) history() []byte {
	edits := []rockstest.Edit{
		rockstest.Edit{}.DBID("5c8f6a9e-1c1b-4a8e-9a52-0d1f8a2f7b11"),
		rockstest.Edit{}.Comparator("leveldb.BytewiseComparator"),
		rockstest.Edit{}.LogNumber(4),
	}
	for id, name := range map[uint32]string{1: "keyValueWithTimestamp", 2: "offsets"} {
		edits = append(edits,
			rockstest.Edit{}.AddFamily(id, name).Comparator("leveldb.BytewiseComparator"),
			rockstest.Edit{}.Family(id).LogNumber(4))
	}
	number, seq := uint64(firstTable), uint64(1)
	var old rockstest.Edit
	for i := range flushes {
		for id, data := range map[uint32][]byte{1: m.data, 2: m.offsets} {
			edits = append(edits, rockstest.Edit{}.Family(id).LogNumber(4).PrevLog(0).NextFile(number+2).LastSequence(seq+500).
				Add(rockstest.File{Number: m.number(i, id), Size: uint64(len(data)), SmallestSeq: seq, LargestSeq: seq + uint64(id)*200, CreationTime: 1796062800,
					UniqueID: m.uniqueID(data)}))
		}
		number, seq = number+2, seq+500
		if i < flushes-DataTables {
			old = old.Delete(0, m.number(i, 1))
		}
	}
	var oldOffsets rockstest.Edit
	for i := range flushes - 1 {
		oldOffsets = oldOffsets.Delete(0, m.number(i, 2))
	}
	edits = append(edits,
		append(rockstest.Edit{}.Family(1).NextFile(number).LastSequence(seq), old...),
		append(rockstest.Edit{}.Family(2).NextFile(number).LastSequence(seq), oldOffsets...))
	return rockstest.Manifest(edits...)
}

// uniqueID is that of a table as a MANIFEST has it, in its first half.
func (m *maker) uniqueID(table []byte) string {
	t, err := sst.Open(bytes.NewReader(table), int64(len(table)))
	if err != nil {
		m.t.Fatal(err)
	}
	p := t.Properties()
	session, ok := p.SessionHalf()
	if !ok {
		m.t.Fatal("a table without a session")
	}
	return string(binary.LittleEndian.AppendUint64(nil, session)) + "whatever"
}

// number of the table that a flush wrote for a family.
func (m *maker) number(flush int, family uint32) uint64 {
	return uint64(firstTable + 2*flush + int(family) - 1)
}

func (m *maker) store(dir string) {
	m.write(filepath.Join(dir, "CURRENT"), []byte(fmt.Sprintf("MANIFEST-%06d\n", manifestNumber)))
	m.write(filepath.Join(dir, fmt.Sprintf("MANIFEST-%06d", manifestNumber)), m.manifest)
	for i := flushes - DataTables; i < flushes; i++ {
		m.write(filepath.Join(dir, fmt.Sprintf("%06d.sst", m.number(i, 1))), m.data)
	}
	m.write(filepath.Join(dir, fmt.Sprintf("%06d.sst", m.number(flushes-1, 2))), m.offsets)
	m.write(filepath.Join(dir, "OPTIONS-000009"), m.options)
	m.write(filepath.Join(dir, "IDENTITY"), []byte("5c8f6a9e-1c1b-4a8e-9a52-0d1f8a2f7b11"))
	for _, name := range []string{"000004.log", "LOCK", "LOG"} {
		m.write(filepath.Join(dir, name), nil)
	}
}
