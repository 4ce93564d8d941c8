package manifest_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"streams-sidecar/internal/rocksfile/manifest"
	"streams-sidecar/internal/rocksfile/record"
	"streams-sidecar/internal/rocksfile/rockstest"
)

type (
	edit = rockstest.Edit
	file = rockstest.File
)

const bytewise = "leveldb.BytewiseComparator"

func load(data []byte) (*manifest.State, error) {
	return manifest.Load(bytes.NewReader(data), int64(len(data)))
}

func mustLoad(t testing.TB, data []byte) *manifest.State {
	t.Helper()
	s, err := load(data)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func defect(t testing.TB, err error) *manifest.Error {
	t.Helper()
	e, ok := errors.AsType[*manifest.Error](err)
	if !ok {
		t.Fatalf("got error %v, want a *manifest.Error", err)
	}
	return e
}

// same compares everything that a State says.
func same(a, b *manifest.State) string {
	if reflect.DeepEqual(a, b) { // much faster than a Diff
		return ""
	}
	return cmp.Diff(a, b, cmpopts.IgnoreUnexported(manifest.State{}), cmpopts.EquateEmpty())
}

// head is what makes a MANIFEST complete.
func head() edit { return edit{}.Comparator(bytewise).LogNumber(4).NextFile(8).LastSequence(0) }

// event begins an edit as RocksDB logs it.
func event() edit { return edit{}.PrevLog(0).NextFile(20).LastSequence(100) }

func numbers(s *manifest.State, family int) (out []uint64) {
	for _, f := range s.Families[family].Files {
		out = append(out, f.Number)
	}
	return out
}

func start(key string) (k manifest.KeyStart) {
	copy(k[:], key)
	return k
}

func TestAppliesEdits(t *testing.T) {
	t.Parallel()
	data := rockstest.Manifest(
		edit{}.DBID("the-id"),
		edit{}, // as RocksDB writes a deletion of no logs
		edit{}.Comparator(bytewise).Field(8201, "\x01"),
		edit{}.LogNumber(4).LastSequence(7).MinLogToKeep(3).Add(file{Level: 6, Number: 9, Size: 900, SmallestSeq: 1, LargestSeq: 7}),
		edit{}.AddFamily(2, "offsets").Comparator(bytewise),
		edit{}.LogNumber(4).LastSequence(7).Family(2),
		event().AddFamily(1, "data").Comparator("other").LogNumber(5).MaxFamily(2),
		event().LogNumber(6).Add(file{Number: 12, Size: 1200, SmallestSeq: 8, LargestSeq: 9, CreationTime: 1796061472, PathID: 3}).Family(1),
		event().Add(file{Level: 1, Number: 15, Size: 1500}).Add(file{Level: 0, Number: 14, Size: 1400}).LogNumber(6).Family(1),
		event().Delete(0, 14).Delete(1, 15).Add(file{Level: 2, Number: 16, Size: 1600}).Add(file{Level: 2, Number: 13, Size: 1300}).Family(1),
		event().Delete(6, 9).Add(file{Level: 5, Number: 9, Size: 900}),
		event().AddFamily(3, "gone"),
		event().LogNumber(9).Add(file{Number: 18, Size: 1800}).Family(3),
		event().DropFamily(3).MaxFamily(3),
		edit{}.PrevLog(1).NextFile(30).LastSequence(200).MinLogToKeep(2).LogNumber(6),
	)
	got := mustLoad(t, data)
	// As rockstest writes it into every edit of a table: "0123456789abcdef".
	id := [2]uint64{0x3736353433323130, 0x6665646362613938}
	want := &manifest.State{
		Families: []manifest.Family{
			{ID: 0, Name: "default", Comparator: bytewise, LogNumber: 6,
				Files:  []manifest.File{{Number: 9, Size: 900, Level: 5, UniqueID: id}},
				Counts: manifest.Counts{TrivialMoves: 1}},
			{ID: 1, Name: "data", Comparator: "other", LogNumber: 6,
				Files: []manifest.File{
					{Number: 12, Size: 1200, SmallestSeq: 8, LargestSeq: 9, CreationTime: 1796061472, PathID: 3, UniqueID: id},
					{Number: 13, Size: 1300, Level: 2, UniqueID: id}, {Number: 16, Size: 1600, Level: 2, UniqueID: id}},
				Counts:    manifest.Counts{Flushes: 3, FlushedBytes: 4100, Compactions: 1, CompactionReadBytes: 2900, CompactionWrittenBytes: 2900},
				LastFlush: 15, FlushedSeq: 9, Flushed: []manifest.Flushed{
					{Number: 14, SmallestKey: start("k0014000"), LargestKey: start("k0014999")},
					{Number: 15, SmallestKey: start("k0015000"), LargestKey: start("k0015999")}}},
			{ID: 2, Name: "offsets", Comparator: bytewise, LogNumber: 4},
		},
		LastSequence: 200, NextFile: 30, MinLogToKeep: 3, PrevLog: 1, MaxFamily: 3, DBID: "the-id",
		Counts: manifest.Counts{Flushes: 4, FlushedBytes: 5900, Compactions: 1, CompactionReadBytes: 2900, CompactionWrittenBytes: 2900, TrivialMoves: 1},
		Size:   int64(len(data)), Edits: 15,
	}
	if diff := same(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestOldFormsOfANewFile(t *testing.T) {
	t.Parallel()
	f := file{Level: 3, Number: 9, Size: 10, SmallestSeq: 5, LargestSeq: 6, PathID: 2}
	for tag, want := range map[uint64]manifest.File{
		7:   {Level: 3, Number: 9, Size: 10},
		100: {Level: 3, Number: 9, Size: 10, SmallestSeq: 5, LargestSeq: 6},
		102: {Level: 3, Number: 9, Size: 10, SmallestSeq: 5, LargestSeq: 6, PathID: 2},
	} {
		got := mustLoad(t, rockstest.Manifest(head(), event().AddOld(tag, f)))
		if diff := cmp.Diff([]manifest.File{want}, got.Families[0].Files); diff != "" {
			t.Errorf("tag %d (-want +got):\n%s", tag, diff)
		}
	}
}

// Each of these is an answer that RocksDB 10.1.3 and 11.8.1 gave when they were
// asked to open such a MANIFEST, with the exceptions that are marked.
func TestRefusesWhatRocksDBRefuses(t *testing.T) {
	t.Parallel()
	base := []edit{head(), event().AddFamily(1, "data"), event().LogNumber(4).Add(file{Level: 6, Number: 9, Size: 900})}
	move := func() edit { return event().Delete(6, 9).BeginFile(file{Level: 6, Number: 9, Size: 900}) }
	again := file{Level: 6, Number: 9, Size: 900}
	cursor := func(kind byte) edit {
		return event().Tag(5, "\x00\x09a"+string([]byte{kind})+"\x00\x00\x00\x00\x00\x00\x00")
	}
	accepted := manifest.Kind(0)
	tests := map[string]struct {
		edits []edit
		want  manifest.Kind
	}{
		"nothing more":                    {nil, accepted},
		"delete a file that is not there": {[]edit{event().Delete(0, 999)}, manifest.FileMissing},
		"delete from another level":       {[]edit{event().Delete(5, 9)}, manifest.FileMissing},
		"delete from another family":      {[]edit{event().Delete(6, 9).Family(1)}, manifest.FileMissing},
		"delete twice in one edit":        {[]edit{event().Delete(6, 9).Delete(6, 9)}, accepted},
		"delete twice":                    {[]edit{event().Delete(6, 9), event().Delete(6, 9)}, manifest.FileMissing},
		"add a file that is there":        {[]edit{event().Add(again)}, manifest.FileExists},
		"add it on another level":         {[]edit{event().Add(file{Level: 5, Number: 9})}, manifest.FileExists},
		"add it to another family":        {[]edit{event().Add(again).Family(1)}, accepted},
		"add twice in one edit":           {[]edit{event().Delete(6, 9).Add(again).Add(again)}, manifest.FileExists},
		"add before delete in one edit":   {[]edit{event().Add(again).Delete(6, 9)}, accepted},
		"family id twice":                 {[]edit{event().AddFamily(1, "other")}, manifest.FamilyExists},
		"default added":                   {[]edit{event().AddFamily(0, "default").Tag(201, "\x01x")}, manifest.FamilyExists},
		"family name twice":               {[]edit{event().AddFamily(77, "data")}, accepted},
		"drop an unknown family":          {[]edit{event().DropFamily(50)}, manifest.FamilyMissing},
		"drop twice":                      {[]edit{event().DropFamily(1), event().DropFamily(1)}, manifest.FamilyMissing},
		"drop default":                    {[]edit{event().DropFamily(0)}, manifest.BadEdit},
		"an edit of a dropped family":     {[]edit{event().DropFamily(1), event().LogNumber(9).Family(1)}, manifest.UnknownFamily},
		"add a dropped id":                {[]edit{event().DropFamily(1), event().AddFamily(1, "data")}, accepted},
		"unknown family":                  {[]edit{event().LogNumber(99).Family(50)}, manifest.UnknownFamily},
		"another comparator":              {[]edit{event().Comparator("x")}, manifest.ComparatorChanged},
		"the same comparator":             {[]edit{event().Comparator(bytewise)}, accepted},
		"timestamps switched on":          {[]edit{event().Comparator(bytewise + ".u64ts")}, accepted}, // depends on options
		"group":                           {[]edit{event().Group(1), event().Family(1).Group(0)}, accepted},
		"group interrupted":               {[]edit{event().Group(1), event()}, manifest.AtomicGroup},
		"group too short":                 {[]edit{event().Group(2), event().Group(0)}, manifest.AtomicGroup},
		"group too long":                  {[]edit{event().Group(1), event().Group(1)}, manifest.AtomicGroup},
		"group with a bad edit":           {[]edit{event().Group(1), event().Delete(0, 999).Group(0)}, manifest.FileMissing},
		"unknown tag":                     {[]edit{event().Tag(11, "")}, manifest.NewerFormat},
		"tag of large values":             {[]edit{event().Tag(8, "\x01")}, manifest.NewerFormat},
		"unknown ignorable tag":           {[]edit{event().Field(9000, "hello")}, accepted},
		"ignorable tag cut":               {[]edit{event().Tag(9000, "\x10a")}, manifest.BadEdit},
		"unknown field":                   {[]edit{move().FileField(40, "x").EndFile()}, accepted},
		"unknown field not to skip":       {[]edit{move().FileField(66, "x").EndFile()}, manifest.NewerFormat},
		"path id 4":                       {[]edit{move().FileField(65, "\x04").EndFile()}, manifest.BadEdit},
		"path id of two bytes":            {[]edit{move().FileField(65, "\x00\x00").EndFile()}, manifest.BadEdit},
		"short unique id":                 {[]edit{move().FileField(12, "abc").EndFile()}, manifest.BadEdit},
		"fields without an end":           {[]edit{move().FileField(6, "\x01")}, manifest.BadEdit},
		"creation time without an end":    {[]edit{move().FileField(6, "\x80").EndFile()}, manifest.BadEdit},
		"short log number":                {[]edit{move().FileField(3, "\x01").EndFile()}, manifest.BadEdit},
		"temperature of two bytes":        {[]edit{move().FileField(9, "ab").EndFile()}, manifest.BadEdit},
		"compaction mark of no bytes":     {[]edit{move().FileField(2, "").EndFile()}, manifest.BadEdit},
		"timestamp mark of two bytes":     {[]edit{move().FileField(16, "ab").EndFile()}, manifest.BadEdit},
		"old forms":                       {[]edit{event().Delete(6, 9).AddOld(7, again).AddOld(100, file{Number: 10}).AddOld(102, file{Number: 11})}, accepted},
		"negative level":                  {[]edit{event().Tag(6, "\xff\xff\xff\xff\x0f\x09")}, manifest.BadEdit},
		"short key":                       {[]edit{event().Tag(5, "\x00\x03abc")}, manifest.BadEdit},
		"key of an impossible type":       {[]edit{cursor(0x19)}, manifest.BadEdit},
		"key of type 0x7f":                {[]edit{cursor(0x7f)}, manifest.BadEdit},
		"key of the last type":            {[]edit{cursor(0x1a)}, accepted},
		"key of a deletion":               {[]edit{cursor(0)}, accepted},
		"cursor":                          {[]edit{event().CompactCursor(1, "k")}, accepted},
		"empty history timestamp":         {[]edit{event().Field(8198, "")}, manifest.BadEdit},
		"history timestamp":               {[]edit{event().Field(8198, "12345678")}, accepted},
		"timestamp persistence too long":  {[]edit{event().Field(8201, "ab")}, manifest.BadEdit},
		"subcompaction progress":          {[]edit{event().Field(8202, "whatever")}, accepted}, // not looked into
		"compacted size":                  {[]edit{event().Field(8203, "\x05")}, accepted},
		"bad compacted size":              {[]edit{event().Field(8203, "\xff")}, manifest.BadEdit}, // ignored before 11
		"log twice":                       {[]edit{event().AddWAL(900, -1), event().AddWAL(900, -1)}, manifest.WALExists},
		"log twice, then synced":          {[]edit{event().AddWAL(900, -1), event().AddWAL(900, 10)}, accepted},
		"log with an unknown field":       {[]edit{event().Field(8199, "\x05\x03\x01")}, manifest.NewerFormat},
		"log addition cut":                {[]edit{event().Field(8199, "\x05")}, manifest.BadEdit},
		"log deletion cut":                {[]edit{event().Field(8200, "\x80")}, manifest.BadEdit},
		"logs without a length":           {[]edit{event().Tag(8196, "\x05\x01"), event().Tag(8197, "\x05")}, accepted},
		"garbage of no blob file":         {[]edit{event().BlobGarbage(900, 1, 1)}, manifest.FileMissing},
		"blob file twice":                 {[]edit{event().AddBlob(900, 1, 1), event().AddBlob(900, 1, 1)}, manifest.FileExists},
		"more garbage than blobs":         {[]edit{event().AddBlob(900, 1, 1), event().BlobGarbage(900, 2, 1)}, manifest.BlobGarbage},
		"more garbage than bytes":         {[]edit{event().AddBlob(900, 9, 1), event().BlobGarbage(900, 2, 2)}, manifest.BlobGarbage},
		"blob file with a new field":      {[]edit{event().Tag(400, "\x05\x01\x01\x00\x00\x41\x00\x00")}, manifest.NewerFormat},
		"blob file with a field to skip":  {[]edit{event().Tag(400, "\x05\x01\x01\x00\x00\x05\x01x\x00")}, accepted},
		"old tags of blob files":          {[]edit{event().Tag(8194, "\x05\x01\x01\x00\x00\x00"), event().Tag(8195, "\x05\x01\x01\x00")}, accepted},
		"tag without an end":              {[]edit{append(event(), 0x80)}, manifest.BadEdit},
		"tag with bits beyond the 32nd":   {[]edit{append(event(), 0x84, 0x80, 0x80, 0x80, 0x70, 0x05)}, accepted},
		"tag of six bytes":                {[]edit{append(event(), 0x84, 0x80, 0x80, 0x80, 0x80, 0x01)}, manifest.BadEdit},
		"empty edit":                      {[]edit{{}}, accepted},
		"log number goes back":            {[]edit{event().LogNumber(1)}, accepted},
		"family without comparator":       {[]edit{event().AddFamily(5, "x"), event().LogNumber(5).Family(5)}, accepted},
	}
	whole := mustLoad(t, rockstest.Manifest(base...))
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := rockstest.Manifest(append(slices.Clone(base), test.edits...)...)
			got, err := load(data)
			if test.want == accepted {
				if err != nil || got.Size != int64(len(data)) {
					t.Fatalf("refused: %v at %d of %d", err, got.Size, len(data))
				}
				return
			}
			e := defect(t, err)
			if e.Kind != test.want || strings.HasPrefix(e.Kind.String(), "kind ") || e.Expected == "" || e.Found == "" {
				t.Fatalf("got %v, want %v", e, test.want)
			}
			if e.Newer() != (test.want == manifest.NewerFormat) || e.Partial() {
				t.Errorf("newer %v, partial %v", e.Newer(), e.Partial())
			}
			// The State is the one before the edit or group that is at fault.
			before := rockstest.Manifest(append(slices.Clone(base), test.edits[:len(test.edits)-1]...)...)
			if strings.HasPrefix(name, "group") {
				before = rockstest.Manifest(base...)
			} else if e.Offset != int64(len(before)) {
				t.Errorf("offset %d, the edit starts at %d", e.Offset, len(before))
			}
			if want, werr := load(before); werr != nil || same(want, got) != "" {
				t.Errorf("State (-before +got), %v:\n%s", werr, same(want, got))
			}
			// And following it from the base says the same.
			followed, ferr := whole.Follow(bytes.NewReader(data), int64(len(data)))
			if diff := same(got, followed); diff != "" || *defect(t, ferr) != *e {
				t.Errorf("followed: %v (-loaded +followed):\n%s", ferr, diff)
			}
		})
	}
}

func TestIncomplete(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		edits []edit
		want  string // what is missing; empty if nothing
	}{
		"empty":            {nil, "log number, the next file number, the last sequence"},
		"an empty edit":    {[]edit{{}}, "log number, the next file number, the last sequence"},
		"only the log":     {[]edit{edit{}.LogNumber(1)}, "next file number, the last sequence"},
		"only the next":    {[]edit{edit{}.NextFile(1)}, "log number, the last sequence"},
		"no next":          {[]edit{edit{}.LogNumber(1).LastSequence(1)}, "the next file number"},
		"as a new one":     {[]edit{edit{}.LogNumber(0).NextFile(2).LastSequence(0)}, ""},
		"log with logs":    {[]edit{edit{}.NextFile(9).LastSequence(1), edit{}.LogNumber(5).AddWAL(5, -1)}, "log number"},
		"log of a dropped": {[]edit{edit{}.NextFile(9).LastSequence(1).AddFamily(1, "a").LogNumber(3), edit{}.DropFamily(1).LogNumber(5)}, ""},
		"dropped with a log": {[]edit{edit{}.NextFile(9).LastSequence(1), edit{}.AddFamily(1, "a"),
			edit{}.DropFamily(1).LogNumber(5)}, "log number"},
	}
	for name, test := range tests {
		data := rockstest.Manifest(test.edits...)
		s, err := load(data)
		if test.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		e := defect(t, err)
		if e.Kind != manifest.Incomplete || !strings.Contains(e.Expected, test.want) || e.Partial() || s.Size != int64(len(data)) {
			t.Errorf("%s: %v, read to %d of %d", name, e, s.Size, len(data))
		}
		// It may become complete.
		more := append(bytes.Clone(data), rockstest.Manifest(head())...)
		if s, err := s.Follow(bytes.NewReader(more), int64(len(more))); err != nil || s.NextFile != 8 {
			t.Errorf("%s, completed: %v", name, err)
		}
	}
	// A cut one that is not complete is not just cut.
	data := rockstest.Manifest(edit{}.NextFile(9), head())
	_, err := load(data[:len(data)-1])
	re, ok := errors.AsType[*record.Error](err)
	if e := defect(t, err); e.Kind != manifest.Incomplete || e.Partial() || !ok || re.Kind != record.TruncatedBody {
		t.Errorf("cut: %v", e)
	}
}

func TestPendingGroup(t *testing.T) {
	t.Parallel()
	edits := []edit{
		head(), event().AddFamily(1, "data"),
		event().LogNumber(5).Add(file{Number: 10, Size: 1}).Group(2),
		event().LogNumber(5).Add(file{Number: 11, Size: 2}).Family(1).Group(1),
		event().LogNumber(6).Add(file{Number: 12, Size: 3}).Family(1).Group(0),
		event().LogNumber(7),
	}
	before := mustLoad(t, rockstest.Manifest(edits[:2]...))
	s := before
	for n := 3; n <= 4; n++ {
		data := rockstest.Manifest(edits[:n]...)
		var err error
		if s, err = s.Follow(bytes.NewReader(data), int64(len(data))); err != nil {
			t.Fatal(err)
		}
		if !s.PendingGroup || s.Size != before.Size || s.Edits != 2 || numbers(s, 0) != nil {
			t.Fatalf("after %d edits: %+v", n, s)
		}
		if again, err := s.Follow(bytes.NewReader(data), int64(len(data))); err != nil || again != s {
			t.Errorf("nothing new after %d edits: another State, %v", n, err)
		}
	}
	data := rockstest.Manifest(edits...)
	s, err := s.Follow(bytes.NewReader(data), int64(len(data)))
	if err != nil || s.PendingGroup || s.Edits != 6 || s.Counts.Flushes != 3 || s.Counts.FlushedBytes != 6 {
		t.Fatalf("%v, %+v", err, s)
	}
	if diff := cmp.Diff([]uint64{11, 12}, numbers(s, 1)); diff != "" || s.Families[0].LogNumber != 7 || s.Families[1].LogNumber != 6 {
		t.Errorf("%+v\n%s", s.Families, diff)
	}
}

// RocksDB looks at the edits of a group when it is whole.
func TestABadEditInAPendingGroupIsNoDefect(t *testing.T) {
	t.Parallel()
	base := rockstest.Manifest(head(), event().LogNumber(4).Add(file{Number: 9, Size: 1}))
	bad := event().Delete(0, 9).Delete(0, 999).LogNumber(8).LastSequence(999).Group(2)
	data := rockstest.AppendRecord(bytes.Clone(base), bad)
	s, err := load(data)
	want := *mustLoad(t, base)
	want.PendingGroup = true
	if diff := same(&want, s); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	// What is wrong with the group itself comes first.
	if _, err := load(rockstest.AppendRecord(bytes.Clone(data), event().Group(0))); defect(t, err).Kind != manifest.AtomicGroup {
		t.Errorf("a group that counts wrong: %v", err)
	}
	whole := rockstest.AppendRecord(rockstest.AppendRecord(bytes.Clone(data), event().Group(1)), event().Group(0))
	if s, err := load(whole); defect(t, err).Kind != manifest.FileMissing || defect(t, err).Offset != int64(len(base)) || s.Size != int64(len(base)) {
		t.Errorf("whole: %v", err)
	}
	// A group does not make a MANIFEST complete before it is whole.
	if _, err := load(rockstest.Manifest(edit{}.LogNumber(1).LastSequence(1), event().Group(1))); err == nil || defect(t, err).Kind != manifest.Incomplete {
		t.Errorf("complete by half a group: %v", err)
	}
}

func TestTrackedWALs(t *testing.T) {
	t.Parallel()
	edits := []edit{
		head(),
		event().AddWAL(7, -1).AddWAL(5, -1).AddWAL(6, 60),
		event().AddWAL(5, 50),
		event().AddWAL(5, 40), // out of order
		event().DeleteWALsBefore(6),
		event().AddWAL(5, -1), // gone already
		event().AddWAL(9, -1),
		event().DeleteWALsBefore(3), // goes back
	}
	want := [][]manifest.WAL{
		nil,
		{{Number: 5}, {Number: 6, SyncedSize: 60, Synced: true}, {Number: 7}},
		{{Number: 5, SyncedSize: 50, Synced: true}, {Number: 6, SyncedSize: 60, Synced: true}, {Number: 7}},
		{{Number: 5, SyncedSize: 50, Synced: true}, {Number: 6, SyncedSize: 60, Synced: true}, {Number: 7}},
		{{Number: 6, SyncedSize: 60, Synced: true}, {Number: 7}},
		{{Number: 6, SyncedSize: 60, Synced: true}, {Number: 7}},
		{{Number: 6, SyncedSize: 60, Synced: true}, {Number: 7}, {Number: 9}},
		{{Number: 6, SyncedSize: 60, Synced: true}, {Number: 7}, {Number: 9}},
	}
	s := mustLoad(t, rockstest.Manifest(edits[0]))
	for i := range edits {
		data := rockstest.Manifest(edits[:i+1]...)
		if diff := cmp.Diff(want[i], mustLoad(t, data).WALs); diff != "" {
			t.Errorf("%d edits (-want +got):\n%s", i+1, diff)
		}
		var err error
		s, err = s.Follow(bytes.NewReader(data), int64(len(data)))
		if diff := cmp.Diff(want[i], s.WALs); diff != "" || err != nil {
			t.Errorf("%d edits, followed, %v (-want +got):\n%s", i+1, err, diff)
		}
	}
}

func TestBlobFiles(t *testing.T) {
	t.Parallel()
	type blob = manifest.Blob
	edits := []edit{
		head(),
		event().LogNumber(5).AddBlob(11, 10, 1000).AddBlob(12, 5, 500).Add(file{Number: 13, Size: 1, OldestBlob: 11}),
		event().LogNumber(5).AddBlob(14, 4, 400).Add(file{Number: 15, Size: 1, OldestBlob: 14}),
		event().BlobGarbage(12, 5, 500).BlobGarbage(14, 1, 100),
		event().Delete(0, 13).Add(file{Level: 1, Number: 16, Size: 1, OldestBlob: 14}),
		event().Delete(1, 16).Delete(0, 15),
	}
	want := [][]blob{
		nil,
		{{Number: 11, Count: 10, Bytes: 1000, Live: true}, {Number: 12, Count: 5, Bytes: 500, Live: true}},
		{{Number: 11, Count: 10, Bytes: 1000, Live: true}, {Number: 12, Count: 5, Bytes: 500, Live: true}, {Number: 14, Count: 4, Bytes: 400, Live: true}},
		{{Number: 11, Count: 10, Bytes: 1000, Live: true}, {Number: 12, Count: 5, Bytes: 500, GarbageCount: 5, GarbageBytes: 500},
			{Number: 14, Count: 4, Bytes: 400, GarbageCount: 1, GarbageBytes: 100, Live: true}},
		{{Number: 11, Count: 10, Bytes: 1000}, {Number: 12, Count: 5, Bytes: 500, GarbageCount: 5, GarbageBytes: 500},
			{Number: 14, Count: 4, Bytes: 400, GarbageCount: 1, GarbageBytes: 100, Live: true}},
		{{Number: 11, Count: 10, Bytes: 1000}, {Number: 12, Count: 5, Bytes: 500, GarbageCount: 5, GarbageBytes: 500},
			{Number: 14, Count: 4, Bytes: 400, GarbageCount: 1, GarbageBytes: 100}},
	}
	var states []*manifest.State
	s := mustLoad(t, rockstest.Manifest(edits[0]))
	for i := range edits {
		data := rockstest.Manifest(edits[:i+1]...)
		if diff := cmp.Diff(want[i], mustLoad(t, data).Families[0].Blobs); diff != "" {
			t.Errorf("%d edits (-want +got):\n%s", i+1, diff)
		}
		var err error
		if s, err = s.Follow(bytes.NewReader(data), int64(len(data))); err != nil {
			t.Fatal(err)
		}
		states = append(states, s)
	}
	for i, s := range states { // all of them, after all following
		if diff := cmp.Diff(want[i], s.Families[0].Blobs); diff != "" {
			t.Errorf("%d edits, followed (-want +got):\n%s", i+1, diff)
		}
	}
}

// A flush has a log number, a compaction deletions, an ingestion neither, and
// the snapshot no next file number.
func TestCounts(t *testing.T) {
	t.Parallel()
	start := []edit{head(), event().AddFamily(1, "x"), edit{}.LogNumber(4).Add(file{Number: 9, Size: 900}).Add(file{Level: 6, Number: 10, Size: 1000})}
	tests := map[string]struct {
		edit edit
		want manifest.Counts
	}{
		"snapshot":               {edit{}.LogNumber(4).Add(file{Number: 11, Size: 5}), manifest.Counts{}},
		"log number only":        {event().LogNumber(5), manifest.Counts{}},
		"flush":                  {event().LogNumber(5).Add(file{Number: 11, Size: 5}), manifest.Counts{Flushes: 1, FlushedBytes: 5}},
		"recovery, two tables":   {event().LogNumber(5).Add(file{Number: 11, Size: 5}).Add(file{Number: 12, Size: 6}), manifest.Counts{Flushes: 2, FlushedBytes: 11}},
		"ingestion":              {event().Add(file{Level: 6, Number: 11, Size: 5}), manifest.Counts{IngestedFiles: 1, IngestedBytes: 5}},
		"compaction":             {event().Delete(0, 9).Delete(6, 10).Add(file{Level: 6, Number: 11, Size: 5}), manifest.Counts{Compactions: 1, CompactionReadBytes: 1900, CompactionWrittenBytes: 5}},
		"compaction to nothing":  {event().Delete(6, 10), manifest.Counts{Compactions: 1, CompactionReadBytes: 1000}},
		"move":                   {event().Delete(0, 9).Add(file{Level: 5, Number: 9, Size: 900}), manifest.Counts{TrivialMoves: 1}},
		"move of two":            {event().Delete(0, 9).Delete(6, 10).Add(file{Level: 5, Number: 9, Size: 900}).Add(file{Level: 5, Number: 10, Size: 1000}), manifest.Counts{TrivialMoves: 1}},
		"compaction with a move": {event().Delete(0, 9).Delete(6, 10).Add(file{Level: 5, Number: 9, Size: 900}).Add(file{Level: 5, Number: 11, Size: 5}), manifest.Counts{Compactions: 1, CompactionReadBytes: 1000, CompactionWrittenBytes: 5}},
	}
	for name, test := range tests {
		s := mustLoad(t, rockstest.Manifest(append(slices.Clone(start), test.edit)...))
		if diff := cmp.Diff(test.want, s.Counts); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(s.Counts, s.Families[0].Counts); diff != "" {
			t.Errorf("%s: family (-all +family):\n%s", name, diff)
		}
	}
	var sum manifest.Counts
	one := manifest.Counts{1, 2, 3, 4, 5, 6, 7, 8}
	sum.Add(one)
	sum.Add(one)
	if diff := cmp.Diff(manifest.Counts{2, 4, 6, 8, 10, 12, 14, 16}, sum); diff != "" {
		t.Errorf("Add (-want +got):\n%s", diff)
	}
}

// model is the simplest thing that can follow tables.
type model map[uint64]manifest.File

// Random edits, against a model; then the same MANIFEST in random steps, with a
// State kept from each, and none of them changed by what came after it.
func TestFollowIsLoadAndChangesNothing(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	rounds := 40
	if rockstest.Race {
		rounds = 8
	}
	for range rounds {
		families := 1 + rng.IntN(30)
		edits := []edit{head()}
		models := []model{{}}
		for f := 1; f < families; f++ {
			edits = append(edits, event().AddFamily(uint32(f), "f"))
			models = append(models, model{})
		}
		next := uint64(10)
		for n := 1 + rng.IntN(120); n > 0; n-- {
			f := rng.IntN(families)
			e := event().LogNumber(4)
			var gone []manifest.File
			for _, old := range models[f] {
				if rng.IntN(4) == 0 {
					gone = append(gone, old)
				}
			}
			for _, old := range gone {
				e = e.Delete(old.Level, old.Number)
				delete(models[f], old.Number)
			}
			for range rng.IntN(6) {
				next += uint64(rng.IntN(3))
				number := next
				if len(gone) > 0 && rng.IntN(3) == 0 {
					number = gone[rng.IntN(len(gone))].Number // moved
				} else if rng.IntN(3) == 0 && next > 50 {
					number = next - uint64(rng.IntN(40)) // installed late
				}
				if _, there := models[f][number]; there {
					continue
				}
				file := manifest.File{Number: number, Size: number * 10, Level: rng.IntN(7)}
				models[f][number] = file
				e = e.Add(rockstest.File{Number: number, Size: file.Size, Level: file.Level})
			}
			e = e.Family(uint32(f))
			if rng.IntN(3) == 0 {
				edits = append(edits, e.Group(1))
				e = event().Group(0)
			}
			edits = append(edits, e)
		}
		data := rockstest.Manifest(edits...)
		whole := mustLoad(t, data)
		for f, m := range models {
			var want []manifest.File
			for _, file := range m {
				want = append(want, file)
			}
			slices.SortFunc(want, func(a, b manifest.File) int { return (a.Level-b.Level)*100000 + int(a.Number) - int(b.Number) })
			if diff := cmp.Diff(want, whole.Families[f].Files, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(manifest.File{}, "UniqueID")); diff != "" {
				t.Fatalf("family %d (-model +loaded):\n%s", f, diff)
			}
		}

		type kept struct {
			state *manifest.State
			size  int
		}
		var all []kept
		s, _ := load(nil)
		for end := 0; end < len(data); {
			end = min(len(data), end+1+rng.IntN(1+len(data)/5))
			got, err := s.Follow(bytes.NewReader(data[:end]), int64(end))
			if err != nil && !defect(t, err).Partial() && defect(t, err).Kind != manifest.Incomplete {
				t.Fatal(err)
			}
			s = got
			all = append(all, kept{s, end})
		}
		if diff := same(whole, s); diff != "" {
			t.Fatalf("-loaded +followed:\n%s", diff)
		}
		for _, k := range all {
			want, _ := load(data[:k.size])
			if diff := same(want, k.state); diff != "" {
				t.Fatalf("the State at %d was changed (-loaded +kept):\n%s", k.size, diff)
			}
		}
	}
}

func TestFollowSharesWhatIsUnchanged(t *testing.T) {
	t.Parallel()
	edits := []edit{head(), event().AddFamily(1, "a"), event().Add(file{Number: 9}).Family(1), event().Add(file{Number: 10})}
	data := rockstest.Manifest(edits...)
	s := mustLoad(t, data)
	if again, err := s.Follow(bytes.NewReader(data), int64(len(data))); again != s || err != nil {
		t.Errorf("nothing new: another State, %v", err)
	}
	partial := append(bytes.Clone(data), 1, 2, 3)
	if again, err := s.Follow(bytes.NewReader(partial), int64(len(partial))); again != s || !defect(t, err).Partial() {
		t.Errorf("a partial tail: another State, %v", err)
	}
	more := rockstest.AppendRecord(bytes.Clone(data), event().Add(file{Number: 11}))
	next, err := s.Follow(bytes.NewReader(more), int64(len(more)))
	if err != nil || &next.Families[1].Files[0] != &s.Families[1].Files[0] || &next.Families[0].Files[0] == &s.Families[0].Files[0] {
		t.Errorf("family 1 is copied or family 0 is not: %v", err)
	}
	if s, err := next.Follow(bytes.NewReader(data), int64(len(data))); s != next || defect(t, err).Kind != manifest.Shrunk {
		t.Errorf("shrunk: %v", err)
	}
}

// readCounter says how far back Follow reads.
type readCounter struct {
	*bytes.Reader
	first int64
	fail  error
}

func (r *readCounter) ReadAt(p []byte, off int64) (int, error) {
	r.first = min(r.first, off)
	if r.fail != nil {
		return 0, r.fail
	}
	return r.Reader.ReadAt(p, off)
}

func TestFollowReadsOnlyWhatIsNew(t *testing.T) {
	t.Parallel()
	edits := rockstest.History(3, 200)
	data := rockstest.Manifest(edits...)
	half := rockstest.Manifest(edits[:len(edits)/2]...)
	s := mustLoad(t, half)
	r := &readCounter{Reader: bytes.NewReader(data), first: 1 << 40}
	if _, err := s.Follow(r, int64(len(data))); err != nil || r.first != s.Size {
		t.Errorf("read from %d, the State ends at %d, %v", r.first, s.Size, err)
	}
	gone := errors.New("gone")
	got, err := s.Follow(&readCounter{Reader: bytes.NewReader(data), fail: gone}, int64(len(data)))
	if _, typed := errors.AsType[*manifest.Error](err); typed || !errors.Is(err, gone) || got != s {
		t.Errorf("read failure: %v", err)
	}
}

func TestHistoryIsWhatItSays(t *testing.T) {
	t.Parallel()
	for families := 1; families <= 4; families++ {
		s := mustLoad(t, rockstest.Manifest(rockstest.History(families, 9)...))
		if len(s.Families) != families || int(s.Counts.Flushes) != 9*families || int(s.Counts.Compactions) != 3*families {
			t.Errorf("%d families: %d, %+v", families, len(s.Families), s.Counts)
		}
	}
}

func TestParseCurrent(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		data, name string
		number     uint64
		err        string // part of it
	}{
		{data: "MANIFEST-000005\n", name: "MANIFEST-000005", number: 5},
		{data: "MANIFEST-1234567\n", name: "MANIFEST-1234567", number: 1234567},
		{data: "MANIFEST-7\n", name: "MANIFEST-7", number: 7},
		{data: "MANIFEST-18446744073709551615\n", name: "MANIFEST-18446744073709551615", number: 1<<64 - 1},
		{data: "", err: "empty"},
		{data: "\x00\x00\x00", err: "3 NUL"},
		{data: "MANIFEST-000005", err: "no newline"},
		{data: "MANIFEST-000005\r\n", err: "not the name"},
		{data: "MANIFEST-000005\n\n", err: "not the name"},
		{data: "MANIFEST-000005 \n", err: "not the name"},
		{data: "MANIFEST-\n", err: "not the name"},
		{data: "MANIFEST-+5\n", err: "not the name"},
		{data: "MANIFEST-5\x00\n", err: "not the name"},
		{data: "../MANIFEST-000005\n", err: "not the name"},
		{data: "000005.log\n", err: "not the name"},
		{data: "\n", err: "not the name"},
		{data: "MANIFEST-18446744073709551616\n", err: "out of range"},
		{data: strings.Repeat("x", 1000) + "\n", err: "960 bytes more"},
	} {
		name, number, err := manifest.ParseCurrent([]byte(test.data))
		if test.err == "" {
			if err != nil || name != test.name || number != test.number {
				t.Errorf("%q: %q, %d, %v", test.data, name, number, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), test.err) || name != "" || number != 0 {
			t.Errorf("%.60q: %q, %v; want an error with %q", test.data, name, err, test.err)
		}
	}
	for number, want := range map[uint64]string{5: "MANIFEST-000005", 1234567: "MANIFEST-1234567"} {
		if got := manifest.Name(number); got != want {
			t.Errorf("Name(%d) = %q", number, got)
		}
	}
}
