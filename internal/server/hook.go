package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"streams-sidecar/internal/shutdown"
)

// aliveLimit is how long the loop may stand still before /livez fails. It turns
// once a second and never waits for the disk.
const aliveLimit = 15 * time.Second

// TokenHeader carries the token of a call that may cause a close.
const TokenHeader = "X-Sidecar-Token"

// Hook is the kubelet's listener: never TLS, never authentication. Its calls
// are not limited but by [HookConnections]: a call that were turned away would
// let SIGTERM go.
func Hook(p Prober, g Gate) http.Handler {
	r := chi.NewRouter()
	// Old kubelets make the URL from host:port/ and a path with its slash.
	r.Use(answerWithin(answerTimeout), middleware.CleanPath)
	r.Get("/prestop", func(w http.ResponseWriter, req *http.Request) {
		ans, err := g.Prestop(req.Context(), shutdown.Call{Wait: waits(req), Token: req.Header.Get(TokenHeader)})
		if err != nil {
			return // the caller has hung up
		}
		// The kubelet ignores the status; one JSON object below the 10 KiB
		// at which it stops listening.
		writeJSON(w, http.StatusOK, ans)
	})
	live := func(w http.ResponseWriter, _ *http.Request) {
		verdict(w, p.Alive(aliveLimit), "the loop of the agent stands still")
	}
	ready := func(w http.ResponseWriter, _ *http.Request) { verdict(w, p.Snapshot() != nil, notReady) }
	// There is no guard to wait for: ready is started.
	appz := func(w http.ResponseWriter, _ *http.Request) {
		ok, reason := g.Alive()
		verdict(w, ok, reason)
	}
	for path, probe := range map[string]http.HandlerFunc{"/livez": live, "/readyz": ready, "/startupz": ready, "/appz": appz} {
		r.Get(path, probe)
		r.Head(path, probe) // what some probes and load balancers use
	}
	return r
}

// waits reads ?wait, which is false if it is not there. Whatever does not say no
// means yes: the kubelet shows an error to nobody, and sends SIGTERM.
func waits(req *http.Request) bool {
	text := req.URL.Query().Get("wait")
	if text == "" {
		return false
	}
	wait, err := strconv.ParseBool(text)
	return wait || err != nil
}

func verdict(w http.ResponseWriter, ok bool, reason string) {
	if ok {
		writeText(w, http.StatusOK, "ok\n")
		return
	}
	writeText(w, http.StatusServiceUnavailable, reason+"\n")
}
