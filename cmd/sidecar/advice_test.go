package main

import (
	"context"
	"strings"
	"sync"
	"testing"

	"streams-sidecar/internal/event"
	"streams-sidecar/internal/probe"
	"streams-sidecar/internal/shutdown"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
	"streams-sidecar/test/fixture"
)

// A12: a state directory that does not survive the container is said at the
// start, with the type of its file system, and exported.
func TestCaseA12(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		resolved, kind, says string
	}{
		{"/tmp/kafka-streams", "ext4", "temporary"}, {"/var/lib/kafka-streams", "tmpfs", "tmpfs"},
		{"/var/lib/kafka-streams", "overlay", "overlay"}, {"/var/lib/kafka-streams", "ext4", ""}, {"/tmpfiles/x", "xfs", ""},
	} {
		a, ok := persistence("/state", c.resolved, &volume.Usage{Type: c.kind})
		if ok != (c.says != "") || !strings.Contains(a.Text, c.says) || ok && a.Code != "state-dir-not-persistent" {
			t.Errorf("%s on %s: %v %+v, want %q", c.resolved, c.kind, ok, a, c.says)
		}
	}
	a := startAgent(t, "--state-dir", fixture.Unpack(t, "3.9.1", "closed-clean"))
	if m := a.get(t, a.metrics); !strings.Contains(m, "kstreams_state_dir_info{file_system=") {
		t.Error("no kstreams_state_dir_info")
	}
}

type heard struct {
	mu     sync.Mutex
	advice []event.Advice
}

func (h *heard) Emit(e event.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a, ok := e.(event.Advice); ok {
		h.advice = append(h.advice, a)
	}
}

func (h *heard) codes() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []string
	for _, a := range h.advice {
		out = append(out, a.Code)
	}
	return strings.Join(out, " ")
}

// TestAdviceOnUsers: another user than the application's, and root.
func TestAdviceOnUsers(t *testing.T) {
	t.Parallel()
	d := store.Scan(volume.New(volume.OS()), fixture.Unpack(t, "3.9.1", "closed-clean"), nil)
	owner := d.Applications[0].Layout.UID
	d.Layout.Usage.Type = "ext4"
	d.Layout.Resolved = "/var/lib/kafka-streams"
	snap := &probe.Snapshot{StateDirs: []*store.StateDir{d}}
	for uid, want := range map[uint32]string{owner: "", owner + 1000: "runs-as-other-user"} {
		got := ""
		for _, a := range adviceOn(snap, uid) {
			got += a.Code
		}
		if got != want {
			t.Errorf("as user %d: %q, want %q", uid, got, want)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var h heard
	a := adviser{snapshot: func() *probe.Snapshot { return snap }, to: &h, last: func() []shutdown.LastShutdown { return nil },
		prestop: newPrestopAdvice(&shutdown.Config{Trigger: "none"}, "")}
	a.run(ctx)
	if got := h.codes(); got != "runs-as-root" {
		t.Errorf("as root: %q", got)
	}
}
