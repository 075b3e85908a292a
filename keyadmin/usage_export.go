package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"

	"petgate/shared/metering"
	"petgate/shared/operate"
	"petgate/shared/service"
)

type usageExport struct {
	Format metering.Format `required:"" placeholder:"FORMAT" help:"cloudevents or csv."`
	operate.UsagePeriod
	To        string `placeholder:"URL" help:"Send to this receiver what it has not got yet, instead of writing to standard output."`
	TokenFile string `placeholder:"PATH" help:"File with the receiver's token, which is sent as Authorization: Bearer."`
}

// BadSettings checks how the flags fit together.
func (c *usageExport) BadSettings() service.BadSettings {
	var bad service.BadSettings
	bad.Require(c.TokenFile == "" || c.To != "", "token-file", "it needs --to")
	to, err := url.Parse(c.To)
	isReceiver := err == nil && (to.Scheme == "http" || to.Scheme == "https") && to.Host != "" && to.User == nil
	bad.Require(c.To == "" || isReceiver, "to", "use http://… or https://…")
	return bad
}

func (c *usageExport) Run(ctx context.Context, a *app, operator operate.Operator) error {
	now := a.now()
	since, until, err := c.Of(now)
	if err != nil && c.To == "" { // a receiver with a cursor ignores since
		return err
	}
	e, err := metering.New(ctx, operator.Store, c.Format, since, until)
	if err != nil {
		return err
	}
	var receiver *metering.Receiver
	if c.To != "" {
		if receiver, err = c.receiver(ctx, a); err != nil {
			return err
		}
	}
	missing, err := e.Missing(ctx, now, min(now, until))
	if err != nil {
		return err
	}
	for _, text := range missing {
		a.note("%s", text)
	}
	if receiver == nil && e.Until <= e.Since {
		a.note("No hour since %s is closed.", e.Since)
	}
	if receiver != nil {
		return c.send(ctx, a, e, receiver)
	}
	sum := sha256.New()
	if err := e.Write(ctx, io.MultiWriter(a.Out, sum)); err != nil {
		return err
	}
	a.note("%s of %s to %s: %s. SHA-256 %x", operate.Plural(e.Events, "event"), e.Since, max(e.Since, e.Until),
		sumsText(e), sum.Sum(nil))
	return nil
}

// receiver finds the receiver and reads its token.
func (c *usageExport) receiver(ctx context.Context, a *app) (*metering.Receiver, error) {
	r, err := metering.FindReceiver(ctx, a.operator.Store, c.To)
	if err != nil {
		return nil, err
	}
	r.Sleep, r.Say = a.Sleep, func(text string) { a.note("%s", text) }
	if c.TokenFile != "" {
		text, err := os.ReadFile(c.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("read the receiver's token: %w", err)
		}
		r.Token = strings.TrimSpace(string(text))
	}
	return r, nil
}

func (c *usageExport) send(ctx context.Context, a *app, e *metering.Export, r *metering.Receiver) error {
	err := r.Send(ctx, e)
	if err != nil {
		return fmt.Errorf("%w\n%s has got every hour before %s. Repeat the command to continue", err, c.To,
			r.Cursor.Hour)
	}
	a.note("Sent %s: %s. %s has got every hour before %s.", operate.Plural(e.Events, "event"), sumsText(e), c.To,
		r.Cursor.Hour)
	return nil
}

func sumsText(e *metering.Export) string {
	return fmt.Sprintf("%s with live keys, %s charged, %s", operate.Plural(e.Requests, "request"), count(e.Charged),
		operate.Plural(e.Units, "unit"))
}
