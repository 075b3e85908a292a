// Petsvc is the pet service: it lists, adds and gets pets. Clients reach it only through the gateway: protect it by the
// network or by the gateway's secret.
package main

import (
	"cmp"
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

// run serves until ctx ends. While the database is unavailable, petsvc is not ready, but keeps running.
func run(ctx context.Context, c config, log *slog.Logger) error {
	listener, err := service.ListenPublic(c.Listen, "PETSVC_LISTEN or --listen")
	if err != nil {
		return err
	}
	defer listener.Close()
	adminListener, err := service.Listen(c.AdminListen, "PETSVC_ADMIN_LISTEN or --admin-listen")
	if err != nil {
		return err
	}
	admin := service.NewAdmin(log, c.Settings, c.AdminListen)
	if err := admin.Start(adminListener); err != nil {
		return errors.Join(err, adminListener.Close())
	}
	defer admin.Close()

	db, err := database.Open(string(c.DatabaseURL))
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(c.Connections + 1)
	db.SetMaxIdleConns(c.Connections + 1)

	var accessLog *slog.Logger
	if c.AccessLog {
		stdout := lines.New(os.Stdout, lines.Pause, nil) // no request waits for the reader of the log
		defer stdout.Close()
		accessLog = service.NewLog(stdout, false, slog.LevelInfo, "petsvc")
	}
	tracer, err := trace.Open(trace.Config{Settings: c.Traces, Program: "petsvc", Log: log, Metrics: admin.Metrics})
	if err != nil {
		return err
	}
	defer tracer.Close(trace.CloseMax)
	p := pets.Open(ctx, db, pets.Config{
		Secret: string(c.Secret), Queue: c.Queue, BodyBytesMax: c.BodyBytesMax, Log: log, AccessLog: accessLog, Tracer: tracer, Metrics: admin.Metrics,
	})
	admin.SetReady(func() []service.Problem {
		if cause := p.Health(); cause != nil {
			return []service.Problem{service.ProblemOf("database", cause, false)}
		}
		return nil
	})
	return service.Serving{
		Public: p, Listener: listener, Admin: admin, Settings: c.Settings, Log: log,
		Facts: []any{"database", database.Redact(string(c.DatabaseURL)), "traces", cmp.Or(c.Traces.Endpoint, "off")},
	}.Run(ctx)
}
