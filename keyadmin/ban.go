package main

import (
	"context"

	"petgate/shared/operate"
)

type banCommands struct {
	List banList                 `cmd:"" help:"List the current bans."`
	Add  asked[operate.AddBan]   `cmd:"" help:"Ban a key for a while."`
	Lift change[operate.LiftBan] `cmd:"" help:"End a ban early."`
}

type banList struct{ limiting }

func (c *banList) Run(ctx context.Context, a *app, operator operate.Operator) error {
	t := table{
		head: []string{"KEY", "TENANT", "NAME", "UNTIL", "BY", "REASON"}, spare: []string{"NAME", "BY"},
		none: "No key is banned.",
	}
	return printList(
		a,
		&c.limiting,
		rowsOf(ctx, operator, operate.FindBans{}, c.rows(a)),
		t,
		func(v operate.BanView) []string {
			return []string{v.KeyID, v.Tenant, v.Key, v.Until, v.By, operate.OrDash(v.Reason)}
		},
	)
}
