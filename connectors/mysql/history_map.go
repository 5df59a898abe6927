package mysql

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/leatdata/leat/format/mybinlog"
)

// kindsOf are the types that the log has for a column's type.
func kindsOf(c *sourceColumn) []mybinlog.Kind { //nolint:cyclop // a case for each type
	switch c.data {
	case "tinyint", "bool", "boolean":
		return []mybinlog.Kind{mybinlog.KindTiny}
	case "smallint":
		return []mybinlog.Kind{mybinlog.KindShort}
	case "mediumint":
		return []mybinlog.Kind{mybinlog.KindInt24}
	case "int", "integer":
		return []mybinlog.Kind{mybinlog.KindLong}
	case "bigint":
		return []mybinlog.Kind{mybinlog.KindLongLong}
	case "float":
		return []mybinlog.Kind{mybinlog.KindFloat}
	case "double", "real":
		return []mybinlog.Kind{mybinlog.KindDouble}
	case "decimal", "numeric":
		return []mybinlog.Kind{mybinlog.KindNewDecimal}
	case "bit":
		return []mybinlog.Kind{mybinlog.KindBit}
	case "year":
		return []mybinlog.Kind{mybinlog.KindYear}
	case "date":
		return []mybinlog.Kind{mybinlog.KindDate}
	case "datetime":
		return []mybinlog.Kind{mybinlog.KindDatetime2, mybinlog.KindDatetime}
	case "timestamp":
		return []mybinlog.Kind{mybinlog.KindTimestamp2, mybinlog.KindTimestamp}
	case "time":
		return []mybinlog.Kind{mybinlog.KindTime2, mybinlog.KindTime}
	case "char", "binary", "uuid", "inet4", "inet6":
		return []mybinlog.Kind{mybinlog.KindString, mybinlog.KindVarString}
	case "varchar", "varbinary":
		return []mybinlog.Kind{mybinlog.KindVarchar, mybinlog.KindVarString, mybinlog.KindVarcharCompressed}
	case "tinytext", "text", "mediumtext", "longtext", "tinyblob", "blob", "mediumblob", "longblob":
		return []mybinlog.Kind{mybinlog.KindBlob, mybinlog.KindBlobCompressed}
	case "enum":
		return []mybinlog.Kind{mybinlog.KindEnum}
	case "set":
		return []mybinlog.Kind{mybinlog.KindSet}
	case "json":
		return []mybinlog.Kind{mybinlog.KindJSON, mybinlog.KindBlob}
	case "vector":
		return []mybinlog.Kind{mybinlog.KindVector, mybinlog.KindVarchar, mybinlog.KindBlob}
	case "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection",
		"geomcollection":
		return []mybinlog.Kind{mybinlog.KindGeometry, mybinlog.KindBlob}
	}
	return nil
}

// blobBytes is how many bytes the length of a large text or blob takes; 0: it is none.
func blobBytes(data string) uint16 {
	switch {
	case strings.HasPrefix(data, "tiny"):
		return 1
	case data == "text", data == "blob":
		return 2
	case strings.HasPrefix(data, "medium"):
		return 3
	case strings.HasPrefix(data, "long"):
		return 4
	}
	return 0
}

// misfit says why a column can't be the one that the log has; empty: it can.
func (c *sourceColumn) misfit(m *mybinlog.MapColumn) string {
	if !slices.Contains(kindsOf(c), m.Kind) {
		return fmt.Sprintf("it is %s here, and of type %d in the log", c.sql, m.Kind)
	}
	other := false
	switch m.Kind { //nolint:exhaustive // all others have nothing to compare
	case mybinlog.KindNewDecimal:
		other = int(m.Meta>>8) != c.precision || int(m.Meta&0xff) != c.scale
	case mybinlog.KindBit:
		other = int(m.Meta>>8)*8+int(m.Meta&0xff) != c.length
	case mybinlog.KindDatetime2, mybinlog.KindTimestamp2, mybinlog.KindTime2:
		other = int(m.Meta) != c.scale
	case mybinlog.KindBlob, mybinlog.KindBlobCompressed:
		n := blobBytes(c.data)
		other = n != 0 && n != m.Meta
	case mybinlog.KindVarchar, mybinlog.KindString:
		other = (c.data == "varbinary" || c.data == "binary") && int(m.Meta) != c.length
	case mybinlog.KindDatetime, mybinlog.KindTimestamp, mybinlog.KindTime:
		other = c.scale > 0 // such of MariaDB have parts of a second in a form that the log does not tell of
	}
	if other {
		return fmt.Sprintf("it is %s here, and has other lengths in the log", c.sql)
	}
	if m.Labels != nil && len(m.Labels) != len(c.labels) {
		return fmt.Sprintf("it has %d labels here, and %d in the log", len(c.labels), len(m.Labels))
	}
	return ""
}

// fit checks a definition against what the log says of a table, and returns it with what the log knows better: signs, character sets, names
// and labels, and whether values may be NULL. It is an error where both are not the same table.
func (d *definition) fit(m *mybinlog.TableMap, collations map[uint16]collation) (*definition, error) {
	if len(m.Columns) != len(d.columns) {
		return nil, fmt.Errorf("it has %d columns here, and %d in the log", len(d.columns), len(m.Columns))
	}
	out := d.clone()
	for i := range out.columns {
		c, l := &out.columns[i], &m.Columns[i]
		if m.Named && l.Name != c.name {
			return nil, fmt.Errorf("column %d is called %q here, and %q in the log", i+1, c.name, l.Name)
		}
		if why := c.misfit(l); why != "" {
			return nil, fmt.Errorf("column %q: %s", c.name, why)
		}
		if err := c.learn(m, l, collations); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// learn takes what the log says of a column that is the same one.
func (c *sourceColumn) learn(m *mybinlog.TableMap, l *mybinlog.MapColumn, collations map[uint16]collation) error {
	c.notNull = !l.Nullable
	if m.Signs && l.Kind.Numeric() && c.unsigned != l.Unsigned {
		return fmt.Errorf("column %q: one of both, the table and the log, has it without a sign", c.name)
	}
	if known, ok := collations[l.Charset]; ok && l.Charset != 0 && c.charset != "" && known.charset != c.charset {
		c.charset, c.collation = known.charset, known.name
	}
	return nil
}

// errUnnamed says that the log does not have what a definition can be made of.
var errUnnamed = errors.New("the log does not have the names of the columns")

// definitionOf makes a definition of what the log says: where the server writes all of it (binlog_row_metadata=FULL). What the log does
// not tell, such as that a text is checked to be JSON, is taken from columns of the same name and kind in like.
func definitionOf(
	rel relation, m *mybinlog.TableMap, like *definition, collations map[uint16]collation, charsets map[string]*charset,
) (*definition, error) {
	if !m.Named {
		return nil, errUnnamed
	}
	d := &definition{rel: rel, columns: make([]sourceColumn, len(m.Columns))}
	for i := range m.Columns {
		l := &m.Columns[i]
		if like != nil {
			if at := like.column(l.Name); at >= 0 && like.columns[at].misfit(l) == "" && like.columns[at].unsigned == l.Unsigned {
				d.columns[i] = like.columns[at]
				d.columns[i].name, d.columns[i].num = l.Name, i+1
				if err := d.columns[i].learn(m, l, collations); err != nil {
					return nil, err
				}
				continue
			}
		}
		sql, err := sqlOf(l, collations, charsets)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", l.Name, err)
		}
		c := declaredColumn(l.Name, sql)
		c.num, c.notNull = i+1, !l.Nullable
		if known, ok := collations[l.Charset]; ok && known.charset != "binary" {
			c.charset, c.collation = known.charset, known.name
		}
		d.columns[i] = c
	}
	for _, at := range m.Key {
		d.key = append(d.key, d.columns[at].name)
	}
	return d, nil
}

// sqlOf is the type of a column that only the log knows.
//
//nolint:cyclop // a case for each kind
func sqlOf(l *mybinlog.MapColumn, collations map[uint16]collation, charsets map[string]*charset) (string, error) {
	sign := ""
	if l.Unsigned {
		sign = " unsigned"
	}
	text := collations[l.Charset].charset != "binary" && l.Charset != 0
	chars := func() int { return int(l.Meta) / maxCharWidth(collations[l.Charset].charset) }
	fraction := ""
	if l.Meta > 0 {
		fraction = fmt.Sprintf("(%d)", l.Meta)
	}
	switch l.Kind { //nolint:exhaustive // all others are an error
	case mybinlog.KindTiny:
		return "tinyint" + sign, nil
	case mybinlog.KindShort:
		return "smallint" + sign, nil
	case mybinlog.KindInt24:
		return "mediumint" + sign, nil
	case mybinlog.KindLong:
		return "int" + sign, nil
	case mybinlog.KindLongLong:
		return "bigint" + sign, nil
	case mybinlog.KindFloat:
		return "float" + sign, nil
	case mybinlog.KindDouble:
		return "double" + sign, nil
	case mybinlog.KindNewDecimal:
		return fmt.Sprintf("decimal(%d,%d)%s", l.Meta>>8, l.Meta&0xff, sign), nil
	case mybinlog.KindBit:
		return fmt.Sprintf("bit(%d)", int(l.Meta>>8)*8+int(l.Meta&0xff)), nil
	case mybinlog.KindYear:
		return "year", nil
	case mybinlog.KindDate:
		return "date", nil
	case mybinlog.KindDatetime2:
		return "datetime" + fraction, nil
	case mybinlog.KindTimestamp2:
		return "timestamp" + fraction, nil
	case mybinlog.KindTime2:
		return "time" + fraction, nil
	case mybinlog.KindJSON:
		return "json", nil
	case mybinlog.KindGeometry:
		return "geometry", nil
	case mybinlog.KindVector:
		return "vector", nil
	case mybinlog.KindEnum, mybinlog.KindSet:
		return labelled(l, charsets[collations[l.Charset].charset])
	case mybinlog.KindVarchar, mybinlog.KindVarString:
		if text {
			return fmt.Sprintf("varchar(%d)", chars()), nil
		}
		return fmt.Sprintf("varbinary(%d)", l.Meta), nil
	case mybinlog.KindString:
		if text {
			return fmt.Sprintf("char(%d)", chars()), nil
		}
		return fmt.Sprintf("binary(%d)", l.Meta), nil
	case mybinlog.KindBlob:
		sort := map[bool]string{true: "text", false: "blob"}[text]
		return [...]string{"", "tiny", "", "medium", "long"}[min(l.Meta, 4)] + sort, nil
	}
	return "", fmt.Errorf("a column of type %d, of which the log does not tell more", l.Kind)
}

// labelled is the type of an ENUM or SET with the labels that the log has, which are in the character set of the column.
func labelled(l *mybinlog.MapColumn, cs *charset) (string, error) {
	labels := make([]string, len(l.Labels))
	for i, raw := range l.Labels {
		text := raw
		if cs != nil {
			var ok bool
			if text, ok = cs.decode(nil, raw); !ok {
				return "", errors.New("a label is no text of the column's character set")
			}
		}
		labels[i] = "'" + strings.NewReplacer(`\`, `\\`, "'", "''").Replace(string(text)) + "'"
	}
	name := "enum"
	if l.Kind == mybinlog.KindSet {
		name = "set"
	}
	return name + "(" + strings.Join(labels, ",") + ")", nil
}
