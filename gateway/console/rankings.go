package console

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
	"petgate/shared/keystore/usage"
	"petgate/shared/operate"
	"petgate/shared/plot"
)

const rankingsPath = Home + "rankings"

const (
	rankedMax  = 500 // rows that are read for a ranking
	rankedRows = 50  // rows of a list
	// nearPercent is how much of a limit a tenant has used that is near it.
	nearPercent = 80
	// shownPercent is how much of a limit a tenant must have used to be ranked.
	shownPercent = 10
)

// rankingPeriod is a time whose usage is ranked. The query ?period=NAME chooses it.
type rankingPeriod struct {
	Name, Title string

	of func(now instant.Millis) (since, until instant.Millis)
}

var rankingPeriods = []rankingPeriod{
	{"24h", "24 hours", func(now instant.Millis) (since, until instant.Millis) {
		return now.Add(time.Hour - day).Truncate(time.Hour), now.Add(day)
	}},
	{"yesterday", "Yesterday (UTC)", func(now instant.Millis) (since, until instant.Millis) {
		return now.Truncate(day).Add(-day), now.Truncate(day)
	}},
	{"7d", "7 days", func(now instant.Millis) (since, until instant.Millis) {
		return now.Add(-7 * day).Truncate(day), now.Add(day)
	}},
}

// ranking is who used most and what was refused most in a period.
type ranking struct {
	busiest []usage.OfTenant
	refused []usage.TenantOutcome
	owners  map[id.Tenant]operate.Owner
}

func (c *Console) readRanking(of rankingPeriod) func(context.Context) (ranking, error) {
	return func(ctx context.Context) (found ranking, err error) {
		since, until := of.of(instant.Of(c.cfg.Clock()))
		if found.busiest, err = usage.Of(c.cfg.Store).TopUsage(ctx, since, until, rankedRows); err != nil {
			return found, err
		}
		if found.refused, err = usage.Of(c.cfg.Store).RefusedMost(ctx, since, until, rankedMax); err != nil {
			return found, err
		}
		tenants := operate.ViewsOf(found.busiest, func(u usage.OfTenant) id.Tenant { return u.Tenant })
		for _, u := range found.refused {
			tenants = append(tenants, u.Tenant)
		}
		found.owners, err = operate.Operator{Store: c.cfg.Store}.Owners(ctx, tenants)
		return found, err
	}
}

// nearest is a tenant with the part of one of its limits that it has used most of.
type nearest struct {
	operate.Owner
	policy string
	quota.Usage
}

func (n nearest) percent() int64 { return n.Used * 100 / max(n.Limit, 1) }

// readNearest reads the tenants that have used the largest part of a limit. The database knows who
// was charged most today and this month, and the gateways who is busy now; the quotas decide.
func (c *Console) readNearest(ctx context.Context) (found []nearest, err error) {
	tenants, err := usage.Of(c.cfg.Store).NearestToLimit(ctx, instant.Of(c.cfg.Clock()), rankedRows)
	if err != nil {
		return nil, err
	}
	tenants = append(tenants, c.watch.busy()...)
	owners, err := operate.Operator{Store: c.cfg.Store}.Owners(ctx, tenants)
	if err != nil {
		return nil, err
	}
	for tenant, owner := range owners {
		use, err := c.cfg.Quota(ctx, tenant)
		if errors.Is(err, ErrUnknownTenant) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var n nearest
		for p := range quota.None {
			if of := (nearest{owner, p.String(), use.Usages[p]}); of.Limit != 0 && of.percent() >= n.percent() {
				n = of
			}
		}
		if n.percent() >= shownPercent {
			found = append(found, n)
		}
	}
	slices.SortFunc(found, func(a, b nearest) int {
		return cmp.Or(cmp.Compare(b.percent(), a.percent()), cmp.Compare(b.Used, a.Used), cmp.Compare(a.Name, b.Name))
	})
	return found, nil
}

// rankingLists are the rankings as tables.
type rankingLists struct {
	Periods   []rankingPeriod
	Chosen    string // the name of the period
	IsPending bool   // they are still being read
	Problem   string // may be empty
	Outcome   string // the only one that Refused shows; empty: all

	Busiest, Nearest, Refused list
}

func (c *Console) showRankings(w http.ResponseWriter, r *http.Request, v *visit) error {
	patience, cancel := context.WithTimeout(r.Context(), figuresWithin)
	defer cancel()
	chosen := slices.IndexFunc(rankingPeriods, func(p rankingPeriod) bool {
		return p.Name == r.URL.Query().Get("period")
	})
	period := rankingPeriods[max(0, chosen)]
	lists := c.rankingLists(patience, v, period, rankedRows, r.URL.Query().Get("outcome"))
	if lists.IsPending {
		w.Header().Set("Refresh", "2")
	}
	return c.show(w, v, http.StatusOK, "rankings", "Rankings", lists)
}

// rankingLists returns the first n rows of each ranking.
func (c *Console) rankingLists(
	patience context.Context, v *visit, period rankingPeriod, n int, outcome string,
) rankingLists {
	found, known, err := c.rankings[period.Name].look(c.ctx, patience)
	near, nearKnown, nearErr := c.near.look(c.ctx, patience)
	lists := rankingLists{
		Periods: rankingPeriods, Chosen: period.Name, Problem: problemOf(err, known), Outcome: outcome,
		IsPending: known.IsZero() && err == nil || nearKnown.IsZero() && nearErr == nil,
		Busiest: list{
			Caption: "Busiest tenants", Columns: []column{
				{Title: "Tenant"}, {Title: "Plan"}, {"Charged", numbers}, {"Not charged", numbers},
			}, None: "There were no requests.",
		},
		Nearest: list{
			Caption: "Nearest to a limit", Columns: []column{
				{Title: "Tenant"}, {Title: "Limit"}, {"Used", numbers}, {"Of", numbers}, {"Part", numbers},
			}, None: "No tenant has used a tenth of a limit.",
		},
		Refused: list{
			Caption: "Refused or failed most", Columns: []column{
				{Title: "Tenant"}, {Title: "Outcome"}, {Title: "Is"}, {"Requests", numbers},
			}, None: "No request was refused or failed.",
		},
	}
	if nearErr != nil {
		lists.Nearest.None = "How much is used cannot be read: " + nearErr.Error() + "."
	}
	name := func(tenant id.Tenant) cell {
		return cell{Text: cmp.Or(found.owners[tenant].Name, tenant.String()), Link: tenantPath(tenant.String())}
	}
	for _, u := range found.busiest[:min(n, len(found.busiest))] {
		lists.Busiest.Rows = append(lists.Busiest.Rows, []cell{
			name(u.Tenant),
			{Text: operate.OrDash(found.owners[u.Tenant].Plan)},
			bar(u.Charged, found.busiest[0].Charged),
			number(u.Requests - u.Charged),
		})
	}
	for _, t := range near[:min(n, len(near))] {
		lists.Nearest.Rows = append(lists.Nearest.Rows, []cell{
			{
				Text: t.Name,
				Link: tenantPath(t.ID.String()),
			}, {Text: t.policy}, number(t.Used), number(t.Limit), sharePart(t.Usage),
		})
	}
	var most int64
	for _, u := range found.refused {
		if outcome != "" && u.Outcome != outcome || len(lists.Refused.Rows) == n {
			continue
		}
		most = max(most, u.Requests)
		lists.Refused.Rows = append(lists.Refused.Rows,
			[]cell{name(u.Tenant), {Text: u.Outcome}, {Text: plot.Outcomes[classOf(u.Outcome)]}, bar(u.Requests, most)})
	}
	return lists
}

// levelOf says whether a part of a limit is near it or has reached it, for the stylesheet.
func levelOf(percent int64) string {
	return operate.Either(percent >= 100, "full", operate.Either(percent >= nearPercent, "near", ""))
}
