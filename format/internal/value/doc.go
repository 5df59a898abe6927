// Package value prints the values of a column: what record.AppendText and record.AppendJSON print, with hot paths for the common
// types. A printer reads the arrays that it is bound to and keeps nothing.
package value
