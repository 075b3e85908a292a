package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"petgate/shared/keystore"
	"petgate/shared/operate"
)

// askTenants is how many tenants a gateway is asked for: more than are shown, because each gateway has its own order.
const askTenants = 1000

// Variables, because tests have to pass on a busy machine.
var (
	// readWithin is how long the database has to answer in a refresh.
	readWithin = time.Second
	// namesWithin is how long the names of new tenants may take. Those that are missing are read in the next refresh.
	namesWithin = 100 * time.Millisecond
)

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
	gateways  []keystore.Gateway
	last      map[string]operate.Live // by gateway and incarnation
	names     map[string]string       // of tenants, by ID
	bans      map[string]int          // banned keys, by tenant's ID
	histories map[string]history      // by tenant's ID
	readAt    time.Time               // when the database answered last; zero: never
}

func newWatch(a *app) *watch {
	return &watch{
		app: a, last: map[string]operate.Live{}, names: map[string]string{}, bans: map[string]int{}, histories: map[string]history{},
	}
}

// asked is a gateway's answer, or why there is none.
type asked struct {
	gateway keystore.Gateway
	answer  operate.Live
	err     error
}

// refresh asks all gateways and the database at once, each for at most a second, and returns the view in the given order. The first
// refresh has to ask the database before the gateways.
func (w *watch) refresh(ctx context.Context, by topOrder) topView {
	var problem error
	first := w.readAt.IsZero()
	if first {
		problem = w.read(ctx)
	}
	answers := make([]asked, len(w.gateways))
	var tasks []func()
	for i, g := range w.gateways {
		tasks = append(tasks, func() {
			answers[i].gateway = g
			answers[i].answer, answers[i].err = operate.AskLive(ctx, g, askTenants)
		})
	}
	if !first {
		tasks = append(tasks, func() { problem = w.read(ctx) })
	}
	together(tasks)
	view := w.view(answers, by)
	if problem != nil {
		view.Problem = w.stale(problem)
	}
	w.readNames(ctx, view.Tenants)
	return view
}

// together runs tasks at once and waits for all. A panic of a task becomes one of the caller, who can restore the terminal.
func together(tasks []func()) {
	panics := make(chan any, len(tasks))
	var group sync.WaitGroup
	for _, task := range tasks {
		group.Go(func() {
			defer func() {
				if panicked := recover(); panicked != nil {
					panics <- panicked
				}
			}()
			task()
		})
	}
	group.Wait()
	if len(panics) > 0 {
		panic(<-panics)
	}
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

func (w *watch) stale(problem error) string {
	asOf := "none was read"
	if !w.readAt.IsZero() {
		asOf = "those of " + w.readAt.UTC().Format("15:04:05") + " are shown"
	}
	return fmt.Sprintf("The database cannot be read, so gateways, names and bans may have changed; %s: %v", asOf, problem)
}

// readNames fills in the names of tenants, those of the first ones first. A name that is not known yet is read once; a tenant without a
// name shows its ID.
func (w *watch) readNames(ctx context.Context, tenants []topTenant) {
	ctx, cancel := context.WithTimeout(ctx, namesWithin)
	defer cancel()
	for i := range tenants {
		t := &tenants[i]
		name, known := w.names[t.TenantID]
		if !known && ctx.Err() == nil {
			if record, err := w.app.store.Tenant(ctx, t.TenantID); err == nil {
				name, w.names[t.TenantID] = record.Name, record.Name
			}
		}
		t.Tenant = cmp.Or(name, t.TenantID)
	}
}

// view compares the answers with those of the refresh before.
func (w *watch) view(answers []asked, by topOrder) topView {
	now := w.app.Clock()
	v := topView{At: now.UTC().Format(time.RFC3339), By: by, Gateways: []topGateway{}, Tenants: []topTenant{}, at: now}
	tenants, next := map[string]*sums{}, map[string]operate.Live{}
	for _, a := range answers {
		id := a.gateway.ID + "/" + a.gateway.Incarnation
		row := topGateway{ID: a.gateway.ID, AdminAddress: a.gateway.AdminAddress}
		if a.err != nil {
			row.Error = a.err.Error()
			v.Gateways = append(v.Gateways, row)
			continue
		}
		was := w.last[id]
		next[id] = a.answer
		row.Mode, row.P50, row.P99, row.BansImposed = a.answer.Mode, a.answer.P50, a.answer.P99, a.answer.Bans
		if rate, refused, known := a.answer.Rates(was); known {
			v.rate, v.refused = v.rate+rate, v.refused+refused
			rate, refused = rounded(rate, 2), rounded(refused, 2)
			row.RequestsPerSecond, row.RefusedPerSecond = &rate, &refused
			compare(a.answer, was, a.answer.SecondsAfter(was), tenants)
		} else {
			compare(a.answer, operate.Live{}, 0, tenants)
		}
		v.Gateways = append(v.Gateways, row)
	}
	w.last = next
	for _, id := range slices.Sorted(maps.Keys(tenants)) {
		v.Tenants = append(v.Tenants, w.tenant(id, tenants[id], now))
	}
	for id, h := range w.histories {
		if tenants[id] == nil {
			if w.histories[id] = h.recent(now); len(w.histories[id].samples) == 0 {
				delete(w.histories, id)
			}
		}
	}
	v.Active = len(v.Tenants)
	for _, a := range answers {
		v.Active = max(v.Active, a.answer.Active)
	}
	by.sort(v.Tenants)
	return v
}

// sums adds up what the gateways say about a tenant.
type sums struct {
	operate.LiveTenant
	rate, refused, seconds float64
	isFresh                bool // the figures of the quota are of a gateway that has decided since the last refresh
}

// compare adds the tenants of the answer a to all. seconds is the time since the answer before; 0: there is none.
func compare(a, was operate.Live, seconds float64, all map[string]*sums) {
	before := make(map[string]operate.LiveTenant, len(was.Tenants))
	for _, t := range was.Tenants {
		before[t.ID] = t
	}
	for _, t := range a.Tenants {
		s := all[t.ID]
		if s == nil {
			s = &sums{LiveTenant: operate.LiveTenant{Plan: t.Plan, Limits: t.Limits}}
			all[t.ID] = s
		}
		old, listed := before[t.ID]
		if t.Since > was.Elapsed {
			old, listed = operate.LiveTenant{}, true // all its requests came after the answer before
		}
		var requests int64
		if listed && seconds > 0 {
			requests = t.Requests - old.Requests
			s.rate += float64(requests) / seconds
			s.refused += float64(t.Refused-old.Refused) / seconds
			s.seconds = max(s.seconds, seconds)
		}
		if fresh := requests > 0; fresh && !s.isFresh {
			s.isFresh, s.MinuteUsed, s.DayUsed = true, t.MinuteUsed, t.DayUsed
		} else if fresh == s.isFresh {
			s.MinuteUsed, s.DayUsed = max(s.MinuteUsed, t.MinuteUsed), max(s.DayUsed, t.DayUsed)
		}
	}
}

func (w *watch) tenant(id string, s *sums, now time.Time) topTenant {
	var more []sample
	if s.seconds > 0 {
		more = []sample{{now, time.Duration(s.seconds * float64(time.Second)), s.rate}}
	}
	limits := operate.ViewLimits(s.Limits)
	h := w.histories[id].recent(now, more...)
	w.histories[id] = h
	return topTenant{
		TenantID: id, Plan: s.Plan, RequestsPerSecond: rounded(s.rate, 2), RefusedPerSecond: rounded(s.refused, 2),
		MinuteUsed: s.MinuteUsed, MinuteLimit: limits.Minute, MinuteShare: shareUsed(s.MinuteUsed, s.Limits.Minute),
		DayUsed: s.DayUsed, DayLimit: limits.Day, DayShare: shareUsed(s.DayUsed, s.Limits.Day),
		BannedKeys: w.bans[id], history: h,
	}
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
	if text == "" {
		return tenants
	}
	text = strings.ToLower(text)
	return slices.DeleteFunc(slices.Clone(tenants), func(t topTenant) bool {
		return !strings.Contains(strings.ToLower(t.Tenant+"\n"+t.TenantID+"\n"+t.Plan), text)
	})
}
