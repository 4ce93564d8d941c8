package server

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"streams-sidecar/internal/probe"
	"streams-sidecar/internal/report"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
)

// found is a store of a picture with what it belongs to.
type found struct {
	dir   *store.StateDir
	app   *store.Application
	task  *store.Task
	store *store.Store
}

func (f *found) detail(snap *probe.Snapshot, opinions report.Opinions, checks report.Checks) report.StoreDetail {
	d := report.NewStoreDetail(snap.At, f.dir, f.app, f.task, f.store, snap.Judgement.Store(f.store))
	d.Store.AddChecks(f.store, time.Now(), checks)
	if opinions != nil {
		d.AddOpinions(f.store, opinions)
	}
	return d
}

// lookupProblem is why a store was not found; with several, Choices tells them
// apart.
type lookupProblem struct {
	status  int
	Error   string   `json:"error"`
	Choices []choice `json:"choices,omitempty"`
}

// choice is one of several stores: what to give as ?state_dir= and ?path=.
type choice struct {
	StateDir string `json:"state_dir"`
	Path     string `json:"path"`
}

// lookup finds the store that a URL names: {application}/{task}/{store} below
// the tree, each as volume.Text writes it. A named topology's task has a slash
// in its id, which may be escaped or not.
func lookup(snap *probe.Snapshot, u *url.URL, tree string) (*found, *lookupProblem) {
	application, task, name, ok := elements(strings.TrimPrefix(u.EscapedPath(), tree))
	if !ok {
		return nil, &lookupProblem{status: http.StatusNotFound, Error: "the address of a store is " + tree + "{application}/{task}/{store}"}
	}
	q := u.Query()
	wanted := func(key, value string) bool { return !q.Has(key) || q.Get(key) == volume.Text(value) }
	noApplication := fmt.Sprintf("there is no application %s", application)
	if q.Has("state_dir") {
		noApplication += " in " + q.Get("state_dir")
	}
	// How far the best match went.
	const inApplication, inTask = 1, 2
	depth := 0
	var all []*found
	for _, d := range snap.StateDirs {
		if !wanted("state_dir", d.Layout.Path) {
			continue
		}
		for _, a := range d.Applications {
			if volume.Text(a.Layout.ID) != application {
				continue
			}
			depth = max(depth, inApplication)
			for _, t := range a.Tasks {
				if volume.Text(t.Layout.ID) != task {
					continue
				}
				depth = max(depth, inTask)
				for _, s := range t.Stores {
					if volume.Text(s.Name) == name && wanted("path", s.Layout.Path) {
						all = append(all, &found{d, a, t, s})
					}
				}
			}
		}
	}
	switch len(all) {
	case 0:
		missing := []string{
			noApplication,
			fmt.Sprintf("application %s has no task %s", application, task),
			fmt.Sprintf("task %s of application %s has no store %s", task, application, name),
		}
		return nil, &lookupProblem{status: http.StatusNotFound, Error: missing[depth]}
	case 1:
		return all[0], nil
	}
	p := &lookupProblem{status: http.StatusConflict, Error: "there are several stores of this name: choose with ?state_dir= or ?path="}
	for _, f := range all {
		p.Choices = append(p.Choices, choice{volume.Text(f.dir.Layout.Path), volume.Text(f.store.Layout.Path)})
	}
	return nil, p
}

// elements takes the path of a store apart.
func elements(escaped string) (application, task, name string, ok bool) {
	parts := strings.Split(escaped, "/")
	for i, p := range parts {
		text, err := url.PathUnescape(p)
		if err != nil || text == "" {
			return "", "", "", false
		}
		parts[i] = text
	}
	switch len(parts) {
	case 3:
		return parts[0], parts[1], parts[2], true
	case 4:
		return parts[0], parts[1] + "/" + parts[2], parts[3], true
	default:
		return "", "", "", false
	}
}
