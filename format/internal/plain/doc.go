// Package plain is what formats of messages share beyond finding values: a [Table] puts the values of messages into the columns of
// batches, with columns that come late or become wider, images before a change, and values that were not sent; a [Format] makes a
// message format of what unpacks keys and values.
package plain
