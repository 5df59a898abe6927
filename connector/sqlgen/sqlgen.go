package sqlgen

import "strings"

// Ident returns a quoted identifier of standard SQL: "name", with quotes inside doubled.
func Ident(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// Idents returns quoted identifiers with commas between.
func Idents(names []string) string {
	return Join(names, ", ", Ident)
}

// Literal returns a quoted string of standard SQL, for the places where a statement takes no parameter. Values never go this way.
func Literal(text string) string { return `'` + strings.ReplaceAll(text, `'`, `''`) + `'` }

// Join returns f of every name, with sep between.
func Join(names []string, sep string, f func(string) string) string {
	parts := make([]string, len(names))
	for i, n := range names {
		parts[i] = f(n)
	}
	return strings.Join(parts, sep)
}

// Marks returns n question marks with commas between.
func Marks(n int) string {
	if n <= 0 {
		return ""
	}
	return strings.Repeat("?, ", n-1) + "?"
}

// Equals returns a condition that the named columns equal one parameter each: "a" = ? AND "b" = ?.
func Equals(names []string) string {
	return Join(names, " AND ", func(n string) string { return Ident(n) + " = ?" })
}
