// Package server is the three listeners of the agent, for three kinds of
// caller: the kubelet (hook), Prometheus (metrics), and people and tools
// (admin). It never touches the volume: everything it answers comes from the
// picture that probe keeps and from the preStop gate. Beside the rendered form
// of the newest picture it keeps no state.
//
// Every listener is bounded: connections, size of a header, time for a header
// and for an answer, and how many answers are made at a time. Only cmd/sidecar
// imports it.
package server

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"streams-sidecar/internal/probe"
	"streams-sidecar/internal/shutdown"
)

// Prober is what the listeners need of probe.
type Prober interface {
	Snapshot() *probe.Snapshot
	Alive(limit time.Duration) bool
}

// Gate is what the hook listener needs of shutdown.
type Gate interface {
	Prestop(ctx context.Context, c shutdown.Call) (*shutdown.Answer, error)
	Alive() (ok bool, reason string)
}

// notReady is the answer of everything that needs a picture before there is one.
const notReady = "the first look at the state directory is not done"

type problem struct {
	Error string `json:"error"`
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		writeText(w, http.StatusInternalServerError, err.Error()+"\n")
		return
	}
	write(w, status, "application/json", append(data, '\n'))
}

func writeText(w http.ResponseWriter, status int, text string) {
	write(w, status, "text/plain; charset=utf-8", []byte(text))
}

func write(w http.ResponseWriter, status int, contentType string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the reader may have hung up
}
