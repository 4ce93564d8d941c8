package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"streams-sidecar/internal/engine"
	"streams-sidecar/internal/report"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/verify"
	"streams-sidecar/internal/volume"
)

// minWatch keeps a slip of the finger from keeping the volume busy.
const minWatch = 100 * time.Millisecond

// statusCmd reads the files itself; it never asks a running agent.
type statusCmd struct {
	stateDirs
	output
	question
	WithEngine bool `env:"SIDECAR_WITH_ENGINE" help:"Ask RocksDB itself too, in a process of its own, and show where it differs."`
	engineFlags
	Dir   []string      `arg:"" optional:"" help:"State directories, the same as --state-dir."`
	Watch time.Duration `placeholder:"EVERY" env:"SIDECAR_WATCH" help:"Show it again at this interval, until interrupted: --watch=2s."`
}

// Run prints the table or the JSON, with the findings and verdicts of a quick
// verification, and has its exit codes.
func (c *statusCmd) Run(s *streams) error {
	if c.Watch != 0 && c.Watch < minWatch {
		return usageError(fmt.Sprintf("--watch=%v: at least %v", c.Watch, minWatch))
	}
	c.StateDir = append(c.StateDir, c.Dir...)
	paths := c.paths()
	vs := volumes(paths)
	var rocks *engine.Client
	if c.WithEngine {
		var err error
		if rocks, err = c.client(); err != nil {
			return err
		}
		defer rocks.Close()
	}
	var v *verify.Verification
	code := report.ExitUnreadable // until a look is done
	for {
		v = verify.Run(s.ctx, vs, paths, c.ask(), verify.Plan{Depth: verify.Quick}, v)
		doc := look(s, rocks, vs, v)
		if s.ctx.Err() != nil && rocks != nil {
			return codeError(code) // the look was not finished
		}
		code = doc.ExitCode()
		if err := c.print(s, &doc); err != nil {
			return err
		}
		if c.Watch <= 0 {
			return codeError(code)
		}
		select {
		case <-s.ctx.Done():
			return codeError(code)
		case <-time.After(c.Watch):
		}
	}
}

// look gives the document of what was read, with RocksDB's opinion if it is to
// be asked.
func look(s *streams, rocks *engine.Client, vs []*volume.Volume, v *verify.Verification) report.Document {
	if rocks == nil {
		return report.NewVerified(v)
	}
	version, opinions, err := consultAll(s.ctx, rocks, vs, slices.Clone(v.Dirs))
	doc := report.NewVerified(v)
	doc.AddOpinions(v.Dirs, version, err, func(db *store.Database) (engine.Opinion, bool) {
		o, ok := opinions[db.Path]
		return o, ok
	})
	return doc
}

func (c *statusCmd) print(s *streams, doc *report.Document) error {
	if c.Output == "json" {
		return printJSON(s, doc)
	}
	if c.Watch > 0 {
		if _, err := fmt.Fprintf(s.stdout, "%s%s\n\n", clear(s.stdout), time.Now().Format(time.TimeOnly)); err != nil {
			return fmt.Errorf("write the table: %w", err)
		}
	}
	if err := doc.WriteText(s.stdout); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	return nil
}

func printJSON(s *streams, v any) error {
	enc := json.NewEncoder(s.stdout)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

func codeError(code int) error {
	if code == 0 {
		return nil
	}
	return exitCode(code)
}

// volumes gives one seam for each state directory.
func volumes(paths []string, opts ...volume.Option) []*volume.Volume {
	vs := make([]*volume.Volume, len(paths))
	for i := range paths {
		vs[i] = volume.New(volume.OS(), opts...)
	}
	return vs
}
