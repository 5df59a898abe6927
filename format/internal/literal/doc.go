// Package literal reads values from bytes without allocating, and only from the one form that can't lose anything: what the value is
// printed as afterwards means the same. Type inference stands on it, and so do the hot paths of the text formats. Everything here
// is pure.
package literal
