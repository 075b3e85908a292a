package edge_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"petgate/gateway/directory"
	"petgate/gateway/quotas"
	"petgate/shared/core/apikey"
	"petgate/shared/core/instant"
)

// Around midnight, the charged requests of each day add up to what the quota has charged to that day, although the gateway's
// clock differs from the quota's, and the quota's clock is set back over midnight once.
func TestUsageOfADayIsTheQuotasDay(t *testing.T) {
	const day = 24 * time.Hour
	midnight := now.Truncate(day).Add(day)
	entry := entries[apikey.Sum([]byte(token))]
	for _, ahead := range []time.Duration{-3 * time.Second, 3 * time.Second} {
		var clock atomic.Int64 // the quota's, in ms
		limits, err := quotas.Open(t.Context(), quotas.Config{Clock: func() time.Time { return time.UnixMilli(clock.Load()) }})
		if err != nil {
			t.Fatal(err)
		}
		counted := map[instant.Millis]int64{} // charged requests by the start of their day
		r := newRig(t, func(s *setup) {
			s.Quotas = limits
			s.Clock = func() time.Time { return time.UnixMilli(clock.Load()).Add(ahead) }
			s.Usage = fakeUsage(func(u directory.Usage) {
				if u.Outcome != "minute_quota_exceeded" {
					counted[u.At.Truncate(day)]++
				}
			})
		})
		charged := map[instant.Millis]int64{}
		client := r.dial(t)
		clock.Store(midnight.Add(-time.Second).UnixMilli())
		for n := range 80 { // the last 20 are refused
			clock.Add(50)
			if n == 30 {
				clock.Add(-1000)
			}
			target := "/v1/pets"
			if n%3 == 0 {
				target = "/v1/none" // charged too
			}
			client.ask(t, strings.Replace(rawGet(), "/v1/pets", target, 1))
			v := limits.Known(entry.Tenant, entry.Limits)
			charged[instant.Millis(v.DayUse.Day*day.Milliseconds())] = v.DayUse.Used
		}
		before, after := instant.Of(midnight.Add(-day)), instant.Of(midnight)
		if counted[before] != charged[before] || counted[after] != charged[after] || charged[before] == 0 || charged[before]+charged[after] != 60 {
			t.Errorf("the gateway's clock %v ahead: counted %v, charged %v", ahead, counted, charged)
		}
		if err := limits.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
