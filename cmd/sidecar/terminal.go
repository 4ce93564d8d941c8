package main

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// clear is what empties the screen of a terminal; nothing for a file or pipe.
func clear(w io.Writer) string {
	f, ok := w.(*os.File)
	if !ok {
		return ""
	}
	if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err != nil {
		return ""
	}
	return "\x1b[H\x1b[2J"
}
