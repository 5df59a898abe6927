package deadletter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/record"
)

// Dataset is the name of what a sink of dead letters is written.
const Dataset = "dead_letters"

// Lane names the sink of dead letters beside the pipeline's others, none of which can be called so.
const Lane = "_" + Dataset

// Target is the sink that letters are passed on to.
type Target struct {
	Connector string // its name, for people
	Config    connector.SinkConfig
	Mode      *connector.WriteMode // nil: upsert by the letter's id where the sink can, else append
}

// offer is what the sink promises in the mode that it is written in.
func (t Target) offer() (engine.SinkOffer, error) {
	c, err := t.Config.Contract()
	if err != nil {
		return engine.SinkOffer{}, fmt.Errorf("dead_letters: %w", err)
	}
	o := engine.SinkOffer{Name: Dataset, Contract: c, Mode: connector.Append}
	switch {
	case t.Mode != nil:
		o.Mode = *t.Mode
	case slices.Contains(c.Modes, connector.Upsert):
		o.Mode = connector.Upsert
	}
	refuse := func(why, hint string) (engine.SinkOffer, error) {
		return o, &connector.Error{
			Class: connector.ClassConfig, Code: "deadletter.sink", Doing: "dead_letters: " + t.Connector,
			Err: errors.New(why), Hint: hint,
		}
	}
	switch {
	case o.Mode == connector.Replace:
		return refuse("mode replace would keep the last letters only", "say mode: append or upsert")
	case c.Atomicity == connector.Whole:
		hint := c.ForChanges
		if hint == "" {
			hint = "name a sink that takes rows at any time, such as a database"
		}
		return refuse("it shows nothing before a run has ended, and letters come at any time", hint)
	case !slices.Contains(c.Modes, o.Mode):
		return refuse("it has no mode "+o.Mode.String(), "leave the mode out")
	}
	return o, nil
}

// Promise is how often a letter comes to the sink, and why.
func (t Target) Promise() (engine.LaneAdmission, error) {
	o, err := t.offer()
	if err != nil {
		return engine.LaneAdmission{}, err
	}
	a := engine.Admit(connector.SourceContract{Replay: connector.Deterministic}, []engine.SinkOffer{o}, connector.BestGuarantee)
	if err := a.Err(); err != nil {
		return engine.LaneAdmission{}, fmt.Errorf("dead_letters: %w", err)
	}
	lane := a.Lanes[0]
	if lane.Reached == connector.ExactlyOnce && lane.Mode == connector.Append { // a letter may be forgotten after it was passed on
		lane.Reached = connector.AtLeastOnce
		lane.Why = "a row whose commit fails comes again, and its letter with it; its id tells"
	}
	return lane, nil
}

// Check looks for what would keep the sink from taking letters. It changes nothing.
func (t Target) Check(ctx context.Context, env connector.Env) (probes []connector.Probe, err error) {
	sink, err := t.Config.Open(env)
	if err != nil {
		return nil, fmt.Errorf("dead_letters: %w", err)
	}
	defer func() { err = errors.Join(err, sink.Close(context.WithoutCancel(ctx))) }()
	c, ok := connector.As[connector.Checker](sink)
	if !ok {
		return nil, nil
	}
	if probes, err = c.Check(ctx); err != nil {
		return nil, fmt.Errorf("dead_letters: %w", err)
	}
	return probes, nil
}

// letterSchema is what a sink is written; it is described in docs/formats/dead-letters.md.
func letterSchema() *record.Schema {
	text := func(name string) arrow.Field {
		return arrow.Field{Name: name, Type: arrow.BinaryTypes.String, Nullable: true}
	}
	whole := func(name string) arrow.Field {
		return arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Int64, Nullable: true}
	}
	return &record.Schema{Dataset: Dataset, Key: []int{0}, Columns: arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.BinaryTypes.String},
		{Name: "time", Type: record.InstantType(), Nullable: true},
		text("pipeline"), text("run"), text("sink"), text("dataset"), text("op"), text("key"), whole("line"), whole("offset"),
		text("position"), text("class"), text("code"), text("message"), text("column"), text("value"), text("row"),
		text("before"), text("types"),
		{Name: "raw", Type: arrow.BinaryTypes.Binary, Nullable: true},
	}, nil)}
}

// batchOf makes the rows of letters.
func batchOf(s *record.Schema, letters []Letter) (*record.Batch, error) {
	b := array.NewRecordBuilder(memory.DefaultAllocator, s.Columns)
	for _, l := range letters {
		row, err := l.columns()
		if err != nil {
			return nil, err
		}
		for i, f := range s.Columns.Fields() {
			if err := put(b.Field(i), row[f.Name]); err != nil {
				return nil, fmt.Errorf("letter %.12s: %s: %w", l.ID, f.Name, err)
			}
		}
	}
	return &record.Batch{Schema: s, Rows: b.NewRecordBatch()}, nil
}

// columns are the values of a letter by column; nothing and zero are null.
func (l Letter) columns() (map[string]any, error) {
	out := map[string]any{
		"id": l.ID, "time": l.First.UnixMicro(), "pipeline": l.Pipeline, "run": l.Run, "sink": l.Sink, "dataset": l.Dataset,
		"op": l.Op.String(), "key": string(l.Key), "line": l.Line, "position": string(l.Position.Data), "class": l.Class,
		"code": l.Code, "message": l.Message,
		"column": l.Column, "value": l.Value,
	}
	if l.Line > 0 {
		out["offset"] = l.Offset
	}
	if l.Schema == nil {
		out["raw"] = l.Raw
		return out, nil
	}
	types := make(map[string]string, l.Schema.Columns.NumFields())
	for _, f := range l.Schema.Columns.Fields() {
		types[f.Name] = record.FormatType(f.Type)
	}
	text, err := json.Marshal(types)
	if err != nil {
		return nil, fmt.Errorf("letter %.12s: its types: %w", l.ID, err)
	}
	out["row"], out["before"], out["types"] = string(l.Raw), string(l.Before), string(text)
	return out, nil
}

func put(b array.Builder, v any) error {
	switch v := v.(type) {
	case string:
		if v != "" {
			return record.ParseText(b, clean(v))
		}
	case int64:
		if t, ok := b.(*array.TimestampBuilder); ok {
			t.Append(arrow.Timestamp(v))
			return nil
		}
		if i, ok := b.(*array.Int64Builder); ok && v != 0 {
			i.Append(v)
			return nil
		}
	case []byte:
		if bin, ok := b.(*array.BinaryBuilder); ok && v != nil {
			bin.Append(v)
			return nil
		}
	}
	b.AppendNull()
	return nil
}

// clean makes text that every sink can hold: what is no UTF-8, and NUL, become the replacement character. The store has the original.
func clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
