// Package must ends a test whose preparation fails.
package must

// T is a test: testing.TB, or that of rapid.
type T interface {
	Helper()
	Fatal(args ...any)
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
