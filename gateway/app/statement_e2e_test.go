//go:build e2e

package app_test

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"petgate/shared/keystore"
	"petgate/shared/testkit"
)

// While the database accepts connections and answers nothing, a request for usage fails after two seconds. Requests beside it do not
// wait. When the database answers again, usage can be read.
func TestStatementOfASilentDatabase(t *testing.T) {
	direct := testkit.Postgres(t)
	db := open(t, direct)
	if err := db.Migrate(t.Context(), keystore.Migrations); err != nil {
		t.Fatal(err)
	}
	_, _, token := newAccountant(t, db)
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	proxy := testkit.NewProxy(t, u.Host)
	u.Host = proxy.Addr
	r := start(t, u.String(), nil)
	r.awaitReady(t)
	r.awaitUsage(t, "", token)
	proxy.BlackHole()
	type outcome struct {
		status int
		took   time.Duration
	}
	slow := make(chan outcome, 1)
	go func() {
		began := time.Now()
		response, _ := get(t, r.url+"/v1/usage", token)
		slow <- outcome{response.StatusCode, time.Since(began)}
	}()
	served, longest := 0, time.Duration(0)
	for done := false; !done && served < 40; served++ {
		began := time.Now()
		if response, body := get(t, r.url+"/v1/pets", token); response.StatusCode != http.StatusOK {
			t.Fatalf("beside it: %d %s", response.StatusCode, body)
		}
		longest = max(longest, time.Since(began))
		select {
		case o := <-slow:
			slow <- o
			done = true
		case <-time.After(50 * time.Millisecond):
		}
	}
	o := <-slow
	t.Logf("figure: usage of a silent database: %d after %v; %d requests beside it, the longest %v", o.status, o.took, served, longest)
	if o.status != http.StatusServiceUnavailable || o.took < 1900*time.Millisecond || o.took > 10*time.Second {
		t.Errorf("%d after %v", o.status, o.took)
	}
	if served < 3 {
		t.Errorf("only %d requests were served beside it: they waited for it", served)
	}
	proxy.Restore(t)
	r.awaitUsage(t, "", token)
	r.end(t)
}
