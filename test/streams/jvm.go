package streams

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// jvm is a process of one of the Java programs. It ends when its stdin does,
// so never later than this process.
type jvm struct {
	name    string // for messages
	cmd     *exec.Cmd
	stdin   io.Closer
	url     string
	scratch string        // its temporary files and its log; it removes them itself when its stdin ends
	ended   chan struct{} // closed when the process is gone; then cmd.ProcessState is set
}

// about is the line with which a program says that it is ready.
type about struct {
	URL       string
	Bootstrap string // of the broker, as the next two
	Proxied   string // what it is called through a proxy,
	Behind    string // and where that has to lead
}

func startJVM(name, classPath, class, heap string, properties ...string) (*jvm, about, error) {
	scratch, err := os.MkdirTemp("", "streams-lab-")
	if err != nil {
		return nil, about{}, err
	}
	j := &jvm{name: name, scratch: scratch, ended: make(chan struct{})}
	a, err := j.start(classPath, class, heap, properties)
	if err != nil {
		err = fmt.Errorf("start %s: %w", name, j.explain(err))
		j.kill()
		return nil, about{}, err
	}
	j.url = a.URL
	return j, a, nil
}

func (j *jvm) start(classPath, class, heap string, properties []string) (about, error) {
	// What matters is how soon it runs and how little it takes: all of them
	// share a few cores with the tests.
	args := append([]string{"-Xmx" + heap, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
		"-XX:ErrorFile=" + filepath.Join(j.scratch, "hs_err.log"),
		"-Dlab.scratch=" + j.scratch, "-Djava.io.tmpdir=" + j.scratch}, properties...)
	j.cmd = exec.Command("java", append(args, "-cp", classPath, class)...)
	// Not in our process group: Ctrl-C is for this process, which decides
	// what ends when. A broker that ends first makes a close hang.
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	log, err := os.Create(j.log())
	if err != nil {
		close(j.ended)
		return about{}, err
	}
	j.cmd.Stderr = log
	stdin, err1 := j.cmd.StdinPipe()
	stdout, err2 := j.cmd.StdoutPipe()
	if err := errors.Join(err1, err2, j.cmd.Start()); err != nil {
		close(j.ended)
		return about{}, errors.Join(withHint(err), log.Close())
	}
	j.stdin = stdin
	ready := make(chan string, 1)
	go func() {
		defer close(j.ended)
		out := bufio.NewReader(stdout)
		line, err := out.ReadString('\n')
		if err == nil {
			ready <- line
		}
		_, _ = io.Copy(log, out) // also an end of both is no error
		_ = j.cmd.Wait()         // ProcessState has it
		_ = log.Close()          // nobody is left to read it
	}()
	select {
	case line := <-ready:
		var a about
		err := json.Unmarshal([]byte(line), &a)
		return a, err
	case <-j.ended:
		return about{}, errors.New("it ended")
	case <-time.After(patience):
		return about{}, os.ErrDeadlineExceeded
	}
}

func (j *jvm) log() string { return filepath.Join(j.scratch, "log") }

func (j *jvm) pid() int { return j.cmd.Process.Pid }

func (j *jvm) hasEnded() bool {
	select {
	case <-j.ended:
		return true
	default:
		return false
	}
}

// kill ends it with SIGKILL, if it still runs, and removes what it left.
func (j *jvm) kill() {
	if j.cmd != nil && j.cmd.Process != nil {
		_ = j.cmd.Process.Kill() // it may have ended by itself
	}
	<-j.ended
	_ = os.RemoveAll(j.scratch) // in the temporary directory
}

// An answer that a program gave instead of a result.
type remoteError struct{ text string }

func (e remoteError) Error() string { return e.text }

// call posts a form and decodes the JSON that comes back. What the program
// itself answers as an error is a remoteError.
func (j *jvm) call(ctx context.Context, path string, form url.Values, result any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return j.post(ctx, path, form, result)
}

func (j *jvm) post(ctx context.Context, path string, form url.Values, result any) error {
	wrap := func(err error) error { return fmt.Errorf("%s, %s: %w", j.name, path, err) }
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, j.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		return wrap(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return wrap(j.explain(err))
	}
	defer func() { _ = resp.Body.Close() }()
	dec := json.NewDecoder(resp.Body)
	if resp.StatusCode != http.StatusOK {
		var answer struct{ Error string }
		if err := dec.Decode(&answer); err != nil {
			return wrap(fmt.Errorf("status %d: %w", resp.StatusCode, err))
		}
		return wrap(remoteError{answer.Error})
	}
	if result == nil {
		return nil
	}
	if err := dec.Decode(result); err != nil {
		return wrap(err)
	}
	return nil
}

// explain adds how the process ended, if it did, and the end of its log.
func (j *jvm) explain(err error) error {
	if j.hasEnded() && j.cmd.ProcessState != nil {
		err = fmt.Errorf("%w (%s)", err, j.cmd.ProcessState)
	}
	return fmt.Errorf("%w\nthe end of its log:\n%s", err, tail(j.log(), 40))
}
