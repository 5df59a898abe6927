package mysql

import (
	"github.com/leatdata/leat/connector"
)

func newSource(cfg *SourceConfig, env connector.Env) connector.Source { panic("x") }
