package streams

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// The Java programs travel inside the test binary, so that it needs no path of
// the checkout, and what is compiled is what was tested.
//
//go:embed java/pom.xml java/src
var java embed.FS

// install makes sure that the jars of a profile of pom.xml, in one version, and
// the classes that are compiled against them are in the cache, and returns the
// class path. Both are kept under a hash of what they are made from: two
// checkouts do not fight, and only the first use needs Maven and the network.
func install(profile, version string) (string, error) {
	user, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("where is the cache: %w", err)
	}
	dir := filepath.Join(user, "streams-sidecar", "lab", version)
	pom, err := java.ReadFile("java/pom.xml")
	if err != nil {
		return "", err
	}
	sources, err := sourcesOf(profile)
	if err != nil {
		return "", err
	}
	jars := filepath.Join(dir, profile+"-jars-"+hash(pom))
	classes := filepath.Join(dir, profile+"-classes-"+hash(pom, sources...))
	path := classes + string(filepath.ListSeparator) + filepath.Join(jars, "*")
	if isDir(jars) && isDir(classes) {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(filepath.Dir(dir))
	if err != nil {
		return "", err
	}
	defer unlock()
	err = makeWhole(jars, func(tmp string) error { return fetch(profile, version, pom, tmp) })
	if err != nil {
		return "", fmt.Errorf("fetch the jars of Kafka %s (%s): %w", version, profile, err)
	}
	err = makeWhole(classes, func(tmp string) error { return compile(sources, jars, tmp) })
	if err != nil {
		return "", fmt.Errorf("compile for Kafka %s (%s): %w", version, profile, err)
	}
	return path, nil
}

// sourcesOf lists the files of a profile, which is everything but the
// packages of the other one; pom.xml says the same to Maven.
func sourcesOf(profile string) ([]string, error) {
	var names []string
	err := fs.WalkDir(java, "java/src", func(p string, e fs.DirEntry, err error) error {
		isBroker := strings.Contains(p, "/lab/broker/")
		isApp := strings.Contains(p, "/lab/app/") || strings.Contains(p, "/org/apache/kafka/")
		if err == nil && !e.IsDir() && (profile == "broker" && !isApp || profile != "broker" && !isBroker) {
			names = append(names, p)
		}
		return err
	})
	return names, err
}

func hash(pom []byte, sources ...string) string {
	h := sha256.New()
	h.Write(pom)
	for _, name := range sources {
		text, err := java.ReadFile(name)
		if err != nil {
			panic(err) // it is embedded
		}
		h.Write(fmt.Appendf(nil, "%s %d\n", name, len(text)))
		h.Write(text)
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}

// makeWhole makes a directory that is either whole or not there.
func makeWhole(dir string, fill func(tmp string) error) error {
	if isDir(dir) {
		return nil
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), ".making-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	out := filepath.Join(tmp, "out")
	if err := os.Mkdir(out, 0o755); err != nil {
		return err
	}
	if err := fill(out); err != nil {
		return err
	}
	return os.Rename(out, dir)
}

func fetch(profile, version string, pom []byte, out string) error {
	dir := filepath.Dir(out)
	if err := os.WriteFile(filepath.Join(dir, "pom.xml"), pom, 0o644); err != nil {
		return err
	}
	return tool(dir, "mvn", "--batch-mode", "--quiet", "--activate-profiles", profile, "dependency:copy-dependencies",
		"-Dkafka.version="+version, "-DincludeScope=runtime", "-DoutputDirectory="+out)
}

func compile(sources []string, jars, out string) error {
	dir := filepath.Dir(out)
	if err := os.CopyFS(dir, java); err != nil {
		return err
	}
	args := []string{"--release", "11", "-Xlint:all", "-cp", filepath.Join(jars, "*"), "-d", out}
	return tool(dir, "javac", slices.Concat(args, sources)...)
}

// tool runs a program and puts what it said into the error.
func tool(dir, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, withHint(err), lastLines(said.String(), 30))
	}
	return nil
}

func withHint(err error) error {
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%w; scripts/streams-setup installs it", err)
	}
	return err
}

// lock keeps other processes from filling the cache at the same time; Maven's
// own repository does not survive that.
func lock(dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// lastLines of a text, with a word if there were more.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(lines) <= n {
		return strings.Join(lines, "\n")
	}
	return "…\n" + strings.Join(lines[len(lines)-n:], "\n")
}

// tail reads the end of a log file.
func tail(path string, n int) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = f.Close() }()
	const most = 64 << 10
	if info, err := f.Stat(); err == nil && info.Size() > most {
		_, err = f.Seek(-most, io.SeekEnd)
		if err != nil {
			return err.Error()
		}
	}
	text, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return err.Error()
	}
	return lastLines(string(text), n)
}
