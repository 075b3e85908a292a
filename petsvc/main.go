// Petsvc is the pet service: it lists, adds and gets pets. Clients reach it only through the
// gateway: protect it by the network or by the gateway's secret.
package main

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"petgate/petsvc/pets"
	"petgate/shared/database"
	"petgate/shared/lines"
	"petgate/shared/service"
	"petgate/shared/trace"
)

func main() {
	var c config
	service.Main("petsvc", "PETSVC_", "Petsvc lists, adds and gets pets.", &c,
		func(ctx context.Context, log *slog.Logger) error { return run(ctx, c, log) })
}

// run serves until ctx ends. While the database is unavailable, petsvc is not ready, but keeps
// running.
func run(ctx context.Context, c config, log *slog.Logger) error {
	ports, err := service.OpenPorts(&c, "PETSVC_")
	if err != nil {
		return err
	}
	defer ports.Public.Close()
	admin := service.NewAdmin(log, c.Settings, c.AdminListen)
	if err := admin.Start(ports.Admin); err != nil {
		return errors.Join(err, ports.Admin.Close())
	}
	defer admin.Close()

	db, err := database.Open(string(c.DatabaseURL))
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(c.Connections + 1)
	db.SetMaxIdleConns(c.Connections + 1)

	if c.AccessLog {
		stdout := lines.New(os.Stdout, lines.Pause, nil) // no request waits for the reader of the log
		defer stdout.Close()
		c.Config.AccessLog = service.NewLog(stdout, false, slog.LevelInfo, "petsvc")
	}
	c.Log, c.Metrics = log, admin.Metrics
	c.Tracer, err = trace.Open(trace.Config{Settings: c.Traces, Program: "petsvc", Log: log, Metrics: admin.Metrics})
	if err != nil {
		return err
	}
	defer c.Tracer.Close(trace.CloseMax)
	p := pets.Open(ctx, db, c.Config)
	admin.SetReady(func() []service.Problem {
		if cause := p.Health(); cause != nil {
			return []service.Problem{service.ProblemOf("database", cause, false)}
		}
		return nil
	})
	return service.Serving{
		Public: p, Listener: ports.Public, Admin: admin, Settings: c.Settings, Log: log,
		Facts: []any{"database", database.Redact(string(c.DatabaseURL)), "traces", c.Traces.Destination()},
	}.Run(ctx)
}
