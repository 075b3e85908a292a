//go:build e2e

package clients_test

import (
	"strings"
	"sync"
	"testing"

	petgate "petgate/shared/api/clients/go"
	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// Both clients list 500 pets in pages of 5 with a free key, which may send 60 requests a minute.
// The program of docs/api.md is refused because its key is banned. No client sends a request before
// Retry-After is over.
func TestClientsWaitForRetryAfter(t *testing.T) {
	t.Parallel()
	const pets = 500
	f := fleet.Start(t, fleet.Spec{Database: testkit.SQLite(t), Gateways: 1})
	store := &petgate.Client{URL: f.Gateways[0].URL, Token: f.NewTenant("store", fleet.Unlimited...).Token}
	var storing sync.WaitGroup
	for range 5 {
		storing.Go(func() {
			for range pets / 5 {
				if _, err := store.CreatePet(t.Context(), petgate.NewPet{Name: "Rex", CategoryID: 1}, nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	storing.Wait()

	listed := map[string]func(url, token string) int{
		"go": func(url, token string) int {
			limit, n := 5, 0
			client := &petgate.Client{URL: url, Token: token}
			for pet, err := range client.ListPets(t.Context(), &petgate.ListPetsParams{Limit: &limit}) {
				if err != nil {
					t.Error(err)
					break
				}
				n += strings.Count(pet.Name, "Rex")
			}
			return n
		},
		"typescript": func(url, token string) int { return len(run(t, node(t, "testdata/list.ts"), url, token)) },
		"documented": func(url, token string) int { return len(run(t, node(t, documented(t)), url, token)) },
	}
	for name, list := range listed {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			front, key := startFront(t, f.Gateways[0].URL), f.NewTenant(name, "--plan", "free")
			if name == "documented" {
				f.MustKeyadmin("ban", "add", key.ID, "--for", "10s", "--reason", "a test", "--yes")
			}
			if n := list(front.URL, key.Token); n < pets ||
				n > pets+2 { // the program of the page stores one pet, and prints it
				t.Errorf("%d pets are listed, want %d", n, pets)
			}
			if front.refused == 0 || front.early != 0 {
				t.Errorf("%d requests refused, %d early: want a refusal, and no request that is early", front.refused,
					front.early)
			}
			t.Logf("figure: client %s: %d pets in %d requests, %d refused, %d sent before Retry-After was over",
				name, pets, front.requests, front.refused, front.early)
		})
	}
}
