//go:build e2e

package e2e_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// TestOneKeyThroughTwoGateways sends 50 parallel POSTs with one Idempotency-Key through two gateways, and kills one gateway after
// the first response. Every client repeats its request until it gets a pet, at the other gateway if its own has ended.
func TestOneKeyThroughTwoGateways(t *testing.T) {
	t.Parallel()
	testkit.EachDatabase(t, func(t *testing.T, database string) {
		const rounds, clients = 10, 50
		url, prefix := testkit.Redis(t)
		f := fleet.Start(t, fleet.Spec{Database: database, Gateways: 2, Redis: url, RedisPrefix: prefix})
		key := f.NewTenant("acme", fleet.Unlimited...)
		statuses := map[int]int{}
		for round := range rounds {
			name := fmt.Sprintf("pet %d", round)
			request := fleet.PostPet(key.Token, name, fmt.Sprintf(`Idempotency-Key: "round %d"`, round))
			var mu sync.Mutex
			var all sync.WaitGroup
			locations, begun := map[string]int{}, make(chan struct{})
			begin := sync.OnceFunc(func() { close(begun) })
			for n := range clients {
				all.Go(func() {
					for attempt := 0; ; attempt++ {
						c := f.Gateways[(n+attempt)%2].Client()
						got, _ := c.Do(request) // a failed exchange is a reply with status 0
						c.Close()
						mu.Lock()
						statuses[got.Status]++
						if got.Status == http.StatusCreated {
							locations[got.Header.Get("Location")+got.Body]++
						}
						mu.Unlock()
						begin()
						switch got.Status {
						case http.StatusCreated:
							return
						case 0, http.StatusConflict, http.StatusBadGateway, http.StatusServiceUnavailable:
						default:
							t.Errorf("%v", got)
							return
						}
					}
				})
			}
			<-begun
			f.Gateways[0].Kill()
			all.Wait()
			f.Gateways[0].Start(t)
			if len(locations) != 1 {
				t.Errorf("one key got the responses %v", locations)
			}
		}
		for name, n := range petRows(t, f) {
			if n != 1 {
				t.Errorf("%s is stored %d times", name, n)
			}
		}
		if rows := len(petRows(t, f)); rows != rounds || statuses[http.StatusConflict] == 0 || statuses[0] == 0 {
			t.Errorf("%d pets for %d keys; answers by status: %v", rows, rounds, statuses)
		}
		f.Pets.Kill()
		f.Pets.Start(t)
		c := f.Gateways[0].Client()
		defer c.Close()
		again := c.Must(t, fleet.PostPet(key.Token, "pet 0", `Idempotency-Key: "round 0"`))
		other := c.Must(t, fleet.PostPet(key.Token, "another", `Idempotency-Key: "round 0"`))
		if again.Status != http.StatusCreated || again.Header.Get("Idempotent-Replayed") != "true" || other.Code() != "idempotency_key_reused" {
			t.Errorf("after a restart: %v, and for another pet %v", again, other)
		}
		t.Logf("figure: %d times 50 parallel POSTs with one key through two gateways, one killed in between: %d pets, one id for each "+
			"key; answers by status %v", rounds, len(petRows(t, f)), statuses)
	})
}
