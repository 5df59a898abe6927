package mysql_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/leatdata/leat/internal/mysqltest"
)

// keyCase is a key with values in the server's order.
type keyCase struct {
	name    string
	columns string // with the PRIMARY KEY
	rows    []string
	only    mysqltest.Flavor
}

func keyCases() []keyCase {
	return []keyCase{
		{"unsigned", "k bigint unsigned PRIMARY KEY", []string{"0", "9223372036854775807", "9223372036854775808", "18446744073709551614", "18446744073709551615"}, ""},
		{"signed", "k bigint PRIMARY KEY", []string{"-9223372036854775808", "-1", "0", "9223372036854775807"}, ""},
		{"decimal", "k decimal(65,30) PRIMARY KEY", []string{"-5.000000000000000000000000000001", "-5", "0.1", "99999999999999999999999999999999999.9"}, ""},
		{"float", "k float PRIMARY KEY", []string{"-1.5", "0.1", "0.3", "1e30"}, ""},
		{"double", "k double PRIMARY KEY", []string{"-1e300", "0.1", "0.3", "0.30000000000000004"}, ""},
		{"binary", "k binary(4) PRIMARY KEY", []string{"X'00'", "X'0001'", "X'80'", "X'ff000000'", "X'ffff'"}, ""},
		{"varbinary", "k varbinary(8) PRIMARY KEY", []string{"X''", "X'01'", "X'0100'", "X'010000'", "X'ff'"}, ""},
		{"case", "k varchar(20) COLLATE utf8mb4_general_ci PRIMARY KEY", []string{"'a'", "'B'", "'c'", "'ö'", "'Z'"}, ""},
		{"swedish", "k varchar(20) CHARACTER SET latin1 COLLATE latin1_swedish_ci PRIMARY KEY", []string{"'a'", "'B'", "'z'", "'å'", "'Ä'", "'ö'"}, ""},
		{"chinese", "k varchar(20) CHARACTER SET gbk PRIMARY KEY", []string{"'a'", "'测'", "'试'"}, ""},
		{"quotes", "k varchar(20) COLLATE utf8mb4_bin PRIMARY KEY", []string{"''", `'"'`, "''''", `'\\\\'`, `'😀'`}, ""},
		{"padded", "k char(5) COLLATE utf8mb4_bin PRIMARY KEY", []string{"'a\\0'", "'a'", "'b'"}, ""},
		{"enum", "k enum('z','y','a') PRIMARY KEY", []string{"'z'", "'y'", "'a'"}, ""},
		{"set", "k set('z','y','a') PRIMARY KEY", []string{"''", "'z'", "'y'", "'z,y'", "'a'", "'z,y,a'"}, ""},
		{"date", "k date PRIMARY KEY", []string{"'1000-01-01'", "'1970-01-01'", "'9999-12-31'"}, ""},
		{"datetime", "k datetime(6) PRIMARY KEY", []string{"'1970-01-01 00:00:00'", "'1970-01-01 00:00:00.000001'", "'2026-03-29 02:30:00.5'"}, ""},
		{"timestamp", "k timestamp(3) PRIMARY KEY", []string{"'1970-01-01 00:00:01'", "'2026-03-29 02:30:00.5'", "'2026-10-25 01:30:00'"}, ""},
		{"time", "k time(6) PRIMARY KEY", []string{"'-838:59:59'", "'-00:00:00.000001'", "'00:00:00'", "'838:59:59'"}, ""},
		{"year", "k year PRIMARY KEY", []string{"0", "1901", "2155"}, ""},
		{"bit", "k bit(64) PRIMARY KEY", []string{"b'0'", "b'1'", "b'1000000000000000000000000000000000000000000000000000000000000000'", "18446744073709551615"}, ""},
		{
			"composite", "a varchar(10) COLLATE utf8mb4_bin, k bigint unsigned, b binary(2), PRIMARY KEY (a, k, b)",
			[]string{"'x', 1, X'00'", "'x', 1, X'0100'", "'x', 18446744073709551615, X'00'", "'y', 0, X'00'", "'y', 0, X'ff'"},
			"",
		},
		{"unique", "k int NOT NULL, UNIQUE KEY other (k)", []string{"1", "2", "3"}, ""},
		{"uuid", "k uuid PRIMARY KEY", []string{"'00000000-0000-0000-0000-000000000001'", "'f0000000-0000-0000-0000-000000000000'"}, mysqltest.MariaDB},
		{"inet6", "k inet6 PRIMARY KEY", []string{"'::1'", "'2001:db8::'", "'ffff::'"}, mysqltest.MariaDB},
	}
}

// Chunks of one row each, of keys of every type, are all rows, once, in the order of the server; and so is a resume from every chunk.
// clauses S7, S25; case C057.
func TestKeys(t *testing.T) {
	for _, f := range mysqltest.Flavors() {
		t.Run(string(f), func(t *testing.T) {
			url := mysqltest.Database(t, f)
			for _, c := range keyCases() {
				if c.only != "" && c.only != f {
					continue
				}
				table := "k_" + c.name
				mysqltest.Exec(t, url, fmt.Sprintf("CREATE TABLE %s (n int, %s)", table, c.columns),
					fmt.Sprintf("SET time_zone = '+00:00', sql_mode = ''; INSERT INTO %s VALUES (0, %s)", table, joinRows(c.rows)))
				options := map[string]string{"table": table, "chunk_bytes": "1", "columns": "n," + keyColumns(c.columns)}
				p := readAll(t, url, options)
				rows, _ := p.only(t)
				if len(rows) != len(c.rows) {
					t.Errorf("%s: %d rows, want %d: %v", c.name, len(rows), len(c.rows), rows)
				}
				for i, r := range rows {
					if want := fmt.Sprintf(`{"n":%d,`, i); !strings.HasPrefix(r, want) {
						t.Errorf("%s: row %d is %s, want it to begin with %s", c.name, i, r, want)
					}
				}
				for i, mark := range p.marks {
					rest, err := readFrom(t, sourceConfig(t, url, options), mark)
					if err != nil {
						t.Fatalf("%s: resuming from %s: %v", c.name, mark, err)
					}
					var got []string
					for _, list := range rest.rows {
						got = list
					}
					sameRows(t, fmt.Sprintf("%s: behind %s", c.name, mark), rows[min(i+1, len(rows)):], got)
				}
			}
		})
	}
}

// joinRows numbers rows.
func joinRows(rows []string) string {
	var all []string
	for i, r := range rows {
		all = append(all, fmt.Sprintf("%d, %s", i, r))
	}
	return strings.TrimPrefix(strings.Join(all, "), ("), "0, ")
}

func keyColumns(columns string) string {
	if strings.Contains(columns, "a varchar") {
		return "a,k,b"
	}
	return "k"
}

// A key with NULLs, of a query, is in one chunk with all of them.
func TestNullKeys(t *testing.T) {
	for _, f := range mysqltest.Flavors() {
		t.Run(string(f), func(t *testing.T) {
			url := mysqltest.Database(t, f)
			mysqltest.Exec(t, url, "CREATE TABLE loose (a int, b varchar(5))",
				"INSERT INTO loose VALUES (NULL, 'x'), (1, NULL), (1, 'a'), (2, 'b'), (NULL, NULL), (3, 'c')")
			p := readAll(t, url, map[string]string{"query": "SELECT * FROM loose", "key": "a,b", "chunk_bytes": "1"})
			rows, _ := p.only(t)
			slices.Sort(rows)
			sameRows(t, "all rows", []string{
				`{"a":1,"b":"a"}`, `{"a":1,"b":null}`, `{"a":2,"b":"b"}`, `{"a":3,"b":"c"}`, `{"a":null,"b":"x"}`, `{"a":null,"b":null}`,
			}, rows)
			if len(p.marks) < 3 {
				t.Errorf("%d chunks", len(p.marks))
			}
		})
	}
}
