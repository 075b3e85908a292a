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

// askTenants is how many tenants a gateway is asked for: more than are shown, because each gateway has its own order.
const askTenants = 1000

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
	at            time.Time
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

	history history
}

// topRow is a tenant's line of CSV.
type topRow struct {
	At string `json:"at"`
	topTenant
}

func (v *topView) csv() []topRow {
	rows := make([]topRow, len(v.Tenants))
	for i, t := range v.Tenants {
		rows[i] = topRow{v.At, t}
	}
	return rows
}

func (v *topView) cut(n int) { v.Tenants = v.Tenants[:min(n, len(v.Tenants))] }

// watch follows all registered gateways from refresh to refresh. Its methods must not be called concurrently.
type watch struct {
	app       *app
	figures   operate.Watch
	gateways  []keystore.Gateway
	bans      map[string]int       // banned keys, by tenant's ID
	names     map[id.Tenant]string // of tenants
	histories map[string]history   // by tenant's ID
	readAt    time.Time            // when the database answered last; zero: never
}

func newWatch(a *app) *watch {
	return &watch{app: a, names: map[id.Tenant]string{}, histories: map[string]history{}}
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

// readNames fills in the names of tenants. A name is read once; a tenant without a name shows its ID.
func (w *watch) readNames(ctx context.Context, tenants []topTenant) (err error) {
	ids, missing := make([]id.Tenant, len(tenants)), []id.Tenant{}
	for i, t := range tenants {
		ids[i], _ = id.ParseTenant(t.TenantID) // a gateway that sends something else has no name for it
		if _, known := w.names[ids[i]]; !known {
			missing = append(missing, ids[i])
		}
	}
	if len(missing) > 0 {
		ctx, cancel := context.WithTimeout(ctx, readWithin)
		defer cancel()
		var known map[id.Tenant]keystore.Tenant
		known, err = w.app.store.TenantsOf(ctx, missing)
		for tenant, t := range known {
			w.names[tenant] = t.Name
		}
	}
	for i := range tenants {
		tenants[i].Tenant = cmp.Or(w.names[ids[i]], tenants[i].TenantID)
	}
	return err
}

// view adds up what the gateways say.
func (w *watch) view(all []operate.Figures) topView {
	now := w.app.Clock()
	v := topView{At: now.UTC().Format(time.RFC3339), Gateways: []topGateway{}, Tenants: []topTenant{}, at: now}
	for _, f := range all {
		row := topGateway{
			ID: f.Gateway.ID, AdminAddress: f.Gateway.AdminAddress, Mode: f.Mode, P50: f.P50, P99: f.P99, BansImposed: f.Live.Bans,
		}
		if f.Err != nil {
			row.Error = f.Err.Error()
		}
		if f.Seconds > 0 {
			v.rate, v.refused = v.rate+f.RequestRate, v.refused+f.RefusedRate
			rate, refused := rounded(f.RequestRate, 2), rounded(f.RefusedRate, 2)
			row.RequestsPerSecond, row.RefusedPerSecond = &rate, &refused
		}
		v.Gateways = append(v.Gateways, row)
		v.Active = max(v.Active, f.Active)
	}
	sums := operate.SumTenants(all)
	for tenant, s := range sums {
		h := w.histories[tenant]
		h.add(now, s.Seconds, s.RequestRate)
		w.histories[tenant] = h
		limits := operate.ViewLimits(s.Limits)
		v.Tenants = append(v.Tenants, topTenant{
			TenantID: tenant, Plan: s.Plan, RequestsPerSecond: rounded(s.RequestRate, 2), RefusedPerSecond: rounded(s.RefusedRate, 2),
			MinuteUsed: s.MinuteUsed, MinuteLimit: limits.Minute, MinuteShare: shareUsed(s.MinuteUsed, s.Limits.Minute),
			DayUsed: s.DayUsed, DayLimit: limits.Day, DayShare: shareUsed(s.DayUsed, s.Limits.Day),
			BannedKeys: w.bans[tenant], history: h,
		})
	}
	for tenant, h := range w.histories {
		if h.isOver(now) {
			delete(w.histories, tenant)
		}
	}
	v.Active = max(v.Active, len(v.Tenants))
	return v
}

func shareUsed(used, limit int64) float64 {
	if limit == 0 {
		return 0
	}
	return rounded(float64(used)/float64(limit), 4)
}

// rounded keeps some decimals, for people who read JSON.
func rounded(x float64, decimals int) float64 {
	scale := math.Pow10(decimals)
	return math.Round(x*scale) / scale
}

// filtered returns the tenants whose name, ID or plan contains the text.
func filtered(tenants []topTenant, text string) []topTenant {
	text = strings.ToLower(text)
	var found []topTenant
	for _, t := range tenants {
		if strings.Contains(strings.ToLower(t.Tenant+"\n"+t.TenantID+"\n"+t.Plan), text) {
			found = append(found, t)
		}
	}
	return found
}

// history has the rates of the last minute, by second.
type history struct {
	last  int64       // the second of the latest rate
	rates [60]float64 // of a second: rates[second % 60]; NaN: not known
}

// add adds the mean rate of some seconds before now; 0 seconds: it is not known.
func (h *history) add(now time.Time, seconds, rate float64) {
	to := now.Unix()
	for second := max(h.last, to-60) + 1; second <= to; second++ {
		h.rates[second%60] = math.NaN()
		if float64(to-second) < math.Round(seconds) {
			h.rates[second%60] = rate
		}
	}
	h.last = to
}

// isOver reports whether nothing of the last minute is known.
func (h *history) isOver(now time.Time) bool { return now.Unix()-h.last >= 60 }

// bins returns the mean rates of the last minute in n parts, the latest last; n divides 60. The parts begin at multiples of their length,
// so a rate does not move from one part to the next. NaN: nothing is known.
func (h *history) bins(now time.Time, n int) []float64 {
	length := int64(60 / n)
	begin := (now.Unix()/length+1)*length - 60
	rates := make([]float64, n)
	for i := range rates {
		sum, known := 0.0, 0.0
		for second := begin + int64(i)*length; second < begin+int64(i+1)*length; second++ {
			if rate := h.rates[second%60]; second <= h.last && second > h.last-60 && !math.IsNaN(rate) {
				sum, known = sum+rate, known+1
			}
		}
		rates[i] = sum / known
	}
	return rates
}
