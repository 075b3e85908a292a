package keystore

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"time"

	"petgate/shared/core/apikey"
)

// Request is a request that is carried out once, however often it is sent.
type Request struct {
	ID    string `db:"id"`    // a hash of the request's name, so that the name cannot be read from it
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
	const op = "find request"
	if err := Get(ctx, s.db, &r, "there was no such request", requestByID, id); err != nil {
		return r, e, Fail(op, err)
	}
	r.Prefix, err = s.prefix(ctx)
	if err != nil {
		return r, e, Fail(op, err)
	}
	err = s.db.GetContext(ctx, &e, eventByID, r.Event)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return r, e, Fail(op, err)
}

func isRepeated(err error) bool { return errors.Is(err, ErrRepeated) }

// checkRequest returns ErrRepeated if the request was carried out before.
func (t *Tx) checkRequest() error {
	if t.store.request == nil {
		return nil
	}
	isMade := false
	err := t.GetContext(t.ctx, &isMade, hasRequest, t.store.request.ID, t.At.Add(-requestsKept))
	if isMade {
		err = ErrRepeated
	}
	return err
}

// Token makes the token of the key that the request has created.
func (r Request) Token(environment apikey.Environment) (string, error) {
	prefix := cmp.Or(r.Prefix, apikey.DefaultPrefix)
	return apikey.Draw(apikey.Beginning(prefix, environment), bytes.NewReader(r.Random))
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
