package main

import (
	"fmt"
	"time"

	"petgate/shared/core/instant"
	"petgate/shared/operate"
)

// The types of flags and arguments. Each reads itself; its error names the value and the cure.

// format is how data is printed.
type format string

func (f *format) UnmarshalText(text []byte) error {
	if *f = format(text); *f != "table" && *f != "json" && *f != "csv" {
		return fmt.Errorf("%q is not a format: use table, json or csv", text)
	}
	return nil
}

// Those that are the same wherever they are written.
type (
	name        = operate.Name
	planName    = operate.PlanName
	keyArgument = operate.KeyID
	limit       = operate.Limit
	scope       = operate.Scope
	block       = operate.Block
	period      = operate.Period
	patience    = operate.Patience
)

const day = 24 * time.Hour

// moment is a UTC date or an instant, or a period before or after now. The zero value is none.
type moment operate.Moment

func (m *moment) UnmarshalText(text []byte) error { return (*operate.Moment)(m).UnmarshalText(text) }

// before returns the given instant, or the one before the given period.
func (m moment) before(now instant.Millis) instant.Millis { return operate.Moment(m).Before(now) }

// after returns the given instant, or the one after the given period; 0 if neither was given. An instant in the past is an error.
func (m moment) after(now instant.Millis, flag string) (instant.Millis, error) {
	at, err := operate.Moment(m).After(now)
	if err != nil {
		return 0, usageErrorf("%s: %v", flag, err)
	}
	return at, nil
}
