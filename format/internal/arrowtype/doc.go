// Package arrowtype brings Arrow columns of any type into the vocabulary of package record: [Normal] says which type a foreign one
// becomes, [Convert] converts the values exactly or refuses, [Bad] finds values that no column of the vocabulary may hold (text that
// is no UTF-8, documents that are no JSON), and [Guard] turns a library's panic on broken input into an error.
package arrowtype
