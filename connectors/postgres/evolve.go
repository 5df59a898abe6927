package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// Evolve implements connector.Evolver: columns that the new schema has more are added, without NOT NULL, since rows that are there
// have no value; columns that became wider are widened. What is already so is left alone. It is part of the open transaction, and
// so becomes durable together with the first rows that need it.
func (s *Sink) Evolve(ctx context.Context, from, to *record.Schema) error {
	if err := s.usable("changing the table"); err != nil {
		return err
	}
	if err := s.begin(ctx); err != nil {
		return s.poison(ctx, err)
	}
	d := s.datasets[to.Dataset]
	if d == nil && from != nil {
		var err error
		if d, err = s.dataset(ctx, from); err != nil {
			return s.poison(ctx, s.cfg.wrap("changing the table of "+to.Dataset, err))
		}
	}
	if d == nil {
		return nil // the first write makes it
	}
	if err := s.evolve(ctx, d, to); err != nil {
		return s.poison(ctx, s.cfg.wrap("changing the table of "+to.Dataset, err))
	}
	return nil
}

func (s *Sink) evolve(ctx context.Context, d *dataset, to *record.Schema) error {
	t, err := s.db.lockAndDescribe(ctx, d.target)
	if err != nil {
		return err
	}
	design, err := s.db.design(ctx, to, d.place)
	if err != nil {
		return err
	}
	var changes []string
	for i, c := range design.columns {
		was, ok := t.column(c.name)
		if !ok {
			c.notNull = false
			changes = append(changes, "ADD COLUMN IF NOT EXISTS "+c.String())
			continue
		}
		fit, err := fit(to.Columns.Field(i), was)
		if err != nil {
			return err
		}
		if fit.Fidelity == connector.Exact || was.Generated != "" {
			continue
		}
		if wider, ok := widen(was, c.typ, fit); ok {
			changes = append(changes, fmt.Sprintf("ALTER COLUMN %s TYPE %s", ident(c.name), wider))
		}
	}
	for _, c := range t.Columns {
		if c.NotNull && !c.Default && c.Identity == "" && c.Generated == "" && to.Column(c.Name) < 0 {
			changes = append(changes, fmt.Sprintf("ALTER COLUMN %s DROP NOT NULL", ident(c.Name)))
		}
	}
	if len(changes) == 0 {
		return nil
	}
	if s.cfg.Create == createNever {
		return &connector.Error{
			Class: connector.ClassConfig, Code: "postgres.columns", Doing: "changing " + d.target.String(), Dataset: to.Dataset,
			Err:  errors.New("the table does not fit the new schema, and create is never"),
			Hint: fmt.Sprintf("ALTER TABLE %s %s", d.place, strings.Join(changes, ", ")),
		}
	}
	script := append([]string{}, design.statements()[1:1+len(design.enums)]...)
	script = append(script, fmt.Sprintf("ALTER TABLE %s %s", d.target, strings.Join(changes, ", ")))
	if err := s.db.exec(ctx, "alter", strings.Join(script, ";\n")); err != nil {
		return err
	}
	d.checked = 0 // the next write reads the catalogue again
	return nil
}

// widen returns the type that a column changes to: only to one that holds every value of the old one.
func widen(was tableColumn, typ string, now fitting) (string, bool) {
	order := map[string]int{"int2": 1, "int4": 2, "int8": 3, "numeric": 4}
	want := map[string]int{"smallint": 1, "integer": 2, "bigint": 3}[typ]
	if strings.HasPrefix(typ, "numeric") {
		want = order["numeric"]
	}
	have := order[was.Base.Name]
	switch {
	case have > 0 && want > have && was.Base.Name != "numeric":
		return typ, true
	case was.Base.Name == "numeric" && want > 0:
		return "numeric", true // any digits: a wider pair could still be narrower on one side of the point
	case was.Base.Name == "float4" && typ == "double precision":
		return typ, true
	case was.Base.Name == "varchar" && (strings.HasPrefix(typ, "character varying") || typ == "text"):
		return typ, now.Limits.MaxChars > 0
	case typ == "text" && was.Base.Schema == "pg_catalog" && was.Base.Elem == nil && was.Base.Name != "bytea" && was.Base.Name != "text":
		return typ, true // every scalar has a text form
	}
	return "", false
}
