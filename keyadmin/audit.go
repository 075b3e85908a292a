package main

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/keystore"
	"petgate/shared/operate"
)

type auditCommand struct {
	Since  moment      `default:"7d" placeholder:"AGE" help:"How far back: 1h, 1w, or from a date: 2026-11-20."`
	Tenant string      `placeholder:"TENANT" help:"Only changes of this tenant and its keys: ID or name."`
	Key    keyArgument `placeholder:"KEY" help:"Only changes of this key: its ID, key_…"`
	Actor  string      `placeholder:"NAME" help:"Only changes by this operator or gateway."`
	Kind   eventKind   `placeholder:"KIND" help:"Only changes of this kind: key.revoked, for example, or key for all changes of keys."`
	Follow bool        `short:"f" help:"Go on, and show changes as they are made, until an interrupt."`
	limiting
}

// eventKind is a kind of event, such as key.revoked, or the part before its dot.
type eventKind string

func (k *eventKind) UnmarshalText(text []byte) error {
	*k = eventKind(text)
	known := keystore.EventKindsAndGroups()
	if slices.Contains(known, string(text)) {
		return nil
	}
	return fmt.Errorf("%q is not a kind of change%s; all kinds: %s", text, didYouMean(string(text), known),
		strings.Join(keystore.EventKinds, " "))
}

// followEvery is the interval at which --follow reads new changes.
const followEvery = time.Second

func (c *auditCommand) Run(ctx context.Context, a *app, store *keystore.Store) error {
	filter := keystore.EventFilter{Since: c.Since.before(a.now()), Key: c.Key.Key, Actor: c.Actor, Kind: string(c.Kind)}
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
	return c.follow(ctx, a, events, filter)
}

// follow prints events, and then new ones as they come, until the context or an interrupt ends it. As JSON, it prints one object
// for each.
func (c *auditCommand) follow(ctx context.Context, a *app, events iter.Seq2[keystore.Event, error], filter keystore.EventFilter) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	last := keystore.Change(0)
	for {
		printed, err := c.print(context.WithoutCancel(ctx), a, events)
		if err != nil {
			return err
		}
		if last = max(last, printed); last > 0 {
			a.headed = true
		}
		if a.Sleep(ctx, followEvery) != nil {
			return nil
		}
		events = a.store.Events(context.WithoutCancel(ctx), filter, last)
	}
}

// print prints events. It returns the last one.
func (c *auditCommand) print(ctx context.Context, a *app, events iter.Seq2[keystore.Event, error]) (last keystore.Change, err error) {
	if !a.asData() {
		return c.printTable(ctx, a, events)
	}
	views := func(yield func(operate.EventView, error) bool) {
		for e, err := range events {
			if last = max(last, e.ID); !yield(operate.ViewEvent(e), err) {
				return
			}
		}
	}
	if !c.Follow {
		err = printList(a, &c.limiting, views, table{}, nil)
		return last, err
	}
	for v, err := range views {
		if err == nil {
			err = a.print(v, table{})
		}
		if err != nil {
			return last, err
		}
		a.headed = true
	}
	return last, nil
}

// printTable also shows the names of tenants.
func (c *auditCommand) printTable(ctx context.Context, a *app, list iter.Seq2[keystore.Event, error]) (last keystore.Change, err error) {
	events, err := keystore.Collect(list)
	if err != nil || len(events) == 0 && c.Follow {
		return 0, err
	}
	ids := map[id.Tenant]bool{}
	for _, e := range events {
		ids[e.Tenant], last = true, e.ID
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
	return last, printList(a, &c.limiting, asList(events, nil), t, func(e keystore.Event) []string {
		v := operate.ViewEvent(e)
		tenant := cmp.Or(tenants[e.Tenant].Name, v.TenantID)
		return []string{
			strconv.FormatInt(v.ID, 10), v.At, v.Actor, v.Kind, operate.OrDash(tenant), operate.OrDash(operate.SubjectOf(e)), operate.ChangeOf(e),
		}
	})
}
