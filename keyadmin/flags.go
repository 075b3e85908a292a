package main

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/keystore"
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

// name is what an operator calls a tenant or a key, and the reason of a ban.
type name string

func (n *name) UnmarshalText(text []byte) error {
	*n = name(text)
	return keystore.CheckText(string(text), keystore.NameRunesMax)
}

// notice is a text for a tenant. Empty: none.
type notice string

func (n *notice) UnmarshalText(text []byte) error {
	*n = notice(text)
	return keystore.CheckText(string(text), keystore.NoticeRunesMax)
}

// tenantName is a new tenant's name. One that looks like an ID would make <tenant> ambiguous.
type tenantName string

func (n *tenantName) UnmarshalText(text []byte) error {
	*n = tenantName(text)
	return keystore.CheckTenantName(string(text))
}

// planName is the name of a plan.
type planName string

func (n *planName) UnmarshalText(text []byte) error {
	*n = planName(text)
	return plan.CheckName(string(text))
}

// limit is a number of requests. Zero is a limit that was not given.
type limit int64

func (l *limit) UnmarshalText(text []byte) error {
	n, err := operate.ParseLimit(string(text))
	*l = limit(n)
	return err
}

// limitFlags are the limits of a plan or of a tenant.
type limitFlags struct {
	Minute limit `placeholder:"N" help:"Requests in any 60 seconds."`
	Day    limit `placeholder:"N" help:"Requests in a UTC day."`
}

func (f limitFlags) limits() plan.Limits {
	return plan.Limits{Minute: int64(f.Minute), Day: int64(f.Day)}
}

// scope is the name of one scope.
type scope string

func (s *scope) UnmarshalText(text []byte) error {
	*s = scope(text)
	return apikey.CheckScope(string(*s))
}

// scopesOf combines scopes. An empty list is the empty set, which stands for all that the gateways report.
func scopesOf(scopes []scope) (apikey.Scopes, error) {
	names := make([]string, len(scopes))
	for i, s := range scopes {
		names[i] = string(s)
	}
	return apikey.ParseScopes(names)
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

// period is a time of at least a second.
type period time.Duration

func (p *period) UnmarshalText(text []byte) error {
	parsed, err := operate.ParsePeriod(string(text))
	*p = period(parsed)
	return err
}

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
