package apikey

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Scopes is a set of permissions that a key carries: their names in order, separated by spaces, as
// a database keeps it.
type Scopes string

// UsageRead is the scope of the gateway's own operation that shows a tenant's usage. All other
// scopes are those of an API's document.
const UsageRead = "usage:read"

// scopesMax is how many scopes a key may have.
const scopesMax = 64

var scopeName = regexp.MustCompile(`^[a-z0-9:._-]{1,64}$`)

// CheckScope returns an error if no scope can have this name.
func CheckScope(name string) error {
	if !scopeName.MatchString(name) {
		return fmt.Errorf("%q is not the name of a scope: use 1 to 64 of a-z, 0-9, colon, dot, hyphen and underscore",
			name)
	}
	return nil
}

// ParseScopes reads scope names. Without names it returns the empty set.
func ParseScopes(names []string) (Scopes, error) {
	for _, name := range names {
		if err := CheckScope(name); err != nil {
			return "", err
		}
	}
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	if len(names) > scopesMax {
		return "", fmt.Errorf("a key may have %d scopes, and these are %d", scopesMax, len(names))
	}
	return Scopes(strings.Join(names, " ")), nil
}

// Has reports whether s includes the scope with this name. The empty name stands for no scope.
func (s Scopes) Has(name string) bool {
	if name == "" {
		return true
	}
	for rest, more := string(s), true; more; {
		var one string
		one, rest, more = strings.Cut(rest, " ")
		if one == name {
			return true
		}
	}
	return false
}

// Names lists the scopes of s in order.
func (s Scopes) Names() []string { return strings.Fields(string(s)) }

// MarshalJSON writes the list of names, which have no characters to escape.
func (s Scopes) MarshalJSON() ([]byte, error) {
	if s == "" {
		return []byte(`[]`), nil
	}
	return []byte(`["` + strings.ReplaceAll(string(s), " ", `","`) + `"]`), nil
}

// Scan reads a set of a database.
func (s *Scopes) Scan(column any) (err error) {
	text, isText := column.(string)
	if !isText {
		return fmt.Errorf("scopes are a text column, not %T", column)
	}
	*s, err = ParseScopes(strings.Fields(text))
	return err
}
