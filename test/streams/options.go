package streams

import (
	"fmt"
	"maps"
	"net/url"
	"strconv"
	"time"
)

// Kind of a store.
type Kind string

// The kinds of store. All keep the last value of a key.
const (
	Plain       Kind = "PLAIN"       // key-value
	Timestamped Kind = "TIMESTAMPED" // key-value with timestamps
	WAL         Kind = "WAL"         // key-value that writes through the WAL, as no store of Streams does
	Unlogged    Kind = "UNLOGGED"    // key-value without a changelog
	Window      Kind = "WINDOW"
	Session     Kind = "SESSION"
	Versioned   Kind = "VERSIONED" // from 3.5 on
	Global      Kind = "GLOBAL"    // a global table of a topic of its own, see App.ProduceGlobal
)

// Retention of window, session and versioned stores; Streams then makes
// segments of five minutes.
const Retention = 10 * time.Minute

// Stores of an application, by name.
type Stores map[string]Kind

// Small is kv, timestamped, and so many more of the kind: x00, x01 and so on.
func Small(more int) Stores {
	s := Stores{"kv": Timestamped}
	for i := range more {
		s[fmt.Sprintf("x%02d", i)] = Timestamped
	}
	return s
}

// Full is one of each kind that a version has and that Streams itself makes:
// kv, plain, unlogged, win, sess, ver and the global gtab.
func Full(version string) Stores {
	s := Stores{"kv": Timestamped, "plain": Plain, "unlogged": Unlogged, "win": Window, "sess": Session, "gtab": Global}
	if AtLeast(version, 3, 5) {
		s["ver"] = Versioned
	}
	return s
}

// AtLeast says that a version of Kafka is not below major.minor.
func AtLeast(version string, major, minor int) bool {
	var a, b int
	if _, err := fmt.Sscanf(version, "%d.%d", &a, &b); err != nil {
		panic(fmt.Sprintf("version %q: %v", version, err)) // it is written in a test
	}
	return a > major || a == major && b >= minor
}

// Options of an application. The zero value is usable. They may be changed
// between two calls of App.Open.
type Options struct {
	// Application is application.id; empty for one that no other test has.
	// Two Apps of one Application are two instances, each with a Dir of its own.
	Application string
	// Instance is group.instance.id, "1" if empty. As a static member, an
	// application takes its tasks back at once when it is opened again, also
	// after it was killed.
	Instance string
	// Dynamic makes it no static member. Streams does not leave the group on
	// close either, so the next Open then waits for SessionTimeout.
	Dynamic        bool
	SessionTimeout time.Duration // main.consumer.session.timeout.ms; 6 s if 0

	Stores      Stores        // Small(0) if nil
	Partitions  int           // of the input topic, and so tasks; 2 if 0. Only the first App of an Application decides
	ExactlyOnce bool          // processing.guarantee
	Commit      time.Duration // commit.interval.ms; 100 ms if 0
	Standbys    int           // num.standby.replicas
	Threads     int           // num.stream.threads; 1 if 0
	// Transactional switches transactional state stores on (from 4.4).
	Transactional bool

	WriteBuffer int  // bytes of each of RocksDB's write buffers; Streams' 16 MiB if 0
	InfoLog     bool // RocksDB logs at INFO and dumps its statistics each second

	// Proxied makes the application reach the broker through Lab.Proxy.
	Proxied bool

	// NoHook makes SIGTERM end the JVM without a close.
	NoHook bool
	// HookTimeout is for how long SIGTERM lets the close go on before the JVM
	// ends; 5 minutes if 0.
	HookTimeout time.Duration
	// Config is any further configuration of Streams, or another value of one of the above.
	Config map[string]string

	Keys       int // of what is produced; 500 if 0
	ValueBytes int // of filler in each value; 40 if 0
	// Spread gives what App.Produce sends timestamps from so long ago until
	// now, so that they fall into several segments.
	Spread time.Duration
}

func or[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

func (o Options) stores() Stores {
	if o.Stores == nil {
		return Small(0)
	}
	return o.Stores
}

// form is what the Java program needs to open the application.
func (o Options) form(version, bootstrap, app, dir string) url.Values {
	form := url.Values{
		"input":  {inputTopic(app)},
		"global": {globalTopic(app)},
	}
	hook := or(o.HookTimeout, 5*time.Minute)
	if o.NoHook {
		hook = 0
	}
	form.Set("hook.millis", millis(hook))
	for name, kind := range o.stores() {
		form.Set("store."+name, string(kind))
	}
	for name, value := range o.config(version, bootstrap, app, dir) {
		form.Set("config."+name, value)
	}
	return form
}

func (o Options) config(version, bootstrap, app, dir string) map[string]string {
	session := or(o.SessionTimeout, 6*time.Second)
	c := map[string]string{
		"application.id":                      app,
		"bootstrap.servers":                   bootstrap,
		"state.dir":                           dir,
		"replication.factor":                  "1",
		"auto.offset.reset":                   "earliest",
		"commit.interval.ms":                  millis(or(o.Commit, 100*time.Millisecond)),
		"num.standby.replicas":                strconv.Itoa(o.Standbys),
		"num.stream.threads":                  strconv.Itoa(or(o.Threads, 1)),
		"main.consumer.session.timeout.ms":    millis(session),
		"main.consumer.heartbeat.interval.ms": millis(session / 6),
		// The same trap for new changelogs as in the broker's Tool.
		"producer.max.in.flight.requests.per.connection": "1",
	}
	if !o.Dynamic {
		c["group.instance.id"] = or(o.Instance, "1")
	}
	if o.ExactlyOnce {
		c["processing.guarantee"] = "exactly_once_v2"
		if !AtLeast(version, 3, 0) {
			c["processing.guarantee"] = "exactly_once_beta"
		}
	}
	if o.Transactional {
		c["enable.transactional.statestores"] = "true"
	}
	if o.WriteBuffer > 0 || o.InfoLog {
		c["rocksdb.config.setter"] = "streams.sidecar.lab.app.Tuning"
	}
	if o.WriteBuffer > 0 {
		c["lab.write.buffer.bytes"] = strconv.Itoa(o.WriteBuffer)
	}
	if o.InfoLog {
		c["lab.info.log.dump.seconds"] = "1"
	}
	maps.Copy(c, o.Config)
	return c
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
