package trigger

import (
	"context"
	"net"

	"streams-sidecar/internal/volume"
)

// TerminateWith is Terminate with system calls of the test's own.
var TerminateWith = terminate

// NewTokenOn is NewToken with a volume of the test's own.
func NewTokenOn(v *volume.Volume, path string) (*Token, error) { return newToken(v, path) }

// Dial replaces the network.
func (h *HTTP) Dial(f func(ctx context.Context, network, address string) (net.Conn, error)) {
	h.dial = f
}
