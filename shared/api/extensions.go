package api

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"petgate/shared/core/apikey"
	"petgate/shared/core/plan"
)

// extensions are the x-… members of an operation that the gateway knows. The rule says what the
// value must be. read stores the value in the operation, and reports whether it is valid.
var extensions = []struct {
	name, rule string
	read       func(o *Operation, value any) bool
}{
	{"x-scope", scopeRule, func(o *Operation, v any) bool { return readText(v, &o.Scope, isScope) }},
	{"x-upstream", scopeRule, func(o *Operation, v any) bool { return readText(v, &o.Upstream, isScope) }},
	{"x-deprecated-at", instantRule, func(o *Operation, v any) bool { return readInstant(v, &o.DeprecatedAt) }},
	{"x-sunset", instantRule, func(o *Operation, v any) bool { return readInstant(v, &o.SunsetAt) }},
	{
		"x-successor", "use a path or a URL",
		func(o *Operation, v any) bool { return readText(v, &o.Successor, isSuccessor) },
	},
	{
		"x-stability", "use experimental or beta",
		func(o *Operation, v any) bool {
			return readText(v, &o.Stability, func(text string) bool { return text == "experimental" || text == "beta" })
		},
	},
	{
		"x-answered-by", "use gateway",
		func(o *Operation, v any) bool {
			o.ByGateway = v == "gateway"
			return o.ByGateway
		},
	},
	{
		"x-public", "use true or false",
		func(o *Operation, v any) (ok bool) {
			o.IsPublic, ok = v.(bool)
			return ok
		},
	},
	{"x-cost", fmt.Sprintf("use 1 to %d", plan.CostMax), func(o *Operation, v any) bool {
		return o.IsPublic || readWhole(v, &o.Cost) && o.Cost >= 1 && o.Cost <= plan.CostMax
	}},
	{"x-cost", "a public operation has no quota, so use 0 or remove it", func(o *Operation, v any) bool {
		return !o.IsPublic || readWhole(v, &o.Cost) && o.Cost == 0
	}},
}

const (
	scopeRule   = "use 1 to 64 of a-z, 0-9, colon, dot, hyphen and underscore"
	instantRule = "use an instant such as 2030-12-05T00:00:00Z, in quotes"
)

func readText(value any, to *string, isValid func(string) bool) (ok bool) {
	*to, ok = value.(string)
	return ok && isValid(*to)
}

func readInstant(value any, to *time.Time) (ok bool) {
	text, _ := value.(string)
	at, err := time.Parse(time.RFC3339, text)
	*to = at
	return err == nil
}

// readWhole reads a whole number. Documents have all numbers as float64.
func readWhole(value any, to *int64) (ok bool) {
	number, ok := value.(float64)
	*to = int64(number)
	return ok && float64(*to) == number
}

func isScope(text string) bool { return apikey.CheckScope(text) == nil }

// isSuccessor reports whether a text may become the target of the field Link.
func isSuccessor(text string) bool {
	if strings.ContainsAny(text, "<>\"") || strings.ContainsFunc(text, unicode.IsControl) {
		return false
	}
	if u, err := url.Parse(text); err == nil && u.String() == text {
		return true
	}
	_, wrong := pattern(text)
	return wrong == ""
}

// extend reads the extensions of an operation. Without x-scope, its method decides which scope a
// key needs.
func (l *loading) extend(o *Operation, given map[string]any) {
	for _, one := range extensions {
		if value, isThere := given[one.name]; isThere && !one.read(o, value) {
			l.refuse(l.placeOf(o), "%s is %v: %s", one.name, value, one.rule)
		}
	}
	o.IsDeprecated = o.IsDeprecated || !o.DeprecatedAt.IsZero()
	switch {
	case o.IsPublic && o.Scope != "":
		l.refuse(l.placeOf(o), "it has x-public and x-scope: a public operation needs no key, so remove one of them")
	case o.IsPublic || o.ByGateway || o.Scope != "":
	case o.Method == http.MethodGet || o.Method == http.MethodHead:
		o.Scope = "read"
	default:
		o.Scope = "write"
	}
}
