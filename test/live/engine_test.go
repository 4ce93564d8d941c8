//go:build streams

package live

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"streams-sidecar/internal/report"
	"streams-sidecar/test/streams"
)

// engine is the program that asks RocksDB itself.
func engine(t *testing.T) string {
	t.Helper()
	program := os.Getenv("SIDECAR_TEST_ENGINE")
	if program == "" {
		t.Fatal("SIDECAR_TEST_ENGINE is not set: scripts/test-streams builds the engine and sets it")
	}
	return program
}

// calls are those by which a process can change a file system or take a lock,
// and those that start processes and open files, without which the others mean
// little.
var calls = []string{
	"open", "openat", "openat2", "creat", "execve", "mkdir", "mkdirat", "mknod", "mknodat", "rmdir", "unlink", "unlinkat",
	"rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat", "truncate", "ftruncate", "fallocate",
	"chmod", "fchmod", "fchmodat", "chown", "fchown", "fchownat", "lchown", "utime", "utimes", "utimensat", "futimesat",
	"setxattr", "fsetxattr", "lsetxattr", "removexattr", "mount", "flock", "fcntl", "fsync", "clone", "clone3", "fork", "vfork",
}

// traced is how a program is run so that the calls of it and its children are
// written to a file. The process is the program's own.
func traced(file string) []string {
	return []string{"strace", "-D", "-f", "--seccomp-bpf", "-qq", "-y", "-e", "signal=none", "-o", file, "-e", "trace=" + strings.Join(calls, ",")}
}

var (
	traceLine = regexp.MustCompile(`^(\d+) +(\w+)\((.*)`)
	born      = regexp.MustCompile(`^(\d+) +(?:<\.\.\. )?v?(?:clone3?|fork)\b.* = (\d+)$`)
	started   = regexp.MustCompile(`^"[^"]*/sidecar-engine"`)
	writes    = regexp.MustCompile(`O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_APPEND`)
	locks     = regexp.MustCompile(`F_(OFD_)?SETLKW?\b`)
)

// expectHarmless reads what strace has seen: below the state directory nothing
// was opened but for reading, created, renamed, deleted or locked, except
// in the sidecar's own folder; and RocksDB has read there.
func (s *sidecar) expectHarmless(dir string) {
	s.t.Helper()
	f, err := os.Open(s.trace)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	own := filepath.Join(dir, ".streams-sidecar")
	engines := map[string]bool{}
	lines, reads, starts := 0, 0, 0
	scan := bufio.NewScanner(f)
	for scan.Scan() {
		line := scan.Text()
		if m := born.FindStringSubmatch(line); m != nil && engines[m[1]] { // a thread of it
			engines[m[2]] = true
		}
		m := traceLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		lines++
		pid, call, args := m[1], m[2], m[3]
		if call == "execve" {
			if started.MatchString(args) {
				engines[pid] = true
				starts++
			}
			continue
		}
		if strings.Contains(args, `.sst"`) && engines[pid] {
			reads++
		}
		if !strings.Contains(strings.ReplaceAll(args, own, ""), dir) {
			continue
		}
		harmless := false
		switch call {
		case "open", "openat", "openat2":
			harmless = !writes.MatchString(args)
		case "fcntl":
			harmless = !locks.MatchString(args)
		case "mkdirat":
			harmless = strings.HasPrefix(args, fmt.Sprintf("%s>, %q", args[:strings.Index(args, "<")]+"<"+dir, filepath.Base(own)))
		case "fsync": // of the directory that has the sidecar's folder
			harmless = strings.Contains(args, "<"+dir+">")
		}
		if !harmless {
			s.t.Errorf("a system call: %s", line)
		}
	}
	if err := scan.Err(); err != nil {
		s.t.Error(err)
	}
	// One engine, which starts itself anew in its bounds.
	if lines < 1000 || starts != 2 || reads < 100 {
		s.t.Errorf("strace has seen %d calls, %d starts of the engine and %d tables that RocksDB opened, so that nothing is proved", lines, starts, reads)
	}
	s.t.Logf("strace has seen %d calls; RocksDB has opened %d tables", lines, reads)
}

// expectQuiet: no line about a finding, and none about RocksDB.
func (s *sidecar) expectQuiet() {
	s.t.Helper()
	for line := range strings.Lines(s.log.String()) {
		if !strings.Contains(line, "msg=advice") && !strings.Contains(line, "code=prestop-unreachable") {
			s.t.Errorf("the log has %s", line)
		}
	}
}

// expectAsked: RocksDB was asked many times, and it agreed with our readers
// each time; what moved too much may be asked another time.
func (s *sidecar) expectAsked() {
	s.t.Helper()
	outcomes := map[string]float64{}
	for _, m := range s.scrape()["kstreams_sidecar_engine_requests_total"].GetMetric() {
		outcomes[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
	}
	s.t.Logf("RocksDB was asked: %v", outcomes)
	if outcomes["answered"] < 30 {
		s.t.Errorf("asked too seldom: %v", outcomes)
	}
	if outcomes["moving"] > outcomes["answered"]/10 {
		s.t.Errorf("asked in vain too often: %v", outcomes)
	}
	for _, never := range []string{"refused", "differed", "hung", "died", "garbage", "set-aside"} {
		if outcomes[never] != 0 {
			s.t.Errorf("%v requests: %s", outcomes[never], never)
		}
	}
	if n := s.value("kstreams_sidecar_engine_restarts_total", nil); n != 0 {
		s.t.Errorf("%v restarts", n)
	}
}

// compareKeys holds RocksDB's figures, which come from a reader, against the
// application's own JMX metrics. The number of keys there is less what is in
// memtables (RocksDB db/internal_stats.cc, HandleEstimateNumKeys: entries and
// table estimates, less two for each deletion), and may differ a little: of more
// than twenty tables an open database estimates from a sample of those that it
// happened to have loaded (db/version_set.cc, GetEstimatedActiveKeys).
func (s *sidecar) compareKeys(app *streams.App, names []string) {
	s.t.Helper()
	flushed := func() map[string]float64 {
		out := map[string]float64{}
		for _, n := range names {
			get := func(property string) float64 { return app.RocksDB(n, property) }
			out[n] = get("estimate-num-keys") - get("num-entries-active-mem-table") - get("num-entries-imm-mem-tables") +
				2*(get("num-deletes-active-mem-table")+get("num-deletes-imm-mem-tables"))
		}
		return out
	}
	about := func(a, b float64) bool { return a >= b*0.9 && a <= b*1.1 }
	s.like("keys of the flushed state, and the application's own JMX", func() map[string]float64 { return s.values("rocksdb_estimate_num_keys", nil) }, flushed, about)
	s.same("bytes of live tables as RocksDB says, and the application's own JMX", s.liveBytes, func() map[string]float64 {
		out := map[string]float64{}
		for _, n := range names {
			out[n] = app.RocksDB(n, "live-sst-files-size")
		}
		return out
	})
}

// liveBytes is RocksDB's property of that name, from the store's own page of
// the API.
func (s *sidecar) liveBytes() map[string]float64 {
	s.t.Helper()
	var doc report.Document
	if err := json.Unmarshal([]byte(s.get(s.admin+"api/v1/state")), &doc); err != nil {
		s.t.Fatal(err)
	}
	out := map[string]float64{}
	a := doc.StateDirs[0].Applications[0]
	for _, task := range a.Tasks {
		for _, st := range task.Stores {
			var d report.StoreDetail
			if err := json.Unmarshal([]byte(s.get(s.admin+"api/v1/stores/"+a.ID+"/"+task.ID+"/"+st.Name)), &d); err != nil {
				s.t.Fatal(err)
			}
			for _, db := range d.Databases {
				if db.RocksDB == nil {
					continue
				}
				for _, f := range db.RocksDB.Families {
					out[st.Name] += float64(f.Properties["live-sst-files-size"])
				}
			}
		}
	}
	return out
}

// pins are the files of the volume that a process of the agent had open at the
// last look, by descriptor and file.
type pins struct {
	open     map[string]bool
	children int // that were looked at
}

// look says so of a file that it finds open at two looks: a reader may have one
// open for an instant, and must not hold it.
func (p *pins) look(s *sidecar, dir string) {
	s.t.Helper()
	before := p.open
	p.open = map[string]bool{}
	children := childrenOf(s.t, s.pid)
	p.children += len(children)
	for _, pid := range append(children, s.pid) {
		fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil {
			s.t.Fatal(err)
		}
		for _, fd := range fds {
			target, err := os.Readlink(fd)
			if err != nil || !strings.HasPrefix(target, dir) {
				continue
			}
			key := fd + " " + target
			p.open[key] = true
			if before[key] && !strings.HasSuffix(target, "/"+filepath.Base(dir)) {
				s.t.Errorf("held open: %s", key)
			}
		}
	}
}

// childrenOf gives the processes that one has started.
func childrenOf(t *testing.T, pid int) (out []int) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // the thread has ended
		}
		for _, word := range strings.Fields(string(text)) {
			n, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, n)
		}
	}
	return out
}
