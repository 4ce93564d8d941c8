package trigger_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"streams-sidecar/internal/shutdown/trigger"
	"streams-sidecar/internal/volume"
	"streams-sidecar/test/holder"
)

// jobEnv makes the test binary do a job in a process of its own: its words are
// the job and its arguments.
const jobEnv = "STREAMS_SIDECAR_TEST_TRIGGER"

func TestMain(m *testing.M) {
	job := strings.SplitN(os.Getenv(jobEnv), " ", 3)
	switch job[0] {
	case "survive":
		survive(job[1])
	case "terminate":
		terminate(job[1], job[2])
	default:
		holder.Main(m)
	}
}

// survive holds a lock whatever signals come, says what comes, and ends with
// its standard input.
func survive(path string) {
	signals := make(chan os.Signal, 10)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err == nil {
		err = syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart})
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("held")
	go func() {
		for s := range signals {
			fmt.Println(s)
		}
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// terminate calls Terminate, as a user if one is given, and says how it ended.
func terminate(uid, path string) {
	if uid != "" {
		n, err := strconv.Atoi(uid)
		if err == nil {
			err = syscall.Setuid(n)
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	_, err := trigger.Terminate(volume.New(volume.OS()), path)
	switch {
	case errors.Is(err, trigger.ErrNotVisible):
		fmt.Println("not visible")
	case errors.Is(err, trigger.ErrNotPermitted):
		fmt.Println("not permitted")
	default:
		fmt.Println(err)
	}
	os.Exit(0)
}

// process does a job beside the test.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	out *bufio.Reader
}

// start starts one; attr may be nil.
func start(t *testing.T, attr *syscall.SysProcAttr, job ...string) (*process, error) {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	p := &process{t: t, cmd: exec.Command(exe, "-test.run=^$")}
	p.cmd.Env = append(os.Environ(), jobEnv+"="+strings.Join(job, " "))
	p.cmd.SysProcAttr = attr
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	must(t, err)
	out, err := p.cmd.StdoutPipe()
	must(t, err)
	p.out = bufio.NewReader(out)
	must(t, out.(*os.File).SetReadDeadline(time.Now().Add(30*time.Second)))
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = p.cmd.Process.Kill() // it may have ended by itself
		_ = p.cmd.Wait()
	})
	return p, nil
}

// says waits for the next line of the process.
func (p *process) says(want string) {
	p.t.Helper()
	if got, err := p.out.ReadString('\n'); err != nil || got != want+"\n" {
		p.t.Fatalf("the process says %q (%v), want %q", got, err, want)
	}
}

// survivor holds a lock and survives signals.
func survivor(t *testing.T, path string) *process {
	t.Helper()
	p, err := start(t, nil, "survive", path)
	must(t, err)
	p.says("held")
	return p
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
