package keystore

import (
	"context"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
)

// QuotaKept is how long a record can matter: its UTC day, and an hour because clocks differ.
const QuotaKept = 25 * time.Hour

// pruneQuotasEvery is how often old records are removed.
const pruneQuotasEvery = time.Hour

// SaveQuotas stores the records, so that a gateway can load them when it starts. They replace earlier records of the same
// tenants. now is in ms. Only in-process quotas need it. It makes no event.
func (s *Store) SaveQuotas(ctx context.Context, now instant.Millis, records []QuotaRecord) error {
	return fail("save quotas", s.saveQuotas(ctx, now, records))
}

func (s *Store) saveQuotas(ctx context.Context, now instant.Millis, records []QuotaRecord) error {
	t, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer t.Rollback() // after Commit it does nothing
	// The table has no index by time, so this reads all rows.
	prunes := now.Sub(instant.Millis(s.quotasPruned.Load())) >= pruneQuotasEvery
	if prunes {
		if _, err := t.ExecContext(ctx, pruneQuotas, now.Add(-QuotaKept)); err != nil {
			return err
		}
	}
	upsert, err := t.PrepareContext(ctx, upsertQuota)
	if err != nil {
		return err
	}
	for _, r := range records {
		if _, err := upsert.ExecContext(ctx, r.Tenant, r.Record, now); err != nil {
			return err
		}
	}
	if err := t.Commit(); err != nil {
		return err
	}
	if prunes {
		s.quotasPruned.Store(int64(now))
	}
	return nil
}

// LoadQuotas returns what SaveQuotas kept.
func (s *Store) LoadQuotas(ctx context.Context) ([]QuotaRecord, error) {
	records := []QuotaRecord{}
	err := s.db.SelectContext(ctx, &records, loadQuotas)
	return records, fail("load quotas", err)
}

// DropQuota deletes a tenant's saved record. It makes no event.
func (s *Store) DropQuota(ctx context.Context, tenant id.Tenant) error {
	_, err := s.db.ExecContext(ctx, deleteQuota, tenant)
	return fail("drop a saved quota", err)
}

// RequestQuotaReset gives the tenant a fresh quota: gateways apply the event, and the stored record is deleted.
func (s *Store) RequestQuotaReset(ctx context.Context, tenant id.Tenant) (Change, error) {
	return s.write(ctx, "reset quota", func(t *tx) error {
		if _, err := findTenant(t.ctx, t, tenantByID, tenant.String()); err != nil {
			return err
		}
		if err := t.exec(deleteQuota, tenant); err != nil {
			return err
		}
		return t.record(QuotaReset, subject{tenant: tenant}, nil, nil)
	})
}
