//go:build streams

package live

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/report"
	"streams-sidecar/internal/verify"
	"streams-sidecar/test/beside"
	"streams-sidecar/test/streams"
)

// TestVerify: an application under load runs, is closed, is killed and restores,
// under both guarantees, and is verified deep and quick all the time. Nothing is
// ever said to be damaged; after a clean close there is nothing to find, and
// after a kill what the files show of it.
func TestVerify(t *testing.T) {
	exe := beside.Build(t)
	lab := streams.Start(t)
	for _, version := range []string{"3.9.1", "4.4.0"} {
		t.Run(version, func(t *testing.T) {
			app := lab.App(t, version, streams.Options{
				Stores: streams.Full(version), WriteBuffer: 64 << 10,
				Commit: 200 * time.Millisecond, Keys: 3000, ValueBytes: 100, Spread: streams.Retention * 4 / 5,
			})
			app.ProduceGlobal(300)
			app.Produce(3000) // over several segments
			w := beside.Start(t, exe, app.Dir)
			agent := beside.StartAgent(t, exe, app.Dir)
			app.Open()
			app.WaitRunning()
			app.WaitCommitted() // so that there is something in every store
			app.CloseClean()
			expectClean(t, w.Command("verify", "--deep"))
			load := app.Load(400)
			run := func() {
				app.Open()
				app.WaitRunning()
				for begun := time.Now(); time.Since(begun) < 3*time.Second; time.Sleep(time.Second) {
					agent.Look()
				}
			}
			rounds := 0
			for begun := time.Now(); rounds < 2 || time.Since(begun) < beside.Duration(t, 0); rounds++ {
				app.Options.ExactlyOnce = rounds%2 == 1
				run()
				app.CloseClean()
				expectClean(t, w.Command("verify", "--deep"))
				agent.Look()

				run()
				seen := preallocated(t, app)
				app.Kill()
				expectKilled(t, w.Command("verify", "--deep"), seen)
				agent.Look()
			}
			run() // restores
			load.Stop()
			app.CloseClean()
			w.Stop()
			agent.Stop()
			expectClean(t, w.Command("verify", "--deep"))
			expectClean(t, w.Command("status"))
			t.Logf("closed %d times and killed %d times", rounds+2, rounds)
		})
	}
}

// stores of a document.
func stores(t *testing.T, doc *report.Document) (out []beside.Part) {
	t.Helper()
	for _, p := range beside.Parts(doc) {
		if p.Store {
			out = append(out, p)
		}
	}
	if len(out) < 7 {
		t.Errorf("%d stores, want one of each kind at least", len(out))
	}
	return out
}

func expectClean(t *testing.T, doc *report.Document) {
	t.Helper()
	for _, p := range stores(t, doc) {
		if p.Verdict != string(verify.OK) {
			t.Errorf("%s is said to be %s after a clean close", p.Name, p.Verdict)
		}
	}
	for _, p := range beside.Parts(doc) {
		for _, f := range p.Findings {
			t.Errorf("%s, after a clean close: %s %s: expected %s, found %s", p.Name, f.Code, f.File, f.Expected, f.Found)
		}
	}
}

// expectKilled: where the file system shows that a MANIFEST was left open, every
// store is unclean; and nothing worse than a warning is found anywhere.
func expectKilled(t *testing.T, doc *report.Document, preallocated bool) {
	t.Helper()
	if !preallocated {
		t.Log("this file system shows no end by kill -9")
		return
	}
	for _, p := range stores(t, doc) {
		if p.Verdict != string(verify.Unclean) {
			t.Errorf("%s is said to be %s after kill -9: %v", p.Name, p.Verdict, p.Findings)
		}
		if !slices.ContainsFunc(p.Findings, func(f finding.Finding) bool { return f.Code == finding.UncleanEnd || f.Code == finding.StatusOpen }) {
			t.Errorf("%s has no finding about its end after kill -9: %v", p.Name, p.Findings)
		}
	}
}

// preallocated says that RocksDB has preallocated the MANIFESTs of the running
// application, which not every file system does.
func preallocated(t *testing.T, app *streams.App) bool {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(app.Dir, app.ID, "*_*", "rocksdb", "plain", "MANIFEST-*"))
	if err != nil || len(found) == 0 {
		t.Fatalf("no MANIFEST in %s: %v", app.Dir, err)
	}
	var st unix.Stat_t
	if err := unix.Stat(found[0], &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks*512 > 1<<20
}
