//go:build e2e

package e2e_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// live returns how many gateways report to the database.
func live(f *fleet.Fleet) (n int) {
	var gateways []struct{ State string }
	if done := f.Keyadmin("gateway", "list", "-o", "json"); json.Unmarshal([]byte(done.Stdout), &gateways) != nil {
		return 0 // the database does not answer yet
	}
	for _, g := range gateways {
		if g.State == "live" {
			n++
		}
	}
	return n
}

// Redis and Postgres are down for longer than the 3 s after which a gateway is silent, and Postgres comes back first. A gateway
// that reports again before the others still divides the limit by all six, although the others are silent. Otherwise the shares
// would exceed the limit: the first gateway would take the whole limit, the second one half of it, and so on.
func TestOutageOfRedisAndPostgres(t *testing.T) {
	t.Parallel()
	const limit, gateways, away = 600, 6, 5 * time.Second
	postgres, redis := testkit.StartPostgres(t), testkit.StartRedis(t)
	s := openQuotaSite(t, fleet.Spec{Database: postgres.URL, Redis: redis.URL, Gateways: gateways}, "GATEWAY_BAN_AFTER=0")
	roomy := s.NewTenant("roomy", fleet.Unlimited...)

	f := func(name string, pause, resume func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			key := s.NewTenant(name, "--minute", fmt.Sprint(limit), "--day", "100000")
			for _, g := range s.Gateways {
				g.Want(t, roomy.Token, 200, "") // a process that Redis has never answered has the smallest share
			}
			testkit.Eventually(t, 10*time.Second, "Redis decides", func() bool { return s.inMode("shared") })

			redis.Kill(t)
			postgres.Kill(t)
			pause(t)
			wait(away)
			l := fleet.StartLoad(t, key.Token, 1, 3*time.Millisecond, s.Gateways...)
			began := time.Now()
			postgres.Start(t)
			resume(t)
			testkit.Eventually(t, fleet.ReplyWithin, "all gateways report", func() bool { return live(s.Fleet) == gateways })
			wait(2 * time.Second) // two more reports of each
			if !s.inMode("outage") {
				t.Error("Redis is down, and some gateway is not in an outage")
			}
			// Only the requests of one window are judged. On a slow machine, the gateways may have a new one before Redis is back.
			window := func() []fleet.Shot { return l.Between(began.Add(-time.Second), began.Add(59*time.Second)) }
			var shares, refused map[*fleet.Program]int
			testkit.Eventually(t, fleet.ReplyWithin, "each gateway has admitted its share", func() bool {
				shares, refused = map[*fleet.Program]int{}, map[*fleet.Program]int{}
				for _, one := range window() {
					if one.Status == 200 {
						shares[one.Gateway]++
					} else if one.Status == 429 && one.Code() == "limits_degraded" {
						refused[one.Gateway]++
					}
				}
				return len(shares) == gateways && len(refused) == gateways
			})
			sum := 0
			for _, n := range shares {
				sum += n
			}

			redis.Start(t)
			testkit.Eventually(t, fleet.ReplyWithin, "Redis decides again", func() bool { return s.inMode("shared") })
			wait(time.Second)
			l.End()
			all := admitted(window())
			t.Logf("figure: Redis and Postgres down for %v, %s: the shares of %d gateways admitted %d of limit %d; "+
				"%d in the window, the recovery included", away, name, gateways, sum, limit, all)
			if sum > limit {
				t.Errorf("the shares admitted %d of limit %d", sum, limit)
			}
			if all > limit+gateways { // a request may be under way at each gateway when Redis decides again
				t.Errorf("%d of limit %d admitted in a window that began without use", all, limit)
			}
		})
	}
	nothing := func(*testing.T) {}
	f("gateways running", nothing, nothing)
	f("gateways paused", func(t *testing.T) {
		for _, g := range s.Gateways {
			g.Pause(t)
		}
	}, func(t *testing.T) {
		for n, g := range s.Gateways { // one after another: the first one sees five silent gateways
			g.Resume()
			testkit.Eventually(t, fleet.ReplyWithin, "it reports", func() bool { return live(s.Fleet) == n+1 })
		}
	})
}

// A fleet scales in while Redis is down, after the limit was used up: one gateway after the other gets all requests of two clients, and
// is stopped. A window and a day see at most two limits. When Redis is back, it has charged every admitted request once, also those of
// the gateways that are gone.
func TestFleetScalesInDuringAnOutage(t *testing.T) {
	t.Parallel()
	const gateways, limit, last = 6, 120, 3                                          // the last gateways are asked for the day after more than a minute
	redis := testkit.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always") // it keeps its counts
	s := openQuotaSite(t, fleet.Spec{Database: testkit.Postgres(t), Redis: redis.URL, Gateways: gateways}, "GATEWAY_BAN_AFTER=0")
	minute := s.NewTenant("minute", "--minute", fmt.Sprint(limit), "--day", "100000")
	day := s.NewTenant("day", "--plan", "enterprise", "--day", fmt.Sprint(limit))
	roomy := s.NewTenant("roomy", fleet.Unlimited...)
	for _, g := range s.Gateways {
		g.Want(t, roomy.Token, 200, "") // a process that Redis has never answered has the smallest share
	}
	testkit.Eventually(t, 10*time.Second, "Redis decides", func() bool { return s.inMode("shared") })
	ask := func(g *fleet.Program, key fleet.Key) (admitted int) {
		for refused := 0; refused < 5; {
			if got := g.MustAsk(t, key.Token); got.Status == 200 {
				admitted++
			} else {
				refused++
			}
		}
		return admitted
	}
	began := time.Now()
	minutes, days := 0, 0
	for key, admitted := range map[fleet.Key]*int{minute: &minutes, day: &days} {
		testkit.Eventually(t, fleet.ReplyWithin, "the limit is used up, also when Redis is late", func() bool {
			*admitted += ask(s.Gateways[0], key)
			return *admitted >= limit
		})
	}
	before := minutes
	redis.Kill(t)
	for i, g := range s.Gateways {
		if i == gateways-last {
			for _, rest := range s.Gateways[i:] {
				minutes += ask(rest, minute)
			}
			if took := time.Since(began); took > 59*time.Second {
				t.Fatalf("this machine took %v for the requests of a minute", took)
			}
			wait(62 * time.Second) // shares of the day no longer divide by those who have left
		} else if i < gateways-last {
			minutes += ask(g, minute)
		}
		days += ask(g, day)
		if i < gateways-1 {
			if code := g.Stop(); code != 0 {
				t.Errorf("gateway %d ends with code %d", i, code)
			}
		}
	}
	t.Logf("figure: %d gateways leave one after the other in an outage, after %d of limit %d were used: %d admitted in the window, %d in the day",
		gateways, before, limit, minutes, days)
	if minutes > 2*limit || days > 2*limit {
		t.Errorf("%d gateways: %d admitted before; %d in the window and %d in the day, the limits are %d", gateways, before, minutes, days, limit)
	}
	redis.Start(t)
	s.Gateways = s.Gateways[gateways-1:]
	testkit.Eventually(t, fleet.ReplyWithin, "Redis has charged what all admitted", func() bool {
		e := s.explain(day.Token)
		return e.Mode == "shared" && e.Day.Used == int64(days)
	})
}
