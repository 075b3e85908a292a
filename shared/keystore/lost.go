package keystore

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/jmoiron/sqlx"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/database"
	"petgate/shared/keystore/schema"
)

// The kinds of lost refusals.
const (
	LostRevocation = "revoked"
	LostPause      = "disabled"
	LostRotation   = "rotated"
	LostSuspension = "suspended"
)

// LostRefusal is a refusal that a gateway had applied and that the database has lost, because a
// fail-over or a restore replaced it by an older copy. Gateways keep it in force until an operator
// repeats the change or drops it. At is the time of the revocation or of the pause, or the end of a
// rotated key's grace period.
type LostRefusal struct {
	Kind       string         `db:"kind" json:"kind"`
	Tenant     id.Tenant      `db:"tenant_id" json:"tenantId"`
	Key        id.Key         `db:"key_id" json:"keyId,omitzero"` // none: the tenant was suspended
	At         instant.Millis `db:"at" json:"at,omitempty"`
	ReportedBy string         `db:"reported_by" json:"reportedBy"`
	ReportedAt instant.Millis `db:"reported_at" json:"reportedAt"`
}

// LostRefusals lists the lost refusals that were neither repeated nor dropped.
func (s *Store) LostRefusals(ctx context.Context) ([]LostRefusal, error) {
	lost, err := findLost(ctx, s.db)
	return lost, Fail("list lost refusals", err)
}

func findLost(ctx context.Context, q sqlx.QueryerContext) ([]LostRefusal, error) {
	lost := []LostRefusal{}
	err := sqlx.SelectContext(ctx, q, &lost, lostRefusals)
	return lost, err
}

// ReportLost adds lost refusals to the list. Refusals that are already listed are skipped.
func (s *Store) ReportLost(ctx context.Context, lost []LostRefusal) (Change, error) {
	return s.Write(ctx, "report lost refusals", func(t *Tx) error {
		for _, l := range lost {
			if s.db.Dialect() == database.Postgres {
				err := t.call(reportLostPostgres, s.actor, rand.Text(), l.Tenant, l.Key, l.Kind, l.At, t.At)
				if err != nil {
					return err
				}
				continue
			}
			added, err := t.Affects(schema.InsertLost, l.Tenant, l.Key, l.Kind, l.At, s.actor, t.At)
			if err != nil {
				return err
			}
			if added {
				t.Event(RefusalLost, Subject{Tenant: l.Tenant, Key: l.Key}, nil, l)
			}
		}
		return nil
	})
}

// DropLost drops the lost refusals of a key or, without a key, the tenant's lost suspension. This
// ends them.
func (s *Store) DropLost(ctx context.Context, tenant id.Tenant, key id.Key) (Change, error) {
	return s.Write(ctx, "drop lost refusal", func(t *Tx) error {
		dropped, err := t.Affects(deleteLost, tenant, key)
		if err == nil && !dropped {
			err = fmt.Errorf("%w: no refusal of it was lost", ErrNotFound)
		}
		t.Event(RefusalDropped, Subject{Tenant: tenant, Key: key}, nil, nil)
		return err
	})
}
