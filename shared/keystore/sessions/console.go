// Package sessions keeps who may change things over the network: sessions of the operators'
// console, and tokens of the operators' API.
package sessions

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"petgate/shared/core/instant"
	"petgate/shared/keystore"
)

// Store reads and writes sessions and tokens.
type Store struct{ *keystore.Store }

// Of returns the sessions and tokens in a store's database.
func Of(s *keystore.Store) Store { return Store{s} }

// ConsoleInvitation lets one browser open a session of the operators' console.
type ConsoleInvitation struct {
	ReadOnly bool          `json:"readOnly"` // the session may not change anything
	Address  string        `json:"address"`  // of the only admin port that opens the session
	Valid    time.Duration `json:"-"`        // how long the code can be used
	Lasts    time.Duration `json:"-"`        // how long the session lasts once it is opened
}

// ConsoleSession is an open session of the operators' console.
type ConsoleSession struct {
	ID       string         `db:"id" json:"id"`
	Actor    string         `db:"actor" json:"-"`
	ReadOnly bool           `db:"read_only" json:"readOnly"`
	EndsAt   instant.Millis `db:"ends_at" json:"endsAt"` // by the database's clock; 0: an identity proxy decides
	Role     Role           `db:"-" json:"-"`            // what it may do
}

// InviteToConsole returns a code with which one browser can open a session in the name of this
// store's actor. The code is not stored, only its SHA-256. Invitations and sessions that have ended
// are removed.
func (s Store) InviteToConsole(ctx context.Context, i ConsoleInvitation) (code string, c keystore.Change, err error) {
	const op = "invite to the console"
	if i.Valid < time.Millisecond || i.Lasts < time.Millisecond {
		return "", 0, keystore.Fail(op, keystore.Invalid("an invitation and a session last at least 1 ms"))
	}
	code = rand.Text()
	c, err = s.Write(ctx, op, func(t *keystore.Tx) error {
		if err := t.Exec(deleteEndedSessions); err != nil {
			return err
		}
		t.Event(keystore.ConsoleInvited, keystore.Subject{}, nil, i)
		return t.Exec(insertInvitation, rand.Text(), secretSum(code), s.Actor(), i.ReadOnly, i.Address,
			i.Lasts.Milliseconds(), i.Valid.Milliseconds())
	})
	return code, c, err
}

// OpenConsole opens the session of an invitation at the admin port with an address, and returns the
// token of the session. A code works once, and only at the address that its link leads to. Gateways
// write their addresses themselves: a false gateway that gets the code of a link to it cannot use
// it elsewhere. The event has the actor of the invitation. Errors: ErrNotFound if there is no such
// invitation for this address, if it has been used, or if it has ended.
func (s Store) OpenConsole(
	ctx context.Context, code, address string,
) (token string, session ConsoleSession, err error) {
	const op = "open a session of the console"
	const absent = "this code was used before, has expired, is for another gateway, or is wrong"
	old := secretSum(strings.TrimSpace(code))
	if err := keystore.Get(ctx, s.DB(), &session, absent, s.SQL(invitationBySecret), old, address); err != nil {
		return "", ConsoleSession{}, keystore.Fail(op, err)
	}
	token = rand.Text()
	_, err = s.As(session.Actor).Write(ctx, op, func(t *keystore.Tx) error {
		opened, err := t.Affects(openInvitation, old, secretSum(token))
		if err == nil && !opened {
			err = fmt.Errorf("%w: %s", keystore.ErrNotFound, absent)
		}
		t.Event(keystore.ConsoleOpened, keystore.Subject{}, nil, session)
		return err
	})
	if err != nil {
		return "", ConsoleSession{}, err
	}
	return token, session, nil
}

// ConsoleSession returns the open session of a token. Errors: ErrNotFound if there is none, or if
// it has ended.
func (s Store) ConsoleSession(ctx context.Context, token string) (session ConsoleSession, err error) {
	err = keystore.Get(ctx, s.DB(), &session, "this session has ended", s.SQL(sessionBySecret), secretSum(token))
	session.Role = RoleAdmin
	if session.ReadOnly {
		session.Role = RoleRead
	}
	return session, keystore.Fail("find a session of the console", err)
}

// EndConsole ends an open session. If it has ended, it does nothing.
func (s Store) EndConsole(ctx context.Context, session ConsoleSession) error {
	_, err := s.Write(ctx, "end a session of the console", func(t *keystore.Tx) error {
		ended, err := t.Affects(deleteSession, session.ID)
		if ended {
			t.Event(keystore.ConsoleEnded, keystore.Subject{}, session, nil)
		}
		return err
	})
	return err
}

// EndConsoles ends all sessions and invitations, with one event. It returns how many have ended.
func (s Store) EndConsoles(ctx context.Context) (ended int64, err error) {
	_, err = s.Write(ctx, "end sessions of the console", func(t *keystore.Tx) error {
		if err := t.Exec(deleteEndedSessions); err != nil {
			return err
		}
		result, err := t.ExecContext(ctx, DeleteAll)
		if err != nil {
			return err
		}
		ended, err = result.RowsAffected()
		if err != nil || ended == 0 {
			return err
		}
		sessionsAndInvitations := map[string]int64{"ended": ended}
		t.Event(keystore.ConsoleEnded, keystore.Subject{}, nil, sessionsAndInvitations)
		return nil
	})
	return ended, err
}

func secretSum(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}
