package keystore

import (
	"errors"
	"fmt"

	"petgate/shared/core/id"
	"petgate/shared/database"
)

// Every error that a caller can handle wraps one of these.
var (
	ErrNotFound    = errors.New("not found")
	ErrExists      = errors.New("already exists")
	ErrConflict    = errors.New("conflict")
	ErrInvalid     = errors.New("invalid")
	ErrUnavailable = errors.New("database unavailable")
	ErrSchema      = errors.New("wrong schema")
	ErrOutdated    = fmt.Errorf("%w: out of date", ErrSchema)           // a migration is needed
	ErrForeign     = fmt.Errorf("%w: another application's", ErrSchema) // DATABASE_URL is probably wrong
)

// UnknownError means that a change may have been made: the connection broke at its commit, and
// since then the database could not be asked. The rest describes the change's event.
type UnknownError struct {
	Kind   string
	Tenant id.Tenant
	Key    id.Key
	err    error
}

func (e *UnknownError) Error() string { return e.err.Error() }
func (e *UnknownError) Unwrap() error { return e.err }

// IsUnknown reports whether err is or wraps an *UnknownError.
func IsUnknown(err error) bool {
	var unknown *UnknownError
	return errors.As(err, &unknown)
}

// Fail names the operation that failed. It hides the driver's errors: callers see ErrUnavailable
// with the driver's text.
func Fail(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case database.IsUnavailable(err), database.IsReadOnly(err):
		return &unavailableError{
			fmt.Sprintf("%s: %v: %v", op, ErrUnavailable, database.Explain(err)), database.Cure(err),
		}
	}
	return fmt.Errorf("%s: %w", op, database.Explain(err))
}

// unavailableError is ErrUnavailable with its cure, which service.ProblemOf looks for.
type unavailableError struct{ text, cure string }

func (e *unavailableError) Error() string { return e.text }
func (e *unavailableError) Unwrap() error { return ErrUnavailable }
func (e *unavailableError) Cure() string  { return e.cure }

// Failed is Fail for a function that returns in several places: defer Failed("add usage", &err).
func Failed(op string, err *error) { *err = Fail(op, *err) }

// Invalid returns an error that wraps ErrInvalid.
func Invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// asInvalid says that what is wrong with a value makes the call invalid.
func asInvalid(err error) error {
	if err == nil {
		return nil
	}
	return Invalid("%s", err)
}

// Conflict returns an error that wraps ErrConflict.
func Conflict(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrConflict, fmt.Sprintf(format, args...))
}
