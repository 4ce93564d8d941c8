// Package streams is the lab: real Kafka Streams applications of several
// versions against a real broker, driven from Go tests. What the sidecar says
// of a state directory is held against what Streams itself then does with it.
//
// A broker is started once per process of tests, and a JVM per version of
// Kafka Streams serves one application after another; all of them end with
// the process, however it ends. See README.md.
//
// The package knows Streams' configuration and the HTTP of its own Java
// programs. It reads no state directory. Only tests and the demo beside it may
// import it. Tests that start the lab have the build tag streams.
package streams

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Versions of Kafka Streams that the lab's own tests run, ascending. Any other
// release from 2.8 on works as well.
var Versions = []string{"2.8.2", "3.9.1", "4.2.2", "4.3.1", "4.4.0"}

// brokerVersion is the newest Kafka that still serves clients of 2.8.
const brokerVersion = "4.4.0"

// TB is what the lab needs of a testing.TB; the demo has one of its own.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
	Cleanup(f func())
	Failed() bool
	TempDir() string
}

// Lab is a running broker with the JVMs that use it. Its methods may be called
// from several tests at once.
type Lab struct {
	broker    *jvm
	bootstrap string
	proxied   string // bootstrap through the proxy
	proxy     *Proxy

	mu    sync.Mutex
	idle  []idle         // the one that was used last at the end
	users map[string]int // of an application's topics, by its id
	last  int            // of the application ids that were given
}

type idle struct {
	version string
	jvm     *jvm
}

// maxIdle is how many JVMs wait for another application: one per version that
// is in use, and one more. Each takes some 200 MB.
var maxIdle = len(Versions) + 1

var start = sync.OnceValues(func() (*Lab, error) {
	path, err := install("broker", brokerVersion)
	if err != nil {
		return nil, err
	}
	b, about, err := startJVM("Kafka "+brokerVersion, path, "streams.sidecar.lab.broker.Main", "512m",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
	if err != nil {
		return nil, err
	}
	proxy, err := startProxy(about.Proxied, about.Behind)
	if err != nil {
		b.kill()
		return nil, fmt.Errorf("the proxy before Kafka: %w", err)
	}
	return &Lab{broker: b, bootstrap: about.Bootstrap, proxied: about.Proxied, proxy: proxy, users: map[string]int{}}, nil
})

// Proxy of the applications with Options.Proxied.
func (l *Lab) Proxy() *Proxy { return l.proxy }

// Start gives the lab of this process, and starts its broker if it is the
// first call: some seconds, or minutes where the jars are not in the cache yet.
func Start(t TB) *Lab {
	t.Helper()
	l, err := start()
	if err != nil {
		t.Fatalf("start the Streams lab: %v", err)
	}
	return l
}

// lease gives a JVM of a version for one application at a time.
func (l *Lab) lease(version string) (*jvm, error) {
	if j := l.takeIdle(version); j != nil {
		return j, nil
	}
	path, err := install("application", version)
	if err != nil {
		return nil, err
	}
	j, _, err := startJVM("Kafka Streams "+version, path, "streams.sidecar.lab.app.Main", "256m",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
		"-Dorg.slf4j.simpleLogger.showDateTime=true",
		"-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
		"-Dorg.slf4j.simpleLogger.log.org.apache.kafka.clients=warn",
		"-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common=warn",
		"-Dorg.slf4j.simpleLogger.log.org.apache.kafka.streams.StreamsConfig=warn")
	return j, err
}

func (l *Lab) takeIdle(version string) *jvm {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, free := range slices.Backward(l.idle) {
		if free.version == version && !free.jvm.hasEnded() {
			l.idle = slices.Delete(l.idle, i, i+1)
			return free.jvm
		}
	}
	return nil
}

func (l *Lab) giveBack(version string, j *jvm) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idle = append(l.idle, idle{version, j})
	if len(l.idle) > maxIdle {
		l.idle[0].jvm.kill()
		l.idle = slices.Delete(l.idle, 0, 1)
	}
}

func (l *Lab) freshID() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	return fmt.Sprintf("app%d", l.last)
}

// createTopics of an application, unless there are any.
func (l *Lab) createTopics(app string, partitions int) error {
	l.mu.Lock()
	l.users[app]++
	l.mu.Unlock()
	for topic, n := range map[string]int{inputTopic(app): partitions, globalTopic(app): 1} {
		err := l.call("/create", url.Values{"topic": {topic}, "partitions": {strconv.Itoa(n)}}, nil)
		if err != nil {
			return err
		}
	}
	return nil
}

// deleteTopics of an application, once its last user is gone.
func (l *Lab) deleteTopics(app string) error {
	l.mu.Lock()
	l.users[app]--
	used := l.users[app] > 0
	l.mu.Unlock()
	if used {
		return nil
	}
	return l.call("/delete", url.Values{"prefix": {app + "-"}}, nil)
}

func (l *Lab) call(path string, form url.Values, result any) error {
	return l.broker.call(context.Background(), path, form, result)
}

func inputTopic(app string) string  { return app + "-input" }
func globalTopic(app string) string { return app + "-global" }

// patience is how long everything here waits before it fails the test, for
// machines with one slow core; no test takes that long.
const patience = 90 * time.Second

// poll asks again and again until done, an error, or the end of patience.
func poll(done func() (bool, error)) error {
	deadline := time.Now().Add(patience)
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%w after %v", os.ErrDeadlineExceeded, patience)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
