package redis

import (
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// Why quotas do not use the redis_rate package, which limits failed authentications here. Its limit refills while it is used
// up, so it admits nearly twice the limit in a window. And if two limits are asked one after the other, the first one charges
// requests that the second one refuses.
func TestTwoRedisRateCalls(t *testing.T) {
	t.Parallel()
	const limit, window = 60, 2 * time.Second
	client, prefix := dialRedis(t)
	rates := redis_rate.NewLimiter(client)
	minute := redis_rate.Limit{Rate: limit, Burst: limit, Period: window}
	rule := quota.Rule{Slice: window / 80, Slices: 80, Day: 24 * time.Hour}
	ours := newScript(client, prefix, rule, takeScript)

	var theirs, own []time.Time
	for began := time.Now(); time.Since(began) < 2*window+window/4; <-time.After(time.Millisecond) {
		answer, err := rates.Allow(background, prefix+"rolling", minute)
		must.Do(t, err)
		if answer.Allowed > 0 {
			theirs = append(theirs, time.Now())
		}
		v := takeOne(t, ours, store.Demand{Request: requestOf(tenantNo(1), limit, 1000), Want: 1})
		if v.Granted > 0 {
			own = append(own, v.At.Time())
		}
	}
	most, mostOwn := testkit.MostIn(theirs, window), testkit.MostIn(own, window)
	t.Logf("figure: of limit %d a window, redis_rate admits %d in a rolling window, the quota script %d", limit, most, mostOwn)
	if most < limit*3/2 || mostOwn > limit || len(own) <= limit {
		t.Errorf("redis_rate %d, the script %d in a window and %d in all", most, mostOwn, len(own))
	}

	const dayLimit = 40
	slow := redis_rate.Limit{Rate: limit, Burst: limit, Period: time.Hour} // does not refill during the test
	day := redis_rate.Limit{Rate: dayLimit, Burst: dayLimit, Period: 24 * time.Hour}
	ours.now = func() instant.Millis { return epoch } // the window does not end during the test either
	var last *redis_rate.Result
	passed, script := 0, quota.Verdict{}
	for range limit {
		first, err := rates.Allow(background, prefix+"minute", slow)
		must.Do(t, err)
		last = first
		if second, err := rates.Allow(background, prefix+"day", day); err != nil {
			t.Fatal(err)
		} else if first.Allowed+second.Allowed == 2 {
			passed++
		}
		script = takeOne(t, ours, store.Demand{Request: requestOf(tenantNo(2), limit, dayLimit), Want: 1})
	}
	t.Logf("figure: of %d requests with %d left of the day, redis_rate passes %d and charges the minute's limit %d, the quota "+
		"script charges %d", limit, dayLimit, passed, limit-last.Remaining, script.Usages[quota.Minute].Used)
	if passed != dayLimit || limit-last.Remaining <= dayLimit || script.Usages[quota.Minute].Used != dayLimit {
		t.Errorf("%d passed, %+v, %+v", passed, last, script)
	}
}
