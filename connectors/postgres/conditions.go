package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

var _ connector.Conditional = (*Source)(nil)

// maxSparse is how many times as large as usual the chunks of a condition that few rows meet may become.
const maxSparse = 64

// conditionSQL puts a condition where only one expression fits: the line's end keeps a comment from taking what follows with it.
func conditionSQL(where string) string { return "(" + where + "\n)" }

// CheckWhere implements connector.Conditional: the server reads the condition, and does nothing.
func (s *Source) CheckWhere(ctx context.Context, dataset, where string) error {
	t, err := s.find(ctx, dataset)
	if err != nil {
		return err
	}
	check := func(pg *pgconn.PgConn) error {
		if err := s.begin(ctx, pg, ""); err != nil {
			return err
		}
		if err := s.checkCondition(ctx, pg, t, where); err != nil {
			return err
		}
		return command(ctx, pg, "COMMIT")
	}
	err = s.borrow(ctx, check)
	if err != nil && s.cfg.Follow && connector.ClassOf(err) == connector.ClassPermanent { // the table may have another name by now
		if t, err = s.refresh(ctx, dataset); err != nil {
			return err
		}
		err = s.borrow(ctx, check)
	}
	if err != nil {
		return s.tableError("checking a condition", t, err)
	}
	return nil
}

// checkCondition lets the server read a condition between parentheses and between brackets: what would end the one early, so that the rest
// stands outside, does not fit into the other. Nothing is run.
func (s *Source) checkCondition(ctx context.Context, pg *pgconn.PgConn, t *sourceTable, where string) error {
	if strings.TrimSpace(where) == "" {
		return s.conditionError(t, where, errors.New("the condition is empty"))
	}
	s.env.Roundtrip("condition")
	for _, around := range [][2]string{
		{"SELECT FROM " + t.from + " WHERE (", "\n)"},
		{"SELECT ARRAY[", "\n]::pg_catalog.bool[] FROM " + t.from},
	} {
		d, err := pg.Prepare(ctx, "", around[0]+where+around[1], nil)
		if server, ok := errors.AsType[*pgconn.PgError](err); ok {
			return s.conditionRefused(t, where, around[0], server)
		}
		if err != nil {
			return err //nolint:wrapcheck // the caller says what was being done
		}
		if len(d.ParamOIDs) > 0 {
			return s.conditionError(t, where, errors.New("there is no parameter $1"))
		}
	}
	return nil
}

// conditionRefused says what the server has against a condition, unless it is about something else.
func (s *Source) conditionRefused(t *sourceTable, where, before string, server *pgconn.PgError) error {
	at := int(server.Position) - utf8.RuneCountInString(before)
	switch length := utf8.RuneCountInString(where); {
	case at < 0 && server.Position > 0:
		return server
	case at == 0 && server.Position > 0: // what stands between the parentheses, as a whole
		return s.conditionError(t, where, serverMessage(server))
	case at > length: // the server was surprised by what stands behind
		return s.conditionError(t, where, fmt.Errorf("%w at its end", serverMessage(server)))
	case server.Position > 0:
		return s.conditionError(t, where, fmt.Errorf("%w at character %d", serverMessage(server), at))
	}
	return s.conditionFailed(t, where, server)
}

// conditionFailed is an error of a statement with a condition: that of the condition, where nothing else of it could have caused it.
func (s *Source) conditionFailed(t *sourceTable, where string, err error) error {
	server, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || where == "" {
		return err
	}
	switch server.Code[:min(2, len(server.Code))] {
	case "0A", "21", "22", "25", "2F", "38", "39", "42", "54", "P0":
		return s.conditionError(t, where, serverMessage(server))
	}
	return err
}

func (s *Source) conditionError(t *sourceTable, where string, err error) error {
	return &connector.Error{
		Class: connector.ClassPermanent, Code: "postgres.condition", Dataset: t.dataset,
		Doing: "reading the rows that meet " + inLine(where), Err: s.cfg.redact(err),
		Hint: fmt.Sprintf("a condition is one SQL expression about the columns: try SELECT count(*) FROM %s WHERE …", t.from),
	}
}

// inLine is a condition on one line, shortened.
func inLine(where string) string {
	const most = 120
	text := []rune(strings.Join(strings.Fields(where), " "))
	if len(text) > most {
		text = append(text[:most], '…')
	}
	return "(" + string(text) + ")"
}

// PlanWhere implements connector.Conditional. Chunks are cut along the key without looking at the rows, and the larger the fewer rows the
// server expects to meet the condition; where one chunk has room for all of them, the server may find them by whatever index there is.
func (s *Source) PlanWhere(ctx context.Context, dataset, where string, after []byte, target int64) connector.ChunkSeq {
	if target <= 0 {
		target = s.cfg.ChunkBytes
	}
	return func(yield func(record.Chunk, error) bool) {
		t, err := s.find(ctx, dataset)
		if err != nil {
			yield(record.Chunk{}, err)
			return
		}
		rows, err := s.expect(ctx, t, where)
		switch {
		case err != nil:
			yield(record.Chunk{}, s.tableError("planning chunks", t, err))
		case t.mode != byKey || rows <= t.chunkRows(target):
			yield(record.Chunk{Dataset: dataset, From: after}, nil)
		default:
			sparse := int64(1)
			if t.rows > 0 {
				sparse = min(max(t.rows/max(rows, 1), 1), maxSparse)
			}
			s.PlanChunks(ctx, dataset, after, target*sparse)(yield)
		}
	}
}

// expect asks how many rows the server expects to meet a condition.
func (s *Source) expect(ctx context.Context, t *sourceTable, where string) (rows int64, err error) {
	err = s.borrow(ctx, func(pg *pgconn.PgConn) error {
		if err := s.begin(ctx, pg, ""); err != nil {
			return err
		}
		if err := s.checkCondition(ctx, pg, t, where); err != nil {
			return err
		}
		s.env.Roundtrip("explain")
		out, err := ask(ctx, pg, "EXPLAIN (FORMAT JSON) SELECT FROM "+t.from+t.whereSQL([]string{conditionSQL(where)}))
		if err != nil {
			return s.conditionFailed(t, where, err)
		}
		var plans []struct {
			Plan struct {
				Rows float64 `json:"Plan Rows"`
			} `json:"Plan"`
		}
		if err := json.Unmarshal(out[0][0], &plans); err != nil || len(plans) != 1 {
			return fmt.Errorf("reading the server's plan: %w", errors.Join(err, errors.New("it is none")))
		}
		rows = int64(plans[0].Plan.Rows)
		return command(ctx, pg, "COMMIT")
	})
	return rows, err
}
