package console

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/keystore"
	"petgate/shared/keystore/usage"
	"petgate/shared/operate"
	"petgate/shared/testkit/must"
)

// at is a Tuesday.
var at = time.Date(2026, 3, 3, 10, 30, 0, 0, time.UTC)

// used returns a console whose tenant has the given usage.
func used(t *testing.T, rows ...usage.Row) (*Console, id.Tenant) {
	t.Helper()
	s := newSite(t)
	s.console.cfg.Clock = func() time.Time { return at }
	store := keystore.New(s.db, s.console.cfg.Clock, nil, "gw-1")
	s.console.cfg.Store = store
	must.First[keystore.Plan](t)(
		store.CreatePlan(t.Context(), keystore.Plan{Name: "small", Limits: plan.Limits{Minute: 10, Day: 10_000}}),
	)
	tenant := must.First[keystore.Tenant](t)(
		store.CreateTenant(t.Context(), keystore.TenantSpec{Name: "acme", Plan: "small"}),
	)
	for i := range rows {
		rows[i].Tenant = tenant.ID
	}
	gateway := keystore.Registration{ID: "gw-1", Incarnation: "a"}
	gateway.Generation = must.Get[int64](t)(store.Register(t.Context(), gateway, nil))
	must.Do(t, usage.Of(store).AddUsage(t.Context(), gateway, 1, rows, nil))
	return s.console, tenant.ID
}

func hourOf(t *testing.T, text string) instant.Millis {
	return instant.Of(must.Get[time.Time](t)(time.Parse("2006-01-02 15:04", text)))
}

// Each span has all its bars, the present one last, and every request is in exactly one bar of each
// drawing.
func TestUsageOfSpans(t *testing.T) {
	row := func(hour, outcome, operation string, requests int64) usage.Row {
		return usage.Row{
			Hour: hourOf(t, hour), Outcome: outcome, Operation: operation, Requests: requests,
			Charged: outcome == "ok" || outcome == "upstream_failed",
		}
	}
	c, tenant := used(t,
		row("2026-03-03 10:00", "ok", "listPets", 1000),
		row("2026-03-03 10:00", "upstream_failed", "createPet", 20),
		row("2026-03-02 11:00", "minute_quota_exceeded", "", 20),
		row("2026-03-02 09:00", "minute_quota_exceeded", "", 5),
		row("2026-03-02 12:00", "report", "getQuota", 500),
		row("2026-03-02 10:00", "ok", "listPets", 300), // before 24 h
		row("2026-03-01 23:00", "ok", "getPet", 4),     // a Sunday
		row("2025-03-01 00:00", "ok", "listPets", 60),
		row("2026-03-03 11:00", "ok", "listPets", 2), // a clock is ahead
	)
	dayRefusals := [][]string{
		{"3 Mar", "upstream_failed", "createPet", "20"}, {"2 Mar", "minute_quota_exceeded", "no operation", "25"},
	}
	for _, test := range []struct {
		span, limit, bar, last string
		outcomes               [][]string // rows of the table
		refusals               [][]string
	}{
		{
			"24h", "limit 600", "hour", "10:00",
			[][]string{{"2026-03-03 10:00 UTC", "1,002", "0", "20"}, {"2026-03-02 11:00 UTC", "0", "20", "0"}},
			[][]string{
				{"3 Mar 10:00", "upstream_failed", "createPet", "20"},
				{"2 Mar 11:00", "minute_quota_exceeded", "no operation", "20"},
			},
		},
		{
			"30d", "limit 10,000", "day", "3 Mar",
			[][]string{
				{"2026-03-03", "1,002", "0", "20"},
				{"2026-03-02", "300", "25", "0"},
				{"2026-03-01", "4", "0", "0"},
			},
			dayRefusals,
		},
		{
			"400d", "", "week", "2 Mar",
			[][]string{
				{"the week of 2026-03-02", "1,302", "25", "20"},
				{"the week of 2026-02-23", "4", "0", "0"},
				{"the week of 2025-02-24", "60", "0", "0"},
			},
			dayRefusals,
		},
	} {
		part := c.usageOf(t.Context(), operate.Operator{Store: c.cfg.Store}, tenant, id.Key{}, test.span,
			plan.Limits{Minute: 10, Day: 10_000})
		if part.Problem != "" || part.Drawing == nil {
			t.Fatalf("%s: %v", test.span, part.Problem)
		}
		isRow := func(row []cell, want []string) bool {
			return slices.EqualFunc(row, want, func(c cell, text string) bool { return c.Text == text })
		}
		if of := part.Drawing.Figures; !slices.EqualFunc(of.Rows, test.outcomes, isRow) ||
			of.Columns[0].Title != test.bar+" (UTC)" ||
			part.Drawing.Bars[len(part.Drawing.Bars)-1].Label != test.last {
			t.Errorf("%s by outcome: %v, want %v", test.span, of, test.outcomes)
		}
		if rows := part.Refusals.Rows; !slices.EqualFunc(rows, test.refusals, isRow) {
			t.Errorf("%s, refusals: %v, want %v", test.span, rows, test.refusals)
		}
		svg := string(part.Drawing.SVGs[0])
		if hasLimit := strings.Contains(svg, ">limit "); hasLimit != (test.limit != "") ||
			!strings.Contains(svg, test.limit) {
			t.Errorf("%s has a limit: %t, want %q", test.span, hasLimit, test.limit)
		}
	}
	part := c.usageOf(t.Context(), operate.Operator{Store: c.cfg.Store}, tenant, id.Key{}, "nonsense", plan.Limits{})
	var outcomes []string
	for _, row := range part.Outcomes.Rows {
		outcomes = append(outcomes, fmt.Sprint(row[0].Text, row[2].Text, row[2].Bar))
	}
	if part.Problem != "" || !part.Spans[usualSpan].Chosen ||
		!slices.Equal(outcomes, []string{"ok1,002100", "minute_quota_exceeded201", "upstream_failed201"}) {
		t.Errorf("without a known span: %+v, outcomes %q, %v", part.Spans[usualSpan], outcomes, part.Problem)
	}
	ofKey := c.usageOf(t.Context(), operate.Operator{Store: c.cfg.Store}, tenant, id.Key{1}, "3h", plan.Limits{})
	if len(ofKey.Spans) != 3 || ofKey.Spans[0].Name != "24h" || !ofKey.Spans[0].Chosen || ofKey.Drawing != nil {
		t.Errorf("of a key that was not used: %+v", ofKey)
	}
	hours := usageSpans[usualSpan]
	for limits, want := range map[plan.Limits]int64{
		{Minute: 10, Day: 600}: 600, {Minute: 10, Day: 599}: 0, {Minute: 10}: 600, {Day: 600}: 0,
	} {
		must.Equal(t, hours.limit(limits), want, "the limit of an hour, of %+v", limits)
	}
	banned := slices.Repeat([]usage.OfPeriod{{Outcome: "key_banned"}}, refusalsShown+1)
	must.Equal(t, len(refusalList(hours, banned).Rows), refusalsShown, "refusals that are shown")
	(&site{T: t}).checkPage(
		"the page", 200, 200, rendered(t, c, part), `aria-labelledby="usage-outcome-title usage-outcome-desc"`,
		"<summary>Requests by outcome: figures</summary>", `href="?usage=400d#usage"`,
		`</span> 10:00 UTC</th><td role="cell" data-title="served" class="number">1,002</td>`, "!<style", "!style=",
	) // the policy of the page forbids an inline style
}

func rendered(t *testing.T, c *Console, part usagePart) string {
	t.Helper()
	var page strings.Builder
	must.Do(t, c.pages["overview"].ExecuteTemplate(&page, "usage", part))
	return page.String()
}

// The attempts of all gateways are added up by minute. Those before the span are left out.
func TestMinutes(t *testing.T) {
	c, tenant := used(t)
	for i, id := range []string{"gw-2", "gw-3"} {
		gateway := keystore.Registration{ID: id, Incarnation: "a"}
		must.Get[int64](t)(c.cfg.Store.Register(t.Context(), gateway, nil))
		hours := []usage.Minutes{
			{Tenant: tenant, Hour: hourOf(t, "2026-03-03 10:00")}, {Tenant: tenant, Hour: hourOf(t, "2026-03-03 07:00")},
		}
		hours[0].Attempts[29], hours[1].Attempts[30], hours[1].Attempts[31] = int64(1000+i), 40, 2
		must.Do(t, usage.Of(c.cfg.Store).AddUsage(t.Context(), gateway, 1, nil, hours))
	}
	part := c.usageOf(t.Context(), operate.Operator{Store: c.cfg.Store}, tenant, id.Key{}, "3h",
		plan.Limits{Minute: 600, Day: 10_000})
	if last := part.Drawing.Bars[179]; last.Label != "10:30" {
		t.Errorf("the last minute is %+v", last)
	}
	const attempts = `</th><td role="cell" data-title="attempts" class="number">`
	(&site{T: t}).checkPage("the page", 200, 200, rendered(t, c, part), "Attempts by minute", ">limit 600<",
		"An attempt is",
		`</span> 10:29 UTC`+attempts+`2,001</td>`, `</span> 07:31 UTC`+attempts+`4</td>`, "!07:30 UTC", "!Outcomes",
		"2026-03-03 10:30 UTC: 2,005 attempts. The highest minute is 2026-03-03 10:29 UTC with 2,001.")
}
