package deadletter

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// Group counts the letters of one pipeline, sink, dataset and class.
type Group struct {
	Pipeline string
	Sink     string // empty: what could not be read, or transformed for all sinks
	Dataset  string
	Class    string
	Letters  int64
	Asked    int64 // of them, those whose rows are to be read again
	First    time.Time
	Last     time.Time
}

// List counts the letters that a filter chooses, in the order of pipeline, sink, dataset and class.
func (s *Store) List(ctx context.Context, f Filter) ([]Group, error) {
	var out []Group
	where, args, err := f.where()
	if err != nil {
		return nil, err
	}
	err = s.use(ctx, false, func(in *session) error {
		query := "select pipeline, sink, dataset, class, count(*), sum(asked > 0), min(first), max(last) from letter" + where +
			" group by 1, 2, 3, 4 order by 1, 2, 3, 4"
		return sqlitex.Execute(in.conn, query, &sqlitex.ExecOptions{Args: args, ResultFunc: func(stmt *sqlite.Stmt) error {
			out = append(out, Group{
				Pipeline: stmt.ColumnText(0), Sink: stmt.ColumnText(1), Dataset: stmt.ColumnText(2), Class: stmt.ColumnText(3),
				Letters: stmt.ColumnInt64(4), Asked: stmt.ColumnInt64(5), First: at(stmt, 6), Last: at(stmt, 7),
			})
			return nil
		}})
	})
	return out, err
}

func at(stmt *sqlite.Stmt, column int) time.Time {
	return time.UnixMicro(stmt.ColumnInt64(column)).UTC()
}

// where is the condition of a filter.
func (f Filter) where() (string, []any, error) {
	var parts []string
	var args []any
	add := func(condition string, values ...any) {
		parts, args = append(parts, condition), append(args, values...)
	}
	for _, c := range []struct{ column, value string }{
		{"pipeline", f.Pipeline}, {"run", f.Run}, {"dataset", f.Dataset}, {"class", f.Class},
	} {
		if c.value != "" {
			add(c.column+" = ?", c.value)
		}
	}
	if f.Sink != nil {
		add("sink = ?", *f.Sink)
	}
	if f.Asked {
		add("asked > 0")
	}
	if len(f.IDs) > 0 {
		ways := make([]string, len(f.IDs))
		for i, id := range f.IDs {
			if id == "" || strings.Trim(id, "0123456789abcdef-") != "" {
				return "", nil, &connector.Error{
					Class: connector.ClassConfig, Code: "deadletter.id", Err: fmt.Errorf("%q is no id of a dead letter", id),
					Hint: "leat dlq show PIPELINE shows ids; their beginning is enough",
				}
			}
			ways[i] = "lower(hex(identity)) || iif(n > 0, '-' || n, '') like ?"
			args = append(args, id+"%")
		}
		parts = append(parts, "("+strings.Join(ways, " or ")+")")
	}
	if len(parts) == 0 {
		return "", nil, nil
	}
	return " where " + strings.Join(parts, " and "), args, nil
}

// pageLetters is how many letters are read at a time: nobody else waits while they are looked at.
const pageLetters = 500

const selectLetter = `select number, identity, n, pipeline, run, sink, epoch, letter.dataset, letter.key, line, offset, shape, position, op,
	class, code, message, column, value, step, row, before, first, last, times, asked, letter.columns,
	c.key as schema_key, c.columns as schema_columns, c.dataset as schema_dataset, attempt
	from letter left join columns c on c.id = letter.columns`

// Each calls f for the letters that a filter chooses, in the order in which they came. It holds a page of them in memory, and f may use
// the store. An error of f ends it.
func (s *Store) Each(ctx context.Context, f Filter, do func(Letter) error) error {
	return s.each(ctx, f, 0, do)
}

// each is Each for the letters behind a number.
func (s *Store) each(ctx context.Context, f Filter, after int64, do func(Letter) error) error {
	where, args, err := f.where()
	if err != nil {
		return err
	}
	if where == "" {
		where = " where true"
	}
	left := f.Limit
	schemas := map[string]*record.Schema{}
	for {
		var page []Letter
		err := s.use(ctx, false, func(in *session) error {
			query := selectLetter + qualified(where) + " and number > ? order by number limit ?"
			return sqlitex.Execute(in.conn, query, &sqlitex.ExecOptions{
				Args: append(append([]any{}, args...), after, pageLetters),
				ResultFunc: func(stmt *sqlite.Stmt) error {
					l, err := scan(stmt, 0, schemas)
					page = append(page, l)
					return err
				},
			})
		})
		if err != nil {
			return err
		}
		for _, l := range page {
			after = l.Number
			err := do(l)
			if err != nil {
				return err
			}
			if left--; left == 0 {
				return nil
			}
		}
		if len(page) < pageLetters {
			return nil
		}
	}
}

// qualified is a condition beside the table of columns, which has a dataset as well. The plus keeps the sink out of the choice of an
// index: letters come in the order of their numbers, page by page.
func qualified(where string) string {
	return strings.NewReplacer("dataset = ?", "letter.dataset = ?", "sink = ?", "+sink = ?").Replace(where)
}

// scan reads a letter, from the given column on. Its schemas are shared: the same columns are the same pointer.
func scan(stmt *sqlite.Stmt, from int, schemas map[string]*record.Schema) (Letter, error) {
	text := func(i int) string { return stmt.ColumnText(from + i) }
	whole := func(i int) int64 { return stmt.ColumnInt64(from + i) }
	blob := func(i int) []byte {
		i += from
		if stmt.ColumnIsNull(i) {
			return nil
		}
		out := make([]byte, stmt.ColumnLen(i))
		stmt.ColumnBytes(i, out)
		return out
	}
	raw := func(i int) json.RawMessage { return json.RawMessage(blob(i)) }
	l := Letter{Number: whole(0), ID: idOf(blob(1), whole(2))}
	l.Pipeline, l.Run, l.Sink, l.Epoch = text(3), text(4), text(5), uint64(whole(6))
	l.Dataset, l.Key, l.Line, l.Offset = text(7), raw(8), whole(9), whole(10)
	l.Position = record.Position{Shape: uint32(whole(11)), Data: raw(12)}
	l.Op, l.Class, l.Code, l.Message = parseOp(text(13)), text(14), text(15), text(16)
	l.Column, l.Value, l.Step = text(17), text(18), int(whole(19))
	l.Raw, l.Before, l.First, l.Time = blob(20), raw(21), at(stmt, from+22), at(stmt, from+23)
	l.Times, l.Asked = whole(24), uint64(whole(25))
	l.Attempt = uint64(whole(30))
	if stmt.ColumnIsNull(from + 26) {
		return l, nil
	}
	id := string(blob(26))
	if schemas[id] == nil {
		s, err := encodedSchema{key: text(27), columns: blob(28)}.decode(text(29))
		if err != nil {
			return l, err
		}
		schemas[id] = s
	}
	l.Schema = schemas[id]
	return l, nil
}

// Drop removes the letters that a filter chooses, and returns how many there were. Limit is not looked at.
func (s *Store) Drop(ctx context.Context, f Filter) (n int64, err error) {
	where, args, err := f.where()
	if err != nil {
		return 0, err
	}
	err = s.use(ctx, false, func(in *session) (err error) {
		end, err := sqlitex.ImmediateTransaction(in.conn)
		if err != nil {
			return err
		}
		defer end(&err)
		if err := exec(in.conn, "delete from letter"+where, args...); err != nil {
			return err
		}
		n = int64(in.conn.Changes())
		return exec(in.conn, "delete from columns where id not in (select columns from letter where columns is not null)")
	})
	return n, err
}
