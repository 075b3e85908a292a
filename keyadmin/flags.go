package main

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
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

// keyArgument is the ID of a key.
type keyArgument struct{ id.Key }

func (k *keyArgument) UnmarshalText(text []byte) (err error) {
	if k.Key, err = id.ParseKey(string(text)); err != nil {
		err = fmt.Errorf("%w (`keyadmin key list TENANT` shows the IDs of a tenant's keys)", err)
	}
	return err
}

// Those that are the same wherever they are written.
type (
	name       = operate.Name
	notice     = operate.Notice
	tenantName = operate.TenantName
	planName   = operate.PlanName
	limit      = operate.Limit
	scope      = operate.Scope
	period     = operate.Period
	grace      = operate.Grace
	patience   = operate.Patience
	address    = operate.Address
)

// limitFlags are the limits of a new plan.
type limitFlags struct {
	Minute limit `placeholder:"N" help:"Requests in any 60 seconds."`
	Day    limit `placeholder:"N" help:"Requests in a UTC day."`
	Month  limit `placeholder:"N" help:"Requests in a month, which begins on the first, UTC, or when tenant set-quota says."`
}

func (f limitFlags) limits() plan.Limits {
	return plan.Limits{Minute: int64(f.Minute), Day: int64(f.Day), Month: int64(f.Month)}
}

// limitChangeFlags change the limits of a plan or of a tenant.
type limitChangeFlags struct {
	Minute operate.LimitChange `placeholder:"N" help:"Requests in any 60 seconds; none removes the limit."`
	Day    operate.LimitChange `placeholder:"N" help:"Requests in a UTC day; none removes the limit."`
	Month  operate.LimitChange `placeholder:"N" help:"Requests in a month; none removes the limit."`
}

func (f limitChangeFlags) limits() plan.Limits {
	return plan.Limits{Minute: int64(f.Minute), Day: int64(f.Day), Month: int64(f.Month)}
}

// block is a CIDR block. A bare address is the block of that address alone.
type block struct{ netip.Prefix }

func (b *block) UnmarshalText(text []byte) (err error) {
	if string(text) == "any" || string(text) == "*" {
		return fmt.Errorf("%q is not a CIDR block: a key that is created without --allow may be used from anywhere; `keyadmin key update KEY --allow-any` removes an allow-list", text)
	}
	b.Prefix, err = operate.ParseBlock(string(text))
	return err
}

func prefixes(blocks []block) []netip.Prefix {
	var list []netip.Prefix
	for _, b := range blocks {
		list = append(list, b.Prefix)
	}
	return list
}

const day = 24 * time.Hour

// moment is a UTC date or an instant, or a period before or after now. The zero value is none.
type moment operate.Moment

func (m *moment) UnmarshalText(text []byte) error {
	parsed, err := operate.ParseMoment(string(text))
	if err != nil && string(text) == "never" {
		err = errors.New("a key that is created without --expires never expires; `keyadmin key update KEY --no-expires` removes an expiry")
	}
	*m = moment(parsed)
	return err
}

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
