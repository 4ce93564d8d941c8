//go:build streams

package gate

import (
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"

	"streams-sidecar/test/streams"
)

// kind of failure.
type kind struct {
	name string
	// part are the pairs of version and guarantee in which it is tried once,
	// in a run that is not full.
	part []string
	n    int // how often it is tried in each pair in a full run
	try  func(r *rig)
}

const (
	old2a = "2.8.2/AtLeastOnce"
	old2e = "2.8.2/ExactlyOnce"
	old3a = "3.9.1/AtLeastOnce"
	old3e = "3.9.1/ExactlyOnce"
	old4a = "4.2.2/AtLeastOnce"
	old4e = "4.2.2/ExactlyOnce"
	mid4a = "4.3.1/AtLeastOnce"
	mid4e = "4.3.1/ExactlyOnce"
	new4a = "4.4.0/AtLeastOnce"
	new4e = "4.4.0/ExactlyOnce"
)

var kinds = []kind{
	{"KilledInClose", []string{old2a, new4e}, 2, func(r *rig) {
		r.beside(r.http()...)
		r.killedInClose()
	}},
	{"KilledInCloseBySignal", []string{old3e, mid4a}, 2, func(r *rig) {
		r.beside(signal()...)
		r.killedInClose()
	}},
	{"KilledAlone", []string{old4a, new4a}, 1, func(r *rig) {
		r.trial(stop{act: r.killed(0), exits: true, losing: true})
	}},
	{"NoCloseHook", []string{old3a, new4e}, 1, func(r *rig) {
		r.reopen(func(o *streams.Options) { o.NoHook = true })
		r.beside(signal()...)
		r.trial(stop{hook: true, dirty: true, exits: true, losing: true, before: r.defaults})
	}},
	{"NoHookAtAll", []string{mid4a}, 1, func(r *rig) {
		r.reopen(func(o *streams.Options) { o.NoHook = true })
		r.trial(stop{act: func(*stop) { r.terminate() }, dirty: true, exits: true, losing: true, before: r.defaults})
	}},
	{"CloseTimeoutTooShort", []string{old2e, mid4a}, 2, func(r *rig) {
		timeout := max(time.Duration((0.05+0.25*r.random())*float64(r.close)), time.Millisecond)
		r.reopen(func(o *streams.Options) { o.HookTimeout = timeout })
		r.beside(signal()...)
		r.trial(stop{hook: true, dirty: true, exits: true, before: r.defaults})
	}},
	{"Exception", []string{old3a, new4a}, 1, func(r *rig) {
		r.trial(stop{dirty: true, losing: true, act: func(*stop) { r.app.Poison() }})
	}},
	{"ExceptionInDrain", []string{old4e, mid4e}, 1, (*rig).exceptionInDrain},
	{"ExceptionInClose", []string{old2a, new4a}, 1, func(r *rig) {
		r.beside(r.http()...)
		r.up()
		r.app.PoisonClose()
		r.trial(stop{hook: true, dirty: true})
	}},
	{"BrokerGoneAndBack", []string{old3e}, 1, func(r *rig) {
		r.brokerGone(stop{act: func(*stop) {}})
	}},
	{"BrokerGoneAndKilled", []string{new4a}, 1, func(r *rig) {
		r.brokerGone(stop{act: r.killed(0), exits: true})
	}},
	{"WaitsOnly", []string{old2e}, 1, func(r *rig) {
		r.beside(none()...)
		r.trial(stop{hook: true, query: "?wait=1", clean: true, exits: true, act: func(*stop) {
			time.Sleep(100 * time.Millisecond) // the kubelet's signal never comes with the call
			r.terminate()
		}})
	}},
	{"KilledRestoring", []string{old4a, new4e}, 1, (*rig).killedRestoring},
	{"KilledStarting", []string{mid4a, new4e}, 1, (*rig).killedStarting},
	{"SidecarKilled", []string{old2a}, 1, func(r *rig) { r.sidecarKilled(nil) }},
	{"BothKilled", []string{new4a}, 1, func(r *rig) {
		r.sidecarKilled(r.killed(time.Duration(r.random() * float64(r.close))))
	}},
}

// times of a kind in this run.
func (k kind) times(version string, g guarantee) int {
	switch {
	case full():
		return k.n
	case slices.Contains(k.part, version+"/"+g.String()):
		return 1
	default:
		return 0
	}
}

// random is a number below 1 that depends on the seed and the name of the trial.
func (r *rig) random() float64 { return seeded(r.t.Name()).Float64() }

func (r *rig) terminate() { r.Helper(); r.app.Signal(syscall.SIGTERM) }

// reopen changes options, with a clean stop in between of which the hook knows
// nothing: a trial of its own.
func (r *rig) reopen(change func(o *streams.Options)) {
	r.Helper()
	r.trial(stop{
		act:    func(*stop) { r.app.CloseClean() },
		clean:  true,
		before: func() { change(&r.app.Options) },
	})
}

// defaults undoes reopen at the next open.
func (r *rig) defaults() {
	r.app.Options.NoHook, r.app.Options.HookTimeout, r.app.Options.Proxied = false, 0, false
}

// exceptionInDrain: what the application does when it is told to close is to fail.
func (r *rig) exceptionInDrain() {
	r.Helper()
	r.beside(r.http()...)
	f := func(http.ResponseWriter, *http.Request) { r.app.Poison() }
	r.onStop.Store(&f)
	defer r.forward()
	r.trial(stop{hook: true, dirty: true, losing: true})
}

func (r *rig) killedInClose() {
	r.Helper()
	after := time.Duration(1.1 * r.random() * float64(r.close))
	r.Logf("killed %v after the call; the last close took %v", ms(after), ms(r.close))
	r.trial(stop{hook: true, act: r.killed(after), exits: true})
}

// brokerGone stops an application that does not reach its broker any more, and
// lets it go on, if that is how it is to end, as soon as the hook was answered.
func (r *rig) brokerGone(s stop) {
	r.Helper()
	r.reopen(func(o *streams.Options) { o.Proxied = true })
	r.beside(append(r.http(), "--prestop-stall=3s")...)
	r.up()
	proxy := streams.Start(r.t).Proxy()
	proxy.Cut()
	mend := sync.OnceFunc(proxy.Mend)
	defer mend()
	then := s.act
	s.hook, s.answers, s.before = true, []string{"stalled"}, r.defaults
	s.act = func(s *stop) {
		s.answer()
		then(s)
		mend()
	}
	r.trial(s)
}

// killedRestoring kills the application while it restores all of its stores in
// an empty directory, and while the hook waits.
func (r *rig) killedRestoring() {
	r.Helper()
	r.up()
	r.endLoad()
	r.app.CloseClean()
	r.app.Dir = r.TempDir()
	r.beside(r.http()...)
	// Restored in many small steps.
	r.app.Options.Config = map[string]string{"restore.consumer.max.poll.records": "100", "restore.consumer.max.partition.fetch.bytes": "2000"}
	r.app.Open()
	r.until("the restore", func() bool {
		for _, x := range r.app.Status().Restores {
			if x.Records > 0 {
				return true
			}
		}
		return false
	})
	r.until("the gate is armed", func() bool { return r.agent.phase() == "running" })
	r.trial(stop{
		asIs: true, hook: true, act: r.killed(time.Duration(r.random() * float64(200*time.Millisecond))), exits: true, losing: true,
		before: func() { r.app.Options.Config = nil },
	})
}

// killedStarting kills an application while it starts after another kill. From
// 4.3 on its stores are opened and closed again in between.
func (r *rig) killedStarting() {
	r.Helper()
	r.up()
	r.app.Kill()
	r.app.Launch()
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		_ = r.app.TryOpen() // it is killed
	}()
	r.until(".lock", func() bool { return heldAt(r.lock()) })
	r.until("the gate is armed", func() bool { return r.agent.phase() == "running" })
	r.trial(stop{
		asIs: true, whole: true, act: r.killed(time.Duration(r.random() * float64(time.Second))), exits: true, losing: true,
		before: func() { <-opened },
	})
}

// sidecarKilled kills the sidecar after it has triggered the close, and starts
// another one before the close begins.
func (r *rig) sidecarKilled(act func(*stop)) {
	r.Helper()
	r.beside(r.http()...)
	asked := make(chan struct{}, 1)
	f := func(http.ResponseWriter, *http.Request) {
		select {
		case asked <- struct{}{}:
		default: // asked again
		}
	}
	r.onStop.Store(&f)
	defer r.forward()
	r.trial(stop{hook: true, exits: act != nil, clean: act == nil, act: func(s *stop) {
		<-asked
		time.Sleep(50 * time.Millisecond)
		r.agent.kill()
		r.agent = startAgent(r.current, r.app.Dir, r.flags...)
		time.Sleep(100 * time.Millisecond)
		resp, err := http.Post(r.app.StopURL(), "", nil)
		if err != nil {
			r.Fatalf("%v", err)
		}
		_ = resp.Body.Close()
		if act != nil {
			act(s)
		}
	}})
}
