//go:build !cgo || !duckdb_arrow

package duckdb

import (
	"errors"

	"github.com/leatdata/leat/connector"
)

func notBuiltIn() error {
	return &connector.Error{
		Class: connector.ClassConfig, Code: "duckdb.not_built_in", Doing: "opening a DuckDB file",
		Err:  errors.New("this build of leat has no DuckDB: it was built without cgo"),
		Hint: "build with CGO_ENABLED=1 and -tags duckdb_arrow, as make build does",
	}
}

// Open implements connector.SourceConfig.
func (*SourceConfig) Open(connector.Env) (connector.Source, error) { return nil, notBuiltIn() }

// Open implements connector.SinkConfig.
func (*SinkConfig) Open(connector.Env) (connector.Sink, error) { return nil, notBuiltIn() }
