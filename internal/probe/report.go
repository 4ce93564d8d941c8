package probe

import (
	"streams-sidecar/internal/event"
	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/store"
)

// report emits what differs between two pictures.
func report(to event.Sink, prev, cur *Snapshot, r *result) {
	was, is := summarize(prev), summarize(cur)
	for _, d := range cur.StateDirs {
		if d.Layout.Missing && r.full {
			to.Emit(event.Waiting{StateDir: d.Layout.Path})
		}
	}
	for k, pid := range is.running {
		if _, ok := was.running[k]; !ok {
			to.Emit(event.ApplicationStarted{Application: k.app, StateDir: k.dir, PID: pid})
		}
	}
	for k := range was.running {
		if _, ok := is.running[k]; !ok {
			to.Emit(event.ApplicationStopped{Application: k.app, StateDir: k.dir})
		}
	}
	for k := range is.stores {
		if !was.stores[k] {
			to.Emit(event.StoreAppeared{Application: k.app, Task: k.task, Store: k.store})
		}
	}
	for k := range was.stores {
		if !is.stores[k] {
			to.Emit(event.StoreVanished{Application: k.app, Task: k.task, Store: k.store})
		}
	}
	for k, f := range is.findings {
		// A missing state directory has a line of its own.
		if _, ok := was.findings[k]; !ok && f.Code != finding.StateDirMissing {
			to.Emit(event.FindingAppeared{File: f.File, Code: string(f.Code), Severity: string(f.Severity), Text: f.Text, Found: f.Found})
		}
	}
	for k := range was.findings {
		if _, ok := is.findings[k]; !ok {
			to.Emit(event.FindingGone{File: k.file, Code: string(k.code)})
		}
	}
	if r.full {
		to.Emit(event.Scanned{Took: r.took, Applications: is.applications, Stores: len(is.stores)})
	}
}

type (
	appKey     struct{ dir, app string }
	storeKey   struct{ dir, app, task, store string }
	findingKey struct {
		code finding.Code
		file string
	}
	summary struct {
		applications int
		running      map[appKey]int
		stores       map[storeKey]bool
		findings     map[findingKey]*finding.Finding
	}
)

func summarize(s *Snapshot) summary {
	out := summary{running: map[appKey]int{}, stores: map[storeKey]bool{}, findings: map[findingKey]*finding.Finding{}}
	if s == nil {
		return out
	}
	add := func(fs []finding.Finding) {
		for i := range fs {
			out.findings[findingKey{fs[i].Code, fs[i].File}] = &fs[i]
		}
	}
	for _, d := range s.StateDirs {
		add(d.Layout.Findings)
		for _, a := range d.Applications {
			out.applications++
			add(s.Judgement.Application(a).Findings)
			if a.Running != nil && *a.Running {
				out.running[appKey{d.Layout.Path, a.Layout.ID}] = a.Layout.HolderPID
			}
			for _, t := range a.Tasks {
				add(s.Judgement.Task(t).Findings)
			}
		}
		d.Stores(func(a *store.Application, t *store.Task, st *store.Store) {
			out.stores[storeKey{d.Layout.Path, a.Layout.ID, t.Layout.ID, st.Name}] = true
			add(s.Judgement.Store(st).Findings)
		})
	}
	return out
}
