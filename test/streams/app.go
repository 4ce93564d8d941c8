package streams

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"syscall"
	"time"
)

// App is one Kafka Streams application, which can be opened, closed and killed
// many times, with other options, in another version, and on another
// directory. Where a method cannot do what its name says it fails the test,
// with the end of the JVM's log; those that start with Try return the error.
type App struct {
	ID string // application.id
	// Dir is the state.dir that the next Open uses, at first an empty one of
	// the test.
	Dir     string
	Options Options // of the next Open

	t        TB
	lab      *Lab
	version  string
	jvm      *jvm // nil until Open, and after the process has ended
	produced int
}

// App makes an application and its topics. It is closed with the test; t's
// temporary directories should be older than it, as Dir is.
func (l *Lab) App(t TB, version string, o Options) *App {
	t.Helper()
	a := &App{ID: or(o.Application, l.freshID()), Dir: t.TempDir(), Options: o, t: t, lab: l, version: version}
	if err := l.createTopics(a.ID, or(o.Partitions, 2)); err != nil {
		t.Fatalf("create topics of %s: %v", a.ID, err)
	}
	t.Cleanup(a.end)
	return a
}

// end leaves nothing of the application: whatever the test did, the JVM is
// then either clean for the next one, or gone.
func (a *App) end() {
	if a.t.Failed() {
		for _, j := range []*jvm{a.lab.broker, a.jvm} {
			if j != nil {
				a.t.Logf("the end of the log of %s:\n%s", j.name, tail(j.log(), 60))
			}
		}
	}
	a.release()
	if err := a.lab.deleteTopics(a.ID); err != nil {
		a.t.Logf("delete the topics of %s: %v", a.ID, err)
	}
}

func (a *App) release() {
	if a.jvm == nil {
		return
	}
	if closed, err := a.tryClose(30 * time.Second); err == nil && closed {
		a.lab.giveBack(a.version, a.jvm)
	} else {
		a.jvm.kill()
	}
	a.jvm = nil
}

// Upgrade makes the next Open use another version, later or earlier. The
// application must be closed.
func (a *App) Upgrade(version string) {
	a.t.Helper()
	a.release()
	a.version = version
}

// Open opens the application on Dir and starts it; see WaitRunning.
func (a *App) Open() {
	a.t.Helper()
	if err := a.TryOpen(); err != nil {
		a.fatal("open", err)
	}
}

// TryOpen is Open, for directories on which the constructor or start may throw
// (≥ 4.3 opens every store in start). The application must be closed also
// when it does, because what threw keeps the lock on the directory.
func (a *App) TryOpen() error {
	if err := a.lease(); err != nil {
		return err
	}
	bootstrap := a.lab.bootstrap
	if a.Options.Proxied {
		bootstrap = a.lab.proxied
	}
	return a.ask("/open", a.Options.form(a.version, bootstrap, a.ID, a.Dir), nil)
}

// Launch starts the JVM for the next Open, which does that itself, unless
// something is to be done to the JVM while it opens.
func (a *App) Launch() {
	a.t.Helper()
	if err := a.lease(); err != nil {
		a.fatal("launch", err)
	}
}

func (a *App) lease() error {
	if a.jvm != nil {
		return nil
	}
	j, err := a.lab.lease(a.version)
	if err == nil {
		a.jvm = j
	}
	return err
}

// Close is KafkaStreams.close with a timeout. It says whether that was enough;
// if not, Streams goes on closing.
func (a *App) Close(timeout time.Duration) bool {
	a.t.Helper()
	closed, err := a.tryClose(timeout)
	if err != nil {
		a.fatal("close", err)
	}
	return closed
}

// CloseClean closes and fails the test if that takes longer than patience allows.
func (a *App) CloseClean() {
	a.t.Helper()
	if !a.Close(patience) {
		a.fatal("close", os.ErrDeadlineExceeded)
	}
}

func (a *App) tryClose(timeout time.Duration) (bool, error) {
	var result struct{ Closed bool }
	ctx, cancel := context.WithTimeout(context.Background(), timeout+patience)
	defer cancel()
	if a.jvm == nil {
		return false, errNotOpen
	}
	err := a.jvm.post(ctx, "/close", url.Values{"millis": {millis(timeout)}}, &result)
	return result.Closed, err
}

// StopURL is the application's own shutdown endpoint: a POST starts the close
// and is answered at once, or with the form field sync=true once it is over.
// The JVM lives on. The URL is another one after the end of the JVM.
func (a *App) StopURL() string {
	a.t.Helper()
	if a.jvm == nil {
		a.fatal("stop URL", errNotOpen)
	}
	return a.jvm.url + "/stop"
}

// Log is the end of the JVM's log.
func (a *App) Log() string {
	a.t.Helper()
	if a.jvm == nil {
		a.fatal("log", errNotOpen)
	}
	return tail(a.jvm.log(), 500)
}

// PID of the JVM. Other applications of the same version run in it later.
func (a *App) PID() int {
	a.t.Helper()
	if a.jvm == nil {
		a.fatal("pid", errNotOpen)
	}
	return a.jvm.pid()
}

// Signal sends a signal to the JVM. On SIGTERM it closes the application and
// ends, or only ends if Options.NoHook was set when it was opened, or ends in
// the middle of the close after Options.HookTimeout; see WaitExit.
func (a *App) Signal(sig syscall.Signal) {
	a.t.Helper()
	if a.jvm == nil {
		a.fatal("signal", errNotOpen)
	}
	if err := a.jvm.cmd.Process.Signal(sig); err != nil {
		a.fatal("signal", err)
	}
}

// HasEnded says that the JVM has ended, by whoever's doing; see WaitExit.
func (a *App) HasEnded() bool { return a.jvm == nil || a.jvm.hasEnded() }

// WaitExit waits until the JVM has ended. The next Open takes another one.
func (a *App) WaitExit() *os.ProcessState {
	a.t.Helper()
	if a.jvm == nil {
		a.fatal("wait for the end", errNotOpen)
	}
	select {
	case <-a.jvm.ended:
	case <-time.After(patience):
		a.fatal("wait for the end", os.ErrDeadlineExceeded)
	}
	state := a.jvm.cmd.ProcessState
	a.jvm.kill()
	a.jvm = nil
	return state
}

// Kill is kill -9 of the JVM, and waits for its end.
func (a *App) Kill() {
	a.t.Helper()
	a.Signal(syscall.SIGKILL)
	a.WaitExit()
}

// Status of the application since it was opened.
type Status struct {
	State     string   // of KafkaStreams: REBALANCING, RUNNING, ERROR and so on
	Uncaught  []string // what reached the uncaught exception handler, each with its causes
	Processed int64    // records
	Restores  []Restore
}

// Restore of one changelog partition, as the StateRestoreListener heard it;
// that of a standby is not heard.
type Restore struct {
	Store     string
	Topic     string
	Partition int32
	From, To  int64 // offsets
	Records   int64
	Done      bool
}

// Status asks for it.
func (a *App) Status() Status {
	a.t.Helper()
	var s Status
	if err := a.ask("/status", nil, &s); err != nil {
		a.fatal("status", err)
	}
	return s
}

// Restored is how many records were restored since the application was
// opened, by store.
func (a *App) Restored() map[string]int64 {
	a.t.Helper()
	sum := map[string]int64{}
	for _, r := range a.Status().Restores {
		sum[r.Store] += r.Records
	}
	return sum
}

// WaitRunning waits for RUNNING, and fails at once if the application fails.
func (a *App) WaitRunning() { a.t.Helper(); a.WaitState("RUNNING") }

// WaitState waits for a state of KafkaStreams, and fails at once in one that
// cannot lead to it.
func (a *App) WaitState(state string) {
	a.t.Helper()
	a.wait("wait for "+state, func() (bool, error) {
		var s Status
		if err := a.ask("/status", nil, &s); err != nil {
			return false, err
		}
		if s.State == state {
			return true, nil
		}
		if s.State == "ERROR" || s.State == "NOT_RUNNING" {
			return false, fmt.Errorf("the state is %s: %q", s.State, s.Uncaught)
		}
		return false, nil
	})
}

// WaitProcessed waits until so many records were processed since the
// application was opened, committed or not.
func (a *App) WaitProcessed(records int64) {
	a.t.Helper()
	a.wait(fmt.Sprintf("wait for %d records", records), func() (bool, error) {
		var s Status
		err := a.ask("/status", nil, &s)
		return s.Processed >= records, err
	})
}

// WaitCommitted waits until every record of the input topic is processed and
// committed.
func (a *App) WaitCommitted() {
	a.t.Helper()
	a.wait("wait for the commit", func() (bool, error) {
		var result struct{ Lag int64 }
		err := a.lab.call("/lag", url.Values{"group": {a.ID}, "topic": {inputTopic(a.ID)}}, &result)
		return result.Lag == 0, err
	})
}

// Poison makes the processor throw at the next record, once. With
// at-least-once the record comes again after a restart.
func (a *App) Poison() { a.t.Helper(); a.poison(false) }

// PoisonClose makes the processor of one task throw when it is closed, once.
func (a *App) PoisonClose() { a.t.Helper(); a.poison(true) }

func (a *App) poison(inClose bool) {
	a.t.Helper()
	if err := a.ask("/poison", url.Values{"close": {strconv.FormatBool(inClose)}}, nil); err != nil {
		a.fatal("poison", err)
	}
}

// Content of a store or topic: two are equal if they hold the same entries.
type Content struct {
	Entries int64
	Hash    int64 // of keys and values, whatever their order
}

// Content of a store, over all tasks that this instance is active in. That of
// a key-value, versioned or global store can be compared with the content of
// a topic.
func (a *App) Content(store string) Content {
	a.t.Helper()
	c, err := a.TryContent(store)
	if err != nil {
		a.fatal("content of "+store, err)
	}
	return c
}

// TryContent is Content, for stores that Streams may not be able to read.
func (a *App) TryContent(store string) (Content, error) { return a.tryContent(store, false) }

// TryContentHere is TryContent over all tasks that this instance has, active,
// standby or restoring; not for versioned stores.
func (a *App) TryContentHere(store string) (Content, error) { return a.tryContent(store, true) }

func (a *App) tryContent(store string, standbys bool) (Content, error) {
	var c Content
	err := a.ask("/content", url.Values{
		"store": {store}, "keys": {strconv.Itoa(a.keys())}, "standbys": {strconv.FormatBool(standbys)},
	}, &c)
	return c, err
}

// Count is how many entries a store has.
func (a *App) Count(store string) int64 { a.t.Helper(); return a.Content(store).Entries }

// Truth is what kv must hold: the last value of each key of the input topic.
func (a *App) Truth() Content { a.t.Helper(); return a.topic(inputTopic(a.ID)) }

// Changelog is the content of the changelog of a store: what it can be
// restored to. Uncommitted transactions do not count.
func (a *App) Changelog(store string) Content {
	a.t.Helper()
	return a.topic(a.ID + "-" + store + "-changelog")
}

func (a *App) topic(topic string) Content {
	a.t.Helper()
	var c Content
	if err := a.lab.call("/content", url.Values{"topic": {topic}}, &c); err != nil {
		a.fatal("content of "+topic, err)
	}
	return c
}

// Ends are the end offsets of the application's topics, by
// "<topic>-<partition>": the offset that the next record will get.
func (a *App) Ends() map[string]int64 {
	a.t.Helper()
	ends := map[string]int64{}
	if err := a.lab.call("/ends", url.Values{"prefix": {a.ID + "-"}}, &ends); err != nil {
		a.fatal("end offsets", err)
	}
	return ends
}

// Metric is one value of KafkaStreams.metrics.
type Metric struct {
	Name  string
	Tags  map[string]string
	Value *float64 // nil if it is not finite
}

// Metrics of a group, such as "stream-state-metrics".
func (a *App) Metrics(group string) []Metric {
	a.t.Helper()
	var m []Metric
	if err := a.ask("/metrics", url.Values{"group": {group}}, &m); err != nil {
		a.fatal("metrics", err)
	}
	return m
}

// RocksDB is one of the properties that Streams reads from RocksDB, such as
// "live-sst-files-size", summed over the tasks and segments of a store. It waits
// for the store to be open: on a busy machine the group may rebalance.
func (a *App) RocksDB(store, property string) float64 {
	a.t.Helper()
	var sum float64
	a.wait(property+" of "+store, func() (found bool, err error) {
		sum = 0
		for _, m := range a.Metrics("stream-state-metrics") {
			if m.Name != property || m.Value == nil {
				continue
			}
			for _, tag := range []string{"rocksdb-state-id", "rocksdb-window-state-id", "rocksdb-session-state-id"} {
				if m.Tags[tag] == store {
					sum, found = sum+*m.Value, true
				}
			}
		}
		return found, nil
	})
	return sum
}

var errNotOpen = errors.New("the application has no JVM: it was never opened, or that has ended")

func (a *App) ask(path string, form url.Values, result any) error {
	if a.jvm == nil {
		return errNotOpen
	}
	return a.jvm.call(context.Background(), path, form, result)
}

func (a *App) wait(what string, done func() (bool, error)) {
	a.t.Helper()
	if err := poll(done); err != nil {
		a.fatal(what, err)
	}
}

func (a *App) fatal(what string, err error) {
	a.t.Helper()
	a.t.Fatalf("%s, Kafka Streams %s: %s: %v", a.ID, a.version, what, err)
}
