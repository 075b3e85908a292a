package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"

	"petgate/shared/core/id"
	"petgate/shared/keystore"
	"petgate/shared/metering"
	"petgate/shared/operate"
	"petgate/shared/service"
)

type usageExport struct {
	Format metering.Format `required:"" placeholder:"FORMAT" help:"cloudevents or csv."`
	operate.UsagePeriod
	To        string `placeholder:"URL" help:"Send to this receiver what it has not got yet, instead of writing to standard output."`
	TokenFile string `placeholder:"PATH" help:"File with the receiver's token, which is sent as Authorization: Bearer."`
	Verify    bool   `help:"Only print the sum of each tenant and the SHA-256 of the whole export."`
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

func (c *usageExport) Run(ctx context.Context, a *app, store *keystore.Store) error {
	now := a.now()
	since, until, err := c.Of(now)
	if err != nil {
		return err
	}
	e, err := metering.New(ctx, store, c.Format, since, until)
	if err != nil {
		return err
	}
	var receiver *metering.Receiver
	if c.To != "" {
		if receiver, err = c.receiver(ctx, a); err != nil {
			return err
		}
		if c.Verify {
			receiver.Taken(e)
		}
	}
	missing, err := e.Missing(ctx, now, min(now, until))
	if err != nil {
		return err
	}
	for _, text := range missing {
		a.warn("%s", text)
	}
	if receiver == nil && e.Until <= e.Since {
		a.warn("No hour since %s is closed.", e.Since)
	}
	sum := sha256.New()
	switch {
	case c.Verify:
		return c.verify(ctx, a, e, sum)
	case receiver != nil:
		return c.send(ctx, a, e, receiver)
	}
	if err := e.Write(ctx, io.MultiWriter(a.Out, sum), nil); err != nil {
		return err
	}
	a.tellSum(e, sum)
	return nil
}

// receiver finds the receiver and reads its token.
func (c *usageExport) receiver(ctx context.Context, a *app) (*metering.Receiver, error) {
	r, err := metering.FindReceiver(ctx, a.store, c.To)
	if err != nil {
		return nil, err
	}
	if c.Verify && !r.Known {
		return nil, fmt.Errorf("%s has got nothing yet", c.To)
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
		return fmt.Errorf("%w\n%s has got every hour before %s. Repeat the command to continue", err, c.To, r.Cursor.Hour)
	}
	a.note("Sent %s: %s. %s has got every hour before %s.", operate.Plural(e.Events, "event"), sumsText(e), c.To, r.Cursor.Hour)
	return nil
}

func (a *app) tellSum(e *metering.Export, sum hash.Hash) {
	a.note("%s of %s to %s: %s. SHA-256 %s", operate.Plural(e.Events, "event"), e.Since, max(e.Since, e.Until), sumsText(e), hex.EncodeToString(sum.Sum(nil)))
}

func sumsText(e *metering.Export) string {
	return fmt.Sprintf("%s with live keys, %s charged, %s", operate.Plural(e.Requests, "request"), count(e.Charged), operate.Plural(e.Units, "unit"))
}

// verifyView is the sum of a tenant as JSON; scripts rely on its fields.
type verifyView struct {
	TenantID string `json:"tenantId"`
	Tenant   string `json:"tenant"` // its name
	Events   int64  `json:"events"`
	Requests int64  `json:"requests"`
	Charged  int64  `json:"charged"`
	Units    int64  `json:"units"`
}

// verify prints the sums of what would be written, or of what the receiver has got.
func (c *usageExport) verify(ctx context.Context, a *app, e *metering.Export, sum hash.Hash) error {
	sums := map[id.Tenant]metering.Sums{}
	err := e.Write(ctx, sum, func(r keystore.SealedUsage) {
		s := sums[r.Tenant]
		s.Add(r)
		sums[r.Tenant] = s
	})
	if err != nil {
		return err
	}
	tenants, err := a.store.TenantsOf(ctx, slices.Collect(maps.Keys(sums)))
	if err != nil {
		return err
	}
	var views []verifyView
	for tenant, s := range sums {
		name := cmp.Or(tenants[tenant].Name, tenant.String())
		views = append(views, verifyView{tenant.String(), name, s.Events, s.Requests, s.Charged, s.Units})
	}
	slices.SortFunc(views, func(a, b verifyView) int { return strings.Compare(a.Tenant, b.Tenant) })
	err = printViews(a, views, table{head: []string{"TENANT", "EVENTS", "REQUESTS", "CHARGED", "UNITS"}}, func(v verifyView) []string {
		return []string{v.Tenant, count(v.Events), count(v.Requests), count(v.Charged), count(v.Units)}
	})
	if err == nil {
		a.tellSum(e, sum)
	}
	return err
}
