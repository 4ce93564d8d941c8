package engine_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"streams-sidecar/internal/engine"
	"streams-sidecar/internal/engine/child"
	"streams-sidecar/internal/engine/wire"
)

const (
	fakeEnv   = "FAKE_ENGINE"  // what this process is, if it is not the test
	parentEnv = "FAKE_SIDECAR" // one that starts an engine and waits
	fakeWhy   = "terminate called after throwing an instance of 'std::bad_alloc'"
)

func TestMain(m *testing.M) {
	runtime.LockOSThread()
	switch {
	case os.Getenv(fakeEnv) != "":
		fakeEngine(os.Getenv(fakeEnv))
	case os.Getenv(parentEnv) != "":
		fakeSidecar()
	default:
		os.Exit(m.Run())
	}
}

// fakeEngine starts as kind says and then answers as the last element of each
// path says.
func fakeEngine(kind string) {
	// The race detector's own memory is beyond any bound.
	if raceDetector {
		_ = os.Unsetenv(child.MemoryEnv)
	}
	if err := child.Confine(); err != nil {
		fail(err)
	}
	hello := wire.Hello{RocksDB: "10.10.1"}
	switch kind {
	case "good":
	case "silent":
		select {}
	case "lacks-library":
		fmt.Fprintln(os.Stderr, "error while loading shared libraries: librocksdb.so")
		os.Exit(127)
	case "talks":
		fmt.Println("RocksDB 10.10.1 is at your service")
	case "without":
		hello.Without = "built without the tag rocksdb"
	case "old":
		hello.RocksDB = "7.8.3"
	case "wordy":
		hello.RocksDB = "10.10.1" + strings.Repeat("0", 1<<20)
	case "leaves":
		hello.Protocol = wire.Protocol
		if err := wire.Write(os.Stdout, &hello, wire.MaxReply); err != nil {
			fail(err)
		}
		fmt.Fprintln(os.Stderr, "somebody needs me elsewhere")
		os.Exit(3)
	case "other-protocol":
		if err := wire.Write(os.Stdout, &wire.Hello{Protocol: 99}, wire.MaxReply); err != nil {
			fail(err)
		}
		select {}
	}
	if err := child.Serve(os.Stdin, os.Stdout, hello, fakeAnswer); err != nil {
		fail(err)
	}
	os.Exit(0)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func fakeAnswer(r *wire.Request) wire.Answer {
	out := os.Stdout
	switch filepath.Base(string(r.Path)) {
	case "hangs":
		select {}
	case "spins":
		for i := 0; ; i++ {
			_ = i
		}
	case "crashes":
		fmt.Fprintln(os.Stderr, fakeWhy)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "exits":
		os.Exit(0)
	case "closes":
		_ = out.Close()
		select {}
	case "babbles":
		_, _ = out.WriteString("Corruption: not a frame at all\n")
		select {}
	case "lies":
		_ = wire.Write(out, &wire.Reply{ID: r.ID + 1}, wire.MaxReply)
		select {}
	case "no-json":
		_, _ = out.Write(append(binary.BigEndian.AppendUint32(nil, 5), "{{{{{"...))
		select {}
	case "floods":
		for {
			_, _ = out.Write(bytes.Repeat([]byte{0xff}, 1<<16))
		}
	case "floods-slowly": // within the bound of a message, and never done
		_, _ = out.Write(binary.BigEndian.AppendUint32(nil, wire.MaxReply))
		for {
			_, _ = out.Write([]byte{' '})
			time.Sleep(time.Millisecond)
		}
	case "eats":
		var all [][]byte
		for {
			b := make([]byte, 1<<20)
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			all = append(all, b)
			runtime.KeepAlive(all)
		}
	case "long":
		return wire.Answer{Families: []wire.Family{{Stats: strings.Repeat("x", wire.MaxReply)}}}
	}
	return wire.Answer{LastSequence: 42, Families: []wire.Family{{Name: []byte(filepath.Base(string(r.Path)))}}}
}

// fakeSidecar starts an engine, says which, and is killed while it waits.
func fakeSidecar() {
	o := engine.Options{Program: self(), Deadline: time.Hour}
	o.Fake(fakeEnv + "=good")
	c := engine.New(o)
	if _, err := c.Version(ctx); err != nil {
		fail(err)
	}
	fmt.Println(engine.Pid(c))
	_, err := engine.AskAnyway(ctx, c, os.Getenv(parentEnv), 0, engine.What{})
	fail(err)
}

func self() string {
	p, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return p
}
