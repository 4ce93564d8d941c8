package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// component is what somebody else wrote and is inside.
type component struct {
	name, version string
	purl, cpe     string // as they stand in the SBOM; cpe may be empty
	licence       string // SPDX expression
	texts         []text // paths from the component's own root
}

func (c *component) key() string { return c.name + "@" + c.version }

// program is one Go binary and what is linked into it.
type program struct {
	name   string
	sha256 string
	linked []*component // Go's standard library first, then modules by path
}

// standard is the name of Go's own library among modules, as vulnerability
// databases know it.
const standard = "stdlib"

// readProgram reads what the binary says of itself, and looks for the licences
// where the go command has the sources of just these packages.
func readProgram(ctx context.Context, dir, name string) (*program, error) {
	file := filepath.Join(dir, name)
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	info, err := buildinfo.Read(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	sum := sha256.Sum256(data)
	p := &program{name: name, sha256: hex.EncodeToString(sum[:])}
	packages, err := list(ctx, info)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	goroot, err := ask(ctx, nil, "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	if p.linked, err = linked(info, packages, strings.TrimSpace(string(goroot))); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return p, nil
}

// goPackage is what is used of go list's answer.
type goPackage struct {
	Dir    string
	Module *goModule
}

type goModule struct {
	Path, Version, Dir string
	Main               bool
}

// list asks the go command which packages that binary was built of.
func list(ctx context.Context, info *debug.BuildInfo) ([]goPackage, error) {
	args := []string{"list", "-deps", "-json=Dir,Module"}
	env := os.Environ()
	for _, s := range info.Settings {
		switch s.Key {
		case "-tags":
			args = append(args, "-tags="+s.Value)
		case "GOOS", "GOARCH", "CGO_ENABLED":
			env = append(env, s.Key+"="+s.Value)
		}
	}
	out, err := ask(ctx, env, append(args, info.Path)...)
	if err != nil {
		return nil, err
	}
	var packages []goPackage
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list %s: %w", info.Path, err)
		}
		packages = append(packages, p)
	}
}

// ask runs the go command. Without an environment it has this process's.
func ask(ctx context.Context, env []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = env
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(said.Bytes()))
	}
	return out, nil
}

// linked gives the components of the binary, which must be those that the go
// command lists: otherwise it has other sources than the binary was built of.
func linked(info *debug.BuildInfo, packages []goPackage, goroot string) ([]*component, error) {
	version, experiments, _ := strings.Cut(strings.TrimPrefix(info.GoVersion, "go"), " ")
	if experiments != "" {
		return nil, fmt.Errorf("built with experiments of Go (%s), which can have other licences", experiments)
	}
	byPath := map[string]*component{
		standard: {name: standard, version: version, purl: "pkg:golang/stdlib@" + version},
	}
	for _, d := range info.Deps {
		if d.Replace != nil {
			return nil, fmt.Errorf("%s is replaced; the SBOM would name the wrong module", d.Path)
		}
		byPath[d.Path] = &component{name: d.Path, version: d.Version, purl: "pkg:golang/" + d.Path + "@" + url.QueryEscape(d.Version)}
	}
	// Of Go's own library its root alone: the one licence below it is that of
	// BoringSSL, which is linked only into an experimental build.
	found := map[string]map[string][]byte{standard: {}}
	if err := licences(goroot, goroot, found[standard]); err != nil {
		return nil, err
	}
	for _, p := range packages {
		m := p.Module
		if m == nil || m.Main {
			continue
		}
		if c := byPath[m.Path]; c == nil || c.version != m.Version {
			return nil, fmt.Errorf("built with other modules than those of go.mod (%s@%s)", m.Path, m.Version)
		}
		if found[m.Path] == nil {
			found[m.Path] = map[string][]byte{}
		}
		if err := licences(m.Dir, p.Dir, found[m.Path]); err != nil {
			return nil, err
		}
	}
	for name, c := range byPath {
		for _, p := range slices.Sorted(maps.Keys(found[name])) {
			c.texts = append(c.texts, text{p, found[name][p]})
		}
		if err := c.classify(); err != nil {
			return nil, err
		}
	}
	out := []*component{byPath[standard]}
	for _, d := range info.Deps {
		out = append(out, byPath[d.Path])
	}
	return out, nil
}

var (
	legal   = regexp.MustCompile(`(?i)^((un)?licen[cs]e|copying|notice|patents)([-.].*)?$`)
	licence = regexp.MustCompile(`(?i)^((un)?licen[cs]e|copying)([-.].*)?$`)
)

// licences adds the licences, notices and patent grants of dir and of the
// directories above it up to root: parts of a module can have their own.
func licences(root, dir string, found map[string][]byte) error {
	for {
		below, err := filepath.Rel(root, dir)
		if err != nil || below == ".." || strings.HasPrefix(below, "../") {
			return fmt.Errorf("%s is not below %s", dir, root)
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if !e.Type().IsRegular() || !legal.MatchString(e.Name()) || filepath.Ext(e.Name()) == ".go" {
				continue
			}
			data, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return err
			}
			found[filepath.ToSlash(filepath.Join(below, e.Name()))] = data
		}
		if below == "." {
			return nil
		}
		dir = filepath.Dir(dir)
	}
}

// shippable are the licences under which something may be in the image. Each
// asks for no more than that its text and notices come along.
var shippable = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "Zlib", "bzip2-1.0.6"}

// minCoverage is how much of a licence's text must be known words, in percent.
// Copyright lines and an introduction are not.
const minCoverage = 55

// classify sets the licence by the texts.
func (c *component) classify() error {
	ids := map[string]bool{}
	for _, t := range c.texts {
		if !licence.MatchString(filepath.Base(t.path)) {
			continue
		}
		known := licensecheck.Scan(t.data)
		if known.Percent < minCoverage {
			return fmt.Errorf("%s: %s is no licence that is known", c.key(), t.path)
		}
		for _, m := range known.Match {
			if m.IsURL {
				continue // a mention of something else
			}
			if !slices.Contains(shippable, m.ID) {
				return fmt.Errorf("%s: %s is %s, which may not be shipped", c.key(), t.path, m.ID)
			}
			ids[m.ID] = true
		}
	}
	if len(ids) == 0 {
		return fmt.Errorf("%s: no licence found", c.key())
	}
	c.licence = strings.Join(slices.Sorted(maps.Keys(ids)), " AND ")
	return nil
}
