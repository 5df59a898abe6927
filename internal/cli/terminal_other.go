//go:build !unix && !windows

package cli

// terminalSize returns the size of a usual terminal.
func terminalSize(any) (rows, columns int) { return usualRows, usualColumns }
