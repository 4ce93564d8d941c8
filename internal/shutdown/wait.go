package shutdown

import (
	"context"
	"fmt"
	"slices"
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
	runs    []*run // of the applications that ran at its begin

	ctx    context.Context // until the drain has its outcome
	firing firing          // nil until the trigger was pulled

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
const judgeSlack = time.Second

func (w *wait) run() *Answer {
	var stop context.CancelFunc
	w.ctx, stop = context.WithCancel(context.Background())
	defer stop()
	d := w.d
	deadline := d.begun.Add(d.budget)
	w.runs = w.runsOf(w.now.held)
	w.begin(w.runs, call{Began: d.begun, Trigger: w.trigger})
	go w.save(true)
	w.cfg.Events.Emit(event.PrestopBegan{Trigger: w.trigger, MayTrigger: d.may.Load(), Budget: d.budget, Running: ids(w.now.held)})
	w.movedAt = time.Now()
	w.fire()
	w.look()
	looked, told := time.Now(), time.Now()
	for {
		w.fire()
		w.now = w.next(w.now)
		switch {
		case w.now.nothing():
			return w.over(deadline)
		case time.Now().After(deadline):
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
		w.sleep(min(poll, max(time.Until(deadline), time.Millisecond)))
	}
}

// fire pulls the trigger, once, as soon as one of the callers may.
func (w *wait) fire() {
	if w.firing != nil || w.trigger == TriggerNone || !w.d.may.Load() {
		return
	}
	held := slices.Clone(w.now.held)
	closing := func() bool { // from the goroutine of the trigger
		if m := w.next(moment{held: held}); len(m.held) < len(held) && m.unknown == "" {
			return true
		}
		p := w.d.progress.Load()
		return p != nil && (p.Closed > p.before || p.Flushed > p.before && p.Flushed == p.Stores)
	}
	switch w.trigger {
	case TriggerHTTP:
		w.firing = w.cfg.HTTP.Start(w.ctx, closing)
	case TriggerSignal:
		w.firing = startSignal(w.ctx, held)
	}
	go w.report(w.firing)
}

// report remembers that the trigger was taken, for the time after the drain,
// and tells of its trouble.
func (w *wait) report(f firing) {
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
			w.note(w.runs, func(c *call) { c.Triggered, c.TriggerError = true, "" })
			w.save(true)
			return
		}
		w.note(w.runs, func(c *call) { c.TriggerError = r.Err })
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
	if w.firing != nil {
		r := w.firing.Report()
		ans.Triggered, ans.Attempts, ans.TriggerError = r.Taken, r.Attempts, r.Err
	}
	if w.trigger != TriggerNone && !w.d.may.Load() {
		ans.Explanation = join(ans.Explanation, explainObserved)
	}
	return ans
}

// over is the answer once every lock is free: how the applications have ended.
func (w *wait) over(deadline time.Time) *Answer {
	w.taken()
	ans := w.answer()
	w.note(w.runs, func(c *call) { c.Triggered = c.Triggered || ans.Triggered })
	type judged struct {
		ends   []*Shutdown
		missed []string
	}
	done := make(chan judged, 1)
	go func() {
		var j judged
		for _, r := range w.runs {
			if s := w.conclude(r); s != nil {
				j.ends = append(j.ends, s)
			} else {
				j.missed = append(j.missed, r.key.id)
			}
		}
		done <- j
	}()
	limit := time.NewTimer(max(time.Until(deadline), 0) + judgeSlack)
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
		ans.Explanation = join(ans.Explanation, "every lock is free, but the volume does not let the files be read")
		return w.giveUpWith(Timeout, ans)
	}
}

// takenPatience is for the answer of an endpoint that is still on its way when
// the last lock is free.
const takenPatience = 50 * time.Millisecond

// taken waits a moment for what the trigger has to say.
func (w *wait) taken() {
	if w.firing == nil {
		return
	}
	for until := time.Now().Add(takenPatience); time.Now().Before(until); time.Sleep(time.Millisecond) {
		if r := w.firing.Report(); r.Taken || r.Closing || r.Err != "" {
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
	w.note(w.runs, func(c *call) { c.Outcome = o })
	w.interim(o, ans)
	return w.finish(w.d, ans, w.now.held)
}

// interim writes down how far a drain came, for a node that is lost before the
// end.
func (w *wait) interim(o Outcome, ans *Answer) {
	dirs := map[int]bool{}
	w.mu.Lock()
	for _, r := range w.runs {
		if w.Gate.runs[r.key] == r { // it has not ended
			began := w.d.begun
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
	for dir := range dirs {
		w.writeLast(dir)
	}
	w.save(true)
}
