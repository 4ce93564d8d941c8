package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// built gives a directory as scripts/build leaves it, with one small program in
// both places and a library that has nothing but the marks of its parts.
func built(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"sidecar", "sidecar-engine"} {
		cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", filepath.Join(dir, name), "streams-sidecar/cmd/sidecar-engine")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	var lib bytes.Buffer
	for _, p := range parts() {
		lib.WriteString(p.mark)
	}
	if err := os.WriteFile(filepath.Join(dir, "librocksdb.so"), lib.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// files runs the command and gives the files of its tar.
func files(t *testing.T, args ...string) (map[string][]byte, error) {
	t.Helper()
	var out bytes.Buffer
	if err := run(t.Context(), args, &out); err != nil {
		return nil, err
	}
	found := map[string][]byte{}
	for r := tar.NewReader(&out); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := found[h.Name]; twice || h.Mode != 0o644 || h.ModTime.Unix() != 1700000000 {
			t.Errorf("%s: twice %v, mode %o, of %v", h.Name, twice, h.Mode, h.ModTime)
		}
		if found[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNotices(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	dir := built(t)
	t.Chdir("../..")
	args := []string{"-version", "1.2.3", "-rocksdb", rocksdbVersion, dir}
	got, err := files(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	again, err := files(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range got {
		if !bytes.Equal(data, again[name]) {
			t.Errorf("%s is not the same the second time", name)
		}
	}

	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(got["sbom.cdx.json"]), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	if bom.SpecVersion != cdx.SpecVersion1_6 || bom.Metadata.Timestamp != "2023-11-14T22:13:20Z" || bom.Metadata.Component.Version != "1.2.3" {
		t.Errorf("%v %+v", bom.SpecVersion, bom.Metadata)
	}
	refs := map[string]bool{product: true}
	for _, c := range *bom.Components {
		refs[c.BOMRef] = true
		if c.Licenses == nil || (*c.Licenses)[0].Expression == "" {
			t.Errorf("%s has no licence", c.Name)
		}
		if c.PackageURL == "" {
			continue // one of the three files
		}
		texts := 0
		for name := range got {
			if strings.HasPrefix(name, "licenses/"+c.Name+"@"+c.Version+"/") {
				texts++
			}
		}
		if texts == 0 {
			t.Errorf("%s %s has no text", c.Name, c.Version)
		}
	}
	for _, want := range []string{"sidecar", "sidecar-engine", "librocksdb.so", "pkg:github/facebook/zstd@v1.5.7"} {
		if !refs[want] {
			t.Errorf("%s is not in the SBOM", want)
		}
	}
	for _, d := range *bom.Dependencies {
		for _, on := range *d.Dependencies {
			if !refs[on] {
				t.Errorf("%s needs %s, which is not there", d.Ref, on)
			}
		}
	}
	sys := false
	for ref := range refs {
		sys = sys || strings.HasPrefix(ref, "pkg:golang/golang.org/x/sys@v")
		if strings.Contains(ref, "prometheus") {
			t.Errorf("%s is in go.mod, but not linked", ref)
		}
	}
	if !sys {
		t.Error("golang.org/x/sys is linked and not in the SBOM")
	}
}

func TestNoticesOfAnotherLibrary(t *testing.T) {
	dir := built(t)
	t.Chdir("../..")
	if _, err := files(t, "-rocksdb", "11.0.0", dir); err == nil || !strings.Contains(err.Error(), "rocksdb.go must say") {
		t.Error(err)
	}
	lib := filepath.Join(dir, "librocksdb.so")
	data, err := os.ReadFile(lib)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(lib, bytes.ReplaceAll(data, []byte("1.5.7"), []byte("1.5.8")), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := files(t, "-rocksdb", rocksdbVersion, dir); err == nil || !strings.Contains(err.Error(), "no zstd@1.5.7") {
		t.Error(err)
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	bsd, err := os.ReadFile("licenses/lz4/LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, file, data, want, fails string
	}{
		{"known", "LICENSE", string(bsd), "BSD-2-Clause", ""},
		{"a notice is no licence", "NOTICE", string(bsd), "", "no licence found"},
		{"nobody's", "LICENSE", "Do with it what you want, but ask me first.", "", "no licence that is known"},
		{"copyleft", "COPYING", "SPDX-License-Identifier: AGPL-3.0-only\n" + agpl, "", "may not be shipped"},
	} {
		c := component{name: "a", version: "1", texts: []text{{tc.file, []byte(tc.data)}}}
		err := c.classify()
		if c.licence != tc.want || (err == nil) != (tc.fails == "") || err != nil && !strings.Contains(err.Error(), tc.fails) {
			t.Errorf("%s: %q, %v", tc.name, c.licence, err)
		}
	}
}

// The notice that the AGPL asks its users to put into each file.
const agpl = `This program is free software: you can redistribute it and/or modify it under
the terms of the GNU Affero General Public License as published by the Free
Software Foundation, either version 3 of the License, or (at your option) any
later version. This program is distributed in the hope that it will be useful,
but WITHOUT ANY WARRANTY; without even the implied warranty of MERCHANTABILITY or
FITNESS FOR A PARTICULAR PURPOSE. See the GNU Affero General Public License for
more details.`

func TestLinked(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write := func(name, from string) {
		t.Helper()
		data, err := os.ReadFile(filepath.Join("licenses", from))
		if err != nil {
			t.Fatal(err)
		}
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("go/LICENSE", "rocksdb/LICENSE.leveldb")
	write("m/LICENSE", "lz4/LICENSE")
	write("m/license.go", "lz4/LICENSE")
	write("m/used/part/COPYING.txt", "zlib/LICENSE")
	write("m/unused/LICENSE", "bzip2/LICENSE")
	module := &goModule{Path: "example.org/m", Version: "v1.0.0", Dir: filepath.Join(root, "m")}
	packages := []goPackage{{Dir: filepath.Join(root, "go/src/fmt")}, {Dir: filepath.Join(root, "m/used/part"), Module: module}}
	info := &debug.BuildInfo{GoVersion: "go1.26.0", Deps: []*debug.Module{{Path: "example.org/m", Version: "v1.0.0"}}}

	got, err := linked(info, packages, filepath.Join(root, "go"))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].key() != "stdlib@1.26.0" || got[1].key() != "example.org/m@v1.0.0" || got[1].licence != "BSD-2-Clause AND Zlib" {
		t.Errorf("%+v", got)
	}
	if texts := got[1].texts; len(texts) != 2 || texts[0].path != "LICENSE" || texts[1].path != "used/part/COPYING.txt" {
		t.Errorf("%d texts: %+v", len(texts), got[1])
	}

	for name, broken := range map[string]*debug.BuildInfo{
		"other modules": {GoVersion: "go1.26.0", Deps: []*debug.Module{{Path: "example.org/m", Version: "v1.0.1"}}},
		"is replaced":   {GoVersion: "go1.26.0", Deps: []*debug.Module{{Path: "example.org/m", Version: "v1.0.0", Replace: &debug.Module{Path: "../m"}}}},
		"experiments":   {GoVersion: "go1.26.0 X:boringcrypto"},
	} {
		if _, err := linked(broken, packages, filepath.Join(root, "go")); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
