package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/operate"
	"petgate/shared/service"
)

type auditCommand struct {
	Since  moment      `default:"7d" placeholder:"AGE" help:"How far back: 1h, 1w, or from a date: 2026-11-20."`
	Tenant string      `placeholder:"TENANT" help:"Only changes of this tenant and its keys: ID or name."`
	Key    keyArgument `placeholder:"KEY" help:"Only changes of this key: its ID, key_…"`
	Actor  string      `placeholder:"NAME" help:"Only changes by this operator or gateway."`
	Kind   eventKind   `placeholder:"KIND" help:"Only changes of this kind: key.revoked, for example, or key for all changes of keys."`
	Limit  int         `short:"n" placeholder:"N" help:"Only the last N changes."`
	Follow bool        `short:"f" help:"Go on, and show changes as they are made, until an interrupt."`
}

func (auditCommand) Help() string {
	return `Lists every change and who made it, the oldest first. Changes come from operators, through keyadmin, and from
gateways, which impose bans. An operator is shown as keyadmin:NAME. NAME is $SUDO_USER, $USER or $LOGNAME, else the name of
the system's user; it is not authenticated.

Examples:

    # The last week
    keyadmin audit

    # Who revoked keys of acme since yesterday
    keyadmin audit --since 24h --tenant acme --kind key.revoked

    # What happens now
    keyadmin audit --since 1m --follow`
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

// BadSettings checks the number of changes.
func (c *auditCommand) BadSettings() service.BadSettings {
	var bad service.BadSettings
	bad.Require(c.Limit >= 0, "limit", "use 1 or more")
	return bad
}

// followEvery is the interval at which --follow reads new changes.
const followEvery = time.Second

func (c *auditCommand) Run(ctx context.Context, a *app) error {
	since := c.Since.before(a.now())
	if err := a.open(ctx); err != nil {
		return err
	}
	if c.Tenant != "" {
		t, err := a.tenant(ctx, c.Tenant)
		if err != nil {
			return err
		}
		c.Tenant = t.ID.String()
	}
	events, err := a.events(ctx, since, 0, c.shows)
	if err != nil {
		return err
	}
	if c.Limit > 0 {
		events = events[max(len(events)-c.Limit, 0):]
	}
	if !c.Follow {
		return c.print(ctx, a, events)
	}
	return c.follow(ctx, a, events, since)
}

// shows reports whether the flags select an event.
func (c *auditCommand) shows(e keystore.Event) bool {
	kind, key := string(c.Kind), id.Key(c.Key)
	switch {
	case c.Tenant != "" && (e.Tenant.IsZero() || e.Tenant.String() != c.Tenant):
	case !key.IsZero() && e.Key != key:
	case c.Actor != "" && e.Actor != c.Actor && e.Actor != "keyadmin:"+c.Actor:
	case kind != "" && e.Kind != kind && !strings.HasPrefix(e.Kind, kind+"."):
	default:
		return true
	}
	return false
}

// events lists the events since an instant and after an event.
func (a *app) events(ctx context.Context, since instant.Millis, after keystore.Change, shows func(keystore.Event) bool) ([]keystore.Event, error) {
	events, err := a.store.Events(ctx, since)
	return slices.DeleteFunc(events, func(e keystore.Event) bool { return e.ID <= after || !shows(e) }), err
}

// follow prints events, and then new ones as they come, until the context or an interrupt ends it. As JSON, it prints one object
// for each.
func (c *auditCommand) follow(ctx context.Context, a *app, events []keystore.Event, since instant.Millis) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	last := keystore.Change(0)
	for {
		if len(events) > 0 {
			a.headed = last > 0
			if err := c.print(context.WithoutCancel(ctx), a, events); err != nil {
				return err
			}
			last, since = events[len(events)-1].ID, events[len(events)-1].At.Add(-followSlack)
		}
		if a.Sleep(ctx, followEvery) != nil {
			return nil
		}
		var err error
		if events, err = a.events(context.WithoutCancel(ctx), since, last, c.shows); err != nil {
			return err
		}
	}
}

// followSlack is how much the clocks of writers may differ: a later event may have an earlier time.
const followSlack = time.Minute

func (c *auditCommand) print(ctx context.Context, a *app, events []keystore.Event) error {
	tenants, err := a.store.Tenants(ctx)
	if err != nil {
		return err
	}
	names := make(map[id.Tenant]string, len(tenants))
	for _, t := range tenants {
		names[t.ID] = t.Name
	}
	views := make([]operate.EventView, 0, len(events))
	t := table{
		head:  []string{"EVENT", "AT", "ACTOR", "KIND", "TENANT", "SUBJECT", "CHANGE"},
		spare: []string{"EVENT", "ACTOR", "TENANT", "SUBJECT"},
		none:  "There are no such changes.",
	}
	for _, e := range events {
		v := operate.ViewEvent(e)
		if c.Follow && a.cli.Output == "json" {
			if err := a.print(v, table{}); err != nil {
				return err
			}
			continue
		}
		views = append(views, v)
		tenant := cmp.Or(names[e.Tenant], v.TenantID)
		t.rows = append(t.rows, []string{
			strconv.FormatInt(v.ID, 10), v.At, v.Actor, v.Kind, operate.OrDash(tenant), operate.OrDash(operate.SubjectOf(e)), operate.ChangeOf(e),
		})
	}
	if len(views) == 0 && c.Follow {
		return nil
	}
	return a.print(views, t)
}
