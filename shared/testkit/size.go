package testkit

// Size returns full in full size and reduced otherwise. FullSize is true with the build tag e2e,
// which `make e2e` sets: in full size, the tests prove what the project claims. `make test` runs
// the same tests in a smaller size for daily use.
func Size[T any](reduced, full T) T {
	if FullSize {
		return full
	}
	return reduced
}
