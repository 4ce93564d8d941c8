package main

import (
	"strings"
	"testing"
	"time"

	"streams-sidecar/internal/probe"
	"streams-sidecar/internal/shutdown"
	"streams-sidecar/internal/shutdown/trigger"
	"streams-sidecar/internal/statedir"
	"streams-sidecar/internal/store"
)

// pictureOf is an application of so many stores in two tasks.
func pictureOf(id string, stores int) *probe.Snapshot {
	held := true
	task := func(n int) *store.Task { return &store.Task{Stores: make([]*store.Store, n)} }
	app := &store.Application{Layout: &statedir.Application{ID: id}, Running: &held, Tasks: []*store.Task{task(stores / 2), task(stores - stores/2)}}
	return &probe.Snapshot{StateDirs: []*store.StateDir{{Layout: &statedir.Dir{}, Applications: []*store.Application{app}}}}
}

// lastClose is a clean end that took so long.
func lastClose(id string, dir, stores int, seconds float64) shutdown.LastShutdown {
	return shutdown.LastShutdown{Dir: dir, Shutdown: shutdown.Shutdown{Application: id, Outcome: shutdown.ClosedClean, Stores: stores, CloseSeconds: &seconds}}
}

// A02: close times grow with the number of stores, and nobody adds up the limits
// that are stacked on each other: the advice has the sum.
func TestCaseA02(t *testing.T) {
	t.Parallel()
	unclean := lastClose("app", 0, 100, 3)
	unclean.Outcome = shutdown.ClosedUnclean
	for _, c := range []struct {
		name           string
		stores         int
		timeout, grace time.Duration
		last           []shutdown.LastShutdown
		says           string // "" for nothing
	}{
		{name: "thirty seconds for a hundred stores", stores: 100, timeout: 25 * time.Second, grace: 30 * time.Second,
			says: "closing will take about 30s (estimated at 300ms for each of 100 stores), but a preStop call has 25s: with the 5s that the application needs after it, set terminationGracePeriodSeconds to 35 or more"},
		{name: "three minutes", stores: 100, grace: 180 * time.Second},
		{name: "a timeout that does not fit the grace period", stores: 100, timeout: 25 * time.Second, grace: 180 * time.Second, says: "a preStop call has 25s"},
		{name: "nothing is set", stores: 51, says: "a preStop call has 15s"},
		{name: "nothing is set, and it just fits", stores: 50},
		{name: "the last close was short", stores: 100, grace: 30 * time.Second, last: []shutdown.LastShutdown{lastClose("app", 0, 100, 8)}},
		{name: "the last close was long", stores: 10, grace: 30 * time.Second, last: []shutdown.LastShutdown{lastClose("app", 0, 10, 40)},
			says: "about 40s (the last close of 10 stores took 40.0 s, now there are 10), but a preStop call has 25s: with the 5s that the application needs after it, set terminationGracePeriodSeconds to 45 or more"},
		{name: "there are more stores than at the last close", stores: 40, grace: 30 * time.Second, last: []shutdown.LastShutdown{lastClose("app", 0, 10, 8)}, says: "about 32s"},
		{name: "there are fewer", stores: 5, grace: 30 * time.Second, last: []shutdown.LastShutdown{lastClose("app", 0, 10, 20)}},
		{name: "the last close was cut short", stores: 100, grace: 30 * time.Second, last: []shutdown.LastShutdown{unclean}, says: "estimated"},
		{name: "it was another application's", stores: 100, grace: 30 * time.Second, last: []shutdown.LastShutdown{lastClose("other", 0, 100, 1), lastClose("app", 1, 100, 1)}, says: "estimated"},
		{name: "it was not preceded by a call", stores: 100, grace: 30 * time.Second,
			last: []shutdown.LastShutdown{{Shutdown: shutdown.Shutdown{Application: "app", Outcome: shutdown.ClosedClean, Stores: 100}}}, says: "estimated"},
	} {
		p := newPrestopAdvice(&shutdown.Config{Trigger: shutdown.TriggerNone, Timeout: c.timeout, Grace: c.grace}, "")
		got := p.on(pictureOf("app", c.stores), c.last)
		switch {
		case c.says == "" && len(got) > 0, c.says != "" && len(got) != 1:
			t.Errorf("%s: %+v", c.name, got)
		case c.says != "" && (got[0].Code != "grace-too-short" || got[0].Subject != "app" || !strings.Contains(got[0].Text, c.says)):
			t.Errorf("%s: %+v, want %q", c.name, got[0], c.says)
		}
	}
}

// TestPrestopAdviceAtStart: settings that cannot work are said before anything
// has happened.
func TestPrestopAdviceAtStart(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		cfg       shutdown.Config
		tokenFile string
		want      string // codes
	}{
		{"nobody may trigger", shutdown.Config{Trigger: "auto"}, "", "prestop-cannot-trigger"},
		{"somebody may", shutdown.Config{Trigger: "auto"}, "/token", ""},
		{"nothing is to be triggered", shutdown.Config{Trigger: "none"}, "", ""},
		// F01: the hook's time is taken out of the grace period.
		{"the hook eats it all", shutdown.Config{Trigger: "none", Timeout: 56 * time.Second, Grace: time.Minute}, "", "hook-eats-grace"},
		{"it leaves just enough", shutdown.Config{Trigger: "none", Timeout: 55 * time.Second, Grace: time.Minute}, "", ""},
		{"only the one is known", shutdown.Config{Trigger: "none", Timeout: time.Hour}, "", ""},
	} {
		p := newPrestopAdvice(&c.cfg, c.tokenFile)
		var got []string
		for _, a := range p.atStart() {
			got = append(got, a.Code)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestPrestopWillOnlyObserve: with auto and a holder that cannot be seen.
func TestPrestopWillOnlyObserve(t *testing.T) {
	t.Parallel()
	url, err := trigger.NewHTTP(trigger.HTTPConfig{URL: "http://127.0.0.1:1/"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name      string
		cfg       shutdown.Config
		tokenFile string
		pid       int
		stopped   bool
		want      bool
	}{
		{"it cannot be seen", shutdown.Config{Trigger: "auto"}, "/token", 0, false, true},
		{"it can be seen", shutdown.Config{Trigger: "auto"}, "/token", 7, false, false},
		{"it does not run", shutdown.Config{Trigger: "auto"}, "/token", 0, true, false},
		{"there is an endpoint", shutdown.Config{Trigger: "auto", HTTP: url}, "/token", 0, false, false},
		{"nobody may trigger anyway", shutdown.Config{Trigger: "auto"}, "", 0, false, false},
		{"nothing is to be triggered", shutdown.Config{Trigger: "none"}, "/token", 0, false, false},
	} {
		s := pictureOf("app", 1)
		app := s.StateDirs[0].Applications[0]
		app.Layout.HolderPID = c.pid
		*app.Running = !c.stopped
		p := newPrestopAdvice(&c.cfg, c.tokenFile)
		got := p.on(s, nil)
		if (len(got) == 1 && got[0].Code == "prestop-observes-only") != c.want || len(got) > 1 {
			t.Errorf("%s: %+v, want it said %v", c.name, got, c.want)
		}
	}
}
