package server

import (
	"bytes"
	"encoding/json"
	"html/template"
	"io"
	"net/http"
	"net/http/pprof"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"

	"streams-sidecar/internal/probe"
	"streams-sidecar/internal/report"
)

// Bounds of the admin listener: how many requests are answered at a time, and
// how long others wait for their turn.
const (
	maxRequests = 16
	turnTimeout = 5 * time.Second
)

// Admin is the listener for people and tools. c is nil if RocksDB itself is not
// asked; checks gives when the tables were last verified.
func Admin(p Prober, g Stater, c Consultant, checks report.Checks) http.Handler {
	a := &admin{prober: p, gate: g, rocks: c, checks: checks, asking: make(chan struct{}, 1)}
	r := chi.NewRouter()
	r.Use(atMost(maxRequests, turnTimeout, func(w http.ResponseWriter, req *http.Request) {
		fail(w, req, http.StatusServiceUnavailable, "too many requests at the same time")
	}))
	r.Group(func(r chi.Router) {
		r.Use(answerWithin(answerTimeout))
		r.Get("/", a.status)
		r.Get(storePages+"*", a.storePage)
		r.Get("/api/v1/state", a.stateJSON)
		r.Get("/api/v1/shutdown", a.shutdownJSON)
		r.Get(storeAPI+"*", a.storeJSON)
	})
	r.Group(func(r chi.Router) {
		r.Use(answerWithin(profileTimeout))
		r.Get("/debug/pprof/", pprof.Index)
		r.Get("/debug/pprof/profile", pprof.Profile)
		r.Get("/debug/pprof/symbol", pprof.Symbol)
		r.Get("/debug/pprof/trace", pprof.Trace)
		for _, name := range []string{"allocs", "block", "goroutine", "heap", "mutex", "threadcreate"} {
			r.Get("/debug/pprof/"+name, pprof.Handler(name).ServeHTTP)
		}
	})
	r.NotFound(func(w http.ResponseWriter, req *http.Request) {
		fail(w, req, http.StatusNotFound, "there is no such page")
	})
	r.MethodNotAllowed(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Allow", http.MethodGet)
		fail(w, req, http.StatusMethodNotAllowed, "only GET")
	})
	return r
}

// The trees of the stores: /…/{application}/{task}/{store}.
const (
	storePages = "/stores/"
	storeAPI   = "/api/v1/stores/"
)

// fail answers an error, as JSON to who asks the API.
func fail(w http.ResponseWriter, req *http.Request, status int, text string) {
	if strings.HasPrefix(req.URL.Path, "/api/") {
		writeJSON(w, status, problem{text})
		return
	}
	writeText(w, status, text+"\n")
}

type admin struct {
	prober Prober
	gate   Stater
	rocks  Consultant
	checks report.Checks
	asking chan struct{} // lets one request at a time wait for RocksDB
	// The forms of the whole picture.
	json, text, html rendered
	// making lets one form of a store be made at a time: a store can have
	// many thousand tables.
	making sync.Mutex
}

// rendered is one form of the newest picture that somebody asked for. It is
// made once, whoever asks at the same time, and again when it is a second old:
// what the gate has to say changes between two pictures.
type rendered struct {
	mu   sync.Mutex
	seq  uint64
	made time.Time
	body []byte
}

const renderedFor = time.Second

func (r *rendered) of(snap *probe.Snapshot, form func(io.Writer, *probe.Snapshot) error) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// Another one may have come with a newer picture meanwhile.
	if r.body != nil && r.seq >= snap.Seq && time.Since(r.made) < renderedFor {
		return r.body, nil
	}
	made := time.Now()
	var b bytes.Buffer
	if err := form(&b, snap); err != nil {
		return nil, err
	}
	r.seq, r.made, r.body = snap.Seq, made, b.Bytes()
	return r.body, nil
}

// answer writes a form of the newest picture.
func (a *admin) answer(w http.ResponseWriter, req *http.Request, r *rendered, contentType string, form func(io.Writer, *probe.Snapshot) error) {
	snap := a.prober.Snapshot()
	if snap == nil {
		fail(w, req, http.StatusServiceUnavailable, notReady)
		return
	}
	body, err := r.of(snap, form)
	if err != nil {
		fail(w, req, http.StatusInternalServerError, err.Error())
		return
	}
	write(w, http.StatusOK, contentType, body)
}

func (a *admin) stateJSON(w http.ResponseWriter, req *http.Request) {
	a.answer(w, req, &a.json, "application/json", func(to io.Writer, snap *probe.Snapshot) error {
		return json.NewEncoder(to).Encode(a.document(snap))
	})
}

func (a *admin) status(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Vary", "Accept")
	if wantsText(req) {
		a.answer(w, req, &a.text, "text/plain; charset=utf-8", a.statusText)
		return
	}
	strict(w)
	a.answer(w, req, &a.html, "text/html; charset=utf-8", a.statusHTML)
}

// wantsText says that the caller asks for text and takes no HTML.
func wantsText(req *http.Request) bool {
	if f := req.URL.Query().Get("format"); f != "" {
		return f == "text"
	}
	accept := strings.Join(req.Header.Values("Accept"), ",")
	return strings.Contains(accept, "text/plain") && !strings.Contains(accept, "text/html")
}

// strict keeps a page from loading or running anything: it shows names that
// anybody may have chosen.
func strict(w http.ResponseWriter) {
	w.Header().Set("Content-Security-Policy",
		"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	w.Header().Set("Referrer-Policy", "no-referrer")
}

func (a *admin) storeJSON(w http.ResponseWriter, req *http.Request) {
	snap := a.prober.Snapshot()
	if snap == nil {
		fail(w, req, http.StatusServiceUnavailable, notReady)
		return
	}
	found, p := lookup(snap, req.URL, storeAPI)
	if p != nil {
		writeJSON(w, p.status, p)
		return
	}
	opinions, ok := a.opinionsFor(w, req, found.store)
	if !ok {
		return
	}
	a.making.Lock()
	body, err := json.Marshal(found.detail(snap, opinions, a.checks))
	a.making.Unlock()
	if err != nil {
		fail(w, req, http.StatusInternalServerError, err.Error())
		return
	}
	write(w, http.StatusOK, "application/json", append(body, '\n'))
}

func (a *admin) storePage(w http.ResponseWriter, req *http.Request) {
	strict(w)
	snap := a.prober.Snapshot()
	if snap == nil {
		fail(w, req, http.StatusServiceUnavailable, notReady)
		return
	}
	status, page, data := http.StatusOK, templates.Lookup("store.html"), any(nil)
	found, p := lookup(snap, req.URL, storePages)
	if p != nil {
		status, page, data = p.status, templates.Lookup("problem.html"), newProblemPage(req.URL, p)
	}
	var opinions report.Opinions
	if p == nil {
		var ok bool
		if opinions, ok = a.opinionsFor(w, req, found.store); !ok {
			return
		}
	}
	body, err := func() ([]byte, error) {
		a.making.Lock()
		defer a.making.Unlock()
		if p == nil {
			data = newStorePage(found.detail(snap, opinions, a.checks), req.URL, a.rocks != nil)
		}
		return execute(page, data)
	}()
	if err != nil {
		fail(w, req, http.StatusInternalServerError, err.Error())
		return
	}
	write(w, status, "text/html; charset=utf-8", body)
}

func execute(t *template.Template, data any) ([]byte, error) {
	var b bytes.Buffer
	err := t.Execute(&b, data)
	return b.Bytes(), err
}

// storeURL is the address of a store below one of the trees. The state
// directory and path are given only where they are needed to tell it from
// others.
func storeURL(tree string, application, task, name string, query url.Values) string {
	u := tree + url.PathEscape(application) + "/" + url.PathEscape(task) + "/" + url.PathEscape(name)
	if len(query) > 0 {
		u += "?" + query.Encode()
	}
	return u
}
