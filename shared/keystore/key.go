package keystore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jmoiron/sqlx"

	"petgate/shared/core/access"
	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
)

// Key returns one key.
func (s *Store) Key(ctx context.Context, key id.Key) (Key, error) {
	k, err := findKey(ctx, s.db, key)
	return k, fail("show key", err)
}

// KeyByToken returns the key of a token.
func (s *Store) KeyByToken(ctx context.Context, token string) (k Key, err error) {
	const op = "find key by token"
	if _, err := apikey.Parse([]byte(token)); err != nil {
		return Key{}, fail(op, invalid("%s", err))
	}
	hash := apikey.Sum([]byte(token))
	err = get(ctx, s.db, &k, "no key has this token; it may belong to another installation", keyByHash, hash[:])
	return k, fail(op, err)
}

func findKey(ctx context.Context, q sqlx.QueryerContext, key id.Key) (k Key, err error) {
	err = get(ctx, q, &k, fmt.Sprintf("there is no key %s", key), keyByID, key)
	return k, err
}

// CreateKey creates a key and returns its token, which is not stored and cannot be shown again.
func (s *Store) CreateKey(ctx context.Context, spec KeySpec) (k Key, token string, c Change, err error) {
	const op = "create key"
	if spec.Name == "" {
		spec.Name = "default"
	}
	if spec.Environment == 0 {
		spec.Environment = apikey.Live
	}
	if spec.Scopes == 0 {
		spec.Scopes = apikey.DefaultScopes
	}
	if err := CheckText(spec.Name, NameRunesMax); err != nil {
		return Key{}, "", 0, fail(op, invalid("the name of the key: %s", err))
	}
	now := s.now()
	if spec.ExpiresAt != 0 && spec.ExpiresAt <= now {
		return Key{}, "", 0, fail(op, invalid("a key cannot expire in the past, at %s", spec.ExpiresAt))
	}
	k, token, row, err := s.newKey(spec, now)
	if err == nil {
		c, _, err = s.change(ctx, now, event{kind: KeyCreated, about: subject{tenant: k.Tenant, key: k.ID}, after: k}, insertKey, row...)
	}
	if err != nil {
		return Key{}, "", 0, fail(op, missing(err, fmt.Sprintf("there is no tenant %q", spec.Tenant))) // no token: the key was not stored
	}
	return k, token, c, nil
}

// newKey draws a key and its token. It also returns the parameters of insertKey.
func (s *Store) newKey(spec KeySpec, now instant.Millis) (k Key, token string, row []any, err error) {
	k = Key{
		Tenant: spec.Tenant, Name: spec.Name, Environment: spec.Environment, Scopes: spec.Scopes,
		CreatedAt: now, ExpiresAt: spec.ExpiresAt,
	}
	for _, prefix := range spec.Allow {
		k.Allow = append(k.Allow, prefix.Masked())
	}
	if k.ID, err = id.NewKey(s.random); err != nil {
		return k, "", nil, err
	}
	if token, err = apikey.Mint(spec.Environment, s.random); err != nil {
		return k, "", nil, err
	}
	k.Hint = apikey.Hint(token)
	hash := apikey.Sum([]byte(token))
	return k, token, []any{
		k.ID, k.Tenant, hash[:], k.Name, k.Hint, k.Environment, k.Scopes, k.Allow, k.CreatedAt, k.ExpiresAt,
	}, nil
}

// mint stores a new key and its event.
func (t *tx) mint(spec KeySpec) (Key, string, error) {
	k, token, row, err := t.store.newKey(spec, t.at)
	if err == nil {
		err = t.exec(insertKey, row...)
	}
	if err != nil {
		return k, "", err
	}
	return k, token, t.record(KeyCreated, subject{tenant: k.Tenant, key: k.ID}, nil, k)
}

// UpdateKey changes the name, the scopes, the allow-list and the expiry of a key; edit changes nothing else. If another writer
// changes the key at the same time, edit is called again. A key that has ended cannot be changed: ErrConflict.
func (s *Store) UpdateKey(ctx context.Context, key id.Key, edit func(*Key)) (k Key, c Change, err error) {
	const op = "update key"
	err = s.retry(op, func() (changed bool, err error) {
		before, err := findKey(ctx, s.db, key)
		if k = before; err != nil {
			return false, err
		}
		now := s.now()
		edit(&k)
		if err := editable(before, k, now); err != nil {
			return false, err
		}
		if sameTerms(before, k) {
			return s.unchanged(ctx, &c)
		}
		e := event{KeyUpdated, subject{tenant: k.Tenant, key: k.ID}, before, k}
		c, changed, err = s.change(ctx, now, e, editKey, k.ID, k.Name, k.Scopes, k.Allow, k.ExpiresAt,
			before.Name, before.Scopes, before.Allow, before.ExpiresAt, before.RevokedAt, before.GraceEndsAt)
		return changed, err
	})
	return k, c, err
}

// editable returns why a key cannot be changed like this.
func editable(before, after Key, now instant.Millis) error {
	if err := CheckText(after.Name, NameRunesMax); err != nil && after.Name != before.Name {
		return invalid("the name of the key: %s", err)
	}
	switch {
	case before.RevokedAt != 0:
		return conflict("%s was revoked at %s; create another key", before.ID, before.RevokedAt)
	case before.GraceEndsAt != 0:
		return conflict("%s was rotated; change %s, which replaces it", before.ID, before.ReplacedBy)
	case after.Scopes == 0:
		return invalid("a key needs a scope")
	case after.ExpiresAt != before.ExpiresAt && after.ExpiresAt != 0 && after.ExpiresAt <= now:
		return invalid("a key cannot expire in the past, at %s", after.ExpiresAt)
	}
	return nil
}

func sameTerms(a, b Key) bool {
	return a.Name == b.Name && a.Scopes == b.Scopes && a.ExpiresAt == b.ExpiresAt && slices.Equal(a.Allow, b.Allow)
}

// RevokeKey ends a key. Revoking it again changes nothing.
func (s *Store) RevokeKey(ctx context.Context, key id.Key) (k Key, c Change, err error) {
	err = s.retry("revoke key", func() (changed bool, err error) {
		before, err := findKey(ctx, s.db, key)
		if k = before; err != nil {
			return false, err
		}
		if k.RevokedAt != 0 {
			return s.unchanged(ctx, &c)
		}
		k.RevokedAt = s.now()
		e := event{KeyRevoked, subject{tenant: k.Tenant, key: k.ID}, before, k}
		c, changed, err = s.change(ctx, k.RevokedAt, e, revokeKey, k.ID, k.RevokedAt, before.RevokedAt, before.GraceEndsAt, before.ReplacedBy)
		return changed, err
	})
	return k, c, err
}

// RotateKey replaces a key by a new one with the same tenant, name, scopes, allow-list and lifetime. Both are valid until
// graceEndsAt, then only the new one. Without a grace period the old key is revoked. Repeated within the grace period, it
// changes nothing and returns the new key without its token: ShortenGrace ends the old key earlier.
func (s *Store) RotateKey(ctx context.Context, key id.Key, graceEndsAt instant.Millis) (fresh Key, token string, c Change, err error) {
	c, err = s.write(ctx, "rotate key", func(t *tx) error {
		old, err := findKey(t.ctx, t, key)
		if err != nil {
			return err
		}
		if err := rotatable(old, t.at, graceEndsAt); err != nil {
			return err
		}
		if !old.ReplacedBy.IsZero() { // it is in its grace period
			fresh, err = findKey(t.ctx, t, old.ReplacedBy)
			return err
		}
		spec := KeySpec{Tenant: old.Tenant, Name: old.Name, Environment: old.Environment, Scopes: old.Scopes, Allow: old.Allow}
		if old.ExpiresAt != 0 {
			spec.ExpiresAt = t.at + old.ExpiresAt - old.CreatedAt
		}
		if fresh, token, err = t.mint(spec); err != nil {
			return err
		}
		replaced := old
		replaced.GraceEndsAt, replaced.ReplacedBy = graceEndsAt, fresh.ID
		if graceEndsAt <= t.at {
			replaced.RevokedAt = t.at // holds also at a gateway whose clock is behind
		}
		return t.changeKey(KeyRotated, old, replaced)
	})
	if err != nil {
		return Key{}, "", 0, err
	}
	return fresh, token, c, nil
}

// ShortenGrace lets the grace period of a rotated key end earlier, at graceEndsAt. If that is not in the future, the key is
// revoked. A grace period never gets longer: if it ends before graceEndsAt, nothing changes. A key that was not rotated:
// ErrConflict.
func (s *Store) ShortenGrace(ctx context.Context, key id.Key, graceEndsAt instant.Millis) (k Key, c Change, err error) {
	c, err = s.write(ctx, "shorten grace period", func(t *tx) error {
		before, err := findKey(t.ctx, t, key)
		if k = before; err != nil {
			return err
		}
		if k.ReplacedBy.IsZero() {
			return conflict("%s was not rotated", k.ID)
		}
		if k.RevokedAt != 0 || k.GraceEndsAt <= t.at || k.GraceEndsAt <= graceEndsAt {
			return nil
		}
		k.GraceEndsAt = graceEndsAt
		if graceEndsAt <= t.at {
			k.RevokedAt = t.at // holds also at a gateway whose clock is behind
		}
		return t.changeKey(KeyRotated, before, k)
	})
	return k, c, err
}

// rotatable returns an error for a key that is no longer valid. Bans and the tenant do not matter here.
func rotatable(k Key, now, graceEndsAt instant.Millis) error {
	cure := "create another key"
	if !k.ReplacedBy.IsZero() {
		cure = fmt.Sprintf("%s replaced it: rotate that one", k.ReplacedBy)
	}
	call := access.Call{Environment: k.Environment, Now: now}
	switch access.Decide(k.Access(0), access.Tenant{}, call) {
	case access.Revoked:
		return conflict("%s was revoked at %s; %s", k.ID, k.RevokedAt.String(), cure)
	case access.Expired:
		return conflict("%s expired at %s; %s", k.ID, k.ExpiresAt.String(), cure)
	case access.Replaced:
		return conflict("%s ended at %s; %s", k.ID, k.GraceEndsAt.String(), cure)
	}
	if graceEndsAt <= 0 {
		return invalid("a grace period needs an end")
	}
	return nil
}

func (t *tx) changeKey(kind string, before, after Key) error {
	text, err := json.Marshal([]keyRow{rowOf(after)})
	if err == nil {
		err = t.exec(updateKeys, string(text))
	}
	if err != nil {
		return err
	}
	return t.record(kind, subject{tenant: after.Tenant, key: after.ID}, before, after)
}
