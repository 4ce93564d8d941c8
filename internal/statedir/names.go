package statedir

import (
	"cmp"
	"math"
	"strconv"
	"strings"
	"time"
)

// The names that Kafka Streams itself gives (StateDirectory,
// StateManagerUtil, RocksDBStore).
const (
	lockName       = ".lock"
	processName    = "kafka-streams-process-metadata"
	checkpointName = ".checkpoint"
	rocksdbName    = "rocksdb"

	// storeCheckpointPrefix begins the checkpoint of a custom store that does
	// not manage its own offsets (4.3, LegacyCheckpointingStateStore).
	storeCheckpointPrefix = checkpointName + "_"
	positionSuffix        = ".position"
	temporarySuffix       = ".tmp"

	// sidecarName is the sidecar's own folder, never looked into.
	sidecarName = ".streams-sidecar"
	// lostFoundName is mkfs's own folder at the root of a volume, which only
	// root may read.
	lostFoundName = "lost+found"
)

// GlobalName is the directory, and the id, of the task of the global stores.
const GlobalName = "global"

// IsTaskName says that a name is that of a task: Streams' own full match of \d+_\d+.
func IsTaskName(name string) bool {
	subtopology, partition, ok := strings.Cut(name, "_")
	return ok && isDigits(subtopology) && isDigits(partition)
}

// taskNumbers splits the name of a task. ok is false where a number does not
// fit an int32: Streams' regular expression lets it pass, and its parser then
// throws TaskIdFormatException.
func taskNumbers(name string) (subtopology, partition int32, ok bool) {
	a, b, _ := strings.Cut(name, "_")
	s, err := strconv.ParseInt(a, 10, 32)
	if err != nil {
		return 0, 0, false
	}
	p, err := strconv.ParseInt(b, 10, 32)
	return int32(s), int32(p), err == nil
}

// topologyOf gives the name of the topology that a folder __name__ is of.
func topologyOf(name string) (string, bool) {
	if len(name) < len("__x__") || !strings.HasPrefix(name, "__") || !strings.HasSuffix(name, "__") {
		return "", false
	}
	return name[2 : len(name)-2], true
}

func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

const segmentDate = "200601021504" // yyyyMMddHHmm, UTC

// segmentStart says whether a name is that of a segment of the store, and when
// it begins. Three forms were written over time (AbstractSegments):
// <store>.<ms>, <store>:<ms> and <store>-<yyyyMMddHHmm>. Streams itself never
// compares the store's part of the name and would take other names for a
// segment as well, but then opens one of another name; so these are not ours.
// known is false for twelve digits that are no date, which Streams' lenient
// parser moves to some other time.
func segmentStart(store, name string) (millis int64, known, ok bool) {
	if len(name) <= len(store)+1 || !strings.HasPrefix(name, store) {
		return 0, false, false
	}
	separator, number := name[len(store)], name[len(store)+1:]
	if !isDigits(number) {
		return 0, false, false
	}
	switch separator {
	case '.', ':':
		millis, err := strconv.ParseInt(number, 10, 64)
		if err != nil || number[0] == '0' && number != "0" {
			return 0, false, false
		}
		return millis, true, true
	case '-':
		if len(number) != len(segmentDate) {
			return 0, false, false
		}
		t, err := time.Parse(segmentDate, number)
		if err != nil {
			return 0, false, true
		}
		return t.UnixMilli(), true, true
	default:
		return 0, false, false
	}
}

// What people and scripts append to a directory that they put aside.
var asideWords = []string{
	"backup", "bad", "bak", "broken", "copy", "corrupt", "corrupted", "damaged", "deleted",
	"disabled", "old", "orig", "quarantine", "quarantined", "removed", "saved", "trash",
}

// looksSetAside says that a name ends like that of something put aside: after
// a dot one of the usual words, by itself or with something appended that is
// no letter (kv.bak, kv.old.2, kv.quarantine-20261130), or with a tilde.
func looksSetAside(name string) bool {
	if strings.HasSuffix(name, "~") {
		return true
	}
	_, rest, dotted := strings.Cut(name, ".")
	for dotted {
		part := rest
		part, rest, dotted = strings.Cut(part, ".")
		for _, w := range asideWords {
			if len(part) >= len(w) && strings.EqualFold(part[:len(w)], w) && (len(part) == len(w) || !isLetter(part[len(w)])) {
				return true
			}
		}
	}
	return false
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// compareTasks orders tasks as the package promises: by number, those of named
// topologies after the others, global last.
func compareTasks(a, b *Task) int {
	return cmp.Or(
		compareBool(a.Global, b.Global),
		strings.Compare(a.Topology, b.Topology),
		cmp.Compare(a.Subtopology, b.Subtopology),
		cmp.Compare(a.Partition, b.Partition),
		strings.Compare(a.ID, b.ID), // 0_1 and 00_1
	)
}

func compareApplications(a, b *Application) int { return strings.Compare(a.ID, b.ID) }

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

func compareStores(a, b *Store) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), compareBool(a.Segmented, b.Segmented))
}

// compareSegments puts a segment whose start is not known first, where it
// cannot be taken for the newest.
func compareSegments(a, b Segment) int {
	return cmp.Or(cmp.Compare(a.order(), b.order()), strings.Compare(a.Name, b.Name))
}

func (s *Segment) order() int64 {
	if !s.StartKnown {
		return math.MinInt64
	}
	return s.StartMillis
}

// ChangelogTopic is the topic that a store of the task is restored from, where
// the topology does not make it reuse its source topic. app is the application
// id, store the store's name.
func (t *Task) ChangelogTopic(app, store string) string {
	if t.Topology != "" {
		return app + "-" + t.Topology + "-" + store + "-changelog"
	}
	return app + "-" + store + "-changelog"
}

// join is filepath.Join without its cleaning, which would change names.
func join(dir, name string) string {
	if strings.HasSuffix(dir, "/") {
		return dir + name
	}
	return dir + "/" + name
}

// within says that a resolved path is dir or lies below it.
func within(dir, path string) bool {
	rest, ok := strings.CutPrefix(path, dir)
	return ok && (rest == "" || rest[0] == '/' || strings.HasSuffix(dir, "/"))
}
