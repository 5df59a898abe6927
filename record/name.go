package record

import "strings"

// JoinName makes a dataset name of its parts, outermost first: JoinName("public", "orders") is public.orders. A part that
// contains a dot or a double quote is quoted, so that [SplitName] gets the same parts back. Empty parts are left out.
func JoinName(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		if p == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		if strings.ContainsAny(p, `."`) {
			b.WriteString(`"` + strings.ReplaceAll(p, `"`, `""`) + `"`)
			continue
		}
		b.WriteString(p)
	}
	return b.String()
}

// SplitName takes a dataset name apart into the parts that [JoinName] was given.
func SplitName(name string) []string {
	var parts []string
	for {
		if !strings.HasPrefix(name, `"`) {
			part, rest, more := strings.Cut(name, ".")
			parts = append(parts, part)
			if !more {
				return parts
			}
			name = rest
			continue
		}
		part, rest := unquote(name)
		parts = append(parts, part)
		if !strings.HasPrefix(rest, ".") {
			return parts
		}
		name = rest[1:]
	}
}

func unquote(s string) (part, rest string) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		if s[i] != '"' {
			b.WriteByte(s[i])
			continue
		}
		if i+1 < len(s) && s[i+1] == '"' {
			b.WriteByte('"')
			i++
			continue
		}
		return b.String(), s[i+1:]
	}
	return b.String(), ""
}
