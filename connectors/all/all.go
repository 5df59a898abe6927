package all

import (
	"errors"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connectors/discard"
	"github.com/leatdata/leat/connectors/duckdb"
	"github.com/leatdata/leat/connectors/file"
	"github.com/leatdata/leat/connectors/kafka"
	"github.com/leatdata/leat/connectors/mysql"
	"github.com/leatdata/leat/connectors/postgres"
	"github.com/leatdata/leat/connectors/sqlite"
)

// All returns a registry of the bundled connectors.
func All() (*connector.Registry, error) {
	reg := &connector.Registry{}
	var errs []error
	for _, d := range []connector.Definition{
		discard.Definition(), duckdb.Definition(), file.Definition(), kafka.Definition(), mysql.Definition(), postgres.Definition(),
		sqlite.Definition(),
	} {
		errs = append(errs, reg.Register(d))
	}
	return reg, errors.Join(errs...)
}
