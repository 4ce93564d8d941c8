package main

import (
	"fmt"
	"math"
	"time"

	"streams-sidecar/internal/event"
	"streams-sidecar/internal/probe"
	"streams-sidecar/internal/shutdown"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
)

// closePerStore is how long the close of one store may take where nothing is
// known: 30 stores with 6 MB each in their memtables took 8.2 s (3.9.1) on two
// cores.
const closePerStore = 300 * time.Millisecond

// prestopAdvice is what there is to say of the preStop gate's settings.
type prestopAdvice struct {
	trigger        string
	http, token    bool
	timeout, grace time.Duration // as given, 0 if not
	budget         time.Duration
}

func newPrestopAdvice(cfg *shutdown.Config, tokenFile string) prestopAdvice {
	return prestopAdvice{
		trigger: cfg.Trigger, http: cfg.HTTP != nil, token: tokenFile != "",
		timeout: cfg.Timeout, grace: cfg.Grace, budget: shutdown.Budget(cfg.Timeout, cfg.Grace),
	}
}

// atStart is what the flags alone tell.
func (p *prestopAdvice) atStart() (out []event.Advice) {
	add := func(code, format string, args ...any) {
		out = append(out, event.Advice{Code: code, Subject: "preStop", Text: fmt.Sprintf(format, args...)})
	}
	if p.trigger != shutdown.TriggerNone && !p.token {
		add("prestop-cannot-trigger", "a preStop call only observes, because nobody may cause a close: give --prestop-token-file, and the hook the token in the header X-Sidecar-Token; or say --prestop-trigger=none")
	}
	if p.timeout > 0 && p.grace > 0 && p.timeout > p.grace-shutdown.Reserve {
		add("hook-eats-grace", "a preStop call may take %v of a grace period of %v, which leaves less than the %v that the application needs to end: lower --prestop-timeout or raise terminationGracePeriodSeconds", p.timeout, p.grace, shutdown.Reserve)
	}
	return out
}

// on is what the applications tell.
func (p *prestopAdvice) on(s *probe.Snapshot, last []shutdown.LastShutdown) (out []event.Advice) {
	for i, d := range s.StateDirs {
		for _, a := range d.Applications {
			id := volume.Text(a.Layout.ID)
			running := a.Running != nil && *a.Running
			if p.trigger == shutdown.TriggerAuto && p.token && !p.http && running && a.Layout.HolderPID == 0 {
				out = append(out, event.Advice{Code: "prestop-observes-only", Subject: id,
					Text: "a preStop call will only observe: the process that holds .lock cannot be seen, and no shutdown endpoint is given (set shareProcessNamespace: true with the same runAsUser, or --prestop-http-url)"})
			}
			need, how := p.need(i, id, stores(a), last)
			if need <= p.budget {
				continue
			}
			out = append(out, event.Advice{Code: "grace-too-short", Subject: id, Text: fmt.Sprintf(
				"closing will take about %v (%s), but a preStop call has %v: with the %v that the application needs after it, set terminationGracePeriodSeconds to %d or more and give the sidecar the same in --termination-grace-period",
				need.Round(100*time.Millisecond), how, p.budget, shutdown.Reserve, int(math.Ceil((need + shutdown.Reserve).Seconds())))})
		}
	}
	return out
}

// need is how long a close will take: as long as the last clean one, by its number
// of stores, or else an estimate.
func (p *prestopAdvice) need(dir int, id string, stores int, last []shutdown.LastShutdown) (time.Duration, string) {
	for i := range last {
		l := &last[i]
		// How long one that was not clean would have taken is not known.
		if clean, _ := l.Clean(); !clean || l.Dir != dir || l.Application != id || l.CloseSeconds == nil || l.Stores == 0 {
			continue
		}
		seconds := *l.CloseSeconds * max(1, float64(stores)/float64(l.Stores))
		return time.Duration(seconds * float64(time.Second)),
			fmt.Sprintf("the last close of %d stores took %.1f s, now there are %d", l.Stores, *l.CloseSeconds, stores)
	}
	return time.Duration(stores) * closePerStore, fmt.Sprintf("estimated at %v for each of %d stores", closePerStore, stores)
}

// stores of an application, left-over ones included: which are open changes.
func stores(a *store.Application) (n int) {
	for _, t := range a.Tasks {
		n += len(t.Stores)
	}
	return n
}
