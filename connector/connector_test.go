package connector_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

type (
	acknowledger interface{ Acknowledge() }
	inner        struct{}
	wrapper      struct{ in any }
)

func (inner) Acknowledge()    {}
func (w wrapper) Unwrap() any { return w.in }

// No wrapper hides a capability, however many there are.
func TestAs(t *testing.T) {
	for name, c := range map[string]struct {
		v    any
		want bool
	}{
		"itself": {inner{}, true}, "wrapped": {wrapper{inner{}}, true}, "twice": {wrapper{&wrapper{inner{}}}, true},
		"none": {wrapper{"x"}, false}, "nothing": {nil, false}, "wrapped nothing": {wrapper{nil}, false},
	} {
		if _, ok := connector.As[acknowledger](c.v); ok != c.want {
			t.Errorf("%s: %v, want %v", name, ok, c.want)
		}
	}
}

func TestErrorTree(t *testing.T) {
	transient := &connector.Error{Class: connector.ClassTransient, Err: io.ErrUnexpectedEOF, Hint: "inner"}
	plain := errors.New("plain")
	for name, c := range map[string]struct {
		err   error
		class connector.Class
		hint  string
	}{
		"nil":              {nil, connector.ClassUnknown, ""},
		"plain":            {plain, connector.ClassUnknown, ""},
		"direct":           {transient, connector.ClassTransient, "inner"},
		"wrapped":          {fmt.Errorf("reading: %w", transient), connector.ClassTransient, "inner"},
		"outer class wins": {&connector.Error{Class: connector.ClassPermanent, Err: transient, Hint: "outer"}, connector.ClassPermanent, "inner"},
		"outer has no class": {
			&connector.Error{Doing: "x", Err: fmt.Errorf("y: %w", transient)}, connector.ClassTransient, "inner",
		},
		"outer hint":       {&connector.Error{Err: &connector.Error{Class: connector.ClassConfig}, Hint: "outer"}, connector.ClassConfig, "outer"},
		"joined":           {errors.Join(plain, transient), connector.ClassTransient, "inner"},
		"joined, no class": {errors.Join(&connector.Error{Err: plain}, transient), connector.ClassTransient, "inner"},
		"two wrapped":      {fmt.Errorf("%w and %w", plain, transient), connector.ClassTransient, "inner"},
		"joined beneath":   {&connector.Error{Err: errors.Join(plain, transient)}, connector.ClassTransient, "inner"},
	} {
		if got := connector.ClassOf(c.err); got != c.class {
			t.Errorf("%s: class %v, want %v", name, got, c.class)
		}
		if got := connector.HintOf(c.err); got != c.hint {
			t.Errorf("%s: hint %q, want %q", name, got, c.hint)
		}
	}
	if !errors.Is(fmt.Errorf("x: %w", transient), io.ErrUnexpectedEOF) {
		t.Error("the cause is lost")
	}
}

func TestErrorText(t *testing.T) {
	for want, e := range map[string]*connector.Error{
		`opening orders.csv: no such file`:           {Doing: "opening orders.csv", Err: errors.New("no such file"), Hint: "not part of it"},
		`writing: orders, column "total": too large`: {Doing: "writing", Dataset: "orders", Column: "total", Err: errors.New("too large")},
		`column "total": too large`:                  {Column: "total", Err: errors.New("too large")},
		`checking: csv.ragged`:                       {Doing: "checking", Code: "csv.ragged"},
	} {
		if got := e.Error(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	rows := &connector.RowErrors{}
	for _, want := range []string{"no rows were refused", "d, line 1 (byte 0): bad", "d, line 1 (byte 0): bad (and 1 more rows)"} {
		if got := rows.Error(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		rows.Rows = append(rows.Rows, connector.RowError{Reject: record.Reject{Dataset: "d", Line: int64(len(rows.Rows) + 1), Message: "bad"}})
	}
}

// clause S31: a secret shows in no form of printing.
func TestSecretNeverShows(t *testing.T) {
	type nested struct {
		Password connector.Secret
		All      []connector.Secret
		ByName   map[string]connector.Secret
		Pointer  *connector.Secret
	}
	const value = "hunter2"
	s := connector.Secret(value)
	n := nested{s, []connector.Secret{s}, map[string]connector.Secret{"a": s}, &s}
	var out strings.Builder
	for _, v := range []any{s, &s, n, &n, []any{s}, map[connector.Secret]int{s: 1}} {
		for verb := range strings.SplitSeq("v +v #v s q #q x X #x d b o c U e g t 10s -10s .2s", " ") {
			fmt.Fprintf(&out, "%"+verb+"\n", v)
		}
		fmt.Fprintln(&out, v)
	}
	fmt.Fprintln(&out, fmt.Errorf("with %v", s), errors.New(s.String()))
	doc, err := json.Marshal(map[string]any{"n": n, "pointer": &n})
	if err != nil {
		t.Fatal(err)
	}
	out.Write(doc)
	var logged bytes.Buffer
	for _, h := range []slog.Handler{slog.NewTextHandler(&logged, nil), slog.NewJSONHandler(&logged, nil)} {
		slog.New(h).Info("m", slog.Any("secret", s), slog.Any("nested", n), slog.Any("pointer", &s))
	}
	out.Write(logged.Bytes())
	for _, form := range []string{value, "68756e74657232", "68756E74657232", "[104 117", "hu", "0x68", "aHVudGVyMg"} {
		if strings.Contains(out.String(), form) {
			t.Errorf("%q is in:\n%s", form, out.String())
		}
	}
	if s.Reveal() != value || fmt.Sprint(connector.Secret("")) != "" || fmt.Sprintf("%s %q %v", s, s, s) != `*** "***" ***` {
		t.Errorf("%s %q, empty %q", s, s, connector.Secret(""))
	}
}

func registry(t *testing.T) *connector.Registry {
	t.Helper()
	var r connector.Registry
	for _, d := range []connector.Definition{
		{Name: "sqlite", Schemes: []string{"sqlite"}, Extensions: []string{".db", ".sqlite"}},
		{Name: "postgres", Schemes: []string{"postgres", "postgresql"}},
		{Name: "csv", Schemes: []string{"csv"}, Extensions: []string{".csv", ".csv.gz"}},
		{Name: "gzip", Schemes: []string{"gzip"}, Extensions: []string{".gz"}},
	} {
		if err := r.Register(d); err != nil {
			t.Fatal(err)
		}
	}
	return &r
}

func TestResolve(t *testing.T) {
	r := registry(t)
	for raw, want := range map[string]string{
		"postgres://u:p@h/db?table=a.csv": "postgres", "POSTGRESQL://h/db": "postgres", "csv:-": "csv", "csv:data.db": "csv",
		"orders.csv": "csv", "dir.db/orders.CSV": "csv", "orders.csv.gz": "csv", "orders.json.gz": "gzip", "orders.csv?header=false": "csv",
		`C:\data\orders.csv`: "csv", "./a:b.csv": "csv", "/srv/state.db": "sqlite", "x.sqlite?table=a/b": "sqlite",
	} {
		d, err := r.Resolve(raw)
		if err != nil || d.Name != want {
			t.Errorf("%s: %q, %v, want %s", raw, d.Name, err, want)
		}
	}
	for raw, want := range map[string]string{
		"postgress://h/db": `did you mean "postgres"?`, "orders": "no known file ending", "orders.xlsx": "no known file ending", "": "no known file ending",
		"mongodb://user:hunter2@h/db": `"mongodb"`, "csv": "no known file ending", "dir.csv/orders": "no known file ending",
	} {
		_, err := r.Resolve(raw)
		if err == nil || !strings.Contains(err.Error(), want) || connector.ClassOf(err) != connector.ClassConfig || connector.HintOf(err) == "" {
			t.Errorf("%s: %v, want %s", raw, err, want)
		}
		if strings.Contains(fmt.Sprint(err), "hunter2") {
			t.Errorf("%s: the password is in %v", raw, err)
		}
	}
}

func TestRegistry(t *testing.T) {
	r := registry(t)
	var names []string
	for _, d := range r.All() {
		names = append(names, d.Name)
	}
	if got := strings.Join(names, " "); got != "csv gzip postgres sqlite" {
		t.Errorf("not in order: %s", got)
	}
	r.All()[0].Name = "changed"
	if _, ok := r.Lookup("csv"); !ok {
		t.Error("a caller changed the registry")
	}
	if _, ok := r.Lookup("CSV"); ok {
		t.Error("names are exact")
	}
	for name, d := range map[string]connector.Definition{
		"name": {Name: "csv"}, "scheme": {Name: "x", Schemes: []string{"postgresql"}}, "ending": {Name: "x", Extensions: []string{".gz"}},
	} {
		if err := r.Register(d); err == nil {
			t.Errorf("%s: taken twice", name)
		}
	}
}

// clause S2: a start request is whole, or it is refused before anything is done.
func TestSourceStartValidate(t *testing.T) {
	p := record.Position{Shape: 1, Data: json.RawMessage(`1`)}
	none := record.Position{Shape: 1}
	for _, c := range []struct {
		from connector.From
		good bool
	}{
		{connector.From{}, true},
		{connector.From{Attempt: 1}, false},
		{connector.From{Position: p}, false},
		{connector.From{Origin: connector.Initialised, Position: p}, true},
		{connector.From{Origin: connector.Initialised}, false},
		{connector.From{Origin: connector.Initialised, Position: p, Attempt: 1}, false},
		{connector.From{Origin: connector.Resume, Position: p, Attempt: 1}, true},
		{connector.From{Origin: connector.Resume, Position: p}, false},
		{connector.From{Origin: connector.Resume, Attempt: 1}, false},
		{connector.From{Origin: connector.Resume, Attempt: 1, Position: none}, false},
		{connector.From{Origin: 3, Attempt: 1, Position: p}, false},
	} {
		err := connector.SourceStart{From: c.from}.Validate()
		if (err == nil) != c.good || (err != nil && connector.ClassOf(err) != connector.ClassConfig) {
			t.Errorf("%+v: %v", c.from, err)
		}
	}
}

func TestNamesOfConfigurations(t *testing.T) {
	for g := connector.BestGuarantee; g <= connector.ExactlyOnce; g++ {
		if got, err := connector.ParseGuarantee(g.String()); err != nil || got != g {
			t.Errorf("%s: %v, %v", g, got, err)
		}
	}
	for m := connector.Append; m <= connector.Replace; m++ {
		if got, err := connector.ParseWriteMode(m.String()); err != nil || got != m {
			t.Errorf("%s: %v, %v", m, got, err)
		}
	}
	for p := connector.PolicyFail; p <= connector.PolicyStrip; p++ {
		if got, err := connector.ParsePolicy(p.String()); err != nil || got != p {
			t.Errorf("%s: %v, %v", p, got, err)
		}
	}
	_, guarantee := connector.ParseGuarantee("twice")
	_, mode := connector.ParseWriteMode("merge")
	_, policy := connector.ParsePolicy("round")
	for i, err := range []error{guarantee, mode, policy} {
		if err == nil || !strings.Contains(err.Error(), "want") {
			t.Errorf("%d: %v", i, err)
		}
	}
	for want, got := range map[string]fmt.Stringer{
		"unknown(9)": connector.Class(9), "outcome-unknown": connector.ClassOutcome, "deterministic": connector.Deterministic,
		"two-phase": connector.TwoPhaseCommit, "warn": connector.Warn, "checked": connector.Checked,
	} {
		if got.String() != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if !(connector.Limits{}).Zero() || (connector.Limits{Labels: []string{}}).Zero() {
		t.Error("no limit is zero, and an empty list of labels is a limit")
	}
}
