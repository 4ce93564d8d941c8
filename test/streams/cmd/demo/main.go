// Command demo keeps a Kafka Streams application busy on a state directory, so
// that there is something to watch: one store of each kind, a steady stream of
// records, and write buffers so small that flushes and compactions come every
// few seconds. It closes the application cleanly on SIGINT or SIGTERM.
//
// Call it as scripts/demo-app STATE_DIR, which sets up what it needs.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"streams-sidecar/test/streams"
)

const (
	version   = "4.4.0"
	perSecond = 300
	rest      = 10 * time.Second // between an end from outside and the next start
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: demo STATE_DIR")
		os.Exit(64)
	}
	dir, err := filepath.Abs(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	s := &session{dir: dir}
	run(s, stop)
	s.end()
}

func run(s *session, stop <-chan os.Signal) {
	app := streams.Start(s).App(s, version, streams.Options{
		Application: "demo",
		Stores:      streams.Full(version),
		WriteBuffer: 64 << 10,
		Commit:      200 * time.Millisecond,
		Keys:        5000,
		ValueBytes:  100,
	})
	app.ProduceGlobal(1000)
	app.Open()
	app.WaitRunning()
	load := app.Load(perSecond)
	running := func() {
		fmt.Printf("Kafka Streams %s is RUNNING on %s: application demo, pid %d, %d records a second\n", version, app.Dir, app.PID(), perSecond)
	}
	running()
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		select {
		case <-stop:
			load.Stop()
			app.CloseClean()
			fmt.Println("closed cleanly")
			return
		case <-look.C:
			if app.HasEnded() {
				fmt.Printf("the application was ended from outside: %v; it begins again in %v\n", app.WaitExit(), rest)
				select {
				case <-stop:
					load.Stop()
					return
				case <-time.After(rest):
				}
				app.Open()
				app.WaitRunning()
				running()
				continue
			}
			if st := app.Status(); st.State == "ERROR" || st.State == "NOT_RUNNING" {
				s.Fatalf("the application is %s: %q", st.State, st.Uncaught)
			}
		}
	}
}

// session is the test that the lab believes to be in.
type session struct {
	dir      string
	failed   bool
	cleanups []func()
}

var _ streams.TB = (*session)(nil)

func (s *session) Helper()          {}
func (s *session) Failed() bool     { return s.failed }
func (s *session) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

// TempDir is where an application keeps its state, which here is to stay.
func (s *session) TempDir() string { return s.dir }

func (s *session) Logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "demo: "+format+"\n", args...)
}

func (s *session) Fatalf(format string, args ...any) {
	s.Logf(format, args...)
	s.failed = true
	s.end()
	os.Exit(1)
}

func (s *session) end() {
	for _, f := range slices.Backward(s.cleanups) {
		f()
	}
}
