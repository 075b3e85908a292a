package operate

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
)

// What people write. Each error names the value and the cure.

// ParseLimit reads a number of requests.
func ParseLimit(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) || err == nil && (n < 1 || n > plan.LimitMax):
		return 0, fmt.Errorf("%s is out of range: use 1 to %d", text, plan.LimitMax)
	case err != nil:
		return 0, fmt.Errorf("%q is not a whole number: use 1 to %d, digits only", text, plan.LimitMax)
	}
	return n, nil
}

// ParseLimitChange is ParseLimit for a change: 0 and none take the policy away.
func ParseLimitChange(text string) (int64, error) {
	if text == "0" || text == "none" {
		return plan.None, nil
	}
	n, err := ParseLimit(text)
	if err != nil {
		err = fmt.Errorf("%w; none removes the limit", err)
	}
	return n, err
}

// ParseMonthStarts reads the day of the month on which a tenant's month begins.
func ParseMonthStarts(text string) (uint8, error) {
	n, err := strconv.ParseUint(text, 10, 8)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is not a day on which a month can start: use 1 to %d", text, plan.MonthStartsMax)
	}
	return uint8(n), plan.CheckMonthStarts(uint8(n))
}

// ParseBlock reads a CIDR block. A bare address is the block of that address alone.
func ParseBlock(text string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(text)
	if addr, addrErr := netip.ParseAddr(text); addrErr == nil && addr.Zone() == "" {
		prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	switch {
	case err != nil:
		return prefix, fmt.Errorf("%q is not a CIDR block: write 203.0.113.0/24, 2001:db8::/32 or one address", text)
	case prefix.Masked() != prefix:
		return prefix, fmt.Errorf("%s has bits set after its prefix length: did you mean %s?", text, prefix.Masked())
	}
	return prefix, nil
}

// durationMax keeps instants that are computed from a duration within the range of time.Time.
const durationMax = 36500 * day

var days = regexp.MustCompile(`^(?:([0-9]{1,6})w)?(?:([0-9]{1,6})d)?(.*)$`)

var errNotDuration = errors.New("is not a duration: use 1w, 90d, 24h, 30m or 45s")

// ParseDuration is time.ParseDuration with weeks and days: 1w, 90d, 1d12h. It may be zero.
func ParseDuration(text string) (time.Duration, error) {
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

// ParsePeriod reads a duration of at least a second.
func ParsePeriod(text string) (time.Duration, error) {
	parsed, err := ParseDuration(text)
	if err == nil && parsed < time.Second {
		err = fmt.Errorf("%q is too short: use 1s or more", text)
	}
	return parsed, err
}

// Moment is a UTC date or an instant, or a period before or after now. The zero value is none.
type Moment struct {
	At     instant.Millis // of a date: its beginning
	Period time.Duration  // if At is 0
}

// ParseMoment reads a moment.
func ParseMoment(text string) (Moment, error) {
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if at, err := time.Parse(layout, text); err == nil {
			return Moment{At: instant.Of(at)}, nil
		}
	}
	period, err := ParsePeriod(text)
	if errors.Is(err, errNotDuration) {
		err = fmt.Errorf("%q is neither a duration nor a date: use 1w, 90d, 24h, 30m, 2026-12-31 or 2026-12-31T18:00:00Z", text)
	}
	return Moment{Period: period}, err
}

// Before returns the given instant, or the one that lies the given period before now.
func (m Moment) Before(now instant.Millis) instant.Millis {
	if m.At != 0 {
		return m.At
	}
	return now.Add(-m.Period)
}

// After returns the given instant, or the one that lies the given period after now; 0 if neither was given. It must not be in the past.
func (m Moment) After(now instant.Millis) (instant.Millis, error) {
	switch {
	case m.At != 0 && m.At <= now:
		return 0, fmt.Errorf("%s is in the past: it is %s now", m.At, now)
	case m.At != 0:
		return m.At, nil
	case m.Period != 0:
		// Whole seconds, as all texts of an expiry have.
		return now.Add(m.Period + time.Second - time.Millisecond).Truncate(time.Second), nil
	}
	return 0, nil
}
