// Package beside verifies state directories again and again while somebody writes
// them, and fails the test for every word of damage, and for everything that is
// said to be unreadable.
//
// It verifies in the test's process, deep and quick, with the command, and as the
// agent does. It knows nothing of who writes. Only tests may import it.
package beside

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/report"
	"streams-sidecar/internal/verify"
	"streams-sidecar/internal/volume"
)

// Build gives the command, built for the test.
func Build(t testing.TB) string {
	t.Helper()
	exe := filepath.Join(t.TempDir(), "sidecar")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", exe, "streams-sidecar/cmd/sidecar")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return exe
}

// Duration is how long to watch: $LIVE, such as 5m, or otherwise so long.
func Duration(t testing.TB, otherwise time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv("LIVE")
	if text == "" {
		return otherwise
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// account of the verifications of one way.
type account struct {
	loops, tables, passed, retries int
	bytes                          int64
	longest                        time.Duration
	codes                          map[string]int // findings, by severity and code
}

// Watch is what runs.
type Watch struct {
	t    testing.TB
	exe  string
	dir  string
	stop context.CancelFunc
	all  sync.WaitGroup

	mu       sync.Mutex
	accounts map[string]*account
	trouble  int
}

// breath is between two verifications, so that whoever writes gets on on a machine
// of few cores.
const breath = 50 * time.Millisecond

// maxTrouble is how many findings of damage are told in full.
const maxTrouble = 5

// Start begins to verify a state directory; exe is the command.
func Start(t testing.TB, exe, dir string) *Watch {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &Watch{t: t, exe: exe, dir: dir, stop: cancel, accounts: map[string]*account{}}
	inProcess := func(depth verify.Depth, follow bool) func(context.Context) error {
		vs := []*volume.Volume{volume.New(volume.OS())}
		var before *verify.Verification
		return func(ctx context.Context) error {
			v := verify.Run(ctx, vs, []string{dir}, verify.Question{}, verify.Plan{Depth: depth}, before)
			if follow {
				before = v
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			doc := report.NewVerified(v)
			w.take("in process, "+string(depth), &doc)
			return nil
		}
	}
	for _, once := range []func(context.Context) error{
		inProcess(verify.Deep, false),
		inProcess(verify.Quick, true),
		func(ctx context.Context) error { _, err := w.command(ctx, "verify", "--deep"); return err },
		func(ctx context.Context) error { _, err := w.command(ctx, "status"); return err },
	} {
		w.all.Go(func() {
			for ctx.Err() == nil {
				if err := once(ctx); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				time.Sleep(breath)
			}
		})
	}
	t.Cleanup(func() { w.stop(); w.all.Wait() })
	return w
}

// Stop ends it, and says what was done.
func (w *Watch) Stop() {
	w.t.Helper()
	w.stop()
	w.all.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, way := range slices.Sorted(maps.Keys(w.accounts)) {
		a := w.accounts[way]
		w.t.Logf("%s: %d times; %d tables, %d passed, %d retries, %.1f MiB; the longest took %v; findings %v",
			way, a.loops, a.tables, a.passed, a.retries, float64(a.bytes)/(1<<20), a.longest.Round(time.Millisecond), a.codes)
		if a.loops == 0 || a.tables == 0 {
			w.t.Errorf("%s: nothing was verified", way)
		}
	}
	if len(w.accounts) != 4 {
		w.t.Errorf("%d ways instead of 4", len(w.accounts))
	}
}

// Command runs it once, with --output=json, and takes what it says.
func (w *Watch) Command(args ...string) *report.Document {
	w.t.Helper()
	doc, err := w.command(w.t.Context(), args...)
	if err != nil {
		w.t.Fatal(err)
	}
	return doc
}

func (w *Watch) command(ctx context.Context, args ...string) (*report.Document, error) {
	what := strings.Join(args, " ")
	cmd := exec.CommandContext(ctx, w.exe, append(args, "--output=json", w.dir)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	code := cmd.ProcessState.ExitCode()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited || code < 0 {
		return nil, fmt.Errorf("%s: %w\n%s", what, err, &stderr)
	}
	var doc report.Document
	if err := json.Unmarshal(out, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s%s", what, err, out, &stderr)
	}
	w.take(what, &doc)
	if code != doc.ExitCode() || code > report.ExitFinding {
		return nil, fmt.Errorf("%s: exit code %d, and by its findings %d", what, code, doc.ExitCode())
	}
	return &doc, nil
}

// take keeps account of a document, and fails the test for what must not be in
// it.
func (w *Watch) take(way string, doc *report.Document) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.accounts[way]
	if a == nil {
		a = &account{codes: map[string]int{}}
		w.accounts[way] = a
	}
	a.loops++
	if v := doc.Verification; v != nil {
		a.tables += v.Tables
		a.passed += v.Passed
		a.retries += v.Retries
		a.bytes += v.SizeBytes
		a.longest = max(a.longest, time.Duration(v.Seconds*float64(time.Second)))
		if !v.Complete {
			w.t.Errorf("%s: not complete", way)
		}
	}
	for _, p := range Parts(doc) {
		switch verify.Verdict(p.Verdict) {
		case verify.Empty, verify.OK, verify.Unclean, "":
		default:
			w.t.Errorf("%s: %s is said to be %s", way, p.Name, p.Verdict)
		}
		for _, f := range p.Findings {
			a.codes[string(f.Severity)+" "+string(f.Code)]++
			if f.Severity != finding.Damage && f.Severity != finding.Unreadable {
				continue
			}
			if w.trouble++; w.trouble <= maxTrouble {
				w.t.Errorf("%s: %s: %s (%s) %s: expected %s, found %s\n%s", way, p.Name, f.Code, f.Severity, f.File, f.Expected, f.Found, evidence(f.File))
			}
		}
	}
}

// evidence is what lies there a moment later.
func evidence(file string) string {
	dir := file
	if info, err := os.Stat(file); err != nil || !info.IsDir() {
		dir = filepath.Dir(file)
	}
	out := &strings.Builder{}
	_, _ = fmt.Fprintf(out, "%s, at %s:\n", dir, time.Now().Format(time.StampMicro))
	entries, err := os.ReadDir(dir)
	if err != nil {
		return out.String() + err.Error()
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			_, _ = fmt.Fprintf(out, "%10d %s %s\n", info.Size(), info.ModTime().Format(time.StampMicro), e.Name())
		}
	}
	if current, err := os.ReadFile(filepath.Join(dir, "CURRENT")); err == nil {
		_, _ = fmt.Fprintf(out, "CURRENT: %s", current)
	}
	return out.String()
}

// Part of a document that has a verdict and findings.
type Part struct {
	Name, Verdict string
	Store         bool
	Findings      []finding.Finding
}

// Parts of a document, all of them. That of a state directory has no verdict.
func Parts(doc *report.Document) (out []Part) {
	for i := range doc.StateDirs {
		d := &doc.StateDirs[i]
		out = append(out, Part{Name: d.Path, Findings: d.Findings})
		for j := range d.Applications {
			a := &d.Applications[j]
			out = append(out, Part{Name: a.ID, Verdict: a.Verdict, Findings: a.Findings})
			for k := range a.Tasks {
				t := &a.Tasks[k]
				out = append(out, Part{Name: a.ID + " " + t.ID, Verdict: t.Verdict, Findings: t.Findings})
				for l := range t.Stores {
					s := &t.Stores[l]
					out = append(out, Part{Name: a.ID + " " + t.ID + " " + s.Name, Verdict: s.Verdict, Store: true, Findings: s.Findings})
				}
			}
		}
	}
	return out
}
