package streams

import (
	"errors"
	"math"
	"net/url"
	"strconv"
)

func (a *App) keys() int { return or(a.Options.Keys, 500) }

// Produce sends records to the input topic as fast as it goes, and waits until
// the broker has them. Keys come in turn and go on where the last call stopped;
// no two values are equal.
func (a *App) Produce(records int) {
	a.t.Helper()
	a.produce(inputTopic(a.ID), records)
}

// ProduceGlobal sends records to the topic of the global store.
func (a *App) ProduceGlobal(records int) {
	a.t.Helper()
	a.produce(globalTopic(a.ID), records)
}

func (a *App) produce(topic string, records int) {
	a.t.Helper()
	l := a.load(topic, records, 0)
	a.wait("produce", func() (bool, error) {
		s, err := l.status()
		return !s.Running, err
	})
	if sent := l.Stop(); sent != records {
		a.t.Fatalf("produced %d of %d records", sent, records)
	}
}

// Load is a steady stream of records into an input topic. It does not depend
// on any application, and goes on while one is closed or dead.
type Load struct {
	app *App
	id  string
}

// Load starts to send so many records a second, until Stop or the end of the test.
func (a *App) Load(perSecond int) *Load {
	a.t.Helper()
	l := a.load(inputTopic(a.ID), math.MaxInt32, perSecond)
	a.t.Cleanup(func() { _, _ = l.stop() }) // it may have been stopped
	return l
}

func (a *App) load(topic string, records, perSecond int) *Load {
	a.t.Helper()
	var result struct{ ID int64 }
	spread := a.Options.Spread
	if perSecond > 0 {
		spread = 0
	}
	err := a.lab.call("/load/start", url.Values{
		"topic":  {topic},
		"first":  {strconv.Itoa(a.produced)},
		"count":  {strconv.Itoa(records)},
		"keys":   {strconv.Itoa(a.keys())},
		"rate":   {strconv.Itoa(perSecond)},
		"spread": {millis(spread)},
		"size":   {strconv.Itoa(or(a.Options.ValueBytes, 40))},
	}, &result)
	if err != nil {
		a.fatal("load", err)
	}
	return &Load{app: a, id: strconv.FormatInt(result.ID, 10)}
}

// Stop ends the load and says how many records it has sent; the broker has
// all of them then.
func (l *Load) Stop() int {
	l.app.t.Helper()
	s, err := l.stop()
	if err != nil {
		l.app.fatal("stop the load", err)
	}
	l.app.produced += s.Sent
	return s.Sent
}

type loadStatus struct {
	Running bool
	Sent    int
	Error   string
}

func (l *Load) status() (loadStatus, error) { return l.ask("/load/status") }

func (l *Load) stop() (loadStatus, error) { return l.ask("/load/stop") }

func (l *Load) ask(path string) (loadStatus, error) {
	var s loadStatus
	err := l.app.lab.call(path, url.Values{"id": {l.id}}, &s)
	if err == nil && s.Error != "" {
		err = errors.New(s.Error)
	}
	return s, err
}
