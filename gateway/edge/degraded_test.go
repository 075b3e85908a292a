package edge_test

import (
	"sync/atomic"
	"testing"
	"time"

	"petgate/gateway/quotas"
	"petgate/shared/core/ban"
	"petgate/shared/core/quota"
)

// Refusals by a share are not the client's fault: they never ban a key. The same number of refusals by a limit bans it.
func TestRefusalOfAShareIsNoStrike(t *testing.T) {
	for _, degraded := range []bool{true, false} {
		var passed atomic.Int64
		r := newRig(t, func(s *setup) {
			s.BanRule = ban.Product
			s.BanRule.After = 3
			s.Clock = func() time.Time { return now.Add(time.Duration(passed.Load())) }
			known := s.Quotas.(fakeQuotas).known
			s.Quotas = fakeQuotas{known: known, take: func(a quotas.Request) (quota.Verdict, error) {
				v := verdict(a.Limits, a.Limits.Minute)
				v.Degraded = degraded
				return v, nil
			}}
		})
		client := r.dial(t)
		for range 8 {
			client.ask(t, rawGet())
			passed.Add(int64(1500 * time.Millisecond))
		}
		if banned := r.banned.Load() > 0; banned == degraded {
			t.Errorf("refused by a share: %t, banned: %t", degraded, banned)
		}
	}
}
