package service

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
)

// textHandler writes records for people: the time of day, the level, the message, and then the fields.
//
//	15:04:05 WARN  cannot follow the database  error="connection refused"
type textHandler struct {
	out    *textOutput
	level  slog.Level
	fields []byte // of With, as they are written
	group  string // prefix of the names of further fields
}

// textOutput writes one record at a time.
type textOutput struct {
	sync.Mutex
	io.Writer
}

func (h *textHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level }

func (h *textHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	next.fields = bytes.Clone(h.fields)
	for _, a := range attrs {
		next.fields = appendField(next.fields, h.group, a)
	}
	return &next
}

func (h *textHandler) WithGroup(name string) slog.Handler {
	next := *h
	next.group += name + "."
	return &next
}

func (h *textHandler) Handle(_ context.Context, r slog.Record) error {
	line := make([]byte, 0, 256)
	if !r.Time.IsZero() {
		line = append(r.Time.Local().AppendFormat(line, time.TimeOnly), ' ')
	}
	line = fmt.Appendf(line, "%-5s %s", r.Level, printable(r.Message))
	if len(h.fields) > 0 || r.NumAttrs() > 0 {
		line = append(line, ' ')
	}
	line = append(line, h.fields...)
	r.Attrs(func(a slog.Attr) bool {
		line = appendField(line, h.group, a)
		return true
	})
	h.out.Lock()
	defer h.out.Unlock()
	_, err := h.out.Write(append(line, '\n'))
	return err
}

func appendField(line []byte, group string, a slog.Attr) []byte {
	value := a.Value.Resolve()
	if value.Kind() == slog.KindGroup {
		for _, inner := range value.Group() {
			line = appendField(line, group+a.Key+".", inner)
		}
		return line
	}
	text := value.String()
	if isAmbiguous(text) {
		text = strconv.Quote(text)
	}
	return fmt.Appendf(line, " %s%s=%s", group, a.Key, text)
}

// isAmbiguous reports whether a value has to be quoted: its end would not be seen, or a terminal would not print it.
func isAmbiguous(text string) bool {
	return text == "" || strings.ContainsFunc(text, func(r rune) bool {
		return r == ' ' || r == '"' || r == '=' || !unicode.IsGraphic(r)
	})
}

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
