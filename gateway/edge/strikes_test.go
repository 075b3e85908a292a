package edge

import (
	"testing"
	"time"

	"petgate/shared/core/ban"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
)

// However many keys are refused, their records are bounded.
func TestStrikesAreBounded(t *testing.T) {
	s := newStrikes(ban.Product)
	now := instant.Of(time.Now())
	for i := range 3 * strikeRecordsMax {
		k := id.Key{byte(i), byte(i >> 8)}
		s.refused(k, now, now+1000)
	}
	if n := len(s.shards[0].records); n > strikeRecordsMax || n < strikeRecordsMax*15/16 {
		t.Errorf("%d records, want %d, or a sixteenth less", n, strikeRecordsMax)
	}
}

// A ban that another gateway imposed makes the next one here longer.
func TestBansOfOthersCount(t *testing.T) {
	rule := ban.Product
	rule.After = 1
	f := func(left, want time.Duration) {
		t.Helper()
		s, k, now := newStrikes(rule), id.Key{1}, instant.Of(time.Now())
		for range 3 { // seen again, it is the same ban
			s.banned(k, now, now.Add(left))
		}
		now = now.Add(left)
		s.refused(k, now, now+600_000)
		now = now.Add(rule.Grace)
		if out := s.refused(k, now, now+600_000); out.BannedUntil != now.Add(want) {
			t.Errorf("%v left of the other one: banned for %d ms, want %v", left, out.BannedUntil-now, want)
		}
	}
	f(time.Minute, 2*time.Minute)
	f(30*time.Second, 2*time.Minute)
	f(90*time.Second, 4*time.Minute)
	f(time.Hour, time.Hour)
}
