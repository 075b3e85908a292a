package redis

import (
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
)

// Now is the time of the tenant's server. While the server does not answer, this gateway continues
// its clock. So shares have the same minutes and days as Redis. Masters of a cluster have clocks of
// their own.
func (r *Redis) Now(t id.Tenant) instant.Millis { return r.batcher(t).now() }

// Continue sets the clocks of servers that have not answered yet. Until then, they are this
// gateway's.
func (r *Redis) Continue(ahead time.Duration) { r.servers.first.ahead.Store(ahead.Milliseconds()) }

// Skew is how far the clocks of servers are ahead of a clock that shows this time: the largest
// difference.
func (r *Redis) Skew(at time.Time) (skew time.Duration) {
	all := r.servers.all()
	for _, b := range all {
		if d := b.now().Sub(instant.Of(at)); d.Abs() > skew.Abs() &&
			(len(all) == 1 || b != r.servers.first && b.heard.Load()) {
			skew = d
		}
	}
	return skew
}

func (b *batcher) now() instant.Millis { return b.redis.now() + instant.Millis(b.ahead.Load()) }

// hear learns that the server decided at this instant of its own clock, between two instants of
// this gateway's. A difference smaller than the trip may stay unknown.
func (b *batcher) hear(at, beganAt, endedAt instant.Millis) {
	ahead := b.ahead.Load()
	// Each of the three is rounded down to a millisecond.
	if known := min(max(ahead, int64(at-endedAt)-1), int64(at-beganAt)+1); known != ahead {
		b.ahead.Store(known)
	}
}
