package main

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"petgate/shared/core/apikey"
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
type keyArgument id.Key

func (k *keyArgument) UnmarshalText(text []byte) error {
	key, err := id.ParseKey(string(text))
	if err != nil {
		return fmt.Errorf("%w (`keyadmin key list TENANT` shows the IDs of a tenant's keys)", err)
	}
	*k = keyArgument(key)
	return nil
}

const nameRunesMax = 100

// name is what an operator calls a tenant or a key, and the reason of a ban.
type name string

func (n *name) UnmarshalText(text []byte) error {
	*n = name(text)
	return checkText(text, nameRunesMax)
}

func checkText(text []byte, runesMax int) error {
	switch {
	case strings.TrimSpace(string(text)) != string(text) || len(text) == 0:
		return fmt.Errorf("%q must not be empty and must not begin or end with a space", text)
	case utf8.RuneCount(text) > runesMax:
		return fmt.Errorf("it has more than %d characters", runesMax)
	case operate.Printable(string(text)) != string(text):
		return fmt.Errorf("%q must not have control characters", text)
	}
	return nil
}

const noticeRunesMax = 300

// notice is a text for a tenant. Empty: none.
type notice string

func (n *notice) UnmarshalText(text []byte) error {
	*n = notice(text)
	return checkText(text, noticeRunesMax)
}

// tenantName is a new tenant's name. One that looks like an ID would make <tenant> ambiguous.
type tenantName string

func (n *tenantName) UnmarshalText(text []byte) error {
	if strings.HasPrefix(string(text), id.TenantPrefix) {
		return fmt.Errorf("%q: a name may not begin with %s, the prefix of IDs", text, id.TenantPrefix)
	}
	return (*name)(n).UnmarshalText(text)
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
	n, err := strconv.ParseInt(string(text), 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) || err == nil && (n < 1 || n > plan.LimitMax):
		return fmt.Errorf("%s is out of range: use 1 to %d", text, plan.LimitMax)
	case err != nil:
		return fmt.Errorf("%q is not a whole number: use 1 to %d, digits only", text, plan.LimitMax)
	}
	*l = limit(n)
	return nil
}

// limitFlags are the limits of a plan or of a tenant.
type limitFlags struct {
	Minute limit `placeholder:"N" help:"Requests in any 60 seconds."`
	Day    limit `placeholder:"N" help:"Requests in a UTC day."`
}

func (f limitFlags) limits() plan.Limits {
	return plan.Limits{Minute: int64(f.Minute), Day: int64(f.Day)}
}

// scope is one scope of a key.
type scope apikey.Scopes

func (s *scope) UnmarshalText(text []byte) error {
	set, err := apikey.ParseScopes([]string{string(text)})
	*s = scope(set)
	return err
}

// scopesOf combines scopes. An empty list means the default scopes.
func scopesOf(scopes []scope) apikey.Scopes {
	if len(scopes) == 0 {
		return apikey.DefaultScopes
	}
	var set apikey.Scopes
	for _, s := range scopes {
		set |= apikey.Scopes(s)
	}
	return set
}

// block is a CIDR block. A bare address is the block of that address alone.
type block netip.Prefix

func (b *block) UnmarshalText(text []byte) error {
	prefix, err := netip.ParsePrefix(string(text))
	if addr, addrErr := netip.ParseAddr(string(text)); addrErr == nil && addr.Zone() == "" {
		prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	switch {
	case string(text) == "any" || string(text) == "*":
		return fmt.Errorf("%q is not a CIDR block: a key that is created without --allow may be used from anywhere; `keyadmin key update KEY --allow-any` removes an allow-list", text)
	case err != nil:
		return fmt.Errorf("%q is not a CIDR block: write 203.0.113.0/24, 2001:db8::/32 or one address", text)
	case prefix.Masked() != prefix:
		return fmt.Errorf("%s has bits set after its prefix length: did you mean %s?", text, prefix.Masked())
	}
	*b = block(prefix)
	return nil
}

func prefixes(blocks []block) []netip.Prefix {
	var list []netip.Prefix
	for _, b := range blocks {
		list = append(list, netip.Prefix(b))
	}
	return list
}

const (
	day = 24 * time.Hour

	// durationMax keeps instants that are computed from a duration within the range of time.Time.
	durationMax = 36500 * day
)

var days = regexp.MustCompile(`^(?:([0-9]{1,6})w)?(?:([0-9]{1,6})d)?(.*)$`)

var errNotDuration = errors.New("is not a duration: use 1w, 90d, 24h, 30m or 45s")

// parseDuration is time.ParseDuration with weeks and days: 1w, 90d, 1d12h.
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

// duration is a time that may be zero.
type duration time.Duration

func (d *duration) UnmarshalText(text []byte) error {
	parsed, err := parseDuration(string(text))
	*d = duration(parsed)
	return err
}

// period is a time of at least a second.
type period time.Duration

func (p *period) UnmarshalText(text []byte) error {
	parsed, err := parseDuration(string(text))
	if err == nil && parsed < time.Second {
		err = fmt.Errorf("%q is too short: use 1s or more", text)
	}
	*p = period(parsed)
	return err
}

// moment is a UTC date or an instant, or a period before or after now. The zero value is none.
type moment struct {
	at     instant.Millis // of a date: its beginning
	period period         // if at is 0
}

func (m *moment) UnmarshalText(text []byte) error {
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if at, err := time.Parse(layout, string(text)); err == nil {
			*m = moment{at: instant.Of(at)}
			return nil
		}
	}
	var p period
	if err := p.UnmarshalText(text); err != nil {
		if string(text) == "never" {
			err = errors.New("a key that is created without --expires never expires; `keyadmin key update KEY --no-expires` removes an expiry")
		} else if errors.Is(err, errNotDuration) {
			err = fmt.Errorf("%q is neither a duration nor a date: use 1w, 90d, 24h, 30m, 2026-12-31 or 2026-12-31T18:00:00Z", text)
		}
		return err
	}
	*m = moment{period: p}
	return nil
}

// before returns the instant: the given one, or the period before now.
func (m moment) before(now instant.Millis) instant.Millis {
	if m.at != 0 {
		return m.at
	}
	return now.Add(-time.Duration(m.period))
}

// after returns the instant: the given one, or the period after now. None is 0. It must not be in the past.
func (m moment) after(now instant.Millis, flag string) (instant.Millis, error) {
	switch {
	case m.at != 0 && m.at <= now:
		return 0, usageErrorf("%s: %s is in the past: it is %s now", flag, m.at, now)
	case m.at != 0:
		return m.at, nil
	case m.period != 0:
		return now.Add(time.Duration(m.period)), nil
	}
	return 0, nil
}
