package apikey

import (
	"database/sql/driver"
	"fmt"
	"strings"
)

// Scopes is a set of permissions that a key carries.
type Scopes uint8

// The scopes.
const (
	PetsRead Scopes = 1 << iota
	PetsWrite
	UsageRead

	// DefaultScopes are what a key gets when none is named.
	DefaultScopes = PetsRead | PetsWrite

	// AllScopes are all that there are.
	AllScopes = DefaultScopes | UsageRead
)

var scopeNames = []struct {
	scope Scopes
	name  string
}{{PetsRead, "pets:read"}, {PetsWrite, "pets:write"}, {UsageRead, "usage:read"}}

// ParseScopes reads scope names. Without names it returns the empty set.
func ParseScopes(names []string) (Scopes, error) {
	var set Scopes
next:
	for _, name := range names {
		for _, s := range scopeNames {
			if s.name == name {
				set |= s.scope
				continue next
			}
		}
		return 0, fmt.Errorf("%q is not a scope: use one of %s", name, strings.Join(AllScopes.Names(), ", "))
	}
	return set, nil
}

// Has reports whether s includes the scope with this name. The empty name stands for no scope.
func (s Scopes) Has(name string) bool {
	for _, n := range scopeNames {
		if n.name == name {
			return s&n.scope != 0
		}
	}
	return name == ""
}

// Names lists the scopes of s in their fixed order.
func (s Scopes) Names() []string {
	names := make([]string, 0, len(scopeNames))
	for _, n := range scopeNames {
		if s&n.scope != 0 {
			names = append(names, n.name)
		}
	}
	return names
}

func (s Scopes) String() string { return strings.Join(s.Names(), " ") }

// Value is the set in a database: its names, separated by spaces.
func (s Scopes) Value() (driver.Value, error) { return s.String(), nil }

// Scan reads what Value wrote.
func (s *Scopes) Scan(column any) (err error) {
	text, isText := column.(string)
	if !isText {
		return fmt.Errorf("scopes are a text column, not %T", column)
	}
	*s, err = ParseScopes(strings.Fields(text))
	return err
}
