package main

import (
	"cmp"
	"context"
	"strconv"

	"petgate/shared/operate"
)

type auditCommand struct {
	operate.FindEvents
	limiting
}

func (c *auditCommand) Run(ctx context.Context, a *app, operator operate.Operator) error {
	t := table{
		head:  []string{"EVENT", "AT", "ACTOR", "KIND", "TENANT", "SUBJECT", "CHANGE"},
		spare: []string{"EVENT", "ACTOR", "TENANT", "SUBJECT"},
		none:  "There are no such changes.",
	}
	changes := rowsOf(ctx, operator, c.FindEvents, c.rows(a))
	return printList(a, &c.limiting, changes, t, func(v operate.EventView) []string {
		return []string{
			strconv.FormatInt(v.ID, 10),
			v.At,
			v.Actor,
			v.Kind,
			operate.OrDash(cmp.Or(v.Tenant, v.TenantID)),
			operate.OrDash(operate.SubjectOf(v.Event)),
			operate.ChangeOf(v.Event),
		}
	})
}
