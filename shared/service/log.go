package service

import (
	"io"
	"log/slog"
	"os"
	"time"

	"golang.org/x/term"
)

// LogFormat says how log lines are written: text, lines for people; json, one JSON object per line; auto, text on a terminal and json
// elsewhere.
type LogFormat string

var logFormats = []LogFormat{"auto", "text", "json"}

// IsText reports whether lines for this file are text, by the setting and by whether it is a terminal.
func (f LogFormat) IsText(file *os.File) bool {
	return f == "text" || f == "auto" && term.IsTerminal(int(file.Fd()))
}

// NewLog returns the program's log. It writes one JSON object per line, or lines for people.
func NewLog(w io.Writer, asText bool, level slog.Level, program string) *slog.Logger {
	if asText {
		return slog.New(slog.NewTextHandler(w, options(level, func(t time.Time) string { return t.Local().Format(time.TimeOnly) })))
	}
	return slog.New(slog.NewJSONHandler(w, options(level, func(t time.Time) string { return t.UTC().Format(logTime) }))).With("program", program)
}

// logTime is the format of instants in JSON logs: UTC, with milliseconds, like the access log has.
const logTime = "2006-01-02T15:04:05.000Z"

// options are those of a handler that writes a line's time in this form.
func options(level slog.Level, form func(time.Time) string) *slog.HandlerOptions {
	return &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
			return slog.String(slog.TimeKey, form(a.Value.Time()))
		}
		return a
	}}
}

// RequestLog returns the writer for the lines of an access log, which are JSON: the file itself, or a writer that turns them
// into lines for people.
func (f LogFormat) RequestLog(file *os.File) io.Writer {
	if f.IsText(file) {
		return RequestText{file}
	}
	return file
}
