package trigger

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"streams-sidecar/internal/volume"
)

// Why [Terminate] sent nothing.
var (
	ErrNotHeld      = errors.New("nobody holds the lock")
	ErrNotVisible   = errors.New("the process that holds the lock cannot be seen from here (a pod needs shareProcessNamespace: true)")
	ErrNotPermitted = errors.New("the holder of the lock may not be signalled: the sidecar needs the same runAsUser, or the capability KILL")
	ErrUnsupported  = errors.New("the kernel or the seccomp profile does not allow pidfd_open and pidfd_send_signal (Linux 5.3 has them)")
	ErrChanging     = errors.New("the lock goes from one process to another")
)

// Terminate looks at the lock this often, with a pause in between, before it
// gives up on one that changes hands.
const (
	terminateTries = 5
	terminatePause = 20 * time.Millisecond
)

// Holder says whether a lock file is locked and by which process: pid is 0 if
// that one cannot be seen from here (another pid namespace, or an open file
// description lock). A file that is not there is not held. The error is one of
// the volume.
func Holder(v *volume.Volume, lockPath string) (pid int, held bool, err error) {
	l, err := volume.Do(v, filepath.Dir(lockPath), func(fs volume.FS) (volume.Lock, error) { return fs.Lock(lockPath) })
	if volume.IsGone(err) {
		return 0, false, nil
	}
	return l.PID, l.Held, err
}

// Terminate sends SIGTERM to the process that holds a lock file, and says
// which one that is; with an error, pid is the holder that was not signalled,
// as far as it is known. It does not wait for the process to end.
//
// The process is held by a pidfd while the lock is asked a second time. So the
// signal reaches the holder or nobody: were it another process that has got
// the number of one that ended, the signal would fail. There is deliberately
// no way back to kill(2) where pidfd is missing.
//
// Errors are [ErrNotHeld], [ErrNotVisible], [ErrNotPermitted],
// [ErrUnsupported] and [ErrChanging] with the lock's path, or of the volume.
func Terminate(v *volume.Volume, lockPath string) (pid int, err error) {
	return terminate(v, lockPath, unix.PidfdOpen, unix.PidfdSendSignal)
}

type (
	pidfdOpen func(pid, flags int) (int, error)
	pidfdSend func(fd int, sig unix.Signal, info *unix.Siginfo, flags int) error
)

func terminate(v *volume.Volume, lockPath string, open pidfdOpen, send pidfdSend) (pid int, err error) {
	for try := range terminateTries {
		if try > 0 {
			time.Sleep(terminatePause)
		}
		pid, err = terminateOnce(v, lockPath, open, send)
		if !errors.Is(err, ErrChanging) {
			break
		}
	}
	if _, ok := errors.AsType[*volume.Error](err); err != nil && !ok {
		err = fmt.Errorf("%s: %w", volume.Text(lockPath), err)
	}
	return pid, err
}

func terminateOnce(v *volume.Volume, lockPath string, open pidfdOpen, send pidfdSend) (pid int, err error) {
	pid, err = visible(v, lockPath)
	if err != nil {
		return 0, err
	}
	fd, err := open(pid, 0)
	if err != nil {
		return pid, explainErrno("pidfd_open", err)
	}
	defer func() { _ = unix.Close(fd) }()
	again, err := visible(v, lockPath)
	switch {
	case err != nil:
		return 0, err
	case again != pid:
		return again, ErrChanging
	}
	if err := send(fd, unix.SIGTERM, nil, 0); err != nil {
		return pid, explainErrno("pidfd_send_signal", err)
	}
	return pid, nil
}

// visible gives the holder of a lock if it can be named.
func visible(v *volume.Volume, lockPath string) (pid int, err error) {
	pid, held, err := Holder(v, lockPath)
	switch {
	case err != nil:
		return 0, err
	case !held:
		return 0, ErrNotHeld
	case pid <= 0:
		return 0, ErrNotVisible
	case pid == os.Getpid():
		// F_GETLK does not show a process its own locks, but the answer of a
		// network file system may come from a process of another machine.
		return 0, fmt.Errorf("%w: it has the number %d of the sidecar itself", ErrNotVisible, pid)
	}
	return pid, nil
}

func explainErrno(call string, err error) error {
	switch {
	case errors.Is(err, unix.ESRCH): // it has ended since the lock was asked
		return ErrChanging
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM) && call == "pidfd_open": // which has no permissions of its own
		return fmt.Errorf("%w: %s: %w", ErrUnsupported, call, err)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: %s: %w", ErrNotPermitted, call, err)
	default:
		return fmt.Errorf("%s: %w", call, err)
	}
}
