package postgres

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// script is statements that go out together and are answered together: one round trip. Values travel beside them in binary. No
// statement has a name, see the package documentation.
type script struct {
	batch pgconn.Batch
	n     int
}

// add appends statements without values.
func (x *script) add(statements ...string) {
	for _, sql := range statements {
		x.batch.ExecParams(sql, nil, nil, nil, nil)
		x.n++
	}
}

// bind appends a statement with binary values and returns its number.
func (x *script) bind(sql string, values [][]byte) int {
	x.batch.ExecParams(sql, values, nil, []int16{1}, nil)
	x.n++
	return x.n - 1
}

// run sends a script. Where a statement fails, the ones behind it are not done.
func (s *session) run(ctx context.Context, op string, x *script) ([]*pgconn.Result, error) {
	s.env.Roundtrip(op)
	results, err := s.conn.PgConn().ExecBatch(ctx, &x.batch).ReadAll()
	return results, err //nolint:wrapcheck // callers say what was being done
}

// version is the server's major version; 0: it does not say.
func (s *session) version() int {
	major, _, _ := strings.Cut(s.conn.PgConn().ParameterStatus("server_version"), ".")
	n, err := strconv.Atoi(strings.TrimRight(major, "abcdelrtv "))
	if err != nil {
		return 0
	}
	return n
}

// arrays collects rows as one binary array for each column: the values of a statement that reads them with unnest.
type arrays struct {
	types []string // SQL types of the elements
	names []string // what the columns are called
	bufs  [][]byte
	rows  int
}

// reset takes new columns; buffers stay.
func (a *arrays) reset() {
	a.types, a.names, a.rows = a.types[:0], a.names[:0], 0
}

// column begins a column.
func (a *arrays) column(name, sqlType string, oid uint32) {
	n := len(a.names)
	a.names, a.types = append(a.names, name), append(a.types, sqlType)
	if n == len(a.bufs) {
		a.bufs = append(a.bufs, nil)
	}
	head := a.bufs[n][:0]
	for _, v := range [...]uint32{1, 1, oid, 0, 1} {
		head = binary.BigEndian.AppendUint32(head, v)
	}
	a.bufs[n] = head
}

// put appends the next value of a column: its length and its bytes, as a COPY has them.
func (a *arrays) put(col int, field []byte) {
	a.bufs[col] = append(a.bufs[col], field...)
}

// values returns the arrays as the values of a statement: dimensions, flag, type of the elements, length and lower bound stand in
// front of the elements.
func (a *arrays) values() [][]byte {
	const length = 12
	out := make([][]byte, len(a.names))
	for i := range out {
		binary.BigEndian.PutUint32(a.bufs[i][length:], uint32(a.rows))
		out[i] = a.bufs[i]
	}
	return out
}

// from is the item of a FROM list that yields the rows, as s.
func (a *arrays) from() string {
	params := make([]string, len(a.names))
	for i, t := range a.types {
		params[i] = fmt.Sprintf("$%d::%s[]", i+1, t)
	}
	return fmt.Sprintf("unnest(%s) AS s(%s)", strings.Join(params, ", "), strings.Join(a.names, ", "))
}
