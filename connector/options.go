package connector

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Option is one option of a connector, read from the exported fields of its configuration struct. The struct tags are
//
//	Table string `leat:"table,required" doc:"the table to read" example:"public.orders" enum:"a|b"`
//
// A field without a leat tag is no option. The default is the value that the definition's constructor left in the field. Field
// types: string, Secret, bool, int, int64, float64, time.Duration, []string, map[string]string, and anything that is an
// encoding.TextUnmarshaler.
type Option struct {
	Name     string
	Doc      string
	Example  string
	Enum     []string
	Type     string // string, secret, bool, int, float, duration, list, map
	Default  string // empty: none
	Required bool

	index []int
}

// Options lists the options of a configuration, in the order of its fields; embedded structs are part of it.
func Options(cfg any) []Option {
	v := reflect.ValueOf(cfg)
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	return appendOptions(nil, v, nil)
}

func appendOptions(opts []Option, v reflect.Value, at []int) []Option {
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		index := append(slices.Clone(at), i)
		if f.Anonymous && f.Type.Kind() == reflect.Struct {
			opts = appendOptions(opts, v.Field(i), index)
			continue
		}
		tag, ok := f.Tag.Lookup("leat")
		if !ok {
			continue
		}
		name, flags, _ := strings.Cut(tag, ",")
		o := Option{
			Name: name, Doc: f.Tag.Get("doc"), Example: f.Tag.Get("example"), Type: optionType(f.Type),
			Required: flags == "required", Default: defaultText(v.Field(i)), index: index,
		}
		if e := f.Tag.Get("enum"); e != "" {
			o.Enum = strings.Split(e, "|")
		}
		opts = append(opts, o)
	}
	return opts
}

func optionType(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[Secret]():
		return "secret"
	case t == reflect.TypeFor[time.Duration]():
		return "duration"
	case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		return "string"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "bool"
	case reflect.Int, reflect.Int64:
		return "int"
	case reflect.Float64:
		return "float"
	case reflect.Slice:
		return "list"
	case reflect.Map:
		return "map"
	default:
		return "string"
	}
}

func defaultText(v reflect.Value) string {
	if v.IsZero() {
		return ""
	}
	switch v.Kind() {
	case reflect.Slice:
		parts := make([]string, v.Len())
		for i := range parts {
			parts[i] = fmt.Sprint(v.Index(i).Interface())
		}
		return strings.Join(parts, ",")
	default:
		return fmt.Sprint(v.Interface())
	}
}

// SetOption sets one option of a configuration (a pointer to its struct) from a value of a YAML document or a URL's query: text,
// or the option's own kind. An unknown name is an error that names the nearest right one.
func SetOption(cfg any, name string, value any) error {
	v := reflect.ValueOf(cfg).Elem()
	opts := Options(cfg)
	i := slices.IndexFunc(opts, func(o Option) bool { return o.Name == name })
	if i < 0 {
		names := make([]string, len(opts))
		for j, o := range opts {
			names[j] = o.Name
		}
		return UnknownName("option", name, names)
	}
	if err := setField(v.FieldByIndex(opts[i].index), opts[i], value); err != nil {
		return fmt.Errorf("option %q: %w", name, err)
	}
	return nil
}

// SetOptions sets several options and reports everything that is wrong at once, in the order of the names.
func SetOptions(cfg any, values map[string]string) error {
	names := make([]string, 0, len(values))
	for n := range values {
		names = append(names, n)
	}
	slices.Sort(names)
	var errs []error
	for _, n := range names {
		errs = append(errs, SetOption(cfg, n, values[n]))
	}
	return errors.Join(errs...)
}

func setField(f reflect.Value, o Option, value any) error {
	if value == nil {
		return fmt.Errorf("it has no value: want a %s", o.Type)
	}
	if f.Kind() == reflect.Slice || f.Kind() == reflect.Map {
		return setMany(f, value)
	}
	if o.Enum != nil && !slices.Contains(o.Enum, fmt.Sprint(value)) {
		return fmt.Errorf("%q is none of %s", fmt.Sprint(value), strings.Join(o.Enum, ", "))
	}
	if isComposite(value) {
		return fmt.Errorf("want one %s", o.Type)
	}
	text := fmt.Sprint(value)
	if u, ok := reflect.TypeAssert[encoding.TextUnmarshaler](f.Addr()); ok {
		return u.UnmarshalText([]byte(text))
	}
	if f.Type() == reflect.TypeFor[time.Duration]() {
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is no duration: want a number with a unit, such as 30s or 5m", text)
		}
		f.SetInt(int64(d))
		return nil
	}
	return setScalar(f, text)
}

func isComposite(v any) bool {
	if v == nil {
		return true // nothing is no value either
	}
	k := reflect.TypeOf(v).Kind()
	return k == reflect.Slice || k == reflect.Map
}

func setScalar(f reflect.Value, text string) error {
	switch f.Kind() {
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is no boolean: want true or false", text)
		}
		f.SetBool(b)
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("%q is no whole number", text)
		}
		f.SetInt(n)
	case reflect.Float64:
		x, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("%q is no number", text)
		}
		f.SetFloat(x)
	case reflect.String:
		f.SetString(text)
	default:
		return fmt.Errorf("options of type %s are not supported", f.Type())
	}
	return nil
}

func setMany(f reflect.Value, value any) error {
	if text, ok := value.(string); ok {
		return setManyText(f, text)
	}
	v := reflect.ValueOf(value)
	switch {
	case v.Kind() != f.Kind() && v.Kind() == reflect.Slice:
		return errors.New("want a map, not a list")
	case v.Kind() != f.Kind() && v.Kind() == reflect.Map:
		return errors.New("want a list, not a map")
	case v.Kind() != f.Kind():
		return fmt.Errorf("want a %s or comma-separated text, not %v", optionType(f.Type()), value)
	case v.Kind() == reflect.Slice:
		list := make([]string, v.Len())
		for i := range list {
			e := v.Index(i).Interface()
			if isComposite(e) {
				return fmt.Errorf("element %d: want one text", i+1)
			}
			list[i] = fmt.Sprint(e)
		}
		f.Set(reflect.ValueOf(list))
		return nil
	}
	m := make(map[string]string, v.Len())
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	for _, k := range keys {
		e := v.MapIndex(k).Interface()
		if isComposite(e) {
			return fmt.Errorf("entry %q: want one text", fmt.Sprint(k))
		}
		m[fmt.Sprint(k)] = fmt.Sprint(e)
	}
	f.Set(reflect.ValueOf(m))
	return nil
}

// setManyText reads comma-separated text; the empty text is the empty list.
func setManyText(f reflect.Value, text string) error {
	switch {
	case text == "":
		f.SetZero()
	case f.Kind() == reflect.Map:
		return setPairs(f, splitPairs(text))
	default:
		f.Set(reflect.ValueOf(strings.Split(text, ",")))
	}
	return nil
}

// splitPairs splits at commas outside of brackets, so that a value may be decimal(12,2).
func splitPairs(s string) []string {
	var parts []string
	depth, start := 0, 0
	for i, c := range s {
		switch c {
		case '(', '<':
			depth++
		case ')', '>':
			depth--
		case ',':
			if depth <= 0 {
				parts = append(parts, s[start:i])
				start = i + 1
			}
		}
	}
	return append(parts, s[start:])
}

// setPairs reads name:value pairs, as a query has them.
func setPairs(f reflect.Value, pairs []string) error {
	m := make(map[string]string, len(pairs))
	for _, p := range pairs {
		k, v, ok := strings.Cut(p, ":")
		if !ok {
			return fmt.Errorf("%q: want name:value pairs with commas between", p)
		}
		m[k] = v
	}
	f.Set(reflect.ValueOf(m))
	return nil
}

// UnknownName is the error for a name that is not one of a list: it says which one was probably meant.
func UnknownName(what, name string, known []string) error {
	best, distance := "", len(name)/2+2
	for _, k := range known {
		if d := editDistance(name, k); d < distance {
			best, distance = k, d
		}
	}
	if best != "" {
		return fmt.Errorf("unknown %s %q: did you mean %q?", what, name, best)
	}
	sorted := slices.Sorted(slices.Values(known))
	return fmt.Errorf("unknown %s %q: known are %s", what, name, strings.Join(sorted, ", "))
}

// editDistance counts the insertions, deletions and replacements between two names.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(diagonal+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
