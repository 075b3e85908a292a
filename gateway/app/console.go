package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"petgate/gateway/console"
	"petgate/shared/core/id"
	"petgate/shared/core/quota"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/service"
)

// The connections of the console to Postgres. They are its own, so that no page delays the directory. Forms do not wait for pages: a
// slow page does not delay a revocation.
const (
	pageConnections = 2
	formConnections = 1
)

// consoleDatabase returns the URL of the console's database.
func (c *Config) consoleDatabase() string {
	if c.ConsoleDatabaseURL != "" {
		return string(c.ConsoleDatabaseURL)
	}
	return string(c.DatabaseURL)
}

// serveConsole adds the operators' console to the admin port, or a page that says how to turn it on.
func serveConsole(
	cfg Config, gateway, address string, admin *service.Admin, problems func() []service.Problem, tenants tenants, peeker peeker, log *slog.Logger,
) (closeConsole func() error, err error) {
	if !cfg.Console {
		admin.Handle(console.Home, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "This gateway does not serve the console. Start it with --console, or set GATEWAY_CONSOLE=true.", http.StatusNotFound)
		}))
		return func() error { return nil }, nil
	}
	db, err := database.Open(cfg.consoleDatabase())
	if err != nil {
		return nil, err
	}
	forms := db
	if db.Dialect() == database.Postgres {
		db.SetMaxOpenConns(pageConnections)
		if forms, err = database.Open(cfg.consoleDatabase()); err != nil {
			return nil, errors.Join(err, db.Close())
		}
		forms.SetMaxOpenConns(formConnections)
	}
	closeAll := func() error { return errors.Join(db.Close(), forms.Close()) }
	tls, err := cfg.AdminTLS.Client(log)
	if err != nil {
		return nil, errors.Join(err, closeAll())
	}
	pages, err := console.New(console.Config{
		Gateway: gateway, Address: address, Store: keystore.New(db, nil, nil, gateway), Forms: keystore.New(forms, nil, nil, gateway), Problems: problems, AdminTLS: tls, Log: log,
		Quota: func(ctx context.Context, tenant id.Tenant) (quota.Verdict, error) {
			p, err := peek(ctx, tenants, peeker, tenant)
			if errors.As(err, new(unknownTenantError)) {
				err = fmt.Errorf("%w: %w", console.ErrUnknownTenant, err)
			}
			return p.verdict, err
		},
	})
	if err != nil {
		return nil, errors.Join(err, closeAll())
	}
	admin.Handle(console.Home, pages)
	return func() error {
		pages.Close()
		return closeAll()
	}, nil
}
