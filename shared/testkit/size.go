package testkit

// Size returns full in full size and reduced otherwise. FullSize is true with the build tag e2e, which `make e2e` sets: it
// runs tests in the size that shows what the project claims. `make test` runs the same tests in a size for every day.
func Size[T any](reduced, full T) T {
	if FullSize {
		return full
	}
	return reduced
}
