//go:build e2e

package e2e_test

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

// Gateways are replaced one after the other under load, and then replaced again by those of before, which have the database from before. All
// share one Redis, and no tenant gets more than its limit, or less. With EARLIER, the directory of an earlier release's gateway and keyadmin, those
// of before are of that release.
func TestUpgradeAndRollback(t *testing.T) {
	t.Parallel()
	redis, env := testkit.StartRedis(t).URL, []string{"GATEWAY_BAN_AFTER=0", "GATEWAY_LIMITS_ON_OUTAGE=refuse"}
	before := openQuotaSite(t, fleet.Spec{Redis: redis, Programs: os.Getenv("EARLIER"), Gateways: 3}, env...)
	type tenant struct {
		token                     string
		limit                     int64
		admitted, refused, unsure atomic.Int64
	}
	var tenants []*tenant
	for _, limit := range []string{"1", "20", "60", "150", "400"} {
		for _, day := range []string{limit, "100000"} {
			one := &tenant{token: before.NewTenant("t"+limit+day, "--minute", limit, "--day", day).Token}
			must.Get[int](t)(fmt.Sscan(limit, &one.limit))
			tenants = append(tenants, one)
		}
	}
	for _, g := range before.Gateways {
		g.Stop()
	}
	path := filepath.Join(t.TempDir(), "upgraded.db")
	must.Get[sql.Result](t)(openDatabase(t, before.Fleet).Exec("VACUUM INTO '" + path + "'"))
	after := openQuotaSite(t, fleet.Spec{Database: "sqlite:" + path, Redis: redis}, env...)
	for range before.Gateways {
		after.NewGateway()
	}

	var places [3]atomic.Pointer[fleet.Program] // where clients send their requests
	place := func(i int, g *fleet.Program) {
		t.Helper()
		g.Start(t)
		if old := places[i].Swap(g); old != nil {
			<-time.After(100 * time.Millisecond) // requests in flight
			if code := old.Stop(); code != 0 {
				t.Errorf("%s ends with code %d", old.ID, code)
			}
		}
	}
	for i, g := range before.Gateways {
		place(i, g)
	}
	began, stop := time.Now(), make(chan struct{})
	var clients sync.WaitGroup
	for i := range places {
		for _, one := range tenants {
			clients.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(40 * time.Millisecond):
					}
					switch got := places[i].Load().Ask(one.token); {
					case got.Status == 200:
						one.admitted.Add(1)
					case got.Code() == "minute_quota_exceeded" || got.Code() == "day_quota_exceeded":
						one.refused.Add(1)
					case got.Status == 0 || got.Code() == "limits_unavailable":
						one.unsure.Add(1)
					default:
						t.Error(got)
					}
				}
			})
		}
	}
	for _, gateways := range [][]*fleet.Program{after.Gateways, before.Gateways} {
		for i, g := range gateways {
			place(i, g)
		}
	}
	testkit.Eventually(t, fleet.ReplyWithin, "all limits are used up", func() bool {
		for _, one := range tenants {
			if one.refused.Load() == 0 {
				return false
			}
		}
		return true
	})
	close(stop)
	clients.Wait()
	took, sum, unsure := time.Since(began), int64(0), int64(0)
	for _, one := range tenants {
		if n := one.admitted.Load(); n > one.limit || n < one.limit-one.unsure.Load() {
			t.Errorf("%d requests admitted, the limit is %d; %d were not decided", n, one.limit, one.unsure.Load())
		}
		sum, unsure = sum+one.admitted.Load(), unsure+one.unsure.Load()
	}
	if took > 59*time.Second {
		t.Errorf("the run took %v, longer than a window", took)
	}
	t.Logf("figure: three gateways replaced and replaced back under load in %v: %d tenants admitted %d, none more than its limit; %d requests not decided",
		took.Round(time.Second), len(tenants), sum, unsure)
}
