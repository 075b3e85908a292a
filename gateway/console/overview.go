package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"petgate/shared/api/code"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/keystore/lists"
	"petgate/shared/keystore/usage"
	"petgate/shared/operate"
	"petgate/shared/plot"
)

// overviewPage is the content of the first page.
type overviewPage struct {
	Live    overviewLive
	Away    string // why the database cannot be read; empty: it can
	Bans    int
	Traffic traffic
	Ranking rankingLists
	Ends    list // keys
	Events  list // the latest first
}

const (
	eventsShown = 8
	eventsRead  = 50 // more than are shown, because those of the console's sessions are left out
	tenantsTop  = 10
	// endsWithin is how long before a key ends the overview names it.
	endsWithin = 14 * day
)

func (c *Console) overview(w http.ResponseWriter, r *http.Request, v *visit) error {
	patience, cancel := context.WithTimeout(r.Context(), figuresWithin)
	defer cancel()
	page := overviewPage{Live: c.watch.look()}
	err := page.read(r.Context(), v)
	if isAway := errors.Is(err, keystore.ErrUnavailable) && !v.hasLeft(); isAway {
		page.Away = "The database is away: these are live figures and what was read before. Forms are closed " +
			"until it is back."
	} else if err != nil {
		return err
	}
	page.Traffic = c.trafficNow(patience)
	page.Ranking = c.rankingLists(patience, v, rankingPeriods[0], tenantsTop, "")
	if keys, known, err := c.expiring.look(c.ctx, patience); err == nil && !known.IsZero() {
		page.Ends = endingList(v, keys)
	}
	if page.Traffic.IsPending || page.Ranking.IsPending {
		w.Header().Set("Refresh", "2")
	}
	return c.show(w, v, http.StatusOK, "overview", "Overview", page)
}

// read reads what the database has at once.
func (p *overviewPage) read(ctx context.Context, v *visit) (err error) {
	if p.Bans, err = lists.Of(v.store).CountBans(ctx); err != nil {
		return err
	}
	latest, err := operate.FindEvents{}.Page(ctx, v.operator, "", eventsRead)
	if err != nil {
		return err
	}
	events := slices.DeleteFunc(latest.Views,
		func(e operate.EventView) bool { return strings.HasPrefix(e.Kind, "console.") })
	p.Events = eventList(v, events[:min(len(events), eventsShown)])
	p.Events.Caption = "Latest changes"
	p.Events.None, p.Events.Cure = "Nothing was changed so far.", "The page of tenants creates the first tenant."
	return err
}

// traffic is what all tenants did in the last 24 hours.
type traffic struct {
	IsPending bool   // it is still being added up
	Problem   string // why there are no figures, or only old ones; may be empty
	At        string
	Drawing   *drawing
	Outcomes  list // what was refused or failed

	Requests, Refused, Failed total
}

// total is a number of requests of the last 24 hours.
type total struct{ Text, Note string }

// trafficNow adds up the requests of the last 24 hours by hour and outcome.
func (c *Console) trafficNow(patience context.Context) (t traffic) {
	rows, known, err := c.hours.look(c.ctx, patience)
	t.IsPending, t.Problem = known.IsZero() && err == nil, problemOf(err, known)
	if known.IsZero() {
		return t
	}
	t.At = known.UTC().Format("15:04:05 UTC")
	span := usageSpans[usualSpan]
	starts := span.starts(instant.Of(c.cfg.Clock()))
	open := starts[len(starts)-1]
	now, outcomes := make([]usage.OfPeriod, 0, len(rows)), map[string]int64{}
	var sums [3]int64 // by class
	var closed, closedBefore int64
	for _, r := range rows {
		switch {
		case r.Outcome == reportOutcome:
		case r.Start >= starts[0]:
			now = append(now, r)
			outcomes[r.Outcome] += r.Requests
			sums[classOf(r.Outcome)] += r.Requests
			if r.Start < open {
				closed += r.Requests
			}
		case r.Start >= starts[0].Add(-day) && r.Start < open.Add(-day):
			closedBefore += r.Requests
		}
	}
	t.Drawing = drawn(span.plot("traffic", "Requests of all tenants by hour, UTC", starts, now, plot.Outcomes))
	delete(outcomes, code.OK.Name)
	t.Outcomes = outcomeList("Why requests were refused or failed", outcomes)
	all := sums[0] + sums[1] + sums[2]
	t.Requests = total{humanize.Comma(all), change(closed, closedBefore)}
	t.Refused = total{humanize.Comma(sums[1]), percent(sums[1], all) + " of all"}
	t.Failed = total{humanize.Comma(sums[2]), percent(sums[2], all) + " of all"}
	return t
}

// problemOf says why figures could not be read. known is when they were read before; zero: never.
func problemOf(err error, known time.Time) string {
	switch {
	case err == nil:
		return ""
	case known.IsZero():
		return "The requests cannot be added up: " + err.Error() + "."
	}
	at := known.UTC().Format("15:04:05 UTC")
	return "The requests cannot be added up now. These figures are of " + at + ". The error: " + err.Error() + "."
}

// change compares the closed hours of today with the same hours of the day before.
func change(now, before int64) string {
	if before == 0 {
		return "none on the day before"
	}
	return fmt.Sprintf("%+.0f %% against the day before", 100*float64(now-before)/float64(before))
}

// percent writes a part: 1.2 %.
func percent(part, all int64) string {
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(max(all, 1)))
}

// endingList returns keys that expire soon.
func endingList(v *visit, keys []operate.KeyView) list {
	l := list{
		Caption: "Keys that expire in the next 14 days", Columns: titled("Key", "Tenant", "Expires", "Last used"),
		None: "No key expires in the next 14 days.",
	}
	for _, k := range keys {
		l.Rows = append(l.Rows, []cell{
			{Text: k.ID, Link: keyPath(k.ID)},
			{Text: k.Tenant, Link: tenantPath(k.TenantID)},
			v.whenText(k.ExpiresAt, "never"),
			v.whenText(k.LastUsedAt, "never"),
		})
	}
	return l
}

// readExpiring reads the keys that expire soon.
func (c *Console) readExpiring(ctx context.Context) ([]operate.KeyView, error) {
	o := operate.Operator{Store: c.cfg.Store, Clock: c.cfg.Clock}
	keys, err := keystore.Collect(lists.Of(o.Store).KeysExpiring(ctx, endsWithin, tenantsTop))
	if err != nil {
		return nil, err
	}
	return o.ViewKeys(ctx, keys)
}

// readHours reads the requests of the last 48 hours.
func (c *Console) readHours(ctx context.Context) ([]usage.OfPeriod, error) {
	return usage.Of(c.cfg.Store).UsageOfAll(ctx, instant.Of(c.cfg.Clock()).Add(time.Hour-2*day))
}
