package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/pflag"

	"github.com/leatdata/leat/config"
	"github.com/leatdata/leat/connector"
)

// followFlags are the flags of commands that run a pipeline whose source is followed.
type followFlags struct {
	snapshot   string
	once       bool
	resnapshot []string
}

func (f *followFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.snapshot, "snapshot", "",
		"first: copy what is there while changes are followed; none: only changes from now on; only: copy, and end (default first)")
	fs.BoolVar(&f.once, "once", false, "end where the source's changes end now; it ends with 0 only if it came that far")
	fs.StringArrayVar(&f.resnapshot, "resnapshot", nil, "DATASET: copy it once more while its changes are followed; may be repeated")
}

// apply changes a pipeline as the flags say.
func (f *followFlags) apply(p *config.Pipeline) error {
	given := map[string]bool{"--snapshot": f.snapshot != "", "--once": f.once, "--resnapshot": len(f.resnapshot) > 0}
	for _, name := range []string{"--snapshot", "--once", "--resnapshot"} {
		if given[name] && !follows(p) {
			return &usageError{
				err:  fmt.Errorf("%s: %s is not followed, it is read to its end", name, p.Source.Connector),
				hint: followHint(p.Source),
			}
		}
	}
	if f.snapshot != "" {
		if _, err := config.ParseSnapshot(f.snapshot); err != nil {
			return usagef("--snapshot: %w", err)
		}
		p.Snapshot = f.snapshot
	}
	p.Once = p.Once || f.once
	return nil
}

func followHint(src config.Source) string {
	if hasOption(src.Config, followOption) {
		return "set the source's option follow: true"
	}
	return "leave it out"
}

// The options that a followed source and the file-like sinks of its changes have.
const (
	followOption = "follow"
	logOption    = "log"
)

// follows reports whether the source never ends by itself: it sends changes, or what is added to a log.
func follows(p *config.Pipeline) bool {
	c, err := p.Source.Config.Contract()
	return err == nil && !c.Bounded
}

// ends reports whether a run of a followed source ends by itself.
func ends(p *config.Pipeline) bool { return p.Once || p.Snapshot == config.SnapshotOnly }

// followDefaults fills in what goes without saying where a source is followed: files become logs of changes, and tables are written
// by key where there is more than rows to add.
func followDefaults(p *config.Pipeline) error {
	source, err := p.Source.Config.Contract()
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	for i := range p.Sinks {
		sink := &p.Sinks[i]
		if hasOption(sink.Config, logOption) {
			if err := connector.SetOption(sink.Config, logOption, true); err != nil {
				return &usageError{err: fmt.Errorf("sink %q: %w", sink.Name, err)}
			}
		}
		c, err := sink.Config.Contract()
		if err != nil {
			return fmt.Errorf("sink %q: %w", sink.Name, err)
		}
		if sink.Mode == nil && source.Input > connector.AppendOnly && slices.Contains(c.Modes, connector.Upsert) {
			m := connector.Upsert
			sink.Mode = &m
		}
	}
	return nil
}
