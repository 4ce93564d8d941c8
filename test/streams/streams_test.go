package streams

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestAtLeast(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{"2.8.2": false, "3.4.1": false, "3.5.0": true, "3.10.0": true, "4.0.0": true} {
		if got := AtLeast(version, 3, 5); got != want {
			t.Errorf("%s at least 3.5: %v", version, got)
		}
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	o := Options{ExactlyOnce: true, SessionTimeout: 3 * time.Second, Config: map[string]string{"commit.interval.ms": "7"}}
	for version, guarantee := range map[string]string{"2.8.2": "exactly_once_beta", "3.0.0": "exactly_once_v2"} {
		c := o.config(version, "here:1", "app", "/state")
		for name, want := range map[string]string{
			"application.id":                      "app",
			"state.dir":                           "/state",
			"group.instance.id":                   "1",
			"processing.guarantee":                guarantee,
			"commit.interval.ms":                  "7",
			"main.consumer.session.timeout.ms":    "3000",
			"main.consumer.heartbeat.interval.ms": "500",
			"rocksdb.config.setter":               "",
		} {
			if c[name] != want {
				t.Errorf("%s: %s is %q, want %q", version, name, c[name], want)
			}
		}
	}
	o = Options{Dynamic: true, WriteBuffer: 1}
	c := o.config("4.4.0", "here:1", "app", "/state")
	if _, ok := c["group.instance.id"]; ok || c["lab.write.buffer.bytes"] != "1" || c["rocksdb.config.setter"] == "" {
		t.Errorf("dynamic with a small write buffer: %v", c)
	}
}

func TestSourcesOfProfiles(t *testing.T) {
	t.Parallel()
	app, err1 := sourcesOf("application")
	broker, err2 := sourcesOf("broker")
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	has := func(names []string, end string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, end) })
	}
	for _, tc := range []struct {
		end         string
		app, broker bool
	}{
		{"/lab/Control.java", true, true},
		{"/lab/app/Main.java", true, false},
		{"/internals/WalOnStore.java", true, false},
		{"/lab/broker/Main.java", false, true},
	} {
		if a, b := has(app, tc.end), has(broker, tc.end); a != tc.app || b != tc.broker {
			t.Errorf("%s: in application %v, in broker %v", tc.end, a, b)
		}
	}
	if hash(nil, app...) == hash(nil, broker...) {
		t.Error("one hash for different sources")
	}
}

func TestLastLines(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"": "", "a\n": "a", "a\nb\n": "a\nb", "a\nb\nc": "…\nb\nc"} {
		if got := lastLines(in, 2); got != want {
			t.Errorf("last 2 lines of %q: %q, want %q", in, got, want)
		}
	}
}
