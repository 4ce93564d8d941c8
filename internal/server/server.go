// Package server is the three listeners of the agent, for three kinds of
// caller: the kubelet (hook), Prometheus (metrics), and people and tools
// (admin). It holds no state and never touches the volume: everything it
// answers comes from the picture that probe keeps and from the preStop gate.
package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/go-chi/chi/v5"

	"streams-sidecar/internal/probe"
	"streams-sidecar/internal/report"
	"streams-sidecar/internal/shutdown"
)

// Prober is what the listeners need of probe.
type Prober interface {
	Snapshot() *probe.Snapshot
	Alive(limit time.Duration) bool
}

// Gate is what the hook listener needs of shutdown.
type Gate interface {
	Prestop(ctx context.Context, wait bool) (*shutdown.Answer, error)
}

// aliveLimit is how long the loop may stand still before /livez fails. It turns
// once a second and never waits for the disk.
const aliveLimit = 15 * time.Second

// Hook is the kubelet's listener: never TLS, never authentication.
func Hook(p Prober, g Gate) http.Handler {
	r := chi.NewRouter()
	r.Get("/prestop", func(w http.ResponseWriter, req *http.Request) {
		ans, err := g.Prestop(req.Context(), req.URL.Query().Get("wait") == "1")
		if err != nil {
			return // the caller has hung up
		}
		// The kubelet ignores the status; one JSON object well below the
		// 10 KiB at which it stops listening.
		writeJSON(w, http.StatusOK, ans)
	})
	r.Get("/livez", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, p.Alive(aliveLimit), "the loop of the agent stands still")
	})
	ready := func(w http.ResponseWriter, _ *http.Request) {
		answer(w, p.Snapshot() != nil, "the first look at the state directory is not done")
	}
	r.Get("/readyz", ready)
	// There is no guard to wait for: ready is started.
	r.Get("/startupz", ready)
	return r
}

func answer(w http.ResponseWriter, ok bool, reason string) {
	if ok {
		writeText(w, http.StatusOK, "ok\n")
		return
	}
	writeText(w, http.StatusServiceUnavailable, reason+"\n")
}

// Metrics is Prometheus' listener.
func Metrics(scrape http.Handler) http.Handler {
	r := chi.NewRouter()
	r.Handle("/metrics", scrape)
	r.Get("/", func(w http.ResponseWriter, _ *http.Request) {
		writeText(w, http.StatusOK, "streams-sidecar: metrics are at /metrics\n")
	})
	return r
}

// Admin is the listener for people and tools.
func Admin(p Prober) http.Handler {
	r := chi.NewRouter()
	r.Get("/", func(w http.ResponseWriter, _ *http.Request) {
		snap := p.Snapshot()
		if snap == nil {
			writeText(w, http.StatusServiceUnavailable, "the first look at the state directory is not done\n")
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		doc := report.New(snap.StateDirs)
		_, _ = fmt.Fprintf(w, "streams-sidecar, as of %s\n\n", snap.At.UTC().Format(time.RFC3339)) // the reader may hang up
		_ = doc.WriteText(w)
	})
	r.Get("/api/v1/state", func(w http.ResponseWriter, _ *http.Request) {
		snap := p.Snapshot()
		if snap == nil {
			writeJSON(w, http.StatusServiceUnavailable, problem{"the first look at the state directory is not done"})
			return
		}
		writeJSON(w, http.StatusOK, report.New(snap.StateDirs))
	})
	r.HandleFunc("/debug/pprof/", pprof.Index)
	r.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	r.HandleFunc("/debug/pprof/profile", pprof.Profile)
	r.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	r.HandleFunc("/debug/pprof/trace", pprof.Trace)
	for _, name := range []string{"allocs", "block", "goroutine", "heap", "mutex", "threadcreate"} {
		r.Handle("/debug/pprof/"+name, pprof.Handler(name))
	}
	return r
}

type problem struct {
	Error string `json:"error"`
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		writeText(w, http.StatusInternalServerError, err.Error()+"\n")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n')) // the reader may have hung up
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text))
}
