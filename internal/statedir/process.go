package statedir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/volume"
)

// maxProcessFile bounds kafka-streams-process-metadata, in bytes; a real one
// has 52.
const maxProcessFile = 64 << 10

// Streams takes .lock, creates the file, and then writes into it, so that a look
// can meet it empty, for longer on a slow volume.
const processBeingMade = 10 * time.Second

// beingMade says that the file is empty and so young that it may be on its way.
func (f *processFile) beingMade() bool {
	return f.broken != nil && f.stamp.size == 0 && time.Since(time.Unix(0, f.stamp.mod)) < processBeingMade
}

// processFile is what a look found in kafka-streams-process-metadata.
type processFile struct {
	stamp  stamp
	id     string
	broken error // why Streams cannot use it
	err    error // of the volume
}

func readProcess(fsys volume.FS, dir string, e *volume.Info, mem *memory) processFile {
	info, err := regular(fsys, dir, e)
	if err != nil {
		return processFile{err: err}
	}
	if known, ok := mem.processes[dir]; ok && known.stamp == stampOf(info) {
		return known
	}
	data, info, err := readFile(fsys, join(dir, e.Name), info, maxProcessFile)
	if err != nil {
		return processFile{err: err}
	}
	f := processFile{stamp: stampOf(info)}
	f.id, f.broken = ParseProcess(data)
	return f
}

func (f *processFile) problem(path string) (finding.Finding, bool) {
	if f.broken != nil {
		return finding.New(finding.ProcessIDMalformed, path,
			finding.Expected(`{"processId":"<uuid>"}`), finding.Found("%v", f.broken)), true
	}
	return problem(f.err, path)
}

// ParseProcess reads {"processId":"<uuid>"} as StateDirectory does with
// Jackson: the first JSON value counts and what follows it does not, names are
// compared exactly, the last of two equal ones wins, others are ignored.
func ParseProcess(data []byte) (id string, err error) {
	// A map and not a struct: encoding/json would match a struct's names in
	// any case.
	var fields map[string]json.RawMessage
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(&fields); err != nil {
		return "", fmt.Errorf("%d bytes: %w", len(data), err)
	}
	raw, ok := fields["processId"]
	if !ok {
		return "", errors.New("no processId")
	}
	if err := json.Unmarshal(raw, &id); err != nil {
		return "", fmt.Errorf("processId: %w", err)
	}
	id = strings.TrimSpace(id)
	if !isUUID(id) {
		return "", fmt.Errorf("processId %.64q", id)
	}
	return strings.ToLower(id), nil
}

// isUUID wants 8-4-4-4-12 hexadecimal digits.
func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; i {
		case 8, 13, 18, 23:
			if c != '-' {
				return false
			}
		default:
			if !('0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f') {
				return false
			}
		}
	}
	return true
}
