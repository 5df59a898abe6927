package connectortest_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/record"
)

// Every type of the vocabulary has a name by which it is found again.
func TestTypeNames(t *testing.T) {
	for _, c := range connectortest.Cases() {
		name := record.FormatType(c.Type)
		back, err := record.ParseType(name)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		if !arrow.TypeEqual(back, c.Type) {
			t.Errorf("%s: %s became %s by the name %s", c.Name, c.Type, back, name)
		}
	}
}
