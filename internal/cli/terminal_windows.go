package cli

import (
	"os"

	"golang.org/x/sys/windows"
)

// terminalSize returns the size of a terminal in characters; a usual one where it is unknown.
func terminalSize(w any) (rows, columns int) {
	if f, ok := w.(*os.File); ok {
		var info windows.ConsoleScreenBufferInfo
		if err := windows.GetConsoleScreenBufferInfo(windows.Handle(f.Fd()), &info); err == nil {
			return int(info.Window.Bottom-info.Window.Top) + 1, int(info.Window.Right-info.Window.Left) + 1
		}
	}
	return usualRows, usualColumns
}
