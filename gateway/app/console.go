package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"petgate/gateway/console"
	"petgate/gateway/operators"
	"petgate/shared/core/id"
	"petgate/shared/core/quota"
)

// The connections to Postgres of the console and the operators' API. They are their own, so that
// neither delays the directory. Changes do not wait for what is read: a slow page does not delay a
// revocation.
const (
	readConnections   = 2
	changeConnections = 1
)

// serveOperators adds the operators' console and API to the admin port. The console's page says how
// to turn it on if it is off.
func (g *gateway) serveOperators(address string) error {
	if !g.cfg.Console {
		g.admin.Handle(console.Home, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w,
				"This gateway does not serve the console. Start it with --console, or set GATEWAY_CONSOLE=true.",
				http.StatusNotFound)
		}))
	}
	if !g.cfg.Console && !g.cfg.OperatorsAPI {
		return nil
	}
	url := cmp.Or(g.cfg.ConsoleDatabaseURL, g.cfg.DatabaseURL)
	store, err := g.openStore(url, readConnections)
	if err != nil {
		return err
	}
	changes, err := g.openStore(url, changeConnections)
	if err != nil {
		return err
	}
	tls, err := g.cfg.AdminTLS.Client(g.log)
	if err != nil {
		return err
	}
	if g.cfg.OperatorsAPI {
		g.admin.Handle(operators.Root+"/", operators.New(operators.Config{
			Store:    store,
			Changes:  changes,
			Failures: g.cfg.AuthFailuresPerMinute,
			AdminTLS: tls,
			Log:      g.log,
		}))
	}
	if !g.cfg.Console {
		return nil
	}
	pages, err := console.New(console.Config{
		Gateway:  g.self,
		Address:  address,
		Store:    store,
		Forms:    changes,
		Problems: g.problems,
		AdminTLS: tls,
		Log:      g.log,
		Proxies: console.Proxies{
			From:         g.cfg.ConsoleProxies,
			UserHeader:   g.cfg.ConsoleUserHeader,
			GroupsHeader: g.cfg.ConsoleGroupsHeader,
			Roles:        g.cfg.ConsoleGroups,
		},
		Quota: func(ctx context.Context, tenant id.Tenant) (quota.Verdict, error) {
			_, used, err := g.peek(ctx, tenant, id.Key{}, 1)
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
