package redis

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"petgate/gateway/quotas/store"
	"petgate/gateway/quotas/store/storetest"
	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
)

// The script remembers batches as storetest.Batches does, on which the tests of outages rely: new batches and repeated ones
// get the same answers and charge the same.
func TestBatchesAreRemembered(t *testing.T) {
	client, prefix := dialRedis(t)
	s, now := newScript(client, prefix, quota.Product, takeScript), storetest.Epoch
	s.now = func() instant.Millis { return now }
	var fake storetest.Batches
	records := store.NewMemory(quota.Product, func() time.Time { return now.Time() })
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	const lanes = 2
	var wants [lanes]map[int64][2]int64 // by number: a batch that is repeated has the same demands
	for i := range wants {
		wants[i] = map[int64][2]int64{}
	}
	last, seen := int64(0), map[string]int{}
	for step := range 2000 {
		lane, number := random.IntN(lanes), max(1, last-random.Int64N(4))
		if random.IntN(3) == 0 {
			number = last + 1
		}
		last = max(last, number)
		want, ok := wants[lane][number]
		if !ok {
			want = [2]int64{random.Int64N(4), random.Int64N(20)}
			wants[lane][number] = want
		}
		var demands [2]store.Demand
		for i := range demands {
			demands[i] = store.Demand{Request: storetest.Request(storetest.Tenant(i), 20, 1e6), Want: want[i]}
		}
		var ofScript, ofFake [2]store.Result
		errOfScript := s.DecideBatch(background, Batch{lane, number}, demands[:], ofScript[:])
		answered, errOfFake := fake.Answer(lane, number, ofFake[:])
		if !answered {
			if err := records.Decide(background, demands[:], ofFake[:]); err != nil {
				t.Fatal(err)
			}
			fake.Remember(lane, number, ofFake[:])
		}
		kind := "decided"
		switch {
		case errOfFake != nil:
			kind = errOfFake.Error()
		case answered:
			kind = "repeated"
		}
		seen[kind]++
		if (errOfScript == nil) != (errOfFake == nil) || errOfFake != nil && !redis.HasErrorPrefix(errOfScript, kind) {
			t.Fatalf("seed %d, step %d, batch %d of lane %d: the script says %v, the fake %v", seed, step, number, lane, errOfScript, errOfFake)
		}
		for i := range demands {
			if a, b := ofScript[i], ofFake[i]; a.Verdict.Granted != b.Verdict.Granted || a.Err != nil || !answered && a != b {
				t.Fatalf("seed %d, step %d, batch %d of lane %d, %s: the script says %+v, the fake %+v", seed, step, number, lane, kind, a, b)
			}
		}
		now += instant.Millis(random.IntN(2000))
	}
	for lane := range lanes {
		if left := client.PTTL(background, string(s.appendBatchKey(nil, lane, storetest.Tenant(0)))).Val(); left <= 0 || left > time.Minute {
			t.Errorf("the last batch of lane %d is remembered for %v", lane, left)
		}
	}
	t.Logf("2000 steps, seed %d: %v", seed, seen)
	for _, kind := range []string{"decided", "repeated", "SUPERSEDED"} {
		if seen[kind] < 50 {
			t.Errorf("seed %d: only %d batches were %s", seed, seen[kind], kind)
		}
	}
}
