package mysql

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"
)

// collation is a collation of the server.
type collation struct{ name, charset string }

// readCollations returns the server's collations by number.
func readCollations(ctx context.Context, q querier, srv server) (map[uint16]collation, error) {
	sql := "SELECT COLLATION_NAME, CHARACTER_SET_NAME, ID FROM information_schema.COLLATIONS"
	if srv.mariadb && srv.number >= sharedCollations {
		sql = "SELECT FULL_COLLATION_NAME, CHARACTER_SET_NAME, ID FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY"
	}
	rows, err := ask(ctx, q, sql)
	if err != nil {
		return nil, err
	}
	out := make(map[uint16]collation, len(rows))
	for _, r := range rows {
		out[uint16(toUint(r[2]))] = collation{name: string(r[0]), charset: string(r[1])}
	}
	return out, nil
}

// sharedCollations is the version of MariaDB from which on one collation may be of several character sets, each with a number of its own.
const sharedCollations = 101001

// column is a column of a query's result, as far as its description tells.
func (c wireColumn) column(collations map[uint16]collation) sourceColumn {
	out := sourceColumn{
		name: c.name, unsigned: c.flags&mysql.UNSIGNED_FLAG != 0, notNull: c.flags&mysql.NOT_NULL_FLAG != 0,
		scale: int(c.decimals), length: int(c.length),
	}
	coll := collations[c.charset]
	bytes := c.charset == binaryCharset
	width := 1
	if !bytes {
		out.charset, out.collation = coll.charset, coll.name
		width = maxCharWidth(coll.charset)
	}
	out.data, out.sql = c.declared(&out, bytes, width)
	if out.unsigned && strings.HasSuffix(out.data, "int") {
		out.sql += " unsigned"
	}
	switch out.data {
	case "enum", "set", "varchar", "longtext", "char":
	default:
		out.charset, out.collation = "", ""
	}
	return out
}

// declared is the type of a result's column, and how a table would declare it.
func (c wireColumn) declared(out *sourceColumn, bytes bool, width int) (data, sql string) {
	plain := map[byte]string{
		mysql.MYSQL_TYPE_TINY: "tinyint", mysql.MYSQL_TYPE_SHORT: "smallint", mysql.MYSQL_TYPE_INT24: "mediumint",
		mysql.MYSQL_TYPE_LONG: "int", mysql.MYSQL_TYPE_LONGLONG: "bigint", mysql.MYSQL_TYPE_FLOAT: "float",
		mysql.MYSQL_TYPE_DOUBLE: "double", mysql.MYSQL_TYPE_YEAR: "year", mysql.MYSQL_TYPE_DATE: "date", mysql.MYSQL_TYPE_NEWDATE: "date",
		mysql.MYSQL_TYPE_JSON: "json", mysql.MYSQL_TYPE_GEOMETRY: "geometry", mysql.MYSQL_TYPE_VECTOR: "vector",
	}
	timed := map[byte]string{
		mysql.MYSQL_TYPE_DATETIME: "datetime", mysql.MYSQL_TYPE_TIMESTAMP: "timestamp", mysql.MYSQL_TYPE_TIME: "time",
	}
	switch {
	case plain[c.typ] != "":
		return plain[c.typ], plain[c.typ]
	case timed[c.typ] != "":
		if out.scale = int(c.decimals); out.scale > 6 {
			out.scale = 0
		}
		if out.scale > 0 {
			return timed[c.typ], fmt.Sprintf("%s(%d)", timed[c.typ], out.scale)
		}
		return timed[c.typ], timed[c.typ]
	case c.typ == mysql.MYSQL_TYPE_DECIMAL, c.typ == mysql.MYSQL_TYPE_NEWDECIMAL:
		out.precision = int(c.length)
		if c.decimals > 0 {
			out.precision--
		}
		if !out.unsigned {
			out.precision--
		}
		out.precision = max(out.precision, out.scale, 1)
		return "decimal", fmt.Sprintf("decimal(%d,%d)", out.precision, out.scale)
	case c.typ == mysql.MYSQL_TYPE_BIT:
		return "bit", fmt.Sprintf("bit(%d)", c.length)
	case c.typ == mysql.MYSQL_TYPE_NULL:
		return "varchar", "varchar(1)"
	case c.flags&mysql.ENUM_FLAG != 0, c.typ == mysql.MYSQL_TYPE_ENUM:
		return "enum", "enum"
	case c.flags&mysql.SET_FLAG != 0, c.typ == mysql.MYSQL_TYPE_SET:
		return "set", "set"
	case bytes && c.typ == mysql.MYSQL_TYPE_STRING:
		return "binary", fmt.Sprintf("binary(%d)", c.length)
	case bytes && c.flags&mysql.BLOB_FLAG == 0 && c.length <= maxVarchar:
		return "varbinary", fmt.Sprintf("varbinary(%d)", c.length)
	case bytes:
		return "longblob", "longblob"
	case c.flags&mysql.BLOB_FLAG == 0 && c.length/uint32(width) <= maxVarchar/4:
		out.length = int(c.length) / width
		return "varchar", fmt.Sprintf("varchar(%d)", out.length)
	}
	return "longtext", "longtext"
}

// maxVarchar is how many bytes a varchar may have.
const maxVarchar = 65535

// maxCharWidth is how many bytes a character has at most.
func maxCharWidth(charset string) int {
	switch charset {
	case "utf8mb4", "utf16", "utf16le", "utf32", "gb18030":
		return 4
	case "utf8mb3", "utf8", "ujis", "eucjpms":
		return 3
	case "ucs2", "big5", "gbk", "gb2312", "sjis", "cp932", "euckr":
		return 2
	}
	return 1
}
