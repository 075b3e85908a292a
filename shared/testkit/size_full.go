//go:build e2e

package testkit

// FullSize reports whether tests run in full size.
const FullSize = true
