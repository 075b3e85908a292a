package quotas

import (
	"time"

	"petgate/shared/core/instant"
)

// clock is the host's clock without the steps since newClock. What this gateway remembers is dated by it. For the clocks of Redis, see
// redis.Redis.Now.
type clock struct {
	begin   instant.Millis // by the host's clock
	started time.Time      // the same instant, with a monotonic reading
}

func newClock(host func() time.Time) clock { return clock{instant.Of(host()), time.Now()} }

func (c *clock) now() instant.Millis { return c.begin.Add(time.Since(c.started)) }
