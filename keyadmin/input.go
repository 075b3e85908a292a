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
	"petgate/shared/core/plan"
)

// usageError is an invalid command line: exit 2, nothing was tried.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

func usageErrorf(format string, args ...any) error {
	return usageError{"keyadmin: " + fmt.Sprintf(format, args...)}
}

// input parses flags and arguments and collects their problems, so that all are reported at once.
type input struct{ problems []string }

func (in *input) problem(format string, args ...any) {
	in.problems = append(in.problems, fmt.Sprintf(format, args...))
}

// err returns all problems as one usage error.
func (in *input) err() error {
	switch len(in.problems) {
	case 0:
		return nil
	case 1:
		return usageErrorf("%s", in.problems[0])
	}
	return usageErrorf("%d problems:\n  %s", len(in.problems), strings.Join(in.problems, "\n  "))
}

func (in *input) format(text string) {
	if text != "table" && text != "json" {
		in.problem("--output: %q is not a format: use table or json", text)
	}
}

func (in *input) key(text string) id.Key {
	key, err := id.ParseKey(text)
	if err != nil {
		in.problem("%v (keyadmin key list shows the IDs of keys)", err)
	}
	return key
}

const nameRunesMax = 100

// name reads the name of a tenant or a key, or another short text.
func (in *input) name(what, text string) string {
	switch {
	case strings.TrimSpace(text) != text || text == "":
		in.problem("%s %q: it must not be empty and must not begin or end with a space", what, text)
	case utf8.RuneCountInString(text) > nameRunesMax:
		in.problem("%s: it has more than %d characters", what, nameRunesMax)
	case printable(text) != text:
		in.problem("%s %q: it must not have control characters", what, text)
	}
	return text
}

// tenantName reads a new tenant's name. A name that looks like an ID would make arguments ambiguous.
func (in *input) tenantName(text string) string {
	if strings.HasPrefix(text, id.TenantPrefix) {
		in.problem("tenant name %q: a name may not begin with %s, the prefix of IDs", text, id.TenantPrefix)
		return text
	}
	return in.name("tenant name", text)
}

func (in *input) planName(text string) string {
	if err := plan.CheckName(text); err != nil {
		in.problem("%v", err)
	}
	return text
}

// limits reads --minute and --day. An empty text leaves a limit unset.
func (in *input) limits(minute, day string) plan.Limits {
	return plan.Limits{
		Minute: in.limit("minute", minute, func(n int64) plan.Limits { return plan.Limits{Minute: n} }),
		Day:    in.limit("day", day, func(n int64) plan.Limits { return plan.Limits{Day: n} }),
	}
}

func (in *input) limit(policy, text string, only func(int64) plan.Limits) int64 {
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) || err == nil && n == 0:
		// For package plan, zero means not set. An operator who types 0 means a limit, and 0 is not a valid limit.
		in.problem("--%s: %s is out of range: use 1 to %d", policy, text, plan.LimitMax)
	case err != nil:
		in.problem("--%s: %q is not a whole number: use 1 to %d, digits only", policy, text, plan.LimitMax)
	default:
		if err := only(n).Check(); err != nil {
			in.problem("--%s: %v", policy, err)
		}
	}
	return n
}

func (in *input) scopes(names []string) apikey.Scopes {
	var set apikey.Scopes
	for _, name := range names {
		scope, err := apikey.ParseScopes([]string{name})
		if err != nil {
			in.problem("--scope: %v", err)
		}
		set |= scope
	}
	if len(names) == 0 {
		set = apikey.AllScopes
	}
	return set
}

// prefixes reads CIDR blocks. An address without a length is the block of that address only.
func (in *input) prefixes(texts []string) []netip.Prefix {
	var blocks []netip.Prefix
	for _, text := range texts {
		block, err := netip.ParsePrefix(text)
		if addr, addrErr := netip.ParseAddr(text); addrErr == nil && addr.Zone() == "" {
			block, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		switch {
		case err != nil:
			in.problem("--allow: %q is not a CIDR block: write 203.0.113.0/24, 2001:db8::/32 or one address", text)
		case block.Masked() != block:
			in.problem("--allow: %s has bits set after its prefix length: did you mean %s?", text, block.Masked())
		default:
			blocks = append(blocks, block)
		}
	}
	return blocks
}

const (
	day = 24 * time.Hour

	// durationMax keeps instants that are computed from a duration within the range of time.Time.
	durationMax = 36500 * day
)

var days = regexp.MustCompile(`^([0-9]{1,6})d(.*)$`)

// parseDuration is time.ParseDuration with days: 90d, 1d12h.
func parseDuration(text string) (time.Duration, error) {
	rest, whole := text, time.Duration(0)
	if match := days.FindStringSubmatch(text); match != nil {
		n, _ := strconv.Atoi(match[1]) // at most six digits, so it cannot fail
		if whole, rest = time.Duration(min(n, 100_000))*day, match[2]; rest == "" {
			rest = "0"
		}
	}
	part, err := time.ParseDuration(rest)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration: write 90d, 24h, 30m or 45s", text)
	}
	if part < 0 || part > durationMax || whole+part > durationMax {
		return 0, fmt.Errorf("%q is out of range: use 0 to 36500d", text)
	}
	return whole + part, nil
}

// duration reads a flag's duration and checks that it is at least least.
func (in *input) duration(flag, text string, least time.Duration) time.Duration {
	d, err := parseDuration(text)
	switch {
	case err != nil:
		in.problem("--%s: %v", flag, err)
	case d < least:
		in.problem("--%s: %q is too short: use %v or more", flag, text, least)
	}
	return d
}
