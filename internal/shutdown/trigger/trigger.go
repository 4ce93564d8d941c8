// Package trigger is what makes an application close: a request to its own
// shutdown endpoint ([HTTP]), or SIGTERM to the process that holds its lock
// file ([Terminate]); and the secret that a hook must carry to be allowed
// either ([Token]).
//
// It knows nothing of drains, budgets or what a clean close is. It never
// signals by process number, never sends a request that it was not configured
// to send, and no text of it shows a credential, a query, a header value or a
// body. It writes nothing. Package shutdown and the commands may import it.
package trigger

import (
	"fmt"
	"path/filepath"
	"time"

	"streams-sidecar/internal/volume"
)

// fileDeadline is for files beside the configuration: a token, a certificate.
// A look is given up an eighth later, so after one second.
const fileDeadline = time.Second * 8 / 9

func newFiles() *volume.Volume { return volume.New(volume.OS(), volume.Deadline(fileDeadline)) }

// read gives the content of a small file; what says in errors which one it is.
func read(v *volume.Volume, what, path string, limit int64) ([]byte, error) {
	data, err := volume.Do(v, filepath.Dir(path), func(fs volume.FS) ([]byte, error) {
		data, _, err := volume.ReadFile(fs, path, limit)
		return data, err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return data, nil
}
