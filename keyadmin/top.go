package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/keystore"
	"petgate/shared/keystore/lists"
	"petgate/shared/operate"
)

type topCommand struct {
	Once bool `help:"Print one refresh and end."`
}

const (
	topEvery = 2 * time.Second
	topRows  = 30 // tenants that are shown

	// askTenants is how many tenants a gateway is asked for: more than are shown, because each
	// gateway has its own order.
	askTenants = 1000

	clearScreen = "\x1b[H\x1b[2J"
)

// readWithin is how long the database has to answer in a refresh. A variable, because tests have to
// pass on a busy machine.
var readWithin = time.Second

// topView is one refresh, as JSON; scripts rely on its fields. A rate is missing after a pause.
type topView struct {
	At       string       `json:"at"`
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

// watch follows all registered gateways from refresh to refresh. What the database does not tell
// stays as it was.
type watch struct {
	app      *app
	figures  operate.Watch
	gateways []keystore.Gateway
	bans     map[string]int    // banned keys, by tenant's ID
	names    map[string]string // of tenants, by ID
}

// Run prints refreshes until a signal ends it. The first refresh has no rates yet, so it is not
// printed.
func (c *topCommand) Run(ctx context.Context, a *app, _ operate.Operator) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	once := c.Once || !a.OutTerminal || a.asData() || a.env["TERM"] == "dumb"
	w := watch{app: a, names: map[string]string{}}
	began := a.Clock()
	w.refresh(ctx)
	for wait := time.Second; a.Sleep(ctx, wait-a.Clock().Sub(began)) == nil; wait = topEvery {
		began = a.Clock()
		view := w.refresh(ctx)
		if ctx.Err() != nil {
			return nil
		}
		view.Tenants = view.Tenants[:min(topRows, len(view.Tenants))]
		if err := a.printTop(view, once); err != nil || once {
			return err
		}
	}
	return nil
}

// refresh asks the database and then all gateways at once, each for at most a second, and returns
// the view, the busiest tenants first.
func (w *watch) refresh(ctx context.Context) topView {
	err := w.read(ctx)
	v := w.view(w.figures.Ask(ctx, w.gateways, askTenants))
	slices.SortFunc(v.Tenants, func(a, b topTenant) int {
		return cmp.Or(cmp.Compare(b.RequestsPerSecond, a.RequestsPerSecond), cmp.Compare(a.TenantID, b.TenantID))
	})
	if err = cmp.Or(err, w.readNames(ctx, v.Tenants)); err != nil {
		v.Problem = fmt.Sprintf("The database cannot be read, so gateways, names and bans may have changed: %v", err)
	}
	return v
}

// read reads gateways and bans from the database.
func (w *watch) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	gateways, err := w.app.operator.Store.Gateways(ctx)
	if err != nil {
		return err
	}
	found, err := lists.Of(w.app.operator.Store).FindBans(ctx, id.Tenant{}, "", math.MaxInt32)
	if err != nil {
		return err
	}
	bans := map[string]int{}
	for _, ban := range found {
		bans[ban.Tenant.String()]++
	}
	w.gateways, w.bans = gateways, bans
	return nil
}

// readNames fills in the names of tenants: those that are known, else their IDs.
func (w *watch) readNames(ctx context.Context, tenants []topTenant) error {
	ids := make([]id.Tenant, len(tenants))
	for i, t := range tenants {
		ids[i], _ = id.ParseTenant(t.TenantID) // a text that is no ID gets no name
	}
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	known, err := lists.Of(w.app.operator.Store).TenantsOf(ctx, ids)
	for tenant, t := range known {
		w.names[tenant.String()] = t.Name
	}
	for i, t := range tenants {
		tenants[i].Tenant = cmp.Or(w.names[t.TenantID], t.TenantID)
	}
	return err
}

// view adds up what the gateways say.
func (w *watch) view(all []operate.Figures) topView {
	v := topView{At: w.app.Clock().UTC().Format(time.RFC3339), Gateways: []topGateway{}, Tenants: []topTenant{}}
	for _, f := range all {
		row := topGateway{
			ID:           f.Gateway.ID,
			AdminAddress: f.Gateway.AdminAddress,
			Mode:         f.Mode,
			P50:          f.P50,
			P99:          f.P99,
			BansImposed:  f.Live.Bans,
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
			TenantID:          tenant,
			Plan:              s.Plan,
			RequestsPerSecond: hundredths(s.RequestRate),
			RefusedPerSecond:  hundredths(s.RefusedRate),
			MinuteUsed:        s.MinuteUsed,
			MinuteLimit:       limits.Minute,
			MinuteShare:       shareUsed(s.MinuteUsed, s.Limits.Minute),
			DayUsed:           s.DayUsed,
			DayLimit:          limits.Day,
			DayShare:          shareUsed(s.DayUsed, s.Limits.Day),
			MonthUsed:         s.MonthUsed,
			MonthLimit:        limits.Month,
			MonthShare:        shareUsed(s.MonthUsed, s.Limits.Month),
			BannedKeys:        w.bans[tenant],
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

// printTop prints one refresh: tables, an object, or a line of CSV for each tenant. Without once,
// it takes the place of the one before.
func (a *app) printTop(v topView, once bool) error {
	type row struct {
		At string `json:"at"`
		topTenant
	}
	switch {
	case a.cli.Output == "csv":
		for _, problem := range v.problems() {
			a.note("%s", problem)
		}
		return a.print(operate.ViewsOf(v.Tenants, func(t topTenant) row { return row{v.At, t} }), table{})
	case a.cli.Output == "json":
		return a.print(v, table{})
	}
	lines := a.topLines(v)
	if !once {
		lines[0] = clearScreen + lines[0]
		if _, height := a.Size(); height > 1 {
			lines = lines[:min(len(lines), height-1)]
		}
	}
	_, err := output{a.Out}.Write([]byte(strings.Join(lines, "\n") + "\n"))
	return err
}

// problems are what makes a refresh incomplete.
func (v *topView) problems() []string {
	var problems, away []string
	if v.Problem != "" {
		problems = append(problems, v.Problem)
	}
	for _, g := range v.Gateways {
		if g.Error != "" {
			problems = append(problems, "! "+g.ID+": "+g.Error)
		}
		if g.Mode == "outage" {
			away = append(away, g.ID)
		}
	}
	switch {
	case len(v.Gateways) == 0 && v.Problem == "":
		problems = append(problems, "No gateway is registered.")
	case away != nil:
		problems = append(problems,
			"! Redis is away from "+strings.Join(away, ", ")+": MINUTE, DAY and MONTH show what one gateway knows")
	}
	return operate.ViewsOf(problems, operate.Printable)
}

// topLines draws a refresh.
func (a *app) topLines(v topView) []string {
	width := a.width()
	lines := []string{
		fmt.Sprintf("%s  %s req/s  %s refused/s  tenants %s", v.At, rate(v.rate), rate(v.refused),
			count(int64(v.Active))),
	}
	lines = append(lines, v.problems()...)
	add := func(t table) {
		var text bytes.Buffer
		t, _ = t.fit(width)
		t.write(&text, width)
		lines = append(append(lines, ""), strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")...)
	}
	optional := func(x *float64) string {
		if x == nil {
			return "-"
		}
		return rate(*x)
	}
	gateways := table{
		head:  []string{"GATEWAY", "REQ/S", "REFUSED/S", "P50", "P99", "COUNTED"},
		spare: []string{"COUNTED", "P50", "REFUSED/S"},
	}
	for _, g := range v.Gateways {
		if g.Error == "" {
			gateways.rows = append(gateways.rows, []string{
				g.ID,
				optional(g.RequestsPerSecond),
				optional(g.RefusedPerSecond),
				operate.Latency(g.P50),
				operate.Latency(g.P99),
				g.Mode,
			})
		}
	}
	if len(gateways.rows) > 0 {
		add(gateways)
	}
	tenants := table{
		head:  []string{"TENANT", "PLAN", "REQ/S", "REFUSED/S", "MINUTE", "DAY", "MONTH", "BANS"},
		spare: []string{"PLAN", "BANS", "REFUSED/S"},
	}
	for _, t := range v.Tenants {
		tenants.rows = append(tenants.rows, []string{
			t.Tenant, t.Plan, rate(t.RequestsPerSecond), rate(t.RefusedPerSecond),
			percent(t.MinuteShare), percent(t.DayShare), percent(t.MonthShare), count(int64(t.BannedKeys)),
		})
	}
	add(tenants)
	return lines
}

// rate writes requests per second.
func rate(x float64) string {
	if x < 1000 {
		return fmt.Sprintf("%.1f", x)
	}
	return count(int64(x))
}

// percent writes a share. Something is never 0 %, and not everything is never 100 %.
func percent(share float64) string {
	p := math.Floor(share*100 + 1e-9) // 0.29 is a little less in binary digits
	if share > 0 && p == 0 {
		return "<1 %"
	}
	return count(int64(p)) + " %"
}
