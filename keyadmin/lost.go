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

func (gatewayLost) Help() string {
	return `After a fail-over or a restore the database may lack a revocation, a rotation or a suspension that gateways had applied.
They keep it in force. To make it permanent, repeat the command: key revoke, key rotate, tenant suspend. To end it: gateway drop.

Examples:

    keyadmin gateway lost`
}

func (gatewayLost) Run(ctx context.Context, a *app) error {
	if err := a.open(ctx); err != nil {
		return err
	}
	refusals, err := a.store.LostRefusals(ctx)
	if err != nil {
		return err
	}
	views := make([]operate.LostView, 0, len(refusals))
	t := table{
		head:  []string{"KIND", "TENANT", "KEY", "AT", "REPORTED BY", "REPORTED AT"},
		spare: []string{"REPORTED AT", "REPORTED BY", "AT"},
		none:  "The database has lost no refusals.",
	}
	for _, l := range refusals {
		v := operate.ViewLost(l)
		views = append(views, v)
		t.rows = append(t.rows, []string{v.Kind, v.Tenant, operate.OrDash(v.Key), operate.OrDash(v.At), v.ReportedBy, v.ReportedAt})
	}
	return a.print(views, t)
}

type gatewayDrop struct {
	ID string `arg:"" help:"The key's or the tenant's ID, as gateway lost shows it."`
	asking
	waiting
}

func (gatewayDrop) Help() string {
	return `The key, or the tenant's keys, are accepted again at every gateway.

Examples:

    keyadmin gateway drop key_0123456789abcdef`
}

func (c *gatewayDrop) Run(ctx context.Context, a *app) error {
	key, notKey := id.ParseKey(c.ID)
	tenant, notTenant := id.ParseTenant(c.ID)
	if notKey != nil && notTenant != nil {
		return usageErrorf("%q is neither the ID of a key nor of a tenant (`keyadmin gateway lost` shows the IDs)", c.ID)
	}
	if err := a.open(ctx); err != nil {
		return err
	}
	if notKey == nil {
		_, k, err := a.findKey(ctx, key)
		if err != nil {
			return err
		}
		tenant = k.Tenant
	}
	return a.carryOut(ctx, operation{yes: c.Yes, wait: c.Wait, Operation: operate.Operation{
		Question: fmt.Sprintf("Accept %s again? The database has lost its refusal.", c.ID),
		Laggard:  "may still refuse it",
		Change: func(ctx context.Context) (operate.Outcome, error) {
			change, err := a.store.DropLost(ctx, tenant, key)
			if errors.Is(err, keystore.ErrNotFound) {
				err = fmt.Errorf("no refusal of %s was lost (`keyadmin gateway lost` shows all)", c.ID)
			}
			return operate.Outcome{Change: change, Done: "Dropped the lost refusal of " + c.ID + "."}, err
		},
	}})
}
