// Package fold is what sinks that write changes by key with few statements have in common: it folds the rows of a batch to one [Change]
// for each row of the target, so that neither the order of the statements nor the rows in between matter.
//
// It is exact where a source is: rows that move to other keys, also such that swap them in one transaction; values that the source did
// not send because they did not change, which come from the image before, from an earlier row of the batch, or stay as the target has
// them; rows that go away and come again. With full images, and under a constraint that the source defers, two rows may have one key for a
// moment: then the image says which of them is meant, and a key whose row the target had to give up is remembered for the next batch of
// the transaction.
//
// A sink says how its rows are written ([Images]): as bytes that are equal for equal keys, and as fields to compare.
package fold
