package operate

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/plan"
	"petgate/shared/keystore"
)

// Preparer is the arguments of a change. keyadmin reads them from its command line by kong's tags, and the operators' API reads those with
// a tag json from a path or a body. Their texts name an argument as keyadmin does: --no-expires.
type Preparer interface {
	Prepare(ctx context.Context, o Operator) (Operation, error)
}

// Checker are arguments that can contradict each other. Check returns why nothing is worth trying.
type Checker interface{ Check() error }

// ArgumentError is an argument that is wrong.
type ArgumentError string

func (e ArgumentError) Error() string { return string(e) }

// wrongArgument is an error about one argument, or nil.
func wrongArgument(flag string, err error) error {
	if err == nil {
		return nil
	}
	return ArgumentError(flag + ": " + err.Error())
}

// NotFoundError names what does not exist. It is a keystore.ErrNotFound.
type NotFoundError struct {
	error
	Noun, Name string // tenant, plan, key, gateway or refusal
}

func (e NotFoundError) Unwrap() error { return e.error }

// notFound adds to keystore.ErrNotFound what was looked for.
func notFound(err error, noun, name string) error {
	if errors.Is(err, keystore.ErrNotFound) {
		return NotFoundError{err, noun, name}
	}
	return err
}

// Repeatable is for what creates something, for scripts that may run again.
type Repeatable struct {
	IfNotExists bool `help:"If it already exists, change nothing and end with 0."`
}

// The types of what people and programs write. Each reads itself from text, and its error names the value and the cure.

// KeyID is the ID of a key.
type KeyID struct{ id.Key }

// UnmarshalText reads an ID.
func (k *KeyID) UnmarshalText(text []byte) (err error) {
	if k.Key, err = id.ParseKey(string(text)); err != nil {
		err = fmt.Errorf("%w (`keyadmin key list TENANT` shows the IDs of a tenant's keys)", err)
	}
	return err
}

// Block is a CIDR block. A bare address is the block of that address alone.
type Block struct{ netip.Prefix }

// UnmarshalText reads a block.
func (b *Block) UnmarshalText(text []byte) (err error) {
	if string(text) == "any" || string(text) == "*" {
		return fmt.Errorf("%q is not a CIDR block: a key that is created without --allow may be used from anywhere; `keyadmin key update KEY --allow-any` removes an allow-list", text)
	}
	b.Prefix, err = ParseBlock(string(text))
	return err
}

// Prefixes returns the prefixes of blocks.
func Prefixes(blocks []Block) (list []netip.Prefix) {
	for _, b := range blocks {
		list = append(list, b.Prefix)
	}
	return list
}

// Name is what an operator calls a key, and the reason of a ban.
type Name string

// UnmarshalText reads a name.
func (n *Name) UnmarshalText(text []byte) error {
	*n = Name(text)
	return keystore.CheckText(string(text), keystore.NameRunesMax)
}

// Notice is a text for a tenant. Empty: none.
type Notice string

// UnmarshalText reads a notice.
func (n *Notice) UnmarshalText(text []byte) error {
	*n = Notice(text)
	return keystore.CheckText(string(text), keystore.NoticeRunesMax)
}

// TenantName is a new tenant's name. One that looks like an ID would be ambiguous.
type TenantName string

// UnmarshalText reads a tenant's name.
func (n *TenantName) UnmarshalText(text []byte) error {
	*n = TenantName(text)
	return keystore.CheckTenantName(string(text))
}

// PlanName is the name of a plan.
type PlanName string

// UnmarshalText reads a plan's name.
func (n *PlanName) UnmarshalText(text []byte) error {
	*n = PlanName(text)
	return plan.CheckName(string(text))
}

// Limit is a number of requests. Zero is a limit that was not given.
type Limit int64

// UnmarshalText reads a limit.
func (l *Limit) UnmarshalText(text []byte) error {
	n, err := ParseLimit(string(text))
	*l = Limit(n)
	return err
}

// LimitsOf are limits that were read.
func LimitsOf[L Limit | LimitChange](minute, day, month L) plan.Limits {
	return plan.Limits{Minute: int64(minute), Day: int64(day), Month: int64(month)}
}

// LimitChange is a limit, or plan.None. Zero is a limit that was not given.
type LimitChange int64

// UnmarshalText reads a limit or none.
func (l *LimitChange) UnmarshalText(text []byte) error {
	n, err := ParseLimitChange(string(text))
	*l = LimitChange(n)
	return err
}

// MonthStarts is the day on which a tenant's month begins. Zero was not given.
type MonthStarts uint8

// UnmarshalText reads a day.
func (m *MonthStarts) UnmarshalText(text []byte) error {
	day, err := ParseMonthStarts(string(text))
	*m = MonthStarts(day)
	return err
}

// Scope is the name of one scope.
type Scope string

// UnmarshalText reads a scope.
func (s *Scope) UnmarshalText(text []byte) error {
	*s = Scope(text)
	return apikey.CheckScope(string(*s))
}

// ScopesOf combines scopes. An empty list is the empty set, which stands for all that the gateways report.
func ScopesOf(scopes []Scope) (apikey.Scopes, error) {
	names := make([]string, len(scopes))
	for i, s := range scopes {
		names[i] = string(s)
	}
	return apikey.ParseScopes(names)
}

// Period is a time of at least a second.
type Period time.Duration

// UnmarshalText reads a period.
func (p *Period) UnmarshalText(text []byte) error {
	parsed, err := ParsePeriod(string(text))
	*p = Period(parsed)
	return err
}

// UnmarshalText reads a moment.
func (m *Moment) UnmarshalText(text []byte) (err error) {
	if *m, err = ParseMoment(string(text)); err != nil && string(text) == "never" {
		err = errors.New("a key that is created without --expires never expires; `keyadmin key update KEY --no-expires` removes an expiry")
	}
	return err
}

// UnmarshalText reads the length of a grace period.
func (g *Grace) UnmarshalText(text []byte) error {
	length, err := ParseDuration(string(text))
	*g = Grace{Given: true, Length: length}
	return err
}

// UnmarshalText reads how long to wait.
func (p *Patience) UnmarshalText(text []byte) error {
	max, err := ParseDuration(string(text))
	*p = Patience{Given: true, Max: max}
	return err
}

// Address is a client's address.
type Address struct{ netip.Addr }

// UnmarshalText reads an address.
func (a *Address) UnmarshalText(text []byte) error {
	parsed, err := netip.ParseAddr(string(text))
	if err != nil || parsed.Zone() != "" {
		return fmt.Errorf("%q is not an address: use 203.0.113.5 or 2001:db8::1", text)
	}
	a.Addr = parsed.Unmap()
	return nil
}
