package formats

import (
	"fmt"
	"strings"

	"github.com/leatdata/leat/format/internal/plain"
	"github.com/leatdata/leat/format/message"
)

// Names returns the formats, the default first.
func Names() []string { return []string{"json", "raw"} }

// Options are what some formats need.
type Options struct{}

// New returns a format; empty is the default.
func New(name string, _ Options) (message.Format, error) {
	switch name {
	case "", "json":
		return plain.NewJSON(), nil
	case "raw":
		return message.Raw(), nil
	}
	return nil, fmt.Errorf("unknown format %q: want one of %s", name, strings.Join(Names(), ", "))
}
