//go:build streams

package gate

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// evidence of a trial: what the sidecar says of a stop, and what there was to see.
type evidence struct {
	name   string
	answer *answer   // of the hook; nil if it was not called
	record *shutdown // in last-shutdown.json; nil if it could not be written
	before string    // the inventory when the stop began
	after  string
	copied string // of the state directory after the stop
}

// keep copies the state directory, if $GATE_KEEP says where wrong verdicts are
// to be kept.
func (e *evidence) keep(r *rig) {
	r.Helper()
	e.after = inventory(r.app.Dir)
	if os.Getenv("GATE_KEEP") != "" {
		e.copied = filepath.Join(r.TempDir(), "copy")
		r.errorIf("copy the state directory", copyTree(r.app.Dir, e.copied))
	}
}

// saysClean is the verdict of the sidecar.
func (e *evidence) saysClean() bool {
	if e.record != nil {
		return e.record.Outcome == "closed-clean"
	}
	return e.answer != nil && e.answer.Outcome == "closed-clean"
}

// checkWords: the answer, the file and the metric say the same.
func (e *evidence) checkWords(r *rig, s *stop) {
	r.Helper()
	if ans := e.answer; ans != nil && ans.err == nil {
		want := s.answers
		if want == nil {
			want = []string{"closed-clean", "closed-unclean"}
		}
		if !slices.Contains(want, ans.Outcome) {
			r.Errorf("the hook was answered %s, want one of %q", ans, want)
		}
		if e.record != nil && strings.HasPrefix(ans.Outcome, "closed-") && e.record.Outcome != ans.Outcome {
			r.Errorf("last-shutdown.json says %s, but the hook was answered %s", e.record.Outcome, ans)
		}
	}
	if called := map[bool]string{true: "called", false: "not-called"}[s.hook]; e.record != nil && e.record.Hook != called {
		r.Errorf("last-shutdown.json says that the hook was %s, want %s", e.record.Hook, called)
	}
	want := 0.0
	if e.saysClean() {
		want = 1
	}
	r.until("kstreams_last_shutdown_clean", func() bool {
		got, ok := r.agent.gauge("kstreams_last_shutdown_clean", r.app.ID)
		return ok && got == want
	})
}

// judge holds what the sidecar says against what the next start restored, and
// which store it did not find as it must be.
func (e *evidence) judge(r *rig, s *stop, restored int64, wrong string) {
	r.Helper()
	clean := restored == 0 && wrong == ""
	if s.losing {
		tally.loss(!clean)
	}
	if s.clean && !clean {
		r.Errorf("no trial: restored %d records; %s", restored, wrong)
	}
	verdict := tally.judge(e.saysClean(), clean, s.dirty)
	line := fmt.Sprintf("%s: %s; restored %d records: %s; %s", e.name, e.record, restored, verdict, wrong)
	r.Logf("%s; the answer: %v", line, e.answer)
	if verdict.isWrong() {
		r.Errorf("WRONG VERDICT %s; %s", line, e.save(r, line))
	}
	if e.copied != "" {
		r.errorIf("remove the copy", os.RemoveAll(e.copied))
	}
}

// save puts everything below $GATE_KEEP, and says where.
func (e *evidence) save(r *rig, line string) string {
	if e.copied == "" {
		return fmt.Sprintf("with GATE_KEEP=directory more is kept\n%+v\nbefore:\n%s\nafter:\n%s", e.record, e.before, e.after)
	}
	to := filepath.Join(os.Getenv("GATE_KEEP"), fmt.Sprintf("%s-%d", strings.ReplaceAll(e.name, "/", "-"), os.Getpid()))
	err := copyTree(e.copied, filepath.Join(to, "state"))
	for name, text := range map[string]string{
		"before.txt": e.before, "after.txt": e.after, "answer.json": e.answer.String(), "said.txt": line, "log.txt": r.agent.tail(),
	} {
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), []byte(text+"\n"), 0o644)
		}
	}
	if err != nil {
		return "and it could not be kept: " + err.Error()
	}
	return "kept in " + to
}
