package keystore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
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
	ID        id.Tenant
	Plan      string
	Override  plan.Limits
	Suspended bool
	UsedSince instant.Millis // the last reset of its usage; 0: never
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
	var r reader
	for _, load := range []struct {
		query string
		args  []any
		pass  func(*sqlx.Rows) error
	}{
		{selectPlans, nil, func(row *sqlx.Rows) error {
			var p Plan
			err := row.Scan(&p.Name, &p.Limits.Minute, &p.Limits.Day, &p.CreatedAt)
			if err == nil {
				to.Plan(p)
			}
			return err
		}},
		{loadTenants, nil, func(row *sqlx.Rows) error {
			t, err := r.tenant(row)
			if err == nil {
				to.Tenant(t)
			}
			return err
		}},
		{loadKeys, nil, func(row *sqlx.Rows) error {
			k, err := r.key(row)
			if err == nil {
				to.Key(k)
			}
			return err
		}},
		{loadBans, []any{s.now().Add(-endedBansLoaded)}, func(row *sqlx.Rows) error {
			var b BanRow
			err := row.Scan(&b.Key, &b.Until, &b.Automatic, &b.Notice)
			if err == nil {
				to.Ban(b)
			}
			return err
		}},
	} {
		if err := each(ctx, q, load.pass, load.query, load.args...); err != nil {
			return err
		}
	}
	return nil
}

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

// reader scans rows, possibly millions, into one buffer. It keeps the texts that most rows share.
type reader struct {
	t       TenantRow
	k       KeyRow
	columns [8]sql.RawBytes
	scopes  string // the text of k.Scopes
}

func (r *reader) tenant(row *sqlx.Rows) (*TenantRow, error) {
	var err error
	key, planName := &r.columns[0], &r.columns[1]
	if err = row.Scan(key, planName, &r.t.Override.Minute, &r.t.Override.Day, &r.t.Suspended, &r.t.UsedSince); err != nil {
		return nil, err
	}
	if r.t.Plan != string(*planName) {
		r.t.Plan = string(*planName)
	}
	r.t.ID, err = id.ParseTenant(string(*key))
	return &r.t, err
}

func (r *reader) key(row *sqlx.Rows) (*KeyRow, error) {
	c, k := &r.columns, &r.k
	err := row.Scan(&c[0], &c[1], &c[2], &c[3], &c[4], &c[5], &c[6], &c[7], &k.ExpiresAt, &k.RevokedAt, &k.GraceEndsAt)
	if err != nil {
		return nil, err
	}
	if copy(k.Hash[:], c[0]) != len(k.Hash) || len(c[0]) != len(k.Hash) {
		return nil, errors.New("the hash of a key has the wrong length")
	}
	if k.ID, err = id.ParseKey(string(c[1])); err != nil {
		return nil, err
	}
	if k.Tenant, err = id.ParseTenant(string(c[2])); err != nil {
		return nil, err
	}
	if k.Environment, err = apikey.ParseEnvironment(string(c[3])); err != nil {
		return nil, err
	}
	if r.scopes != string(c[4]) {
		r.scopes = string(c[4])
		if err = k.Scopes.Scan(r.scopes); err != nil {
			return nil, err
		}
	}
	if k.Name != string(c[6]) {
		k.Name = string(c[6])
	}
	if err = k.ReplacedBy.Scan(string(c[7])); err != nil {
		return nil, err
	}
	return k, k.Allow.Scan(string(c[5]))
}
