package rockswriter

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// RestlessFlag is the argument that makes the writer read a Restless instead of
// a Recipe.
const RestlessFlag = "-restless"

// Restless is an application whose stores one process writes without pause, with
// the WAL off, as Kafka Streams has it: it puts and flushes as fast as it can,
// RocksDB compacts, and every now and then a store is closed and opened again.
// The process holds the application's .lock. At SIGTERM it closes everything as
// Streams does on a clean close.
type Restless struct {
	Stores []RestlessStore `json:"stores"`
	// Session is how long a database stays open, milliseconds.
	Session int `json:"session"`
}

// RestlessStore is one store of it.
type RestlessStore struct {
	Task string `json:"task"`
	Name string `json:"name"`
	// Options are RocksDB's own, as in a Recipe.
	Options string `json:"options,omitempty"`
	// Families beside default that hold records.
	Families []string `json:"families,omitempty"`
	// Offsets keeps the changelog offset in a family offsets, as from 4.3 on, and
	// not in the task's .checkpoint. Only one store of a task may be without.
	Offsets bool `json:"offsets,omitempty"`
	// Segments makes it a window store that has so many databases at a time: new
	// ones are made and the oldest removed all the time.
	Segments int `json:"segments,omitempty"`
	// Lasting has segments removed only when the process starts. One that is killed
	// in the middle of a removal leaves a database that is damaged in truth.
	Lasting bool `json:"lasting,omitempty"`
	// Churn is a family that is made and dropped again and again.
	Churn string `json:"churn,omitempty"`
}

// Process is a running writer.
type Process struct {
	t   testing.TB
	cmd *exec.Cmd
	err bytes.Buffer
}

// Start starts to write the application whose directory is dir. The process ends
// with the test.
func (r Restless) Start(t testing.TB, dir string) *Process {
	t.Helper()
	recipe, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{t: t, cmd: exec.CommandContext(t.Context(), Program(t), RestlessFlag, dir)}
	p.cmd.Stdin = bytes.NewReader(recipe)
	p.cmd.Stderr = &p.err
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// Close has everything closed cleanly and waits for the end.
func (p *Process) Close() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Errorf("close the writer: %v", err)
	}
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("the writer ended: %v\n%s", err, &p.err)
	}
}

// Kill is SIGKILL, and waits for the end.
func (p *Process) Kill() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(os.Kill); err != nil {
		p.t.Errorf("kill the writer: %v", err)
	}
	_ = p.cmd.Wait() // which says that it was killed
	if s := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !s.Signaled() {
		p.t.Errorf("the writer had ended by itself: %s\n%s", p.cmd.ProcessState, &p.err)
	}
}
