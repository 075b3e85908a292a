package usage

import (
	"context"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/keystore/schema"
)

// QuotaKept is how long a record can matter: its month, and an hour because clocks differ.
const QuotaKept = 31*24*time.Hour + time.Hour

// pruneQuotasEvery is how often old records are removed.
const pruneQuotasEvery = time.Hour

// quotaRowsMax bounds a statement: its time is limited, and its text takes about 2 kB of memory for
// each row. A row more is cheap, a statement more is not: it takes two round trips.
const quotaRowsMax = 2000

// SaveQuotas stores the records, so that a gateway can load them when it starts. They replace
// earlier records of the same tenants since the same resets. No two records have the same tenant
// and reset. now is in ms. Only in-process quotas need it. It makes no event.
func (s Store) SaveQuotas(ctx context.Context, now instant.Millis, records []QuotaRecord) error {
	// The table has no index by time, so this reads all rows.
	prunes := now.Sub(instant.Millis(s.quotasPruned.Load())) >= pruneQuotasEvery
	err := s.Transact(ctx, "save quotas", func(t *keystore.Tx) error {
		if prunes {
			if err := t.Exec(schema.PruneQuotas, now.Add(-QuotaKept)); err != nil {
				return err
			}
		}
		for chunk := range slices.Chunk(records, quotaRowsMax) {
			if err := t.Exec(schema.UpsertQuotas, quotaRows(chunk), now); err != nil {
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

// quotaRows returns the records as the database gets them: JSON with the bytes in hexadecimal. It
// is not made by package json, whose copies take several times as much memory: a gateway may save
// many records every second.
func quotaRows(records []QuotaRecord) string {
	var text strings.Builder
	var row []byte
	for i, r := range records {
		row = append(row[:0], `,{"name":"`...)
		if i == 0 {
			row[0] = '['
		}
		row = append(r.AppendTo(r.Tenant.AppendTo(row)), `","record":"`...)
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
func (s Store) LoadQuotas(ctx context.Context) ([]QuotaRecord, error) {
	rows, err := keystore.List[struct {
		Name   QuotaName `db:"name"`
		Record []byte    `db:"record"`
	}](ctx, s.Store, "load quotas", loadQuotas)
	records := make([]QuotaRecord, len(rows))
	for i, row := range rows {
		records[i] = QuotaRecord{row.Name, row.Record}
	}
	return records, err
}

// QuotaName names a record of use. Each reset of a tenant's use begins another record.
type QuotaName struct {
	Tenant id.Tenant
	Since  instant.Millis // the tenant's last reset before this use; 0: never
	Test   bool           // of the tenant's test keys, which have counts of their own
	Key    id.Key         // whose own use it is; zero: the whole tenant's
}

// AppendTo appends what follows the tenant in the name's text.
func (n *QuotaName) AppendTo(dst []byte) []byte {
	if n.Test {
		dst = append(append(dst, ':'), quotaOfTest...)
	}
	if n.Key != (id.Key{}) {
		dst = n.Key.AppendTo(append(dst, ':'))
	}
	if n.Since != 0 {
		dst = strconv.AppendInt(append(dst, ':'), int64(n.Since), 10)
	}
	return dst
}

const quotaOfTest = "test"

// Scan reads a name as the database keeps it: TENANT[:test][:KEY][:SINCE].
func (n *QuotaName) Scan(column any) error {
	text, _ := column.(string)
	parts := strings.Split(text, ":")
	*n = QuotaName{}
	if err := n.Tenant.Scan(parts[0]); err != nil {
		return err
	}
	parts = parts[1:]
	if len(parts) > 0 && parts[0] == quotaOfTest {
		n.Test = true
		parts = parts[1:]
	}
	if len(parts) > 0 && strings.HasPrefix(parts[0], id.KeyPrefix) {
		if err := n.Key.Scan(parts[0]); err != nil {
			return err
		}
		parts = parts[1:]
	}
	if len(parts) == 0 {
		return nil
	}
	since, err := strconv.ParseInt(strings.Join(parts, ":"), 10, 64)
	n.Since = instant.Millis(since)
	return err
}
