package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"streams-sidecar/internal/event"
	"streams-sidecar/internal/probe"
	"streams-sidecar/internal/shutdown"
	"streams-sidecar/internal/volume"
)

// adviceEvery is how often the picture is looked at for something to advise on.
const adviceEvery = 2 * time.Second

// adviser says, once for each application and state directory, what about the
// way in which the agent is run will get in its way.
type adviser struct {
	uid      int
	snapshot func() *probe.Snapshot
	to       event.Sink
	prestop  prestopAdvice
	last     func() []shutdown.LastShutdown
}

func (a *adviser) run(ctx context.Context) {
	if a.uid == 0 {
		a.to.Emit(event.Advice{Code: "runs-as-root", Subject: "sidecar",
			Text: "the sidecar runs as root, which it never needs: run it with the application's runAsUser"})
	}
	for _, x := range a.prestop.atStart() {
		a.to.Emit(x)
	}
	said := map[[2]string]bool{}
	tick := time.NewTicker(adviceEvery)
	defer tick.Stop()
	for {
		if s := a.snapshot(); s != nil {
			for _, x := range append(adviceOn(s, uint32(a.uid)), a.prestop.on(s, a.last())...) {
				if once := [2]string{x.Code, x.Subject}; !said[once] {
					said[once] = true
					a.to.Emit(x)
				}
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// adviceOn is what there is to say of a picture.
func adviceOn(s *probe.Snapshot, uid uint32) (out []event.Advice) {
	for _, d := range s.StateDirs {
		if a, ok := persistence(d.Layout.Path, d.Layout.Resolved, d.Layout.Usage); ok {
			out = append(out, a)
		}
		for _, app := range d.Applications {
			if owner := app.Layout.UID; owner != uid && uid != 0 {
				out = append(out, event.Advice{Code: "runs-as-other-user", Subject: volume.Text(app.Layout.ID),
					Text: fmt.Sprintf("the application runs as user %d, the sidecar as %d: Kafka Streams sets its directories to 0750, so give both the same runAsUser, or the same fsGroup", owner, uid)})
			}
		}
	}
	return out
}

// persistence says that a state directory does not survive its container:
// Streams' default lies below the directory for temporary files, tmpfs is
// memory, and overlay the container's own layer.
func persistence(path, resolved string, u *volume.Usage) (event.Advice, bool) {
	a := event.Advice{Code: "state-dir-not-persistent", Subject: volume.Text(path)}
	switch {
	case u == nil:
		return a, false
	case u.Type == "tmpfs" || u.Type == "overlay":
		a.Text = "the state directory is on " + u.Type + ", which does not survive the container: mount a volume there"
	case strings.HasPrefix(resolved+"/", "/tmp/"): // of the application's container, whatever $TMPDIR is here
		a.Text = "the state directory is below the directory for temporary files (on " + u.Type + "), where it may be cleaned up: set state.dir to a volume"
	default:
		return a, false
	}
	return a, true
}
