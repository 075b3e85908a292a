package keystore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"time"

	"github.com/jmoiron/sqlx"

	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/database"
)

// Rows receives the rows that a gateway keeps in memory. The arguments of a function are valid until it returns.
type Rows struct {
	Expect func(tenants, keys int) // before a load: how many rows will follow
	Lost   func([]LostRefusal)     // then, in a load: the lost refusals
	Plan   func(Plan)
	Tenant func(*TenantRow)
	Key    func(*KeyRow)
	Ban    func(BanRow)
}

// TenantRow is the part of a tenant that a gateway needs.
type TenantRow struct {
	ID          id.Tenant
	Plan        string
	Override    plan.Limits
	MonthStarts uint8 // as in Tenant
	Suspended   bool
	UsedSince   instant.Millis // the last reset of its usage; 0: never
}

// KeyRow is the part of a key that a gateway needs. A time of 0 means never.
type KeyRow struct {
	Hash        apikey.Hash
	ID          id.Key
	Tenant      id.Tenant
	Environment apikey.Environment
	Scopes      apikey.Scopes
	Allow       Prefixes
	Name        string
	ReplacedBy  id.Key // after a rotation: the new key
	ExpiresAt   instant.Millis
	RevokedAt   instant.Millis
	GraceEndsAt instant.Millis
	Limits      plan.Limits // the key's own; zero: none
}

// BanRow is the part of a ban that a gateway needs.
type BanRow struct {
	Key       id.Key
	Until     instant.Millis // 0: lifted
	Automatic bool
	Notice    string
}

// endedBansLoaded is how long ago a ban may have ended that is still loaded: the gateway's clock may be ahead.
const endedBansLoaded = time.Hour

// Load reads everything in one snapshot: lost refusals, then plans, then tenants, then keys, then bans. It returns the last event of
// the snapshot with its UUID.
func (s *Store) Load(ctx context.Context, to Rows) (last Change, uuid string, err error) {
	err = s.snapshot(ctx, func(q sqlx.QueryerContext) error {
		var tenants, keys int
		if err := q.QueryRowxContext(ctx, countRows).Scan(&tenants, &keys); err != nil {
			return err
		}
		to.Expect(tenants, keys)
		if last, uuid, err = s.lastEvent(ctx, q); err != nil {
			return err
		}
		lost, err := findLost(ctx, q)
		if err != nil {
			return err
		}
		to.Lost(lost)
		return s.read(ctx, q, to)
	})
	return last, uuid, fail("load", err)
}

// snapshot runs f in a transaction that sees the database as it was at one instant.
func (s *Store) snapshot(ctx context.Context, f func(sqlx.QueryerContext) error) error {
	if s.db.Dialect() == database.Postgres {
		// Not ctx: lib/pq would keep it on the connection after this transaction, and panic in a later one.
		t, err := s.db.BeginTxx(context.WithoutCancel(ctx), &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
		if err != nil {
			return err
		}
		defer t.Rollback() // it has changed nothing
		if _, err := t.ExecContext(ctx, patiencePostgres); err != nil {
			return err
		}
		return f(t)
	}
	conn, err := s.db.Connx(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	// BeginTx is not used, because it would take the write lock.
	if _, err := conn.ExecContext(ctx, "BEGIN DEFERRED"); err != nil {
		return err
	}
	defer func() { // it has changed nothing
		if _, err := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK"); err != nil {
			// A connection that may still be in a transaction must not be used again: it would read the old state forever.
			_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		}
	}()
	return f(conn)
}

// read passes all plans, tenants, keys and bans to the functions of to.
func (s *Store) read(ctx context.Context, q sqlx.QueryerContext, to Rows) error {
	for _, load := range []struct {
		query   string
		args    []any
		columns int
		pass    func(*columns)
	}{
		{loadPlans, nil, planColumns, to.plan},
		{loadTenants, nil, 1 + tenantColumns, func(c *columns) {
			var tenant id.Tenant
			c.scan(&tenant)
			to.tenant(c, tenant)
		}},
		{loadKeys, nil, keyColumns, to.key},
		{loadBans, []any{s.now().Add(-endedBansLoaded)}, banColumnsLoaded, to.ban},
	} {
		var values, targets [loadColumnsMax]any
		var row [loadColumnsMax]driver.Value
		for i := range values {
			targets[i] = &values[i]
		}
		if err := each(ctx, q, func(rows *sqlx.Rows) error {
			if err := rows.Scan(targets[:load.columns]...); err != nil {
				return err
			}
			for i, v := range values {
				row[i] = v
			}
			c := columns{row: row[:load.columns]}
			load.pass(&c)
			return c.err
		}, load.query, load.args...); err != nil {
			return err
		}
	}
	return nil
}

// The columns of a row that is loaded. A tenant's ID comes before.
const (
	planColumns      = 5
	tenantColumns    = 7
	keyColumns       = 13
	banColumnsLoaded = 4

	loadColumnsMax = keyColumns
)

// each calls f for every row.
func each(ctx context.Context, q sqlx.QueryerContext, f func(*sqlx.Rows) error, query string, args ...any) error {
	rows, err := q.QueryxContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
