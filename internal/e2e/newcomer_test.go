package e2e_test

import (
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leatdata/leat/internal/pgtest"
)

// A newcomer: a server as it comes (wal_level=replica, no publication) and a role that may do nothing. leat check prints everything that must
// change, at once; after doing exactly that, and nothing else, leat sync works.
//
// case C049.
func TestNewcomersPath(t *testing.T) {
	server := pgtest.Server(t)
	admin := pgtest.Conn(t, server.URL())
	for _, sql := range []string{
		`create role reader login`, `revoke all on schema public from public`,
		`create table orders (id int primary key, note text)`, `create table events (at timestamptz, what text)`,
		`insert into orders select i, 'note ' || i from generate_series(1, 1000) i`, `insert into events values (now(), 'began')`,
	} {
		execute(t, admin, sql)
	}
	target, state := "sqlite:"+filepath.Join(t.TempDir(), "shop.db"), filepath.Join(t.TempDir(), "state")
	args := []string{server.As("reader", "leat"), target, "--tables", "public.*", "--state", state, "--name", "newcomer"}
	fixes := failedProbes(t, args)
	t.Logf("%d things to do:\n%s", len(fixes), strings.Join(fixes, "\n"))
	if len(fixes) < 4 {
		t.Errorf("only %d things to do", len(fixes))
	}
	for _, fix := range fixes {
		for sql := range strings.SplitSeq(fix, ";") {
			if sql = strings.TrimSpace(sql); sql != "" {
				execute(t, admin, sql)
			}
		}
	}
	server.Restart() // what the fix of wal_level says
	if left := failedProbes(t, args); len(left) > 0 {
		t.Fatalf("after that it still asks for\n%s", strings.Join(left, "\n"))
	}
	bin := buildLeat(t)
	run(t, bin, append(append([]string{"sync"}, args...), "--once")...)
	admin = pgtest.Conn(t, server.URL())
	execute(t, admin, `update orders set note = 'changed' where id = 7; delete from events; insert into orders values (1001, 'new')`)
	run(t, bin, append(append([]string{"sync"}, args...), "--once")...)
	lines := jsonOf(t, bin, target+"?table=orders")
	if n := len(lines); n != 1002 || !strings.Contains(strings.Join(lines, ""), `{"id":7,"note":"changed"}`) { // a last, empty line
		t.Errorf("%d lines, the changed one among them: %v", n, strings.Contains(strings.Join(lines, ""), "changed"))
	}
}

// failedProbes is what leat check has against a sync: the fixes, in order.
func failedProbes(t *testing.T, args []string) []string {
	t.Helper()
	out, err := exec.Command(buildLeat(t), append(append([]string{"check"}, args...), "--sync", "--json")...).Output()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	var report struct {
		Probes []struct {
			Status string `json:"status"`
			Fix    string `json:"fix"`
		} `json:"probes"`
	}
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("leat check: %v\n%s", err, out)
	}
	var fixes []string
	for _, p := range report.Probes {
		if p.Status == "fail" {
			fixes = append(fixes, p.Fix)
		}
	}
	return fixes
}
