package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/pflag"

	"github.com/leatdata/leat/config"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/internal/metrics"
	"github.com/leatdata/leat/state"
)

// runFlags are the flags of every command that runs a pipeline.
type runFlags struct {
	restart     bool
	adopt       bool
	commitBytes string
	every       time.Duration
	stallAfter  time.Duration
	json        bool
	metrics     string // address
	follow      followFlags
	everySet    func() bool // --progress-every was given
}

func (f *runFlags) register(fs *pflag.FlagSet) {
	fs.BoolVar(&f.restart, "restart", false, "forget what was saved of an earlier run, and begin anew")
	fs.BoolVar(&f.adopt, "adopt", false, "go on from the saved position although the pipeline was changed")
	fs.StringVar(&f.commitBytes, "commit-bytes", "", "make rows durable after this many bytes, such as 16MB (default 16MiB)")
	fs.DurationVar(&f.every, "progress-every", 5*time.Second,
		"how often progress is logged where there is no terminal; 0: never; a source that is followed: 10s unless given")
	f.everySet = func() bool { return fs.Changed("progress-every") }
	fs.DurationVar(&f.stallAfter, "stalled-after", 30*time.Second, "say that a run is stalled when nothing has moved for so long; 0: never")
	fs.StringVar(&f.metrics, "metrics", "",
		"HOST:PORT to show metrics at while it runs, in the form that Prometheus reads, such as :9464 for this machine alone")
	fs.BoolVar(&f.json, "json", false, "print the summary as JSON on standard output (on standard error where that takes data)")
}

// plan applies the flags to a plan.
func (f *runFlags) plan(p *config.Pipeline) (engine.Plan, error) {
	if err := f.follow.apply(p); err != nil {
		return engine.Plan{}, err
	}
	plan, err := planOf(p)
	if err != nil {
		return plan, err
	}
	plan.Resnapshot = f.follow.resnapshot
	if f.adopt {
		plan.Changed = engine.AdoptChanged
	}
	if f.restart {
		plan.Changed = engine.ResetChanged
	}
	if f.adopt && f.restart {
		return plan, usagef("--adopt goes on and --restart begins anew: want one of them")
	}
	if f.commitBytes != "" {
		n, err := config.ParseSize(f.commitBytes)
		if err != nil {
			return plan, usagef("--commit-bytes %w", err)
		}
		plan.Commit.Bytes = n
	}
	return plan, nil
}

// execute runs a pipeline, shows how it goes, and says how it ended.
func (s *session) execute(ctx context.Context, p *config.Pipeline, f *runFlags) (err error) {
	plan, err := f.plan(p)
	if err != nil {
		return err
	}
	out, shown, err := s.progress(f, follows(p))
	if err != nil {
		return err
	}
	log, err := s.logger(out)
	if err != nil {
		return err
	}
	logTo(shown.shower, log, p.Name)
	store, err := s.openStore(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if f.restart {
		if err := forget(ctx, store, p.Name); err != nil {
			return err
		}
	}
	aside, err := s.letterBox(p, log)
	if err != nil {
		return err
	}
	if shown.follows && s.terminal() && !s.quiet {
		s.say(fmt.Sprintf("leat: following as pipeline %s; leat status %[1]s shows it from elsewhere, ^C stops\n", p.Name))
	}
	ctl := engine.NewControl()
	if f.metrics != "" {
		url, stop, err := metrics.Serve(ctx, f.metrics, p.Name, ctl.Status)
		if err != nil {
			return &usageError{err: err, hint: "--metrics :9464, or another port that is free"}
		}
		defer stop()
		log.Info("metrics", slog.String("url", url))
	}
	released := s.stopOnDrain(ctl)
	stop := s.watch(ctx, ctl, shown)
	sum, runErr := engine.Run(ctx, plan, engine.Deps{
		Store: store, Rejects: aside.rejects(), Log: log, Now: s.Now, Control: ctl, DurableLanes: s.openLanes(p, log),
	})
	var gone map[string]int64
	if runErr == nil && sum.Done {
		gone, runErr = s.prune(ctx, p, sum, plan, log)
	}
	stop()
	released()
	runErr = join(runErr, aside.end(ctx, store, p.Name))
	report := newSummary(sum, runErr, aside.Path())
	report.Deleted = gone
	if shown.follows {
		report = report.follow(sum, ends(p))
	}
	if err := s.report(p, report, f.json, func() { report.log(log) }); err != nil {
		runErr = join(runErr, err)
	}
	return ending(report, runErr)
}

// join keeps a lone error as it is, so that its kind still shows.
func join(a, b error) error {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return errors.Join(a, b)
}

// progress decides how a run is shown, and where log lines go while it is.
func (s *session) progress(f *runFlags, follows bool) (io.Writer, watching, error) {
	w := watching{follows: follows, every: f.every, stallAfter: f.stallAfter, shower: noShower{}}
	if f.every < 0 || f.stallAfter < 0 {
		return nil, w, usagef("--progress-every and --stalled-after: want no negative duration")
	}
	switch {
	case s.quiet || (f.every == 0 && !s.terminal()):
		w.every = time.Hour
	case s.terminal():
		bars := newBarShower(s.Stderr, follows)
		w.every, w.shower = refreshBars, bars
		return bars, w, nil
	case follows:
		every := f.every
		if !f.everySet() {
			every = followEvery
		}
		w.every, w.shower = min(every, time.Second), newFollowLogger(every) // phases are looked at more often
	default:
		w.shower = &logShower{}
	}
	return s.Stderr, w, nil
}

// followEvery is how often progress is logged that goes on for months.
const followEvery = 10 * time.Second

// logTo hands a shower that logs its logger.
func logTo(sh shower, log *slog.Logger, pipeline string) {
	switch l := sh.(type) {
	case *logShower:
		l.log = log
	case *followLogger:
		l.log = log.With(slog.String("pipeline", pipeline))
	}
}

// stopOnDrain stops a run in good order when the program is asked to end. The returned function ends the watch.
func (s *session) stopOnDrain(ctl *engine.Control) func() {
	if s.Drain == nil {
		return func() {}
	}
	over := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-s.Drain:
			if !s.quiet {
				s.say("\nleat: stopping: what was read is being delivered; ^C again ends at once, and loses nothing\n")
			}
			ctl.Stop()
		case <-over:
		}
	}()
	return func() {
		close(over)
		<-ended
	}
}

// forget makes the next run begin anew. Attempts keep growing, so that a late process of the old run stays shut out.
func forget(ctx context.Context, store state.Store, name string) error {
	rec, version, err := store.Load(ctx, name)
	if errors.Is(err, state.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := store.Save(ctx, rec.Reset(), version); err != nil {
		return fmt.Errorf("forgetting the last run of %s: %w", name, err)
	}
	return nil
}

// report says how a run went: JSON on standard output, text on a terminal, else a log record.
func (s *session) report(p *config.Pipeline, sum summary, asJSON bool, log func()) error {
	switch {
	case asJSON && writesStdout(p):
		s.say(sum.json(s.redact))
	case asJSON:
		return s.print("%s", sum.json(s.redact))
	case s.quiet || (sum.State == "failed" && sum.Rows == 0):
	case s.terminal():
		s.say(sum.text())
	default:
		log()
	}
	return nil
}

// ending is what the exit code is made of.
func ending(sum summary, err error) error {
	switch {
	case err != nil:
		return err
	case sum.State == "interrupted":
		return outcomeError{ExitInterrupted}
	case sum.SetAside > 0:
		return outcomeError{ExitSetAside}
	}
	return nil
}
