package strikes_test

import (
	"net/netip"
	"testing"
	"time"

	"petgate/gateway/strikes"
	"petgate/shared/core/ban"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
)

// A ban that another gateway imposed makes the next one here longer. One that was imposed here is the same ban when it comes back.
func TestBansOfOthersCount(t *testing.T) {
	rule := ban.Product
	rule.After = 1
	f := func(left time.Duration, wants ...time.Duration) {
		t.Helper()
		s, k, now := strikes.New(rule), id.Key{1}, instant.Of(time.Now())
		until := now.Add(left)
		for _, at := range []instant.Millis{now, now, until - 1} { // seen again, also at its end, it is the same ban
			s.Banned(k, at, until)
		}
		for _, want := range wants {
			now = until
			s.Refused(refusal(k, now))
			now = now.Add(rule.Grace)
			until = s.Refused(refusal(k, now)).BannedUntil
			if until != now.Add(want) {
				t.Errorf("%v left of the other one: banned for %d ms, want %v", left, until-now, want)
			}
			s.Banned(k, until-1, until)
		}
	}
	f(time.Minute, 2*time.Minute, 4*time.Minute)
	f(30*time.Second, 2*time.Minute)
	f(90*time.Second, 4*time.Minute)
	f(time.Hour, time.Hour)
}

// What is left shrinks with each refusal, and is the whole rule again for a key that was never refused. Without a rule, there is
// nothing to count.
func TestLeft(t *testing.T) {
	s, k, now := strikes.New(ban.Product), id.Key{1}, instant.Of(time.Now())
	for range 3 {
		now = now.Add(ban.Product.Grace)
		if out := s.Refused(refusal(k, now)); out.StrikesUntilBan != s.Left(k, 30, now) {
			t.Errorf("the refusal says %d, then %d are left", out.StrikesUntilBan, s.Left(k, 30, now))
		}
	}
	if mine, others := s.Left(k, 30, now), s.Left(id.Key{2}, 30, now); mine >= others || others != ban.Product.After {
		t.Errorf("%d are left, and %d of a key that was not refused", mine, others)
	}
	none := strikes.New(ban.Rule{})
	none.Banned(k, now, now+60_000)
	none.Served(k, netip.Addr{}, nil, now)
	if none.AreCounted() || none.Left(k, 30, now) != 0 {
		t.Error("strikes are counted without a rule")
	}
}

// refusal is one of a key whose client keeps no connection, with a promise that lasts long.
func refusal(k id.Key, now instant.Millis) strikes.Refusal {
	return strikes.Refusal{Key: k, Limit: 1, Now: now, Promised: now + 600_000}
}
