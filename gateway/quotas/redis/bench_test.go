package redis

import (
	"fmt"
	"strings"
	"testing"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/id"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
	"petgate/shared/testkit"
)

// BenchmarkScript shows what a batch costs: Redis's own time for the script, for one tenant and for several, with a month and with
// limits of a key's own.
func BenchmarkScript(b *testing.B) {
	client := dialServer(b, testkit.StartRedis(b))
	s := newScript(client, "bench:", quota.Product, takeScript)
	for _, tenants := range []int{1, 8, 16, 64} {
		for _, of := range []string{"", "/month", "/key"} {
			b.Run(fmt.Sprint(tenants, of), func(b *testing.B) {
				var demands []store.Demand
				for i := range tenants {
					d := store.Demand{Request: store.Request{Name: store.Name{Tenant: tenantNo(i)}, Limits: generous}, Want: 1}
					switch of {
					case "/month":
						d.Limits.Month = plan.LimitMax
					case "/key":
						own := d
						own.Key, own.Joined = id.Key{1}, true
						demands = append(demands, own)
					}
					demands = append(demands, d)
				}
				results := make([]store.Result, len(demands))
				client.ConfigResetStat(background)
				b.ReportAllocs()
				for n := int64(1); b.Loop(); n++ {
					if err := s.DecideBatch(background, n, demands, results); err != nil {
						b.Fatal(err)
					}
				}
				for line := range strings.Lines(client.Info(background, "commandstats").Val()) {
					var calls, took int
					if _, err := fmt.Sscanf(line, "cmdstat_fcall:calls=%d,usec=%d", &calls, &took); err == nil {
						b.ReportMetric(float64(took)/float64(calls*tenants), "redis-µs/tenant")
					}
				}
			})
		}
	}
}

// BenchmarkTake has many goroutines ask at once. With -cpu above the number of cores and -mutexprofile, it shows what they wait for:
//
//	go test -run '^$' -bench Take -cpu 2,8,16 -mutexprofile mutex.out ./gateway/quotas/redis && go tool pprof -top redis.test mutex.out
func BenchmarkTake(b *testing.B) {
	r := open(b, Config{URL: testkit.StartRedis(b).URL})
	calls := make([]store.Call, 1000)
	for i := range calls {
		calls[i].Request = requestOf(tenantNo(i), generous.Minute, generous.Day)
	}
	b.SetParallelism(64)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for n := 0; pb.Next(); n = (n + 7) % len(calls) {
			if _, outcome := r.Take(calls[n]); outcome != Decided {
				b.Errorf("outcome %d", outcome)
				return
			}
		}
	})
}
