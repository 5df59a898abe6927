package mysql_test

import (
	"context"
	"errors"
	"io"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/connectors/mysql"
	"github.com/leatdata/leat/internal/mysqltest"
	"github.com/leatdata/leat/record"
)

// testPassword is what no error, log, patch or URI may show.
const testPassword = "leat-test"

// sourceConfig returns a configuration from the database's URL and options.
func sourceConfig(t testing.TB, url string, options map[string]string) *mysql.SourceConfig {
	t.Helper()
	cfg, ok := mysql.NewSource().(*mysql.SourceConfig)
	if !ok {
		t.Fatal("NewSource returns another type")
	}
	if err := cfg.SetURL(url); err != nil {
		t.Fatal(err)
	}
	if err := connector.SetOptions(cfg, options); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// pass is what one run of a source delivered.
type pass struct {
	rows    map[string][]string
	schemas map[string]*record.Schema
	rejects []record.Reject
	end     record.Position
	marks   []record.Position
}

// readFrom runs a source from a position to its end.
func readFrom(t testing.TB, cfg *mysql.SourceConfig, from record.Position) (*pass, error) {
	t.Helper()
	src, err := cfg.Open(connectortest.Env(t))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := src.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	}()
	start := connector.SourceStart{}
	if !from.Zero() {
		start.From = connector.From{Origin: connector.Resume, Attempt: 1, Position: from}
	}
	if err := src.Start(t.Context(), start); err != nil {
		return nil, err
	}
	p := &pass{rows: map[string][]string{}, schemas: map[string]*record.Schema{}}
	for {
		b, err := src.Read(t.Context(), connector.Limit{Rows: 1000, Bytes: 1 << 20})
		if errors.Is(err, io.EOF) {
			return p, nil
		}
		if err != nil {
			return p, err
		}
		name := b.Schema.Dataset
		p.rows[name] = append(p.rows[name], connectortest.Rows(b)...)
		p.schemas[name] = b.Schema
		p.rejects = append(p.rejects, b.Rejects...)
		if !b.Position.Zero() {
			p.end = b.Position
			p.marks = append(p.marks, b.Position)
		}
	}
}

func readAll(t testing.TB, url string, options map[string]string) *pass {
	t.Helper()
	p, err := readFrom(t, sourceConfig(t, url, options), record.Position{})
	if err != nil {
		t.Fatalf("%v (%s)", err, connector.HintOf(err))
	}
	return p
}

func sameRows(t testing.TB, what string, want, got []string) {
	t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), append([]string{}, got...)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// only returns the rows of the only dataset.
func (p *pass) only(t testing.TB) (rows []string, s *record.Schema) {
	t.Helper()
	if len(p.rows) != 1 {
		t.Fatalf("%d datasets, want one", len(p.rows))
	}
	for name := range p.rows {
		return p.rows[name], p.schemas[name]
	}
	return nil, nil
}

// activity returns a function that counts the connections to a database.
func activity(t testing.TB, f mysqltest.Flavor, of string) func(t testing.TB) int {
	t.Helper()
	u, err := url.Parse(of)
	if err != nil {
		t.Fatal(err)
	}
	db := mysqltest.DB(t, mysqltest.URL(t, f))
	return func(t testing.TB) int {
		t.Helper()
		var n int
		for deadline := time.Now().Add(5 * time.Second); ; { // a connection ends on the server a moment later
			err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM information_schema.PROCESSLIST WHERE DB = ?", u.Path[1:]).Scan(&n)
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 || time.Now().After(deadline) {
				return n
			}
			time.Sleep(time.Millisecond) // another process is waited for
		}
	}
}
