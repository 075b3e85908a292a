package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"petgate/shared/operate"
)

type gatewayCommands struct {
	List   gatewayList                  `cmd:"" help:"List registered gateways, their lag and when each was last seen."`
	Lost   gatewayLost                  `cmd:"" help:"List refusals that the database has lost and gateways keep in force."`
	Drop   asked[operate.DropLost]      `cmd:"" help:"End a refusal that the database has lost."`
	Forget asked[operate.ForgetGateway] `cmd:"" help:"Stop waiting for a gateway that will not come back."`
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

func (gatewayList) Run(ctx context.Context, a *app, operator operate.Operator) error {
	_, views, err := operator.ViewGateways(ctx)
	if err != nil {
		return err
	}
	t := table{
		head:  []string{"ID", "ADMIN ADDRESS", "STATE", "LAG (EVENTS)", "LAST SEEN", "DOCUMENT"},
		spare: []string{"ADMIN ADDRESS", "DOCUMENT"},
		none:  "No gateway is registered.",
	}
	return printViews(a, views, t, func(v operate.GatewayView) []string {
		return []string{
			v.ID, operate.OrDash(v.AdminAddress), v.State, count(v.Lag),
			operate.Span(time.Duration(max(v.AgeMillis, 0))*time.Millisecond) + " ago",
			operate.OrDash(operate.Printable(v.Document.String())),
		}
	})
}

type gatewayLost struct{}

func (gatewayLost) Run(ctx context.Context, a *app, operator operate.Operator) error {
	refusals, err := operator.Store.LostRefusals(ctx)
	if err != nil {
		return err
	}
	t := table{
		head:  []string{"KIND", "TENANT", "KEY", "AT", "REPORTED BY", "REPORTED AT"},
		spare: []string{"REPORTED AT", "REPORTED BY", "AT"},
		none:  "The database has lost no refusals.",
	}
	return printViews(a, operate.ViewsOf(refusals, operate.ViewLost), t, func(v operate.LostView) []string {
		return []string{v.Kind, v.Tenant, operate.OrDash(v.Key), operate.OrDash(v.At), v.ReportedBy, v.ReportedAt}
	})
}
