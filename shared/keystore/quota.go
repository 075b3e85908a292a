package keystore

import (
	"context"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
)

// QuotaKept is how long a record can matter: its UTC day, and an hour because clocks differ.
const QuotaKept = 25 * time.Hour

// pruneQuotasEvery is how often old records are removed.
const pruneQuotasEvery = time.Hour

// quotaRowsMax bounds a statement: its time is limited, and its text takes about 2 kB of memory for each row. A row more
// is cheap, a statement more is not: it takes two round trips.
const quotaRowsMax = 2000

// SaveQuotas stores the records, so that a gateway can load them when it starts. They replace earlier records of the same
// tenants. No two records have the same tenant. now is in ms. Only in-process quotas need it. It makes no event. It needs few
// statements, because a reset waits for a save of all that has changed.
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
	for chunk := range slices.Chunk(records, quotaRowsMax) {
		if _, err := t.ExecContext(ctx, s.expand.Replace(upsertQuotas), quotaRows(chunk), now); err != nil {
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

// quotaRows returns the records as the database gets them: JSON with the bytes in hexadecimal. It is not made by package json, whose
// copies take several times as much memory: a gateway may save many records every second.
func quotaRows(records []QuotaRecord) string {
	var text strings.Builder
	var row []byte
	for i, r := range records {
		row = append(row[:0], `,{"tenantId":"`...)
		if i == 0 {
			row[0] = '['
		}
		row = append(r.Tenant.AppendTo(row), `","record":"`...)
		row = append(hex.AppendEncode(row, r.Record), `"}`...)
		if i == 0 {
			text.Grow(len(records)*len(row) + 1)
		}
		text.Write(row)
	}
	text.WriteByte(']')
	return text.String()
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
