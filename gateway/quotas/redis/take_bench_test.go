package redis

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"petgate/gateway/quotas/store"
	"petgate/gateway/quotas/store/storetest"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
)

// BenchmarkTake decides on full records: every slice of the window has use. "busy" uses the store's own clock, so most
// decisions of a tenant are in the same slice as its previous one. "next" moves the clock by a slice between two decisions
// of a tenant. Each decision then releases the oldest slice, writes to the ring and looks for the next oldest slice, which is
// the most expensive case below the limits.
func BenchmarkTake(b *testing.B) {
	const tenants = 1024
	for _, move := range []struct {
		name   string
		slices int64
	}{{"busy", 0}, {"next", 1}} {
		b.Run("memory/"+move.name, func(b *testing.B) {
			now := instant.Of(time.Now())
			clock := time.Now
			if move.slices > 0 {
				clock = func() time.Time { return now.Time() }
			}
			m := store.NewMemory(quota.Product, clock)
			if err := m.Load(fullRecords(tenants, now)); err != nil {
				b.Fatal(err)
			}
			benchmarkTake(b, m, &now, move.slices, tenants, 1)
		})
		for _, batch := range []int{1, 8, 16, 64} {
			b.Run(fmt.Sprintf("redis/%s/batch=%d", move.name, batch), func(b *testing.B) {
				client, prefix := dialRedis(b, func(o *redis.Options) { o.PoolSize = 1 })
				now := instant.Of(time.Now())
				s := newScript(client, prefix, quota.Product, takeScript)
				if move.slices > 0 {
					s.now = func() instant.Millis { return now }
				}
				for _, one := range fullRecords(tenants, now) {
					key := string(s.appendKey(nil, store.Name{Tenant: one.Tenant}))
					if err := client.Set(background, key, one.Record, time.Hour).Err(); err != nil {
						b.Fatal(err)
					}
				}
				before := processorTime(b, client)
				benchmarkTake(b, s, &now, move.slices, tenants, batch)
				used := processorTime(b, client) - before
				b.ReportMetric(float64(used.Nanoseconds())/float64(b.N*batch), "redis-ns/decision")
			})
		}
	}
}

// benchmarkTake makes one batch per operation, with one request of each of batch tenants. The tenants take turns.
func benchmarkTake(b *testing.B, by store.Store, now *instant.Millis, slices int64, tenants, batch int) {
	demands, results := make([]store.Demand, batch), make([]store.Result, batch)
	next := 0
	b.ReportAllocs()
	for b.Loop() {
		for i := range demands {
			demands[i] = store.Demand{
				Request: store.Request{Tenant: storetest.Tenant(next), Limits: plan.Limits{Minute: plan.LimitMax, Day: plan.LimitMax}},
				Want:    1,
			}
			if next++; next == tenants {
				next = 0
				*now = now.Add(time.Duration(slices) * quota.Product.Slice)
			}
		}
		if err := by.Decide(background, demands, results); err != nil {
			b.Fatal(err)
		}
		if results[0].Err != nil || results[0].Verdict.Granted != 1 || results[0].Verdict.Minute.Used < 200 {
			b.Fatalf("not a decision on a full record: %+v", results[0])
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/decision")
}

// fullRecords are records of tenants that were admitted one request in every slice up to now.
func fullRecords(tenants int, now instant.Millis) []store.Saved {
	rule := quota.Product
	var full quota.Record
	for slice := int64(rule.Slices); slice >= 0; slice-- {
		rule.Take(&full, now.Add(-time.Duration(slice)*rule.Slice), quota.Demand{
			Limits: plan.Limits{Minute: plan.LimitMax, Day: plan.LimitMax}, Want: 1,
		})
	}
	saved := make([]store.Saved, tenants)
	for n := range saved {
		saved[n] = store.Saved{Tenant: storetest.Tenant(n), Record: rule.Append(nil, &full)}
	}
	return saved
}

// processorTime is the processor time that Redis says it has used.
func processorTime(b *testing.B, client *redis.Client) time.Duration {
	b.Helper()
	info, err := client.Info(background, "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	var seconds float64
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user" || name == "used_cpu_sys" {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.Fatal(err)
			}
			seconds += n
		}
	}
	return time.Duration(seconds * float64(time.Second))
}
