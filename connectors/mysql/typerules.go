package mysql

import (
	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// TypeRules is the mapping table: how each type of MySQL and MariaDB is read, and which type is made for each type of the vocabulary.
func TypeRules() []connector.TypeRule {
	return append(readRules(), sinkRules()...)
}

func readRules() []connector.TypeRule {
	read := func(native string, k record.Kind, note string) connector.TypeRule {
		return connector.TypeRule{Native: native, Kind: k, Read: true, Note: note}
	}
	return []connector.TypeRule{
		read("tinyint", record.Int8, "tinyint(1) too: a number; types=col:bool reads 0 and 1 as bool, and sets rows with others aside"),
		read("smallint", record.Int16, ""),
		read("mediumint, int", record.Int32, ""),
		read("bigint", record.Int64, ""),
		read("tinyint unsigned", record.Uint8, ""),
		read("smallint unsigned", record.Uint16, ""),
		read("mediumint unsigned, int unsigned", record.Uint32, ""),
		read("bigint unsigned", record.Uint64, ""),
		read("float", record.Float32, "bit by bit, not by the six digits that the server prints"),
		read("double", record.Float64, ""),
		read("decimal(p,s)", record.Decimal, "p up to 65, s up to 30"),
		read("bit(n)", record.Bits, "the highest bit first; types=col:bool reads bit(1) as bool"),
		read("year", record.Int16, "0 is 0000"),
		read("date", record.Date, "0000-00-00, 2023-05-00 and the like by zero_dates: the row is set aside, NULL, or all dates are text"),
		read("datetime(n)", record.Timestamp, "without a zone, never shifted; zero_dates as for date"),
		read("timestamp(n)", record.Timestamp, "an instant in UTC; zero_dates as for date"),
		read("time(n)", record.Duration, "-838:59:59 to 838:59:59, with microseconds"),
		read("char(n), varchar(n), tinytext … longtext", record.String,
			"of every character set, as UTF-8; a row with bytes that are no text is set aside"),
		read("binary(n), varbinary(n), tinyblob … longblob", record.Binary, "binary(n) with all of its zeros"),
		read("enum(…)", record.Enum, "the label, never its number; the empty text for number 0"),
		read("set(…)", record.List, "the labels, in the order of the type"),
		read("json", record.JSON, "as the server prints it; of MariaDB as it was written"),
		read("geometry, point …", record.Binary, "EWKB: WKB, with the number of the reference system where that is not 0"),
		read("uuid (MariaDB)", record.UUID, ""),
		read("inet4, inet6 (MariaDB)", record.Network, ""),
		read("vector(n)", record.List, "of float32"),
		read("all others", record.Foreign, "as the server prints them"),
	}
}
