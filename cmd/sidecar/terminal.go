package main

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// clear is what empties the screen of a terminal; nothing for a file or pipe.
func clear(w io.Writer) string {
	if !isTerminal(w) {
		return ""
	}
	return "\x1b[H\x1b[2J"
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
