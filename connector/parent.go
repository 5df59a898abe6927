package connector

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// ParentText puts the values of a parent record into the text of one option: it replaces every placeholder by what value returns for its
// name, in a form that is safe where it stands. It says what it can't do with errors that name the placeholder, and never show a value.
type ParentText func(text string, value func(name string) (any, error)) (string, error)

const parentMark = "${parent."

// ResolveParent resolves the placeholders ${parent.NAME} in the options of a child source (S20). cfg is a pointer to its configuration,
// parent the values of the parent record (nil: the source is a root, and has none), and how says for each option that may have
// placeholders how values are put into it. It is called by Open, on a copy: identity and contract are those of the configuration as it was
// written, for all parents. Everything that is wrong is said at once, as errors of class ClassConfig.
func ResolveParent(cfg any, parent map[string]any, how map[string]ParentText) error {
	v := reflect.ValueOf(cfg).Elem()
	var errs []error
	for _, o := range Options(cfg) {
		f := v.FieldByIndex(o.index)
		if !mentionsParent(f) {
			continue
		}
		text, err := resolveOption(o.Name, f, parent, how[o.Name])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		f.SetString(text)
	}
	return errors.Join(errs...)
}

// mentionsParent reports whether a text, or one of a list or a map, has a placeholder.
func mentionsParent(f reflect.Value) bool {
	switch f.Kind() {
	case reflect.String:
		return strings.Contains(f.String(), parentMark)
	case reflect.Slice:
		for i := range f.Len() {
			if mentionsParent(f.Index(i)) {
				return true
			}
		}
	case reflect.Map:
		for _, k := range f.MapKeys() {
			if mentionsParent(k) || mentionsParent(f.MapIndex(k)) {
				return true
			}
		}
	default:
	}
	return false
}

func resolveOption(name string, f reflect.Value, parent map[string]any, put ParentText) (string, error) {
	fail := func(code, hint string, err error) error {
		return &Error{Class: ClassConfig, Code: code, Doing: fmt.Sprintf("resolving ${parent.…} in option %q", name), Err: err, Hint: hint}
	}
	switch {
	case put == nil || f.Kind() != reflect.String:
		return "", fail("parent.option", "write the value itself", errors.New("values of a parent record can't be used there"))
	case parent == nil:
		return "", fail("parent.none", "write the value itself: only a source that is read for each record of another one has a parent",
			errors.New("this source has no parent record"))
	}
	text, err := put(f.String(), func(name string) (any, error) {
		if value, ok := parent[name]; ok {
			return value, nil
		}
		return nil, UnknownName("value of the parent record", name, slices.Collect(maps.Keys(parent)))
	})
	if err != nil {
		return "", fail("parent.value", "", err)
	}
	return text, nil
}

// ReplaceParents helps to write a [ParentText]: it replaces every placeholder of a text by what put makes of its value. put also gets the
// text that stands before, as far as the previous placeholder. Errors name the placeholder.
func ReplaceParents(
	text string, value func(name string) (any, error), put func(before string, v any) (string, error),
) (string, error) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, parentMark)
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		name, rest, closed := strings.Cut(rest, "}")
		if !closed || name == "" {
			return "", errors.New("a placeholder is written ${parent.NAME}")
		}
		v, err := value(name)
		if err != nil {
			return "", err
		}
		s, err := put(before, v)
		if err != nil {
			return "", fmt.Errorf("${parent.%s}: %w", name, err)
		}
		out.WriteString(s)
		text = rest
	}
}

// ParentPath is the ParentText of paths and patterns of files: a value is one part of a path or a piece of one. It can't lead elsewhere,
// and is no pattern itself.
func ParentPath(text string, value func(name string) (any, error)) (string, error) {
	return ReplaceParents(text, value, func(_ string, v any) (string, error) { return pathPart(v) })
}

// pathPart is a value as part of a path.
func pathPart(v any) (string, error) {
	switch v.(type) {
	case string, bool, int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64, fmt.Stringer:
	case nil:
		return "", errors.New("the value is null")
	default:
		return "", fmt.Errorf("a value of type %T has no place in a path", v)
	}
	s := fmt.Sprint(v)
	switch {
	case s == "":
		return "", errors.New("the value is empty")
	case strings.ContainsAny(s, "/\\*?[]{}\x00") || strings.Contains(s, ".."):
		return "", errors.New(`the value has one of / \ * ? [ ] { } .. in it, which mean something in a path`)
	}
	return s, nil
}
