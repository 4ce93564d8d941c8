package main

import (
	"fmt"
	"runtime"
)

// versionCmd prints the version.
type versionCmd struct {
	output
}

type versionInfo struct {
	Version   string `json:"version"`
	Go        string `json:"go"`
	Platform  string `json:"platform"`
	BuiltWith string `json:"rocksdb_note"`
}

// Run prints it.
func (c *versionCmd) Run(s *streams) error {
	v := versionInfo{
		Version:   version,
		Go:        runtime.Version(),
		Platform:  runtime.GOOS + "/" + runtime.GOARCH,
		BuiltWith: "built without RocksDB",
	}
	if c.Output == "json" {
		return printJSON(s, v)
	}
	if _, err := fmt.Fprintf(s.stdout, "streams-sidecar %s (%s, %s), %s\n", v.Version, v.Go, v.Platform, v.BuiltWith); err != nil {
		return fmt.Errorf("write the version: %w", err)
	}
	return nil
}
