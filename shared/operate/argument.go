package operate

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/keystore"
)

// Preparer is the arguments of a change. keyadmin reads them from its command line by kong's tags,
// and the operators' API reads those with a tag json from a path or a body.
type Preparer interface {
	Prepare(ctx context.Context, o Operator) (Operation, error)
}

// Checker are arguments that can contradict each other. Check returns why nothing is worth trying.
type Checker interface{ Check() error }

// Repeatable is for what creates something, for scripts that may run again.
type Repeatable struct {
	IfNotExists bool `help:"If it already exists, change nothing and end with 0."`
}

// The types of what people and programs write. Each reads itself from text, and its error names the
// value and the cure.

// KeyID is the ID of a key.
type KeyID struct{ id.Key }

// UnmarshalText reads an ID.
func (k *KeyID) UnmarshalText(text []byte) (err error) {
	if k.Key, err = id.ParseKey(string(text)); err != nil {
		err = mistaken(err, " (", Command("key list TENANT"), " shows the IDs of a tenant's keys)")
	}
	return err
}

// Block is a CIDR block. A bare address is the block of that address alone.
type Block struct{ netip.Prefix }

// UnmarshalText reads a block.
func (b *Block) UnmarshalText(text []byte) error {
	if string(text) == "any" || string(text) == "*" {
		return mistaken(strconv.Quote(string(text)), " is not a CIDR block: a key that is created without "+
			"", Flag("allow"),
			" may be used from anywhere; ", Command("key update KEY --allow-any"), " removes an allow-list")
	}
	prefix, err := netip.ParsePrefix(string(text))
	if addr, addrErr := netip.ParseAddr(string(text)); addrErr == nil && addr.Zone() == "" {
		prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	switch b.Prefix = prefix; {
	case err != nil:
		return fmt.Errorf("%q is not a CIDR block: write 203.0.113.0/24, 2001:db8::/32 or one address", text)
	case prefix.Masked() != prefix:
		return fmt.Errorf("%s has bits set after its prefix length: did you mean %s?", text, prefix.Masked())
	}
	return nil
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
	n, err := strconv.ParseInt(string(text), 10, 64)
	switch *l = Limit(n); {
	case errors.Is(err, strconv.ErrRange) || err == nil && (n < 1 || n > plan.LimitMax):
		return fmt.Errorf("%s is out of range: use 1 to %d", text, plan.LimitMax)
	case err != nil:
		return fmt.Errorf("%q is not a whole number: use 1 to %d, digits only", text, plan.LimitMax)
	}
	return nil
}

// LimitChange is a limit, or plan.None. Zero is a limit that was not given.
type LimitChange int64

// UnmarshalText reads a limit or none.
func (l *LimitChange) UnmarshalText(text []byte) error {
	if string(text) == "0" || string(text) == "none" {
		*l = plan.None
		return nil
	}
	err := (*Limit)(l).UnmarshalText(text)
	if err != nil {
		err = fmt.Errorf("%w, or none", err)
	}
	return err
}

// limitsOf are arguments for the limits of a plan or of a tenant.
type limitsOf[L Limit | LimitChange] struct {
	Minute L `json:"minute" yaml:"minute,omitempty" title:"Per minute" placeholder:"N" help:"Requests in any 60 seconds."`
	Day    L `json:"day" yaml:"day,omitempty" title:"Per day" placeholder:"N" help:"Requests in a UTC day."`
	Month  L `json:"month" yaml:"month,omitempty" title:"Per month" placeholder:"N" help:"Requests in a month."`
}

// NewLimits and LimitChanges are new limits, and changes of limits: see plan.Limits.Changed.
type (
	NewLimits    = limitsOf[Limit]
	LimitChanges = limitsOf[LimitChange]
)

// Limits returns what is given.
func (l limitsOf[L]) Limits() plan.Limits {
	return plan.Limits{Minute: int64(l.Minute), Day: int64(l.Day), Month: int64(l.Month)}
}

// NewLimitsOf returns limits as arguments.
func NewLimitsOf(l plan.Limits) NewLimits {
	return NewLimits{Limit(l.Minute), Limit(l.Day), Limit(l.Month)}
}

// MonthStarts is the day on which a tenant's month begins. Zero was not given.
type MonthStarts uint8

// UnmarshalText reads a day.
func (m *MonthStarts) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 10, 8)
	if err != nil || n == 0 {
		return fmt.Errorf("%q is not a day on which a month can start: use 1 to %d", text, plan.MonthStartsMax)
	}
	*m = MonthStarts(n)
	return plan.CheckMonthStarts(uint8(n))
}

// Scope is the name of one scope.
type Scope string

// UnmarshalText reads a scope.
func (s *Scope) UnmarshalText(text []byte) error {
	*s = Scope(text)
	return apikey.CheckScope(string(*s))
}

// ScopesOf combines scopes. An empty list is the empty set, which stands for all that the gateways
// report.
func ScopesOf(scopes []Scope) (apikey.Scopes, error) {
	return apikey.ParseScopes(ViewsOf(scopes, func(s Scope) string { return string(s) }))
}

// durationMax keeps instants that are computed from a duration within the range of time.Time.
const durationMax = 36500 * day

var days = regexp.MustCompile(`^(?:([0-9]{1,6})w)?(?:([0-9]{1,6})d)?(.*)$`)

var errNotDuration = errors.New("is not a duration: use 1w, 90d, 24h, 30m or 45s")

// parseDuration is time.ParseDuration with weeks and days: 1w, 90d, 1d12h. It may be zero.
func parseDuration(text string) (time.Duration, error) {
	if strings.HasPrefix(text, "-") {
		return 0, fmt.Errorf("%q is negative: use 0 to 36500d", text)
	}
	match := days.FindStringSubmatch(text)
	weeks, _ := strconv.Atoi(match[1]) // at most six digits, so they cannot fail
	n, _ := strconv.Atoi(match[2])
	whole, rest := time.Duration(min(7*weeks+n, 100_000))*day, match[3]
	if rest == "" && match[1]+match[2] != "" {
		rest = "0"
	}
	part, err := time.ParseDuration(rest)
	if err != nil {
		return 0, fmt.Errorf("%q %w", text, errNotDuration)
	}
	if part < 0 || part > durationMax || whole+part > durationMax {
		return 0, fmt.Errorf("%q is out of range: use 0 to 36500d", text)
	}
	return whole + part, nil
}

// Period is a time of at least a second.
type Period time.Duration

// UnmarshalText reads a period.
func (p *Period) UnmarshalText(text []byte) error {
	parsed, err := parseDuration(string(text))
	*p = Period(parsed)
	if err == nil && parsed < time.Second {
		err = fmt.Errorf("%q is too short: use 1s or more", text)
	}
	return err
}

// Delay is a time that may be 0. The zero value was not given.
type Delay struct {
	Given  bool
	Length time.Duration
}

// UnmarshalText reads a delay.
func (d *Delay) UnmarshalText(text []byte) (err error) {
	d.Given = true
	d.Length, err = parseDuration(string(text))
	return err
}

// Or returns the delay, or the usual one if none was given.
func (d Delay) Or(usual time.Duration) time.Duration { return Either(d.Given, d.Length, usual) }

// Moment is a UTC date or an instant, or a period before or after now. The zero value is none.
type Moment struct {
	At     instant.Millis // of a date: its beginning
	Period Period         // if At is 0
}

// UnmarshalText reads a moment.
func (m *Moment) UnmarshalText(text []byte) error {
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if at, err := time.Parse(layout, string(text)); err == nil {
			*m = Moment{At: instant.Of(at)}
			return nil
		}
	}
	err := m.Period.UnmarshalText(text)
	switch {
	case string(text) == "never":
		err = mistaken("a key that is created without ", Flag("expires"), " never expires; ",
			Command("key update KEY --no-expires"), " removes an expiry")
	case errors.Is(err, errNotDuration):
		err = fmt.Errorf(
			"%q is neither a duration nor a date: use 1w, 90d, 24h, 30m, 2026-12-31 or 2026-12-31T18:00:00Z", text)
	}
	return err
}

// Before returns the given instant, or the one that lies the given period before now.
func (m Moment) Before(now instant.Millis) instant.Millis {
	if m.At != 0 {
		return m.At
	}
	return now.Add(-time.Duration(m.Period))
}

// After returns the given instant, or the one that lies the given period after now; 0 if neither
// was given. It must not be in the past.
func (m Moment) After(now instant.Millis) (instant.Millis, error) {
	switch {
	case m.At != 0 && m.At <= now:
		return 0, fmt.Errorf("%s is in the past: it is %s now", m.At, now)
	case m.At != 0:
		return m.At, nil
	case m.Period != 0:
		// Whole seconds, as all texts of an expiry have.
		return now.Add(time.Duration(m.Period) + time.Second - time.Millisecond).Truncate(time.Second), nil
	}
	return 0, nil
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
