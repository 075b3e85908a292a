package keystore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/jmoiron/sqlx"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/database"
)

const (
	usageKept   = 401 * 24 * time.Hour // tenants can ask for 400 days, of which the first is whole
	MinutesKept = 35 * 24 * time.Hour  // a little more than a month
)

// The causes of gaps in the usage.
const (
	GapKilled    = "killed"    // its successor on the same host found that it had ended
	GapForgotten = "forgotten" // by an operator
	GapFenced    = "fenced"
	GapUnwritten = "unwritten" // it signed off, but could not write its last usage
	GapDropped   = "dropped"   // it runs, but could not write for so long that it dropped usage
)

// AddUsage adds a gateway's batch of requests and updates the last use of their keys. Batches have growing numbers. A batch that was
// already added changes nothing, so a batch can be sent again after a lost reply. No two rows of a batch differ only in numbers, and
// no two minutes have the same tenant and hour. Usage older than 401 days and minutes older than 35 days are deleted. Errors:
// ErrNotFound if the gateway was forgotten, ErrDisplaced.
func (s *Store) AddUsage(ctx context.Context, r Registration, batch int64, rows []UsageRow, minutes []UsageMinutes) error {
	return s.transact(ctx, "add usage", func(t *sqlx.Tx) error {
		if err := s.lockUsage(ctx, t); err != nil {
			return err
		}
		if claimed, err := affected(t.ExecContext(ctx, s.expand.Replace(claimUsage), r.ID, r.Incarnation, batch)); err != nil {
			return err
		} else if !claimed {
			return s.checkRegistration(ctx, t, r)
		}
		if err := s.addRows(ctx, t, rows); err != nil {
			return err
		}
		return s.addMinutes(ctx, t, r.ID, minutes)
	})
}

// addRows needs few statements, because a batch may contain every key of a busy minute.
func (s *Store) addRows(ctx context.Context, t *sqlx.Tx, rows []UsageRow) error {
	if len(rows) == 0 {
		return nil
	}
	text := jsonText(rows)
	for _, query := range []string{addUsage, touchKeys} {
		if _, err := t.ExecContext(ctx, s.expand.Replace(query), text); err != nil {
			return err
		}
	}
	return nil
}

// lockUsage waits until no other transaction adds or seals usage. SQLite has one writer at a time anyway.
func (s *Store) lockUsage(ctx context.Context, t *sqlx.Tx) error {
	if s.db.Dialect() != database.Postgres {
		return nil
	}
	_, err := t.ExecContext(ctx, lockUsagePostgres, usageLock)
	return err
}

// minuteRow is UsageMinutes as the database gets it.
type minuteRow struct {
	Tenant   id.Tenant      `json:"tenantId"`
	Hour     instant.Millis `json:"hour"`
	Attempts string         `json:"attempts"`
	IsTest   bool           `json:"test,omitempty"`
}

// addMinutes adds minutes, and deletes the old usage of the same tenants, so the tables stop growing with time. A gateway sends minutes once
// a minute, so this costs little.
func (s *Store) addMinutes(ctx context.Context, t *sqlx.Tx, gateway string, minutes []UsageMinutes) error {
	if len(minutes) == 0 {
		return nil
	}
	rows := make([]minuteRow, len(minutes))
	for i, m := range minutes {
		rows[i] = minuteRow{m.Tenant, m.Hour, encodeMinutes(&m.Attempts), m.IsTest}
	}
	text, now := jsonText(rows), s.now()
	for _, do := range []struct {
		query string
		with  any
	}{
		{addMinutes, gateway}, {pruneUsage, now.Add(-usageKept)}, {pruneMinutes, now.Add(-MinutesKept).Truncate(time.Hour)},
	} {
		if _, err := t.ExecContext(ctx, s.expand.Replace(do.query), text, do.with); err != nil {
			return err
		}
	}
	return nil
}

// firstMinute is the character of minute 0. The characters of all minutes are printable and none is a digit.
const firstMinute = '@'

// encodeMinutes writes the minutes that have attempts, so that another gateway's text, or the same gateway's next one, can simply be
// appended.
func encodeMinutes(attempts *[60]int64) string {
	var text []byte
	for minute, n := range attempts {
		if n != 0 {
			text = strconv.AppendInt(append(text, byte(firstMinute+minute)), n, 10)
		}
	}
	return string(text)
}

// decodeMinutes adds what encodeMinutes wrote.
func decodeMinutes(attempts *[60]int64, text string) error {
	for text != "" {
		digits := 1
		for digits < len(text) && text[digits] >= '0' && text[digits] <= '9' {
			digits++
		}
		minute := int(text[0]) - firstMinute
		n, err := strconv.ParseInt(text[1:digits], 10, 64)
		if err != nil || minute < 0 || minute >= len(attempts) {
			return fmt.Errorf("attempts of a minute: %q", text[:digits])
		}
		attempts[minute] += n
		text = text[digits:]
	}
	return nil
}

// Usage lists a tenant's requests by hour, key, operation, outcome and charge, beginning with the hour of since.
func (s *Store) Usage(ctx context.Context, tenant id.Tenant, since instant.Millis) ([]UsageRow, error) {
	rows, err := list[UsageRow](ctx, s, "show usage", usageOfTenant, tenant, since.Truncate(time.Hour))
	for i := range rows {
		rows[i].Tenant = tenant
	}
	return rows, err
}

// UsageByPeriod lists the requests with a tenant's live keys, or of one of its keys if key is not zero, by period, operation and outcome, beginning with
// the hour of since. A period is a number of hours that divides a day, or a day; days are those of UTC.
func (s *Store) UsageByPeriod(ctx context.Context, tenant id.Tenant, key id.Key, since instant.Millis, period time.Duration) ([]PeriodUsage, error) {
	return list[PeriodUsage](ctx, s, "show usage by period", usageByPeriod, tenant, since.Truncate(time.Hour), period.Milliseconds(), key)
}

// UsageOfAll lists the requests of all tenants together by hour and outcome, beginning with the hour of since. This and the other sums over
// all tenants may take longer than other statements: nobody should wait for them.
func (s *Store) UsageOfAll(ctx context.Context, since instant.Millis) ([]PeriodUsage, error) {
	return Collect(rows[PeriodUsage](ctx, s, "show the usage of all tenants", usageOfAll, since.Truncate(time.Hour)))
}

// RefusedMost lists how many requests of each tenant ended in each way but well, the most frequent first, at most n. It counts the hour of
// since, and the hours that begin after it and before until.
func (s *Store) RefusedMost(ctx context.Context, since, until instant.Millis, n int) ([]TenantOutcome, error) {
	return Collect(rows[TenantOutcome](ctx, s, "list what was refused most", refusedMost, since.Truncate(time.Hour), until, n))
}

// NearestToLimit lists the tenants whose live keys were charged the largest part of their limit per day, and those of their limit per month: at
// most n of each.
func (s *Store) NearestToLimit(ctx context.Context, now instant.Millis, n int) ([]id.Tenant, error) {
	const op = "list the tenants near a limit"
	year, month, day := now.Time().UTC().Date()
	first := func(m time.Month) instant.Millis { return instant.Of(time.Date(year, m, 1, 0, 0, 0, 0, time.UTC)) }
	found, err := Collect(rows[TenantUsage](ctx, s, op, nearestToDay, now.Truncate(24*time.Hour), n))
	if err != nil {
		return nil, err
	}
	ofMonth, err := Collect(rows[TenantUsage](ctx, s, op, nearestToMonth, day, first(month), first(month-1), n))
	var tenants []id.Tenant
	for _, f := range append(found, ofMonth...) {
		if !slices.Contains(tenants, f.Tenant) {
			tenants = append(tenants, f.Tenant)
		}
	}
	return tenants, err
}

// Statement lists the requests with a tenant's live keys, or with its test keys, by period, key, operation and outcome, in this order, beginning with the period of since. A
// period is an hour or a UTC day. It returns at most n rows.
func (s *Store) Statement(ctx context.Context, tenant id.Tenant, since instant.Millis, period time.Duration, isTest bool, n int) (found Statement, err error) {
	const op = "read a statement of usage"
	if err := s.CheckFile(); err != nil { // the pool of a gateway's statements has its own connections to the file
		return Statement{}, err
	}
	// Read first: gateways may store more before the rows are read.
	if err := s.db.GetContext(ctx, &found.CompleteThrough, s.expand.Replace(storedThrough)); err != nil {
		return Statement{}, fail(op, err)
	}
	found.Rows, err = list[StatementRow](ctx, s, op, statement, tenant, since.Truncate(period), period.Milliseconds(), n, isTest)
	return found, err
}

// TopUsage lists the tenants whose live keys used the most units, at most n of them. It counts the hour of since, and the hours
// that begin after it and before until. It reads day by day: with many tenants, one statement for all days would take longer than the
// database allows.
func (s *Store) TopUsage(ctx context.Context, since, until instant.Millis, n int) ([]TenantUsage, error) {
	const (
		op  = "list the tenants that used most"
		day = 24 * time.Hour
	)
	var hours struct{ First, Last instant.Millis }
	if err := s.db.GetContext(ctx, &hours, hoursWithUsage, since.Truncate(time.Hour), until); err != nil {
		return nil, fail(op, err)
	}
	tenants := map[id.Tenant]TenantUsage{}
	for from := hours.First; from <= hours.Last; {
		end := min(hours.Last+1, from.Truncate(day).Add(day))
		rows, err := list[TenantUsage](ctx, s, op, usageOfTenants, from, end)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			sum := tenants[r.Tenant]
			tenants[r.Tenant] = TenantUsage{
				r.Tenant, sum.Requests + r.Requests, sum.Charged + r.Charged, sum.Units + r.Units, max(sum.BusiestDay, r.Units),
			}
		}
		from = end
	}
	top := slices.SortedFunc(maps.Values(tenants), func(a, b TenantUsage) int {
		return cmp.Or(cmp.Compare(b.Units, a.Units), cmp.Compare(b.Requests, a.Requests), slices.Compare(a.Tenant[:], b.Tenant[:]))
	})
	return top[:min(n, len(top))], nil
}

// OperationUsage lists the keys that called one of the operations, beginning with the hour of since. Recent are the requests from the
// hour of recent on.
func (s *Store) OperationUsage(ctx context.Context, operations []string, since, recent instant.Millis) ([]OperationUsage, error) {
	return list[OperationUsage](ctx, s, "list the keys that call operations", operationUsage, rowsText("operation", operations), since.Truncate(time.Hour),
		recent.Truncate(time.Hour))
}

// Minutes lists a tenant's attempts by hour and gateway, beginning with the hour of since.
func (s *Store) Minutes(ctx context.Context, tenant id.Tenant, since instant.Millis) (all []UsageMinutes, err error) {
	defer failed("show minutes", &err)
	var rows []struct {
		Hour     instant.Millis `db:"hour"`
		Gateway  string         `db:"gateway"`
		Attempts string         `db:"attempts"`
		IsTest   bool           `db:"is_test"`
	}
	if err := s.db.SelectContext(ctx, &rows, minutesOfTenant, tenant, since.Truncate(time.Hour)); err != nil {
		return nil, err
	}
	minutes := make([]UsageMinutes, len(rows))
	for i, r := range rows {
		minutes[i] = UsageMinutes{Tenant: tenant, Gateway: r.Gateway, Hour: r.Hour, IsTest: r.IsTest}
		if err := decodeMinutes(&minutes[i].Attempts, r.Attempts); err != nil {
			return nil, err
		}
	}
	return minutes, nil
}

// NoteDropped notes that a gateway has dropped usage which no batch before the given one has. It is called before AddUsage of that
// batch, and may be repeated. Errors: those of AddUsage.
func (s *Store) NoteDropped(ctx context.Context, r Registration, batch int64) error {
	const op = "note dropped usage"
	row := fmt.Sprintf("%s/%d", r.Incarnation, batch)
	if noted, err := affected(s.db.ExecContext(ctx, s.expand.Replace(noteDropped), r.ID, r.Incarnation, row, GapDropped)); err != nil || noted {
		return fail(op, err)
	}
	return fail(op, s.checkRegistration(ctx, s.db, r))
}

// UsageGaps lists the processes that did not store all their usage, as noted after since, in the order in which that was noted.
func (s *Store) UsageGaps(ctx context.Context, since instant.Millis) ([]UsageGap, error) {
	return list[UsageGap](ctx, s, "list gaps of usage", gapsSince, since)
}

// noteGap notes that a registered process ended without storing all its usage.
func (s *Store) noteGap(ctx context.Context, t sqlx.ExecerContext, gateway, incarnation, cause string) error {
	if _, err := t.ExecContext(ctx, s.expand.Replace(pruneGaps), s.now().Add(-usageKept)); err != nil {
		return err
	}
	_, err := t.ExecContext(ctx, s.expand.Replace(noteGap), gateway, incarnation, cause)
	return err
}
