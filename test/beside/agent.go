package beside

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/verify"
)

// Agent is one that runs beside.
type Agent struct {
	t      testing.TB
	cmd    *exec.Cmd
	log    bytes.Buffer
	metric string
	looks  int
	counts map[string]float64
}

// StartAgent starts one over a state directory, which verifies everything deep
// every minute.
func StartAgent(t testing.TB, exe, dir string) *Agent {
	t.Helper()
	a := &Agent{t: t, cmd: exec.CommandContext(t.Context(), exe, "run", "--state-dir", dir, "--deep-interval=1m", "--stop-timeout=0", "--log-level=error",
		"--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--hook-listen=127.0.0.1:0", "--engine-interval=0")}
	a.cmd.Stderr = &a.log
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); a.metric == "" && lines.Scan(); {
		if url, ok := strings.CutPrefix(lines.Text(), "metrics"); ok {
			a.metric = strings.TrimSpace(url)
		}
	}
	return a
}

// Look fails the test if the agent says of a store that it is damaged or cannot
// be read.
func (a *Agent) Look() {
	a.t.Helper()
	resp, err := http.Get(a.metric) //nolint:noctx // ends with the test
	if err != nil {
		a.t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		a.t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	a.counts = map[string]float64{}
	for name, family := range families {
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			value := m.GetGauge().GetValue() + m.GetCounter().GetValue()
			bad := labels["severity"] == string(finding.Damage) || labels["severity"] == string(finding.Unreadable)
			switch name {
			case "kstreams_store_verdict":
				a.looks++
				bad = labels["verdict"] == string(verify.Damaged) || labels["verdict"] == string(verify.Unreadable) || labels["verdict"] == string(verify.Incompatible)
			case "kstreams_store_finding", "kstreams_task_finding", "kstreams_app_finding":
			case "kstreams_sidecar_verifications_total", "kstreams_sidecar_verified_bytes_total", "kstreams_sidecar_verify_retries_total":
				a.counts[name+" "+labels["depth"]] = value
				continue
			default:
				continue
			}
			if bad && value != 0 {
				a.t.Errorf("the agent says %s %v", name, labels)
			}
		}
	}
}

// Stop ends it, and says what it has done.
func (a *Agent) Stop() {
	a.t.Helper()
	a.Look()
	a.t.Logf("the agent: %d verdicts looked at; %v", a.looks, a.counts)
	if a.looks == 0 || a.counts["kstreams_sidecar_verifications_total quick"] == 0 {
		a.t.Error("the agent has verified nothing")
	}
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		a.t.Error(err)
	}
	if err := a.cmd.Wait(); err != nil {
		a.t.Errorf("the agent ended: %v\n%s", err, &a.log)
	}
}
