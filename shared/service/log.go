package service

import (
	"io"
	"log/slog"
)

// NewLog returns the program's log. It writes one JSON object per line. Instants are in UTC with milliseconds, as in the access log.
func NewLog(w io.Writer, level slog.Level, program string) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
			return slog.String(slog.TimeKey, a.Value.Time().UTC().Format("2006-01-02T15:04:05.000Z"))
		}
		return a
	}})).With("program", program)
}
