package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leatdata/leat/config"
	"github.com/leatdata/leat/connector"
)

// App is what a program hands to the command line. Every field but Drain is set.
type App struct {
	Registry *connector.Registry
	Stdin    io.Reader
	Stdout   io.Writer
	Stderr   io.Writer
	Lookup   config.Lookup // environment and files, also for ${env:NAME} and ${file:PATH} in arguments
	Now      func() time.Time
	Drain    <-chan struct{} // closed: a run ends in good order, every other command at once
}

// Run runs one command and returns the exit code. Everything was said when it returns.
func (a *App) Run(ctx context.Context, args []string) int {
	s := &session{App: *a, redact: &redactor{}}
	s.stderr = s.redact.writer(a.Stderr)
	root := s.root()
	root.SetArgs(args)
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(s.stderr)
	err := root.ExecuteContext(ctx)
	var o outcomeError
	if err != nil && !errors.As(err, &o) {
		s.sayError(err)
	}
	return exitCode(err)
}

// sayError says what went wrong: to a person, or as log records where logs are JSON.
func (s *session) sayError(err error) {
	if s.logFormat != "json" {
		s.say(errorText(err))
		return
	}
	log := slog.New(slog.NewJSONHandler(s.stderr, nil))
	for _, p := range problemsOf(err) {
		log.Error("error", slog.String("error", p.Message), slog.String("code", p.Code), slog.String("hint", p.Hint))
	}
}

// session is one invocation: what its commands share.
type session struct {
	App
	redact *redactor
	stderr io.Writer // redacted

	logLevel  string
	logFormat string
	quiet     bool
	home      string // --state
}

// say writes to standard error. A person who closed it does not want to know.
func (s *session) say(text string) { _, _ = io.WriteString(s.stderr, text) }

// print writes to standard output.
func (s *session) print(format string, args ...any) error {
	if _, err := fmt.Fprintf(s.Stdout, format, args...); err != nil {
		return fmt.Errorf("writing to standard output: %w", err)
	}
	return nil
}

// terminal reports whether standard error is a person's terminal.
func (s *session) terminal() bool { return isTerminal(s.Stderr) }

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && (isatty.IsTerminal(f.Fd()) || isatty.IsCygwinTerminal(f.Fd()))
}

func (s *session) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "leat",
		Short: "leat moves data and keeps it moved",
		Long: `leat moves data: from files, embedded databases and servers, to any number of them, with exact types.
No row is lost, doubled or quietly altered, and a run that was interrupted goes on where it was.

` + exitHelp,
		Example: `  leat copy sales.csv lake.duckdb
  leat copy 'postgres://app@db/shop?table=orders' orders.parquet
  leat sync 'postgres://app@db/shop' sqlite:replica.db
  leat run pipeline.yaml`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return &usageError{err: unknownCommand(args[0]), hint: "leat --help lists the commands"}
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &usageError{err: flagProblem(cmd, err), hint: cmd.CommandPath() + " --help shows its flags"}
	})
	f := root.PersistentFlags()
	f.StringVar(&s.logLevel, "log-level", "", "debug, info, warn or error (default warn on a terminal, else info)")
	f.StringVar(&s.logFormat, "log-format", "text", "text or json")
	f.BoolVarP(&s.quiet, "quiet", "q", false, "no progress and no summary; errors only")
	f.StringVar(&s.home, "state", "",
		"folder for state and set-aside rows (default $LEAT_STATE, else $XDG_STATE_HOME/leat or ~/.local/state/leat)")
	root.AddCommand(
		s.copyCommand(), s.syncCommand(), s.runCommand(), s.checkCommand(), s.previewCommand(), s.discoverCommand(),
		s.connectorsCommand(), s.statusCommand(), s.lanesCommand(), s.pauseCommand(), s.resumeCommand(), s.backfillCommand(),
		s.dlqCommand(), s.stateCommand(), s.dropCommand(),
		s.schemaCommand(), s.versionCommand(),
	)
	for _, c := range root.Commands() {
		c.Flags().SortFlags = false
	}
	return root
}

func unknownCommand(name string) error {
	return connector.UnknownName("command", name, []string{
		"copy", "sync", "run", "check", "preview", "discover", "connectors", "status", "lanes", "pause", "resume", "backfill",
		"dlq", "state", "drop", "schema", "version",
		"completion", "help",
	})
}

// flagProblem names the flag that was probably meant.
func flagProblem(cmd *cobra.Command, err error) error {
	name, ok := strings.CutPrefix(err.Error(), "unknown flag: --")
	if !ok {
		return err
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	return connector.UnknownName("flag", name, known)
}

// argCount makes a check of the number of arguments that shows what belongs there.
func argCount(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= least && len(args) <= most {
			return nil
		}
		return &usageError{
			err:  fmt.Errorf("%s: got %d arguments: want %s", cmd.CommandPath(), len(args), strings.TrimSuffix(cmd.UseLine(), " [flags]")),
			hint: cmd.CommandPath() + " --help shows an example",
		}
	}
}

// logger makes the logger that --log-level and --log-format ask for. Every line is redacted.
func (s *session) logger(w io.Writer) (*slog.Logger, error) {
	level := slog.LevelInfo
	if s.terminal() {
		level = slog.LevelWarn
	}
	if s.quiet {
		level = slog.LevelError
	}
	if s.logLevel != "" {
		if err := level.UnmarshalText([]byte(s.logLevel)); err != nil {
			return nil, usagef("--log-level %q: want debug, info, warn or error", s.logLevel)
		}
	}
	opts := &slog.HandlerOptions{Level: level}
	switch s.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(s.redact.writer(w), opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(s.redact.writer(w), opts)), nil
	}
	return nil, usagef("--log-format %q: want text or json", s.logFormat)
}

func usagef(format string, args ...any) error {
	return &usageError{err: fmt.Errorf(format, args...)}
}

// untilDrain returns a context that ends when the program is asked to end: for commands that have nothing to finish.
func (s *session) untilDrain(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if s.Drain == nil {
		return ctx, cancel
	}
	go func() {
		select {
		case <-s.Drain:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
