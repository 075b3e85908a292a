package service

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"golang.org/x/term"
)

// LogFormat says how log lines are written.
type LogFormat uint8

const (
	// LogAuto writes text on a terminal, and JSON elsewhere.
	LogAuto LogFormat = iota
	// LogText writes lines for people.
	LogText
	// LogJSON writes one JSON object per line.
	LogJSON
)

func (f LogFormat) String() string { return [...]string{"auto", "text", "json"}[f] }

// UnmarshalText reads what String writes.
func (f *LogFormat) UnmarshalText(text []byte) error {
	for _, one := range []LogFormat{LogAuto, LogText, LogJSON} {
		if one.String() == string(text) {
			*f = one
			return nil
		}
	}
	return fmt.Errorf("%q is not a valid value: use auto, text or json", text)
}

// IsText reports whether lines for this file are text, by the setting and by whether it is a terminal.
func (f LogFormat) IsText(file *os.File) bool {
	return f == LogText || f == LogAuto && term.IsTerminal(int(file.Fd()))
}

// NewLog returns the program's log. It writes one JSON object per line, or lines for people.
func NewLog(w io.Writer, asText bool, level slog.Level, program string) *slog.Logger {
	if asText {
		return slog.New(newTextHandler(w, level))
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: shortTime})).With("program", program)
}

// logTime is the format of instants in JSON logs: UTC, with milliseconds.
const logTime = "2006-01-02T15:04:05.000Z"

// shortTime writes the line's time like the access log does.
func shortTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
		return slog.String(slog.TimeKey, a.Value.Time().UTC().Format(logTime))
	}
	return a
}

// RequestLog returns the writer for the lines of an access log, which are JSON: the file itself, or a writer that turns them
// into lines for people.
func (f LogFormat) RequestLog(file *os.File) io.Writer {
	if f.IsText(file) {
		return RequestText{file}
	}
	return file
}
