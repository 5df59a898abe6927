package transform

import (
	"errors"
	"fmt"
	"path"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// Kind is one kind of transform that a pipeline file may name.
type Kind struct {
	Name    string
	Doc     string
	Example string
	build   func(args any) (Step, error)
}

// Kinds lists the transforms, in the order in which the documentation has them.
func Kinds() []Kind {
	return []Kind{
		{
			"select", "Keeps the named columns, in this order.", "select: [id, name]",
			listOf(func(c []string) (Step, error) { return Select(c...), nil }),
		},
		{
			"drop", "Leaves the named columns out.", "drop: [password]",
			listOf(func(c []string) (Step, error) { return Drop(c...), nil }),
		},
		{
			"rename", "Gives columns new names.", "rename: {old: new}",
			mapOf(func(m map[string]string) (Step, error) { return Rename(m), nil }),
		},
		{"cast", "Turns columns into other types.", "cast: {amount: 'decimal(12,2)'}", mapOf(Cast)},
		{
			"set", "Adds or replaces columns: a constant, or an expression over the other columns.",
			"set: {total: {expr: 'price * qty', type: float64}}", newSet,
		},
		{"filter", "Keeps the rows for which an expression is true.", "filter: 'amount > 0 and status != \"void\"'", newFilter},
		{"hash", "Replaces values by their HMAC-SHA256 under a key.", "hash: {columns: [email], key: '${env:HASH_KEY}'}", newHash},
		{"mask", "Replaces all but the last characters with stars.", "mask: {columns: [phone], keep: 4}", newMask},
		{
			"key", "Makes the named columns the key.", "key: [id]",
			listOf(func(c []string) (Step, error) { return Key(c...), nil }),
		},
		{
			"route", "Gives datasets other names.", "route: {public.orders: sales.orders}",
			mapOf(func(m map[string]string) (Step, error) { return Route(m), nil }),
		},
	}
}

// Names lists the names of all kinds.
func Names() []string {
	kinds := Kinds()
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.Name
	}
	return names
}

// New builds a step from a pipeline file: the kind's name and its arguments as plain values (text, numbers, []any, map[string]any).
func New(kind string, args any) (Step, error) {
	for _, k := range Kinds() {
		if k.Name != kind {
			continue
		}
		s, err := k.build(args)
		if err != nil {
			return nil, fmt.Errorf("%s: %w (as in `%s`)", kind, err, k.Example)
		}
		return s, nil
	}
	return nil, connector.UnknownName("transform", kind, Names())
}

func listOf(f func([]string) (Step, error)) func(any) (Step, error) {
	return func(args any) (Step, error) {
		list, err := texts(args)
		if err != nil {
			return nil, err
		}
		return f(list)
	}
}

func mapOf(f func(map[string]string) (Step, error)) func(any) (Step, error) {
	return func(args any) (Step, error) {
		m, ok := args.(map[string]any)
		if !ok || len(m) == 0 {
			return nil, errors.New("want a map of names")
		}
		out := make(map[string]string, len(m))
		for k, v := range m {
			s, err := text(v)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", k, err)
			}
			out[k] = s
		}
		return f(out)
	}
}

func text(v any) (string, error) {
	switch v := v.(type) {
	case nil, []any, map[string]any:
		return "", errors.New("want text")
	default:
		return fmt.Sprint(v), nil
	}
}

func texts(args any) ([]string, error) {
	list, ok := args.([]any)
	if !ok {
		list = []any{args}
	}
	out := make([]string, len(list))
	for i, v := range list {
		s, err := text(v)
		if err != nil {
			return nil, errors.New("want a list of names")
		}
		out[i] = s
	}
	if len(out) == 0 {
		return nil, errors.New("want a list of at least one name")
	}
	return out, nil
}

func newFilter(args any) (Step, error) {
	code, err := text(args)
	if err != nil {
		return nil, errors.New("want an expression")
	}
	return Filter(code)
}

func newSet(args any) (Step, error) {
	m, ok := args.(map[string]any)
	if !ok || len(m) == 0 {
		return nil, errors.New("want a map of column to value")
	}
	var cols []Computed
	for _, name := range sortedKeys(m) {
		c, err := computed(name, m[name])
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", name, err)
		}
		cols = append(cols, c)
	}
	return Set(cols)
}

func computed(name string, v any) (Computed, error) {
	switch v := v.(type) {
	case map[string]any:
		if err := onlyKeys(v, "expr", "type"); err != nil {
			return Computed{}, err
		}
		code, err := text(v["expr"])
		if err != nil {
			return Computed{}, errors.New("want {expr: …}")
		}
		c := Computed{Column: name, Expr: code}
		if t, ok := v["type"]; ok {
			c.Type = fmt.Sprint(t)
		}
		return c, nil
	case string:
		return Computed{Column: name, Expr: fmt.Sprintf("%q", v), Type: "string"}, nil
	default:
		s, err := text(v)
		return Computed{Column: name, Expr: s}, err
	}
}

func onlyKeys(m map[string]any, known ...string) error {
	for _, k := range sortedKeys(m) {
		ok := false
		for _, n := range known {
			ok = ok || n == k
		}
		if !ok {
			return connector.UnknownName("key", k, known)
		}
	}
	return nil
}

func newHash(args any) (Step, error) {
	m, ok := args.(map[string]any)
	if !ok {
		return nil, errors.New("want columns and a key")
	}
	if err := onlyKeys(m, "columns", "key"); err != nil {
		return nil, err
	}
	cols, err := texts(m["columns"])
	if err != nil {
		return nil, fmt.Errorf("columns: %w", err)
	}
	key, err := text(m["key"])
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	return Hash(cols, key)
}

func newMask(args any) (Step, error) {
	m, ok := args.(map[string]any)
	if !ok {
		cols, err := texts(args)
		return Mask(cols, 0), err
	}
	if err := onlyKeys(m, "columns", "keep"); err != nil {
		return nil, err
	}
	cols, err := texts(m["columns"])
	if err != nil {
		return nil, fmt.Errorf("columns: %w", err)
	}
	keep := 0
	if v, ok := m["keep"]; ok {
		if _, err := fmt.Sscan(fmt.Sprint(v), &keep); err != nil || keep < 0 {
			return nil, fmt.Errorf("keep: %v is no number of characters", v)
		}
	}
	return Mask(cols, keep), nil
}

// Only narrows a step to the datasets whose names match one of the patterns (* and ? as in file names); all others pass as they are.
func Only(patterns []string, s Step) Step { return &only{patterns: patterns, step: s} }

type only struct {
	patterns []string
	step     Step
}

func (o *only) matches(dataset string) bool {
	for _, p := range o.patterns {
		if ok, err := path.Match(p, dataset); ok && err == nil {
			return true
		}
	}
	return false
}

// Schema implements Step.
func (o *only) Schema(in *record.Schema) (*record.Schema, error) {
	if !o.matches(in.Dataset) {
		return in, nil
	}
	return o.step.Schema(in)
}

// Apply implements Step.
func (o *only) Apply(b *record.Batch) (*record.Batch, error) {
	if !o.matches(b.Schema.Dataset) {
		return b, nil
	}
	return o.step.Apply(b)
}
