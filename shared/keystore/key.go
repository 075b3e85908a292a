package keystore

import (
	"cmp"
	"context"
	"encoding/hex"
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
	return k, Fail("show key", err)
}

// KeyByToken returns the key of a token.
func (s *Store) KeyByToken(ctx context.Context, token string) (k Key, err error) {
	const op = "find key by token"
	if _, err := apikey.Parse([]byte(token)); err != nil {
		return Key{}, Fail(op, Invalid("%s", err))
	}
	hash := apikey.Sum([]byte(token))
	err = Get(ctx, s.db, &k, "no key has this token; it may belong to another installation", keyByHash, hash[:])
	return k, Fail(op, err)
}

func findKey(ctx context.Context, q sqlx.QueryerContext, key id.Key) (k Key, err error) {
	err = Get(ctx, q, &k, fmt.Sprintf("there is no key %s", key), keyByID, key)
	return k, err
}

// petsScopes are the scopes of the pet service, which a gateway serves without a document of its
// own.
const petsScopes apikey.Scopes = "pets:read pets:write"

// CreateKey creates a key and returns its token, which is not stored and cannot be shown again. It
// returns them with an *UnknownError too.
func (s *Store) CreateKey(ctx context.Context, spec KeySpec) (k Key, token string, c Change, err error) {
	const op = "create key"
	if spec.Name == "" {
		spec.Name = "default"
	}
	if spec.Environment == 0 {
		spec.Environment = apikey.Live
	}
	if spec.Scopes == "" {
		if spec.Scopes, _, err = s.Scopes(ctx); err != nil {
			return Key{}, "", 0, err
		}
	}
	if spec.Prefix == "" {
		if spec.Prefix, err = s.prefix(ctx); err != nil {
			return Key{}, "", 0, err
		}
	}
	c, err = s.change(ctx, op, sharedPostgres, func(t *Tx) (err error) {
		if err := CheckText(spec.Name, NameRunesMax); err != nil {
			return Invalid("the name of the key: %s", err)
		}
		if err := spec.Limits.CheckKey(); err != nil {
			return asInvalid(err)
		}
		if spec.ExpiresAt != 0 && spec.ExpiresAt <= t.At {
			return Invalid("a key cannot expire in the past, at %s", spec.ExpiresAt)
		}
		k, token, err = t.mint(spec)
		return err
	})
	if err != nil && !IsUnknown(err) {
		return Key{}, "", 0, err // no token: the key was not stored
	}
	return k, token, c, err
}

// mint adds a new key, and returns it and its token.
func (t *Tx) mint(spec KeySpec) (k Key, token string, err error) {
	k = Key{
		Tenant: spec.Tenant, Name: spec.Name, Environment: spec.Environment, Scopes: spec.Scopes,
		CreatedAt: t.At, ExpiresAt: spec.ExpiresAt, Limits: spec.Limits,
	}
	for _, prefix := range spec.Allow {
		k.Allow = append(k.Allow, prefix.Masked())
	}
	if k.ID, err = id.NewKey(t.store.random); err != nil {
		return k, "", err
	}
	if token, err = t.store.newToken(spec); err != nil {
		return k, "", err
	}
	k.Hint = apikey.Hint(token)
	hash, row := apikey.Sum([]byte(token)), rowOf(k)
	row.Hash = hex.EncodeToString(hash[:])
	t.waiting.refersTo = fmt.Sprintf("tenant %q", k.Tenant)
	t.Event(KeyCreated, Subject{Tenant: k.Tenant, Key: k.ID}, nil, k)
	t.add(insertKeys, row)
	return k, token, nil
}

// UpdateKey changes the name, the scopes, the allow-list, the expiry and the limits of a key;
// change changes nothing else. A key that has ended cannot be changed: ErrConflict.
func (s *Store) UpdateKey(ctx context.Context, key id.Key, change func(*Key)) (Key, Change, error) {
	return s.changeKey(ctx, "update key", key, func(k *Key, t *Tx) error {
		before := *k
		change(k)
		return editable(before, *k, t.At)
	})
}

// changeKey changes one key. f must not use the store.
func (s *Store) changeKey(
	ctx context.Context, op string, key id.Key, f func(*Key, *Tx) error,
) (is Key, c Change, err error) {
	c, err = s.change(ctx, op, sharedPostgres, func(t *Tx) error {
		was, err := findKey(ctx, hold{t}, key)
		if err != nil {
			return err
		}
		is = was
		if err := f(&is, t); err != nil {
			return err
		}
		return t.EditKey(Edit[Key]{&was, is})
	})
	return is, c, err
}

// editable returns why a key cannot be changed like this.
func editable(before, after Key, now instant.Millis) error {
	if err := CheckText(after.Name, NameRunesMax); err != nil && after.Name != before.Name {
		return Invalid("the name of the key: %s", err)
	}
	switch {
	case before.RevokedAt != 0:
		return Conflict("%s was revoked at %s; create another key", before.ID, before.RevokedAt)
	case before.GraceEndsAt != 0:
		return Conflict("%s was rotated; change %s, which replaces it", before.ID, before.ReplacedBy)
	case after.Scopes == "":
		return Invalid("a key needs a scope")
	case after.ExpiresAt != before.ExpiresAt && after.ExpiresAt != 0 && after.ExpiresAt <= now:
		return Invalid("a key cannot expire in the past, at %s", after.ExpiresAt)
	}
	return asInvalid(after.Limits.CheckKey())
}

func sameTerms(a, b Key) bool {
	return a.Name == b.Name && a.Scopes == b.Scopes && a.ExpiresAt == b.ExpiresAt && a.Limits == b.Limits &&
		slices.Equal(a.Allow, b.Allow)
}

// RevokeKey ends a key. Revoking it again changes nothing.
func (s *Store) RevokeKey(ctx context.Context, key id.Key) (Key, Change, error) {
	return s.changeKey(ctx, "revoke key", key, func(k *Key, t *Tx) error {
		*k = k.Revoked(t.At)
		return nil
	})
}

// DisableKey makes gateways refuse a key until EnableKey. Errors: ErrConflict if the key was
// revoked.
func (s *Store) DisableKey(ctx context.Context, key id.Key) (Key, Change, error) {
	return s.changeKey(ctx, "disable key", key, func(k *Key, t *Tx) error {
		if k.RevokedAt != 0 {
			return Conflict("%s was revoked at %s, so it is refused", k.ID, k.RevokedAt)
		}
		k.DisabledAt = cmp.Or(k.DisabledAt, t.At)
		return nil
	})
}

// EnableKey ends what DisableKey began. Errors: ErrConflict if the key was revoked.
func (s *Store) EnableKey(ctx context.Context, key id.Key) (Key, Change, error) {
	return s.changeKey(ctx, "enable key", key, func(k *Key, _ *Tx) error {
		if k.RevokedAt != 0 {
			return Conflict("%s was revoked at %s, which cannot be undone; create another key", k.ID, k.RevokedAt)
		}
		*k = k.Enabled()
		return nil
	})
}

// RotateKey replaces a key by a new one with the same tenant, name, scopes, allow-list, limits and
// lifetime. Both are valid until graceEndsAt, then only the new one. Without a grace period the old
// key is revoked. Repeated within the grace period, it changes nothing and returns the new key
// without its token: ShortenGrace ends the old key earlier. It returns the new key and its token
// with an *UnknownError too.
func (s *Store) RotateKey(
	ctx context.Context, key id.Key, graceEndsAt instant.Millis,
) (fresh Key, token string, c Change, err error) {
	const op = "rotate key"
	prefix, err := s.prefix(ctx)
	if err != nil {
		return Key{}, "", 0, err
	}
	old, c, err := s.changeKey(ctx, op, key, func(old *Key, t *Tx) error {
		if err := rotatable(*old, t.At, graceEndsAt); err != nil ||
			!old.ReplacedBy.IsZero() { // it is in its grace period
			return err
		}
		spec := KeySpec{
			Tenant: old.Tenant, Name: old.Name, Environment: old.Environment, Scopes: old.Scopes, Allow: old.Allow, Limits: old.Limits, Prefix: prefix,
		}
		if old.ExpiresAt != 0 {
			spec.ExpiresAt = t.At + old.ExpiresAt - old.CreatedAt
		}
		fresh, token, err = t.mint(spec)
		old.ReplacedBy = fresh.ID
		old.endGrace(graceEndsAt, t.At)
		return err
	})
	if err == nil && token == "" {
		fresh, err = s.Key(ctx, old.ReplacedBy)
	}
	if err != nil && !IsUnknown(err) {
		return Key{}, "", 0, err
	}
	return fresh, token, c, err
}

// endGrace sets the end of the grace period of a rotated key.
func (k *Key) endGrace(at, now instant.Millis) {
	if k.GraceEndsAt = at; at <= now {
		*k = k.Revoked(now) // holds also at a gateway whose clock is behind
	}
}

// ShortenGrace lets the grace period of a rotated key end earlier, at graceEndsAt. If that is not
// in the future, the key is revoked. A grace period never gets longer: if it ends before
// graceEndsAt, nothing changes. A key that was not rotated: ErrConflict.
func (s *Store) ShortenGrace(ctx context.Context, key id.Key, graceEndsAt instant.Millis) (Key, Change, error) {
	return s.changeKey(ctx, "shorten grace period", key, func(k *Key, t *Tx) error {
		if k.ReplacedBy.IsZero() {
			return Conflict("%s was not rotated", k.ID)
		}
		if k.IsEnabled() && k.GraceEndsAt > t.At && k.GraceEndsAt > graceEndsAt {
			k.endGrace(graceEndsAt, t.At)
		}
		return nil
	})
}

// rotatable returns an error for a key that is no longer valid. Bans and the tenant do not matter
// here.
func rotatable(k Key, now, graceEndsAt instant.Millis) error {
	cure := "create another key"
	if !k.ReplacedBy.IsZero() {
		cure = fmt.Sprintf("%s replaced it: rotate that one", k.ReplacedBy)
	}
	call := access.Call{Environment: k.Environment, Now: now}
	switch access.Decide(k.Access(0), access.Tenant{}, call) {
	case access.Revoked:
		return Conflict("%s was revoked at %s; %s", k.ID, k.RevokedAt.String(), cure)
	case access.Disabled:
		return Conflict("%s is disabled; enable it first, or create another key", k.ID)
	case access.Expired:
		return Conflict("%s expired at %s; %s", k.ID, k.ExpiresAt.String(), cure)
	case access.Replaced:
		return Conflict("%s ended at %s; %s", k.ID, k.GraceEndsAt.String(), cure)
	}
	if graceEndsAt <= 0 {
		return Invalid("a grace period needs an end")
	}
	return nil
}
