package shutdown

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The limits of /appz.
const (
	// deadAfter is how long .lock must have been free.
	deadAfter = time.Minute
	// probeGap is how long no call may have come: the kubelet asks only while
	// the application's container runs, so a gap means another container.
	probeGap = 30 * time.Second
)

// appz is what the calls of /appz tell themselves: since when they come without
// a gap.
type appz struct{ newest, since time.Time }

// Alive answers /appz: false, with the reason, when .lock of an application
// has been free for more than a minute although it ran while this process
// looked, and no drain has closed it. The client has died then, and its JVM
// lives on: only a restart of the container helps. Calls are expected every
// few seconds, from the kubelet; after a gap the minute begins anew.
func (g *Gate) Alive() (ok bool, reason string) {
	now := time.Now()
	g.mu.Lock()
	if now.Sub(g.appz.newest) > probeGap {
		g.appz.since = now
	}
	g.appz.newest = now
	since := g.appz.since
	g.mu.Unlock()
	dead := g.dead(now)
	if len(dead) == 0 || now.Sub(since) <= deadAfter {
		return true, ""
	}
	var ids []string
	for k := range dead {
		ids = append(ids, k.id)
	}
	slices.Sort(ids)
	return false, fmt.Sprintf("nobody has held .lock for more than %v, although the application ran: the client is dead (%s)", deadAfter, strings.Join(ids, ", "))
}

// dead are the ends that left a container without a client.
func (g *Gate) dead(now time.Time) map[key]*Shutdown {
	out := map[key]*Shutdown{}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.drain != nil {
		return nil
	}
	for k, c := range g.concluded {
		// A call means that the container is being stopped; one that only
		// observed may have been anybody's. Where a store was not closed the
		// process is gone, and its container with it.
		stopped := c.end.Hook == Called && c.end.HookOutcome != Observed
		if now.Sub(c.at) > deadAfter && !stopped && !c.end.killed() {
			out[k] = c.end
		}
	}
	return out
}

// killed says that the process ended without closing its stores.
func (s *Shutdown) killed() bool {
	open := false
	for _, e := range s.Evidence {
		open = open || !e.Closed && e.Store != ""
	}
	return open
}
