package quotas

import (
	"sync/atomic"
	"time"

	"petgate/shared/core/instant"
)

// clock is the clock of Redis. While Redis does not answer, this gateway continues it by the monotonic clock of its host. So shares have
// the same minutes and days as Redis, and a step of the host's clock changes nothing. Before Redis first answers, the clock is the host's.
// It is safe for concurrent use.
type clock struct {
	host    func() time.Time // may step
	begin   instant.Millis   // by the host's clock
	started time.Time        // the same instant, with a monotonic reading
	ahead   atomic.Int64     // how far Redis is ahead of steady, in ms
}

func newClock(host func() time.Time) *clock {
	return &clock{host: host, begin: instant.Of(host()), started: time.Now()}
}

// steady is the host's clock without the steps since newClock. What this gateway remembers is dated by it.
func (c *clock) steady() instant.Millis { return c.begin.Add(time.Since(c.started)) }

// now is the time of Redis.
func (c *clock) now() instant.Millis { return c.steady() + instant.Millis(c.ahead.Load()) }

// heard learns that Redis decided at this instant of its own clock, between two instants of steady.
func (c *clock) heard(at, beganAt, endedAt instant.Millis) {
	ahead := c.ahead.Load()
	// Each of the three is rounded down to a millisecond.
	if known := min(max(ahead, int64(at-endedAt)-1), int64(at-beganAt)+1); known != ahead {
		c.ahead.Store(known)
	}
}

// skew is how far the clock of Redis is ahead of the host's clock now. A difference smaller than a trip to Redis may be shown as 0.
func (c *clock) skew() time.Duration { return c.now().Sub(instant.Of(c.host())) }
