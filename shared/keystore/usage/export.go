package usage

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"io"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
)

// Seal says which hours are sealed. The usage of a sealed hour does not change: what is added
// later is a correction.
type Seal struct {
	Installation string         `db:"installation"` // random: names this database to receivers of usage
	Number       int64          `db:"seal"`         // corrections with a smaller number no longer change
	Through      instant.Millis `db:"through"`      // the hours before are sealed
}

// SealUsage seals every hour that is closed: all registered gateways have stored their usage of it.
// If no gateway is registered, every hour that has ended is closed. A seal is never taken back.
func (s Store) SealUsage(ctx context.Context) (seal Seal, err error) {
	var name [5]byte
	if _, err := io.ReadFull(s.Random(), name[:]); err != nil {
		return seal, keystore.Fail("seal usage", err)
	}
	err = s.Transact(ctx, "seal usage", func(t *keystore.Tx) error {
		if err := t.LockUsage(); err != nil {
			return err
		}
		var stored instant.Millis
		if err := t.GetContext(ctx, &stored, s.SQL(storedThrough)); err != nil {
			return err
		}
		return t.GetContext(ctx, &seal, sealHours, hex.EncodeToString(name[:]), stored.Truncate(time.Hour))
	})
	return seal, err
}

// Sealed is a tenant's usage of one operation in one sealed hour, of all its live keys.
type Sealed struct {
	Hour      instant.Millis `db:"hour"`
	Tenant    id.Tenant      `db:"tenant_id"`
	Operation string         `db:"operation"`

	// 0: this was stored when the hour was sealed. Otherwise it was added later, and this is the
	// number of the latest seal at that time.
	Correction int64 `db:"correction"`

	Requests int64 `db:"requests"`
	Charged  int64 `db:"charged"`
	Units    int64 `db:"units"` // that the charged requests cost
}

// NextUsageHour returns the first hour that has usage and is not before from; 0: there is none.
func (s Store) NextUsageHour(ctx context.Context, from instant.Millis) (hour instant.Millis, err error) {
	err = s.DB().GetContext(ctx, &hour, nextUsageHour, from)
	return hour, keystore.Fail("find usage", err)
}

// UsageOfHour lists what a sealed hour had when it was sealed, at most n rows: by tenant and
// operation, after a given operation of a tenant, or after all operations of that tenant if it is
// nil.
func (s Store) UsageOfHour(
	ctx context.Context, hour instant.Millis, after id.Tenant, operation *string, n int,
) ([]Sealed, error) {
	return keystore.List[Sealed](ctx, s.Store, "read usage", usageOfHour, hour, after, operation, n)
}

// Corrections lists at most n corrections of hours from since on and before until: what was added
// to sealed hours, such as usage of gateways that came back after they were given up. They are
// ordered by number, hour, tenant and operation, come after the given one, and have numbers smaller
// than before. Sealed{Correction: k} comes before all corrections with the number k.
func (s Store) Corrections(
	ctx context.Context, after Sealed, before int64, since, until instant.Millis, n int,
) ([]Sealed, error) {
	return keystore.List[Sealed](ctx, s.Store, "read corrections", correctionsOf,
		after.Correction, after.Hour, after.Tenant, after.Operation, before, since, until, n)
}

// Cursor says which usage a receiver has got.
type Cursor struct {
	Destination string         `db:"destination"`
	Since       instant.Millis `db:"since"`     // the first hour that it gets
	Hour        instant.Millis `db:"hour"`      // it has got the hours before…
	Tenant      id.Tenant      `db:"tenant_id"` // …and of this hour the tenants up to this one
	Seal        int64          `db:"seal"`      // and the corrections before this number
}

// Cursor returns the cursor of a receiver. known is false for a new one.
func (s Store) Cursor(ctx context.Context, destination string) (c Cursor, known bool, err error) {
	err = s.DB().GetContext(ctx, &c, cursorOf, destination)
	if errors.Is(err, sql.ErrNoRows) {
		return Cursor{Destination: destination}, false, nil
	}
	return c, err == nil, keystore.Fail("read the receiver's cursor", err)
}

// AddCursor adds a new receiver. ErrConflict if there is one with this name.
func (s Store) AddCursor(ctx context.Context, c Cursor) error {
	return s.changeCursor(ctx, insertCursor, c.Destination, c.Since, c.Hour, c.Tenant, c.Seal, s.Now())
}

// MoveCursor moves a receiver's cursor from was to is. ErrConflict if it is elsewhere.
func (s Store) MoveCursor(ctx context.Context, was, is Cursor) error {
	return s.changeCursor(ctx, moveCursor, was.Destination, was.Hour, was.Tenant, was.Seal,
		is.Since, is.Hour, is.Tenant, is.Seal, s.Now())
}

func (s Store) changeCursor(ctx context.Context, query string, args ...any) error {
	moved, err := keystore.Affected(s.DB().ExecContext(ctx, query, args...))
	if err == nil && !moved {
		err = keystore.Conflict("another process sends usage to the same receiver")
	}
	return keystore.Fail("move the receiver's cursor", err)
}
