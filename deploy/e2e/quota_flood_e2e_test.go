//go:build e2e

package e2e_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"petgate/shared/core/apikey"
	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// redis runs f with a client of the site's Redis.
func (s *quotaSite) redis(f func(ctx context.Context, c *redis.Client) error) {
	s.t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.server.Addr, Protocol: 2})
	defer c.Close()
	if err := f(context.Background(), c); err != nil {
		s.t.Fatal(err)
	}
}

// scriptCalls is how many functions and scripts Redis has run.
func (s *quotaSite) scriptCalls() (calls int) {
	s.t.Helper()
	s.redis(func(ctx context.Context, c *redis.Client) error {
		info, err := c.Info(ctx, "commandstats").Result()
		for line := range strings.Lines(info) {
			for _, command := range []string{"fcall", "eval", "evalsha"} {
				if stats, ok := strings.CutPrefix(line, "cmdstat_"+command+":calls="); ok {
					count, _, _ := strings.Cut(stats, ",")
					n, err := strconv.Atoi(count)
					if err != nil {
						return err
					}
					calls += n
				}
			}
		}
		return err
	})
	return calls
}

// flood runs the given number of clients at each gateway and counts their requests. The clients send without a pause.
func (s *quotaSite) flood(clients int, lasting time.Duration, ask func(gateway *fleet.Program, n int64)) int64 {
	var next atomic.Int64
	var all sync.WaitGroup
	end := time.Now().Add(lasting)
	for _, gateway := range s.Gateways {
		for range clients {
			all.Go(func() {
				for time.Now().Before(end) {
					ask(gateway, next.Add(1))
				}
			})
		}
	}
	all.Wait()
	return next.Load()
}

// A flood of unknown tokens from changing addresses costs Redis at most 200 calls per second for each gateway and bounded
// memory. It does not affect valid keys, even from the same addresses.
func TestFloodOfUnknownTokens(t *testing.T) {
	const gateways, lasting = 2, 5 * time.Second
	s := newQuotaSite(t, gateways, "GATEWAY_TRUSTED_PROXIES=127.0.0.1/32")
	key := s.NewTenant("t", fleet.Unlimited...)
	tokens := make([]string, 1000)
	for i := range tokens {
		var err error
		if tokens[i], err = apikey.Mint(apikey.Live, rand.Reader); err != nil {
			t.Fatal(err)
		}
	}
	const header = "X-Forwarded-For: "
	from := func(n int64) string { return fmt.Sprintf("10.%d.%d.%d", n>>16&255, n>>8&255, n&255) }
	statuses := map[int]int64{}
	var mu sync.Mutex
	unknown := func(gateway *fleet.Program, n int64) {
		got := gateway.Ask(tokens[n%int64(len(tokens))], header+from(n))
		mu.Lock()
		defer mu.Unlock()
		statuses[got.Status]++
	}
	s.flood(4, time.Second, unknown) // connections, buffers
	rss, calls := residentBytes(t, s.Gateways), s.scriptCalls()

	var took []time.Duration
	harmed, ended := 0, make(chan struct{})
	var valid sync.WaitGroup
	valid.Go(func() {
		for n := int64(0); ; n++ {
			select {
			case <-ended:
				return
			case <-time.After(10 * time.Millisecond):
			}
			got := s.Gateways[n%gateways].Ask(key.Token, header+from(n))
			took = append(took, got.Took)
			if got.Status != 200 {
				harmed++
			}
		}
	})
	requests := s.flood(4, lasting, unknown)
	close(ended)
	valid.Wait()
	calls = s.scriptCalls() - calls - len(took)
	grown := residentBytes(t, s.Gateways) - rss
	addresses := s.Gateways[0].Metrics()["petgate_gateway_limits_failed_attempts_addresses"]
	slices.Sort(took)
	t.Logf("figure: %d unknown tokens from as many addresses at %d gateways in %v: %d calls of Redis, %d a second a gateway; "+
		"%.1f MB more memory a gateway for %.0f addresses; %d requests of a valid key from the same addresses: %d harmed, p99 %v",
		requests, gateways, lasting, calls, calls/gateways/int(lasting.Seconds()), float64(grown)/gateways/(1<<20), addresses,
		len(took), harmed, took[len(took)*99/100])
	if calls > gateways*200*int(lasting.Seconds()) || grown > gateways*64<<20 || addresses > 1<<16 || harmed > 0 {
		t.Errorf("%d calls, %d bytes, %.0f addresses, %d valid requests harmed", calls, grown, addresses, harmed)
	}
	if statuses[401] < requests {
		t.Errorf("answers by status: %v", statuses)
	}

	// A single address is refused, but not if it uses a valid key.
	limited := 0
	for range 150 {
		if got := s.Gateways[0].Ask(tokens[0], header+"192.0.2.1"); got.Code() == "too_many_failed_attempts" {
			limited++
		}
	}
	if got := s.Gateways[0].Ask(key.Token, header+"192.0.2.1"); limited == 0 || got.Status != 200 {
		t.Errorf("%d of 150 attempts from one address refused, then a valid key: %d", limited, got.Status)
	}
}

// residentBytes is the memory of all gateways.
func residentBytes(t *testing.T, gateways []*fleet.Program) (sum int64) {
	t.Helper()
	for _, g := range gateways {
		sum += g.ResidentBytes(t)
	}
	return sum
}

// Three gateways on a private cluster of three Redis nodes admit exactly what each tenant may send.
func TestRedisCluster(t *testing.T) {
	t.Parallel()
	const tenants, limit = 12, 10
	urls := testkit.RedisCluster(t, 3)
	s := openQuotaSite(t, fleet.Spec{Redis: strings.Join(urls, ","), Gateways: 3}, "GATEWAY_BAN_AFTER=0")
	admitted := make([]int, tenants)
	for n := range tenants {
		key := s.NewTenant(fmt.Sprint("t", n), "--minute", fmt.Sprint(limit), "--day", "1000")
		admitted[n] = s.burst(key.Token, 5*limit)[200]
	}
	t.Logf("figure: a Redis Cluster of three nodes, 3 gateways: %d tenants of limit %d admitted %v of %d each",
		tenants, limit, admitted, 5*limit)
	if !s.exactly(slices.Min(admitted), limit) || !s.exactly(slices.Max(admitted), limit) {
		t.Errorf("admitted %v", admitted)
	}
}
