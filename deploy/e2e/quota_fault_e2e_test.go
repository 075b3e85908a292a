//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// inMode reports whether every gateway decides on quotas in this mode: "shared" or "outage".
func (s *quotaSite) inMode(mode string) bool {
	for _, g := range s.Gateways {
		if g.Metrics()[`petgate_gateway_limits_mode{mode="`+mode+`"}`] != 1 {
			return false
		}
	}
	return true
}

// load runs one client at each gateway. Each client sends a hundred requests per second.
func (s *quotaSite) load(key fleet.Key) *load {
	s.t.Helper()
	return startLoad(s.t, key.Token, 1, 10*time.Millisecond, s.Gateways...)
}

func admitted(all []shot) (n int) {
	for _, one := range all {
		if one.Status == 200 {
			n++
		}
	}
	return n
}

// latency returns a quantile of the latencies, such as 0.99, or the longest for 1. Without requests it is 0.
func latency(all []shot, share float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	took := make([]time.Duration, len(all))
	for i, one := range all {
		took[i] = one.Took
	}
	slices.Sort(took)
	return took[min(len(took)-1, int(share*float64(len(took))))].Round(100 * time.Microsecond)
}

// Whatever happens to Redis, no request fails because of it, and nothing is unlimited. No window admits more than twice the
// limit plus one request per gateway. Responses stay fast, and the gateways use Redis again as soon as it is back.
func TestRedisFaults(t *testing.T) {
	t.Parallel()
	const limit, gateways, lasting, recoveryMax, lossy = 300, 3, 2 * time.Second, 5 * time.Second, "flushed"
	server := testkit.StartRedis(t)
	s := openQuotaSite(t, fleet.Spec{Redis: server.URL, Gateways: gateways}, "GATEWAY_BAN_AFTER=0")
	s.server = server
	roomy := s.NewTenant("roomy", fleet.Unlimited...)
	var recoveries []time.Duration

	f := func(name string, outage bool, begin, end func(t *testing.T, tight fleet.Key)) {
		t.Run(name, func(t *testing.T) {
			testkit.Eventually(t, 10*time.Second, "Redis decides", func() bool { return s.inMode("shared") })
			tight := s.NewTenant(name, "--minute", fmt.Sprint(limit), "--day", "100000")
			fresh := s.NewTenant(name+" fresh", "--minute", fmt.Sprint(limit), "--day", "100000")
			before := s.decidedAlone()
			healthy := time.Now()
			all := map[string]*load{"roomy": s.load(roomy), "tight": s.load(tight)}
			wait(time.Second)
			served := func(from time.Time) {
				testkit.Eventually(t, fleet.ReplyWithin, "requests", func() bool {
					return len(all["roomy"].between(from, time.Now())) > 0 && len(all["tight"].between(from, time.Now())) > 0
				})
			}
			served(healthy)
			began := time.Now()
			begin(t, tight)
			broken := time.Now()
			all["fresh"] = s.load(fresh)
			wait(lasting)
			served(broken.Add(time.Second))
			if outage && !s.inMode("outage") {
				t.Error("some gateway has not noticed")
			}
			end(t, tight)
			back := time.Now()
			testkit.Eventually(t, fleet.ReplyWithin, "Redis decides again", func() bool { return s.inMode("shared") })
			recovery := time.Since(back)
			if outage {
				recoveries = append(recoveries, recovery)
			}
			wait(2 * time.Second) // every tenant's debt is charged with its first request
			settled, alone := time.Now(), s.decidedAlone()
			wait(time.Second)
			quiet := s.decidedAlone() == alone // otherwise the machine delayed a gateway, which then had an outage of its own
			for _, one := range all {
				one.end()
			}
			// What a slow machine does later may be in a new window.
			over := healthy.Add(59 * time.Second)
			bound := 2*limit + gateways // each may admit one request of a tenant that has used up its limit
			if name == lossy {
				bound += s.decidedAlone() - before // the loss of the counts is one fault; an outage on top of it admits more
			}
			for who, one := range all {
				whole := one.between(healthy, over)
				for _, got := range whole {
					if got.Status != 200 && got.Status != 429 {
						t.Errorf("%s was answered %d %s: %s", who, got.Status, got.Code(), got.Message())
					}
				}
				if n := admitted(whole); who != "roomy" && (n < limit || n > bound || len(whole) < 2*limit+limit/2) {
					t.Errorf("%s: %d of %d requests admitted in a window, the limit is %d", who, n, len(whole), limit)
				}
				if n := admitted(one.between(settled, over)); who != "roomy" && n > 0 && quiet {
					t.Errorf("%s: %d more admitted after Redis was back", who, n)
				}
			}
			during := all["roomy"].between(broken.Add(time.Second), back)
			if n := admitted(during); n != len(during) {
				t.Errorf("%d of %d requests far below a limit refused", len(during)-n, len(during))
			}
			usual := all["roomy"].between(healthy, began)
			t.Logf("figure: Redis %s: of limit %d a tenant %d admitted, a new one %d; Redis decides again after %v; "+
				"p99 %v before, worst %v in the first second, p99 %v then", name, limit, admitted(all["tight"].end()),
				admitted(all["fresh"].end()), recovery.Round(time.Millisecond), latency(usual, 0.99),
				latency(all["roomy"].between(began, broken.Add(time.Second)), 1), latency(during, 0.99))
			// A pause of the machine delays few requests. A gateway that waits for Redis delays all, by its budget of 50 ms.
			if with, without := latency(usual, 0.5), latency(during, 0.5); without > with+40*time.Millisecond {
				t.Errorf("median %v without Redis, %v with it", without, with)
			}
		})
	}
	none := func(*testing.T, fleet.Key) {}
	do := func(args ...any) func(*testing.T, fleet.Key) {
		return func(*testing.T, fleet.Key) {
			s.redis(func(ctx context.Context, c *redis.Client) error { return c.Do(ctx, args...).Err() })
		}
	}
	f("killed", true, func(t *testing.T, _ fleet.Key) { server.Kill(t) }, func(t *testing.T, _ fleet.Key) { server.Start(t) })
	f("paused", true, func(t *testing.T, _ fleet.Key) { server.Pause(t) }, func(t *testing.T, _ fleet.Key) { server.Resume(t) })
	f(lossy, false, do("FLUSHALL"), none)
	f("out of memory", true, do("CONFIG", "SET", "maxmemory", "1"), do("CONFIG", "SET", "maxmemory", "0"))
	if slices.Sort(recoveries); len(recoveries) > 0 && median(recoveries) > recoveryMax {
		t.Errorf("Redis decides again after %v (median), want at most %v", median(recoveries), recoveryMax)
	}
}

// between returns the requests that started within the time.
func (l *load) between(from, to time.Time) (found []shot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.shots {
		if !s.started.Before(from) && s.started.Before(to) {
			found = append(found, s)
		}
	}
	return found
}
