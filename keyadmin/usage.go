package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
)

type usageCommands struct {
	Show    usageShow    `cmd:"" help:"Requests of a tenant by day or hour, key and outcome."`
	Reset   usageReset   `cmd:"" help:"Give a tenant its whole quota back, now."`
	Explain usageExplain `cmd:"" help:"Would the next call with a token pass, else why not and until when?"`
}

// usageView is one sum of requests as JSON; its fields are a contract with other people's scripts.
type usageView struct {
	From     string `json:"from"` // the begin of the hour or UTC day
	KeyID    string `json:"keyId"`
	Key      string `json:"key"` // its name
	Outcome  string `json:"outcome"`
	Requests int64  `json:"requests"`
}

type usageShow struct {
	Tenant string `arg:"" help:"ID or name."`
	Since  string `default:"7d" placeholder:"AGE" help:"How far back: 7d (default), 24h."`
	By     string `default:"day" placeholder:"UNIT" help:"Add up by day (default) or hour, both in UTC."`
}

func (usageShow) Help() string {
	return `These are statistics, a few seconds late, and kept for 400 days. What decides over the next call is shown by usage
explain.

Examples:

    # The last week, by day
    keyadmin usage show acme

    # What was refused in the last day
    keyadmin usage show acme --since 24h --by hour -o json | jq '.[] | select(.outcome != "ok")'`
}

func (c *usageShow) Run(ctx context.Context, a *app) error {
	since := a.now().Add(-a.in.duration("since", c.Since, time.Second))
	unit, ok := map[string]time.Duration{"day": day, "hour": time.Hour}[c.By]
	if !ok {
		a.in.problem("--by: %q is not a unit: use day or hour", c.By)
	}
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
	views, total := sumUsage(rows, names, unit)
	out := table{head: []string{strings.ToUpper(c.By), "KEY", "NAME", "OUTCOME", "REQUESTS"}}
	for _, v := range views {
		out.rows = append(out.rows, []string{v.From, orDash(v.KeyID), orDash(v.Key), v.Outcome, count(v.Requests)})
	}
	if err := a.print(views, out); err != nil {
		return err
	}
	a.note("%s requests of tenant %s since %s.", count(total), t.Name, since.String())
	return nil
}

// sumUsage adds rows of hours up to units, ordered by time, key and outcome.
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
	return `Both windows, the minute's and the day's, begin anew. Statistics stay as they are, and so do bans. The gateways carry it
out: while Redis does not answer them they go on trying, and nothing is confirmed; with no gateway running, Redis keeps
what it has counted.

Examples:

    # After a load test
    keyadmin usage reset acme --yes`
}

func (c *usageReset) Run(ctx context.Context, a *app) error {
	wait := c.wait(a)
	t, err := a.openTenant(ctx, c.Tenant)
	if err != nil {
		return err
	}
	if err := a.ask(c.Yes, "Reset what tenant %s has used of its quota?", t.Name); err != nil {
		return err
	}
	change, err := a.store.RequestQuotaReset(ctx, t.ID)
	if err != nil {
		return err
	}
	return a.tenantChanged(ctx, t, confirmation{
		change: change, wait: wait, laggard: "may still count what was used before",
		done:  "Reset the use of tenant " + t.Name + ".",
		alone: "What Redis has counted, if there is one, stays: only a gateway can reset it. Repeat this while one is running.",
	})
}
