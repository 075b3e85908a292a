package main

import (
	"context"
	"errors"
	"fmt"

	"petgate/shared/core/id"
	"petgate/shared/keystore"
	"petgate/shared/operate"
)

type gatewayLost struct{}

func (gatewayLost) Run(ctx context.Context, a *app, store *keystore.Store) error {
	refusals, err := store.LostRefusals(ctx)
	if err != nil {
		return err
	}
	t := table{
		head:  []string{"KIND", "TENANT", "KEY", "AT", "REPORTED BY", "REPORTED AT"},
		spare: []string{"REPORTED AT", "REPORTED BY", "AT"},
		none:  "The database has lost no refusals.",
	}
	return printRows(a, refusals, operate.ViewLost, t, func(_ keystore.LostRefusal, v operate.LostView) []string {
		return []string{v.Kind, v.Tenant, operate.OrDash(v.Key), operate.OrDash(v.At), v.ReportedBy, v.ReportedAt}
	})
}

type gatewayDrop struct {
	ID string `arg:"" complete:"lost" help:"The key's or the tenant's ID, as gateway lost shows it."`
	asking
	waiting
}

func (c *gatewayDrop) Run(ctx context.Context, a *app) error {
	key, notKey := id.ParseKey(c.ID)
	tenant, notTenant := id.ParseTenant(c.ID)
	if notKey != nil && notTenant != nil {
		return usageErrorf("%q is neither the ID of a key nor of a tenant (`keyadmin gateway lost` shows the IDs)", c.ID)
	}
	store, err := a.open(ctx)
	if err != nil {
		return err
	}
	if notKey == nil {
		k, err := a.key(ctx, key)
		if err != nil {
			return err
		}
		tenant = k.Key.Tenant
	}
	return a.carryOut(ctx, operation{yes: c.Yes, wait: c.Wait, Operation: operate.Operation{
		Question: fmt.Sprintf("Accept %s again? The database has lost its refusal.", c.ID),
		Laggard:  "may still refuse it",
		Change: func(ctx context.Context) (operate.Outcome, error) {
			change, err := store.DropLost(ctx, tenant, key)
			if errors.Is(err, keystore.ErrNotFound) {
				err = fmt.Errorf("no refusal of %s was lost (`keyadmin gateway lost` shows all)", c.ID)
			}
			return operate.Outcome{Change: change, Done: "Dropped the lost refusal of " + c.ID + "."}, err
		},
	}})
}
