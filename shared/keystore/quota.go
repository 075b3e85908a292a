package keystore

import (
	"cmp"
	"context"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

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
// tenants since the same resets. No two records have the same tenant and reset. now is in ms. Only in-process quotas need it. It makes no event.
func (s *Store) SaveQuotas(ctx context.Context, now instant.Millis, records []QuotaRecord) error {
	// The table has no index by time, so this reads all rows.
	prunes := now.Sub(instant.Millis(s.quotasPruned.Load())) >= pruneQuotasEvery
	err := s.transact(ctx, "save quotas", func(t *sqlx.Tx) error {
		if prunes {
			if _, err := t.ExecContext(ctx, s.expand.Replace(pruneQuotas), now.Add(-QuotaKept)); err != nil {
				return err
			}
		}
		for chunk := range slices.Chunk(records, quotaRowsMax) {
			if _, err := t.ExecContext(ctx, s.expand.Replace(upsertQuotas), quotaRows(chunk), now); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && prunes {
		s.quotasPruned.Store(int64(now))
	}
	return err
}

// quotaRows returns the records as the database gets them: JSON with the bytes in hexadecimal. It is not made by package json, whose
// copies take several times as much memory: a gateway may save many records every second.
func quotaRows(records []QuotaRecord) string {
	var text strings.Builder
	var row []byte
	for i, r := range records {
		row = append(row[:0], `,{"name":"`...)
		if i == 0 {
			row[0] = '['
		}
		if row = r.Tenant.AppendTo(row); r.Since != 0 {
			row = strconv.AppendInt(append(row, ':'), int64(r.Since), 10)
		}
		row = append(row, `","record":"`...)
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
func (s *Store) LoadQuotas(ctx context.Context) (all []QuotaRecord, err error) {
	defer failed("load quotas", &err)
	var rows []struct {
		Name   quotaName `db:"name"`
		Record []byte    `db:"record"`
	}
	if err := s.db.SelectContext(ctx, &rows, loadQuotas); err != nil {
		return nil, err
	}
	records := make([]QuotaRecord, len(rows))
	for i, row := range rows {
		records[i] = QuotaRecord{row.Name.tenant, row.Name.since, row.Record}
	}
	return records, nil
}

// quotaName is the name of a record: a tenant and, after a colon, its last reset if there was one.
type quotaName struct {
	tenant id.Tenant
	since  instant.Millis
}

// Scan reads a name.
func (n *quotaName) Scan(column any) error {
	text, _ := column.(string)
	tenant, since, isReset := strings.Cut(text, ":")
	ms, err := int64(0), error(nil)
	if isReset {
		ms, err = strconv.ParseInt(since, 10, 64)
	}
	n.since = instant.Millis(ms)
	return cmp.Or(n.tenant.Scan(tenant), err)
}

// ResetUsage gives the tenant fresh limits: its use counts from now on.
func (s *Store) ResetUsage(ctx context.Context, tenant id.Tenant) (Change, error) {
	return s.write(ctx, "reset usage", func(t *tx) error {
		if _, err := findTenant(t.ctx, t, tenantByID, tenant.String()); err != nil {
			return err
		}
		if err := t.exec(resetUsage, tenant, s.now()); err != nil {
			return err
		}
		return t.record(QuotaReset, subject{tenant: tenant}, nil, nil)
	})
}
