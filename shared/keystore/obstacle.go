package keystore

import (
	"context"
	"fmt"
	"time"

	"petgate/shared/database"
)

// LockHolder is a session that holds the writers' lock.
type LockHolder struct {
	PID         int    `db:"pid"`
	Role        string `db:"role"`
	Application string `db:"application"`
	Address     string `db:"address"` // empty: a Unix socket, or it may not be seen
	Age         int64  `db:"age"`     // of its transaction in ms; -1: it may not be seen
}

func (h LockHolder) String() string {
	text := fmt.Sprintf("the role %s holds the lock that every change needs (process %d", h.Role, h.PID)
	if h.Application != "" {
		text += ", application " + h.Application
	}
	if h.Address != "" {
		text += ", from " + h.Address
	}
	if h.Age >= 0 {
		text += fmt.Sprintf(", for %s", (time.Duration(h.Age) * time.Millisecond).Truncate(time.Second))
	}
	return text + ")"
}

// Cure says how to get the lock.
func (h LockHolder) Cure() string {
	return fmt.Sprintf("wait until it has ended, or end it as a superuser: SELECT pg_terminate_backend(%d)", h.PID)
}

// LockHolders lists the sessions that hold the writers' lock. SQLite does not know them.
func (s *Store) LockHolders(ctx context.Context) ([]LockHolder, error) {
	if s.db.Dialect() == database.SQLite {
		return nil, nil
	}
	return List[LockHolder](ctx, s, "find who holds the writers' lock", lockHoldersPostgres)
}

// explain says who is in the way of every change. PostgreSQL calls the end of ctx a timeout too.
func (s *Store) explain(ctx context.Context, err error) error {
	if database.IsTimeout(err) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if holders, lookErr := s.LockHolders(ctx); lookErr == nil && len(holders) > 0 {
			return fmt.Errorf("%w: %s: %s", ErrUnavailable, holders[0], holders[0].Cure())
		}
	}
	return err
}
