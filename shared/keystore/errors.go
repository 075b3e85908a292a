package keystore

import (
	"errors"
	"fmt"

	"petgate/shared/database"
)

// What can be wrong with a request. Every error of this package that a caller can act on wraps one of these, and its text names
// the problem and the cure.
var (
	ErrNotFound    = errors.New("not found")
	ErrExists      = errors.New("exists already")
	ErrConflict    = errors.New("conflict")
	ErrInvalid     = errors.New("invalid")
	ErrUnavailable = errors.New("database unavailable")
	ErrSchema      = errors.New("schema out of date")
)

// fail names the operation that failed and keeps the driver's errors inside: of those that say "try again later", a caller
// sees ErrUnavailable and their text.
func fail(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case database.IsReadOnly(err):
		return fmt.Errorf("keystore: %s: %w: it takes no writes now; point DATABASE_URL at the primary: %s", op, ErrUnavailable, err)
	case database.IsUnavailable(err):
		return fmt.Errorf("keystore: %s: %w: check that it runs and that DATABASE_URL is right: %s", op, ErrUnavailable, err)
	}
	return fmt.Errorf("keystore: %s: %w", op, err)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

func conflict(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrConflict, fmt.Sprintf(format, args...))
}
