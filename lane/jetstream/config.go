package jetstream

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"strings"

	"github.com/leatdata/leat/connector"
)

// Config says where lanes are. Exactly one of Dir and URL is set.
type Config struct {
	// Dir is the folder of the server inside of the process. Each pipeline has a folder in it, and one process at a time.
	Dir string
	// URL is that of an external server, or several with commas between: nats://host:4222, tls://…. It may carry a user and a password.
	URL connector.Secret
	// Credentials is the path of a .creds file for it; empty: none.
	Credentials string
	// Replicas of the stream, where this program creates it in a cluster; 0: 1.
	Replicas int
	Log      *slog.Logger // nil: silent
}

func (c Config) log() *slog.Logger {
	if c.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return c.Log
}

func (c Config) validate(pipeline string) error {
	var err error
	switch {
	case (c.Dir == "") == (c.URL.Reveal() == ""):
		err = errors.New("either a folder or the URL of a NATS server is needed, and not both")
	case !nameForm.MatchString(pipeline):
		err = fmt.Errorf("%q is no name of a pipeline: up to 200 of A-Z a-z 0-9 . - _, beginning with a letter or digit", pipeline)
	case c.URL.Reveal() == "":
	default:
		for u := range strings.SplitSeq(c.URL.Reveal(), ",") {
			if _, perr := url.Parse(strings.TrimSpace(u)); perr != nil {
				err = errors.New("the URL of the NATS server can't be read: nats://host:4222 is its form")
			}
		}
	}
	if err != nil {
		return &connector.Error{Class: connector.ClassConfig, Code: "lanes.config", Doing: "opening the lanes of " + pipeline, Err: err}
	}
	return nil
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$`)

// token is the pipeline's name in the names of streams, subjects and keys, which have no dots of their own.
func token(pipeline string) string { return strings.ReplaceAll(pipeline, ".", "=") }

// Names of what a pipeline has in JetStream.
const bucket = "leat_lanes"

func streamName(pipeline string) string { return "leat_lanes_" + token(pipeline) }

func subject(pipeline string) string { return "leat.lanes." + token(pipeline) }
