package operate

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/dustin/go-humanize"

	"petgate/shared/core/plan"
)

const day = 24 * time.Hour

// Span formats a duration for people.
func Span(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 2*day:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", d/day)
}

// Until formats the time until an instant for people. Unlike Span it rounds, so that a key of 90
// days expires in 90 days and not in 89.
func Until(d time.Duration) string {
	switch {
	case d >= 2*day-time.Hour/2:
		return Span(d.Round(time.Hour))
	case d >= 2*time.Hour-time.Minute/2:
		return Span(d.Round(time.Minute))
	}
	return Span(d.Round(time.Second))
}

// Latency writes a time in ms: a gateway needs less than one, an upstream perhaps thousands. nil:
// it is not known.
func Latency(ms *float64) string {
	switch {
	case ms == nil:
		return "-"
	case *ms < 10:
		return fmt.Sprintf("%.2f ms", *ms)
	}
	return humanize.Comma(int64(*ms)) + " ms"
}

// Plural writes a number of things: `1 tenant`, `2 tenants`.
func Plural[N int | int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return humanize.Comma(int64(n)) + " " + noun + "s"
}

// OrDash returns the text, or a dash for an empty one.
func OrDash(text string) string {
	return cmp.Or(text, "-")
}

// Never returns the text of an instant, or "never" for an empty one.
func Never(instant string) string {
	return cmp.Or(instant, "never")
}

// Anywhere describes an allow-list.
func Anywhere(allow []string) string {
	return cmp.Or(strings.Join(allow, " "), "anywhere")
}

// Listed lists names; none without a name.
func Listed(names []string) string {
	return cmp.Or(strings.Join(names, ", "), "none")
}

// Either returns done if something changed, and otherwise nothing.
func Either[T any](changed bool, done, nothing T) T {
	if changed {
		return done
	}
	return nothing
}

// Printable replaces characters that could move a terminal's cursor or change its colours.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) {
			return '?'
		}
		return r
	}, text)
}

var plainWord = regexp.MustCompile(`^[\pL\pN_./:@%+=,-]+$`)

// ShellWord quotes an argument for a shell, if it needs quotes.
func ShellWord(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// ForgetCommand is the command that forgets a gateway. Gateways write their IDs themselves.
func ForgetCommand(gateway string) string {
	return "keyadmin gateway forget " + ShellWord(Printable(gateway))
}

// LimitText describes a limit in force. override is the tenant's own; 0: it has none.
func LimitText(limit, override int64) string {
	switch {
	case limit == 0:
		return "not set"
	case override != 0:
		return humanize.Comma(limit) + " (own)"
	}
	return humanize.Comma(limit)
}

// LimitTexts describes limits in force, one text for each policy. override has the tenant's own.
func LimitTexts(limits, override plan.Limits) []string {
	return ViewsOf(plan.Policies[:],
		func(policy string) string { return LimitText(limits.Of(policy), override.Of(policy)) })
}

// Limits describes limits: `60 requests per minute, 1,000 per day`. Empty: none is set.
func Limits(l plan.Limits) string {
	var parts []string
	for policy, limit := range l.Set() {
		text := humanize.Comma(limit)
		if len(parts) == 0 {
			text = Plural(limit, "request")
		}
		parts = append(parts, text+" per "+policy)
	}
	return strings.Join(parts, ", ")
}

// LimitsOrNone describes limits of a plan, and says what it means if none is set.
func LimitsOrNone(l plan.Limits) string {
	return cmp.Or(Limits(l), "it has no limits: all requests of the tenant are refused")
}

// MovedLimits describes a change of limits: `60 → 120 requests per minute`. Limits that have not
// changed are left out.
func MovedLimits(was, is plan.Limits) string {
	var parts []string
	for _, policy := range plan.Policies {
		if was.Of(policy) != is.Of(policy) {
			parts = append(
				parts,
				fmt.Sprintf("%s → %s requests per %s", LimitText(was.Of(policy), 0), LimitText(is.Of(policy), 0),
					policy),
			)
		}
	}
	return strings.Join(parts, ", ")
}

// Reason returns what an error says after the first of the given errors that it wraps: what was not
// found, for example.
func Reason(err error, kinds ...error) string {
	for _, kind := range kinds {
		if _, text, isFound := strings.Cut(err.Error(), kind.Error()+": "); isFound && errors.Is(err, kind) {
			return text
		}
	}
	return err.Error()
}

// colon puts a colon before a text, unless it is empty.
func colon(text string) string { return Either(text == "", "", ": "+text) }
