package keystore

import (
	"context"
	"encoding/json"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/database"
)

// usageKept is how long usage is kept: 400 days, a little more than a year.
const usageKept = 400 * 24 * time.Hour

// AddUsage adds a gateway's batch of requests and updates the last use of their keys. Batches have growing numbers. A batch that was
// already added changes nothing, so a batch can be sent again after a lost reply. No two rows of a batch have the same tenant, key,
// outcome and hour. Usage older than 400 days is deleted. Errors: ErrNotFound if the gateway was forgotten, ErrDisplaced.
func (s *Store) AddUsage(ctx context.Context, r Registration, batch int64, rows []UsageRow) error {
	return fail("add usage", s.addUsage(ctx, r, batch, rows))
}

func (s *Store) addUsage(ctx context.Context, r Registration, batch int64, rows []UsageRow) error {
	// There are few statements, because a batch may contain every key of a busy minute.
	text, err := json.Marshal(rows)
	if err != nil {
		return err
	}
	t, err := s.db.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer t.Rollback() // after Commit it does nothing
	if s.db.Dialect() == database.Postgres {
		if _, err := t.ExecContext(ctx, lockUsagePostgres, usageLock); err != nil {
			return err
		}
	}
	claimed, err := t.ExecContext(ctx, claimUsage, r.ID, r.Incarnation, batch)
	if err != nil {
		return err
	}
	if n, err := claimed.RowsAffected(); err != nil || n == 0 {
		if err == nil {
			err = s.checkRegistration(ctx, t, r)
		}
		return err
	}
	for _, query := range []string{addUsage, touchKeys} {
		if _, err := t.ExecContext(ctx, s.expand.Replace(query), string(text)); err != nil {
			return err
		}
	}
	// Old rows of the batch's tenants are deleted here, because only a tenant that adds rows can have too many. This costs one
	// index lookup.
	if _, err := t.ExecContext(ctx, s.expand.Replace(pruneUsage), string(text), s.now().Add(-usageKept)); err != nil {
		return err
	}
	return t.Commit()
}

// Usage lists a tenant's requests by hour, key and outcome, beginning with the hour of since.
func (s *Store) Usage(ctx context.Context, tenant id.Tenant, since instant.Millis) ([]UsageRow, error) {
	rows := []UsageRow{}
	err := s.db.SelectContext(ctx, &rows, usageOfTenant, tenant, since.Truncate(time.Hour))
	for i := range rows {
		rows[i].Tenant = tenant
	}
	return rows, fail("show usage", err)
}
