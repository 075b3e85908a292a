package redis

import (
	_ "embed"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
	"petgate/shared/testkit/must"
)

// A record remembers its last batch, and the last seven with unreported requests: these are charged once, whatever is charged in
// between. It stays small.
func TestReportsAreRemembered(t *testing.T) {
	client, prefix := dialRedis(t)
	d := demandOf(tenantNo(1), 1000, 1000)
	take := func(s *script, d store.Demand) int64 {
		t.Helper()
		var results [1]store.Result
		if err := s.DecideBatch(background, 1, []store.Demand{d}, results[:]); err != nil || results[0].Err != nil {
			t.Fatalf("%+v, %v", results[0], err)
		}
		return results[0].Verdict.Usages[quota.Day].Used
	}
	day := take(newScript(client, prefix, quota.Product, takeScript), d) - 1 + int64(instant.Of(time.Now()))/86_400_000
	report := store.Demand{Request: d.Request, Unreported: quota.Use{Minute: 5, Day: quota.Period{Ends: day + 1, Used: 5}}}
	first := newScript(client, prefix, quota.Product, takeScript)
	used := take(first, report)
	for others := 1; others <= 7; others++ {
		if now := take(first, report); now != used {
			t.Errorf("after %d other reports, it is charged again: %d used, want %d", others-1, now, used)
		}
		other := newScript(client, prefix, quota.Product, takeScript)
		take(other, report)
		if used = take(other, report); used != 1+5*(1+int64(others)) {
			t.Errorf("%d used after %d reports", used, others+1)
		}
	}
	if now := take(first, report); now != used+5 {
		t.Errorf("after 7 other reports: %d used, want %d", now, used+5)
	}
	bytes := client.MemoryUsage(background, first.keyOf(d)).Val()
	if bytes > 1400 {
		t.Errorf("a record takes %d bytes of memory", bytes)
	}
	t.Logf("figure: a record takes %d bytes of Redis's memory", bytes)
}

//go:embed testdata/take-of-two-policies.lua
var earlierScript string

// takeEarlier decides as gateways did before there were months. It returns what was granted.
func takeEarlier(t *testing.T, s *script, key string, number, minute, day, want int64) int64 {
	t.Helper()
	numbers := func(all ...int64) string { return string(appendNumbers(nil, all...)) }
	var shape []byte
	for _, n := range [...]int64{quota.Product.Slice.Milliseconds(), int64(quota.Product.Slices), quota.Product.Day.Milliseconds()} {
		shape = binary.LittleEndian.AppendUint32(shape, uint32(n))
	}
	reply, err := s.client.Eval(background, earlierScript, []string{key}, shape, numbers(minute, day, want, 0, 0, 0), "",
		numbers(number)+s.gateway, int64(s.now())).Text()
	must.Do(t, err)
	if remarks := reply[replyHeadBytes+quota.SummaryBytes+20:]; len(remarks) >= remarkBytes+limitedBytes && remarks[4] == remarkLimited {
		return int64(binary.LittleEndian.Uint32([]byte(remarks[5:])))
	}
	return want
}

// Gateways of an earlier version may share Redis with this one, before an upgrade, during it and after a rollback. Together they admit the
// limits of the minute and the day. The month counts what they admit, but for the days that an earlier gateway began.
func TestEarlierGatewaysBesideThisOne(t *testing.T) {
	t.Parallel()
	client, prefix := dialRedis(t)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	now := instant.Of(time.Date(2028, 2, 27, 23, 0, 0, 0, time.UTC)) // of a leap year
	earlier, s := newScript(client, prefix, quota.Product, earlierScript), newScript(client, prefix, quota.Product, takeScript)
	earlier.now = func() instant.Millis { return now }
	s.now = earlier.now
	const minute, day, month = 30, 200, 700
	d := store.Demand{Request: requestOf(tenantNo(1), minute, day)}
	d.Limits.Month = month
	o := quota.Record{} // of minutes and days
	inMonth, lastDay, refused := int64(0), int64(now)/86_400_000, 0
	for number := range int64(6000) {
		if now += instant.Millis(random.Int64N(40_000)); random.IntN(20) == 0 {
			now += instant.Millis(random.Int64N(5 * 3_600_000))
		}
		want, isEarlier := 1+random.Int64N(5), random.IntN(2) == 0
		if today := int64(now) / 86_400_000; today != lastDay {
			isEarlier = false // this version begins the day
			if lastDay = today; today == quota.MonthEnd(today-1, 1) {
				inMonth = 0
			}
		}
		limits := plan.Limits{Minute: minute, Day: day}
		var granted int64
		if isEarlier {
			granted = takeEarlier(t, earlier, s.keyOf(d), number+1, minute, day, want)
		} else {
			d.Want = want
			var results [1]store.Result
			must.Do(t, s.DecideBatch(background, number+1, []store.Demand{d}, results[:]))
			must.Do(t, results[0].Err)
			granted = results[0].Verdict.Granted
			if limits.Month = 0; month-inMonth < want {
				want = max(0, month-inMonth)
				refused++
			}
		}
		ruled := quota.Product.Take(&o, now, quota.Demand{Limits: limits, Want: want})
		if inMonth += granted; granted != ruled.Granted {
			t.Fatalf("seed %d, step %d, earlier version: %v: %d granted, want %d; %d in this month", seed, number, isEarlier, granted, ruled.Granted, inMonth)
		}
	}
	if refused == 0 {
		t.Error("no month was used up")
	}
}
