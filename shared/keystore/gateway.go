package keystore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"
)

// liveMillis is the age of its last heartbeat up to which a gateway counts as live.
const liveMillis = 3000

// Gateways lists all registered gateways by ID.
func (s *Store) Gateways(ctx context.Context) ([]Gateway, error) {
	gateways := []Gateway{}
	err := s.db.SelectContext(ctx, &gateways, s.expand.Replace(gatewaysByID))
	return gateways, fail("list gateways", err)
}

// ForgetGateway takes a gateway that will never come back off the list of those whose confirmation counts. One that runs
// registers again with its next heartbeat.
func (s *Store) ForgetGateway(ctx context.Context, gateway string) (Change, error) {
	return s.write(ctx, "forget gateway", func(t *tx) error {
		var was Gateway
		absent := fmt.Sprintf("no gateway %q is registered", gateway)
		if err := get(t.ctx, t, &was, absent, s.expand.Replace(gatewayByID), gateway); err != nil {
			return err
		}
		if err := t.exec(forgetGateway, gateway); err != nil {
			return err
		}
		return t.record(GatewayForgot, subject{}, was, nil)
	})
}

// Registration is one gateway process. Its ID outlives the process, its incarnation does not.
type Registration struct {
	ID           string
	Incarnation  string // random
	AdminAddress string
	MaxAge       time.Duration
}

// ErrDisplaced says that another process has registered under the same gateway ID.
var ErrDisplaced = errors.New("another process has registered under this gateway ID; give each its own GATEWAY_ID")

// ErrRewound says that the last event a gateway applied is gone: the database is an older copy.
var ErrRewound = errors.New("the last event is gone: the database is an older copy of itself")

// Register makes a gateway count, with nothing applied, in the place of an earlier process of its ID. It returns the number
// of the last batch of usage that was added for it.
func (s *Store) Register(ctx context.Context, r Registration) (batch int64, err error) {
	query := s.expand.Replace(register)
	err = s.db.QueryRowContext(ctx, query, r.ID, r.Incarnation, r.AdminAddress, r.MaxAge.Milliseconds()).Scan(&batch)
	return batch, fail("register gateway", err)
}

// Heartbeat says that the gateway lives and has applied all events up to c, whose UUID it names. It returns the number of live
// gateways, this one among them. ErrNotFound: it was forgotten; ErrDisplaced; ErrRewound.
func (s *Store) Heartbeat(ctx context.Context, r Registration, c Change, uuid string) (live int, err error) {
	const op = "heartbeat"
	err = s.db.QueryRowContext(ctx, s.expand.Replace(heartbeat), r.ID, r.Incarnation, int64(c), liveMillis, uuid).Scan(&live)
	if !errors.Is(err, sql.ErrNoRows) {
		return live, fail(op, err)
	}
	if err := s.checkIncarnation(ctx, s.db, r); err != nil {
		return 0, fail(op, err)
	}
	return 0, fail(op, ErrRewound)
}

func (s *Store) checkIncarnation(ctx context.Context, q sqlx.QueryerContext, r Registration) error {
	var incarnation string
	err := q.QueryRowxContext(ctx, incarnationOf, r.ID).Scan(&incarnation)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("%w: this gateway is not registered", ErrNotFound)
	case err == nil && incarnation != r.Incarnation:
		return ErrDisplaced
	}
	return err
}

// SignOff ends the registration: the gateway accepts no key any more.
func (s *Store) SignOff(ctx context.Context, r Registration) error {
	_, err := s.db.ExecContext(ctx, signOff, r.ID, r.Incarnation)
	return fail("sign off", err)
}
