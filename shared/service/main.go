package service

import (
	"context"
	"log/slog"
	"os"

	"petgate/shared/lines"
)

// Main is the main function of a program that serves. It loads the settings, makes the log, and runs the program until a
// signal ends it. prefix is the prefix of the program's own variables. The program never waits for the reader of its log. Main
// does not return.
func Main(name, prefix, about string, settings Program, run func(ctx context.Context, log *slog.Logger) error) {
	if code, done := Load(settings, name, about, os.Args[1:], os.Stdout, os.Stderr); done {
		os.Exit(code)
	}
	stderr := lines.New(os.Stderr, nil)
	log := NewLog(stderr, settings.common().LogLevel, name)
	if names := unknown(settings, prefix, os.Environ()); names != nil {
		log.Warn("these variables are not settings and are ignored; --help lists the settings", "variables", names)
	}
	code := Run(log, func(ctx context.Context) error { return run(ctx, log) })
	_ = stderr.Close() // if nothing reads the log, the program ends without the last lines
	os.Exit(code)
}
