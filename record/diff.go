package record

import (
	"github.com/apache/arrow-go/v18/arrow"
)

// Keys of the field metadata that tell how a column came to be.
const (
	metaID      = "leat:id"
	metaMissing = "leat:missing"
)

// WithID returns the field with the source's stable id of the column, which a rename leaves as it is.
func WithID(f arrow.Field, id string) arrow.Field { return withMeta(f, metaID, id) }

// IDOf returns the source's stable id of the column; empty: it has none.
func IDOf(f arrow.Field) string {
	v, _ := f.Metadata.GetValue(metaID)
	return v
}

// WithMissing returns the field with the value, in the text form of AppendText, that rows have which are older than the column.
func WithMissing(f arrow.Field, text string) arrow.Field { return withMeta(f, metaMissing, text) }

// MissingOf returns the value of rows that are older than the column; false: it is NULL.
func MissingOf(f arrow.Field) (text string, ok bool) { return f.Metadata.GetValue(metaMissing) }

func withMeta(f arrow.Field, key, value string) arrow.Field {
	m := f.Metadata.ToMap()
	m[key] = value
	f.Metadata = arrow.MetadataFrom(m)
	return f
}

// Renamed is a column under its old and its new name.
type Renamed struct{ From, To string }

// Difference is what changed from one schema of a dataset to another one. Columns are named by their new names, dropped ones by
// their old ones. A column may be both renamed and retyped.
type Difference struct {
	Added   []string
	Dropped []string
	Renamed []Renamed
	Retyped []string
}

// Empty reports whether nothing changed.
func (d Difference) Empty() bool {
	return len(d.Added)+len(d.Dropped)+len(d.Renamed)+len(d.Retyped) == 0
}

// Diff compares two schemas of a dataset. Columns are the same ones where their ids are equal, or, where one of them has no id, their
// names. The order of columns, and keys, are no difference.
func Diff(from, to *Schema) Difference {
	var d Difference
	before := make(map[string]arrow.Field, from.Columns.NumFields())
	for _, f := range from.Columns.Fields() {
		before[f.Name] = f
	}
	matched := make(map[string]bool, len(before))
	partner := func(f arrow.Field) (arrow.Field, bool) {
		if id := IDOf(f); id != "" {
			for _, g := range from.Columns.Fields() {
				if IDOf(g) == id {
					return g, true
				}
			}
		}
		g, ok := before[f.Name]
		if ok && IDOf(f) != "" && IDOf(g) != "" { // another column that took the name
			return arrow.Field{}, false
		}
		return g, ok
	}
	for _, f := range to.Columns.Fields() {
		g, ok := partner(f)
		if !ok {
			d.Added = append(d.Added, f.Name)
			continue
		}
		matched[g.Name] = true
		if g.Name != f.Name {
			d.Renamed = append(d.Renamed, Renamed{From: g.Name, To: f.Name})
		}
		if !arrow.TypeEqual(g.Type, f.Type) || NativeOf(g).Type != NativeOf(f).Type {
			d.Retyped = append(d.Retyped, f.Name)
		}
	}
	for _, f := range from.Columns.Fields() {
		if !matched[f.Name] {
			d.Dropped = append(d.Dropped, f.Name)
		}
	}
	return d
}
