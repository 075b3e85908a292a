package keystore

import (
	"context"
	"time"

	"github.com/jmoiron/sqlx"

	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/database"
)

// Rows receives the rows that a gateway keeps in memory. The arguments of a function are valid
// until it returns.
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
	DisabledAt  instant.Millis
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

// endedBansLoaded is how long ago a ban may have ended that is still loaded: the gateway's clock
// may be ahead.
const endedBansLoaded = time.Hour

// Load reads everything in one snapshot: lost refusals, plans, tenants, keys and bans, in this
// order. It returns the last event of the snapshot with its UUID.
func (s *Store) Load(ctx context.Context, to Rows) (last Change, uuid string, err error) {
	err = s.Snapshot(ctx, func(q sqlx.QueryerContext) error {
		var tenants, keys int
		if err := q.QueryRowxContext(ctx, countRows).Scan(&tenants, &keys); err != nil {
			return err
		}
		to.Expect(tenants, keys)
		last, uuid, err = s.LastEventOf(ctx, q)
		if err != nil {
			return err
		}
		lost, err := findLost(ctx, q)
		if err != nil {
			return err
		}
		to.Lost(lost)
		return s.read(ctx, q, to)
	})
	return last, uuid, Fail("load", err)
}

// read passes all plans, tenants, keys and bans to the functions of to.
func (s *Store) read(ctx context.Context, q sqlx.QueryerContext, to Rows) error {
	for _, load := range []struct {
		query string
		args  []any
		pass  func(*columns)
	}{
		{loadPlans, nil, to.plan},
		{loadTenants, nil, to.tenant},
		{loadKeys, nil, to.key},
		{loadBans, []any{s.Now().Add(-endedBansLoaded)}, to.ban},
	} {
		rows, err := q.QueryxContext(ctx, load.query, load.args...)
		if err != nil {
			return err
		}
		var c columns // one for all rows: it would be allocated for each
		err = database.EachRow(rows, func(row []any) error {
			c = columns{row: row}
			load.pass(&c)
			return c.err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
