package keystore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"petgate/shared/core/apikey"
	"petgate/shared/core/instant"
	"petgate/shared/database"
)

// Role says what an operator's token may do.
type Role string

// The roles. Each may do what the ones before it may.
const (
	RoleRead  Role = "read"  // read everything
	RoleKeys  Role = "keys"  // create and change keys and bans
	RoleAdmin Role = "admin" // change everything
)

// Roles lists the roles.
var Roles = []Role{RoleRead, RoleKeys, RoleAdmin}

// UnmarshalText reads the name of a role.
func (r *Role) UnmarshalText(text []byte) error {
	if *r = Role(text); !slices.Contains(Roles, *r) {
		return fmt.Errorf("%q is not a role: use read, keys or admin", text)
	}
	return nil
}

// Allows reports whether the role may do what another role may.
func (r Role) Allows(needed Role) bool { return slices.Index(Roles, r) >= slices.Index(Roles, needed) }

// OperatorToken is a token of the operators' API. Its events have the actor operator:NAME.
type OperatorToken struct {
	Name      string         `db:"name" json:"name"`
	Role      Role           `db:"role" json:"role"`
	CreatedAt instant.Millis `db:"created_at" json:"createdAt"`
	ExpiresAt instant.Millis `db:"expires_at" json:"expiresAt,omitempty"` // 0: never
}

// operatorPrefix begins every token of the operators' API.
const operatorPrefix = "pto_"

// CreateOperator creates a token of the operators' API. The token is not stored, only its SHA-256.
// Errors: ErrExists if the name has a token, also one that has expired.
func (s *Store) CreateOperator(ctx context.Context, o OperatorToken) (token string, _ OperatorToken, err error) {
	const op = "create operator"
	if err := CheckText(o.Name, NameRunesMax); err != nil {
		return "", o, fail(op, invalid("the name of the operator: %s", err))
	}
	if token, err = apikey.Draw(operatorPrefix, s.random); err != nil {
		return "", o, fail(op, err)
	}
	_, err = s.write(ctx, op, func(t *tx) error {
		o.CreatedAt = t.at
		if o.ExpiresAt != 0 && o.ExpiresAt <= t.at {
			return invalid("a token cannot expire in the past, at %s", o.ExpiresAt)
		}
		err := t.exec(insertOperator, o.Name, o.Role, secretSum(token), o.CreatedAt, o.ExpiresAt)
		if database.IsUnique(err) {
			return fmt.Errorf("%w: a token of operator %q; revoke it first, or choose another name", ErrExists, o.Name)
		}
		t.event(OperatorCreated, subject{}, nil, o)
		return err
	})
	if err != nil {
		return "", o, err
	}
	return token, o, nil
}

// Operators lists the tokens of the operators' API by their names, also those that have expired.
func (s *Store) Operators(ctx context.Context) ([]OperatorToken, error) {
	return list[OperatorToken](ctx, s, "list operators", operatorsByName)
}

// OperatorByToken returns what a token may do. Errors: ErrNotFound if there is no such token, or if
// it has expired.
func (s *Store) OperatorByToken(ctx context.Context, token string) (o OperatorToken, err error) {
	err = get(ctx, s.db, &o, "there is no such token of an operator", operatorBySecret, secretSum(token), s.now())
	return o, fail("find operator", err)
}

// RevokeOperator ends the token of an operator at once. Errors: ErrNotFound if there is none.
func (s *Store) RevokeOperator(ctx context.Context, name string) (o OperatorToken, err error) {
	_, err = s.write(ctx, "revoke operator", func(t *tx) error {
		if err := get(ctx, t, &o, fmt.Sprintf("there is no operator %q", name), operatorByName, name); err != nil {
			return err
		}
		t.event(OperatorRevoked, subject{}, o, nil)
		return t.exec(deleteOperator, name)
	})
	return o, err
}

// Request is a request that is carried out once, however often it is sent.
type Request struct {
	ID    string `db:"id"`    // a hash of what names the request: it tells nothing about that
	Body  string `db:"body"`  // a hash of what is asked for
	Salt  string `db:"salt"`  // drawn for the first attempt
	Event Change `db:"event"` // of the change; 0: it was not made

	// Random and Prefix make the token of a new key. A repeated request makes the same token from
	// them, unless the Prefix has changed: then it makes another one, with another hint.
	// Store.Request sets Prefix.
	Random []byte `db:"-"`
	Prefix string `db:"-"`
}

// requestsKept is how long a request can be repeated.
const requestsKept = 24 * time.Hour

// ErrRepeated means that a request was carried out before.
var ErrRepeated = errors.New("this request was carried out before")

// Once returns a store whose next change is that of a request. If the request was carried out
// before, nothing is changed: ErrRepeated.
func (s *Store) Once(r Request) *Store {
	once := s.As(s.actor)
	once.request = &r
	return once
}

// Request returns a request that was carried out within the last day, with its event, which is zero
// if a restore has removed it. Errors: ErrNotFound.
func (s *Store) Request(ctx context.Context, id string) (r Request, e Event, err error) {
	if err = get(ctx, s.db, &r, "there was no such request", requestByID, id); err == nil {
		if r.Prefix, err = s.prefix(ctx); err != nil {
			return r, e, err
		}
		var page []Event
		page, err = s.FindEvents(ctx, EventFilter{}, r.Event+1, 1)
		if err == nil && len(page) == 1 && page[0].ID == r.Event {
			e = page[0]
		}
	}
	return r, e, fail("find request", err)
}

// checkRequest returns ErrRepeated if the request was carried out before.
func (t *tx) checkRequest() error {
	if t.store.request == nil {
		return nil
	}
	isMade := false
	err := t.GetContext(t.ctx, &isMade, hasRequest, t.store.request.ID, t.at.Add(-requestsKept))
	if isMade {
		err = ErrRepeated
	}
	return err
}

// Token makes the token of the key that the request has created.
func (r Request) Token(environment apikey.Environment) (string, error) {
	return apikey.Draw(apikey.Beginning(cmp.Or(r.Prefix, apikey.DefaultPrefix), environment), bytes.NewReader(r.Random))
}

// newToken draws a token, or makes that of the request.
func (s *Store) newToken(of KeySpec) (string, error) {
	if s.request != nil {
		r := *s.request
		r.Prefix = of.Prefix
		return r.Token(of.Environment)
	}
	return apikey.Draw(apikey.Beginning(of.Prefix, of.Environment), s.random)
}
