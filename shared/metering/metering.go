// Package metering exports what tenants have used with live keys, for billing: an event for each
// tenant, operation and hour (UTC). Test keys are on no bill.
//
// Only sealed hours are exported. What is stored of a sealed hour later is a correction, an event
// of its own. So the export of an hour is the same whenever it is made, byte by byte, and every
// event has an ID of its own. Corrections always come after the hours that they correct.
package metering

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/keystore/usage"
)

// Export is the usage of a span of time.
type Export struct {
	Store  *keystore.Store
	Format Format
	Seal   usage.Seal
	Since  instant.Millis // the first hour
	Until  instant.Millis // the first hour after the span

	Sums // of what was exported
}

// Sums add up events.
type Sums struct{ Events, Requests, Charged, Units int64 }

func (s *Sums) add(r usage.Sealed) {
	s.Events++
	s.Requests += r.Requests
	s.Charged += r.Charged
	s.Units += r.Units
}

// pageRows is how many rows of usage are in memory at a time.
const pageRows = 1000

// New seals all hours that are closed and returns an export of them, from an instant on and until
// another.
func New(ctx context.Context, store *keystore.Store, format Format, since, until instant.Millis) (*Export, error) {
	seal, err := usage.Of(store).SealUsage(ctx)
	until = min(until, seal.Through).Truncate(time.Hour)
	return &Export{Store: store, Format: format, Seal: seal, Since: since.Truncate(time.Hour), Until: until}, err
}

// Write writes the export.
func (e *Export) Write(ctx context.Context, w io.Writer) error {
	out := bytes.NewBufferString(forms[e.Format].head)
	page := func(rows []usage.Sealed) error {
		for _, r := range rows {
			forms[e.Format].write(out, e.event(r))
			e.add(r)
		}
		return written(out.WriteTo(w))
	}
	if err := e.hours(ctx, id.Tenant{}, nil, pageRows, page); err != nil {
		return err
	}
	if err := e.corrections(ctx, usage.Sealed{}, pageRows, page); err != nil {
		return err
	}
	return written(out.WriteTo(w)) // the head, if there is no event
}

// errFull ends the reading of a page.
var errFull = errors.New("the page is full")

// Page returns the first n events after a given one: what the hours had when they were sealed, and
// then their corrections.
func (e *Export) Page(ctx context.Context, after usage.Sealed, n int) (page []usage.Sealed, err error) {
	take := func(rows []usage.Sealed) error {
		page = append(page, rows...)
		if len(page) >= n {
			return errFull
		}
		return nil
	}
	if after.Correction == 0 {
		hours := *e
		hours.Since = max(e.Since, after.Hour)
		if hours.Since != after.Hour {
			after = usage.Sealed{}
		}
		err = hours.hours(ctx, after.Tenant, &after.Operation, n, take)
		after = usage.Sealed{}
	}
	if err == nil {
		err = e.corrections(ctx, after, n, take)
	}
	if errors.Is(err, errFull) {
		err = nil
	}
	return page[:min(n, len(page))], err
}

func written(_ int64, err error) error {
	if err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

func (e *Export) event(r usage.Sealed) event { return event{r, e.Seal.Installation} }

// hours calls f with what each hour had when it was sealed, in pages of at most n rows. A shorter
// page is the last one of its hour. In the first hour, it begins after an operation of a tenant;
// nil: after all of them.
func (e *Export) hours(
	ctx context.Context, after id.Tenant, operation *string, n int, f func([]usage.Sealed) error,
) error {
	for from := e.Since; from < e.Until; {
		hour, err := usage.Of(e.Store).NextUsageHour(ctx, from)
		if err != nil || hour == 0 || hour >= e.Until {
			return err
		}
		if hour != from {
			after, operation = id.Tenant{}, nil
		}
		for isWhole := false; !isWhole; {
			rows, err := usage.Of(e.Store).UsageOfHour(ctx, hour, after, operation, n)
			isWhole = len(rows) < n
			if err == nil && len(rows) > 0 {
				last := rows[len(rows)-1]
				after, operation = last.Tenant, &last.Operation
				err = f(rows)
			}
			if err != nil {
				return err
			}
		}
		from, after, operation = hour.Add(time.Hour), id.Tenant{}, nil
	}
	return nil
}

// corrections calls f with the corrections of the export's hours that come after a given one, in
// pages of n rows.
func (e *Export) corrections(ctx context.Context, after usage.Sealed, n int, f func([]usage.Sealed) error) error {
	for {
		rows, err := usage.Of(e.Store).Corrections(ctx, after, e.Seal.Number, e.Since, e.Until, n)
		if err != nil || len(rows) == 0 {
			return err
		}
		after = rows[len(rows)-1]
		if err := f(rows); err != nil {
			return err
		}
	}
}
