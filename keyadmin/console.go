package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"petgate/shared/keystore"
	"petgate/shared/keystore/sessions"
	"petgate/shared/operate"
	"petgate/shared/service"
)

const (
	codeValid  = time.Minute // how long the code of a link can be used
	sessionMax = 7 * day
)

type consoleCommand struct {
	ReadOnly    bool           `help:"The session may not change anything."`
	TTL         operate.Period `name:"ttl" default:"8h" placeholder:"AGE" help:"How long the session lasts, at most 7d."`
	Gateway     string         `placeholder:"ID" help:"The gateway that shows the console (default: the first live one that serves it)."`
	At          string         `placeholder:"ADDRESS" help:"The gateway's admin port as the browser reaches it, for example that of a tunnel (default: as the gateway listens)."`
	EndSessions bool           `help:"End all sessions of the console and all links, instead of making a link."`
	asking
}

// BadSettings checks that the flags fit together.
func (c *consoleCommand) BadSettings() service.BadSettings {
	var bad service.BadSettings
	bad.Require(time.Duration(c.TTL) <= sessionMax, "ttl", "use 1s to 7d")
	_, _, err := net.SplitHostPort(c.At)
	bad.Require(c.At == "" || err == nil, "at", "use host:port")
	bad.Require(!c.EndSessions || !c.ReadOnly && c.Gateway == "" && c.At == "", "end-sessions",
		"it cannot be combined with flags for a link")
	return bad
}

// consoleView is a link to the console as JSON; scripts rely on its fields.
type consoleView struct {
	URL      string `json:"url"`
	Gateway  string `json:"gateway"`
	ReadOnly bool   `json:"readOnly"`
}

func (c *consoleCommand) Run(ctx context.Context, a *app, operator operate.Operator) error {
	if c.EndSessions {
		if err := a.ask(c.Yes, "End all sessions of the console, of everyone?"); err != nil {
			return err
		}
		ended, err := sessions.Of(operator.Store).EndConsoles(ctx)
		if err == nil {
			a.note("Ended sessions and links of the console: %s.", count(ended))
		}
		return err
	}
	g, err := c.gateway(ctx, a)
	if err != nil {
		return err
	}
	code, _, err := sessions.Of(operator.Store).InviteToConsole(ctx, sessions.ConsoleInvitation{
		ReadOnly: c.ReadOnly, Address: g.AdminAddress, Valid: codeValid, Lasts: time.Duration(c.TTL),
	})
	if err != nil {
		return err
	}
	page := operate.AdminURL(g, "/console/login")
	page.Host = cmp.Or(c.At, page.Host)
	view := consoleView{URL: page.String() + "#" + code, Gateway: g.ID, ReadOnly: c.ReadOnly}
	a.note("The link works once, within a minute. The session lasts %s and acts as %s.",
		operate.Span(time.Duration(c.TTL)), a.actor())
	return a.printSecret(view, view.URL)
}

// gateway returns the gateway that shows the console: the one that is named, or the first live one
// that serves it.
func (c *consoleCommand) gateway(ctx context.Context, a *app) (keystore.Gateway, error) {
	gateways, views, err := a.operator.ViewGateways(ctx)
	if err != nil {
		return keystore.Gateway{}, err
	}
	var live []keystore.Gateway
	for i, g := range gateways {
		switch state := views[i].State; {
		case c.Gateway != "" && g.ID == c.Gateway && state != keystore.GatewayReplaced:
			return g, nil
		case state == keystore.GatewayLive || state == keystore.GatewayBehind:
			live = append(live, g)
		}
	}
	if c.Gateway != "" {
		return keystore.Gateway{}, operate.NoGateway(c.Gateway)
	}
	text := "no live gateway says that it serves the console: start one with --console, or name one with --gateway"
	for _, answer := range operate.AskAll(ctx, live) {
		if answer.Console {
			return answer.Gateway, nil
		}
		if answer.Err != nil {
			text += fmt.Sprintf("\n  %s does not answer: %s", operate.GatewayName(answer.Gateway),
				operate.Printable(answer.Err.Error()))
		}
	}
	return keystore.Gateway{}, errors.New(text)
}
