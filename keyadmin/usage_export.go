package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/operate"
	"petgate/shared/service"
)

type usageExport struct {
	Format    usageFormat `required:"" placeholder:"FORMAT" help:"cloudevents, csv, stripe or lago."`
	Since     moment      `placeholder:"AGE" help:"The first hour: 24h, 1w, or from a date: 2026-11-01. Default: 7d. With --to: where a new receiver begins."`
	Skip      bool        `help:"With --to and --since: a receiver with a cursor gets nothing more of the hours before --since."`
	Until     moment      `placeholder:"AGE" help:"Only the hours before this one. Default: every closed hour."`
	To        string      `placeholder:"URL" help:"Send to this receiver what it has not got yet, instead of writing to standard output."`
	TokenFile string      `placeholder:"PATH" help:"File with the receiver's token, which is sent as Authorization: Bearer."`
	Customers string      `placeholder:"PATH" help:"CSV file with the receiver's name of each customer: tenant,customer. Default: the tenant's ID."`
	Metric    string      `default:"petgate_requests" placeholder:"NAME" help:"Stripe's event name, Lago's metric code."`
	Verify    bool        `help:"Only print the sum of each tenant and the SHA-256 of the whole export."`
}

func (usageExport) Help() string {
	return `Writes what tenants have used, for billing: an event for each tenant, operation and hour (UTC). Only closed hours are exported:
all gateways have stored their usage of them. The first export of an hour seals it, so its events are always the same, byte by
byte. If usage of a sealed hour is stored later, it becomes an event of its own, a correction. IDs are always the same too, so a
receiver can recognize an event that it gets again.

With --to, each receiver has a cursor, which moves after its response with a status of 2xx. An export that was interrupted
continues there: repeat the command. The receiver may get the last batch again, with the same IDs. If Stripe or Lago refuses an
event because they have it, that counts as taken. A receiver with a cursor ignores --since. With --skip, a later --since moves the
cursor: the receiver gets nothing more of the hours before, and --verify begins there. Use it if the receiver does not take hours
that are so old.

Gateways that did not store all their usage are named: those that were killed, for example.

Examples:

    # October, for a spreadsheet
    keyadmin usage export --format csv --since 2026-10-01 --until 2026-11-01 > october.csv

    # The sums to compare with it
    keyadmin usage export --format csv --since 2026-10-01 --until 2026-11-01 --verify

    # Every hour, from cron
    keyadmin usage export --format cloudevents --to https://meter.example/events --token-file meter.token`
}

// BadSettings checks how the flags fit together.
func (c *usageExport) BadSettings() service.BadSettings {
	var bad service.BadSettings
	bad.Require(c.TokenFile == "" || c.To != "", "token-file", "it needs --to")
	bad.Require(c.To == "" || isReceiver(c.To), "to", "use http://… or https://…")
	bad.Require(!c.Skip || c.To != "" && c.Since != (moment{}), "skip", "it needs --to and --since")
	bad.Require(c.Metric != "", "metric", "it must not be empty")
	return bad
}

// exporting is one export.
type exporting struct {
	*app
	c         *usageExport
	seal      keystore.UsageSeal
	customers map[id.Tenant]string // nil: the tenants' IDs
	since     instant.Millis       // the first hour
	until     instant.Millis       // the hours before
	progress  exportProgress

	events, requests, charged int64
	tooOld                    int64 // corrections that are left out, because the receiver would refuse them
}

// pageRows is how many rows of usage are in memory at a time.
const pageRows = 5000

func (c *usageExport) Run(ctx context.Context, a *app) error {
	if err := a.open(ctx); err != nil {
		return err
	}
	e := &exporting{app: a, c: c, progress: exportProgress{app: a}}
	var err error
	if e.customers, err = a.customers(ctx, c.Customers); err != nil {
		return err
	}
	if e.seal, err = a.store.SealUsage(ctx); err != nil {
		return err
	}
	cursor, known, err := e.period(ctx)
	if err != nil {
		return err
	}
	if err := e.tellOpen(ctx); err != nil {
		return err
	}
	if c.To == "" && e.seal.Through <= e.since {
		e.warn("No hour since %s is closed.", e.since)
	}
	switch {
	case c.Verify:
		err = e.verify(ctx, cursor)
	case c.To != "":
		err = e.send(ctx, cursor, known)
	default:
		err = e.write(ctx)
	}
	e.progress.end()
	if e.tooOld > 0 {
		e.warn("Left out: corrections of hours that are older than %s, which %s does not take: %s.", operate.Span(c.Format.oldest), c.Format.name, count(e.tooOld))
	}
	return err
}

// period sets which hours are exported. With --to, they begin where the receiver's cursor is.
func (e *exporting) period(ctx context.Context) (cursor keystore.ExportCursor, known bool, err error) {
	now := e.now()
	e.since = now.Add(-7 * day)
	if e.c.Since != (moment{}) {
		e.since = e.c.Since.before(now)
	}
	e.since, e.until = e.since.Truncate(time.Hour), e.seal.Through
	if e.c.Until != (moment{}) {
		e.until = min(e.until, e.c.Until.before(now).Truncate(time.Hour))
	}
	if e.c.To == "" {
		return cursor, false, nil
	}
	cursor, known, err = e.store.Cursor(ctx, e.c.To)
	switch {
	case err != nil:
		return cursor, known, err
	case known && e.c.Verify:
		e.since, e.until = cursor.Since, min(e.until, cursor.Hour)
	case known && (!e.c.Skip || e.since < cursor.Hour):
		e.since = cursor.Hour
	case known: // the hours before are skipped
	case e.c.Verify:
		return cursor, known, fmt.Errorf("%s has got nothing yet", e.c.To)
	default:
		cursor.Since, cursor.Hour, cursor.Seal = e.since, e.since, 0
	}
	return cursor, known, nil
}

// storedWithin is longer than a gateway needs to store its usage: usually --upstream-timeout, a minute and a few seconds.
const storedWithin = 15 * time.Minute

// tellOpen names the gateways that keep ended hours open, and the gaps in the usage.
func (e *exporting) tellOpen(ctx context.Context) error {
	gateways, err := e.store.Gateways(ctx)
	if err != nil {
		return err
	}
	wanted := e.now().Truncate(time.Hour)
	if e.c.Until != (moment{}) {
		wanted = min(wanted, e.c.Until.before(e.now()).Truncate(time.Hour))
	}
	for _, g := range gateways {
		from := max(g.UsageThrough.Truncate(time.Hour), e.seal.Through)
		open := fmt.Sprintf("The hours from %s on are open: gateway %s", max(from, e.since), operate.GatewayName(g))
		switch {
		case from >= wanted:
		case g.Age > keystore.SilentAfter.Milliseconds():
			e.warn("%s, last seen %s ago, may have usage of them. If it will not come back: %s", open, operate.Age(g), operate.ForgetCommand(g.ID))
		case g.UsageThrough == 0:
			e.warn("%s stores no usage. See its log. If its version is older than the database's schema, update it.", open)
		case e.now().Sub(g.UsageThrough) > storedWithin:
			e.warn("%s has stored no usage since %s. See its log.", open, g.UsageThrough)
		}
	}
	gaps, err := e.store.UsageGaps(ctx, e.since)
	if err != nil {
		return err
	}
	for _, gap := range gaps {
		if gap.Since >= e.until {
			continue
		}
		end, missing := gap.SeenAt, "some may be missing, usually the last 3 seconds"
		if gap.Cause == keystore.GapDropped {
			end, missing = gap.NotedAt, "some is missing"
		} else if end < e.since {
			end = gap.NotedAt
		}
		e.warn("Gateway %s %s. Of what it counted from %s to %s, %s.",
			operate.Printable(gap.Gateway), endings[gap.Cause], max(gap.Since, e.since), end, missing)
	}
	return nil
}

// endings say why gateways did not store all their usage.
var endings = map[string]string{
	keystore.GapKilled: "was killed", keystore.GapForgotten: "was forgotten", keystore.GapFenced: "was fenced",
	keystore.GapUnwritten: "could not write its last usage", keystore.GapDropped: "dropped usage, because it could not write for too long",
}

// each calls f with the usage of each hour when it was sealed, in pages of whole tenants. In the first hour, it begins after a tenant.
func (e *exporting) each(ctx context.Context, after id.Tenant, f func([]keystore.SealedUsage) error) error {
	for from := e.since; from < e.until; {
		hour, err := e.store.NextUsageHour(ctx, from)
		if err != nil || hour == 0 || hour >= e.until {
			return err
		}
		if hour != from {
			after = id.Tenant{}
		}
		for {
			rows, err := e.store.UsageOfHour(ctx, hour, after, pageRows)
			if err != nil {
				return err
			}
			if len(rows) == 0 {
				break
			}
			if err := f(rows); err != nil {
				return err
			}
			after = rows[len(rows)-1].Tenant
			e.progress.show("%s: %s events", hour, count(e.events))
		}
		from, after = hour.Add(time.Hour), id.Tenant{}
	}
	return nil
}

// eachCorrection calls f with the corrections of hours from since on, in pages: those with the numbers from from on and before before.
func (e *exporting) eachCorrection(ctx context.Context, from, before int64, since instant.Millis, f func([]keystore.SealedUsage) error) error {
	after := keystore.SealedUsage{Correction: from}
	for {
		rows, err := e.store.Corrections(ctx, after, before, since, pageRows)
		if err != nil || len(rows) == 0 {
			return err
		}
		after = rows[len(rows)-1]
		if err := f(rows); err != nil {
			return err
		}
		e.progress.show("corrections: %s events", count(e.events))
	}
}

// everything is each, followed by the corrections of these hours whose numbers are smaller than the given one.
func (e *exporting) everything(ctx context.Context, corrections int64, f func([]keystore.SealedUsage) error) error {
	if err := e.each(ctx, id.Tenant{}, f); err != nil {
		return err
	}
	return e.eachCorrection(ctx, 1, corrections, e.since, func(rows []keystore.SealedUsage) error {
		return f(slices.DeleteFunc(rows, func(r keystore.SealedUsage) bool { return r.Hour >= e.until }))
	})
}

// event returns the event of a row. taken is false if it is left out. With --verify, it does not matter whether a receiver would still
// take it.
func (e *exporting) event(r keystore.SealedUsage) (event usageEvent, taken bool, err error) {
	event = usageEvent{SealedUsage: r, installation: e.seal.Installation, customer: r.Tenant.String(), metric: e.c.Metric}
	switch {
	case e.c.Format.skips(event):
		return event, false, nil
	case r.Correction > 0 && !e.c.Verify && e.c.Format.isTooOld(event, e.now()):
		e.tooOld++
		return event, false, nil
	}
	if e.customers != nil {
		if event.customer = e.customers[r.Tenant]; event.customer == "" {
			return event, false, fmt.Errorf("%s names no customer for tenant %s", e.c.Customers, r.Tenant)
		}
	}
	if !e.c.Verify {
		err = e.c.Format.check(event, e.now())
	}
	return event, err == nil, err
}

// written appends the lines of rows, adds them up, and calls seen with each row that has a line.
func (e *exporting) written(dst []byte, rows []keystore.SealedUsage, seen func(keystore.SealedUsage)) ([]byte, error) {
	for _, r := range rows {
		event, taken, err := e.event(r)
		if err != nil {
			return dst, err
		}
		if !taken {
			continue
		}
		dst = e.c.Format.appendLine(dst, event)
		e.count(r)
		seen(r)
	}
	return dst, nil
}

func (e *exporting) count(r keystore.SealedUsage) {
	e.events++
	e.requests += r.Requests
	e.charged += r.Charged
}

// write writes the export to standard output.
func (e *exporting) write(ctx context.Context) error {
	sum := sha256.New()
	out := bufio.NewWriter(io.MultiWriter(e.Out, sum))
	err := e.writeTo(ctx, out, func(keystore.SealedUsage) {})
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return err
	}
	e.progress.end()
	e.tellSum(sum)
	return nil
}

// writeTo writes the export and calls seen with each row that is in it.
func (e *exporting) writeTo(ctx context.Context, out *bufio.Writer, seen func(keystore.SealedUsage)) error {
	write := func(text []byte) error {
		if _, err := out.Write(text); err != nil {
			return fmt.Errorf("write output: %w", err)
		}
		return nil
	}
	buffer := []byte(e.c.Format.head())
	if err := write(buffer); err != nil {
		return err
	}
	return e.everything(ctx, e.seal.Number, func(rows []keystore.SealedUsage) (err error) {
		if buffer, err = e.written(buffer[:0], rows, seen); err != nil {
			return err
		}
		return write(buffer)
	})
}

func (e *exporting) tellSum(sum hash.Hash) {
	e.note("%s events of %s to %s: %s requests, %s charged. SHA-256 %s", count(e.events), e.since, max(e.since, e.until), count(e.requests),
		count(e.charged), hex.EncodeToString(sum.Sum(nil)))
}

// verifyView is the sum of a tenant as JSON; scripts rely on its fields.
type verifyView struct {
	TenantID string `json:"tenantId"`
	Tenant   string `json:"tenant"` // its name
	Events   int64  `json:"events"`
	Requests int64  `json:"requests"`
	Charged  int64  `json:"charged"`
}

// verify prints the sums of what write would write, or of what the receiver has got.
func (e *exporting) verify(ctx context.Context, cursor keystore.ExportCursor) error {
	if e.c.To != "" {
		e.seal.Number = cursor.Seal
	}
	sums, sum := map[id.Tenant]*verifyView{}, sha256.New()
	out := bufio.NewWriter(sum)
	err := e.writeTo(ctx, out, func(r keystore.SealedUsage) {
		v := sums[r.Tenant]
		if v == nil {
			v = &verifyView{TenantID: r.Tenant.String()}
			sums[r.Tenant] = v
		}
		v.Events++
		v.Requests += r.Requests
		v.Charged += r.Charged
	})
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return err
	}
	views := []verifyView{}
	t := table{head: []string{"TENANT", "EVENTS", "REQUESTS", "CHARGED"}}
	add := func(v *verifyView, name string) {
		v.Tenant = name
		views = append(views, *v)
		t.rows = append(t.rows, []string{v.Tenant, count(v.Events), count(v.Requests), count(v.Charged)})
	}
	for tenant, err := range e.store.Tenants(ctx) {
		if err != nil {
			return err
		}
		if v := sums[tenant.ID]; v != nil {
			add(v, tenant.Name)
			delete(sums, tenant.ID)
		}
	}
	// Usage of tenants that are not in the list.
	for _, v := range slices.SortedFunc(maps.Values(sums), func(a, b *verifyView) int { return strings.Compare(a.TenantID, b.TenantID) }) {
		add(v, v.TenantID)
	}
	e.progress.end()
	if err := e.print(views, t); err != nil {
		return err
	}
	e.tellSum(sum)
	return nil
}
