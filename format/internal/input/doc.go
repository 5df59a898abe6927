// Package input is the window through which the text formats look at an io.Reader: a buffer that moves, grows for rows that are longer
// than it, and knows which byte is the first that is no UTF-8. What is seen does not depend on how the input arrives.
package input
