package event

import (
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

// every has one of each type in types.go.
var every = []Event{
	Started{Version: "1.0", StateDirs: []string{"/v"}},
	Stopping{Reason: "told to"},
	Listening{Name: "metrics", Address: "[::]:9877"},
	Waiting{StateDir: "/v"},
	Scanned{Took: time.Second, Applications: 1, Stores: 2},
	VolumeStuck{Path: "/v", Op: "list", Since: time.Unix(1, 0)},
	VolumeAnswered{Path: "/v", Op: "list", Hung: time.Second},
	WatchingMode{Mode: "poll", Reason: "nfs"},
	EventsLost{},
	ApplicationStarted{Application: "app", StateDir: "/v", PID: 7},
	ApplicationStopped{Application: "app", StateDir: "/v"},
	StoreAppeared{Application: "app", Task: "0_0", Store: "kv"},
	StoreVanished{Application: "app", Task: "0_0", Store: "kv"},
	FindingAppeared{File: "/v/f", Code: "io-error", Severity: "unreadable", Text: "It failed.", Found: "EIO"},
	FindingGone{File: "/v/f", Code: "io-error"},
	PrestopBegan{Trigger: "none", Budget: time.Second, Running: []string{"app"}},
	PrestopEnded{Outcome: "observed", Waited: time.Second, Held: []string{"app"}},
	PrestopProgress{Stores: 3, Flushed: 2, Closed: 1, SSTBytesWritten: 5, Remaining: time.Second},
	TriggerTrouble{Trigger: "http", Attempts: 2, Text: "refused"},
	ShutdownJudged{Application: "app", Outcome: "closed-unclean", Hook: "called", Stores: 3, Missing: 1, Explanation: "killed"},
	EndMissed{Application: "app"},
	JournalTrouble{Text: "no space"},
	EngineReady{RocksDB: "10.10.1"},
	DeepVerified{Path: "/v/kv", Tables: 2, Bytes: 4096, Findings: 1},
	HookUnreachable{Address: "127.0.0.1:9879"},
	Advice{Code: "runs-as-root", Subject: "sidecar", Text: "text"},
	StopDelayed{Limit: time.Second, Held: []string{"app"}},
	ServerTrouble{Listener: "metrics", Kind: "tls", Text: "EOF"},
}

func TestEveryTypeIsInTheTable(t *testing.T) {
	t.Parallel()
	f, err := parser.ParseFile(token.NewFileSet(), "types.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, e := range every {
		known[reflect.TypeOf(e).Name()] = true
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.TypeSpec); ok && !known[s.Name.Name] {
			t.Errorf("%s is not tested", s.Name.Name)
		}
		return true
	})
}

func TestEveryEventMakesAGoodLine(t *testing.T) {
	t.Parallel()
	key := regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	messages := map[string]string{}
	for _, e := range every {
		name, message := reflect.TypeOf(e).Name(), e.Message()
		if message == "" || strings.TrimSpace(message) != message || strings.HasSuffix(message, ".") || strings.Contains(message, "\n") {
			t.Errorf("%s: message %q", name, message)
		}
		if other, ok := messages[message]; ok {
			t.Errorf("%s and %s have the same message", name, other)
		}
		messages[message] = name
		fields := 0
		for _, a := range e.Attrs() {
			// Two of these are slog's own, held_back is Log's.
			if !key.MatchString(a.Key) || strings.Contains(" msg level time held_back ", " "+a.Key+" ") {
				t.Errorf("%s: attribute %q", name, a.Key)
			}
			fields++
			if a.Value.String() == "" {
				t.Errorf("%s: %s is empty", name, a.Key)
			}
		}
		if n := reflect.TypeOf(e).NumField(); fields == 0 && n > 0 {
			t.Errorf("%s tells nothing of its %d fields", name, n)
		}
	}
}

func TestDifferentMattersDoNotHoldEachOtherBack(t *testing.T) {
	t.Parallel()
	out := newLines()
	log := Log(slog.New(out), time.Hour, func() time.Time { return time.Time{} })
	differ := []Event{
		FindingAppeared{File: "/v/f", Code: "a", Found: "1"},
		FindingAppeared{File: "/v/f", Code: "b", Found: "1"},
		FindingAppeared{File: "/v/g", Code: "a", Found: "1"},
		FindingGone{File: "/v/f", Code: "a"},
		ApplicationStarted{Application: "app", StateDir: "/v"},
		ApplicationStarted{Application: "app", StateDir: "/w"},
		ApplicationStopped{Application: "app", StateDir: "/w"},
		VolumeStuck{Path: "/v", Op: "list"},
		VolumeStuck{Path: "/v", Op: "open"},
		VolumeAnswered{Path: "/v", Op: "list"},
		PrestopEnded{Outcome: "observed", Waited: 1},
		PrestopEnded{Outcome: "observed", Waited: 2},
	}
	for _, e := range differ {
		log(e)
	}
	if len(out.all) != len(differ) {
		t.Errorf("%d of %d lines were written: %q", len(out.all), len(differ), out.all)
	}
}

func TestTheSameAgainIsHeldBack(t *testing.T) {
	t.Parallel()
	out := newLines()
	log := Log(slog.New(out), time.Hour, func() time.Time { return time.Time{} })
	for range 3 {
		log(Waiting{StateDir: "/v"})
		log(EventsLost{})
	}
	if len(out.all) != 2 {
		t.Errorf("the same again was written again: %q", out.all)
	}
}

// TestTurnsAreNeverHeldBack: the last line about something that comes and goes
// must be true.
func TestTurnsAreNeverHeldBack(t *testing.T) {
	t.Parallel()
	out := newLines()
	log := Log(slog.New(out), time.Hour, func() time.Time { return time.Time{} })
	turns := []Event{
		ApplicationStarted{Application: "a", StateDir: "/v"}, ApplicationStopped{Application: "a", StateDir: "/v"},
		FindingAppeared{File: "/v/f", Code: "a"}, FindingGone{File: "/v/f", Code: "a"},
	}
	for range 3 {
		for _, e := range turns {
			log(e)
		}
	}
	if len(out.all) != 3*len(turns) {
		t.Errorf("%d of %d lines were written", len(out.all), 3*len(turns))
	}
}

func TestLevelOfAFindingFollowsItsSeverity(t *testing.T) {
	t.Parallel()
	for severity, want := range map[string]slog.Level{
		"info": slog.LevelInfo, "warning": slog.LevelWarn, "unreadable": slog.LevelWarn,
	} {
		if got := (FindingAppeared{Severity: severity}).Level(); got != want {
			t.Errorf("%s has level %v, want %v", severity, got, want)
		}
	}
}
