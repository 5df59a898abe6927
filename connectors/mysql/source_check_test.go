package mysql_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/connectors/mysql"
	"github.com/leatdata/leat/internal/mysqltest"
)

// check runs the probes and returns those of a status.
func check(t testing.TB, cfg *mysql.SourceConfig, status connector.ProbeStatus) map[string]connector.Probe {
	t.Helper()
	src, err := cfg.Open(connectortest.Env(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := src.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
	}()
	c, ok := connector.As[connector.Checker](src)
	if !ok {
		t.Fatal("no checker")
	}
	probes, err := c.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]connector.Probe{}
	for _, p := range probes {
		if p.Status == status {
			out[p.Name] = p
		}
		if (p.Status == connector.Pass) != (p.Fix == "") {
			t.Errorf("%s (%s) has the fix %q", p.Name, p.Status, p.Fix)
		}
	}
	return out
}

// Each thing that is missing is named, with the statement that mends it.
// clause S23.
func TestCheck(t *testing.T) {
	for _, f := range mysqltest.Flavors() {
		t.Run(string(f), func(t *testing.T) {
			s := mysqltest.Server(t, f, "binlog_row_image=MINIMAL", "binlog_format=MIXED", "binlog_expire_logs_seconds=3600")
			address := s.Database()
			u, err := url.Parse(address)
			if err != nil {
				t.Fatal(err)
			}
			mysqltest.Exec(t, address, "CREATE TABLE orders (id int PRIMARY KEY)", "CREATE TABLE loose (id int)",
				"CREATE TABLE old (id int PRIMARY KEY) ENGINE=MyISAM",
				"CREATE USER reader IDENTIFIED BY 'leat-test'", "GRANT INSERT ON "+u.Path[1:]+".* TO reader")
			reader := func() *mysql.SourceConfig {
				return sourceConfig(t, s.As("reader", testPassword, u.Path[1:]), map[string]string{"tables": "*", "follow": "true", "server_id": "4711"})
			}
			for range 3 { // a privilege lets the next probe see more
				failed := check(t, reader(), connector.Fail)
				if len(failed) == 0 {
					break
				}
				for _, p := range failed {
					for fix := range strings.SplitSeq(p.Fix, "; ") {
						if strings.HasPrefix(fix, "GRANT ") {
							mysqltest.Exec(t, address, fix)
						}
					}
				}
			}
			failed := check(t, reader(), connector.Fail)
			if _, ok := failed["binlog_format"]; !ok || len(failed) != 1 {
				t.Errorf("left: %v", failed)
			}
			warned := check(t, reader(), connector.Warn)
			for _, name := range []string{"binlog_row_image", "retention", "engines", "keys"} {
				if warned[name].Fix == "" {
					t.Errorf("no warning %s: %v", name, warned)
				}
			}
			for _, p := range []connector.Probe{failed["binlog_format"], warned["binlog_row_image"], warned["retention"]} {
				statement, _, _ := strings.Cut(p.Fix, "; ")
				statement, _, _ = strings.Cut(statement, ", and in")
				mysqltest.Exec(t, address, statement)
			}
			if failed := check(t, reader(), connector.Fail); len(failed) > 0 {
				t.Errorf("left: %v", failed)
			}
			for _, name := range []string{"binlog_row_image", "retention"} {
				if p, ok := check(t, reader(), connector.Warn)[name]; ok {
					t.Errorf("the fix did not help: %v", p)
				}
			}
		})
	}
}
