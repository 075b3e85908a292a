// Package must ends a test whose preparation fails, or whose result is not the wanted one.
package must

import (
	"fmt"
	"strings"
)

// T is a test: testing.TB, or that of rapid.
type T interface {
	Helper()
	Fatal(args ...any)
}

// Equal ends the test if got is not want. The format and its arguments name what was compared.
func Equal[V comparable](t T, got, want V, format string, args ...any) {
	if got != want {
		t.Helper()
		t.Fatal(fmt.Sprintf("%s: %s, want %s", fmt.Sprintf(format, args...), shown(got), shown(want)))
	}
}

// shown quotes a text of one line. Other values are as they print themselves.
func shown(value any) string {
	text, isText := value.(string)
	switch {
	case isText && strings.Contains(text, "\n"):
		return "\n" + text
	case isText:
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprintf("%+v", value)
}

// Do ends the test if there is an error.
func Do(t T, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}

// Get returns a function that takes a result, and ends the test if it comes with an error.
func Get[V any](t T) func(V, error) V {
	return func(value V, err error) V {
		t.Helper()
		Do(t, err)
		return value
	}
}

// First is Get for a function with another result, which the test has no use for.
func First[V any](t T) func(V, any, error) V {
	return func(value V, _ any, err error) V {
		t.Helper()
		Do(t, err)
		return value
	}
}
