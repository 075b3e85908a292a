//go:build e2e

package e2e_test

// quotaFullSize says that quota tests run in the size that shows what is claimed, not in the size for every day.
const quotaFullSize = true
