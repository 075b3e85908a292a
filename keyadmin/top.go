package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"petgate/shared/keystore"
	"petgate/shared/operate"
	"petgate/shared/service"
)

type topCommand struct {
	By    topOrder `default:"rate" complete:"order" placeholder:"ORDER" help:"Order by rate, minute, day, refused or bans."`
	Every period   `placeholder:"TIME" help:"Interval of refreshes: 1s to 1m (default: 1s)."`
	Once  bool     `help:"Print one refresh and end."`
	Limit int      `short:"n" default:"30" placeholder:"N" help:"Show the first N tenants."`
}

// BadSettings checks numbers.
func (c *topCommand) BadSettings() service.BadSettings {
	var bad service.BadSettings
	bad.Require(c.Limit >= 1 && c.Limit <= askTenants, "limit", "use 1 to %d", askTenants)
	bad.Require(time.Duration(c.Every) <= time.Minute, "every", "use 1s to 1m")
	return bad
}

// topOrder is what tenants are ordered by, the largest first.
type topOrder string

var topOrders = []topOrder{"rate", "minute", "day", "refused", "bans"}

func (o *topOrder) UnmarshalText(text []byte) error {
	if *o = topOrder(text); !slices.Contains(topOrders, *o) {
		return fmt.Errorf("%q is not an order: use rate, minute, day, refused or bans", text)
	}
	return nil
}

// next returns the order after o, for the key s.
func (o topOrder) next() topOrder {
	return topOrders[(slices.Index(topOrders, o)+1)%len(topOrders)]
}

func (o topOrder) sort(tenants []topTenant) {
	value := func(t topTenant) float64 {
		switch o {
		case "minute":
			return t.MinuteShare
		case "day":
			return t.DayShare
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

func (c *topCommand) Run(ctx context.Context, a *app, _ *keystore.Store) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if c.Every == 0 {
		c.Every = period(time.Second)
		c.Once = c.Once || !a.OutTerminal // a pipe that never ends must be asked for
	}
	w := newWatch(a)
	var err error
	if c.interactive(a) {
		err = c.screen(ctx, a, w)
	} else {
		err = c.lines(ctx, a, w)
	}
	if ctx.Err() != nil || errors.Is(err, context.Canceled) { // an interrupt is how it ends
		return nil
	}
	return err
}

// interactive reports whether there is a terminal that can show a screen.
func (c *topCommand) interactive(a *app) bool {
	return !c.Once && !a.asData() && a.InTerminal && a.OutTerminal && a.env["TERM"] != "dumb"
}

// lines prints a block for each refresh. The first refresh has no rates yet, so it is not printed.
func (c *topCommand) lines(ctx context.Context, a *app, w *watch) error {
	for n := 0; ; n++ {
		began := a.Clock()
		view := w.refresh(ctx, c.By)
		if ctx.Err() != nil {
			return nil
		}
		if n > 0 {
			if err := c.print(a, view); err != nil || c.Once {
				return err
			}
		}
		if err := a.Sleep(ctx, time.Duration(c.Every)-a.Clock().Sub(began)); err != nil {
			return err
		}
	}
}

// print prints one refresh: a block of lines, an object, or a line of CSV for each tenant.
func (c *topCommand) print(a *app, view topView) error {
	view.cut(c.Limit)
	switch {
	case a.cli.Output == "csv":
		if view.Problem != "" {
			a.warn("%s", operate.Printable(view.Problem))
		}
		for _, g := range view.Gateways {
			if g.Error != "" {
				a.warn("gateway %s: %s", g.ID, g.Error)
			}
		}
		err := a.print(view.csv(), table{})
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
	lines := frame{width: a.width(), style: a.styleOut}.lines(view)
	if !c.Once {
		lines = append(lines, "")
	}
	return a.writeLines(lines)
}

func (a *app) writeLines(lines []string) error {
	if _, err := a.Out.Write([]byte(strings.Join(lines, "\n") + "\n")); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}
