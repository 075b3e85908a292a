// Package usage keeps how many requests were made: what gateways add, what people read, what is
// sealed and exported, and the records of quotas that a gateway keeps without Redis.
package usage

import (
	"context"
	"database/sql/driver"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/keystore/schema"
)

// MinutesKept is how long minutes are kept: a little more than a month.
const MinutesKept = 35 * 24 * time.Hour

// Store reads and writes usage.
type Store struct {
	*keystore.Store
	quotasPruned *atomic.Int64 // when SaveQuotas last removed old records, in Unix ms
}

// Of returns the usage in a store's database.
func Of(s *keystore.Store) Store { return Store{s, new(atomic.Int64)} }

// AddUsage adds a gateway's batch of requests and updates the last use of their keys. Batches have
// growing numbers. A batch that was already added changes nothing, so a batch can be sent again
// after a lost reply. No two rows of a batch differ only in numbers, and no two minutes have the
// same tenant and hour. Usage older than 401 days and minutes older than 35 days are deleted.
// Errors: ErrNotFound if the gateway was forgotten, ErrDisplaced.
func (s Store) AddUsage(
	ctx context.Context, r keystore.Registration, batch int64, rows []Row, minutes []Minutes,
) error {
	return s.Transact(ctx, "add usage", func(t *keystore.Tx) error {
		if err := t.LockUsage(); err != nil {
			return err
		}
		claimed, err := t.Affects(schema.ClaimUsage, r.ID, r.Incarnation, batch)
		if err != nil {
			return err
		}
		if !claimed {
			return s.CheckRegistration(ctx, t, r)
		}
		if err := addRows(t, rows); err != nil {
			return err
		}
		return addMinutes(t, r.ID, minutes)
	})
}

// addRows uses few statements, because a batch may contain every key of a busy minute.
func addRows(t *keystore.Tx, rows []Row) error {
	if len(rows) == 0 {
		return nil
	}
	text := keystore.JSON(rows)
	if err := t.Exec(schema.AddUsage, text); err != nil {
		return err
	}
	return t.Exec(schema.TouchKeys, text)
}

// addMinutes deletes the old usage of the same tenants too, so that the tables stop growing. A
// gateway sends minutes once a minute.
func addMinutes(t *keystore.Tx, gateway string, minutes []Minutes) error {
	if len(minutes) == 0 {
		return nil
	}
	text := minuteRows(minutes)
	if err := t.Exec(schema.AddMinutes, text, gateway); err != nil {
		return err
	}
	if err := t.Exec(schema.PruneUsage, text, t.At.Add(-keystore.UsageKept)); err != nil {
		return err
	}
	return t.Exec(schema.PruneMinutes, text, t.At.Add(-MinutesKept).Truncate(time.Hour))
}

// minuteRows returns minutes as the database gets them.
func minuteRows(minutes []Minutes) string {
	type row struct {
		Tenant   id.Tenant      `json:"tenantId"`
		Hour     instant.Millis `json:"hour"`
		Attempts any            `json:"attempts"`
		IsTest   bool           `json:"test,omitempty"`
	}
	rows := make([]row, len(minutes))
	for i, m := range minutes {
		attempts, _ := m.Attempts.Value() // it is always a text
		rows[i] = row{m.Tenant, m.Hour, attempts, m.IsTest}
	}
	return keystore.JSON(rows)
}

// firstMinute is the character of minute 0. The characters of all minutes are printable and none is
// a digit.
const firstMinute = '@'

// Value writes the minutes that have attempts, so that another gateway's text, or the same
// gateway's next one, can simply be appended.
func (a Attempts) Value() (driver.Value, error) {
	var text []byte
	for minute, n := range a {
		if n != 0 {
			text = strconv.AppendInt(append(text, byte(firstMinute+minute)), n, 10)
		}
	}
	return string(text), nil
}

// Scan adds up what Value wrote.
func (a *Attempts) Scan(column any) error {
	for text, _ := column.(string); text != ""; {
		digits := 1
		for digits < len(text) && text[digits] >= '0' && text[digits] <= '9' {
			digits++
		}
		minute := int(text[0]) - firstMinute
		n, err := strconv.ParseInt(text[1:digits], 10, 64)
		if err != nil || minute < 0 || minute >= len(a) {
			return fmt.Errorf("attempts of a minute: %q", text[:digits])
		}
		a[minute] += n
		text = text[digits:]
	}
	return nil
}

// Usage lists a tenant's requests by hour, key, operation, outcome and charge, beginning with the
// hour of since.
func (s Store) Usage(ctx context.Context, tenant id.Tenant, since instant.Millis) ([]Row, error) {
	rows, err := keystore.List[Row](ctx, s.Store, "show usage", usageOfTenant, tenant, since.Truncate(time.Hour))
	for i := range rows {
		rows[i].Tenant = tenant
	}
	return rows, err
}

// UsageByPeriod lists the requests with a tenant's live keys, or with one of its keys if key is not
// zero, by period, operation and outcome, beginning with the hour of since. A period is a number of
// hours that divides a day, or a day; days are those of UTC.
func (s Store) UsageByPeriod(
	ctx context.Context, tenant id.Tenant, key id.Key, since instant.Millis, period time.Duration,
) ([]OfPeriod, error) {
	return keystore.List[OfPeriod](ctx, s.Store, "show usage by period", usageByPeriod,
		tenant, since.Truncate(time.Hour), period.Milliseconds(), key)
}

// UsageOfAll lists the requests of all tenants together by hour and outcome, beginning with the
// hour of since. This and the other sums over all tenants may take longer than other statements: no
// page should wait for them.
func (s Store) UsageOfAll(ctx context.Context, since instant.Millis) ([]OfPeriod, error) {
	const op = "show the usage of all tenants"
	return keystore.Collect(keystore.Stream[OfPeriod](ctx, s.Store, op, usageOfAll, since.Truncate(time.Hour)))
}

// RefusedMost lists how often each tenant's requests were refused or failed, by outcome, the most
// frequent first, at most n rows. It counts the hour of since, and the hours that begin after it
// and before until.
func (s Store) RefusedMost(ctx context.Context, since, until instant.Millis, n int) ([]TenantOutcome, error) {
	const op = "list what was refused most"
	first := since.Truncate(time.Hour)
	return keystore.Collect(keystore.Stream[TenantOutcome](ctx, s.Store, op, refusedMost, first, until, n))
}

// NearestToLimit lists the tenants whose live keys were charged the largest part of their limit per
// day, and those of their limit per month: at most n of each.
func (s Store) NearestToLimit(ctx context.Context, now instant.Millis, n int) ([]id.Tenant, error) {
	const op = "list the tenants near a limit"
	list := func(query string, args ...any) ([]OfTenant, error) {
		return keystore.Collect(keystore.Stream[OfTenant](ctx, s.Store, op, query, args...))
	}
	ofDay, err := list(nearestToDay, now.Truncate(24*time.Hour), n)
	if err != nil {
		return nil, err
	}
	year, month, day := now.Time().UTC().Date()
	first := func(m time.Month) instant.Millis { return instant.Of(time.Date(year, m, 1, 0, 0, 0, 0, time.UTC)) }
	ofMonth, err := list(nearestToMonth, day, first(month), first(month-1), n)
	var tenants []id.Tenant
	for _, f := range append(ofDay, ofMonth...) {
		if !slices.Contains(tenants, f.Tenant) {
			tenants = append(tenants, f.Tenant)
		}
	}
	return tenants, err
}

// Statement lists the requests with a tenant's live keys, or with its test keys, by period, key,
// operation and outcome, in this order, beginning with the period of since. A period is an hour or
// a UTC day. It returns at most n rows.
func (s Store) Statement(
	ctx context.Context, tenant id.Tenant, since instant.Millis, period time.Duration, isTest bool, n int,
) (found Statement, err error) {
	const op = "read a statement of usage"
	// A gateway reads statements by connections of their own, which do not notice a replaced file.
	if err := s.CheckFile(); err != nil {
		return Statement{}, err
	}
	// Read first: gateways may store more before the rows are read.
	if err := s.DB().GetContext(ctx, &found.CompleteThrough, s.SQL(storedThrough)); err != nil {
		return Statement{}, keystore.Fail(op, err)
	}
	found.Rows, err = keystore.List[StatementRow](ctx, s.Store, op, statement,
		tenant, since.Truncate(period), period.Milliseconds(), n, isTest)
	return found, err
}

// TopUsage lists the tenants whose live keys used the most units, at most n of them. It counts the
// hour of since, and the hours that begin after it and before until.
func (s Store) TopUsage(ctx context.Context, since, until instant.Millis, n int) ([]OfTenant, error) {
	const op = "list the tenants that used most"
	first := since.Truncate(time.Hour)
	return keystore.Collect(keystore.Stream[OfTenant](ctx, s.Store, op, topUsage, first, until, n))
}

// OperationUsage lists the keys that called one of the operations, beginning with the hour of
// since. Recent are the requests since the hour of recent, Before are the earlier ones.
func (s Store) OperationUsage(
	ctx context.Context, operations []string, since, recent instant.Millis,
) ([]OfOperation, error) {
	rows := keystore.RowsText("operation", operations)
	return keystore.List[OfOperation](ctx, s.Store, "list the keys that call operations", operationUsage,
		rows, since.Truncate(time.Hour), recent.Truncate(time.Hour))
}

// Minutes lists a tenant's attempts by hour and gateway, beginning with the hour of since.
func (s Store) Minutes(ctx context.Context, tenant id.Tenant, since instant.Millis) ([]Minutes, error) {
	first := since.Truncate(time.Hour)
	minutes, err := keystore.List[Minutes](ctx, s.Store, "show minutes", minutesOfTenant, tenant, first)
	for i := range minutes {
		minutes[i].Tenant = tenant
	}
	return minutes, err
}

// NoteDropped notes that a gateway dropped usage between the batch before the given one and that
// batch. It is called before AddUsage of that batch, and may be repeated. Errors: those of
// AddUsage.
func (s Store) NoteDropped(ctx context.Context, r keystore.Registration, batch int64) error {
	const op = "note dropped usage"
	row := fmt.Sprintf("%s/%d", r.Incarnation, batch)
	result, err := s.DB().ExecContext(ctx, s.SQL(schema.NoteDropped), r.ID, r.Incarnation, row, keystore.GapDropped)
	noted, err := keystore.Affected(result, err)
	if err == nil && !noted {
		err = s.CheckRegistration(ctx, s.DB(), r)
	}
	return keystore.Fail(op, err)
}

// UsageGaps lists the processes that did not store all their usage, as noted after since, in the
// order in which that was noted.
func (s Store) UsageGaps(ctx context.Context, since instant.Millis) ([]Gap, error) {
	return keystore.List[Gap](ctx, s.Store, "list gaps of usage", gapsSince, since)
}
