//go:build e2e

package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"petgate/shared/testkit/fleet"
)

// A refusal's headers are true. Clients that sleep exactly Retry-After are served, in every phase of their window. They are
// never banned, even if many of them share a key. A client that does not sleep is banned.
func TestRetryAfterIsTrue(t *testing.T) {
	t.Parallel()
	const alone, together, lasting = 24, 200, 72 * time.Second
	s := newQuotaSite(t, 3)
	var keys []fleet.Key
	for n := range alone {
		keys = append(keys, s.NewTenant(fmt.Sprint("alone", n), "--minute", fmt.Sprint(1+n%7), "--day", "100000"))
	}
	shared := s.NewTenant("shared", "--minute", "20", "--day", "100000")
	single := s.NewTenant("single", "--minute", "20", "--day", "100000")
	deaf := s.NewTenant("deaf", "--minute", "20", "--day", "100000")

	var all sync.WaitGroup
	end := time.Now().Add(lasting)
	var phases, early, banned, refused, deafRequests atomic.Int64
	longest := make([]time.Duration, alone)
	for n, key := range keys {
		random := rand.New(rand.NewPCG(uint64(n), 1))
		all.Go(func() {
			wait(time.Duration(random.Int64N(int64(5 * time.Second))))
			for time.Now().Before(end.Add(-62 * time.Second)) {
				got := s.Gateways[random.IntN(3)].Ask(key.Token)
				for ; got.Status == 200; got = s.Gateways[random.IntN(3)].Ask(key.Token) {
					wait(time.Duration(random.Int64N(int64(2 * time.Second))))
				}
				longest[n] = max(longest[n], got.RetryAfter())
				wait(got.RetryAfter())
				phases.Add(1)
				if after := s.Gateways[random.IntN(3)].Ask(key.Token); after.Status != 200 {
					early.Add(1)
					t.Logf("refused with Retry-After %v (%s), and then with %v (%s)", got.RetryAfter(), got.Code(),
						after.RetryAfter(), after.Code())
				}
			}
		})
	}
	obedient := func(key fleet.Key, random *rand.Rand) {
		for time.Now().Before(end) {
			got := s.Gateways[random.IntN(3)].Ask(key.Token)
			if got.Code() == "key_banned" {
				banned.Add(1)
			}
			if got.Status == 429 {
				refused.Add(1)
			}
			wait(min(got.RetryAfter(), time.Until(end)))
		}
	}
	all.Go(func() { obedient(single, rand.New(rand.NewPCG(1, 2))) })
	for n := range together {
		all.Go(func() { obedient(shared, rand.New(rand.NewPCG(uint64(n), 3))) })
	}
	all.Go(func() { // one gateway bans, because each counts only the strikes of its own refusals
		for s.Gateways[0].Ask(deaf.Token).Code() != "key_banned" && time.Now().Before(end) {
			deafRequests.Add(1)
			wait(100 * time.Millisecond)
		}
	})
	all.Wait()
	var most time.Duration
	for _, one := range longest {
		most = max(most, one)
	}
	t.Logf("figure: of %d lone clients that slept exactly Retry-After (up to %v), in as many phases, %d were refused again; "+
		"1 and %d workers of a key that all sleep it: %d refusals, %d bans; one that does not sleep is banned after %d requests",
		phases.Load(), most, early.Load(), together, refused.Load(), banned.Load(), deafRequests.Load())
	if phases.Load() < 20 || !s.exactly(int(early.Load()), 0) || banned.Load() > 0 || refused.Load() < together {
		t.Errorf("%d phases, %d of them early, %d refusals, %d bans", phases.Load(), early.Load(), refused.Load(), banned.Load())
	}
	if n := deafRequests.Load(); n < 50 || n > 200 && !s.exactly(int(n), 200) {
		t.Errorf("a deaf client was banned after %d requests, of which 20 were admitted; 30 strikes ban", n)
	}
}

// wait is what a client does between its requests.
func wait(d time.Duration) { <-time.After(d) }
