package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
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
	"petgate/shared/service"
)

type topCommand struct {
	By    topOrder `default:"rate" complete:"order" placeholder:"ORDER" help:"Order by rate, minute, day, month, refused or bans."`
	Every period   `placeholder:"TIME" help:"Interval of refreshes: 1s to 1m (default: 2s)."`
	Once  bool     `help:"Print one refresh and end."`
	Limit int      `short:"n" default:"30" placeholder:"N" help:"Show the first N tenants."`
}

// askTenants is how many tenants a gateway is asked for: more than are shown, because each gateway has its own order.
const askTenants = 1000

// BadSettings checks numbers.
func (c *topCommand) BadSettings() service.BadSettings {
	var bad service.BadSettings
	bad.Require(c.Limit >= 1 && c.Limit <= askTenants, "limit", "use 1 to %d", askTenants)
	bad.Require(time.Duration(c.Every) <= time.Minute, "every", "use 1s to 1m")
	return bad
}

// topOrder is what tenants are ordered by, the largest first.
type topOrder string

var topOrders = []topOrder{"rate", "minute", "day", "month", "refused", "bans"}

func (o *topOrder) UnmarshalText(text []byte) error {
	if *o = topOrder(text); !slices.Contains(topOrders, *o) {
		return fmt.Errorf("%q is not an order: use rate, minute, day, month, refused or bans", text)
	}
	return nil
}

func (o topOrder) sort(tenants []topTenant) {
	value := func(t topTenant) float64 {
		switch o {
		case "minute":
			return t.MinuteShare
		case "day":
			return t.DayShare
		case "month":
			return t.MonthShare
		case "refused":
			return t.RefusedPerSecond
		case "bans":
			return float64(t.BannedKeys)
		}
		return t.RequestsPerSecond
	}
	slices.SortFunc(tenants, func(a, b topTenant) int {
		return cmp.Or(cmp.Compare(value(b), value(a)), cmp.Compare(b.RequestsPerSecond, a.RequestsPerSecond), cmp.Compare(a.TenantID, b.TenantID))
	})
}

// Run prints refreshes until a signal ends it. The first refresh has no rates yet, so it is not printed.
func (c *topCommand) Run(ctx context.Context, a *app, _ *keystore.Store) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if c.Every == 0 {
		c.Every = period(2 * time.Second)
		c.Once = c.Once || !a.OutTerminal // a pipe that never ends must be asked for
	}
	w := watch{app: a, names: map[id.Tenant]string{}}
	for n := 0; ; n++ {
		began := a.Clock()
		view := w.refresh(ctx, c.By)
		if ctx.Err() != nil {
			return nil
		}
		if n > 0 {
			view.Tenants = view.Tenants[:min(c.Limit, len(view.Tenants))]
			if err := c.print(a, view); err != nil || c.Once {
				return err
			}
		}
		wait := time.Duration(c.Every)
		if n == 0 {
			wait = min(wait, time.Second)
		}
		err := a.Sleep(ctx, wait-a.Clock().Sub(began))
		if ctx.Err() != nil || errors.Is(err, context.Canceled) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// print prints one refresh: tables, an object, or a line of CSV for each tenant.
func (c *topCommand) print(a *app, view topView) error {
	switch {
	case a.cli.Output == "csv":
		for _, problem := range view.problems() {
			a.warn("%s", problem)
		}
		rows := make([]topRow, len(view.Tenants))
		for i, t := range view.Tenants {
			rows[i] = topRow{view.At, t}
		}
		err := a.print(rows, table{})
		a.headed = true
		return err
	case a.cli.Output == "json" && c.Once:
		return a.print(view, table{})
	case a.cli.Output == "json":
		line, err := json.Marshal(view) // one object in a line, so that a reader can take them one by one
		if err != nil {
			return fmt.Errorf("write JSON: %w", err)
		}
		return a.writeLines([]string{string(line)})
	}
	width, height := a.width(), 0
	if !c.Once && a.OutTerminal && a.env["TERM"] != "dumb" {
		_, height = a.Size()
	}
	lines := a.topLines(view, width, height)
	if height > 0 {
		lines[0] = clearScreen + lines[0]
		lines = lines[:min(len(lines), height-1)]
	} else if !c.Once {
		lines = append(lines, "")
	}
	return a.writeLines(lines)
}

const clearScreen = "\x1b[H\x1b[2J"

func (a *app) writeLines(lines []string) error {
	if _, err := a.Out.Write([]byte(strings.Join(lines, "\n") + "\n")); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// topLines draws a refresh. A screen with a height shows only some of many gateways, so that there is room for tenants.
func (a *app) topLines(v topView, width, height int) []string {
	lines := []string{fmt.Sprintf("%s  %s req/s  %s refused/s  tenants %s", v.At, rate(v.rate), rate(v.refused), count(int64(v.Active)))}
	for _, problem := range v.problems() {
		lines = append(lines, a.styleOut(yellow, problem))
	}
	add := func(t table) {
		var text bytes.Buffer
		t, _ = t.fit(width, a.Clock())
		t.write(&text, width, func(head string) string { return a.styleOut(bold, head) })
		lines = append(append(lines, ""), strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")...)
	}
	gateways := table{head: []string{"GATEWAY", "REQ/S", "REFUSED/S", "P50", "P99", "COUNTED"}, spare: []string{"COUNTED", "P50", "REFUSED/S"}}
	for _, g := range v.Gateways {
		if g.Error == "" {
			gateways.rows = append(gateways.rows, []string{
				g.ID, optional(g.RequestsPerSecond, rate), optional(g.RefusedPerSecond, rate), optional(g.P50, millis), optional(g.P99, millis), g.Mode,
			})
		}
	}
	if len(gateways.rows) > 0 {
		shown := len(gateways.rows)
		if height > 0 {
			shown = min(shown, max(3, height/3))
		}
		more := len(gateways.rows) - shown
		gateways.rows = gateways.rows[:shown]
		add(gateways)
		if more > 0 {
			lines = append(lines, fmt.Sprintf("and %d more", more))
		}
	}
	tenants := table{
		head:  []string{"TENANT", "PLAN", "REQ/S", "REFUSED/S", "MINUTE", "DAY", "MONTH", "BANS"},
		spare: []string{"PLAN", "BANS", "REFUSED/S"}, noIDs: true,
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

func optional(x *float64, write func(float64) string) string {
	if x == nil {
		return "-"
	}
	return write(*x)
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

// millis writes a time in ms: a gateway needs less than one, an upstream perhaps thousands.
func millis(ms float64) string {
	if ms < 10 {
		return fmt.Sprintf("%.2f ms", ms)
	}
	return count(int64(ms)) + " ms"
}
