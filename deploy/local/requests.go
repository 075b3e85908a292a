package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
)

// requestPrinter writes the access log to a file, and a short line for each request to a terminal.
type requestPrinter struct{ file, terminal io.Writer }

// Write takes whole lines of the access log.
func (p requestPrinter) Write(lines []byte) (int, error) {
	for line := range bytes.Lines(lines) {
		var r struct {
			Time                  time.Time
			Method, Path, Outcome string
			Status                int
			Micros                float64
		}
		if json.Unmarshal(line, &r) != nil {
			continue // the file has it
		}
		outcome := ""
		if r.Outcome != "ok" {
			outcome = r.Outcome + " "
		}
		fmt.Fprintf(p.terminal, "%s %s %s %d %s%.1f ms\n", r.Time.Local().Format(time.TimeOnly),
			printable(r.Method), printable(r.Path), r.Status, outcome, r.Micros/1000)
	}
	return p.file.Write(lines)
}

// printable replaces what a terminal would not print as one character. A request that was not understood has no method or path.
func printable(s string) string {
	if s == "" {
		return "-"
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) {
			return '?'
		}
		return r
	}, s)
}
