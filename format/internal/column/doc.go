// Package column collects the values of one column in plain byte and number slices and wraps them as an Arrow array without a copy:
// the hot path of the text formats. Types without a hot path go through Arrow's own builders and the text forms of package record.
// A column that was finished shares nothing with the array that it made. Not safe for concurrent use.
package column
