//go:build streams

package streams_test

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"streams-sidecar/internal/store"
	"streams-sidecar/test/streams"
)

const newest = "4.4.0"

// running gives an application that has processed 1000 records, none of which
// has been flushed.
func running(t *testing.T, version string, o streams.Options) *streams.App {
	t.Helper()
	app := streams.Start(t).App(t, version, o)
	app.Produce(1000)
	app.Open()
	app.WaitRunning()
	app.WaitCommitted()
	return app
}

func reopen(t *testing.T, app *streams.App) (restored int64) {
	t.Helper()
	app.Open()
	app.WaitRunning()
	app.WaitCommitted()
	if got, want := app.Content("kv"), app.Truth(); got != want {
		t.Errorf("kv holds %+v, want %+v", got, want)
	}
	return app.Restored()["kv"]
}

// eventually waits for what Streams or RocksDB do in the background.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// TestSigterm: a shutdown hook closes the application, unless it gives up too
// early, and without one there is nothing that does.
func TestSigterm(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		o     streams.Options
		loses bool
	}{
		"Hook":     {streams.Options{}, false},
		"NoHook":   {streams.Options{NoHook: true}, true},
		"TooShort": {streams.Options{HookTimeout: time.Millisecond}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := running(t, newest, tc.o)
			app.Signal(syscall.SIGTERM)
			if state := app.WaitExit(); state.ExitCode() != 143 {
				t.Errorf("the JVM ended with %v, want 143", state)
			}
			if got := reopen(t, app); got > 0 != tc.loses {
				t.Errorf("kv restored %d records", got)
			}
		})
	}
}

// TestStop: the application's own endpoint closes it, in its own time or the
// caller's, and the JVM lives on.
func TestStop(t *testing.T) {
	t.Parallel()
	for name, sync := range map[string]string{"AtOnce": "", "Sync": "true"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := running(t, newest, streams.Options{})
			resp, err := http.PostForm(app.StopURL(), url.Values{"sync": {sync}})
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("the answer is %s", resp.Status)
			}
			if state := app.Status().State; sync != "" && state != "NOT_RUNNING" {
				t.Errorf("the state is %s after a synchronous stop", state)
			}
			eventually(t, "the application is closed", func() bool { return app.Status().State == "NOT_RUNNING" })
			if got := reopen(t, app); got != 0 {
				t.Errorf("kv restored %d records", got)
			}
		})
	}
}

// TestProxy: an application behind the proxy hears nothing from its broker
// while that is cut, and goes on afterwards.
func TestProxy(t *testing.T) { // not in parallel: there is one proxy
	app := running(t, newest, streams.Options{Proxied: true})
	proxy := streams.Start(t).Proxy()
	proxy.Cut()
	app.Produce(100)
	time.Sleep(time.Second)
	got := app.Status().Processed
	proxy.Mend()
	if got != 1000 {
		t.Errorf("processed %d records behind a cut proxy, want 1000", got)
	}
	app.WaitProcessed(1100)
	app.WaitCommitted()
}

// TestPoisonClose: a processor that throws when it is closed makes the client
// report it, but not fail to close.
func TestPoisonClose(t *testing.T) {
	t.Parallel()
	app := running(t, newest, streams.Options{})
	app.PoisonClose()
	app.CloseClean()
	if log := app.Log(); !strings.Contains(log, "poison in close") {
		t.Errorf("no word about the exception in the log:\n%s", log)
	}
}

// TestPoison: a client in ERROR has let go of its locks although its JVM
// lives, and what it had not committed is restored.
func TestPoison(t *testing.T) {
	t.Parallel()
	app := streams.Start(t).App(t, newest, streams.Options{Commit: time.Hour})
	app.Produce(1000)
	app.Open()
	app.WaitRunning()
	app.WaitProcessed(1000)
	app.Poison()
	app.Produce(10)
	app.WaitState("ERROR")
	if u := app.Status().Uncaught; len(u) != 1 || !strings.Contains(u[0], "IllegalStateException: poison") {
		t.Errorf("uncaught %q, want the poison", u)
	}
	if r := scan(t, app).Layout.Running; r == nil || *r {
		t.Errorf("running is %v in ERROR", r)
	}
	if app.PID() == 0 || app.Status().State != "ERROR" {
		t.Error("the JVM does not answer any more")
	}
	app.Options.Commit = 0
	if got := reopen(t, app); got == 0 {
		t.Error("kv restored nothing after the exception")
	}
}

// TestOpenFails: from 4.3 on start throws, before that the client ends in
// ERROR; and the same JVM serves on.
func TestOpenFails(t *testing.T) {
	t.Parallel()
	for version, throws := range map[string]bool{"3.9.1": false, newest: true} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			app := running(t, version, streams.Options{Partitions: 1})
			app.CloseClean()
			current := filepath.Join(app.Dir, app.ID, "0_0", "rocksdb", "kv", "CURRENT")
			good, err := os.ReadFile(current)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(current, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			const want = "CURRENT file does not end with newline"
			if err := app.TryOpen(); throws != (err != nil) || throws && !strings.Contains(err.Error(), want) {
				t.Errorf("open: %v, want an error: %v", err, throws)
			}
			if !throws {
				app.WaitState("ERROR")
				if u := strings.Join(app.Status().Uncaught, " "); !strings.Contains(u, want) {
					t.Errorf("uncaught %q, want %q in it", u, want)
				}
			}
			app.CloseClean()
			if err := os.WriteFile(current, good, 0o644); err != nil {
				t.Fatal(err)
			}
			if got := reopen(t, app); got != 0 {
				t.Errorf("kv restored %d records after the damage was undone", got)
			}
		})
	}
}

// TestUpgrade: an application moves to another version with its directory.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	app := running(t, "4.2.2", streams.Options{})
	app.CloseClean()
	if got := scan(t, app).Tasks[0].Era; got != store.Checkpoint {
		t.Errorf("era %q before the upgrade", got)
	}
	app.Upgrade(newest)
	if got := reopen(t, app); got != 0 {
		t.Errorf("kv restored %d records after the upgrade", got)
	}
	app.CloseClean()
	if got := scan(t, app).Tasks[0].Era; got != store.OffsetsCF {
		t.Errorf("era %q after the upgrade", got)
	}
}

// TestTwoInstances: with a standby, both instances have both tasks and all of
// their content.
func TestTwoInstances(t *testing.T) {
	t.Parallel()
	o := streams.Options{Standbys: 1, Config: map[string]string{"probing.rebalance.interval.ms": "60000", "acceptable.recovery.lag": "0"}}
	first := running(t, newest, o)
	o.Application, o.Instance = first.ID, "2"
	second := streams.Start(t).App(t, newest, o)
	second.Open()
	second.WaitRunning()
	first.WaitRunning()
	tasks := func(app *streams.App) (n int) {
		for _, task := range scan(t, app).Tasks {
			if len(task.Stores) > 0 {
				n++
			}
		}
		return n
	}
	eventually(t, "both instances have both tasks on disk", func() bool { return tasks(first) == 2 && tasks(second) == 2 })
	for _, app := range []*streams.App{first, second} {
		eventually(t, "an instance holds what was produced", func() bool {
			got, err := app.TryContentHere("kv")
			return err == nil && got == app.Truth()
		})
	}
	if first.PID() == second.PID() {
		t.Error("two instances in one JVM")
	}
}

// TestWAL: only this kind of store fills a WAL.
func TestWAL(t *testing.T) {
	t.Parallel()
	app := running(t, newest, streams.Options{Stores: streams.Stores{"kv": streams.Timestamped, "wal": streams.WAL}})
	bytes := map[string]int64{}
	for _, task := range scan(t, app).Tasks {
		for _, st := range task.Stores {
			bytes[st.Name] += st.Sizes.WAL
		}
	}
	if bytes["kv"] != 0 || bytes["wal"] < 1000*40 {
		t.Errorf("bytes in the WALs: %v", bytes)
	}
}

// TestTransactional: transactional stores (KIP-892) keep no status.
func TestTransactional(t *testing.T) {
	t.Parallel()
	app := running(t, newest, streams.Options{Transactional: true, ExactlyOnce: true})
	app.CloseClean()
	for _, task := range scan(t, app).Tasks {
		for _, st := range task.Stores {
			if st.Era != store.OffsetsCF || st.Status != "" {
				t.Errorf("%s: era %q, status %q", st.Name, st.Era, st.Status)
			}
		}
	}
	if got := reopen(t, app); got != 0 {
		t.Errorf("kv restored %d records after a clean close", got)
	}
}

// TestRocksDBOptions: small write buffers flush while the application runs,
// RocksDB's own log tells of it, and Streams' metrics agree.
func TestRocksDBOptions(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2.8.2", newest} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			app := streams.Start(t).App(t, version, streams.Options{Partitions: 1, WriteBuffer: 64 << 10, InfoLog: true})
			app.Open()
			app.WaitRunning()
			load := app.Load(2000)
			app.WaitProcessed(3000)
			sent := load.Stop()
			app.WaitCommitted()
			if got := app.Status().Processed; got != int64(sent) {
				t.Errorf("processed %d of %d records", got, sent)
			}
			log, err := os.ReadFile(filepath.Join(app.Dir, app.ID, "0_0", "rocksdb", "kv", "LOG"))
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{`"event": "flush_finished"`, "DUMPING STATS"} {
				if !strings.Contains(string(log), want) {
					t.Errorf("no %q in LOG", want)
				}
			}
			eventually(t, "live-sst-files-size is what is on disk", func() bool {
				var files int64
				for _, f := range scan(t, app).Tasks[0].Stores[0].Families {
					files += f.Bytes
				}
				return files > 0 && app.RocksDB("kv", "live-sst-files-size") == float64(files)
			})
		})
	}
}

// TestJVMIsShared: applications of one version run in one JVM after another,
// and one that was told to close at once is closed before the next one opens.
func TestJVMIsShared(t *testing.T) {
	lab := streams.Start(t)
	pids := map[int]bool{}
	for range 2 {
		t.Run("", func(t *testing.T) {
			app := lab.App(t, newest, streams.Options{})
			app.Open()
			pids[app.PID()] = true
			app.Close(0)
		})
	}
	if len(pids) != 1 {
		t.Errorf("%d JVMs for two applications", len(pids))
	}
}
