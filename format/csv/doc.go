// Package csv reads and writes delimited text as people really have it.
//
// Reading is RFC 4180 with room for what is found in the field: a byte order mark, line ends LF, CRLF and CR in any mix, quoted line
// ends, any delimiter, no header, no line end at the end. A quote in the middle of an unquoted field stands for itself. Lines without
// anything are skipped, unless the file has a single column: there they are NULL. What is no row by these rules (text behind a
// closing quote, too few or too many fields, bytes that are no UTF-8) is set aside with its line and byte, or stops the read; nothing
// is ever repaired by guessing.
//
// Bare text that equals one of the null tokens is NULL; quoted text never is. The default token is the empty text, so that a bare
// empty field is NULL and a quoted one is an empty text. Where tokens are given the empty text is one of them only if it is listed.
//
// [Inference] finds types that can't lose a value: bool (true, false), int64 (no leading zeros, no plus), float64 (only where it
// prints back the same number), date, timestamp and instant in ISO form; everything else is text. A column has a type only if every
// value that was seen has it. A later value that contradicts the type is set aside with column, line and value, never changed.
//
// Writing quotes what needs it, also by the habits of other readers: delimiters, quotes, line ends, outer blanks, the null token,
// and \. and \N. NULL is bare, empty text is quoted. Values have the text form of package record, so binary is \x and hex.
package csv
