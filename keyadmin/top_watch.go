package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/keystore"
	"petgate/shared/operate"
)

// readWithin is how long the database has to answer in a refresh. A variable, because tests have to pass on a busy machine.
var readWithin = time.Second

// topView is one refresh, as JSON; scripts rely on its fields. A rate is missing in the first refresh, and after a pause.
type topView struct {
	At       string       `json:"at"`
	By       topOrder     `json:"by"`
	Active   int          `json:"activeTenants"` // that called in the last 10 to 20 s
	Gateways []topGateway `json:"gateways"`
	Tenants  []topTenant  `json:"tenants"`
	Problem  string       `json:"problem,omitempty"` // of the database

	rate, refused float64 // of all gateways
}

type topGateway struct {
	ID                string   `json:"id"`
	AdminAddress      string   `json:"adminAddress"`
	Error             string   `json:"error,omitempty"` // why it is missing
	Mode              string   `json:"mode,omitempty"`
	RequestsPerSecond *float64 `json:"requestsPerSecond,omitempty"`
	RefusedPerSecond  *float64 `json:"refusedPerSecond,omitempty"`
	P50               *float64 `json:"p50Millis,omitempty"`
	P99               *float64 `json:"p99Millis,omitempty"`
	BansImposed       int64    `json:"bansImposed"` // since its start
}

type topTenant struct {
	TenantID          string  `json:"tenantId"`
	Tenant            string  `json:"tenant"`
	Plan              string  `json:"plan"`
	RequestsPerSecond float64 `json:"requestsPerSecond"`
	RefusedPerSecond  float64 `json:"refusedPerSecond"`
	MinuteUsed        int64   `json:"minuteUsed"`
	MinuteLimit       *int64  `json:"minuteLimit"` // null: not set
	MinuteShare       float64 `json:"minuteShare"` // 1 is the whole limit
	DayUsed           int64   `json:"dayUsed"`
	DayLimit          *int64  `json:"dayLimit"`
	DayShare          float64 `json:"dayShare"`
	BannedKeys        int     `json:"bannedKeys"`
	MonthUsed         int64   `json:"monthUsed"`
	MonthLimit        *int64  `json:"monthLimit"`
	MonthShare        float64 `json:"monthShare"`
}

// topRow is a tenant's line of CSV.
type topRow struct {
	At string `json:"at"`
	topTenant
}

// problems are what makes a refresh incomplete.
func (v *topView) problems() []string {
	var problems, away []string
	if v.Problem != "" {
		problems = append(problems, v.Problem)
	}
	for _, g := range v.Gateways {
		if g.Error != "" {
			problems = append(problems, fmt.Sprintf("! %s (%s): %s", g.ID, operate.OrDash(g.AdminAddress), g.Error))
		}
		if g.Mode == "outage" {
			away = append(away, g.ID)
		}
	}
	switch {
	case len(v.Gateways) == 0 && v.Problem == "":
		problems = append(problems, "No gateway is registered.")
	case away != nil:
		problems = append(problems, "! Redis is away from "+strings.Join(away, ", ")+": MINUTE, DAY and MONTH show what one gateway knows")
	}
	for i := range problems {
		problems[i] = operate.Printable(problems[i])
	}
	return problems
}

// watch follows all registered gateways from refresh to refresh. Its methods must not be called concurrently.
type watch struct {
	app      *app
	figures  operate.Watch
	gateways []keystore.Gateway
	bans     map[string]int       // banned keys, by tenant's ID
	names    map[id.Tenant]string // of tenants
	readAt   time.Time            // when the database answered last; zero: never
}

// refresh asks the database and then all gateways at once, each for at most a second, and returns the view in the given order.
func (w *watch) refresh(ctx context.Context, by topOrder) topView {
	problem := w.read(ctx)
	v := w.view(w.figures.Ask(ctx, w.gateways, askTenants))
	v.By = by
	by.sort(v.Tenants)
	if err := w.readNames(ctx, v.Tenants); problem == nil {
		problem = err
	}
	if problem != nil {
		asOf := "none was read"
		if !w.readAt.IsZero() {
			asOf = "those of " + w.readAt.UTC().Format("15:04:05") + " are shown"
		}
		v.Problem = fmt.Sprintf("The database cannot be read, so gateways, names and bans may have changed; %s: %v", asOf, problem)
	}
	return v
}

// read reads gateways and bans from the database. If that fails, the earlier ones stay.
func (w *watch) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	gateways, err := w.app.store.Gateways(ctx)
	if err != nil {
		return err
	}
	bans := map[string]int{}
	for ban, err := range w.app.store.Bans(ctx) {
		if err != nil {
			return err
		}
		bans[ban.Tenant.String()]++
	}
	w.gateways, w.bans, w.readAt = gateways, bans, w.app.Clock()
	return nil
}

// readNames fills in the names of tenants. If the database does not answer, they have their last known names, or their IDs.
func (w *watch) readNames(ctx context.Context, tenants []topTenant) error {
	ids := make([]id.Tenant, len(tenants))
	for i, t := range tenants {
		ids[i], _ = id.ParseTenant(t.TenantID) // a gateway that sends something else has no name for it
	}
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	known, err := w.app.store.TenantsOf(ctx, ids)
	for tenant, t := range known {
		w.names[tenant] = t.Name
	}
	for i := range tenants {
		tenants[i].Tenant = cmp.Or(w.names[ids[i]], tenants[i].TenantID)
	}
	return err
}

// view adds up what the gateways say.
func (w *watch) view(all []operate.Figures) topView {
	v := topView{At: w.app.Clock().UTC().Format(time.RFC3339), Gateways: []topGateway{}, Tenants: []topTenant{}}
	for _, f := range all {
		row := topGateway{
			ID: f.Gateway.ID, AdminAddress: f.Gateway.AdminAddress, Mode: f.Mode, P50: f.P50, P99: f.P99, BansImposed: f.Live.Bans,
		}
		if f.Err != nil {
			row.Error = f.Err.Error()
		}
		if f.Seconds > 0 {
			v.rate, v.refused = v.rate+f.RequestRate, v.refused+f.RefusedRate
			rate, refused := hundredths(f.RequestRate), hundredths(f.RefusedRate)
			row.RequestsPerSecond, row.RefusedPerSecond = &rate, &refused
		}
		v.Gateways = append(v.Gateways, row)
		v.Active = max(v.Active, f.Active)
	}
	for tenant, s := range operate.SumTenants(all) {
		limits := operate.ViewLimits(s.Limits)
		v.Tenants = append(v.Tenants, topTenant{
			TenantID: tenant, Plan: s.Plan, RequestsPerSecond: hundredths(s.RequestRate), RefusedPerSecond: hundredths(s.RefusedRate),
			MinuteUsed: s.MinuteUsed, MinuteLimit: limits.Minute, MinuteShare: shareUsed(s.MinuteUsed, s.Limits.Minute),
			DayUsed: s.DayUsed, DayLimit: limits.Day, DayShare: shareUsed(s.DayUsed, s.Limits.Day),
			MonthUsed: s.MonthUsed, MonthLimit: limits.Month, MonthShare: shareUsed(s.MonthUsed, s.Limits.Month),
			BannedKeys: w.bans[tenant],
		})
	}
	v.Active = max(v.Active, len(v.Tenants))
	return v
}

func shareUsed(used, limit int64) float64 {
	if limit == 0 {
		return 0
	}
	return hundredths(100*float64(used)/float64(limit)) / 100
}

// hundredths rounds, for people who read JSON.
func hundredths(x float64) float64 { return math.Round(x*100) / 100 }
