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

// quotaSite is gateways whose quotas a test uses up.
type quotaSite struct {
	*fleet.Fleet
	t *testing.T
}

// openQuotaSite starts gateways with an upstream that always answers, on SQLite unless the spec has
// a database.
func openQuotaSite(t *testing.T, spec fleet.Spec, env ...string) *quotaSite {
	t.Helper()
	if spec.Database == "" {
		spec.Database = testkit.SQLite(t)
	}
	spec.Upstreams = fleet.FixedUpstream(t)
	spec.GatewayEnv = append([]string{
		"GATEWAY_ACCESS_LOG=false", "GATEWAY_LOG_LEVEL=warn",
	}, env...)
	return &quotaSite{Fleet: fleet.Start(t, spec), t: t}
}

// inMode reports whether every gateway decides on quotas in this mode: "shared" or "outage".
func (s *quotaSite) inMode(mode string) bool {
	for _, g := range s.Gateways {
		if g.Metrics()[`petgate_gateway_limits_mode{mode="`+mode+`"}`] != 1 {
			return false
		}
	}
	return true
}

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

// Redis and Postgres are down for longer than the 3 s after which a gateway is silent, and Postgres
// comes back first. A gateway that reports again before the others still divides the limit by all
// six, although the others are silent. Otherwise the shares would exceed the limit: the first
// gateway would take the whole limit, the second one half of it, and so on.
func TestOutageOfRedisAndPostgres(t *testing.T) {
	t.Parallel()
	const limit, gateways, away = 600, 6, 5 * time.Second
	postgres, redis := testkit.StartPostgres(t), testkit.StartRedis(t)
	s := openQuotaSite(t, fleet.Spec{Database: postgres.URL, Redis: redis.URL, Gateways: gateways},
		"GATEWAY_BAN_AFTER=0")
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
			<-time.After(away)
			l := fleet.StartLoad(t, key.Token, 1, 3*time.Millisecond, s.Gateways...)
			began := time.Now()
			postgres.Start(t)
			resume(t)
			testkit.Eventually(t, fleet.ReplyWithin, "all gateways report",
				func() bool { return live(s.Fleet) == gateways })
			<-time.After(2 * time.Second) // two more reports of each
			if !s.inMode("outage") {
				t.Error("Redis is down, and some gateway is not in an outage")
			}
			// Only the requests of one window are judged. On a slow machine, the gateways may have
			// a new one before Redis is back.
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
			<-time.After(time.Second)
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

func admitted(all []fleet.Shot) (n int) {
	for _, one := range all {
		if one.Status == 200 {
			n++
		}
	}
	return n
}
