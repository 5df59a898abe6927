package mysql_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/leatdata/leat/internal/mysqltest"
	"github.com/leatdata/leat/record"
)

// Dates that no calendar has are text, NULL, or set aside with their row: as the user says, and never another date.
// case C013.
func TestZeroDates(t *testing.T) {
	for _, f := range mysqltest.Flavors() {
		t.Run(string(f), func(t *testing.T) {
			url := mysqltest.Database(t, f)
			mysqltest.Exec(t, url,
				"CREATE TABLE z (id int PRIMARY KEY, d date NOT NULL, dt datetime(3) NOT NULL, ts timestamp NOT NULL)",
				`SET time_zone = '+00:00', sql_mode = 'ALLOW_INVALID_DATES'; INSERT INTO z VALUES
				(1, '0000-00-00', '0000-00-00 00:00:00', '0000-00-00 00:00:00'),
				(2, '2023-05-00', '2023-05-00 10:00:00.25', '1970-01-01 00:00:01'),
				(3, '2023-02-31', '2023-01-01', '2023-01-01'), (4, '2023-02-28', '2023-01-01', '2023-01-01')`)
			good := `{"id":4,"d":"2023-02-28","dt":"2023-01-01T00:00:00","ts":"2023-01-01T00:00:00Z"}`

			p := readAll(t, url, map[string]string{"table": "z"})
			rows, _ := p.only(t)
			sameRows(t, "zero_dates=fail", []string{good}, rows)
			var values []string
			for _, r := range p.rejects {
				values = append(values, fmt.Sprintf("%s %s=%s", r.Key, r.Column, r.Value))
				var raw map[string]any
				if err := json.Unmarshal(r.Raw, &raw); err != nil || raw[r.Column] != r.Value {
					t.Errorf("the original row is %s", r.Raw)
				}
				if !strings.Contains(r.Message, "zero_dates=null") {
					t.Errorf("no hint: %s", r.Message)
				}
			}
			sameRows(t, "set aside", []string{`{"id":1} d=0000-00-00`, `{"id":2} d=2023-05-00`, `{"id":3} d=2023-02-31`}, values)

			rows, schema := readAll(t, url, map[string]string{"table": "z", "zero_dates": "null"}).only(t)
			sameRows(t, "zero_dates=null", []string{
				`{"id":1,"d":null,"dt":null,"ts":null}`, `{"id":2,"d":null,"dt":null,"ts":"1970-01-01T00:00:01Z"}`,
				`{"id":3,"d":null,"dt":"2023-01-01T00:00:00","ts":"2023-01-01T00:00:00Z"}`, good,
			}, rows)
			if !schema.Columns.Field(1).Nullable {
				t.Error("the column may be NULL now")
			}

			rows, _ = readAll(t, url, map[string]string{"table": "z", "zero_dates": "text"}).only(t)
			sameRows(t, "zero_dates=text", []string{
				`{"id":1,"d":"0000-00-00","dt":"0000-00-00 00:00:00.000","ts":"0000-00-00 00:00:00"}`,
				`{"id":2,"d":"2023-05-00","dt":"2023-05-00 10:00:00.250","ts":"1970-01-01 00:00:01"}`,
				`{"id":3,"d":"2023-02-31","dt":"2023-01-01 00:00:00.000","ts":"2023-01-01 00:00:00"}`,
				`{"id":4,"d":"2023-02-28","dt":"2023-01-01 00:00:00.000","ts":"2023-01-01 00:00:00"}`,
			}, rows)

			rows, _ = readAll(t, url, map[string]string{"query": "SELECT d, id FROM z", "key": "d", "types": "d:text", "chunk_bytes": "1"}).only(t)
			sameRows(t, "a key of such dates", []string{
				`{"d":"0000-00-00","id":1}`, `{"d":"2023-02-28","id":4}`, `{"d":"2023-02-31","id":3}`, `{"d":"2023-05-00","id":2}`,
			}, rows)
		})
	}
}

// A number is a boolean only on request, and then nothing else.
// case C007.
func TestBooleans(t *testing.T) {
	for _, f := range mysqltest.Flavors() {
		t.Run(string(f), func(t *testing.T) {
			url := mysqltest.Database(t, f)
			mysqltest.Exec(t, url, "CREATE TABLE flags (id int PRIMARY KEY, a tinyint(1), b bit(1))",
				"INSERT INTO flags VALUES (1, 0, b'1'), (2, 1, b'0'), (3, NULL, NULL), (4, 2, b'0'), (5, -1, b'1')")
			p := readAll(t, url, map[string]string{"table": "flags", "types": "a:bool,b:bool"})
			rows, _ := p.only(t)
			sameRows(t, "booleans", []string{`{"id":1,"a":false,"b":true}`, `{"id":2,"a":true,"b":false}`, `{"id":3,"a":null,"b":null}`}, rows)
			if len(p.rejects) != 2 || p.rejects[0].Value != "2" || p.rejects[1].Value != "-1" {
				t.Errorf("set aside: %v", p.rejects)
			}
		})
	}
}

// Text of every character set comes out as UTF-8, the same as the server itself makes of it.
// case C018.
func TestCharsets(t *testing.T) {
	for _, f := range mysqltest.Flavors() {
		t.Run(string(f), func(t *testing.T) {
			url := mysqltest.Database(t, f)
			db := mysqltest.DB(t, url)
			names, err := db.QueryContext(t.Context(), "SELECT CHARACTER_SET_NAME FROM information_schema.CHARACTER_SETS WHERE CHARACTER_SET_NAME <> 'binary'")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = names.Close() }()
			for names.Next() {
				var name string
				if err := names.Scan(&name); err != nil {
					t.Fatal(err)
				}
				table := "c_" + name
				// Whatever the character set has of this stays; the rest becomes a question mark on the way in.
				mysqltest.Exec(t, url, fmt.Sprintf("CREATE TABLE %s (id int PRIMARY KEY, v text) CHARACTER SET %s", table, name),
					fmt.Sprintf(`SET NAMES utf8mb4, sql_mode = ''; INSERT INTO %s (id, v) VALUES (1, 'Zoë'), (2, '测试'), (3, 'ß€'), (4, '😀'), (5, 'ąćž'), (6, 'привет'),
					(7, 'שלום'), (8, 'สวัสดี'), (9, 'こんにちは ｱｲｳ'), (10, '안녕'), (11, 'Αθήνα'), (12, 'გამარჯობა'), (13, 'a\\b~|{}'), (14, '')`, table))
				want, err := serverText(t, db, table)
				if err != nil {
					t.Fatal(err)
				}
				p := readAll(t, url, map[string]string{"table": table, "columns": "id,v"})
				rows, _ := p.only(t)
				sameRows(t, name, want, rows)
				rows, _ = readAll(t, url, map[string]string{"query": "SELECT id, v FROM " + table, "key": "id"}).only(t)
				sameRows(t, name+" by a query", want, rows)
				if len(p.rejects) > 0 {
					t.Errorf("%s: set aside: %v", name, p.rejects)
				}
			}
			if err := names.Err(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// serverText is what the server makes of the texts of a table.
func serverText(t testing.TB, db *sql.DB, table string) (rows []string, err error) {
	t.Helper()
	r, err := db.QueryContext(t.Context(), "SELECT id, CONVERT(v USING utf8mb4) FROM "+table+" ORDER BY id")
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	for r.Next() {
		var id int
		var v string
		if err := r.Scan(&id, &v); err != nil {
			return nil, err
		}
		rows = append(rows, fmt.Sprintf(`{"id":%d,"v":%s}`, id, record.AppendJSONString(nil, v)))
	}
	return rows, r.Err()
}
