package service

import (
	"context"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"syscall"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"golang.org/x/term"

	"petgate/shared/lines"
)

// Main is the main function of a program that serves. It loads the settings, makes the log, and
// runs the program until a signal ends it. prefix is the prefix of the program's own variables. The
// program never waits for the reader of its log. A SIGHUP is ignored, unless the program handles
// it. Main does not return.
func Main(name, prefix, about string, settings Program, run func(ctx context.Context, log *slog.Logger) error) {
	if code, done := Load(settings, name, about, os.Args[1:], os.Stdout, os.Stderr); done {
		os.Exit(code)
	}
	stderr := lines.New(os.Stderr, 0, nil)
	common := settings.Common()
	log := NewLog(stderr, term.IsTerminal(int(os.Stderr.Fd())), common.LogLevel, name)
	if names := unknown(settings, []string{prefix, "OTEL_"}, os.Environ()); names != nil {
		log.Warn("these variables are not settings and are ignored; --help lists the settings", "variables", names)
	}
	limitMemory(memlimit.FromCgroup, log)
	signal.Ignore(syscall.SIGHUP) // by default, it would end the process at once, with the requests in flight
	code := Run(log, func(ctx context.Context) error { return run(ctx, log) })
	_ = stderr.Close() // if nothing reads the log, the program ends without the last lines
	os.Exit(code)
}

// memoryRatio is the part of a container's memory that Go may use. The rest is for memory that Go
// does not count but the container does, above all the kernel's buffers of sockets.
const memoryRatio = 0.8

// limitMemory makes the garbage collector run more often when the process comes near the memory
// limit of its container. Without it, the kernel would kill the process although much of its memory
// is garbage. If GOMEMLIMIT is set, the operator decides.
func limitMemory(container memlimit.Provider, log *slog.Logger) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	limit, err := memlimit.Set(memlimit.WithProvider(container), memlimit.WithRatio(memoryRatio))
	if err != nil || limit == math.MaxInt64 { // not Linux, or no limit
		return
	}
	log.Info("Go's memory limit is a part of the container's: set GOMEMLIMIT for another one", "limitBytes", limit)
}
