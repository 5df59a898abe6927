package mysql_test

import (
	"strings"
	"testing"

	"github.com/leatdata/leat/internal/mysqltest"
	"github.com/leatdata/leat/record"
)

// Every operation, in the order of the commits, each transaction with its own position.
// clauses S7, S28; cases C055.
func TestStream(t *testing.T) {
	followBoth(t, func(t *testing.T, f mysqltest.Flavor) {
		t.Helper()
		w := newFollower(t, mysqltest.Database(t, f), nil, `CREATE TABLE a (id int PRIMARY KEY, n int, doc text)`,
			`CREATE TABLE b (k varchar(20) PRIMARY KEY, v decimal(6,2))`, `INSERT INTO a VALUES (1, 1, 'x')`)
		g := w.start(t, record.Position{}, nil)
		w.do(t, `BEGIN`, `INSERT INTO a VALUES (2, 2, NULL)`, `INSERT INTO b VALUES ('x', 1.5), ('y', -2)`, `COMMIT`,
			`UPDATE a SET n = 5 WHERE id = 1`, `UPDATE a SET id = 1001 WHERE id = 2`, `DELETE FROM b WHERE k = 'x'`,
			`BEGIN`, `INSERT INTO a VALUES (7, 7, 'never')`, `ROLLBACK`, `TRUNCATE TABLE b`, `INSERT INTO b VALUES ('z', 3)`)
		want := []string{
			"a insert id=2 n=2 doc=null", "b insert k=x v=1.50", "b insert k=y v=-2.00", "a update id=1 n=5 doc=x was id=1 n=1 doc=x",
			"a update id=1001 n=2 doc=null was id=2 n=2", "b delete k=x v=1.50", "b truncate", "b insert k=z v=3.00",
		}
		got := g.until(t, len(want))
		for _, of := range []string{"a ", "b "} { // of each dataset in order
			sameRows(t, "changes of "+of, only(want, of), only(got, of))
		}
		g.quiet(t)
	})
}

func only(lines []string, prefix string) (out []string) {
	for _, l := range lines {
		if strings.HasPrefix(l, prefix) {
			out = append(out, l)
		}
	}
	return out
}
