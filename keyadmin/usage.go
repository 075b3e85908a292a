package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
)

type usageCommands struct {
	Show    usageShow    `cmd:"" help:"Show the requests of a tenant by day or hour, key and outcome."`
	Reset   usageReset   `cmd:"" help:"Set a tenant's usage back to zero."`
	Explain usageExplain `cmd:"" help:"Would the next request with a key pass? If not, why, and until when?"`
}

// usageView is a number of requests as JSON; scripts rely on its fields.
type usageView struct {
	From     string `json:"from"` // the start of the hour or UTC day
	KeyID    string `json:"keyId"`
	Key      string `json:"key"` // its name
	Outcome  string `json:"outcome"`
	Requests int64  `json:"requests"`
}

// unit is the period by which usage is added up.
type unit string

var units = map[unit]time.Duration{"day": day, "hour": time.Hour}

func (u *unit) UnmarshalText(text []byte) error {
	if *u = unit(text); units[*u] == 0 {
		return fmt.Errorf("%q is not a unit: use day or hour", text)
	}
	return nil
}

type usageShow struct {
	Tenant string `arg:"" help:"ID or name."`
	Since  moment `default:"7d" placeholder:"AGE" help:"How far back: 24h, 1w, or from a date: 2026-11-20."`
	By     unit   `default:"day" placeholder:"UNIT" help:"Group by day or hour, both in UTC."`
}

func (usageShow) Help() string {
	return `Shows statistics. They are a few seconds late and are kept for 400 days. To see whether the next request would be
admitted, use usage explain.

Examples:

    # The last week, by day
    keyadmin usage show acme

    # What was refused in the last day
    keyadmin usage show acme --since 24h --by hour -o json | jq '.[] | select(.outcome != "ok")'`
}

func (c *usageShow) Run(ctx context.Context, a *app) error {
	since := c.Since.before(a.now())
	t, err := a.openTenant(ctx, c.Tenant)
	if err != nil {
		return err
	}
	rows, err := a.store.Usage(ctx, t.ID, since)
	if err != nil {
		return err
	}
	keys, err := a.store.Keys(ctx, &t.ID)
	if err != nil {
		return err
	}
	names := make(map[id.Key]string, len(keys))
	for _, k := range keys {
		names[k.ID] = k.Name
	}
	views, total := sumUsage(rows, names, units[c.By])
	out := table{
		head:  []string{strings.ToUpper(string(c.By)) + " (UTC)", "KEY", "NAME", "OUTCOME", "REQUESTS"},
		spare: []string{"KEY", "NAME"},
	}
	for _, v := range views {
		out.rows = append(out.rows, []string{v.From, orDash(v.KeyID), orDash(v.Key), v.Outcome, count(v.Requests)})
	}
	if err := a.print(views, out); err != nil {
		return err
	}
	a.note("%s requests of tenant %s since %s.", count(total), t.Name, since.String())
	return nil
}

// sumUsage groups rows of hours by unit, ordered by time, key and outcome.
func sumUsage(rows []keystore.UsageRow, names map[id.Key]string, unit time.Duration) ([]usageView, int64) {
	type slot struct {
		from    instant.Millis
		key     id.Key
		outcome string
	}
	sums, total := map[slot]int64{}, int64(0)
	for _, r := range rows {
		sums[slot{r.Hour.Truncate(unit), r.Key, r.Outcome}] += r.Requests
		total += r.Requests
	}
	views := make([]usageView, 0, len(sums))
	for s, n := range sums {
		v := usageView{From: s.from.String(), Outcome: s.outcome, Requests: n}
		if !s.key.IsZero() {
			v.KeyID, v.Key = s.key.String(), names[s.key]
		}
		views = append(views, v)
	}
	slices.SortFunc(views, func(a, b usageView) int {
		return slices.Compare([]string{a.From, a.Key, a.KeyID, a.Outcome}, []string{b.From, b.Key, b.KeyID, b.Outcome})
	})
	return views, total
}

type usageReset struct {
	Tenant string `arg:"" help:"ID or name."`
	asking
	waiting
}

func (usageReset) Help() string {
	return `Sets the usage of the minute and of the day to zero. Statistics and bans are kept. The gateways do the reset.
If Redis does not answer, they try again until it does; until then, the command is not confirmed. If no gateway is running,
nothing is reset.

Examples:

    # After a load test
    keyadmin usage reset acme --yes`
}

func (c *usageReset) Run(ctx context.Context, a *app) error {
	t, err := a.openTenant(ctx, c.Tenant)
	if err != nil {
		return err
	}
	return a.carryOut(ctx, operation{
		question: fmt.Sprintf("Set the usage of tenant %s back to zero?", t.Name),
		yes:      c.Yes, wait: c.Wait, laggard: "may still count what was used before",
		alone: "Counts in Redis are not reset: only a gateway can do that. Repeat this command while a gateway is running.",
		change: func() (outcome, error) {
			change, err := a.store.RequestQuotaReset(ctx, t.ID)
			return a.tenantChanged(ctx, t, change, "Reset the usage of tenant "+t.Name+".", err)
		},
	})
}
