package main

import (
	"bytes"
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal gives both ends of a new one.
func terminal(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no terminal to be had: %v", err)
	}
	t.Cleanup(func() { _ = ours.Close() })
	if err := unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = theirs.Close() })
	return ours, theirs
}

// TestProgress: a terminal is told how far it is, on one line that is gone at the
// end; a pipe is told nothing.
func TestProgress(t *testing.T) {
	t.Parallel()
	ours, theirs := terminal(t)
	read, end := progress(context.Background(), theirs, 4<<20)
	read(1 << 20)
	buf := make([]byte, 4096)
	n, err := ours.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	if line := string(buf[:n]); !strings.Contains(line, "1.0 MiB of 4.0 MiB") || !strings.Contains(line, "left") || strings.Contains(line, "\n") {
		t.Errorf("%q", line)
	}
	end()
	n, err = ours.Read(buf)
	if line := string(buf[:n]); err != nil || !strings.HasSuffix(line, "\r\x1b[K") {
		t.Errorf("at the end: %q, %v", line, err)
	}
	var pipe bytes.Buffer
	read, end = progress(context.Background(), &pipe, 4<<20)
	read(1 << 20)
	time.Sleep(2 * progressEvery)
	end()
	if pipe.Len() > 0 {
		t.Errorf("a pipe is told %q", &pipe)
	}
}
