package sessions

import (
	"context"
	"fmt"
	"slices"

	"petgate/shared/core/apikey"
	"petgate/shared/core/instant"
	"petgate/shared/database"
	"petgate/shared/keystore"
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
func (s Store) CreateOperator(ctx context.Context, o OperatorToken) (token string, _ OperatorToken, err error) {
	const op = "create operator"
	if err := keystore.CheckText(o.Name, keystore.NameRunesMax); err != nil {
		return "", o, keystore.Fail(op, keystore.Invalid("the name of the operator: %s", err))
	}
	token, err = apikey.Draw(operatorPrefix, s.Random())
	if err != nil {
		return "", o, keystore.Fail(op, err)
	}
	_, err = s.Write(ctx, op, func(t *keystore.Tx) error {
		o.CreatedAt = t.At
		if o.ExpiresAt != 0 && o.ExpiresAt <= t.At {
			return keystore.Invalid("a token cannot expire in the past, at %s", o.ExpiresAt)
		}
		err := t.Exec(insertOperator, o.Name, o.Role, secretSum(token), o.CreatedAt, o.ExpiresAt)
		if database.IsUnique(err) {
			return fmt.Errorf("%w: a token of operator %q; revoke it first, or choose another name",
				keystore.ErrExists, o.Name)
		}
		t.Event(keystore.OperatorCreated, keystore.Subject{}, nil, o)
		return err
	})
	if err != nil {
		return "", o, err
	}
	return token, o, nil
}

// Operators lists the tokens of the operators' API by their names, also those that have expired.
func (s Store) Operators(ctx context.Context) ([]OperatorToken, error) {
	return keystore.List[OperatorToken](ctx, s.Store, "list operators", operatorsByName)
}

// OperatorByToken returns what a token may do. Errors: ErrNotFound if there is no such token, or if
// it has expired.
func (s Store) OperatorByToken(ctx context.Context, token string) (o OperatorToken, err error) {
	const absent = "there is no such token of an operator"
	err = keystore.Get(ctx, s.DB(), &o, absent, operatorBySecret, secretSum(token), s.Now())
	return o, keystore.Fail("find operator", err)
}

// RevokeOperator ends the token of an operator at once. Errors: ErrNotFound if there is none.
func (s Store) RevokeOperator(ctx context.Context, name string) (o OperatorToken, err error) {
	_, err = s.Write(ctx, "revoke operator", func(t *keystore.Tx) error {
		absent := fmt.Sprintf("there is no operator %q", name)
		if err := keystore.Get(ctx, t, &o, absent, operatorByName, name); err != nil {
			return err
		}
		t.Event(keystore.OperatorRevoked, keystore.Subject{}, o, nil)
		return t.Exec(deleteOperator, name)
	})
	return o, err
}
