package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"streams-sidecar/internal/consult"
	"streams-sidecar/internal/engine"
	"streams-sidecar/internal/event"
	"streams-sidecar/internal/probe"
	"streams-sidecar/internal/report"
	"streams-sidecar/internal/server"
	"streams-sidecar/internal/shutdown"
	"streams-sidecar/internal/store"
	"streams-sidecar/internal/volume"
)

// engineName is the program that asks RocksDB itself.
const engineName = "sidecar-engine"

// engineFlags say where that program is.
type engineFlags struct {
	Engine string `placeholder:"FILE" env:"SIDECAR_ENGINE" help:"The program that asks RocksDB itself, with librocksdb.so in its directory; by default sidecar-engine in the directory of this one."`
}

func (f *engineFlags) program() (string, error) {
	if f.Engine != "" {
		return f.Engine, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("where is %s: %w", engineName, err)
	}
	return filepath.Join(filepath.Dir(self), engineName), nil
}

// client gives what asks that program for a command, beside an agent that may
// have one of its own.
func (f *engineFlags) client() (*engine.Client, error) {
	program, err := f.program()
	if err != nil {
		return nil, err
	}
	return engine.New(engine.Options{Program: program, Memory: beside(os.DirFS(cgroupRoot))}), nil
}

// consultant gives what has RocksDB asked again and again, nil if it is not to
// be; end ends the process that is asked.
func (c *runCmd) consultant(memory uint64, picture func() []*store.StateDir, vs []*volume.Volume, gate *shutdown.Gate, events event.Sink) (_ *consult.Consultant, end func(), err error) {
	if c.EngineInterval == 0 {
		return nil, func() {}, nil
	}
	program, err := c.program()
	if err != nil {
		return nil, nil, err
	}
	client := engine.New(engine.Options{Program: program, Memory: memory})
	return consult.New(consult.Config{
		Engine:  client,
		Picture: picture,
		Volumes: vs,
		// A close needs the volume and the cores for itself.
		Quiet:  gate.Draining,
		Every:  time.Duration(c.EngineInterval),
		Events: events,
	}), client.Close, nil
}

// admin is the handler of that listener; a nil consultant is none.
func admin(watch *probe.Probe, gate *shutdown.Gate, rocks *consult.Consultant, checks report.Checks) http.Handler {
	if rocks == nil {
		return server.Admin(watch, gate, nil, checks)
	}
	return server.Admin(watch, gate, rocks, checks)
}

// consultAll asks RocksDB about every database that there is, and gives the
// opinions by the path of each. dirs are brought up to date where a database
// has changed meanwhile. The error says that the engine cannot be used at all.
func consultAll(ctx context.Context, c *engine.Client, vs []*volume.Volume, dirs []*store.StateDir) (version string, opinions map[string]engine.Opinion, err error) {
	if version, err = c.Version(ctx); err != nil {
		return "", nil, err
	}
	opinions = map[string]engine.Opinion{}
	for i, v := range vs {
		for _, db := range dirs[i].Databases() {
			if ctx.Err() != nil {
				break
			}
			again := func() *store.Database {
				dirs[i] = dirs[i].Refresh(v, map[string]bool{db.Path: true})
				return dirs[i].Database(db.Path)
			}
			opinions[db.Path] = c.Consult(ctx, db, engine.What{Offsets: true}, again)
		}
	}
	return version, opinions, nil
}
