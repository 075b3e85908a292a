package service

import "time"

// Unknown is unknown, for tests.
var Unknown = unknown

// ForceOnlyAfter changes when a second signal ends the process, until the tests end.
func ForceOnlyAfter(d time.Duration) { forceAfter = d }
