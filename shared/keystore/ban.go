package keystore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/database"
)

// storedBan is a ban's row.
type storedBan struct {
	Ban
	LiftedAt instant.Millis `db:"lifted_at"`
}

func (b storedBan) holds(now instant.Millis) bool { return b.LiftedAt == 0 && b.Until > now }

// CountBans returns how many keys are banned.
func (s *Store) CountBans(ctx context.Context) (n int, err error) {
	err = s.db.GetContext(ctx, &n, countBans, s.now())
	return n, fail("count bans", err)
}

// findBan returns the key's latest ban, or the zero value if the key never had one.
func findBan(t *tx, key id.Key) (b storedBan, err error) {
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
	change, err := s.write(ctx, "add ban", func(t *tx) error {
		k, err := findKey(t.ctx, t, ban.Key)
		if err != nil {
			return err
		}
		ban.Tenant = k.Tenant
		if ban.By == "" {
			ban.By = s.actor
		}
		if ban.ImposedAt == 0 {
			ban.ImposedAt = t.at
		}
		if ban.Until <= ban.ImposedAt {
			return invalid("the end of a ban must not be in the past: %s", ban.Until)
		}
		if ban.Automatic && s.db.Dialect() == database.Postgres {
			return t.call(banByGatewayPostgres, ban.By, rand.Text(), ban.Key, ban.Until, ban.Reason, ban.ImposedAt)
		}
		was, err := findBan(t, ban.Key)
		if err != nil {
			return err
		}
		same := was.By == ban.By && was.ImposedAt == ban.ImposedAt
		if same || was.holds(t.at) && was.Until >= ban.Until {
			ban = was.Ban
			return nil
		}
		var before any
		if was.holds(t.at) {
			before = was.Ban
		}
		return t.ban(before, ban)
	})
	if err != nil {
		return Ban{}, 0, err
	}
	return ban, change, nil
}

// ban stores a ban and its event. before is the ban that it replaces, or nil.
func (t *tx) ban(before any, b Ban) error {
	t.event(BanAdded, subject{tenant: b.Tenant, key: b.Key}, before, b)
	return t.exec(upsertBan, b.Key, b.Until, b.Automatic, b.Notice, b.Reason, b.By, b.ImposedAt)
}

// LiftBan ends a key's ban. If the key is not banned, it does nothing.
func (s *Store) LiftBan(ctx context.Context, key id.Key) (Change, error) {
	return s.write(ctx, "lift ban", func(t *tx) error {
		if _, err := findKey(t.ctx, t, key); err != nil {
			return err
		}
		was, err := findBan(t, key)
		if err != nil || !was.holds(t.at) {
			return err
		}
		t.event(BanLifted, subject{tenant: was.Tenant, key: key}, was.Ban, nil)
		return t.exec(liftBan, key, t.at)
	})
}
