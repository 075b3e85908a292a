package service

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
)

// RequestText turns lines of an access log, which are JSON, into a short line for each request.
type RequestText struct{ To io.Writer }

// Write takes whole lines.
func (t RequestText) Write(lines []byte) (int, error) {
	var text []byte
	for line := range bytes.Lines(lines) {
		var r struct {
			Time                             time.Time
			Method, Path, Operation, Outcome string
			Status                           int
			Micros                           float64
		}
		if json.Unmarshal(line, &r) != nil {
			text = append(text, line...)
			continue
		}
		if r.Path == "" {
			r.Path = r.Operation
		}
		if r.Outcome != "" {
			r.Outcome += " "
		}
		text = fmt.Appendf(text, "%s %s %s %d %s%.1f ms\n", r.Time.Local().Format(time.TimeOnly),
			printable(r.Method), printable(r.Path), r.Status, strings.TrimPrefix(r.Outcome, "ok "), r.Micros/1000)
	}
	if _, err := t.To.Write(text); err != nil {
		return 0, err
	}
	return len(lines), nil
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
