package verify

import (
	"fmt"
	"io"
	"time"

	"streams-sidecar/internal/finding"
	"streams-sidecar/internal/rocksfile/infolog"
	"streams-sidecar/internal/volume"
)

// logTail is how much of a LOG is read, from its end, bytes.
const logTail = 64 << 10

// log looks for errors in one of RocksDB's own logs. Kafka Streams sets their
// level to ERROR, so that from 3.0 on a LOG with bytes is an error by itself; 2.8
// writes its settings there at every open.
func (o *outcome) log(fs volume.FS, path string) error {
	f, err := fs.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info := f.Info()
	data := make([]byte, min(info.Size, logTail))
	from := info.Size - int64(len(data))
	n, err := f.ReadAt(data, from)
	if err != nil && err != io.EOF {
		return err
	}
	tail := infolog.Parse(data[:n], info.ModTime())
	if len(tail.Errors) == 0 {
		return nil
	}
	last := &tail.Errors[len(tail.Errors)-1]
	when := last.Stamp + " in the writer's zone"
	if !last.Time.IsZero() {
		when = last.Time.Format(time.RFC3339)
	}
	lines := "1 line of level ERROR,"
	if total := len(tail.Errors) + tail.MoreErrors; total > 1 {
		lines = fmt.Sprintf("%d lines of level ERROR, the last one", total)
	}
	o.findings = append(o.findings, finding.New(finding.LogError, path, finding.At(from+int64(last.Offset)),
		finding.Found("%s %s (%s): %s", lines, when, last.Kind, volume.Text(last.Text))))
	return nil
}
