//go:build e2e

package limitstore

// fullSize says that tests run in the size that shows what is claimed, not in the size for every day.
const fullSize = true
