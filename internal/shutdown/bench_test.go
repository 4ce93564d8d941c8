package shutdown_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"streams-sidecar/internal/shutdown"
	"streams-sidecar/internal/volume"
	"streams-sidecar/test/manystores"
)

// cpu is what this process has used so far.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// manyRunning is a rig of 1,000 stores that are all open.
func manyRunning(b *testing.B) *rig {
	b.Helper()
	r := rigOf1000(b)
	r.startOn(true)
	return r
}

func rigOf1000(b *testing.B) *rig {
	b.Helper()
	r := rigOver(b, manystores.Make(b, 1000))
	r.vs = []*volume.Volume{volume.New(volume.OS())} // the one that counts calls costs more
	return r
}

// BenchmarkDraining reports how much of a core a call costs that waits for 1,000
// stores, the following of the application included.
func BenchmarkDraining(b *testing.B) {
	r := manyRunning(b)
	g := r.gate(time.Hour, r.journals)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Run(ctx) }()
	d := r.drain(g, shutdown.Call{Wait: true})
	time.Sleep(time.Second)
	b.ResetTimer()
	before, begun := cpu(b), time.Now()
	for b.Loop() {
		time.Sleep(time.Second)
	}
	b.ReportMetric(100*(cpu(b)-before).Seconds()/time.Since(begun).Seconds(), "%core")
	g.End()
	answer(b, d)
	stop()
	<-done
}

// BenchmarkObserving is how long a call takes that only observes, and how much of
// that is work: it also waits 40 ms between two looks at the LOCKs.
func BenchmarkObserving(b *testing.B) {
	r := manyRunning(b)
	g := r.gate(time.Hour, r.journals, causes(shutdown.TriggerNone))
	g.Follow()
	before, calls := cpu(b), 0
	for b.Loop() {
		calls++
		if a, err := g.Prestop(context.Background(), shutdown.Call{}); err != nil || a.Outcome != shutdown.Observed {
			b.Fatal(a, err)
		}
	}
	b.ReportMetric(float64((cpu(b)-before).Milliseconds())/float64(calls), "cpu-ms/op")
}

// BenchmarkAfterTheRelease is how long the answer takes once the last lock is
// free: the files of 1,000 stores are looked at.
func BenchmarkAfterTheRelease(b *testing.B) {
	r := rigOf1000(b)
	for b.Loop() {
		b.StopTimer()
		c := r.startOn(true)
		g := r.gate(time.Hour, r.journals)
		g.Follow()
		d := r.drain(g, shutdown.Call{Wait: true})
		for _, lock := range r.dbs {
			c.Release(lock)
		}
		r.look()
		time.Sleep(20 * time.Millisecond)
		c.Release(filepath.Join(r.dir, "many", ".lock"))
		b.StartTimer()
		if a := answer(b, d); a.Stores != 1000 {
			b.Fatal(a)
		}
	}
}
