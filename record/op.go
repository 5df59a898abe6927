package record

import "fmt"

// Op says what happened to a row.
type Op uint8

// The operations. The zero value is an insert, so that a plain read needs no operations at all.
const (
	Insert Op = iota // a new row; also every row of a plain read
	Update           // a changed row; Batch.Old has its key if the key moved
	Upsert           // insert or update: the source can't tell
	Delete           // Rows holds at least the key
)

// String returns the lower-case name of the operation.
func (o Op) String() string {
	switch o {
	case Insert:
		return "insert"
	case Update:
		return "update"
	case Upsert:
		return "upsert"
	case Delete:
		return "delete"
	}
	return fmt.Sprintf("op(%d)", uint8(o))
}
