package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore/lists"
	"petgate/shared/keystore/usage"
)

// UsageView is a number of requests as JSON; scripts rely on its fields. It has the fields by which
// it is grouped.
type UsageView struct {
	Start     *string `json:"start,omitempty"`     // of the hour or UTC day
	Operation *string `json:"operation,omitempty"` // empty: refused before the operation was known
	Key       *string `json:"key,omitempty"`       // its ID
	KeyName   *string `json:"keyName,omitempty"`
	Outcome   *string `json:"outcome,omitempty"`
	Requests  int64   `json:"requests"`
	Charged   int64   `json:"charged"` // of the requests: taken from the quota
	Units     int64   `json:"units"`   // that the charged requests cost
}

// Grouping says by which fields usage is added up.
type Grouping struct {
	Period                  time.Duration // a minute, an hour or a UTC day; 0: the whole time
	Operation, Key, Outcome bool
}

// Groupings are the names of what usage can be grouped by.
var Groupings = []string{"minute", "hour", "day", "operation", "key", "outcome"}

// UnmarshalText reads names of Groupings, separated by commas.
func (g *Grouping) UnmarshalText(text []byte) error {
	*g = Grouping{}
	for name := range strings.SplitSeq(string(text), ",") {
		switch name {
		case "minute":
			if name != string(text) {
				return errors.New("minute stands alone: by minute, only attempts are kept")
			}
			g.Period = time.Minute
		case "hour", "day":
			if g.Period != 0 {
				return errors.New("use only one of hour and day")
			}
			g.Period = time.Hour
			if name == "day" {
				g.Period = day
			}
		case "operation":
			g.Operation = true
		case "key":
			g.Key = true
		case "outcome":
			g.Outcome = true
		default:
			return fmt.Errorf("%q is not a group: use %s, or several of them with commas", name,
				strings.Join(Groupings, ", "))
		}
	}
	return nil
}

// Forever is later than every hour of usage.
const Forever = instant.Millis(math.MaxInt64)

// UsagePeriod is the time whose usage is looked at.
type UsagePeriod struct {
	Since Moment `json:"since" default:"7d" placeholder:"AGE" help:"How far back: 24h, 1w, or from a date: 2026-11-20."`
	Until Moment `json:"until" placeholder:"AGE" help:"Leave out what is later: 24h, 1w, or from a date on: 2026-12-01."`
}

// Of returns the period. Without an end, it is Forever: the clock of a gateway may be ahead.
// Errors: an *ArgumentError.
func (p UsagePeriod) Of(now instant.Millis) (since, until instant.Millis, err error) {
	since, until = p.Since.Before(now), Forever
	if p.Until != (Moment{}) {
		until = p.Until.Before(now)
		if until <= since {
			err = wrongArgument("until", fmt.Errorf("%s is not later than since, %s", until, since))
		}
	}
	return since, until, err
}

// of returns the fields by which a row is grouped, and in which order its group comes.
func (g Grouping) of(r usage.Row, names map[id.Key]string) (v UsageView, order [5]string) {
	if g.Period != 0 {
		order[0] = r.Hour.Truncate(g.Period).String()
		v.Start = &order[0]
	}
	if g.Operation {
		v.Operation, order[1] = &r.Operation, r.Operation
	}
	if g.Key {
		if !r.Key.IsZero() {
			order[2], order[3] = names[r.Key], r.Key.String()
		}
		v.KeyName, v.Key = &order[2], &order[3]
	}
	if g.Outcome {
		v.Outcome, order[4] = &r.Outcome, r.Outcome
	}
	return v, order
}

// Usage adds up the usage of a tenant's keys in an environment from the hour of since on and before
// until, ordered by time, operation, key and outcome. rows is what was added up.
func (o Operator) Usage(
	ctx context.Context, tenant id.Tenant, in apikey.Environment, since, until instant.Millis, by Grouping,
) (views []UsageView, total UsageView, rows []usage.Row, err error) {
	if rows, err = usage.Of(o.Store).Usage(ctx, tenant, since); err != nil {
		return nil, total, nil, err
	}
	rows = slices.DeleteFunc(rows,
		func(r usage.Row) bool { return r.Hour >= until || r.IsTest != (in == apikey.Test) })
	names := map[id.Key]string{}
	for k, err := range lists.Of(o.Store).Keys(ctx, tenant) {
		if err != nil {
			return nil, total, nil, err
		}
		names[k.ID] = k.Name
	}
	sums := map[[5]string]*UsageView{}
	for _, r := range rows {
		v, order := by.of(r, names)
		if sums[order] == nil {
			sums[order] = &v
		}
		for _, sum := range []*UsageView{sums[order], &total} {
			charged, units := r.Taken()
			sum.Requests, sum.Charged, sum.Units = sum.Requests+r.Requests, sum.Charged+charged, sum.Units+units
		}
	}
	views = make([]UsageView, 0, len(sums))
	inOrder := func(a, b [5]string) int { return slices.Compare(a[:], b[:]) }
	for _, order := range slices.SortedFunc(maps.Keys(sums), inOrder) {
		views = append(views, *sums[order])
	}
	return views, total, rows, nil
}

// TopView is the usage of a tenant's live keys as JSON; scripts rely on its fields.
type TopView struct {
	TenantID   string     `json:"tenantId"`
	Tenant     string     `json:"tenant"` // its name
	Plan       string     `json:"plan"`
	Limits     LimitsView `json:"limits"`
	Requests   int64      `json:"requests"`
	Charged    int64      `json:"charged"`
	Units      int64      `json:"units"`
	BusiestDay int64      `json:"busiestDay"` // units in the busiest UTC day

	Owner Owner `json:"-"` // the tenant; without a name: it does not exist
}

// TopUsage lists the n tenants whose live keys used most.
func (o Operator) TopUsage(ctx context.Context, since, until instant.Millis, n int) ([]TopView, error) {
	rows, err := usage.Of(o.Store).TopUsage(ctx, since, until, n)
	if err != nil {
		return nil, err
	}
	tenants, err := o.Owners(ctx, ViewsOf(rows, func(u usage.OfTenant) id.Tenant { return u.Tenant }))
	return ViewsOf(rows, func(u usage.OfTenant) TopView {
		t := tenants[u.Tenant]
		return TopView{
			TenantID: u.Tenant.String(),
			Tenant:   cmp.Or(t.Name, u.Tenant.String()),
			Plan:     t.Plan,
			Limits:   ViewLimits(t.Limits),
			Requests: u.Requests, Charged: u.Charged, Units: u.Units, BusiestDay: u.BusiestDay, Owner: t,
		}
	}), err
}
