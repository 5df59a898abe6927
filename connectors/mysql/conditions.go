package mysql

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

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
	check := func(w *wire) error { return s.checkCondition(ctx, w, t, where) }
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

// checkCondition lets the server read a condition between parentheses, and as a part of a list: what would end the one early, so that the
// rest stands outside, does not fit into the other. Nothing is run.
func (s *Source) checkCondition(ctx context.Context, w *wire, t *sourceTable, where string) error {
	if strings.TrimSpace(where) == "" {
		return s.conditionError(t, where, errors.New("the condition is empty"))
	}
	s.env.Roundtrip("condition")
	for _, around := range [][2]string{
		{"SELECT 1 FROM " + t.from + " WHERE (", "\n)"},
		{"SELECT ELT(1, ", "\n, 2) FROM " + t.from},
	} {
		_, params, err := w.describe(ctx, around[0]+where+around[1])
		if server, ok := serverErrorOf(err); ok {
			return s.conditionFailed(t, where, server)
		}
		if err != nil {
			return err
		}
		if params > 0 {
			return s.conditionError(t, where, errors.New("there is no parameter ?"))
		}
	}
	return nil
}

// conditionFailed is an error of a statement with a condition: that of the condition, where nothing else of it could have caused it.
func (s *Source) conditionFailed(t *sourceTable, where string, err error) error {
	server, ok := serverErrorOf(err)
	if !ok || where == "" {
		return err
	}
	switch class, _, _ := classify(server); class {
	case connector.ClassTransient, connector.ClassPosition:
		return err
	default:
		return s.conditionError(t, where, server)
	}
}

func (s *Source) conditionError(t *sourceTable, where string, err error) error {
	return &connector.Error{
		Class: connector.ClassPermanent, Code: "mysql.condition", Dataset: t.dataset,
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
		case len(t.key) == 0 || rows <= t.chunkRows(target):
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
func (s *Source) expect(ctx context.Context, t *sourceTable, where string) (int64, error) {
	if err := s.borrow(ctx, func(w *wire) error { return s.checkCondition(ctx, w, t, where) }); err != nil {
		return 0, err
	}
	db, _, err := s.server(ctx)
	if err != nil {
		return 0, err
	}
	s.env.Roundtrip("explain")
	//nolint:gosec // the condition was checked
	rows, err := db.QueryContext(ctx, "EXPLAIN SELECT 1 FROM "+t.from+t.whereSQL([]string{conditionSQL(where)}))
	if err != nil {
		return 0, s.conditionFailed(t, where, err)
	}
	defer func() { _ = rows.Close() }() // its error is that of Err
	names, err := rows.Columns()
	if err != nil {
		return 0, err //nolint:wrapcheck // the caller says what was being done
	}
	total := int64(0)
	for rows.Next() {
		row := make([][]byte, len(names))
		at := make([]any, len(names))
		for i := range row {
			at[i] = &row[i]
		}
		if err := rows.Scan(at...); err != nil {
			return 0, err //nolint:wrapcheck // likewise
		}
		total += estimate(names, row)
	}
	return total, rows.Err() //nolint:wrapcheck // likewise
}

// estimate is how many rows the server expects a step of a plan to give.
func estimate(names []string, row [][]byte) int64 {
	rows, share := int64(0), 100.0
	for i, n := range names {
		switch n {
		case "rows":
			rows = max(toInt(row[i]), 0)
		case "filtered":
			if _, err := fmt.Sscanf(string(row[i]), "%g", &share); err != nil {
				share = 100
			}
		}
	}
	return int64(float64(rows) * share / 100)
}
