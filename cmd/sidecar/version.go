package main

import (
	"cmp"
	"fmt"
	"runtime"

	"streams-sidecar/internal/volume"
)

// versionCmd prints the version, and that of the RocksDB that can be asked.
type versionCmd struct {
	output
	engineFlags
}

type versionInfo struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// RocksDB is the version of the engine's library; absent if there is none.
	RocksDB string `json:"rocksdb,omitempty"`
	Note    string `json:"rocksdb_note"`
}

// Run prints it. That RocksDB cannot be asked is no failure: the sidecar is
// whole without.
func (c *versionCmd) Run(s *streams) error {
	v := versionInfo{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	rocks, err := c.client()
	if err != nil {
		return err
	}
	defer rocks.Close()
	if lib, err := rocks.Version(s.ctx); err != nil {
		v.Note = "built without RocksDB; " + err.Error()
	} else {
		v.RocksDB = volume.Text(cmp.Or(lib, "unknown"))
		v.Note = "built without RocksDB; " + engineName + " has RocksDB " + v.RocksDB
	}
	if c.Output == "json" {
		return printJSON(s, v)
	}
	if _, err := fmt.Fprintf(s.stdout, "streams-sidecar %s (%s, %s), %s\n", v.Version, v.Go, v.Platform, v.Note); err != nil {
		return fmt.Errorf("write the version: %w", err)
	}
	return nil
}
