//go:build image

package image

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"streams-sidecar/internal/report"
	"streams-sidecar/test/fixture"
)

const stateDir = "/var/lib/kafka-streams"

// jail mounts the state directory into the image's root, makes the root
// read-only, checks that it is, and becomes the image's user without any
// capability or a way to gain one. $1 root, $2 state directory, $3 its place,
// $4 user, then the command.
const jail = `
mount --make-rprivate /
mount --bind "$1" "$1"
mount --bind "$2" "$1$3"
mount --rbind /proc "$1/proc"
mount -o remount,bind,ro "$1"
if touch "$1/probe" 2>/dev/null; then
	echo "the root can be written" >&2
	exit 99
fi
root=$1 user=$4
shift 4
exec setpriv --no-new-privs --bounding-set=-all,+setuid,+setgid,+sys_chroot chroot --userspec="$user" --groups= "$root" "$@"
`

// command is the image's entry point with these arguments, beside a copy of a
// stored state directory that belongs to the image's user.
func command(t *testing.T, version, name string, args ...string) *exec.Cmd {
	t.Helper()
	uid, gid, ok := user()
	if !ok {
		t.Fatalf("user %q", image.config.Config.User)
	}
	state := fixture.Unpack(t, version, name)
	err := filepath.WalkDir(state, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(p, uid, gid)
	})
	if err != nil {
		t.Fatal(err)
	}
	// As a container runtime does before it starts anything.
	for _, dir := range []string{stateDir, "/proc"} {
		if err := os.MkdirAll(filepath.Join(image.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	all := append([]string{"--mount", "sh", "-euc", jail, "sh", image.root, state, stateDir, image.config.Config.User},
		image.config.Config.Entrypoint...)
	cmd := exec.CommandContext(t.Context(), "unshare", append(all, args...)...)
	cmd.Env = image.config.Config.Env
	return cmd
}

// output runs it to its end.
func output(t *testing.T, cmd *exec.Cmd) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func TestVersion(t *testing.T) {
	t.Parallel()
	out, errs, code := output(t, command(t, "4.4.0", "closed-clean", "version"))
	want := fmt.Sprintf("streams-sidecar %s (", image.version)
	if code != 0 || errs != "" || !strings.HasPrefix(out, want) || !strings.HasSuffix(out, "sidecar-engine has RocksDB 10.10.1\n") {
		t.Errorf("code %d: %s%s", code, out, errs)
	}
}

// TestStatusWithEngine: RocksDB opens every store of five versions of Kafka
// Streams, and says what the files say.
func TestStatusWithEngine(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2.8.2", "3.9.1", "4.2.2", "4.3.1", "4.4.0"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			out, errs, code := output(t, command(t, version, "closed-clean", "status", "--with-engine", "--output=json"))
			if code != 0 || errs != "" {
				t.Fatalf("code %d: %s%s", code, errs, out)
			}
			var doc report.Document
			d := json.NewDecoder(strings.NewReader(out))
			d.DisallowUnknownFields()
			if err := d.Decode(&doc); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if doc.Engine == nil || doc.Engine.RocksDB != "10.10.1" || doc.Engine.Error != "" || doc.StateDirs[0].Path != stateDir {
				t.Fatalf("%+v", doc.Engine)
			}
			asked := 0
			for _, task := range doc.StateDirs[0].Applications[0].Tasks {
				for _, s := range task.Stores {
					if s.RocksDB == nil || len(s.RocksDB.Differences)+len(s.RocksDB.NotAsked) > 0 {
						t.Errorf("%s %s: %+v", task.ID, s.Name, s.RocksDB)
						continue
					}
					asked += s.RocksDB.Asked
				}
			}
			if asked < 5 {
				t.Errorf("RocksDB was asked about %d databases", asked)
			}
		})
	}
}

// TestAgent: the agent starts, is healthy, exports what it sees and what RocksDB
// says of it, and ends.
func TestAgent(t *testing.T) {
	t.Parallel()
	cmd := command(t, "4.4.0", "closed-clean", "run",
		"--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--hook-listen=127.0.0.1:0")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	urls := map[string]string{}
	for lines := bufio.NewScanner(out); len(urls) < 3 && lines.Scan(); {
		if f := strings.Fields(lines.Text()); len(f) >= 2 && strings.HasPrefix(f[1], "http://") {
			urls[f[0]] = f[1]
		}
	}
	if len(urls) < 3 {
		_ = cmd.Wait()
		t.Fatalf("%v: %s", urls, errs.String())
	}
	hook := strings.TrimSuffix(urls["hook"], "/prestop")
	eventually(t, hook+"/startupz")
	eventually(t, hook+"/livez")
	eventually(t, urls["metrics"], `kstreams_sidecar_build_info{`, `version="`+image.version+`"`, `kstreams_store_up{`,
		`kstreams_sidecar_engine_info{rocksdb_version="10.10.1"} 1`, "kstreams_sidecar_engine_up 1", "rocksdb_estimate_num_keys{")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, out); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, errs.String())
	}
}

// eventually asks until the answer is 200 and holds all of that.
func eventually(t *testing.T, url string, want ...string) {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		resp, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		missing := slices.DeleteFunc(slices.Clone(want), func(w string) bool { return bytes.Contains(body, []byte(w)) })
		if resp.StatusCode == http.StatusOK && len(missing) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %s without %q\n%s", url, resp.Status, missing, body)
		}
	}
}
