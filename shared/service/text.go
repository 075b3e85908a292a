package service

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode"
)

// textHandler writes records for people: the time of day, the level, the message, and then the fields as slog.TextHandler does.
//
//	15:04:05 WARN  cannot follow the database  error="connection refused"
type textHandler struct {
	slog.Handler // writes the fields to out.line
	out          *textOutput
}

// textOutput writes one record at a time.
type textOutput struct {
	sync.Mutex
	to   io.Writer
	line bytes.Buffer
}

func newTextHandler(to io.Writer, level slog.Level) slog.Handler {
	out := &textOutput{to: to}
	return textHandler{slog.NewTextHandler(&out.line, &slog.HandlerOptions{Level: level, ReplaceAttr: onlyFields}), out}
}

// onlyFields leaves out the time, the level and the message of a record.
func onlyFields(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
		return slog.Attr{}
	}
	return a
}

func (h textHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return textHandler{h.Handler.WithAttrs(attrs), h.out}
}

func (h textHandler) WithGroup(name string) slog.Handler {
	return textHandler{h.Handler.WithGroup(name), h.out}
}

func (h textHandler) Handle(ctx context.Context, r slog.Record) error {
	h.out.Lock()
	defer h.out.Unlock()
	h.out.line.Reset()
	if err := h.Handler.Handle(ctx, r); err != nil {
		return err
	}
	line := fmt.Sprintf("%s %-5s %s  %s", r.Time.Local().Format(time.TimeOnly), r.Level, printable(r.Message), h.out.line.Bytes())
	_, err := io.WriteString(h.out.to, strings.TrimRight(line, " \n")+"\n")
	return err
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
