//go:build image

package image

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

const (
	home     = "/opt/streams-sidecar"
	maxBytes = 50 << 20 // of all layers, compressed
	moduleAt = "../.."
)

var programs = []string{"sidecar", "sidecar-engine"}

// image is what scripts/test-image has built, looked at once for all tests.
var image struct {
	root     string // mounted
	version  string
	digest   string // of the manifest
	manifest manifest
	config   config
	raw      []byte // the config's bytes
}

type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int64  `json:"size"`
}

type manifest struct {
	Config descriptor   `json:"config"`
	Layers []descriptor `json:"layers"`
}

type config struct {
	Created      time.Time `json:"created"`
	Architecture string    `json:"architecture"`
	OS           string    `json:"os"`
	Config       struct {
		User       string
		Env        []string
		Entrypoint []string
		Cmd        []string
		Labels     map[string]string
	} `json:"config"`
}

func TestMain(m *testing.M) {
	os.Exit(func() int {
		closeImage, err := openImage()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer closeImage()
		return m.Run()
	}())
}

func openImage() (closeImage func(), err error) {
	name := os.Getenv("SIDECAR_TEST_IMAGE")
	if name == "" {
		return nil, fmt.Errorf("SIDECAR_TEST_IMAGE is not set: scripts/test-image builds the image and sets it")
	}
	image.version = os.Getenv("VERSION")

	layout, err := os.MkdirTemp("", "layout")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(layout) }()
	if _, err := buildah("push", "-q", name, "oci:"+layout); err != nil {
		return nil, err
	}
	var index struct{ Manifests []descriptor }
	if err := decode(filepath.Join(layout, "index.json"), &index); err != nil {
		return nil, err
	}
	blob := func(digest string) string {
		return filepath.Join(layout, "blobs", strings.Replace(digest, ":", "/", 1))
	}
	image.digest = index.Manifests[0].Digest
	if err := decode(blob(image.digest), &image.manifest); err != nil {
		return nil, err
	}
	if image.raw, err = os.ReadFile(blob(image.manifest.Config.Digest)); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(image.raw, &image.config); err != nil {
		return nil, err
	}

	container, err := buildah("from", "--pull-never", name)
	if err != nil {
		return nil, err
	}
	closeImage = func() { _, _ = buildah("rm", container) }
	if image.root, err = buildah("mount", container); err != nil {
		closeImage()
		return nil, err
	}
	return closeImage, nil
}

// buildah gives the last line of what it prints.
func buildah(args ...string) (string, error) {
	cmd := exec.Command("buildah", args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("buildah %s: %w: %s", strings.Join(args, " "), err, said.Bytes())
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1], nil
}

func decode(file string, v any) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}

func TestConfig(t *testing.T) {
	t.Parallel()
	c := image.config.Config
	uid, gid, ok := user()
	if !ok || uid == 0 || gid == 0 {
		t.Errorf("user %q: Kubernetes' runAsNonRoot needs a number that is not 0", c.User)
	}
	if want := []string{home + "/sidecar"}; !slices.Equal(c.Entrypoint, want) || len(c.Cmd) > 0 {
		t.Errorf("entry point %q with %q", c.Entrypoint, c.Cmd)
	}
	if image.config.OS != "linux" || image.config.Architecture != runtime.GOARCH {
		t.Errorf("for %s/%s", image.config.OS, image.config.Architecture)
	}
	if len(c.Env) != 1 || !strings.HasPrefix(c.Env[0], "PATH="+home+":") {
		t.Errorf("environment %q", c.Env)
	}
	created, err := time.Parse(time.RFC3339, c.Labels["org.opencontainers.image.created"])
	if err != nil || !created.Equal(image.config.Created) || time.Since(created) < 0 {
		t.Errorf("created %v (%v), and the image %v", created, err, image.config.Created)
	}
	for label, want := range map[string]string{
		"title": "streams-sidecar", "licenses": "Apache-2.0", "version": image.version, "base.name": os.Getenv("RUN_BASE"),
	} {
		if got := c.Labels["org.opencontainers.image."+label]; got != want || got == "" {
			t.Errorf("label %s is %q, want %q", label, got, want)
		}
	}
	if c.Labels["org.opencontainers.image.description"] == "" {
		t.Error("no description")
	}
	_, err = os.Stat(filepath.Join(moduleAt, ".git"))
	if got := c.Labels["org.opencontainers.image.revision"]; err == nil && len(got) != 40 {
		t.Errorf("revision %q", got)
	}
	// What the network of the building machine needs is nobody else's.
	for _, secret := range []string{goEnv(t, "GOPROXY"), "ca-bundle", "maven-settings", "/host/"} {
		if bytes.Contains(image.raw, []byte(secret)) {
			t.Errorf("the config of the image has %q in it", secret)
		}
	}
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	value := strings.TrimSpace(string(out))
	if err != nil || value == "" {
		t.Fatalf("go env %s: %q, %v", name, value, err)
	}
	return value
}

func user() (uid, gid int, ok bool) {
	u, g, _ := strings.Cut(image.config.Config.User, ":")
	uid, err1 := strconv.Atoi(u)
	gid, err2 := strconv.Atoi(g)
	return uid, gid, err1 == nil && err2 == nil
}

func TestSize(t *testing.T) {
	t.Parallel()
	var sum int64
	for _, l := range image.manifest.Layers {
		if !strings.HasSuffix(l.MediaType, "+gzip") {
			t.Errorf("a layer of type %s", l.MediaType)
		}
		t.Logf("layer %s: %.1f MiB", l.Digest[:19], mib(l.Size))
		sum += l.Size
	}
	t.Logf("%s: %.1f MiB compressed in %d layers", image.digest, mib(sum), len(image.manifest.Layers))
	if sum > maxBytes {
		t.Errorf("%.1f MiB, more than %.1f", mib(sum), mib(maxBytes))
	}
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// TestRoot: what must not be there, and who may change what is.
func TestRoot(t *testing.T) {
	t.Parallel()
	unwanted := map[string]bool{}
	for _, name := range []string{
		"sh", "bash", "dash", "ash", "zsh", "ksh", "busybox", "toybox", "perl", "python3", "openssl", "curl", "wget",
		"apt", "apt-get", "dpkg", "apk", "rpm", "yum", "dnf", "microdnf", "gcc", "go", "mvn", "java", "su", "sudo", "mount",
	} {
		unwanted[name] = true
	}
	files := 0
	err := filepath.WalkDir(image.root, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		files++
		name := strings.TrimPrefix(p, image.root)
		mode := info.Mode()
		if unwanted[e.Name()] && !e.IsDir() {
			t.Errorf("%s is there", name)
		}
		if mode&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
			t.Errorf("%s is %v", name, mode)
		}
		// A link's own mode is no right; that of a directory like /tmp is.
		if mode&fs.ModeSymlink == 0 && mode.Perm()&0o002 != 0 && (!e.IsDir() || mode&fs.ModeSticky == 0) {
			t.Errorf("anybody can write %s (%v)", name, mode)
		}
		if mode&(fs.ModeDevice|fs.ModeNamedPipe|fs.ModeSocket) != 0 {
			t.Errorf("%s is a %v", name, mode.Type())
		}
		if !strings.HasPrefix(name, home+"/") {
			return nil
		}
		uid, gid := owner(info)
		want := fs.FileMode(0o644)
		if e.IsDir() || slices.Contains([]string{"sidecar", "sidecar-engine", "librocksdb.so"}, strings.TrimPrefix(name, home+"/")) {
			want = 0o755
		}
		if uid != 0 || gid != 0 || mode.Perm() != want || !e.IsDir() && !mode.IsRegular() {
			t.Errorf("%s is %v of %d:%d", name, mode, uid, gid)
		}
		if !info.ModTime().Equal(image.config.Created) {
			t.Errorf("%s is of %v, the image of %v", name, info.ModTime(), image.config.Created)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 50 {
		t.Errorf("only %d files", files)
	}
	for _, name := range append(programs, "librocksdb.so") {
		if _, err := os.Stat(filepath.Join(image.root, home, name)); err != nil {
			t.Error(err)
		}
	}
}

// TestBinaries: for this machine, with every library that they need, and
// without a trace of the machine that built them.
func TestBinaries(t *testing.T) {
	t.Parallel()
	here, err := filepath.Abs(moduleAt)
	if err != nil {
		t.Fatal(err)
	}
	places := []string{here, goEnv(t, "GOROOT"), goEnv(t, "GOPATH"), goEnv(t, "GOCACHE"), goEnv(t, "GOMODCACHE"),
		"/usr/local/go/", "/src/cmd/", "/src/internal/", "/host/go-", "/cache/go-", "/.cache/"}
	for _, name := range programs {
		file := filepath.Join(image.root, home, name)
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, place := range places {
			if i := bytes.Index(data, []byte(place)); i >= 0 {
				t.Errorf("%s names %s: %q", name, place, data[max(0, i-40):min(len(data), i+80)])
			}
		}
		info, err := buildinfo.Read(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"-trimpath": "true", "GOOS": "linux", "GOARCH": image.config.Architecture, "CGO_ENABLED": "0"}
		if name == "sidecar-engine" {
			want["CGO_ENABLED"] = "1"
		}
		for _, s := range info.Settings {
			if w, ok := want[s.Key]; ok && s.Value != w {
				t.Errorf("%s: %s=%s", name, s.Key, s.Value)
			}
			delete(want, s.Key)
		}
		if len(want) > 0 {
			t.Errorf("%s does not say %v", name, want)
		}
	}

	if needed := libraries(t, "sidecar"); len(needed) > 0 {
		t.Errorf("sidecar is not static: %q", needed)
	}
	if needed := libraries(t, "sidecar-engine"); !slices.Contains(needed, "librocksdb.so") {
		t.Errorf("sidecar-engine needs %q, which is not RocksDB", needed)
	}
	for _, name := range []string{"sidecar-engine", "librocksdb.so"} {
		for _, lib := range libraries(t, name) {
			found := false
			for _, pattern := range []string{home, "lib/*", "usr/lib/*", "lib64", "lib", "usr/lib"} {
				matches, err := filepath.Glob(filepath.Join(image.root, pattern, lib))
				if err != nil {
					t.Fatal(err)
				}
				found = found || len(matches) > 0
			}
			if !found {
				t.Errorf("%s needs %s, which is not in the image", name, lib)
			}
		}
	}
}

func libraries(t *testing.T, name string) []string {
	t.Helper()
	f, err := elf.Open(filepath.Join(image.root, home, name))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[image.config.Architecture]; f.Machine != want {
		t.Errorf("%s is for %v, not %v", name, f.Machine, want)
	}
	needed, err := f.ImportedLibraries()
	if err != nil {
		t.Fatal(err)
	}
	return needed
}

// TestSameElsewhere: another directory, no container and the same bytes.
func TestSameElsewhere(t *testing.T) {
	t.Parallel()
	again := filepath.Join(t.TempDir(), "sidecar")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-X main.version="+image.version, "-o", again, "./cmd/sidecar")
	cmd.Dir = moduleAt
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if a, b := sum(t, again), sum(t, filepath.Join(image.root, home, "sidecar")); a != b {
		t.Errorf("%s here, %s in the image", a, b)
	}
}

func sum(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

// TestNotices holds the licences and the SBOM of the image against what the
// binaries in it say of themselves.
func TestNotices(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join(image.root, home, "sbom.cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(data), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	if c := bom.Metadata.Component; c.Name != "streams-sidecar" || c.Version != image.version {
		t.Errorf("of %s %s", c.Name, c.Version)
	}
	components := map[string]cdx.Component{}
	for _, c := range *bom.Components {
		components[c.BOMRef] = c
	}
	needs := map[string][]string{}
	for _, d := range *bom.Dependencies {
		needs[d.Ref] = *d.Dependencies
	}
	for _, name := range append(programs, "librocksdb.so") {
		c, ok := components[name]
		if !ok || c.Hashes == nil || (*c.Hashes)[0].Value != sum(t, filepath.Join(image.root, home, name)) {
			t.Errorf("%s in the SBOM: %+v", name, c)
		}
	}
	all := 0
	check := func(by, ref, name, version string) {
		t.Helper()
		all++
		c, ok := components[ref]
		if !ok || c.Name != name || c.Version != version || c.Licenses == nil || (*c.Licenses)[0].Expression == "" {
			t.Errorf("%s in the SBOM: %+v", ref, c)
		}
		if !slices.Contains(needs[by], ref) {
			t.Errorf("%s does not need %s", by, ref)
		}
		texts, err := filepath.Glob(filepath.Join(image.root, home, "licenses", name+"@"+version, "*"))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(texts, func(p string) bool {
			info, err := os.Stat(p)
			return err == nil && info.Size() > 500 && strings.Contains("LICENSE LICENSE.txt LICENSE.md LICENSE.Apache COPYING", path.Base(p))
		}) {
			t.Errorf("%s has no licence among %q", ref, texts)
		}
	}
	for _, name := range programs {
		info, err := buildinfo.ReadFile(filepath.Join(image.root, home, name))
		if err != nil {
			t.Fatal(err)
		}
		version := strings.TrimPrefix(info.GoVersion, "go")
		check(name, "pkg:golang/stdlib@"+version, "stdlib", version)
		for _, d := range info.Deps {
			check(name, "pkg:golang/"+d.Path+"@"+d.Version, d.Path, d.Version)
		}
		if len(needs[name]) < 1+len(info.Deps) {
			t.Errorf("%s needs %q", name, needs[name])
		}
	}
	for _, c := range []struct{ name, version, ref string }{
		{"rocksdb", "10.10.1", "pkg:maven/org.rocksdb/rocksdbjni@10.10.1?classifier=linux64"},
		{"bzip2", "1.0.8", "pkg:generic/bzip2@1.0.8"},
		{"lz4", "1.10.0", "pkg:github/lz4/lz4@v1.10.0"},
		{"snappy", "1.2.2", "pkg:github/google/snappy@1.2.2"},
		{"zlib", "1.3.2", "pkg:github/madler/zlib@v1.3.2"},
		{"zstd", "1.5.7", "pkg:github/facebook/zstd@v1.5.7"},
	} {
		check("librocksdb.so", c.ref, c.name, c.version)
	}
	if all < 35 || !slices.Contains(needs["sidecar-engine"], "librocksdb.so") {
		t.Errorf("only %d components were there to be checked; the engine needs %q", all, needs["sidecar-engine"])
	}
	if a, b := sum(t, filepath.Join(image.root, home, "LICENSE")), sum(t, filepath.Join(moduleAt, "LICENSE")); a != b {
		t.Error("LICENSE is not this project's")
	}
}

func owner(info fs.FileInfo) (uid, gid uint32) {
	s := info.Sys().(*syscall.Stat_t)
	return s.Uid, s.Gid
}
