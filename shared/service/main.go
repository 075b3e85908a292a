package service

import (
	"context"
	"log/slog"
	"os"
)

// Main is the main function of a program that serves. It loads the settings, makes the log, and runs the program until a
// signal ends it. prefix is the prefix of the program's own variables. Main does not return.
func Main(name, prefix, about string, settings Program, run func(ctx context.Context, log *slog.Logger) error) {
	if code, done := Load(settings, name, about, os.Args[1:], os.Stdout, os.Stderr); done {
		os.Exit(code)
	}
	log := NewLog(os.Stderr, settings.common().LogLevel, name)
	if names := unknown(settings, prefix, os.Environ()); names != nil {
		log.Warn("these variables are not settings and are ignored; --help lists the settings", "variables", names)
	}
	os.Exit(Run(log, func(ctx context.Context) error { return run(ctx, log) }))
}
