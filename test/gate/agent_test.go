//go:build streams

package gate

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"streams-sidecar/test/streams"
)

// token is what the hook has to show.
const token = "s3cret-of-the-gate-test"

// built is where the sidecar is, once it was built.
var built string

var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "gate-")
	if err != nil {
		return "", err
	}
	exe := filepath.Join(dir, "sidecar")
	cmd := exec.Command("go", "build", "-trimpath", "-o", exe, "../../cmd/sidecar")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the sidecar: %w\n%s", err, out)
	}
	built = dir
	return exe, nil
})

// agent is a running sidecar.
type agent struct {
	t                    streams.TB
	dir                  string // the state directory
	cmd                  *exec.Cmd
	log                  string
	metrics, admin, hook string
}

// startAgent runs a sidecar over a state directory until stop or kill.
func startAgent(t streams.TB, dir string, flags ...string) *agent {
	t.Helper()
	exe, err := binary()
	if err != nil {
		t.Fatalf("%v", err)
	}
	scratch := t.TempDir()
	secret := filepath.Join(scratch, "token")
	if err := os.WriteFile(secret, []byte(token+"\n"), 0o600); err != nil {
		t.Fatalf("%v", err)
	}
	a := &agent{t: t, dir: dir, log: filepath.Join(scratch, "log")}
	args := []string{"run", "--state-dir", dir, "--stop-timeout=0", "--prestop-timeout=120s", "--prestop-token-file", secret,
		"--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--hook-listen=127.0.0.1:0"}
	a.cmd = exec.Command(exe, append(args, flags...)...)
	// Ctrl-C is for the test, which ends its sidecars itself.
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	log, err := os.Create(a.log)
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer func() { _ = log.Close() }()
	a.cmd.Stderr = log
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		t.Fatalf("%v", err)
	}
	if err := a.cmd.Start(); err != nil {
		t.Fatalf("%v", err)
	}
	urls := map[string]string{}
	for lines := bufio.NewScanner(out); len(urls) < 3 && lines.Scan(); {
		if f := strings.Fields(lines.Text()); len(f) == 2 {
			urls[f[0]] = f[1]
		}
	}
	if len(urls) < 3 {
		t.Fatalf("the sidecar does not say where it listens: %v\n%s", urls, a.tail())
	}
	a.metrics, a.admin, a.hook = urls["metrics"], urls["admin"], urls["hook"]
	return a
}

// stop ends it as a node does.
func (a *agent) stop() {
	a.t.Helper()
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		a.t.Fatalf("stop the sidecar: %v", err)
	}
	if err := a.cmd.Wait(); err != nil {
		a.t.Fatalf("the sidecar ended: %v\n%s", err, a.tail())
	}
}

// kill is kill -9.
func (a *agent) kill() {
	_ = a.cmd.Process.Kill() // it may have ended
	_ = a.cmd.Wait()         // which says that it was killed
}

func (a *agent) tail() string {
	text, err := os.ReadFile(a.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}

// answer of a preStop call.
type answer struct {
	Outcome       string
	WaitedSeconds float64 `json:"waited_seconds"`
	Trigger       string
	Triggered     bool
	Stores        int
	Restoring     bool
	JournalError  string `json:"journal_error"`

	raw string
	err error // instead of all of these
	at  time.Time
}

// String is what there is to read.
func (a *answer) String() string {
	if a == nil {
		return "not called"
	}
	if a.err != nil {
		return a.err.Error()
	}
	return a.raw
}

// prestop calls the hook as a kubelet does, with the token or without, and
// waits for the answer.
func (a *agent) prestop(withToken bool, query string) *answer {
	ans := &answer{}
	req, err := http.NewRequest(http.MethodGet, a.hook+query, nil)
	if err == nil && withToken {
		req.Header.Set("X-Sidecar-Token", token)
	}
	var resp *http.Response
	if err == nil {
		// A connection of its own, as each kubelet's call has.
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err = client.Do(req)
	}
	if err != nil {
		ans.err, ans.at = err, time.Now()
		return ans
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	ans.at, ans.raw = time.Now(), string(body)
	switch {
	case err != nil:
		ans.err = err
	case resp.StatusCode != http.StatusOK || len(body) > 8<<10:
		ans.err = fmt.Errorf("status %d, %d bytes: %s", resp.StatusCode, len(body), body)
	default:
		ans.err = json.Unmarshal(body, ans)
	}
	return ans
}

// get the body of a URL of the sidecar.
func (a *agent) get(url string) (string, error) {
	resp, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: status %d: %s", url, resp.StatusCode, body)
	}
	return string(body), err
}

// phase of the gate: running, draining and so on.
func (a *agent) phase() string {
	var view struct{ Phase string }
	body, err := a.get(a.admin + "api/v1/shutdown")
	if err == nil {
		err = json.Unmarshal([]byte(body), &view)
	}
	if err != nil {
		a.t.Fatalf("phase of the gate: %v\n%s", err, a.tail())
	}
	return view.Phase
}

// gauge is the value of a metric with the label application_id.
func (a *agent) gauge(name, application string) (float64, bool) {
	body, err := a.get(a.metrics)
	if err != nil {
		a.t.Fatalf("%v\n%s", err, a.tail())
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		a.t.Fatalf("metrics: %v", err)
	}
	for _, m := range families[name].GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == "application_id" && l.GetValue() == application {
				return m.GetGauge().GetValue(), true
			}
		}
	}
	return 0, false
}

// shutdown is what last-shutdown.json says of one application.
type shutdown struct {
	Application string
	Outcome     string
	Hook        string
	HookOutcome string `json:"hook_outcome"`
	Explanation string
	Began       time.Time
	Ended       time.Time
	Evidence    []struct {
		Task, Store, Reason string
		Clean               bool
	}
}

// String is the outcome, with the reasons if it is not clean.
func (s *shutdown) String() string {
	if s == nil {
		return "nothing written down"
	}
	var reasons []string
	for _, e := range s.Evidence {
		if !e.Clean {
			reasons = append(reasons, e.Reason)
		}
	}
	slices.Sort(reasons)
	return fmt.Sprintf("said %s %s", s.Outcome, slices.Compact(reasons))
}

func (a *agent) journal() string {
	return filepath.Join(a.dir, ".streams-sidecar", "last-shutdown.json")
}

// last reads it; nil if there is nothing about the application.
func (a *agent) last(application string) *shutdown {
	text, err := os.ReadFile(a.journal())
	if os.IsNotExist(err) {
		return nil
	}
	var doc struct{ Applications []*shutdown }
	if err == nil {
		err = json.Unmarshal(text, &doc)
	}
	if err != nil {
		a.t.Fatalf("last-shutdown.json: %v", err)
	}
	for _, s := range doc.Applications {
		if s.Application == application {
			return s
		}
	}
	return nil
}
