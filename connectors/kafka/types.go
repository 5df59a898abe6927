package kafka

import (
	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// typeRules is the mapping table: messages keep every type as their format does.
func typeRules() []connector.TypeRule {
	rules := []connector.TypeRule{
		{Native: "json: true, false", Kind: record.Bool, Read: true},
		{Native: "json: whole number", Kind: record.Int64, Read: true},
		{Native: "json: any other number", Kind: record.Numeric, Read: true, Note: "every digit is kept"},
		{Native: "json: string", Kind: record.String, Read: true},
		{Native: "json: object, array", Kind: record.JSON, Read: true, Note: "or a struct or list, where all look alike"},
		{Native: "raw: key, value", Kind: record.Binary, Read: true, Write: true},
		{Native: "raw: timestamp", Kind: record.Timestamp, Read: true, Write: true},
	}
	for k := record.Bool; k <= record.Map; k++ {
		rules = append(rules, connector.TypeRule{
			Native: "json: the form of package record", Kind: k, Write: true,
			Note: "exact when the type is declared on reading (types=NAME:TYPE)",
		})
	}
	return rules
}
