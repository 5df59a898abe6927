//go:build unix

package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// terminalSize returns the size of a terminal in characters; a usual one where it is unknown.
func terminalSize(w any) (rows, columns int) {
	if f, ok := w.(*os.File); ok {
		if ws, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && ws.Row > 0 && ws.Col > 0 {
			return int(ws.Row), int(ws.Col)
		}
	}
	return usualRows, usualColumns
}
