package e2e_test

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// TestKillUnderPosts kills the pet service and a gateway again and again while pets are created.
func TestKillUnderPosts(t *testing.T) {
	together(t)
	url, prefix := testkit.Redis(t)
	f := fleet.Start(t, fleet.Spec{Gateways: 2, Redis: url, RedisPrefix: prefix})
	key := f.NewTenant("acme", limitless...)
	load := startTraffic(key.Token, hostPort(f.Gateways[0].URL), hostPort(f.Gateways[1].URL))
	for range edgeKills {
		for _, p := range []*fleet.Program{f.Pets, f.Gateways[0]} {
			load.more(t, 50)
			p.Kill()
			p.Start(t)
		}
	}
	load.more(t, 50)
	load.end()
	unanswered := load.stored(t, f)
	for status := range load.counts {
		if status != 0 && status != 200 && status != 201 && status != 502 {
			t.Errorf("%d answers with status %d", load.counts[status], status)
		}
	}
	t.Logf("figure: kill -9 of a pet service and of a gateway, %d times each, under load: of %d POSTs %d answered 201, each stored "+
		"once; %d more stored whose answer was lost (502: %d, no answer: %d)",
		edgeKills, len(load.created), load.counts[201], unanswered, load.counts[502], load.counts[0])
}

// TestKillOverAdmitsNothing kills a gateway again and again while a tenant uses up its minute at two of them.
func TestKillOverAdmitsNothing(t *testing.T) {
	together(t)
	url, prefix := testkit.Redis(t)
	f := fleet.Start(t, fleet.Spec{Gateways: 2, Redis: url, RedisPrefix: prefix, GatewayEnv: []string{"GATEWAY_BAN_AFTER=0"}})
	key := f.NewTenant("acme", "--plan", "enterprise", "--minute", strconv.Itoa(edgeQuota), "--day", "1000000")
	began := time.Now()
	var admitted, refused atomic.Int64
	stop := make(chan struct{})
	var done sync.WaitGroup
	for _, g := range f.Gateways {
		done.Go(func() {
			c := &caller{address: hostPort(g.URL)}
			defer c.close()
			tick := time.NewTicker(2 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-stop:
					return
				case <-tick.C:
				}
				switch got, err := c.do(getPets(key.Token)); {
				case err != nil: // it is being killed
				case got.StatusCode == 200:
					admitted.Add(1)
				case got.StatusCode == 429:
					refused.Add(1)
				default:
					t.Errorf("%d %s", got.StatusCode, got.body)
				}
			}
		})
	}
	const kills = 3
	for range kills {
		from := admitted.Load() + refused.Load()
		testkit.Eventually(t, replyWithin, "answers", func() bool { return admitted.Load()+refused.Load() > from+edgeQuota/10 })
		f.Gateways[0].Kill()
		f.Gateways[0].Start(t)
	}
	testkit.Eventually(t, time.Minute, "the quota is used up", func() bool { return refused.Load() > 0 })
	from := refused.Load()
	testkit.Eventually(t, replyWithin, "refusals", func() bool { return refused.Load() > from+50 })
	close(stop)
	done.Wait()
	if took := time.Since(began); took > time.Minute {
		t.Fatalf("it took %v: the machine is too slow to see one window", took)
	}
	// A killed gateway may have taken a request that it never answered: one, as its worker sends one at a time.
	if n := int(admitted.Load()); n > edgeQuota || n < edgeQuota-kills {
		t.Errorf("%d admitted of %d with %d kills", n, edgeQuota, kills)
	}
	t.Logf("figure: %d times kill -9 of one of two gateways with Redis: %d admitted of a minute of %d, over-admitted %d",
		kills, admitted.Load(), edgeQuota, max(0, admitted.Load()-edgeQuota))
}
