package service

import (
	"io"
	"log/slog"
)

// NewLog returns the program's log: a JSON object per line, or for a terminal "key=value". Instants
// are in UTC with milliseconds, as in the access log.
func NewLog(w io.Writer, isTerminal bool, level slog.Level, program string) *slog.Logger {
	options := &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
				return slog.String(slog.TimeKey, a.Value.Time().UTC().Format("2006-01-02T15:04:05.000Z"))
			}
			return a
		},
	}
	if isTerminal {
		return slog.New(slog.NewTextHandler(w, options)).With("program", program)
	}
	return slog.New(slog.NewJSONHandler(w, options)).With("program", program)
}
