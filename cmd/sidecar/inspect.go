package main

import (
	"fmt"

	"streams-sidecar/internal/inspect"
	"streams-sidecar/internal/volume"
)

// inspectCmd shows one thing in detail.
type inspectCmd struct {
	output
	Path string `arg:"" help:"A store, a task, or a file in one."`
}

// Run prints it. Its exit code is that of status.
func (c *inspectCmd) Run(s *streams) error {
	r, err := inspect.Look(volume.New(volume.OS()), c.Path)
	if err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	if c.Output == "json" {
		err = printJSON(s, r)
	} else {
		err = r.WriteText(s.stdout)
	}
	if err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return codeError(r.ExitCode())
}
