//go:build e2e

package clients_test

import (
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	petgate "petgate/shared/api/clients/go"
	"petgate/shared/database"
	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

// Both clients list 500 pets in pages of 5 with a free key, which may send 60 requests a minute. The program of docs/api.md is
// refused because its key is banned. No client sends a request before Retry-After is over.
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

	front := startFront(t, f.Gateways[0].URL, 0)
	listed := map[string]func(token string) int{
		"go": func(token string) int {
			limit, n := 5, 0
			client := &petgate.Client{URL: front.URL, Token: token}
			for pet, err := range client.ListPets(t.Context(), &petgate.ListPetsParams{Limit: &limit}) {
				if err != nil {
					t.Error(err)
					break
				}
				n += strings.Count(pet.Name, "Rex")
			}
			return n
		},
		"typescript": func(token string) int { return len(run(t, node(t, "testdata/list.ts"), front.URL, token)) },
		"documented": func(token string) int { return len(run(t, node(t, documented(t)), front.URL, token)) },
	}
	for name, list := range listed {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := f.NewTenant(name, "--plan", "free")
			if name == "documented" {
				f.MustKeyadmin("ban", "add", key.ID, "--for", "10s", "--reason", "a test", "--yes")
			}
			if n := list(key.Token); n < pets || n > pets+2 { // the program of the page stores one pet, and prints it
				t.Errorf("%d pets are listed, want %d", n, pets)
			}
			front.mu.Lock()
			defer front.mu.Unlock()
			k := front.keys[key.Token]
			if k.statuses[429] == 0 || k.early != 0 || k.soonest < 0 {
				t.Errorf("%+v: want a refusal, and no request that is early", *k)
			}
			t.Logf("figure: client %s: %d pets in %d requests, %d refused, %d sent before Retry-After was over, the first %v after it",
				name, pets, k.statuses[200]+k.statuses[429], k.statuses[429], k.early, k.soonest.Round(time.Millisecond))
		})
	}
}

// Both clients create pets while responses are lost and every part breaks in turn. No call fails, and each call stores one pet.
func TestEachCallStoresOnePet(t *testing.T) {
	t.Parallel()
	server := testkit.Postgres(t)
	u, err := url.Parse(server)
	must.Do(t, err)
	db := testkit.NewProxy(t, u.Host)
	u.Host = db.Addr
	f := fleet.Start(t, fleet.Spec{Database: server})
	pets := f.AddPets("DATABASE_URL=" + u.String())
	up := testkit.NewProxy(t, strings.TrimPrefix(pets.URL, "http://"))
	gateway := f.AddGateway("GATEWAY_UPSTREAMS=http://"+up.Addr, "GATEWAY_UPSTREAM_TIMEOUT=2s")
	front := startFront(t, gateway.URL, 7)

	calls := map[string]bool{} // the names of the pets whose calls succeeded
	var mu sync.Mutex
	var running sync.WaitGroup
	key := f.NewTenant("go", fleet.Unlimited...)
	client := &petgate.Client{URL: front.URL, Token: key.Token, AttemptsMax: 20}
	stop := make(chan struct{})
	for worker := range 4 {
		running.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				pet, err := client.CreatePet(t.Context(), petgate.NewPet{Name: fmt.Sprint("go ", worker, " ", i), CategoryID: 1}, nil)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				calls[pet.Name] = true
				mu.Unlock()
			}
		})
	}
	command := node(t, "testdata/create.ts")
	stdin, endTypeScript := io.Pipe()
	command.Stdin = stdin
	tsKey := f.NewTenant("ts", fleet.Unlimited...)
	running.Go(func() {
		for _, name := range run(t, command, front.URL, tsKey.Token) {
			mu.Lock()
			calls[string(name)] = true
			mu.Unlock()
		}
	})

	finish := sync.OnceFunc(func() {
		close(stop)
		_ = endTypeScript.Close()
		running.Wait()
	})
	t.Cleanup(finish)

	// answer waits for one more response with a status, or for one more request without a response.
	answer := func(status int) {
		t.Helper()
		before := front.count(status)
		testkit.Eventually(t, fleet.ReplyWithin, fmt.Sprint("a client gets ", status), func() bool { return front.count(status) > before })
	}
	testkit.Eventually(t, fleet.ReplyWithin, "both clients create pets", func() bool {
		front.mu.Lock()
		defer front.mu.Unlock()
		return len(front.keys) == 2
	})
	for _, fault := range []func(){
		func() { up.Reset() },
		func() { db.Reset() },
		func() { up.BlackHole(); answer(504); up.Restore(t) },
		func() { up.Kill(); answer(502); up.Restore(t) },
		func() { db.Kill(); answer(503); db.Restore(t) },
		func() { pets.Kill(); answer(502); pets.Start(t) },
		func() { gateway.Kill(); gateway.Start(t) },
	} {
		for range 8 {
			answer(201)
		}
		fault()
	}
	for range 8 {
		answer(201)
	}
	finish()

	opened, err := database.Open(server)
	must.Do(t, err)
	defer opened.Close()
	var rows []string
	must.Do(t, opened.Select(&rows, `SELECT name FROM pets`))
	stored := map[string]int{}
	for _, name := range rows {
		if stored[name]++; stored[name] > 1 || !calls[name] {
			t.Errorf("%q is stored %d times; its call succeeded: %t", name, stored[name], calls[name])
		}
	}
	if len(stored) != len(calls) {
		t.Errorf("%d pets are stored by %d calls", len(stored), len(calls))
	}
	front.mu.Lock()
	defer front.mu.Unlock()
	for client, token := range map[string]string{"Go": key.Token, "TypeScript": tsKey.Token} {
		k := front.keys[token]
		if k.statuses[201] == 0 || k.replayed == 0 {
			t.Errorf("client %s: %+v: nothing was stored, or nothing was repeated", client, *k)
		}
		t.Logf("figure: client %s: responses %v, %d of them for a pet that was stored before", client, k.statuses, k.replayed)
	}
	t.Logf("figure: %d calls stored %d pets while every part broke; %d requests got no response", len(calls), len(rows), front.broken)
}
