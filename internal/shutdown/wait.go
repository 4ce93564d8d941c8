package shutdown

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"streams-sidecar/internal/event"
	"streams-sidecar/internal/shutdown/trigger"
)

// wait is a drain that waits for the locks.
type wait struct {
	*Gate
	d       *drain
	trigger string // its name
	now     moment
	runs    []*run // of the applications that ran at its begin, or were seen to run since
	noted   int    // of those, the first ones have noted this call

	ctx      context.Context // until the drain has its outcome
	firings  []firing        // of the trigger
	deadline time.Time       // begins anew with the first call that may cause the close
	may      bool            // there was such a call
	blind    time.Time       // since when nothing is held, as far as can be told; zero while something is

	movedAt  time.Time
	moved    footprint
	looks    int
	progress Progress
}

// firing is a trigger that was pulled.
type firing interface{ Report() trigger.Report }

// lookEvery is how often the LOCKs are counted and the picture is compared
// while waiting, and tellEvery how often the log tells of it.
const (
	lookEvery = time.Second
	tellEvery = 5 * time.Second
)

// judgeSlack is how much longer than the budget an answer may take because the
// files of stores that have just been closed are being read.
const judgeSlack = 400 * time.Millisecond

func (w *wait) run() *Answer {
	var stop context.CancelFunc
	w.ctx, stop = context.WithCancel(context.Background())
	defer stop()
	d := w.d
	w.deadline, w.movedAt = d.begun.Add(d.budget), time.Now()
	w.adopt()
	w.cfg.Events.Emit(event.PrestopBegan{Trigger: w.trigger, MayTrigger: d.may.Load(), Budget: d.budget, Running: ids(w.now.held)})
	w.look()
	looked, told := time.Now(), time.Now()
	for {
		w.now = w.next(w.now)
		w.adopt()
		switch {
		case w.now.nothing() || w.seesNoMore():
			return w.over()
		case time.Now().After(w.deadline):
			return w.giveUp(Timeout, "")
		case w.ending():
			return w.giveUp(Timeout, explainEnding)
		case time.Since(w.movedAt) >= w.cfg.Stall:
			return w.giveUp(Stalled, fmt.Sprintf("no table, no MANIFEST and no lock has changed for %v", w.cfg.Stall))
		}
		if time.Since(looked) >= lookEvery {
			looked = time.Now()
			w.look()
		}
		if time.Since(told) >= tellEvery {
			told = time.Now()
			w.cfg.Events.Emit(w.progress.event())
		}
		w.sleep(min(poll, max(time.Until(w.deadline), time.Millisecond)))
	}
}

// adopt takes in the applications that are seen to run now, and notes the call
// for them and pulls the trigger, once for each, as soon as one of the callers
// may: who may not has no say in what is remembered, nor how long the kubelet's
// call may wait.
func (w *wait) adopt() {
	var held []app
	for _, x := range w.now.held {
		if !slices.ContainsFunc(w.runs, func(r *run) bool { return r.key == x.key }) {
			held = append(held, x)
		}
	}
	w.runs = append(w.runs, w.runsOf(held)...)
	if !w.may && w.d.may.Load() {
		w.may, w.movedAt = true, time.Now()
		w.deadline = w.movedAt.Add(w.d.budget)
	}
	if w.noted == len(w.runs) || !w.may && w.trigger != TriggerNone {
		return
	}
	news := w.runs[w.noted:]
	w.noted = len(w.runs)
	w.begin(news, call{Began: time.Now(), Trigger: w.trigger, Applications: len(w.runs)})
	go w.save(true)
	if w.may && w.trigger != TriggerNone {
		w.fire(news)
	}
}

// seesNoMore says that everything that ran has ended, and that for a while
// nothing could be told of something else.
func (w *wait) seesNoMore() bool {
	if len(w.runs) == 0 || len(w.now.held) > 0 {
		w.blind = time.Time{}
		return false
	}
	if w.blind.IsZero() {
		w.blind = time.Now()
	}
	return time.Since(w.blind) > blindFor
}

// blindFor is how long a place that cannot be read is waited for when nothing
// else is.
const blindFor = 2 * time.Second

// fire pulls the trigger for some applications.
func (w *wait) fire(runs []*run) {
	var held []app
	for _, r := range runs {
		held = append(held, w.appOf(r))
	}
	closing := func() bool { // from the goroutine of the trigger
		if m := w.next(moment{held: held}); len(m.held) < len(held) && m.unknown == "" {
			return true
		}
		p := w.d.progress.Load()
		return p != nil && (p.Closed > p.before || p.Flushed > p.before && p.Flushed == p.Stores)
	}
	var f firing
	switch w.trigger {
	case TriggerHTTP: // one endpoint for all of them
		if len(w.firings) > 0 {
			return
		}
		f = w.cfg.HTTP.Start(w.ctx, closing)
	case TriggerSignal:
		f = startSignal(w.ctx, held)
	}
	w.firings = append(w.firings, f)
	go w.report(f, runs)
}

// fired is what all triggers have to say together; ok is false if there is none.
func (w *wait) fired() (r trigger.Report, ok bool) {
	r.Taken = len(w.firings) > 0
	for _, f := range w.firings {
		one := f.Report()
		r.Attempts += one.Attempts
		r.Taken = r.Taken && one.Taken
		r.Closing = r.Closing || one.Closing
		if r.Err == "" {
			r.Err = one.Err
		}
	}
	return r, len(w.firings) > 0
}

// report remembers that the trigger was taken, for the time after the drain,
// and tells of its trouble.
func (w *wait) report(f firing, runs []*run) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	told := ""
	for {
		r := f.Report()
		if r.Err != told && r.Err != "" {
			told = r.Err
			w.cfg.Events.Emit(event.TriggerTrouble{Trigger: w.trigger, Attempts: r.Attempts, Text: r.Err})
		}
		if r.Taken {
			w.note(runs, func(c *call) { c.Triggered, c.TriggerError = true, "" })
			w.save(true)
			return
		}
		w.note(runs, func(c *call) { c.TriggerError = r.Err })
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			return
		}
	}
}

// answer begins an answer with what the trigger has to say.
func (w *wait) answer() *Answer {
	ans := &Answer{Trigger: w.trigger, Applications: len(w.runs), Explanation: w.now.unknown, Restoring: w.progress.Restoring}
	if r, ok := w.fired(); ok {
		ans.Triggered, ans.Attempts, ans.TriggerError = r.Taken, r.Attempts, r.Err
	}
	if w.trigger != TriggerNone && !w.d.may.Load() {
		ans.Explanation = join(ans.Explanation, explainObserved)
	}
	return ans
}

// over is the answer once every lock is free: how the applications have ended.
func (w *wait) over() *Answer {
	w.taken()
	ans := w.answer()
	if ans.Triggered {
		w.note(w.runs[:w.noted], func(c *call) { c.Triggered = true })
	}
	w.freed(w.runs)
	type judged struct {
		ends   []*Shutdown
		missed []string
	}
	done := make(chan judged, 1)
	go func() {
		ends := make([]*Shutdown, len(w.runs))
		var all sync.WaitGroup
		for i, r := range w.runs {
			all.Go(func() { ends[i] = w.conclude(r) })
		}
		all.Wait()
		var j judged
		for i, s := range ends {
			if s != nil {
				j.ends = append(j.ends, s)
			} else {
				j.missed = append(j.missed, w.runs[i].key.id)
			}
		}
		done <- j
	}()
	limit := time.NewTimer(max(time.Until(w.deadline), 0) + judgeSlack)
	defer limit.Stop()
	select {
	case j := <-done:
		triggered := ans.Triggered
		ans.add(j.ends)
		ans.Trigger, ans.Triggered, ans.Applications = w.trigger, ans.Triggered || triggered, len(w.runs)
		for _, id := range j.missed {
			ans.Outcome = ClosedUnclean
			ans.missing = append(ans.missing, Missing{Application: id, Reason: NotProvableHere, Text: "it has begun again before its files could be read"})
		}
		return w.finish(w.d, ans, nil)
	case <-limit.C:
		ans.Explanation = join(ans.Explanation, "every lock is free, but the files were not read in time")
		return w.giveUpWith(Timeout, ans)
	}
}

// takenPatience is for the answer of an endpoint that is still on its way when
// the last lock is free.
const takenPatience = 50 * time.Millisecond

// taken waits a moment for what the trigger has to say.
func (w *wait) taken() {
	if len(w.firings) == 0 {
		return
	}
	for until := time.Now().Add(takenPatience); time.Now().Before(until); time.Sleep(time.Millisecond) {
		if r, _ := w.fired(); r.Taken || r.Closing || r.Err != "" {
			return
		}
	}
}

// giveUp is the answer of a drain whose end has not come. The gate goes on
// following the applications.
func (w *wait) giveUp(o Outcome, why string) *Answer {
	ans := w.answer()
	if ans.Attempts > 0 && !ans.Triggered && ans.TriggerError == "" {
		ans.TriggerError = "no answer yet"
	}
	ans.Explanation = join(ans.Explanation, why)
	return w.giveUpWith(o, ans)
}

func (w *wait) giveUpWith(o Outcome, ans *Answer) *Answer {
	w.look()
	ans.Outcome = o
	p := w.progress
	ans.Stores, ans.StoresClosed, ans.SSTBytesWritten, ans.missing = p.Stores, p.Closed, p.SSTBytesWritten, p.held
	w.note(w.runs[:w.noted], func(c *call) { c.Outcome = o })
	w.interim(o, ans)
	return w.finish(w.d, ans, w.now.held)
}

// interim writes down how far a drain came, for a node that is lost before the
// end.
func (w *wait) interim(o Outcome, ans *Answer) {
	dirs := map[int]bool{}
	w.mu.Lock()
	for _, r := range w.runs[:w.noted] {
		if w.Gate.runs[r.key] == r { // it has not ended
			began := r.call.Began
			s := &Shutdown{Application: r.key.id, Outcome: o, Hook: Called, HookOutcome: o, Trigger: ans.Trigger, Triggered: ans.Triggered,
				TriggerError: ans.TriggerError, Began: &began, Stores: r.mark.stores(), SSTBytesWritten: ans.SSTBytesWritten, Explanation: ans.Explanation}
			for _, m := range ans.missing {
				if m.Application == r.key.id {
					s.Evidence = append(s.Evidence, Evidence{Task: m.Task, Store: m.Store}.missing(m.Reason, ""))
				}
			}
			w.last[r.key] = s
			dirs[r.key.dir] = true
		}
	}
	w.mu.Unlock()
	var all sync.WaitGroup
	for dir := range dirs {
		all.Go(func() { w.writeLast(dir) })
	}
	all.Wait()
	go w.save(true)
}
