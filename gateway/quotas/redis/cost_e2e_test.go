//go:build e2e

package redis

import (
	"fmt"
	"strings"
	"testing"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/quota"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// twoCounts is what a gateway without this package would run for a request: two fixed windows.
const twoCounts = `local minute = redis.call("INCR", KEYS[1])
if minute == 1 then redis.call("EXPIRE", KEYS[1], 120) end
local day = redis.call("INCR", KEYS[2])
if day == 1 then redis.call("EXPIRE", KEYS[2], 90000) end
return {minute, day}`

// What a call costs Redis, by its own count, beside a script of two counters. The two take turns.
// On an idle machine, with warm caches, what every call costs weighs less, so the ratios are larger
// than on a busy one.
func TestWhatACallCostsRedis(t *testing.T) {
	client := dialServer(t, testkit.StartRedis(t))
	s := newScript(client, "cost:", quota.Product, takeScript)
	must.Do(t, s.load(always))
	counts := must.Get[string](t)(client.ScriptLoad(always, twoCounts).Result())
	for _, c := range []struct {
		tenants  int
		ratioMax float64
	}{{1, 2.5}, {8, 9}, {64, 55}} {
		demands, results := make([]store.Demand, c.tenants), make([]store.Result, c.tenants)
		for i := range demands {
			demands[i] = demandOf(tenantNo(i), generous.Minute, generous.Day)
		}
		client.ConfigResetStat(always)
		for n := range int64(4000) {
			must.Do(t, s.DecideBatch(always, n+1, demands, results))
			must.Do(t, client.EvalSha(always, counts, []string{"cost:minute", "cost:day"}).Err())
		}
		micros := func(command string) float64 {
			_, rest, _ := strings.Cut(client.Info(always, "commandstats").Val(), "cmdstat_"+command+":")
			var calls, took float64
			if _, err := fmt.Sscanf(rest, "calls=%f,usec=%f", &calls, &took); err != nil || calls != 4000 {
				t.Fatalf("%s: %v calls, %v", command, calls, err)
			}
			return took / calls
		}
		ours, theirs := micros("fcall"), micros("evalsha")
		t.Logf("figure: a call for %d tenants: %.1f µs of Redis, %.2f times a script of two counters", c.tenants, ours,
			ours/theirs)
		if ours > c.ratioMax*theirs {
			t.Errorf("%d tenants: %.2f times a script of two counters, want at most %v", c.tenants, ours/theirs,
				c.ratioMax)
		}
	}
}
