// Command notices tells what is inside the built programs: for the directory
// that scripts/build has filled it writes a tar to standard output with the
// licence texts of every Go module that is linked, of Go itself and of RocksDB's
// library with its codecs, and with an SBOM (CycloneDX 1.6, JSON).
//
// What is linked is read from the programs, never from go.mod. It fails for a
// licence that it does not know or that this project may not ship, and for a
// library that is not the one it has the notices of. The same programs give the
// same tar.
package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"strconv"
	"syscall"
	"time"
)

// text is a file of the tar.
type text struct {
	path string // with slashes, from the tar's root
	data []byte
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "notices: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("notices", flag.ContinueOnError)
	version := flags.String("version", "unknown", "the version of the programs")
	rocksdb := flags.String("rocksdb", "", "the version of RocksDB in librocksdb.so")
	flags.Usage = func() {
		_, _ = fmt.Fprintf(flags.Output(), "usage: notices [-version V] -rocksdb V DIRECTORY >FILE.tar\nDIRECTORY holds sidecar, sidecar-engine and librocksdb.so.\n")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("one directory is needed, the one with sidecar, sidecar-engine and librocksdb.so")
	}
	now, err := buildTime()
	if err != nil {
		return err
	}
	texts, err := collect(ctx, flags.Arg(0), *version, *rocksdb, now)
	if err != nil {
		return err
	}
	return writeTar(stdout, texts, now)
}

// buildTime is that of SOURCE_DATE_EPOCH, in seconds since 1970, or now.
func buildTime() (time.Time, error) {
	epoch := os.Getenv("SOURCE_DATE_EPOCH")
	if epoch == "" {
		return time.Now().UTC(), nil
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH=%s: not a number of seconds", epoch)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// collect gives every file of the tar in the order of the tar.
func collect(ctx context.Context, dir, version, rocksdb string, now time.Time) ([]text, error) {
	var programs []*program
	for _, name := range []string{"sidecar", "sidecar-engine"} {
		p, err := readProgram(ctx, dir, name)
		if err != nil {
			return nil, err
		}
		programs = append(programs, p)
	}
	lib, err := readLibrary(dir, rocksdb)
	if err != nil {
		return nil, err
	}
	own, err := os.ReadFile("LICENSE")
	if err != nil {
		return nil, fmt.Errorf("run it in the root of the repository: %w", err)
	}
	sbom, err := writeSBOM(version, now, programs, lib)
	if err != nil {
		return nil, fmt.Errorf("write the SBOM: %w", err)
	}
	out := []text{{"LICENSE", own}, {"sbom.cdx.json", sbom}}
	for _, c := range components(programs, lib) {
		for _, t := range c.texts {
			out = append(out, text{path.Join("licenses", c.name+"@"+c.version, t.path), t.data})
		}
	}
	return out, nil
}

func writeTar(w io.Writer, texts []text, now time.Time) error {
	out := tar.NewWriter(w)
	for _, t := range texts {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: t.path, Size: int64(len(t.data)), Mode: 0o644, ModTime: now}
		if err := out.WriteHeader(h); err != nil {
			return fmt.Errorf("write %s: %w", t.path, err)
		}
		if _, err := io.Copy(out, bytes.NewReader(t.data)); err != nil {
			return fmt.Errorf("write %s: %w", t.path, err)
		}
	}
	return out.Close()
}
