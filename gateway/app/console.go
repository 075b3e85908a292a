package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"petgate/gateway/console"
	"petgate/shared/core/id"
	"petgate/shared/core/quota"
	"petgate/shared/database"
	"petgate/shared/keystore"
)

// The connections of the console to Postgres. They are its own, so that no page delays the directory. Forms do not wait for pages: a
// slow page does not delay a revocation.
const (
	pageConnections = 2
	formConnections = 1
)

// serveConsole adds the operators' console to the admin port, or a page that says how to turn it on.
func (g *gateway) serveConsole(address string) error {
	if !g.cfg.Console {
		g.admin.Handle(console.Home, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "This gateway does not serve the console. Start it with --console, or set GATEWAY_CONSOLE=true.", http.StatusNotFound)
		}))
		return nil
	}
	url := string(cmp.Or(g.cfg.ConsoleDatabaseURL, g.cfg.DatabaseURL))
	db, err := database.Open(url)
	if err != nil {
		return err
	}
	g.onClose(db.Close)
	forms := db
	if db.Dialect() == database.Postgres {
		db.SetMaxOpenConns(pageConnections)
		if forms, err = database.Open(url); err != nil {
			return err
		}
		g.onClose(forms.Close)
		forms.SetMaxOpenConns(formConnections)
	}
	tls, err := g.cfg.AdminTLS.Client(g.log)
	if err != nil {
		return err
	}
	pages, err := console.New(console.Config{
		Gateway: g.self, Address: address, Store: keystore.New(db, nil, nil, g.self), Forms: keystore.New(forms, nil, nil, g.self),
		Problems: g.problems, AdminTLS: tls, Log: g.log, Proxies: console.Proxies{
			From: g.cfg.ConsoleProxies, UserHeader: g.cfg.ConsoleUserHeader, GroupsHeader: g.cfg.ConsoleGroupHeader, Roles: g.cfg.ConsoleGroups,
		},
		Quota: func(ctx context.Context, tenant id.Tenant) (quota.Verdict, error) {
			_, used, err := g.peek(ctx, tenant)
			if errors.Is(err, errUnknownTenant) {
				err = fmt.Errorf("%w: %w", console.ErrUnknownTenant, err)
			}
			return used, err
		},
	})
	if err != nil {
		return err
	}
	g.onClose(func() error { pages.Close(); return nil })
	g.admin.Handle(console.Home, pages)
	return nil
}
