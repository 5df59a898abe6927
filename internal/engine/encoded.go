package engine

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// endpoints are the opened source and sinks of a plan.
type endpoints struct {
	src   connector.Source
	v     *value
	sinks []asked
}

// encodings decides for each dataset whether its rows are passed on in the source's own encoding (S27): both ends have one, nothing in
// between needs rows, and they agree about the columns.
func (r *runner) encodings(ctx context.Context, b *blueprint, at endpoints) error {
	src, ok := connector.As[connector.EncodedSource](at.src)
	if !ok {
		return nil
	}
	for i, ask := range at.sinks {
		sink, ok := connector.As[connector.EncodedSink](ask.sink)
		if !ok || b.down[i] != nil {
			continue
		}
		for _, s := range b.schemas {
			l := b.lanes[i][s.Dataset]
			if l == nil || l.fit == nil {
				continue
			}
			format, why, err := "", r.whyDecoded(i, l), error(nil)
			if why == "" {
				err = at.v.call("read the encoding", func() (err error) {
					format, why, err = src.Encoding(ctx, s.Dataset)
					return err
				})
			}
			if why == "" && err == nil {
				err = ask.v.call("ask for the encoding", func() (err error) {
					why, err = sink.TakesEncoding(ctx, l.fit.out, format)
					return err
				})
			}
			if err != nil {
				return fmt.Errorf("planning %s: %w", s.Dataset, err)
			}
			if l.report.WhyDecoded = why; why == "" {
				l.encoded, l.report.Encoding = true, format
				b.encoded = append(b.encoded, s.Dataset)
			}
		}
	}
	return nil
}

// whyDecoded says what needs the rows of a dataset on their way into sink i; empty: nothing that the plan knows of.
func (r *runner) whyDecoded(i int, l *layout) string {
	spec, offer := r.plan.Sinks[i], r.offers[i]
	switch {
	case len(r.plan.Sinks) > 1:
		return "more than one sink gets them"
	case !r.contract.Bounded || r.contract.Input != connector.AppendOnly:
		return "the source sends changes"
	case len(r.plan.Source.Transforms)+len(spec.Transforms) > 0:
		return "transforms look at them"
	case r.plan.BadRows.Action != Stop || spec.badRows(r.plan).Action != Stop:
		return "rows that can't be carried are set aside one by one"
	case r.plan.Limit > 0:
		return "the number of rows is limited"
	case offer.Mode == connector.Upsert:
		return "mode upsert writes them by key"
	case l.fit.retyped:
		return "columns become text or are made nullable"
	}
	for c, col := range l.report.Columns {
		if col.Fidelity != connector.Exact || l.fit.checks(c) {
			return fmt.Sprintf("the values of column %q are checked%s", col.Column, because(col.Why))
		}
	}
	return ""
}

// checks reports whether the values of a column are looked at.
func (f *fitter) checks(column int) bool {
	for _, c := range f.columns {
		if c.index == column {
			return true
		}
	}
	return false
}

// tellEncodings logs once what is passed on as it comes, and what is decoded though both ends have an encoding of their own.
func (g *generation) tellEncodings() {
	if g.r.ran {
		return
	}
	for i, lane := range g.blue.lanes {
		g.r.tellEncodings(g.r.plan.Sinks[i].Name, g.blue.schemas, lane)
	}
}

func (r *runner) tellEncodings(sink string, schemas []*record.Schema, lane map[string]*layout) {
	for _, s := range schemas {
		l := lane[s.Dataset]
		switch {
		case l == nil:
		case l.encoded:
			r.log.Info("rows are passed on as they come", slog.String("sink", sink), slog.String("dataset", s.Dataset))
		case l.report.WhyDecoded != "":
			r.log.Info("rows are decoded",
				slog.String("sink", sink), slog.String("dataset", s.Dataset), slog.String("why", l.report.WhyDecoded))
		}
	}
}
