package main

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// sink is where an access log goes.
type sink string

const (
	noLog  sink = ""
	toFile sink = "file"
	toPipe sink = "pipe"
)

// open returns the file or the named pipe for the log of the program that listens on this address, or nil. Bench reads from the
// pipe. Some programs inherit the file as their standard output; others open it by its name.
func (s sink) open(l *lab, listen string) (*os.File, error) {
	path := filepath.Join(l.dir, listen+".log")
	switch s {
	case toFile:
		return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	case toPipe:
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			return nil, err
		}
		reader, err := os.OpenFile(path, os.O_RDWR, 0) // opening for reading alone would wait for a writer
		if err != nil {
			return nil, err
		}
		go func() { _, _ = io.Copy(io.Discard, reader) }() // ends with bench
		return os.OpenFile(path, os.O_WRONLY, 0)
	}
	return nil, nil
}
