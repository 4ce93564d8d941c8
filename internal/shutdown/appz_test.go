package shutdown_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"streams-sidecar/internal/shutdown"
)

// probed lets time pass while /appz is asked every ten seconds, and gives the
// last answer.
func probed(g *shutdown.Gate, d time.Duration) (ok bool, reason string) {
	for ; d > 0; d -= 10 * time.Second {
		g.Elapse(10 * time.Second)
		ok, reason = g.Alive()
	}
	return ok, reason
}

// dirty is the close of a client that died in ERROR: every store is closed, and
// nothing committed.
func dirty(c *client) {
	c.at(c.kv(), 100, 101)
	c.shut()
	c.unlock()
}

func TestAlive(t *testing.T) {
	t.Parallel()
	all := newCrowd(t)
	for _, c := range []struct {
		name string
		end  func(t *testing.T, c *client, g *shutdown.Gate) // nil: it never ran
		dead bool
	}{
		{name: "never ran"},
		{name: "runs", end: func(*testing.T, *client, *shutdown.Gate) {}},
		{name: "the client died", dead: true, end: func(_ *testing.T, c *client, g *shutdown.Gate) { dirty(c); g.Follow() }},
		{name: "the client died and its tasks were removed", dead: true, end: func(t *testing.T, c *client, g *shutdown.Gate) {
			c.shut()
			must(t, os.RemoveAll(c.path("0_0")))
			c.unlock()
			g.Follow()
		}},
		{name: "the client was closed, and the process lives on", dead: true, end: func(_ *testing.T, c *client, g *shutdown.Gate) { c.close(); g.Follow() }},
		{name: "the client died after a call that anybody may have made", dead: true, end: func(t *testing.T, c *client, g *shutdown.Gate) {
			if a := call(t, g, false); a.Outcome != shutdown.Observed {
				t.Errorf("the call got %+v", a)
			}
			dirty(c)
			g.Follow()
		}},
		{name: "the process was killed", end: func(_ *testing.T, c *client, g *shutdown.Gate) { c.Kill(); g.Follow() }},
		{name: "the process was killed in its close", end: func(_ *testing.T, c *client, g *shutdown.Gate) { c.shut(c.kv()); c.Kill(); g.Follow() }},
		{name: "it was closed for a call", end: func(t *testing.T, c *client, g *shutdown.Gate) {
			d := c.drain(g, shutdown.Call{Wait: true})
			c.close()
			answer(t, d)
		}},
		{name: "it died while a call waited", end: func(t *testing.T, c *client, g *shutdown.Gate) {
			d := c.drain(g, shutdown.Call{Wait: true})
			dirty(c)
			answer(t, d)
		}},
		{name: "it is back", end: func(_ *testing.T, c *client, g *shutdown.Gate) { dirty(c); g.Follow(); c.start(); g.Follow() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := all.rig(t, base("4.2.2"))
			var g *shutdown.Gate
			if c.end == nil {
				g = r.gate(time.Minute)
				g.Follow()
			} else {
				var cl *client
				cl, g = r.opened(func(r *rig) *shutdown.Gate { return r.gate(time.Minute, causes(shutdown.TriggerNone)) })
				c.end(t, cl, g)
			}
			if ok, reason := probed(g, 50*time.Second); !ok || len(g.State().Dead) != 0 {
				t.Errorf("within the first minute: %s", reason)
			}
			ok, reason := probed(g, 30*time.Second)
			if ok == c.dead || c.dead && !strings.Contains(reason, "calos422") || (len(g.State().Dead) == 1) != c.dead {
				t.Errorf("after it: ok %v %q, dead %v; want dead %v", ok, reason, g.State().Dead, c.dead)
			}
		})
	}
}

// TestAliveBeginsAnew: what another container of the application is asked about
// is its own time.
func TestAliveBeginsAnew(t *testing.T) {
	t.Parallel()
	r := newRig(t, base("4.2.2"))
	c, g := r.opened(func(r *rig) *shutdown.Gate { return r.gate(time.Minute) })
	dirty(c)
	g.Follow()
	again := func(why string) {
		t.Helper()
		if ok, _ := probed(g, 80*time.Second); ok {
			t.Fatalf("%s: /appz does not fail after more than a minute", why)
		}
	}
	again("at first")
	// A pause longer than any period of a probe: the container was restarted.
	g.Elapse(31 * time.Second)
	if ok, reason := g.Alive(); !ok {
		t.Errorf("after a gap: %s", reason)
	}
	if ok, reason := probed(g, 50*time.Second); !ok {
		t.Errorf("fifty seconds after a gap: %s", reason)
	}
	again("after a gap")
	// The kubelet calls the hook before it ends the container.
	if a := call(t, g, false); a.Outcome != shutdown.NotRunning || !strings.Contains(a.Explanation, "calos422") {
		t.Errorf("the hook got %+v", a)
	}
	if ok, reason := probed(g, 50*time.Second); !ok {
		t.Errorf("fifty seconds after the hook: %s", reason)
	}
	again("after the hook")
	// A gap that a slow probe can have changes nothing.
	g.Elapse(25 * time.Second)
	if ok, _ := g.Alive(); ok {
		t.Error("a slow probe is taken for another container")
	}
	// While a call waits nothing is said.
	c = r.start()
	g.Follow()
	d := r.drain(g, shutdown.Call{Wait: true})
	if ok, reason := probed(g, 80*time.Second); !ok {
		t.Errorf("in a drain: %s", reason)
	}
	c.close()
	answer(t, d)
}

// TestStrayGetDoesNotHideTheDead: where the hook has a token, only a call with it
// is the kubelet's.
func TestStrayGetDoesNotHideTheDead(t *testing.T) {
	t.Parallel()
	r := newRig(t, base("4.2.2"))
	c, g := r.opened(func(r *rig) *shutdown.Gate { return r.gate(time.Minute, token(t)) })
	dirty(c)
	g.Follow()
	ok := true
	for range 10 {
		ok, _ = probed(g, 10*time.Second)
		call(t, g, false)
	}
	if ok {
		t.Error("a GET every ten seconds keeps /appz from failing")
	}
}

// TestOneOfTwoIsDead: the same id in two state directories.
func TestOneOfTwoIsDead(t *testing.T) {
	t.Parallel()
	r := newRig(t, base("4.4.0"), base("4.4.0"))
	g := r.gate(time.Minute)
	g.Follow()
	c := r.start()
	g.Follow()
	for _, lock := range those(r.dbs, r.dirs[1]) {
		c.shut(filepath.Dir(lock))
	}
	c.Release(r.locks[1])
	g.Follow()
	probed(g, 80*time.Second)
	if s := g.State(); len(s.Dead) != 1 || s.Dead[0].Dir != 1 || len(s.Known) != 2 {
		t.Errorf("dead are %+v of %+v", s.Dead, s.Known)
	}
	for _, lock := range those(r.dbs, r.dirs[0]) {
		c.trim(filepath.Dir(lock))
	}
	// While a call waits for the one, nothing is said of the other.
	d := r.drain(g, shutdown.Call{Wait: true})
	if ok, reason := probed(g, 80*time.Second); !ok || len(g.State().Dead) != 0 {
		t.Errorf("in a drain: %s", reason)
	}
	c.Kill()
	answer(t, d)
	probed(g, 80*time.Second)
	if s := g.State(); len(s.Dead) != 1 || s.Dead[0].Dir != 1 {
		t.Errorf("after the other one's end for a call: dead are %+v", s.Dead)
	}
}
