package shutdown

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"streams-sidecar/internal/event"
	"streams-sidecar/internal/statedir"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
)

// followEvery is how often each .lock is asked while no call waits. A process
// cannot end and come back in that time.
const followEvery = 250 * time.Millisecond

// saveEvery is how often the marks of running applications are written down
// when there is something new in them.
const saveEvery = 5 * time.Second

// key identifies an application: the index of its state directory, and its id
// as [volume.Text] has it.
type key struct {
	dir int
	id  string
}

// run is one application from the taking of its .lock to the release. Fields
// but the result are guarded by Gate.mu.
type run struct {
	key   key
	app   app // as in the newest picture
	mark  mark
	since time.Time // when it was seen first, by this process or the one before
	clock clock     // of the drain's begin, else of the first look
	call  *call     // the newest preStop call, nil if none came
	seq   uint64
	// resumed says that an earlier process began to follow it, and away that
	// it had ended before this one looked.
	resumed, away bool
	pid           int       // of the holder of .lock; 0 if not visible
	cleanBefore   bool      // the end before it was clean
	freed         time.Time // when every lock was seen free, zero if not before it is judged

	once   sync.Once
	result *Shutdown // nil if it could not be judged; set by once
}

// call is what is remembered of a preStop call. It is kept in runs.json.
type call struct {
	Began        time.Time `json:"began"`
	Outcome      Outcome   `json:"outcome,omitempty"` // "" until it was answered
	Trigger      string    `json:"trigger"`
	Triggered    bool      `json:"triggered"`
	TriggerError string    `json:"trigger_error,omitempty"`
	// Applications that ran when it came: an endpoint may have closed only one
	// of several.
	Applications int `json:"applications"`
}

// savedRuns is the content of runs.json: the applications that run.
type savedRuns struct {
	Version int        `json:"version"`
	Runs    []savedRun `json:"runs"`
}

type savedRun struct {
	Application string    `json:"application"`
	Since       time.Time `json:"since"` // when the run was seen first
	PID         int       `json:"pid,omitempty"`
	CleanBefore bool      `json:"clean_before"`
	Mark        mark      `json:"mark"`
	Call        *call     `json:"call,omitempty"`
}

// Run follows the applications until the context ends: what is open in them,
// and how they end, with or without a call. It returns nil then; it has no other
// way out.
func (g *Gate) Run(ctx context.Context) error {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		g.Follow()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return g.leave()
		}
	}
}

// leaveLimit is how long what is known may take to become durable at the end.
const leaveLimit = time.Second

// leave makes durable what is known. It gives nil.
func (g *Gate) leave() error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.saving.Lock()   // until the work under way is done
		g.saving.Unlock() //nolint:staticcheck // waiting was all
		g.save(true)
	}()
	select {
	case <-done:
	case <-time.After(leaveLimit):
	}
	return nil
}

// Follow is one look at every application.
func (g *Gate) Follow() {
	g.following.Lock()
	defer g.following.Unlock()
	snap := g.cfg.Snapshot()
	if snap == nil {
		return
	}
	seen := map[key]bool{}
	for i, d := range snap.StateDirs {
		g.load(i)
		for _, a := range d.Applications {
			x := newApp(g.cfg.Volumes[i], i, a)
			seen[x.key] = true
			held, err := a.Layout.AskLock(x.v)
			if err != nil {
				continue
			}
			g.follow(x, held || x.open(), snap.Seq)
		}
	}
	g.mu.Lock()
	for i, d := range snap.StateDirs {
		if !d.Layout.Missing && unreadable(d) == "" {
			g.listed[i] = true
		}
	}
	g.mu.Unlock()
	// Of a directory that could be read, what is not in it is gone.
	for _, r := range g.running() {
		if !seen[r.key] && anyUnreadable(snap) == "" {
			g.conclude(r)
		}
	}
	g.retry()
	g.save(false)
	go g.sync()
}

func (g *Gate) follow(x app, held bool, seq uint64) {
	g.mu.Lock()
	if !held {
		g.rest[x.key] = x.a
	}
	r := g.runs[x.key]
	saved, wasSaved := g.saved[x.key]
	delete(g.saved, x.key)
	switch {
	case held && r == nil:
		r = &run{key: x.key, app: x, since: time.Now(), clock: readClock(), seq: seq}
		if pid := x.a.Layout.HolderPID; wasSaved && (pid == 0 || saved.PID == 0 || pid == saved.PID) && saved.Mark.continues(x.a) {
			r.since, r.mark, r.call, r.cleanBefore, r.resumed = saved.Since, saved.Mark, saved.Call, saved.CleanBefore, true
		}
		missed := wasSaved && !r.resumed
		if missed {
			// It ended and began again while nobody looked.
			delete(g.last, x.key)
		}
		g.enter(r)
		g.mu.Unlock()
		if missed {
			g.cfg.Events.Emit(event.EndMissed{Application: x.id})
			g.writeLast(x.key.dir)
		}
		return
	case held && r.pid > 0 && x.a.Layout.HolderPID > 0 && r.pid != x.a.Layout.HolderPID:
		// Another process: this one was stopped, or had no time to look.
		delete(g.runs, x.key)
		delete(g.last, x.key)
		g.enter(&run{key: x.key, app: x, since: time.Now(), clock: readClock(), seq: seq})
		g.mu.Unlock()
		g.cfg.Events.Emit(event.EndMissed{Application: x.id})
		g.writeLast(x.key.dir)
		return
	case held:
		r.app = x
		if pid := x.a.Layout.HolderPID; pid > 0 {
			r.pid = pid
		}
		// The clock may be set while it runs, only not while it closes.
		if time.Since(r.clock.mono) > letGoBeforeEnd && (r.call == nil || time.Since(r.call.Began) > callCounts) {
			r.clock = readClock()
		}
		if r.seq != seq {
			r.seq = seq
			g.changed = r.mark.note(x.a) || g.changed
		}
		g.mu.Unlock()
		return
	case r == nil && wasSaved:
		r = &run{key: x.key, app: x, since: saved.Since, mark: saved.Mark, call: saved.Call, cleanBefore: saved.CleanBefore, resumed: true, away: true}
		g.runs[x.key] = r
	}
	g.mu.Unlock()
	if r != nil {
		g.conclude(r)
	}
}

// enter begins a run. The caller holds mu.
func (g *Gate) enter(r *run) {
	r.mark.Preallocates = r.mark.Preallocates || g.preallocates[r.key.dir]
	switch rest := g.rest[r.key]; {
	case r.resumed:
	case rest == nil && g.listed[r.key.dir]: // there was no such application before
		r.mark.watch(nil)
	case rest == nil: // some of its stores may have been opened already
		r.mark.watch(r.app.a)
	default:
		r.mark.watch(rest)
		delete(g.rest, r.key) // a picture is large
	}
	if !r.resumed {
		r.cleanBefore, _ = g.last[r.key].Clean()
	}
	r.mark.note(r.app.a)
	r.pid = r.app.a.Layout.HolderPID
	g.runs[r.key] = r
	delete(g.concluded, r.key)
	g.changed = true
}

// running gives the runs that have not ended.
func (g *Gate) running() []*run {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]*run, 0, len(g.runs))
	for _, r := range g.runs {
		out = append(out, r)
	}
	return out
}

// runsOf gives the runs of applications that are held now.
func (g *Gate) runsOf(held []app) []*run {
	for _, x := range held { // what is known of earlier runs, should this be the first look
		g.load(x.key.dir)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	runs := make([]*run, 0, len(held))
	for _, x := range held {
		r := g.runs[x.key]
		if r == nil { // not noticed yet
			r = &run{key: x.key, app: x, since: time.Now(), clock: readClock()}
			g.enter(r)
		}
		runs = append(runs, r)
	}
	return runs
}

// appOf gives the newest picture of a run's application.
func (g *Gate) appOf(r *run) app {
	g.mu.Lock()
	defer g.mu.Unlock()
	return r.app
}

// begin notes for a call what its applications are now.
func (g *Gate) begin(runs []*run, c call) {
	for _, r := range runs {
		x := g.appOf(r)
		// The disk is asked outside of the lock.
		checkpoints := lookCheckpoints(x.v, x.a)
		var held map[storeName]bool
		if c.Outcome != Observed { // or else two looks have just found none let go of
			g.mu.Lock()
			m := r.mark.clone()
			g.mu.Unlock()
			held = heldLocks(x.v, x.a, &m).stores
		}
		g.mu.Lock()
		old := r.call
		waited := old != nil && old.Outcome != Observed
		// One that only observes, after a call that waits or has waited, tells
		// nothing new.
		if c.Outcome != Observed || !waited || time.Since(old.Began) >= callCounts {
			now := c
			if old != nil && time.Since(old.Began) <= g.budget()+Reserve {
				// Within one stop. What its first call has noted stays: the
				// close may have begun since.
				if waited {
					now.Began, now.Triggered = old.Began, old.Triggered
				}
			} else {
				r.mark.begin(x.a, checkpoints, held)
				r.clock = readClock()
			}
			r.call, r.resumed = &now, false
			g.changed = true
		}
		g.mu.Unlock()
	}
}

// note changes what is remembered of the newest call of some runs.
func (g *Gate) note(runs []*run, change func(*call)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range runs {
		if r.call != nil {
			c := *r.call
			change(&c)
			r.call = &c
		}
	}
	g.changed = true
}

// conclude judges how a run ended, once, and writes it down. It gives nil if
// that could not be told: the application has begun anew before the files were
// read.
func (g *Gate) conclude(r *run) *Shutdown {
	r.once.Do(func() {
		s := g.judge(r)
		g.mu.Lock()
		if g.runs[r.key] == r {
			delete(g.runs, r.key)
		}
		if s != nil {
			g.last[r.key], g.concluded[r.key] = s, concluded{s, time.Now()}
		} else {
			delete(g.last, r.key)
		}
		g.preallocates[r.key.dir] = g.preallocates[r.key.dir] || r.mark.Preallocates
		g.changed = true
		g.mu.Unlock()
		r.result = s
		g.writeLast(r.key.dir)
		g.save(true)
		if s == nil {
			g.cfg.Events.Emit(event.EndMissed{Application: r.key.id})
			return
		}
		g.cfg.Events.Emit(event.ShutdownJudged{Application: s.Application, Outcome: string(s.Outcome), Hook: string(s.Hook),
			Stores: s.Stores, Missing: len(s.Missing()), Explanation: s.Explanation})
	})
	return r.result
}

// judge reads the state directory anew and says how a run ended.
func (g *Gate) judge(r *run) *Shutdown {
	now := time.Now()
	g.mu.Lock()
	since := r.since
	x, m, c, before := r.app, r.mark.clone(), r.call, g.last[r.key]
	resumed, clean, freed := r.resumed, r.cleanBefore, r.freed
	stepped := r.clock.stepped(readClock())
	g.mu.Unlock()

	a, unread := g.look(x, freed)
	if a == nil {
		a = &store.Application{Layout: &statedir.Application{}} // its directory is gone
	} else if held, err := a.Layout.AskLock(x.v); err == nil && held {
		return nil
	}
	s := &Shutdown{Application: x.id, Hook: NotCalled, NotWatched: r.away, Ended: &now, Run: since.UnixNano()}
	if c != nil && now.Sub(c.Began) < g.belongs(c) {
		s.Hook, s.HookOutcome, s.Trigger, s.Triggered, s.TriggerError = Called, c.Outcome, c.Trigger, c.Triggered, c.TriggerError
		began := c.Began
		s.Began = &began
		if took := now.Sub(c.Began).Seconds(); !r.away && took >= 0 {
			s.CloseSeconds = &took
		}
	} else {
		m.drop(now, letGoBeforeEnd)
	}
	s.Stores = m.stores()
	if judged, _ := before.Clean(); s.Stores == 0 && judged {
		m.addOpened(a, before)
		s.Stores = m.stores()
	}
	switch {
	case unread != "":
		s.Evidence = m.unread(unread)
	case s.Stores == 0:
		s.Evidence = proveUntouched(a, before)
	default:
		s.Evidence = prove(&m, a, surroundings{clockStepped: stepped, cleanBefore: clean,
			triggered: s.Triggered && (c.Applications < 2 || c.Trigger == TriggerSignal)})
		s.SSTBytesWritten = m.written(a)
	}
	if s.Evidence == nil {
		s.Evidence = []Evidence{}
	}
	s.Outcome = ClosedClean
	if len(s.Missing()) > 0 {
		s.Outcome = ClosedUnclean
	}
	if s.Hook == Called && s.HookOutcome == "" && !resumed {
		s.HookOutcome = s.Outcome // the call waits for it
	}
	s.Explanation = explain(s)
	return s
}

// callCounts is for how long after a preStop call an end belongs to it: longer
// than any sensible grace period, shorter than the time between two stops.
const callCounts = time.Hour

// belongs is for how long an end belongs to a call. One that only observed may
// have been anybody's; SIGTERM follows it at once.
func (g *Gate) belongs(c *call) time.Duration {
	if c.Outcome == Observed {
		return g.budget() + Reserve
	}
	return callCounts
}

// budget is that of a call of which the API server knows nothing.
func (g *Gate) budget() time.Duration { return Budget(g.cfg.Timeout, g.cfg.Grace) }

// look reads an application anew, from the newest picture on. It gives nil if it
// is gone, and where that cannot be told says why.
func (g *Gate) look(x app, freed time.Time) (a *store.Application, unread string) {
	d := g.scan(x, freed)
	if d == nil {
		return nil, "there is no look at it"
	}
	if d.Layout.Missing {
		return nil, "the state directory is gone"
	}
	for _, a := range d.Applications {
		if volume.Text(a.Layout.ID) == x.id {
			return a, ""
		}
	}
	return nil, unreadable(d)
}

// scan reads a state directory anew, or gives a reading that was begun after
// all locks of an application were free: many may end at the same time.
func (g *Gate) scan(x app, freed time.Time) *store.StateDir {
	g.scanning.Lock()
	defer g.scanning.Unlock()
	if s := g.scans[x.key.dir]; s.dir != nil && !freed.IsZero() && s.begun.After(freed) {
		return s.dir
	}
	snap := g.cfg.Snapshot()
	if snap == nil || x.key.dir >= len(snap.StateDirs) {
		return nil
	}
	s := scanned{begun: time.Now()}
	before := snap.StateDirs[x.key.dir]
	s.dir = store.Scan(x.v, before.Layout.Path, before)
	if !freed.IsZero() {
		g.scans[x.key.dir] = s
	}
	return s.dir
}

// scanned is a reading of a state directory.
type scanned struct {
	begun time.Time
	dir   *store.StateDir
}

// freed notes that every lock of some runs is free, and forgets earlier readings.
func (g *Gate) freed(runs []*run) {
	g.scanning.Lock()
	clear(g.scans)
	g.scanning.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	for _, r := range runs {
		r.freed = now
	}
}

// unread is the evidence where the files could not be read.
func (m *mark) unread(why string) (out []Evidence) {
	for _, task := range m.tasks() {
		for _, name := range sortedKeys(m.Open[task]) {
			out = append(out, Evidence{Task: task, Store: name}.missing(Unreadable, why))
		}
	}
	if len(out) == 0 {
		out = append(out, Evidence{}.missing(Unreadable, why))
	}
	return out
}

// addOpened adds the stores that have another MANIFEST than at the end before:
// they were opened, although nobody saw it.
func (m *mark) addOpened(a *store.Application, before *Shutdown) {
	was := before.byStore()
	for _, t := range a.Tasks {
		for _, s := range t.Stores {
			at := nameOf(t, s)
			if n, e := newestManifest(s), was[at]; n == 0 || e != nil && n == e.Manifest {
				continue
			}
			if m.Open == nil {
				m.Open = map[string]map[string]openStore{}
			}
			if m.Open[at.task] == nil {
				m.Open[at.task] = map[string]openStore{}
			}
			m.Open[at.task][at.name] = newOpenStore(s)
		}
	}
}

// proveUntouched judges an end before which no store was seen open: whatever
// the run before has left is still there.
func proveUntouched(a *store.Application, before *Shutdown) []Evidence {
	if before != nil {
		if clean, known := before.Clean(); known && !clean {
			return []Evidence{Evidence{}.missing(NotProvableHere, "no store was opened since an end that was not clean")}
		} else if known {
			return nil
		}
	}
	var out []Evidence
	for _, t := range a.Tasks {
		for _, s := range t.Stores {
			e := Evidence{Task: volume.Text(t.Layout.ID), Store: volume.Text(s.Name)}
			switch {
			case s.Empty || s.Closed == store.Clean:
				e.Clean, e.Closed = true, true
			default:
				e = e.missing(NotProvableHere, "it was not opened in this run, and nothing is known of the end before")
			}
			out = append(out, e)
		}
	}
	return out
}

// written is how many bytes of tables flushes have written to the open stores
// since the drain began, or else since the run was seen first.
func (m *mark) written(a *store.Application) int64 {
	sum := uint64(0)
	m.each(a, func(_ string, s *store.Store, was openStore) {
		if n := s.Counts.FlushedBytes; n > was.Flushed {
			sum += n - was.Flushed
		}
	})
	return int64(sum)
}

// load reads, once for each state directory that is there, what earlier
// processes have written down. Until then nothing is written.
func (g *Gate) load(dir int) {
	g.loading.Lock()
	defer g.loading.Unlock()
	if dir >= len(g.cfg.Journals) || g.isLoaded(dir) {
		return
	}
	snap := g.cfg.Snapshot()
	if snap == nil || snap.StateDirs[dir].Layout.Missing {
		return
	}
	var last shutdowns
	var runs savedRuns
	if !g.read(dir, lastShutdownFile, &last, &last.Version) || !g.read(dir, runsFile, &runs, &runs.Version) {
		return // the volume may answer later
	}
	if last.Version != documentVersion {
		last = shutdowns{}
	}
	if runs.Version != documentVersion {
		runs = savedRuns{}
	}
	defer func() {
		g.mu.Lock()
		g.loaded[dir] = true
		g.mu.Unlock()
	}()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range last.Applications {
		if s.changedSince(snap.StateDirs[dir]) && !slices.ContainsFunc(runs.Runs, func(r savedRun) bool { return r.Application == s.Application }) {
			continue // another run has followed, and nobody saw how it ended
		}
		if at := (key{dir, s.Application}); g.last[at] == nil {
			g.last[at] = &s
		}
	}
	for _, r := range runs.Runs {
		at := key{dir, r.Application}
		if end := g.last[at]; end != nil && end.Run == r.Since.UnixNano() || g.runs[at] != nil {
			continue // it was judged, and runs.json not written any more
		}
		g.saved[at] = r
		g.preallocates[dir] = g.preallocates[dir] || r.Mark.Preallocates
	}
}

// save writes down the running applications of each state directory, where
// there is something new, at most every few seconds unless now.
func (g *Gate) save(now bool) {
	g.saving.Lock()
	defer g.saving.Unlock()
	for i, doc := range g.unsaved(now) {
		if !g.isLoaded(i) {
			continue
		}
		var err error
		if len(doc.Runs) == 0 {
			err = g.cfg.Journals[i].Remove(runsFile)
		} else {
			err = g.cfg.Journals[i].Put(runsFile, doc)
		}
		g.wrote(i, runsFile, err)
		if err != nil { // once more, some seconds later
			g.mu.Lock()
			g.changed = true
			g.mu.Unlock()
		}
	}
}

// unsaved gives the documents of the running applications, nil if there is
// nothing new in them.
func (g *Gate) unsaved(now bool) (docs []savedRuns) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.changed || !now && time.Since(g.savedAt) < saveEvery {
		return nil
	}
	g.changed, g.savedAt = false, time.Now()
	docs = make([]savedRuns, len(g.cfg.Journals))
	add := func(dir int, r savedRun) {
		if dir < len(docs) {
			docs[dir].Runs = append(docs[dir].Runs, r)
		}
	}
	for k, r := range g.runs {
		add(k.dir, savedRun{r.app.id, r.since.Round(0), r.pid, r.cleanBefore, r.mark.clone(), r.call})
	}
	for k, r := range g.saved { // not met again yet
		add(k.dir, r)
	}
	for i := range docs {
		docs[i].Version = documentVersion
		slices.SortFunc(docs[i].Runs, func(a, b savedRun) int { return strings.Compare(a.Application, b.Application) })
	}
	return docs
}
