package redis

import (
	_ "embed"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
	"petgate/shared/testkit/must"
)

// remembered says which batches charged each record, as take.lua does.
type remembered map[store.Name]charged

type charged struct {
	last, granted int64
	reports       []int64 // the last 7 batches with unreported requests
}

// decide lets decide decide the demands that were not decided under this number before.
func (r remembered) decide(number int64, demands []store.Demand, results []store.Result, decide func([]store.Demand, []store.Result) error) error {
	asked := slices.Clone(demands)
	for i := range asked {
		before := r[asked[i].Name]
		if before.last == number {
			asked[i].Want = 0
		}
		if before.last == number || slices.Contains(before.reports, number) {
			asked[i].Unreported = quota.Use{}
		}
	}
	err := decide(asked, results)
	for i, d := range asked {
		v, c := &results[i].Verdict, r[d.Name]
		if c.last == number {
			v.Granted = c.granted
			continue
		}
		reports := d.Unreported != (quota.Use{})
		if reports {
			c.reports = append(c.reports, number)
			c.reports = c.reports[max(0, len(c.reports)-7):]
		}
		if reports || v.Granted > 0 {
			c.last, c.granted = number, v.Granted
		}
		r[d.Name] = c
	}
	return err
}

// The script remembers batches: those of several gateways, new ones and repeated ones, get the answers and charge what remembered says. A
// key's own record and its tenant's are charged the same, however often a batch is sent.
func TestBatchesAreRemembered(t *testing.T) {
	t.Parallel()
	client, prefix := dialRedis(t)
	const gateways = 3
	now := epoch
	var scripts [gateways]*script
	fake := remembered{}
	var wants [gateways]map[int64][2]int64 // by number: a batch that is repeated has the same demands
	for i := range gateways {
		scripts[i] = newScript(client, prefix, quota.Product, takeScript)
		scripts[i].now = func() instant.Millis { return now }
		wants[i] = map[int64][2]int64{}
	}
	records := newMemory(quota.Product, func() time.Time { return now.Time() })
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	last, used, seen := int64(0), [2]int64{}, map[string]int{}
	for step := range 2000 {
		gateway, number := random.IntN(gateways), max(1, last-random.Int64N(4))
		if random.IntN(3) == 0 {
			number = last + 1
		}
		last = max(last, number)
		want, ok := wants[gateway][number]
		if !ok {
			want = [2]int64{random.Int64N(10)}
			want[1] = want[0]
			wants[gateway][number] = want
		}
		var demands [2]store.Demand
		for i := range demands {
			demands[i] = store.Demand{Request: requestOf(tenantNo(1), 20, 1e6), Want: want[i]}
			if demands[i].Joined = i == 0; i == 0 {
				demands[i].Key, demands[i].Limits.Minute = id.Key{1}, 15
			}
			if want[i] == 3 {
				demands[i].Unreported = quota.Use{Minute: 1, Day: quota.Period{Ends: int64(now)/86_400_000 + 1, Used: 2}}
			}
		}
		var ofScript, ofFake [2]store.Result
		if err := scripts[gateway].DecideBatch(background, number, demands[:], ofScript[:]); err != nil {
			t.Fatal(err)
		}
		if err := fake.decide(number*gateways+int64(gateway), demands[:], ofFake[:], func(d []store.Demand, results []store.Result) error {
			return records.Decide(background, d, results)
		}); err != nil {
			t.Fatal(err)
		}
		for i := range demands {
			a, b := ofScript[i], ofFake[i]
			switch {
			case ok && a.Verdict.Usages[quota.Day].Used == used[i]:
				seen["repeated, and not charged"]++
			case ok:
				seen["repeated"]++
			default:
				seen["new"]++
			}
			used[i] = a.Verdict.Usages[quota.Day].Used
			if a.Err != nil || a.Verdict.Granted != b.Verdict.Granted || a.Verdict.Usages[quota.Day].Used != b.Verdict.Usages[quota.Day].Used {
				t.Fatalf("seed %d, step %d, batch %d of gateway %d: the script says %+v, the fake %+v", seed, step, number, gateway, a, b)
			}
		}
		if own, whole := ofScript[0].Verdict, ofScript[1].Verdict; own.Usages[quota.Day].Used != whole.Usages[quota.Day].Used || own.Granted != whole.Granted {
			t.Fatalf("seed %d, step %d: the key's record and its tenant's are charged unlike: %+v, %+v", seed, step, own, whole)
		}
		now += instant.Millis(random.IntN(2000))
	}
	t.Logf("2000 steps, seed %d: %v", seed, seen)
	for _, kind := range []string{"new", "repeated", "repeated, and not charged"} {
		if seen[kind] < 50 {
			t.Errorf("seed %d: only %d demands were %s", seed, seen[kind], kind)
		}
	}
}

// A record remembers its last batch, and the last seven with unreported requests: these are charged once, whatever is charged in
// between. It stays small.
func TestReportsAreRemembered(t *testing.T) {
	client, prefix := dialRedis(t)
	d := store.Demand{Request: requestOf(tenantNo(1), 1000, 1000), Want: 1}
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

// Records with less or more behind the summary, as another version may write them, are read and remember batches.
func TestRecordsOfOtherVersions(t *testing.T) {
	client, prefix := dialRedis(t)
	s := newScript(client, prefix, quota.Product, takeScript)
	d := store.Demand{Request: requestOf(tenantNo(1), 1000, 1000), Want: 1}
	takeOne(t, s, d)
	form := client.Get(background, s.keyOf(d)).Val()[:quota.Product.RecordBytes()]
	for _, more := range []int{0, 7, 20, 500} {
		client.Set(background, s.keyOf(d), form+strings.Repeat("x", more), time.Hour)
		for number := int64(1); number <= 2; number++ {
			for range 2 {
				var results [1]store.Result
				err := s.DecideBatch(background, number, []store.Demand{d}, results[:])
				if v := results[0].Verdict; err != nil || results[0].Err != nil || v.Granted != 1 || v.Usages[quota.Day].Used != 1+number {
					t.Errorf("%d bytes more, batch %d: %+v, %v", more, number, results[0], err)
				}
			}
		}
	}
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
		today := int64(now) / 86_400_000
		if today != lastDay {
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
