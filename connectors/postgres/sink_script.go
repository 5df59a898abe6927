package postgres

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// script is statements that go out together and are answered together: one round trip. Values travel beside them in binary.
type script struct {
	statements []statement
	again      bool // they come again and again: the server keeps them, where nothing speaks against it
}

// statement is one of a script, with its values.
type statement struct {
	sql    string
	values [][]byte
}

// add appends statements without values.
func (x *script) add(statements ...string) {
	for _, sql := range statements {
		x.statements = append(x.statements, statement{sql: sql})
	}
}

// bind appends a statement with binary values and returns its number.
func (x *script) bind(st statement) int {
	x.statements = append(x.statements, st)
	return len(x.statements) - 1
}

// formats says that values are binary.
func (st statement) formats() []int16 {
	if len(st.values) == 0 {
		return nil
	}
	return []int16{1}
}

// maxKeptStatements bounds what a connection keeps: tables that change again and again leave statements behind.
const maxKeptStatements = 300

// run sends a script. Where a statement fails, the ones behind it are not done.
func (s *session) run(ctx context.Context, op string, x *script) ([]*pgconn.Result, error) {
	s.env.Roundtrip(op)
	p := s.conn.PgConn().StartPipeline(ctx)
	prepared := make([]bool, len(x.statements)) // the server is asked to keep it
	for i, st := range x.statements {
		name, kept := s.kept[st.sql]
		if !kept && x.again && s.direct && s.names < maxKeptStatements {
			s.names++
			name, kept, prepared[i] = fmt.Sprintf("leat_%d", s.names), true, true
			p.SendPrepare(name, st.sql, nil)
			s.kept[st.sql] = name
		}
		if kept {
			p.SendQueryPrepared(name, st.values, st.formats(), nil)
		} else {
			p.SendQueryParams(st.sql, st.values, nil, st.formats(), nil)
		}
	}
	err := p.Sync()
	results := make([]*pgconn.Result, 0, len(x.statements))
	for i := 0; i < len(x.statements) && err == nil; i++ {
		var r *pgconn.Result
		if r, err = answer(p, prepared[i]); err == nil {
			results, prepared[i] = append(results, r), false
		}
	}
	for i, st := range x.statements {
		if prepared[i] { // the script failed before or at it
			delete(s.kept, st.sql)
		}
	}
	return results, cmp.Or(err, p.Close()) //nolint:wrapcheck // callers say what was being done
}

// answer reads what the server says to one statement.
func answer(p *pgconn.Pipeline, prepared bool) (*pgconn.Result, error) {
	if prepared {
		if _, err := p.GetResults(); err != nil {
			return nil, err //nolint:wrapcheck // as run
		}
	}
	answer, err := p.GetResults()
	if err != nil {
		return nil, err //nolint:wrapcheck // as run
	}
	reader, ok := answer.(*pgconn.ResultReader)
	if !ok {
		return nil, fmt.Errorf("the server answers with a %T", answer)
	}
	r := reader.Read()
	return r, r.Err
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
		out[i] = slices.Clone(a.bufs[i]) // the buffers are used again before the script is sent
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
