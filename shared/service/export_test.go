package service

import "time"

// Parts of the package, for tests.
var (
	Unknown    = unknown
	IsPublic   = isPublic
	LookEvery  = lookEvery
	ProblemsOf = (*Certificates).review
	WatchOf    = (*Certificates).watch
)

// ForceOnlyAfter changes when a second signal ends the process, until the tests end.
func ForceOnlyAfter(d time.Duration) { forceAfter = d }
