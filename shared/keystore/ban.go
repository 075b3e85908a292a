package keystore

import (
	"context"
	"errors"

	"petgate/shared/core/id"
)

// storedBan is a ban's row.
type storedBan struct {
	Ban
	liftedAt int64
}

func (b storedBan) holds(now int64) bool { return b.liftedAt == 0 && b.Until > now }

// Bans lists the bans that hold, the first to end first.
func (s *Store) Bans(ctx context.Context) ([]Ban, error) {
	bans, err := list(ctx, s.db, func(row scanner) (Ban, error) {
		b, err := scanBan(row)
		return b.Ban, err
	}, bansByEnd, s.now())
	return bans, fail("list bans", err)
}

func scanBan(row scanner) (b storedBan, err error) {
	var key, tenant string
	err = row.Scan(&key, &tenant, &b.Until, &b.Reason, &b.By, &b.ImposedAt, &b.liftedAt)
	if err == nil {
		b.Key, err = id.ParseKey(key)
	}
	if err == nil {
		b.Tenant, err = id.ParseTenant(tenant)
	}
	return b, err
}

// findBan returns the key's latest ban, with an empty key if it never had one.
func findBan(t *tx, key id.Key) (storedBan, error) {
	b, err := one(t.ctx, t, scanBan, "no ban", banByKey, key.String())
	if errors.Is(err, ErrNotFound) {
		err = nil
	}
	return b, err
}

// AddBan bans a key and returns the ban that holds then: the one there was, if that lasts longer or is the same.
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
			return invalid("a ban cannot end before it begins, at %s", instant(ban.Until))
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
		if err := t.exec(upsertBan, ban.Key.String(), ban.Until, ban.Reason, ban.By, ban.ImposedAt); err != nil {
			return err
		}
		var before any
		if was.holds(t.at) {
			before = was.Ban
		}
		return t.record(BanAdded, subject{tenant: ban.Tenant, key: ban.Key}, before, ban)
	})
	if err != nil {
		return Ban{}, 0, err
	}
	return ban, change, nil
}

// LiftBan ends a key's ban now. To lift a ban that does not hold changes nothing.
func (s *Store) LiftBan(ctx context.Context, key id.Key) (Change, error) {
	return s.write(ctx, "lift ban", func(t *tx) error {
		if _, err := findKey(t.ctx, t, key); err != nil {
			return err
		}
		was, err := findBan(t, key)
		if err != nil || !was.holds(t.at) {
			return err
		}
		if err := t.exec(liftBan, key.String(), t.at); err != nil {
			return err
		}
		return t.record(BanLifted, subject{tenant: was.Tenant, key: key}, was.Ban, nil)
	})
}
