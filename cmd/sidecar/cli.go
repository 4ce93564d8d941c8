package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/alecthomas/kong"

	"streams-sidecar/internal/report"
	"streams-sidecar/internal/volume"
)

// Exit codes beside those of package report.
const (
	exitFailed = 1
	exitUsage  = 64
)

// defaultStateDir is where the sidecar looks if nothing says otherwise.
const defaultStateDir = "/var/lib/kafka-streams"

// cli is the command line. Every flag has an environment variable SIDECAR_….
type cli struct {
	Status  statusCmd  `cmd:"" help:"Show what is in a state directory: the table a person wants."`
	Verify  verifyCmd  `cmd:"" help:"Judge every store: findings, verdicts and an exit code."`
	Inspect inspectCmd `cmd:"" help:"Show one store, task or file in detail."`
	Run     runCmd     `cmd:"" help:"Watch, export metrics, and answer the preStop hook, until told to stop."`
	Version versionCmd `cmd:"" help:"Show the version."`
}

// stateDirs are the directories that a command looks at.
type stateDirs struct {
	StateDir pathList `name:"state-dir" env:"SIDECAR_STATE_DIR" placeholder:"DIR" help:"The application's state.dir; may be given several times. Without it $$STATE_DIR, else /var/lib/kafka-streams."`
}

// pathList takes paths as they are: a comma, a backslash or bytes that are not
// UTF-8 are part of a name.
type pathList []string

// Decode implements kong.MapperValue for one occurrence of the flag.
func (p *pathList) Decode(ctx *kong.DecodeContext) error {
	t, err := ctx.Scan.PopValue("path")
	if err != nil {
		return err
	}
	*p = append(*p, t.String())
	return nil
}

// span is a duration that may also be given as a plain number of seconds, as pod
// specs do.
type span time.Duration

// Decode implements kong.MapperValue.
func (d *span) Decode(ctx *kong.DecodeContext) error {
	t, err := ctx.Scan.PopValue("time")
	if err != nil {
		return err
	}
	if n, err := strconv.ParseInt(t.String(), 10, 32); err == nil {
		*d = span(time.Duration(n) * time.Second)
		return nil
	}
	v, err := time.ParseDuration(t.String())
	if err != nil {
		return fmt.Errorf("%q is neither seconds nor a time like 60s", t.String())
	}
	*d = span(v)
	return nil
}

func (s *stateDirs) paths() []string {
	var given []string
	for _, d := range s.StateDir {
		// An empty variable is one that is not set; the same path twice is once.
		if d != "" && !slices.Contains(given, d) {
			given = append(given, d)
		}
	}
	if len(given) > 0 {
		return given
	}
	if d := os.Getenv("STATE_DIR"); d != "" {
		return []string{d}
	}
	return []string{defaultStateDir}
}

// output is the form of what a command prints.
type output struct {
	Output string `enum:"text,json" default:"text" env:"SIDECAR_OUTPUT" help:"text for people, json for machines (docs/json.md)."`
}

// logging is how the agent writes its log, to stderr.
type logging struct {
	LogLevel  slog.Level `default:"info" env:"SIDECAR_LOG_LEVEL" help:"debug, info, warn or error."`
	LogFormat string     `enum:"text,json" default:"text" env:"SIDECAR_LOG_FORMAT" help:"text or json."`
}

func (l *logging) logger(w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: l.LogLevel}
	if l.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// streams are what a command reads from and writes to.
type streams struct {
	ctx            context.Context
	stdout, stderr io.Writer
}

// exitCode ends a command with a code and no message.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// usageError is a mistake in the call that only the command itself can see.
type usageError string

func (e usageError) Error() string { return string(e) }

// execute runs one command line and gives its exit code.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var c cli
	exited := -1
	parser, err := kong.New(&c,
		kong.Name("sidecar"),
		kong.Description("Watches the RocksDB state of Kafka Streams from outside, and holds a stop until it is safe."),
		kong.UsageOnError(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { exited = code }), // --help
	)
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "sidecar: %v\n", err)
		return exitFailed
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	kctx, err := parser.Parse(args)
	if exited >= 0 {
		return exited
	}
	if err == nil {
		err = kctx.Run(&streams{ctx, stdout, stderr})
	} else {
		err = usageError(err.Error())
	}
	return exitOf(err, stderr)
}

func exitOf(err error, stderr io.Writer) int {
	if err == nil {
		return 0
	}
	if code, ok := errors.AsType[exitCode](err); ok {
		return int(code)
	}
	if _, ok := errors.AsType[usageError](err); ok {
		_, _ = fmt.Fprintf(stderr, "sidecar: %v (see sidecar --help)\n", err)
		return exitUsage
	}
	ve, ok := errors.AsType[*volume.Error](err)
	if !ok {
		_, _ = fmt.Fprintf(stderr, "sidecar: %v\n", err)
		return exitFailed
	}
	hint := ""
	if h := ve.Class.Hint(); h != "" {
		hint = " (" + h + ")"
	}
	_, _ = fmt.Fprintf(stderr, "sidecar: %v%s\n", err, hint)
	return report.ExitUnreadable
}
