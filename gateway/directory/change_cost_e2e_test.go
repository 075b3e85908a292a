//go:build linux && e2e

package directory

import (
	"fmt"
	"testing"
	"time"

	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

func openFollower(t testing.TB, url, gateway string) *keystore.Store {
	t.Helper()
	db := must.Get[*database.DB](t)(database.Open(url))
	db.SetMaxOpenConns(3) // as a gateway does
	t.Cleanup(func() { db.Close() })
	return keystore.New(db, nil, nil, gateway)
}

// The cost of a change for Postgres grows with the number of gateways that read and confirm it.
func TestWhatAChangeCosts(t *testing.T) {
	server := testkit.StartPostgres(t)
	store := openStore(t, server.URL)
	tenant, _, _ := fixture(t, store)
	followers := 0
	for _, n := range []int{1, 10, 40, 100} {
		for ; followers < n; followers++ {
			name := fmt.Sprintf("gw-%d", followers)
			start(t, openFollower(t, server.URL, name), Config{GatewayID: name})
		}
		const pairs = 10
		var waited time.Duration
		measure := func(change func()) time.Duration {
			before := server.ProcessorTime(t)
			change()
			return server.ProcessorTime(t) - before
		}
		once := func() {
			key, _, change, err := store.CreateKey(t.Context(), keystore.KeySpec{Tenant: tenant.ID})
			begun := time.Now()
			confirm(t, store)(change, err)
			_, change, err = store.RevokeKey(t.Context(), key.ID)
			confirm(t, store)(change, err)
			waited += time.Since(begun)
		}
		once() // from here on, all statements are prepared
		waited = 0
		cost := measure(func() {
			for range pairs {
				once()
			}
		})
		t.Logf("figure: %d gateways: a change costs Postgres %.1f ms of processor time and is confirmed after %.0f ms",
			n, cost.Seconds()*1000/(2*pairs), waited.Seconds()*1000/(2*pairs))
	}
}
