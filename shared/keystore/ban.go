package keystore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/database"
	"petgate/shared/keystore/schema"
)

// storedBan is a ban's row.
type storedBan struct {
	Ban
	LiftedAt instant.Millis `db:"lifted_at"`
}

func (b storedBan) holds(now instant.Millis) bool { return b.LiftedAt == 0 && b.Until > now }

// findBan returns the key's latest ban, or the zero value if the key never had one.
func findBan(t *Tx, key id.Key) (b storedBan, err error) {
	err = t.GetContext(t.ctx, &b, banByKey, key)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return b, err
}

// AddBan bans a key and returns its ban: the earlier one if that is in force and does not end
// sooner, or if it is the same ban, even if it was lifted. On PostgreSQL, an automatic ban is
// returned as it was given.
func (s *Store) AddBan(ctx context.Context, ban Ban) (Ban, Change, error) {
	change, err := s.Write(ctx, "add ban", func(t *Tx) error {
		k, err := findKey(t.ctx, t, ban.Key)
		if err != nil {
			return err
		}
		ban.Tenant = k.Tenant
		if ban.By == "" {
			ban.By = s.actor
		}
		if ban.ImposedAt == 0 {
			ban.ImposedAt = t.At
		}
		if ban.Until <= ban.ImposedAt {
			return Invalid("the end of a ban must not be in the past: %s", ban.Until)
		}
		if ban.Automatic && s.db.Dialect() == database.Postgres {
			return t.call(banByGatewayPostgres, ban.By, rand.Text(), ban.Key, ban.Until, ban.Reason, ban.ImposedAt)
		}
		was, err := findBan(t, ban.Key)
		if err != nil {
			return err
		}
		var before any
		if was.holds(t.At) {
			before = was.Ban
		}
		isChanged, err := t.Ban(before, ban)
		if err == nil && !isChanged {
			ban = was.Ban
		}
		return err
	})
	if err != nil {
		return Ban{}, 0, err
	}
	return ban, change, nil
}

// Ban stores a ban and its event, and reports whether it did: see schema.UpsertBan. before is the
// ban that it replaces, or nil.
func (t *Tx) Ban(before any, b Ban) (isChanged bool, err error) {
	isChanged, err = t.Affects(schema.UpsertBan, b.Key, b.Until, b.Automatic, b.Notice, b.Reason, b.By, b.ImposedAt)
	if isChanged {
		t.Event(BanAdded, Subject{Tenant: b.Tenant, Key: b.Key}, before, b)
	}
	return isChanged, err
}

// LiftBan ends a key's ban. If the key is not banned, it does nothing.
func (s *Store) LiftBan(ctx context.Context, key id.Key) (Change, error) {
	return s.Write(ctx, "lift ban", func(t *Tx) error {
		if _, err := findKey(t.ctx, t, key); err != nil {
			return err
		}
		was, err := findBan(t, key)
		if err != nil || !was.holds(t.At) {
			return err
		}
		t.Event(BanLifted, Subject{Tenant: was.Tenant, Key: key}, was.Ban, nil)
		return t.Exec(liftBan, key, t.At)
	})
}
