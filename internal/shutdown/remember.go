package shutdown

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"streams-sidecar/internal/event"
	"streams-sidecar/internal/journal"
	"streams-sidecar/internal/volume"
)

// read gives what an earlier process has written. A document that is not there
// or cannot be used is an empty one.
//
// ok is false if the volume has failed: it may give it later.
func (g *Gate) read(dir int, name string, doc any, version *int) (ok bool) {
	err := g.cfg.Journals[dir].Read(name, doc)
	switch {
	case err != nil:
		*version = 0 // a part of it may have been taken over
	case *version != documentVersion:
		err = fmt.Errorf("%s has version %d, this sidecar knows %d: it is not used", name, *version, documentVersion)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, journal.ErrNoStateDir) {
		err = nil
	}
	g.trouble(dir, name, err)
	if err == nil {
		*version = documentVersion // also of one that is not there
	}
	class := volume.ClassOf(err)
	return class != volume.Stuck && class != volume.IO
}

// writeLast writes down how the applications of a state directory have ended.
// It does not wait until that is durable, because an answer waits for it, and a
// busy disk takes most of a second (measured); see sync.
func (g *Gate) writeLast(dir int) {
	if dir >= len(g.cfg.Journals) {
		return
	}
	g.load(dir)
	g.mu.Lock()
	if !g.loaded[dir] { // or what it tells of others would be lost
		g.unwritten[dir] = time.Now()
		g.mu.Unlock()
		return
	}
	doc := shutdowns{Version: documentVersion, Applications: []Shutdown{}}
	for k, s := range g.last {
		if k.dir == dir {
			doc.Applications = append(doc.Applications, *s)
		}
	}
	g.mu.Unlock()
	slices.SortFunc(doc.Applications, func(a, b Shutdown) int { return strings.Compare(a.Application, b.Application) })
	err := g.cfg.Journals[dir].Put(lastShutdownFile, doc)
	g.wrote(dir, lastShutdownFile, err)
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.unwritten, dir)
	if err != nil {
		g.unwritten[dir] = time.Now()
	}
}

// wrote notes that a document was written, and is not durable yet.
func (g *Gate) wrote(dir int, name string, err error) {
	g.trouble(dir, name, err)
	if err == nil {
		g.mu.Lock()
		g.unsynced[document{dir, name}] = true
		g.mu.Unlock()
	}
}

// retry writes again what could not be written some seconds ago.
func (g *Gate) retry() {
	g.mu.Lock()
	var dirs []int
	for dir, at := range g.unwritten {
		if time.Since(at) >= saveEvery {
			dirs = append(dirs, dir)
		}
	}
	g.mu.Unlock()
	for _, dir := range dirs {
		g.writeLast(dir)
	}
}

// sync makes durable what was written, unless a call waits: the disk has enough
// to do then, and may take seconds for it.
func (g *Gate) sync() {
	if !g.syncing.TryLock() {
		return
	}
	defer g.syncing.Unlock()
	g.mu.Lock()
	var all []document
	if g.drain == nil {
		for of := range g.unsynced {
			all = append(all, of)
		}
		clear(g.unsynced)
	}
	g.mu.Unlock()
	for _, of := range all {
		if err := g.durable[of.dir].Sync(of.name); !errors.Is(err, fs.ErrNotExist) { // it may have been removed
			g.trouble(of.dir, of.name, err)
		}
	}
}

// document names one document of one state directory.
type document struct {
	dir  int
	name string
}

// trouble remembers whether the newest use of a document has failed, and tells
// of it once.
func (g *Gate) trouble(dir int, name string, err error) {
	of := document{dir, name}
	g.mu.Lock()
	_, before := g.troubles[of]
	if err == nil {
		delete(g.troubles, of)
	} else {
		g.troubles[of] = err.Error()
	}
	g.mu.Unlock()
	if err != nil && !before {
		g.cfg.Events.Emit(event.JournalTrouble{Text: err.Error()})
	}
}

// journalError is one of the troubles that last, that of last-shutdown.json
// first; "" if there is none. The caller holds mu.
func (g *Gate) journalError() string {
	var first *document
	for of := range g.troubles {
		if first == nil || of.name < first.name || of.name == first.name && of.dir < first.dir {
			first = &of
		}
	}
	if first == nil {
		return ""
	}
	return g.troubles[*first]
}
