package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/keystore"
	"petgate/shared/operate"
)

type gatewayCommands struct {
	List   gatewayList   `cmd:"" help:"List registered gateways, their lag and when each was last seen."`
	Lost   gatewayLost   `cmd:"" help:"List refusals that the database has lost and gateways keep in force."`
	Drop   gatewayDrop   `cmd:"" help:"End a refusal that the database has lost."`
	Forget gatewayForget `cmd:"" help:"Stop waiting for a gateway that will not come back."`
}

type gatewayList struct{}

func (gatewayList) Help() string {
	var text strings.Builder
	text.WriteString("States:\n\n")
	for _, s := range operate.GatewayStates {
		fmt.Fprintf(&text, "    %-9s %s\n", s.State, strings.Join(wrap(s.Means, 106), "\n"+strings.Repeat(" ", 14)))
	}
	return text.String() + "\n"
}

func (gatewayList) Run(ctx context.Context, a *app, store *keystore.Store) error {
	gateways, views, err := a.operator.ViewGateways(ctx)
	if err != nil {
		return err
	}
	t := table{
		head:  []string{"ID", "ADMIN ADDRESS", "STATE", "LAG (EVENTS)", "LAST SEEN", "DOCUMENT"},
		spare: []string{"ADMIN ADDRESS", "DOCUMENT"},
		none:  "No gateway is registered.",
	}
	lost, err := store.LostRefusals(ctx)
	if err != nil {
		return err
	}
	if len(lost) > 0 {
		a.warn("Refusals that the database has lost and gateways keep in force: %d. See `keyadmin gateway lost`.", len(lost))
	}
	err = printViews(a, views, t, func(v operate.GatewayView) []string {
		return []string{v.ID, operate.OrDash(v.AdminAddress), v.State, count(v.Lag), operate.Span(time.Duration(max(v.AgeMillis, 0))*time.Millisecond) + " ago", operate.OrDash(operate.Printable(v.Document.String()))}
	})
	if err == nil {
		a.noteSilent(gateways)
	}
	return err
}

// noteSilent says what ends the waiting for gateways that nothing fences.
func (a *app) noteSilent(gateways []keystore.Gateway) {
	var silent []keystore.Gateway
	for _, g := range gateways {
		if g.Age > keystore.SilentAfter.Milliseconds() && g.MaxAge == 0 {
			silent = append(silent, g)
		}
	}
	if len(silent) > 0 {
		a.note("Changes stay unconfirmed until %s is back, because a silent gateway may still accept what it has in memory.\n"+
			"If it has ended and will not come back: %s",
			operate.Either(len(silent) == 1, operate.GatewayName(silent[0]), "each silent gateway"), operate.ForgetCommand(silent[0].ID))
	}
}

type gatewayForget struct {
	ID string `arg:"" complete:"gateway" help:"The gateway's ID, as gateway list shows it."`
	asking
}

func (c *gatewayForget) Run(ctx context.Context, a *app, store *keystore.Store) error {
	gateways, err := store.Gateways(ctx)
	if err != nil {
		return err
	}
	var known []string
	for _, g := range gateways {
		known = append(known, g.ID)
		if g.ID == c.ID { // if several have this ID, the first is a replaced one
			return a.forget(ctx, g, c.Yes)
		}
	}
	return fmt.Errorf("there is no gateway %q%s (`keyadmin gateway list` shows all)", c.ID, didYouMean(c.ID, known))
}

func (a *app) forget(ctx context.Context, g keystore.Gateway, yes bool) error {
	last, err := a.store.LastEvent(ctx)
	if err != nil {
		return err
	}
	if err := a.ask(yes, fmt.Sprintf("Forget gateway %s? It is %s, was last seen %s ago, and has yet to apply %s. If it still runs, it may accept revoked keys.",
		operate.GatewayName(g), g.State(last), operate.Age(g), operate.Plural(max(int64(last-g.Applied), 0), "change"))); err != nil {
		return err
	}
	if _, err := a.store.ForgetGateway(ctx, g.ID); err != nil {
		return err
	}
	if a.asData() {
		if err := a.print(operate.ViewGateway(g, last), table{}); err != nil {
			return err
		}
	}
	a.note("Forgot gateway %s.", operate.GatewayName(g))
	return nil
}

type gatewayLost struct{}

func (gatewayLost) Run(ctx context.Context, a *app, store *keystore.Store) error {
	refusals, err := store.LostRefusals(ctx)
	if err != nil {
		return err
	}
	t := table{
		head:  []string{"KIND", "TENANT", "KEY", "AT", "REPORTED BY", "REPORTED AT"},
		spare: []string{"REPORTED AT", "REPORTED BY", "AT"},
		none:  "The database has lost no refusals.",
	}
	return printRows(a, refusals, operate.ViewLost, t, func(_ keystore.LostRefusal, v operate.LostView) []string {
		return []string{v.Kind, v.Tenant, operate.OrDash(v.Key), operate.OrDash(v.At), v.ReportedBy, v.ReportedAt}
	})
}

type gatewayDrop struct {
	ID string `arg:"" complete:"lost" help:"The key's or the tenant's ID, as gateway lost shows it."`
	asking
	waiting
}

func (c *gatewayDrop) Run(ctx context.Context, a *app, _ *keystore.Store) error {
	key, notKey := id.ParseKey(c.ID)
	tenant, notTenant := id.ParseTenant(c.ID)
	if notKey != nil && notTenant != nil {
		return usageErrorf("%q is neither the ID of a key nor of a tenant (`keyadmin gateway lost` shows the IDs)", c.ID)
	}
	if notKey == nil {
		k, err := a.key(ctx, key)
		if err != nil {
			return err
		}
		tenant = k.Key.Tenant
	}
	op, err := a.operator.DropLost(ctx, tenant, key)
	if errors.Is(err, keystore.ErrNotFound) {
		return fmt.Errorf("no refusal of %s was lost (`keyadmin gateway lost` shows all)", c.ID)
	}
	if err != nil {
		return err
	}
	return a.carryOut(ctx, operation{Operation: op, yes: c.Yes, wait: c.Wait})
}
