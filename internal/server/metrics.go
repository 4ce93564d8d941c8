package server

import (
	"net/http"

	"github.com/go-chi/chi/v5"
)

// Metrics is Prometheus' listener; scrape answers /metrics and bounds itself.
func Metrics(scrape http.Handler) http.Handler {
	r := chi.NewRouter()
	r.Use(answerWithin(answerTimeout))
	r.Handle("/metrics", scrape)
	r.Get("/", func(w http.ResponseWriter, _ *http.Request) {
		writeText(w, http.StatusOK, "streams-sidecar: metrics are at /metrics\n")
	})
	return r
}
