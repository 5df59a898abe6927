package backfill

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/record"
)

// keyRows makes rows of which only the keys are known, of JSON objects of the key columns.
func keyRows(s *record.Schema, keys []json.RawMessage) (arrow.RecordBatch, error) {
	build := array.NewRecordBuilder(memory.DefaultAllocator, s.Columns)
	defer build.Release()
	for _, raw := range keys {
		if err := appendKey(build, s, raw); err != nil {
			return nil, fmt.Errorf("the key %s of %s: %w", raw, s.Dataset, err)
		}
	}
	return build.NewRecordBatch(), nil
}

func appendKey(build *array.RecordBuilder, s *record.Schema, raw json.RawMessage) error {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil || object == nil {
		return errors.Join(errors.New("it is no JSON object"), err)
	}
	for name := range object {
		if !slices.Contains(s.KeyNames(), name) {
			return fmt.Errorf("column %q is not part of the key %q", name, s.KeyNames())
		}
	}
	for c, f := range build.Fields() {
		if !slices.Contains(s.Key, c) {
			f.AppendNull()
			continue
		}
		name := s.Columns.Field(c).Name
		v, ok := object[name]
		if !ok {
			return fmt.Errorf("column %q of the key is missing", name)
		}
		if bytes.Equal(bytes.TrimSpace(v), []byte("null")) && !s.Columns.Field(c).Nullable {
			return fmt.Errorf("column %q of the key is null", name)
		}
		if err := record.ParseJSON(f, v); err != nil {
			return fmt.Errorf("column %q: %w", name, err)
		}
	}
	return nil
}
