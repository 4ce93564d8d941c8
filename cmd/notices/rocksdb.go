package main

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// The library holds no licence, nor does the jar that it comes from; these are
// the texts of its sources.
//
//go:embed licenses
var licenseTexts embed.FS

// rocksdbVersion is the one that parts describes.
const rocksdbVersion = "10.10.1"

// part is what is compiled into the library. Its mark is text that only this
// version of it leaves in a binary.
type part struct {
	component
	mark string
}

// parts of RocksDB's build for Java. The versions are what the library itself
// says, where it does: RocksDB's Makefile of 10.10.1 names zlib 1.3.1.
func parts() []part {
	return []part{
		{component{name: "rocksdb", version: rocksdbVersion, purl: "pkg:maven/org.rocksdb/rocksdbjni@" + rocksdbVersion + "?classifier=linux64",
			cpe: "cpe:2.3:a:facebook:rocksdb:" + rocksdbVersion + ":*:*:*:*:*:*:*"}, "Java_org_rocksdb_RocksDB_version"},
		{component{name: "bzip2", version: "1.0.8", purl: "pkg:generic/bzip2@1.0.8", cpe: "cpe:2.3:a:bzip:bzip2:1.0.8:*:*:*:*:*:*:*"}, "1.0.8, 13-Jul-2019"},
		{component{name: "lz4", version: "1.10.0", purl: "pkg:github/lz4/lz4@v1.10.0", cpe: "cpe:2.3:a:lz4_project:lz4:1.10.0:*:*:*:*:*:*:*"}, "\x001.10.0\x00"},
		// It leaves no version in the binary; this one is the Makefile's.
		{component{name: "snappy", version: "1.2.2", purl: "pkg:github/google/snappy@1.2.2", cpe: "cpe:2.3:a:google:snappy:1.2.2:*:*:*:*:*:*:*"}, "_ZN6snappy11RawCompress"},
		{component{name: "zlib", version: "1.3.2", purl: "pkg:github/madler/zlib@v1.3.2", cpe: "cpe:2.3:a:zlib:zlib:1.3.2:*:*:*:*:*:*:*"}, " deflate 1.3.2 Copyright "},
		{component{name: "zstd", version: "1.5.7", purl: "pkg:github/facebook/zstd@v1.5.7", cpe: "cpe:2.3:a:facebook:zstandard:1.5.7:*:*:*:*:*:*:*"}, "\x001.5.7\x00"},
	}
}

// library is librocksdb.so and what is compiled into it.
type library struct {
	name   string
	sha256 string
	parts  []*component
}

func readLibrary(dir, version string) (*library, error) {
	if version != rocksdbVersion {
		return nil, fmt.Errorf("these are the notices of RocksDB %s, not of %q: cmd/notices/rocksdb.go must say what is in it", rocksdbVersion, version)
	}
	l := &library{name: "librocksdb.so"}
	file := filepath.Join(dir, l.name)
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	l.sha256 = hex.EncodeToString(sum[:])
	for _, p := range parts() {
		if !bytes.Contains(data, []byte(p.mark)) {
			return nil, fmt.Errorf("%s: there is no %s in it", file, p.key())
		}
		c := p.component
		if err := c.embedded(); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		l.parts = append(l.parts, &c)
	}
	return l, nil
}

// embedded takes the texts from this program.
func (c *component) embedded() error {
	root := path.Join("licenses", c.name)
	entries, err := fs.ReadDir(licenseTexts, root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		data, err := fs.ReadFile(licenseTexts, path.Join(root, e.Name()))
		if err != nil {
			return err
		}
		c.texts = append(c.texts, text{e.Name(), data})
	}
	return c.classify()
}
