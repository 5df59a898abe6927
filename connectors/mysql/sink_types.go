package mysql

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// newTable is a table that is to be made.
type newTable struct {
	at      relation
	columns []tableColumn
	key     []string
	collate string
	stamps  bool
}

// statement returns the SQL that makes the table.
func (t newTable) statement() string {
	lines := make([]string, 0, len(t.columns)+1)
	for _, c := range t.columns {
		lines = append(lines, c.definition(t.stamps))
	}
	if len(t.key) > 0 {
		lines = append(lines, "PRIMARY KEY ("+idents(t.key)+")")
	}
	return fmt.Sprintf("CREATE TABLE %s (\n\t%s\n) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE %s ROW_FORMAT=DYNAMIC",
		t.at, strings.Join(lines, ",\n\t"), t.collate)
}

// definition is the column as a statement declares it. stamps: the server gives TIMESTAMP columns no properties of their own.
func (c *tableColumn) definition(stamps bool) string {
	sql := ident(c.name) + " " + c.declared()
	switch {
	case !c.notNull:
		return sql + " NULL"
	case c.form == formTimestamp && !stamps: // otherwise it would change with each update
		return fmt.Sprintf("%s NOT NULL DEFAULT CURRENT_TIMESTAMP(%d)", sql, c.scale)
	}
	return sql + " NOT NULL"
}

// declared is the type with its character set.
func (c *tableColumn) declared() string {
	if c.checked {
		return "json"
	}
	return c.native()
}

// design decides how a table for the schema looks.
func (s *session) design(ctx context.Context, schema *record.Schema, at relation, instants string) (newTable, error) {
	t := newTable{at: at, key: schema.KeyNames(), collate: s.exactCollation(), stamps: s.stamps}
	room, err := keyRoom(schema)
	if err != nil {
		return t, err
	}
	for i, f := range schema.Columns.Fields() {
		rt, err := record.TypeOf(f.Type)
		if err != nil {
			return t, fmt.Errorf("column %q: %w", f.Name, err)
		}
		isKey := slices.Contains(schema.Key, i)
		c, ok, err := s.sameType(ctx, f, rt, isKey)
		if err != nil {
			return t, err
		}
		if !ok {
			c = s.chooseType(rt, instants, isKey, room)
		}
		c.name, c.notNull = f.Name, !f.Nullable || isKey
		t.columns = append(t.columns, c)
	}
	return t, nil
}

// maxKeyBytes is how long the values of an index may be, in all.
const maxKeyBytes = 3072

// keyRoom is how many bytes each part of the key may have whose length is not bounded.
func keyRoom(schema *record.Schema) (int, error) {
	const number = 32 // more than any number takes
	left, open := maxKeyBytes, 0
	for _, k := range schema.Key {
		rt, err := record.TypeOf(schema.Columns.Field(k).Type)
		if err != nil {
			return 0, fmt.Errorf("column %q: %w", schema.Columns.Field(k).Name, err)
		}
		longest, bounded := textLength(rt)
		switch {
		case rt.Kind == record.Binary && rt.Width > 0:
			left -= rt.Width
		case bounded:
			left -= max(longest, number)
		default:
			open++
		}
	}
	return max(left, 0) / max(open, 1), nil
}

// simpleType is the type of a kind without parameters.
func simpleType(k record.Kind) string {
	return map[record.Kind]string{
		record.Bool: "tinyint(1)", record.Int8: "tinyint", record.Int16: "smallint", record.Int32: "int", record.Int64: "bigint",
		record.Uint8: "tinyint unsigned", record.Uint16: "smallint unsigned", record.Uint32: "int unsigned",
		record.Uint64: "bigint unsigned", record.Float32: "float", record.Float64: "double", record.Date: "date",
	}[k]
}

// Limits of decimals.
const (
	maxPrecision = 65
	maxScale     = 30
)

// chooseType returns the type of a new column: the narrowest one that holds every value of t, or what comes nearest.
func (s *session) chooseType(t record.Type, instants string, isKey bool, room int) tableColumn {
	digits := min(fractionDigits(t.Unit), 6)
	if sql := simpleType(t.Kind); sql != "" {
		return parseType(sql)
	}
	switch t.Kind {
	case record.Decimal, record.Numeric:
		return parseType(decimalSQL(t))
	case record.Time:
		return parseType(fmt.Sprintf("time(%d)", digits))
	case record.Timestamp:
		if t.Zoned && instants != instantsDateTime {
			return parseType(fmt.Sprintf("timestamp(%d)", digits))
		}
		return parseType(fmt.Sprintf("datetime(%d)", digits))
	case record.Binary:
		return parseType(binarySQL(t, isKey, room))
	case record.Bits:
		const widest = 64
		if !t.Varying && t.Width > 0 && t.Width <= widest {
			return parseType(fmt.Sprintf("bit(%d)", t.Width))
		}
	case record.Enum:
		if sql, ok := enumSQL(t.Labels); ok {
			return s.text(sql)
		}
	case record.JSON, record.Array, record.List, record.Struct, record.Map:
		if s.server.mariadb && !isKey { // there it is a checked text
			c := s.text("longtext")
			c.checked, c.form = true, formJSON
			return c
		}
	default:
	}
	if longest, bounded := textLength(t); bounded {
		c := parseType(fmt.Sprintf("varchar(%d)", max(longest, 1)))
		c.charset, c.collation = "ascii", "ascii_bin"
		return c
	}
	if isKey {
		const widest = 4 // bytes of a character
		return s.text(fmt.Sprintf("varchar(%d)", max(room/widest, 1)))
	}
	return s.text("longtext")
}

// text is a type with characters, none of which are equal to others.
func (s *session) text(sql string) tableColumn {
	c := parseType(sql)
	c.charset, c.collation = "utf8mb4", s.exactCollation()
	return c
}

func decimalSQL(t record.Type) string {
	precision, scale := t.Precision, t.Scale
	if scale < 0 {
		precision, scale = precision-scale, 0
	}
	if t.Kind == record.Numeric || precision > maxPrecision || scale > maxScale || scale > precision {
		return fmt.Sprintf("decimal(%d,%d)", maxPrecision, maxScale)
	}
	return fmt.Sprintf("decimal(%d,%d)", precision, scale)
}

func binarySQL(t record.Type, isKey bool, room int) string {
	const widest = 255 // bytes of binary(n)
	switch {
	case t.Width > 0 && t.Width <= widest:
		return fmt.Sprintf("binary(%d)", t.Width)
	case isKey:
		return fmt.Sprintf("varbinary(%d)", max(room, t.Width, 1))
	}
	return "longblob"
}

// enumSQL is the type of these labels; false: the server would change one of them, or has no room for them.
func enumSQL(labels []string) (string, bool) {
	const most, longest = 1000, 255
	if len(labels) == 0 || len(labels) > most {
		return "", false
	}
	quoted := make([]string, len(labels))
	for i, l := range labels {
		if utf8.RuneCountInString(l) > longest || strings.HasSuffix(l, " ") || strings.ContainsRune(l, 0) {
			return "", false
		}
		quoted[i] = literal(l)
	}
	return "enum(" + strings.Join(quoted, ",") + ")", true
}

// typeParts are the name of a type, its parameters, and what stands behind them.
var typeParts = regexp.MustCompile(`(?is)^([a-z0-9_]+)(?:\((.*)\))?(.*)$`)

// parseType makes a column of a type as the catalogue writes it.
func parseType(sql string) tableColumn {
	c := tableColumn{sourceColumn: sourceColumn{sql: sql}}
	m := typeParts.FindStringSubmatch(sql)
	if m == nil {
		return c
	}
	c.data = strings.ToLower(m[1])
	c.unsigned = strings.Contains(strings.ToLower(m[3]), "unsigned")
	first, second, _ := strings.Cut(m[2], ",")
	n, _ := strconv.Atoi(strings.TrimSpace(first)) // labels are no number
	switch c.data {
	case "decimal":
		c.precision = n
		c.scale, _ = strconv.Atoi(strings.TrimSpace(second))
	case "time", "datetime", "timestamp":
		c.scale = n
	case "char", "varchar", "binary", "varbinary", "bit":
		c.length = max(n, 1)
	case "enum", "set":
		c.labels = parseLabels(sql)
	}
	_ = c.carry(readOptions{zero: zeroText}) // without options it can't fail
	return c
}

// nativeParts are a type as a source of this package names it: with its character set.
var nativeParts = regexp.MustCompile(`(?is)^(.*?)(?: CHARACTER SET (\w+))?(?: COLLATE (\w+))?$`)

// sameType returns the very type that a column comes from, where the server has it. A character set or collation that it does not know
// becomes one that holds all characters.
func (s *session) sameType(ctx context.Context, f arrow.Field, t record.Type, isKey bool) (tableColumn, bool, error) {
	native := record.NativeOf(f)
	if native.System != systemName || native.Type == "" {
		return tableColumn{}, false, nil
	}
	m := nativeParts.FindStringSubmatch(native.Type)
	c := parseType(m[1])
	if m[2] != "" {
		known, err := s.knows(ctx, m[2], m[3])
		if err != nil {
			return c, false, err
		}
		if known {
			c.charset, c.collation = m[2], m[3]
		} else {
			c.charset, c.collation = "utf8mb4", s.exactCollation()
		}
	}
	if c.data == "json" && s.server.mariadb {
		name := c.name
		c = s.text("longtext")
		c.name, c.checked, c.form = name, true, formJSON
		c.collation = "utf8mb4_bin" // what the alias json stands for
	}
	keyable := !isKey || !slices.Contains([]string{"json", "geometry"}, c.data) && !strings.HasSuffix(c.data, "text") &&
		!strings.HasSuffix(c.data, "blob")
	return c, keyable && s.has(c) && readsAs(c, t), nil
}

// has reports whether the server has a type. Of those that not all of them have.
func (s *session) has(c tableColumn) bool {
	const uuidSince, inet6Since, inet4Since = 100_700, 100_500, 101_000
	switch c.data {
	case "uuid":
		return s.server.mariadb && s.server.number >= uuidSince
	case "inet6":
		return s.server.mariadb && s.server.number >= inet6Since
	case "inet4":
		return s.server.mariadb && s.server.number >= inet4Since
	}
	return c.form != formForeign && c.form != formVector
}

// knows reports whether the server has a character set and collation.
func (s *session) knows(ctx context.Context, charset, collation string) (bool, error) {
	if s.collations == nil {
		s.collations = map[string]bool{}
	}
	name := charset + " " + collation
	if known, ok := s.collations[name]; ok {
		return known, nil
	}
	sql := "SELECT CONVERT('' USING " + charset + ")"
	if collation != "" {
		sql += " COLLATE " + collation
	}
	_, err := s.run(ctx, "types", sql)
	if _, ok := serverErrorOf(err); !ok && err != nil {
		return false, err
	}
	s.collations[name] = err == nil
	return err == nil, nil
}

// sinkRules are the rows of the mapping table for writing: which type is made for each type of the vocabulary.
func sinkRules() []connector.TypeRule {
	write := func(native string, k record.Kind, f connector.Fidelity, note string) connector.TypeRule {
		return connector.TypeRule{Native: native, Kind: k, Write: true, Fidelity: f, Note: note}
	}
	const exact, checked = connector.Exact, connector.Checked
	return []connector.TypeRule{
		write("tinyint(1)", record.Bool, exact, "0 and 1"),
		write("tinyint", record.Int8, exact, ""),
		write("smallint", record.Int16, exact, ""),
		write("int", record.Int32, exact, ""),
		write("bigint", record.Int64, exact, ""),
		write("tinyint unsigned", record.Uint8, exact, ""),
		write("smallint unsigned", record.Uint16, exact, ""),
		write("int unsigned", record.Uint32, exact, ""),
		write("bigint unsigned", record.Uint64, exact, ""),
		write("float", record.Float32, checked, "no NaN, no infinities"),
		write("double", record.Float64, checked, "no NaN, no infinities"),
		write("decimal(p,s)", record.Decimal, exact, "more than 65 digits, or 30 behind the point, are refused row by row"),
		write("decimal(65,30)", record.Numeric, checked, "35 digits in front of the point, 30 behind it; no NaN, no infinities"),
		write("longtext", record.String, exact, "equal only where all characters are; in a key varchar, as the index has room"),
		write("binary(n), longblob", record.Binary, exact, "in a key: varbinary"),
		write("varchar(36), or uuid where it comes from one", record.UUID, exact, "MariaDB's type uuid does not take every value"),
		write("json (MariaDB), longtext", record.JSON, exact, "byte for byte, which MySQL's own type json is not"),
		write("enum, or longtext where labels are unknown", record.Enum, exact, ""),
		write("bit(n) up to 64, varchar, longtext", record.Bits, exact, ""),
		write("varchar(64)", record.Network, exact, ""),
		write("longtext", record.Foreign, exact, "in the text form of the system that has the type"),
		write("date", record.Date, checked, "years 1 to 9999"),
		write("time", record.Time, checked, "no digits below a microsecond"),
		write("datetime", record.Timestamp, checked, "without a zone: years 1 to 9999, no digits below a microsecond"),
		write("timestamp, or datetime in UTC (instants=datetime)", record.Timestamp, checked, "1970 to 2038, or years 1 to 9999"),
		write("varchar(64), time where it comes from one", record.Duration, exact, ""),
		write("varchar(64)", record.Interval, exact, ""),
		write("json (MariaDB), longtext", record.Array, exact, "as JSON"),
		write("json (MariaDB), longtext; set where it comes from one", record.List, exact, "as JSON"),
		write("json (MariaDB), longtext", record.Struct, exact, "as JSON"),
		write("json (MariaDB), longtext", record.Map, exact, "as JSON, an array of pairs"),
	}
}
