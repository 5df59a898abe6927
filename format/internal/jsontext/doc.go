// Package jsontext checks the syntax of JSON texts and finds the values in them, without making any: what reads JSON Lines and messages
// stands on it. A text is taken exactly if it is RFC 8259's, has no half of a surrogate pair, and nests no deeper than 1,000 levels.
package jsontext
