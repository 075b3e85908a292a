package main

import (
	"cmp"
	"context"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"petgate/shared/keystore"
	"petgate/shared/operate"
)

type auditCommand struct {
	operate.FindEvents
	Follow bool `short:"f" help:"Go on, and show changes as they are made, until an interrupt. The oldest comes first."`
	limiting
}

// followEvery is the interval at which --follow reads new changes.
const followEvery = time.Second

func (c *auditCommand) Run(ctx context.Context, a *app, operator operate.Operator) error {
	t := table{
		head:  []string{"EVENT", "AT", "ACTOR", "KIND", "TENANT", "SUBJECT", "CHANGE"},
		spare: []string{"EVENT", "ACTOR", "TENANT", "SUBJECT"},
		none:  "There are no such changes.",
	}
	cells := func(v operate.EventView) []string {
		return []string{
			strconv.FormatInt(v.ID, 10), v.At, v.Actor, v.Kind, operate.OrDash(cmp.Or(v.Tenant, v.TenantID)), operate.OrDash(operate.SubjectOf(v.Event)),
			operate.ChangeOf(v.Event),
		}
	}
	if !c.Follow {
		return printList(a, &c.limiting, rowsOf(ctx, operator, c.FindEvents, c.rows(a)), t, cells)
	}
	filter, err := c.Filter(ctx, operator)
	if err != nil {
		return err
	}
	interrupted, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	for last := keystore.Change(0); ; {
		events, err := keystore.Collect(a.store.Events(ctx, filter, last))
		if err != nil {
			return err
		}
		views, err := operator.ViewEvents(ctx, events)
		if err != nil {
			return err
		}
		if n := len(views); n > 0 && a.cli.Output != "json" {
			err = printViews(a, views, t, cells)
			a.headed, last = true, views[n-1].Event.ID
		} else {
			for _, v := range views { // one object for each
				err, last = cmp.Or(err, a.print(v, t)), v.Event.ID
			}
		}
		if err != nil {
			return err
		}
		if a.Sleep(interrupted, followEvery) != nil {
			return nil
		}
	}
}
