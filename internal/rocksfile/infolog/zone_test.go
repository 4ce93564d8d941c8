package infolog_test

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"streams-sidecar/internal/rocksfile/infolog"
)

// writer makes logs of a process in a zone, on a clock of its own.
type writer struct {
	bytes.Buffer
	zone *time.Location
	now  time.Time
}

func start(t testing.TB, zone, now string) *writer {
	t.Helper()
	loc, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	at, err := time.Parse(time.RFC3339, now)
	if err != nil {
		t.Fatal(err)
	}
	return &writer{zone: loc, now: at}
}

func (w *writer) after(d time.Duration) *writer {
	w.now = w.now.Add(d)
	return w
}

func (w *writer) log(format string, args ...any) *writer {
	w.WriteString(w.now.In(w.zone).Format(layout) + " 140 " + fmt.Sprintf(format, args...) + "\n")
	return w
}

// error logs its own time in UTC, and whether Parse may know it.
func (w *writer) error(known string) *writer {
	return w.log("[ERROR] [/c.cc:1] %s %s", w.now.Format(time.RFC3339), known)
}

func (w *writer) event() *writer {
	return w.log(`EVENT_LOG_v1 {"time_micros": %d, "job": 3, "event": "flush_started"}`, w.now.UnixMicro()-9)
}

func (w *writer) info() *writer { return w.log("[/c.cc:1] something") }

// check reads the log as of a modification and compares each error's time with
// the one that is in its text.
func (w *writer) check(t *testing.T, modified time.Time) {
	t.Helper()
	got := infolog.Parse(w.Bytes(), modified)
	if len(got.Errors) == 0 {
		t.Error("no errors")
	}
	for _, l := range got.Errors {
		want, known, _ := strings.Cut(l.Text, " ")
		if known != "known" {
			want = "0001-01-01T00:00:00Z"
		}
		if at := l.Time.Format(time.RFC3339); at != want || l.Time.Location() != time.UTC {
			t.Errorf("%q is read as of %s, want %s, in\n%s", l.Text, at, want, w)
		}
	}
}

var zones = []string{"UTC", "Asia/Tokyo", "Asia/Kathmandu", "America/St_Johns", "Pacific/Kiritimati", "Etc/GMT+12", "Pacific/Marquesas", "Australia/Lord_Howe", "Pacific/Chatham"}

func TestZoneOfEvents(t *testing.T) {
	t.Parallel()
	for _, z := range zones {
		w := start(t, z, "2026-11-30T18:10:34Z").error("known").after(time.Hour).event().after(time.Hour).error("known")
		w.check(t, time.Time{})
		w.check(t, w.now.Add(1000*time.Hour)) // the file was copied
		w.after(22 * time.Hour).error("known").after(2 * time.Hour).error("unknown")
		w.check(t, time.Time{})
	}
}

func TestZoneOfTheLastLine(t *testing.T) {
	t.Parallel()
	for _, z := range zones {
		w := start(t, z, "2026-11-30T18:10:34Z").error("unknown").after(25 * time.Hour).error("known").after(time.Hour).error("known")
		for _, d := range []time.Duration{-2 * time.Second, 0, 2 * time.Second} {
			w.check(t, w.now.Add(d))
		}
	}
	for name, tc := range map[string]struct {
		zone  string
		last  func(*writer)
		delay time.Duration
		known string
	}{
		"a line of INFO":                {"Asia/Tokyo", func(w *writer) { w.info() }, 14 * time.Second, "known"},
		"a line of INFO, long ago":      {"Asia/Tokyo", func(w *writer) { w.info() }, 16 * time.Second, "unknown"},
		"an error, some seconds ago":    {"Asia/Tokyo", func(w *writer) { w.error("unknown") }, 3 * time.Second, "unknown"},
		"modified before":               {"Asia/Tokyo", func(w *writer) { w.info() }, -3 * time.Second, "unknown"},
		"a header":                      {"Asia/Tokyo", func(w *writer) { w.log("   Options.env: 0x7f4e13ed4fa0") }, time.Second, "unknown"},
		"an event of no time":           {"Asia/Tokyo", func(w *writer) { w.log(`EVENT_LOG_v1 {"time_micros": x`) }, time.Second, "unknown"},
		"modified a day and more later": {"UTC", func(w *writer) { w.info() }, 24*time.Hour + 15*time.Minute, "unknown"},
		"half an hour before a day":     {"UTC", func(w *writer) { w.info() }, -15 * time.Hour, "unknown"},
	} {
		w := start(t, tc.zone, "2026-11-30T18:10:34Z").error(tc.known).after(time.Minute)
		tc.last(w)
		t.Log(name)
		w.check(t, w.now.Add(tc.delay))
	}
}

// With an event more than a day ago, the last line still tells the zone.
func TestZoneOfTheLastLineAfterEvents(t *testing.T) {
	t.Parallel()
	w := start(t, "Asia/Tokyo", "2026-11-30T18:10:34Z").event().error("known").after(30 * time.Hour).error("known")
	w.check(t, w.now)
}

func TestNoZone(t *testing.T) {
	t.Parallel()
	start(t, "UTC", "2026-11-30T18:10:34Z").error("unknown").info().check(t, time.Time{})
	for name, event := range map[string]string{
		"of another moment": `EVENT_LOG_v1 {"time_micros": 1796062310000000, "job": 3}`,
		"of another year":   `EVENT_LOG_v1 {"time_micros": 1700000000000000, "job": 3}`,
		"of no time":        `EVENT_LOG_v1 {"time_micros": , "job": 3}`,
		"of any time":       `EVENT_LOG_v1 {"time_micros": 99999999999999999999999, "job": 3}`,
		"of 17 digits":      `EVENT_LOG_v1 {"time_micros": 99999999999999999, "job": 3}`,
		"in other words":    `event EVENT_LOG_v1 {"time_micros": 1796062234000000, "job": 3}`,
		"of 31 s ago":       `EVENT_LOG_v1 {"time_micros": 1796062203000000, "job": 3}`,
		"of 2 s from now":   `EVENT_LOG_v1 {"time_micros": 1796062236000000, "job": 3}`,
		"from a buffer":     `(Original Log Time 2026/11/30-18:10:34.000000) EVENT_LOG_v1 {"time_micros": 1796062234000000, "job": 3}`,
	} {
		t.Log(name)
		start(t, "UTC", "2026-11-30T18:10:34Z").error("unknown").log("%s", event).check(t, time.Time{})
	}
	// The same one, as RocksDB writes it.
	start(t, "UTC", "2026-11-30T18:10:34Z").error("known").log(`EVENT_LOG_v1 {"time_micros": 1796062234000000, "job": 3}`).check(t, time.Time{})
}

func TestNothingIsInTheFuture(t *testing.T) {
	t.Parallel()
	w := start(t, "Asia/Tokyo", "2026-11-30T18:10:34Z").event().after(time.Minute).error("known").after(9 * time.Second).error("unknown")
	w.check(t, w.now.Add(-6*time.Second))
}

func TestChangeOfClocks(t *testing.T) {
	t.Parallel()
	for name, w := range map[string]*writer{
		"forward, between two events": start(t, "Europe/Berlin", "2026-03-29T00:30:00Z").event().
			after(10 * time.Minute).error("known").after(10 * time.Minute).error("known").
			after(20 * time.Minute).error("known").after(30 * time.Minute).event(),
		"forward, where both fit": start(t, "Europe/Berlin", "2026-03-28T23:30:00Z").event().
			after(70 * time.Minute).error("unknown").after(8 * time.Hour).event(),
		"back, with lines on both sides": start(t, "Europe/Berlin", "2026-10-25T00:30:00Z").event().
			after(10 * time.Minute).error("known").after(19 * time.Minute).error("known").
			after(2 * time.Minute).error("known").after(time.Minute).event(),
		"back, and known on one side only": start(t, "Europe/Berlin", "2026-10-25T00:30:00Z").error("unknown").
			after(29 * time.Minute).error("unknown").after(2 * time.Minute).error("known").event(),
		"back, between two events and unseen": start(t, "Europe/Berlin", "2026-10-25T00:10:00Z").event().
			after(48 * time.Minute).error("unknown").after(65 * time.Minute).event().error("known"),
		"back, by half an hour": start(t, "Australia/Lord_Howe", "2026-04-04T14:50:00Z").event().
			after(9 * time.Minute).error("known").after(2 * time.Minute).error("known").event(),
		"back by half an hour, and known on one side only": start(t, "Australia/Lord_Howe", "2026-04-04T14:55:00Z").error("unknown").
			after(7 * time.Minute).event(),
		"forward, with threads out of order": start(t, "Europe/Berlin", "2026-03-29T00:30:00Z").event().
			after(-9 * time.Second).error("known").after(time.Hour).event().after(-time.Minute).error("known"),
		"not at all, with threads out of order": start(t, "Europe/Berlin", "2026-10-25T00:30:00Z").event().
			after(time.Minute).error("known").after(-10 * time.Second).error("known").after(-14 * time.Minute).error("known"),
	} {
		t.Log(name)
		w.check(t, time.Time{})
	}
	// By the last line alone: back, and known on one side only.
	w := start(t, "Europe/Berlin", "2026-10-25T00:55:00Z").error("unknown").after(10 * time.Minute).error("known").after(time.Hour).error("known")
	w.check(t, w.now)
}

// RocksDB 10.10.1 wrote these while its TZ put the clocks forward, or back, by
// an hour: TZ=STD0DST,J335/05:47:51,J340 and STD0DST,J300,J335/06:47:53. Every
// line is made an error in turn. Before the change it was 0 and 60 minutes
// ahead of UTC, and after it the other way round.
func TestRealChangeOfClocks(t *testing.T) {
	t.Parallel()
	stamp := regexp.MustCompile(`(?m)^(\S{26}) \d+ `)
	for name, offsets := range map[string][2]time.Duration{
		"clocks-forward.txt": {0, time.Hour},
		"clocks-back.txt":    {time.Hour, 0},
	} {
		data := testdata(t, name)
		places := stamp.FindAllSubmatchIndex(data, -1)
		if len(places) != 50 {
			t.Fatalf("%s: %d lines", name, len(places))
		}
		for i, at := range places {
			if strings.HasPrefix(string(data[at[1]:]), "EVENT_LOG_v1") {
				continue
			}
			log := string(data[:at[1]]) + "[ERROR] " + string(data[at[1]:])
			got := infolog.Parse([]byte(log), time.Time{})
			local, err := time.Parse(layout, string(data[at[2]:at[3]]))
			if err != nil || len(got.Errors) != 1 {
				t.Fatalf("%s: line %d: %v, %+v", name, i, err, got)
			}
			side := 0
			if i >= 25 {
				side = 1
			}
			if want := local.Add(-offsets[side]); !got.Errors[0].Time.Equal(want) {
				t.Errorf("%s: line %d: %v, want %v", name, i, got.Errors[0].Time, want)
			}
		}
	}
}

// A real log, as if its process had run in Tokyo: the same times come out.
func TestRealLogOfAnotherZone(t *testing.T) {
	t.Parallel()
	tokyo, err := time.LoadLocation("Asia/Tokyo")
	if err != nil {
		t.Fatal(err)
	}
	stamp := regexp.MustCompile(`\d{4}/\d\d/\d\d-\d\d:\d\d:\d\d\.\d{6}`)
	lines := 0
	for _, f := range logs(t, "2.8.2", "closed-infolog") {
		moved := stamp.ReplaceAllFunc(f.data, func(b []byte) []byte {
			at, err := time.Parse(layout, string(b))
			if err != nil {
				t.Fatal(err)
			}
			return []byte(at.In(tokyo).Format(layout))
		})
		want, got := infolog.Parse(f.data, f.modified), infolog.Parse(moved, f.modified)
		lines += len(got.Warnings)
		ignored := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Stamp" }, cmp.Ignore())
		if diff := cmp.Diff(want, got, ignored); diff != "" {
			t.Errorf("%s (-UTC +Tokyo):\n%s", f.path, diff)
		}
	}
	if lines == 0 {
		t.Error("no lines")
	}
}
