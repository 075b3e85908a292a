//go:build e2e

package quotas

// fullSize says that tests run in the size that shows what is claimed, not in the size for every day.
const fullSize = true
