package redis

import (
	"sync/atomic"

	"petgate/shared/core/instant"
)

// clock is the clock of one server, as far ahead of this gateway's as its answers have shown. While
// the server does not answer, this gateway continues it, so minutes and days stay those of Redis.
type clock struct {
	host  func() instant.Millis // this gateway's clock
	ahead atomic.Int64          // ms
}

func (c *clock) now() instant.Millis { return c.host() + instant.Millis(c.ahead.Load()) }

// hear learns that the server decided at this instant of its own clock, between two instants of
// this gateway's. A difference smaller than the trip may stay unknown.
func (c *clock) hear(at, beganAt, endedAt instant.Millis) {
	ahead := c.ahead.Load()
	// Each of the three is rounded down to a millisecond.
	atLeast, atMost := int64(at-endedAt)-1, int64(at-beganAt)+1
	if heard := min(max(ahead, atLeast), atMost); heard != ahead {
		c.ahead.Store(heard)
	}
}
