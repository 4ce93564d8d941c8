package infolog

import (
	"bytes"
	"math"
	"sort"
	"time"
)

// Durations and times here are in microseconds: nanoseconds overflow between a
// stamp of the year 9999 and a time of today.
const (
	second = int64(time.Second / time.Microsecond)
	minute = 60 * second
	hour   = 60 * minute

	step              = 15 * minute // every zone in use is a multiple of it off UTC, and changes by twice as much or more
	west, east        = -12 * hour, 14 * hour
	reach             = 24 * hour // of a known place; see Line
	backwards         = step      // threads stamp before they queue for the file, so that smaller steps are no change of clocks
	disorder          = 10 * second
	future            = 5 * second
	eventDelay        = 30 * second // from an event's own time to its stamp
	earlyModification = 2 * second  // file systems with a clock that ticks, or counts in (two) seconds
	// How old a line may be when it is written to the file. From 6.14 on, RocksDB
	// writes those from WARN on at once (env/env.cc). Others wait for the next
	// line five seconds later, or, from 6.14 on, for a task that runs every ten
	// (logging/env_logger.h, db/periodic_task_scheduler.cc).
	warnDelay = 2 * second
	infoDelay = 15 * second
)

// pairing is a place where the offset of the stamps to UTC is known.
type pairing struct {
	at      int // in the data
	section int
	stamp   int64
	offset  int64 // of the local time, east of UTC
}

func (p *pairing) utc() int64 { return p.stamp - p.offset }

// near says whether it holds for a message.
func (p *pairing) near(m *message) bool {
	d := p.stamp - m.stamp
	return p.section == m.section && -reach <= d && d <= reach
}

// pair finds the offset of a local time by a time in UTC, both of about the
// same moment: the local one at most early before it, at most late after it.
func pair(stamp, utc, early, late int64) (offset int64, ok bool) {
	d := stamp - utc
	offset = int64(math.Round(float64(d)/float64(step))) * step
	d -= offset
	return offset, west <= offset && offset <= east && -early <= d && d <= late
}

var event = []byte(`EVENT_LOG_v1 {"time_micros": `)

// pair reads an event (logging/event_logger.h). It passes over those that
// waited in a buffer, maybe for a whole compaction, in which the clocks may
// have changed (logging/log_buffer.cc, util/log_buffer.cc up to 5): before
// each of them there are others that did not.
func (h *head) pair(text []byte) (pairing, bool) {
	digits, ok := bytes.CutPrefix(text, event)
	if !ok {
		return pairing{}, false
	}
	var utc int64
	for i, b := range digits {
		if b < '0' || b > '9' {
			break
		}
		if i == 17 { // beyond the year 5000
			return pairing{}, false
		}
		utc = 10*utc + int64(b-'0')
	}
	offset, ok := pair(h.stamp, utc, second, eventDelay)
	return pairing{stamp: h.stamp, offset: offset}, ok
}

// zone is what is known of the offset to UTC, in the order of the data.
type zone struct {
	known []pairing
	limit int64 // no time is later
}

func (p *parser) zone(modified time.Time) zone {
	z := zone{known: p.events, limit: math.MaxInt64}
	if modified.IsZero() {
		return z
	}
	z.limit = modified.UnixMicro() + future
	last := &p.message
	if n := len(z.known); !p.any || n > 0 && z.known[n-1].near(last) {
		return z
	}
	delay := infoDelay
	switch {
	case last.level >= Warn:
		delay = warnDelay
	case last.source == last.sourceEnd:
		// A header. RocksDB 5.18 writes them at every level and without need keeps
		// the last ones back until it closes the file.
		return z
	}
	if offset, ok := pair(last.stamp, modified.UnixMicro(), delay, earlyModification); ok {
		z.known = append(z.known, pairing{at: last.from, section: last.section, stamp: last.stamp, offset: offset})
	}
	return z
}

// time is that of a message, zero if it is not known.
func (z *zone) time(m *message) time.Time {
	utc, ok := z.utc(m)
	if !ok || utc > z.limit {
		return time.Time{}
	}
	return time.UnixMicro(utc).UTC()
}

func (z *zone) utc(m *message) (utc int64, ok bool) {
	after := sort.Search(len(z.known), func(i int) bool { return z.known[i].at > m.from })
	var sides []*pairing
	if after > 0 && z.known[after-1].near(m) {
		sides = append(sides, &z.known[after-1])
	}
	if after < len(z.known) && z.known[after].near(m) {
		sides = append(sides, &z.known[after])
	}
	switch {
	case len(sides) == 0:
		return 0, false
	case len(sides) == 1 || sides[0].offset == sides[1].offset:
		return m.stamp - sides[0].offset, true
	}
	// The clocks changed in between: which of the two fits?
	first, last := sides[0].utc()-disorder, sides[1].utc()+disorder
	for _, p := range sides {
		t := m.stamp - p.offset
		if t < first || t > last {
			continue
		}
		if ok {
			return 0, false
		}
		utc, ok = t, true
	}
	return utc, ok
}
