// Package metering exports what tenants have used, for billing: an event for each tenant, operation and hour (UTC).
//
// Only sealed hours are exported. What is stored of a sealed hour later is a correction, an event of its own. So the export of an hour is
// the same whenever it is made, byte by byte, and every event has an ID of its own. Corrections always come after the hours that they
// correct.
package metering

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
)

// Export is the usage of a span of time.
type Export struct {
	Store  *keystore.Store
	Format Format
	Seal   keystore.UsageSeal
	Since  instant.Millis        // the first hour
	Until  instant.Millis        // the hours before
	Show   func(progress string) // may be nil

	Sums // of what was exported
}

// Sums add up events.
type Sums struct{ Events, Requests, Charged int64 }

// Add adds an event.
func (s *Sums) Add(r keystore.SealedUsage) {
	s.Events++
	s.Requests += r.Requests
	s.Charged += r.Charged
}

// pageRows is how many rows of usage are in memory at a time.
const pageRows = 1000

// New seals all hours that are closed and returns an export of them, from an instant on and until another; 0: until the last hour.
func New(ctx context.Context, store *keystore.Store, format Format, since, until instant.Millis) (*Export, error) {
	seal, err := store.SealUsage(ctx)
	if until == 0 || until > seal.Through {
		until = seal.Through
	}
	return &Export{Store: store, Format: format, Seal: seal, Since: since.Truncate(time.Hour), Until: until.Truncate(time.Hour)}, err
}

// Write writes the export and calls seen, which may be nil, with each of its events.
func (e *Export) Write(ctx context.Context, w io.Writer, seen func(keystore.SealedUsage)) error {
	out := bytes.NewBufferString(e.Format.head())
	page := func(rows []keystore.SealedUsage) error {
		for _, r := range rows {
			e.Format.write(out, e.event(r))
			e.Add(r)
			if seen != nil {
				seen(r)
			}
		}
		return written(out.WriteTo(w))
	}
	if err := e.hours(ctx, id.Tenant{}, pageRows, page); err != nil {
		return err
	}
	err := e.corrections(ctx, 1, pageRows, func(rows []keystore.SealedUsage) error {
		return page(slices.DeleteFunc(rows, func(r keystore.SealedUsage) bool { return r.Hour >= e.Until }))
	})
	if err != nil {
		return err
	}
	return written(out.WriteTo(w)) // the head, if there is no event
}

func written(_ int64, err error) error {
	if err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

func (e *Export) event(r keystore.SealedUsage) event { return event{r, e.Seal.Installation} }

func (e *Export) show(format string, args ...any) {
	if e.Show != nil {
		e.Show(fmt.Sprintf(format, args...))
	}
}

// hours calls f with what each hour had when it was sealed, in pages of whole tenants with about n rows. In the first hour, it begins with
// the tenant that follows after.
func (e *Export) hours(ctx context.Context, after id.Tenant, n int, f func([]keystore.SealedUsage) error) error {
	for from := e.Since; from < e.Until; {
		hour, err := e.Store.NextUsageHour(ctx, from)
		if err != nil || hour == 0 || hour >= e.Until {
			return err
		}
		if hour != from {
			after = id.Tenant{}
		}
		for {
			rows, err := e.Store.UsageOfHour(ctx, hour, after, n)
			if err != nil {
				return err
			}
			if len(rows) == 0 {
				break
			}
			if err := f(rows); err != nil {
				return err
			}
			after = rows[len(rows)-1].Tenant
			e.show("%s: %d events", hour, e.Events)
		}
		from, after = hour.Add(time.Hour), id.Tenant{}
	}
	return nil
}

// corrections calls f with the corrections of the hours from Since on, in pages of n rows: those with the numbers from from on.
func (e *Export) corrections(ctx context.Context, from int64, n int, f func([]keystore.SealedUsage) error) error {
	after := keystore.SealedUsage{Correction: from}
	for {
		rows, err := e.Store.Corrections(ctx, after, e.Seal.Number, e.Since, n)
		if err != nil || len(rows) == 0 {
			return err
		}
		after = rows[len(rows)-1]
		if err := f(rows); err != nil {
			return err
		}
		e.show("corrections: %d events", e.Events)
	}
}
