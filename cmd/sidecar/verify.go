package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"streams-sidecar/internal/inspect"
	"streams-sidecar/internal/report"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/verify"
	"streams-sidecar/internal/volume"
)

// question is what a judgement depends on and the files do not tell.
type question struct {
	Guarantee      string        `enum:"auto,at-least-once,exactly-once" default:"auto" env:"SIDECAR_GUARANTEE" help:"The application's processing guarantee: auto, at-least-once or exactly-once (${default})."`
	StreamsVersion streamVersion `default:"auto" env:"SIDECAR_STREAMS_VERSION" placeholder:"X.Y.Z" help:"The version of Kafka Streams that will start next, for instance to ask for a rollback; auto for the one that wrote the files (${default})."`
}

func (q *question) ask() verify.Question {
	return verify.Question{Guarantee: verify.Guarantee(q.Guarantee), Streams: q.StreamsVersion.Version}
}

// streamVersion is a version of Kafka Streams, or auto.
type streamVersion struct{ *verify.Version }

// UnmarshalText implements encoding.TextUnmarshaler for kong.
func (v *streamVersion) UnmarshalText(text []byte) error {
	if string(text) == string(verify.Auto) {
		v.Version = nil
		return nil
	}
	x, err := verify.ParseVersion(string(text))
	v.Version = &x
	return err
}

// byteRate is a number of bytes a second: 50M is 50 MiB; 0 is no bound.
type byteRate int64

// UnmarshalText implements encoding.TextUnmarshaler for kong.
func (r *byteRate) UnmarshalText(text []byte) error {
	m := rateForm.FindSubmatch(text)
	if m == nil {
		return fmt.Errorf("%q is no number of bytes a second like 50M", text)
	}
	n, err := strconv.ParseUint(string(m[1]), 10, 62)
	shift := 0
	if len(m[2]) > 0 {
		shift = 10 * (1 + strings.Index("KMG", string(m[2])))
	}
	if err != nil || n > math.MaxInt64>>shift {
		return fmt.Errorf("%q is more bytes a second than there can be", text)
	}
	*r = byteRate(n << shift)
	return nil
}

var rateForm = regexp.MustCompile(`^([0-9]+)(?:([KMG])(?:i?B)?)?$`)

// verifyCmd reads the files itself; it never asks a running agent.
type verifyCmd struct {
	stateDirs
	output
	question
	Deep bool     `env:"SIDECAR_DEEP" help:"Read every byte of every table and verify every checksum."`
	Rate byteRate `default:"0" env:"SIDECAR_RATE" placeholder:"BYTES" help:"Read at most so many bytes of tables a second, like 50M; 0 for no bound (${default})."`
	Path []string `arg:"" optional:"" help:"State directories, or an application, task or store in one, or a copy of a store."`
}

// Run prints the findings and the verdicts. Its exit code is 0 if nothing was
// found, 1 for warnings only, 2 for damage, 3 if something could not be judged.
func (c *verifyCmd) Run(s *streams) error {
	plan := verify.Plan{Depth: verify.Quick}
	if c.Rate > 0 {
		plan.Pace = volume.NewPace(int64(c.Rate))
	}
	paths := append([]string(c.StateDir), c.Path...)
	c.StateDir = paths
	paths = c.paths()
	vs := volumes(paths)
	targets := make([]inspect.Target, len(paths))
	dirs := make([]*store.StateDir, len(paths))
	for i, path := range paths {
		targets[i] = inspect.Find(vs[i], path)
	}
	look := func(before []*store.StateDir) []*store.StateDir { return inspect.LookAll(targets, before) }
	dirs = look(dirs)
	plan.Only = func(dir int, path string) bool { return targets[dir].Covers(path) }
	end := func() {}
	if c.Deep {
		plan.Depth = verify.Deep
		plan.Read, end = progress(s.ctx, s.stderr, total(dirs, plan.Only))
	}
	v := verify.Picture(s.ctx, dirs, vs, c.ask(), plan, nil, look)
	end()
	doc := report.NewVerified(v)
	for i, d := range v.Dirs {
		doc.Keep(i, d, targets[i].Covers)
	}
	var err error
	if c.Output == "json" {
		err = printJSON(s, &doc)
	} else {
		err = doc.WriteText(s.stdout)
	}
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return codeError(doc.ExitCode())
}

// total bytes of the live tables of the stores that are meant.
func total(dirs []*store.StateDir, only func(dir int, path string) bool) (n int64) {
	for i, d := range dirs {
		d.Stores(func(_ *store.Application, _ *store.Task, s *store.Store) {
			for k := range s.Families {
				if only(i, s.Layout.Path) {
					n += s.Families[k].Bytes
				}
			}
		})
	}
	return n
}

// progressEvery is how often a terminal is told how far it is.
const progressEvery = 200 * time.Millisecond

// progress counts bytes, and on a terminal tells how many of all were read.
func progress(ctx context.Context, to io.Writer, all int64) (read func(int64), end func()) {
	var done atomic.Int64
	read = func(n int64) { done.Add(n) }
	if !isTerminal(to) {
		return read, func() {}
	}
	began, stop, stopped := time.Now(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_, _ = fmt.Fprintf(to, "\r\x1b[K%s", progressLine(done.Load(), all, time.Since(began)))
			case <-ctx.Done():
				<-stop
				return
			case <-stop:
				return
			}
		}
	}()
	return read, func() {
		close(stop)
		<-stopped
		_, _ = fmt.Fprint(to, "\r\x1b[K")
	}
}

func progressLine(done, all int64, took time.Duration) string {
	perSecond := float64(done) / max(took.Seconds(), 0.001)
	line := fmt.Sprintf("%s of %s, %s/s", report.Bytes(done), report.Bytes(all), report.Bytes(int64(perSecond)))
	if left := all - done; left > 0 && perSecond >= 1 {
		line += fmt.Sprintf(", %v left", time.Duration(float64(left)/perSecond*float64(time.Second)).Round(time.Second))
	}
	return line
}
