package main

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/keystore"
	"petgate/shared/operate"
)

type auditCommand struct {
	Since  operate.Moment    `default:"7d" placeholder:"AGE" help:"How far back: 1h, 1w, or from a date: 2026-11-20."`
	Tenant string            `placeholder:"TENANT" help:"Only changes of this tenant and its keys: ID or name."`
	Key    operate.KeyID     `placeholder:"KEY" help:"Only changes of this key: its ID, key_…"`
	Actor  string            `placeholder:"NAME" help:"Only changes by this operator or gateway."`
	Kind   operate.EventKind `placeholder:"KIND" help:"Only changes of this kind: key.revoked, for example, or key for all changes of keys."`
	Follow bool              `short:"f" help:"Go on, and show changes as they are made, until an interrupt."`
	limiting
}

// followEvery is the interval at which --follow reads new changes.
const followEvery = time.Second

func (c *auditCommand) Run(ctx context.Context, a *app, store *keystore.Store) error {
	filter := keystore.EventFilter{Since: c.Since.Before(a.now()), Key: c.Key.Key, Actor: c.Actor, Kind: string(c.Kind)}
	if c.Tenant != "" {
		t, err := a.anyTenant(ctx, c.Tenant)
		if err != nil {
			return err
		}
		filter.Tenant = t.ID
	}
	events := store.Events(ctx, filter, 0)
	if n := c.rows(a); n > 0 {
		page, err := store.FindEvents(ctx, filter, 0, n+1)
		events = latest(&c.limiting, n, page, err)
	}
	if !c.Follow {
		_, err := c.print(ctx, a, events)
		return err
	}
	interrupted, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	for last := keystore.Change(0); ; events = store.Events(ctx, filter, last) {
		printed, err := c.print(ctx, a, events)
		if err != nil {
			return err
		}
		last = max(last, printed)
		a.headed = last > 0
		if a.Sleep(interrupted, followEvery) != nil {
			return nil
		}
	}
}

// print prints events: as data, or as a table that also has the names of tenants. It returns the last one. With --follow, JSON is one object
// for each.
func (c *auditCommand) print(ctx context.Context, a *app, events iter.Seq2[keystore.Event, error]) (last keystore.Change, err error) {
	if a.asData() && !c.Follow {
		return 0, printList(a, &c.limiting, func(yield func(operate.EventView, error) bool) {
			for e, err := range events {
				if !yield(operate.ViewEvent(e), err) {
					return
				}
			}
		}, table{}, nil)
	}
	found, err := keystore.Collect(events)
	if err != nil || len(found) == 0 && c.Follow {
		return 0, err
	}
	ids := map[id.Tenant]bool{}
	for _, e := range found {
		if ids[e.Tenant], last = true, e.ID; a.asData() {
			if err := a.print(operate.ViewEvent(e), table{}); err != nil {
				return 0, err
			}
			a.headed = true
		}
	}
	if a.asData() {
		return last, nil
	}
	tenants, err := a.store.TenantsOf(ctx, slices.Collect(maps.Keys(ids)))
	if err != nil {
		return 0, err
	}
	t := table{
		head:  []string{"EVENT", "AT", "ACTOR", "KIND", "TENANT", "SUBJECT", "CHANGE"},
		spare: []string{"EVENT", "ACTOR", "TENANT", "SUBJECT"},
		none:  "There are no such changes.",
	}
	return last, printList(a, &c.limiting, asList(found, nil), t, func(e keystore.Event) []string {
		v := operate.ViewEvent(e)
		tenant := cmp.Or(tenants[e.Tenant].Name, v.TenantID)
		return []string{
			strconv.FormatInt(v.ID, 10), v.At, v.Actor, v.Kind, operate.OrDash(tenant), operate.OrDash(operate.SubjectOf(e)), operate.ChangeOf(e),
		}
	})
}
