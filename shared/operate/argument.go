package operate

import (
	"fmt"
	"net/netip"
	"time"

	"petgate/shared/core/apikey"
	"petgate/shared/core/plan"
	"petgate/shared/keystore"
)

// The types of what people and programs write. Each reads itself from text, and its error names the value and the cure.

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
	*m, err = ParseMoment(string(text))
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
