package record

import (
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
)

// Schema names a dataset's columns. A schema is never changed once a batch carries it: a new value marks a schema change, and
// a source uses the same pointer for as long as nothing changes.
type Schema struct {
	Dataset string        // canonical name, see JoinName
	Columns *arrow.Schema // types of the vocabulary only, see TypeOf; provenance in field metadata, see Native
	Key     []int         // columns that identify a row; empty: none
	Version uint64        // grows with every change seen in this stream
}

// Keys of the field metadata.
const (
	metaSystem   = "leat:system"
	metaNative   = "leat:native"
	metaReadOnly = "leat:readonly"
)

// Native is where a column's type came from: the system (postgres, sqlite, csv …) and the system's own name of the type, such as
// varchar(20). A sink of the same system may create exactly that type. ReadOnly marks columns that the system computes by itself
// (generated columns, identity "always").
type Native struct {
	System   string
	Type     string
	ReadOnly bool
}

// WithNative returns the field with its provenance in the metadata.
func WithNative(f arrow.Field, n Native) arrow.Field {
	m := f.Metadata.ToMap()
	m[metaSystem], m[metaNative] = n.System, n.Type
	delete(m, metaReadOnly)
	if n.ReadOnly {
		m[metaReadOnly] = "true"
	}
	f.Metadata = arrow.MetadataFrom(m)
	return f
}

// NativeOf returns the field's provenance, or the zero value where none is known.
func NativeOf(f arrow.Field) Native {
	get := func(k string) string {
		v, _ := f.Metadata.GetValue(k)
		return v
	}
	return Native{System: get(metaSystem), Type: get(metaNative), ReadOnly: get(metaReadOnly) == "true"}
}

// KeyNames returns the names of the key columns, in key order.
func (s *Schema) KeyNames() []string {
	names := make([]string, len(s.Key))
	for i, k := range s.Key {
		names[i] = s.Columns.Field(k).Name
	}
	return names
}

// Column returns the index of the column with exactly this name, or -1.
func (s *Schema) Column(name string) int {
	for i := range s.Columns.NumFields() {
		if s.Columns.Field(i).Name == name {
			return i
		}
	}
	return -1
}

// Names returns the column names in order.
func (s *Schema) Names() []string {
	names := make([]string, s.Columns.NumFields())
	for i := range names {
		names[i] = s.Columns.Field(i).Name
	}
	return names
}

// WithKey returns a copy of the schema whose key are the named columns.
func (s *Schema) WithKey(names ...string) (*Schema, error) {
	key := make([]int, len(names))
	for i, n := range names {
		if key[i] = s.Column(n); key[i] < 0 {
			return nil, fmt.Errorf("dataset %s has no column %q to use as key; its columns are %q", s.Dataset, n, s.Names())
		}
	}
	c := *s
	c.Key = key
	return &c, nil
}

// Validate checks that every column has a type of the vocabulary, that names are unique, and that the key exists.
func (s *Schema) Validate() error {
	seen := make(map[string]bool, s.Columns.NumFields())
	for _, f := range s.Columns.Fields() {
		if seen[f.Name] {
			return fmt.Errorf("dataset %s: column %q appears twice", s.Dataset, f.Name)
		}
		seen[f.Name] = true
		if _, err := TypeOf(f.Type); err != nil {
			return fmt.Errorf("dataset %s: column %q: %w", s.Dataset, f.Name, err)
		}
	}
	if i := slices.IndexFunc(s.Key, func(k int) bool { return k < 0 || k >= s.Columns.NumFields() }); i >= 0 {
		return fmt.Errorf("dataset %s: key column %d does not exist", s.Dataset, s.Key[i])
	}
	return nil
}
