package quotas

import (
	"petgate/gateway/quotas/redis"
	"petgate/gateway/quotas/store"
	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
)

// Shared is the redis.Ledger of its batchers: they ask it before a trip, and tell it afterwards.
var _ redis.Ledger = (*Shared)(nil)

// Refusal implements redis.Ledger.
func (s *Shared) Refusal(c *Request, now instant.Millis) (v quota.Verdict, isRefused bool) {
	if !s.seen.mayRefuse(c.Tenant, now) {
		return v, false
	}
	v, isRefused = s.seen.refusal(c.Request, now)
	if !c.IsCapped() {
		return v, isRefused
	}
	if _, isOwn := s.seen.refusal(c.Own(), now); !isRefused && !isOwn {
		return v, false
	}
	return both(c, func(r store.Request) quota.Verdict { return s.seen.verdict(r, now) }), true
}

// Collect implements redis.Ledger.
func (s *Shared) Collect(d *store.Demand) {
	s.tellKnown(d)
	d.Unreported = s.standIn.collect(d.Name)
}

// tellKnown adds to a demand the use that this gateway last saw.
func (s *Shared) tellKnown(d *store.Demand) {
	last := s.seen.get(d.Name)
	d.Known = last.known(s.now())
}

// Records implements redis.Ledger.
func (s *Shared) Records(scope redis.Scope) (records []store.Request) {
	add := func(n store.Name, last decision) { records = append(records, last.question(n)) }
	if scope == redis.Unreported {
		for _, n := range s.standIn.tenants(true) {
			add(n, s.seen.get(n))
		}
		return records
	}
	now := s.now()
	for n, last := range s.seen.records.All() {
		if last.known(now).Minute > 0 || scope == redis.Day && last.hasPeriod(now, s.config.Rule.Day) {
			add(n, last)
		}
	}
	return records
}

// Settle implements redis.Ledger.
func (s *Shared) Settle(d *store.Demand, v *quota.Verdict, decided bool, beganAt, endedAt instant.Millis) {
	if decided {
		s.seen.store(d.Request, beganAt, endedAt, v, v.Granted < d.Want)
	}
	s.standIn.settled(d.Name, d.Unreported, decided)
}
